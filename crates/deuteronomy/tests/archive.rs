//! Archives of the log: an older backup is restored to any later moment.
#![allow(missing_docs)]

#[path = "common/restoring.rs"]
mod restoring;

use hyades_deuteronomy::{Continuation, Database, Options, Restore, Until};
use hyades_platform::clock;
use hyades_platform::device::FileDevice;
use hyades_wal::{LogOptions, open_read, prune_archive};
use restoring::{Rows, history, is_refused, options, redb, rows};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A database with an archive, and what it went through.
struct Archived {
    dir: tempfile::TempDir,
    /// The state behind each timestamp since the first backup.
    states: BTreeMap<u64, Rows>,
}

impl Archived {
    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn options(&self, streams: usize) -> Options {
        let mut options = options(&self.at("log"), streams);
        options.log.segment_bytes = 1 << 16;
        options.log.archive = Some(self.at("archive"));
        options
    }

    fn open(&self, streams: usize) -> Database {
        Database::open(self.options(streams), redb(&self.at("data"))).unwrap()
    }

    /// A database with a backup named `first`.
    fn begin() -> Archived {
        let mut archived = Archived { dir: tempfile::tempdir().unwrap(), states: BTreeMap::new() };
        let database = archived.open(3);
        history(&database, Rows::new(), 200);
        archived.backup(&database, "first");
        archived
    }

    fn backup(&mut self, database: &Database, name: &str) {
        let data = redb(&self.at(&format!("{name}.redb")));
        let backup = database.backup(self.at(name), &*data).unwrap();
        self.states.insert(backup.timestamp, rows(database));
    }

    /// A life of the database, with checkpoints; ends by a crash if `crashes`.
    fn live(&mut self, streams: usize, crashes: bool) {
        let database = self.open(streams);
        for _ in 0..4 {
            self.states.extend(history(&database, rows(&database), 700));
            database.checkpoint().unwrap();
        }
        self.states.extend(history(&database, rows(&database), 50));
        if !crashes {
            database.close().unwrap();
        }
    }

    fn restore(
        &self,
        from: &str,
        later: Continuation,
        until: Until,
    ) -> Result<(u64, Rows), hyades_deuteronomy::Error> {
        let to = tempfile::tempdir().unwrap();
        let (dir, into) = (to.path().join("log"), redb(&to.path().join("redb")));
        let data = redb(&self.at(&format!("{from}.redb")));
        let restore = Restore::new(vec![self.at(from)], &*data).continued(later).until(until);
        let restored = restore.run(&dir, &*into)?;
        let database = Database::open(options(&dir, 2), into).unwrap();
        Ok((restored.timestamp, rows(&database)))
    }

    fn archive(&self) -> Continuation {
        Continuation { archive: Some(self.at("archive")), log: Vec::new() }
    }

    fn archive_and_log(&self) -> Continuation {
        Continuation { log: vec![self.at("log")], ..self.archive() }
    }

    /// Checks that a state has no value that its key never had.
    fn check_values(&self, found: &Rows) {
        for (key, value) in found {
            let had = |state: &Rows| state.get(key) == Some(value);
            assert!(self.states.values().any(had), "{key:?} never had {value:?}");
        }
    }

    /// The state behind the transactions up to a timestamp.
    fn state(&self, ts: u64) -> &Rows {
        self.states.range(..=ts).next_back().unwrap().1
    }
}

fn segments(dir: &Path) -> usize {
    let streams = std::fs::read_dir(dir).unwrap().flatten();
    streams.filter_map(|stream| std::fs::read_dir(stream.path()).ok()).map(Iterator::count).sum()
}

#[test]
fn each_moment_since_a_backup_is_restored_over_checkpoints_and_openings() {
    let mut archived = Archived::begin();
    for (streams, crashes) in [(3, true), (3, false), (1, true), (4, true)] {
        archived.live(streams, crashes);
    }
    assert!(segments(&archived.at("archive")) > 8, "little was archived");
    let all: Vec<u64> = archived.states.keys().copied().collect();
    for ts in all.iter().step_by(997) {
        let (_, found) =
            archived.restore("first", archived.archive_and_log(), Until::Timestamp(*ts)).unwrap();
        assert_eq!(&found, archived.state(*ts), "at {ts}");
    }
    let (ts, found) = archived.restore("first", archived.archive_and_log(), Until::Newest).unwrap();
    assert_eq!((ts, &found), (all[all.len() - 1], archived.state(ts)));
}

#[test]
fn without_the_log_a_restore_ends_with_the_archive() {
    let mut archived = Archived::begin();
    let mut last = 0;
    for life in 0..3 {
        archived.live(3, life != 1);
        // As after the loss of the disk with the log.
        let (ts, found) = archived.restore("first", archived.archive(), Until::Newest).unwrap();
        archived.check_values(&found);
        let newest = *archived.states.keys().next_back().unwrap();
        println!("life {life}: up to {ts} of {newest}");
        assert!(ts > last, "life {life}: the archive has nothing new");
        last = ts;
    }
}

#[test]
fn a_time_of_the_day_is_restored() {
    let mut archived = Archived::begin();
    let mut times = Vec::new();
    for _ in 0..2 {
        archived.live(3, true);
        let newest = *archived.states.keys().next_back().unwrap();
        std::thread::sleep(Duration::from_millis(30));
        times.push((clock::wall_us(), newest));
        std::thread::sleep(Duration::from_millis(150));
    }
    archived.live(3, true);
    for (at_us, newest) in times {
        let until = Until::Time(at_us);
        let (ts, found) = archived.restore("first", archived.archive_and_log(), until).unwrap();
        assert_eq!((ts, &found), (newest, archived.state(newest)));
    }
    let long_ago = archived.restore("first", archived.archive_and_log(), Until::Time(0));
    is_refused(long_ago, "an older backup");
}

#[test]
fn a_gap_is_refused() {
    let mut archived = Archived::begin();
    archived.live(2, true);
    // A life without the archive.
    let mut options = archived.options(2);
    options.log.archive = None;
    let database = Database::open(options, redb(&archived.at("data"))).unwrap();
    history(&database, rows(&database), 2000);
    database.checkpoint().unwrap();
    drop(database);
    archived.live(2, true);
    is_refused(
        archived.restore("first", archived.archive_and_log(), Until::Newest),
        "truncated there without an archive",
    );
    // The log alone begins later than the backup.
    let log = Continuation { archive: None, log: vec![archived.at("log")] };
    is_refused(archived.restore("first", log, Until::Newest), "is missing between");
    // A backup from after the gap goes on.
    let database = archived.open(2);
    archived.backup(&database, "second");
    drop(database);
    archived.live(3, true);
    let (ts, found) =
        archived.restore("second", archived.archive_and_log(), Until::Newest).unwrap();
    assert_eq!(&found, archived.state(ts));
}

#[test]
fn an_archive_is_pruned_up_to_a_backup() {
    let mut archived = Archived::begin();
    archived.live(3, true);
    let database = archived.open(3);
    archived.backup(&database, "second");
    drop(database);
    archived.live(2, true);
    let backup = open_read(LogOptions::new(vec![archived.at("second")], 1)).unwrap();
    let archive = archived.at("archive");
    let before = segments(&archive);
    let pruned = prune_archive(&*FileDevice::shared(), &archive, backup.manifest()).unwrap();
    assert_eq!(segments(&archive), before - pruned.files as usize);
    assert!(pruned.files > 2 && pruned.bytes > 0, "{pruned:?}");
    drop(backup);
    let newest = *archived.states.keys().next_back().unwrap();
    let (ts, found) =
        archived.restore("second", archived.archive_and_log(), Until::Newest).unwrap();
    assert_eq!((ts, &found), (newest, archived.state(ts)));
    is_refused(
        archived.restore("first", archived.archive_and_log(), Until::Newest),
        "is missing between",
    );
    // The archive goes on.
    archived.live(2, true);
    let (_, found) = archived.restore("second", archived.archive(), Until::Newest).unwrap();
    archived.check_values(&found);
}

#[test]
fn an_archive_that_cannot_be_written_keeps_the_log() {
    let mut archived = Archived::begin();
    archived.live(3, false);
    let (moved, database) = (archived.at("elsewhere"), archived.open(3));
    std::fs::rename(archived.at("archive"), &moved).unwrap();
    std::fs::write(archived.at("archive"), "a file").unwrap();
    for _ in 0..3 {
        archived.states.extend(history(&database, rows(&database), 700));
        assert_eq!(database.checkpoint().unwrap(), 0, "nothing may be truncated");
    }
    std::fs::remove_file(archived.at("archive")).unwrap();
    std::fs::rename(&moved, archived.at("archive")).unwrap();
    assert!(database.checkpoint().unwrap() > 0);
    archived.states.extend(history(&database, rows(&database), 10));
    drop(database);
    let (ts, found) = archived.restore("first", archived.archive_and_log(), Until::Newest).unwrap();
    assert_eq!((ts, &found), (*archived.states.keys().next_back().unwrap(), archived.state(ts)));
}

#[test]
fn what_is_no_archive_of_the_log_is_refused() {
    let mut archived = Archived::begin();
    archived.live(1, true);
    let mut others = Archived::begin();
    others.live(1, true);
    // An archive is no log, and a log no archive.
    let as_log = Database::open(options(&archived.at("archive"), 1), redb(&archived.at("x")));
    is_refused(as_log, "is the archive of a log, and no log");
    let open = |archive: PathBuf| {
        let mut options = archived.options(1);
        options.log.archive = Some(archive);
        Database::open(options, redb(&archived.at("data")))
    };
    is_refused(open(others.at("archive")), "the archive of another database");
    is_refused(open(others.at("log")), "cannot be the archive of a log");
    is_refused(open(archived.at("log")), "a directory of its own");
    let restore = |later| archived.restore("first", later, Until::Newest);
    is_refused(restore(others.archive()), "another database");
    is_refused(restore(others.archive_and_log()), "another database");
    let none = Continuation { archive: Some(archived.at("first")), log: Vec::new() };
    is_refused(restore(none), "no archive of a log");
    // Damage is found.
    let list = archived.at("archive").join("ARCHIVE");
    let mut bytes = std::fs::read(&list).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&list, bytes).unwrap();
    is_refused(restore(archived.archive()), "corrupt");
}
