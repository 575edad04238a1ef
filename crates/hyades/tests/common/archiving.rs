//! Databases with an archive of the log, and restores from backups with the archive.

use super::{
    Combination, How, Opened, Transfer, builder, directory, populate, power_cut, refused, run,
};
use hyades::wal::Continuation;
use hyades::{Concurrency, Error, Protocol, RecordKind, Restore, Until};
use hyades_platform::clock;
use hyades_platform::device::Device;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The combination of tests that need a single one.
pub const PLAIN: Combination = Combination {
    protocol: Protocol::Taurus,
    concurrency: Concurrency::Silo,
    record: RecordKind::Data,
    streams: 2,
};

/// A state, and a time at which no transaction was running.
pub struct Moment {
    pub at_us: u64,
    pub digest: u64,
}

/// The directories of a database, of its archive and of a backup.
pub struct Place {
    dir: tempfile::TempDir,
    c: Combination,
    pub device: Option<Arc<dyn Device>>,
    pub archives: bool,
    /// Transactions between two checkpoints.
    pub transactions: u64,
}

impl Place {
    pub fn new(c: Combination) -> Self {
        Place { dir: directory(), c, device: None, archives: true, transactions: 250 }
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn open(&self) -> Result<Opened, Error> {
        let how = How { device: self.device.clone(), ..How::default() };
        let (builder, [transfer, churn]) = builder(self.c, how);
        let builder = builder.log_settings(|log| {
            log.epoch = Some(Duration::from_millis(10));
            log.segment_bytes = 1 << 16;
            log.archive = self.archives.then(|| self.at("archive"));
        });
        let watched = crate::common::watched::watched(&format!("{:?}", self.c));
        let db = builder.open(self.at("log"))?;
        Ok(Opened { db, watched, transfer, churn, inserting: None })
    }

    /// A life with checkpoints, whose end is a crash if `crashes`.
    pub fn live(&self, seed: u64, crashes: bool) -> Vec<Moment> {
        let opened = self.open().unwrap();
        let mut moments = Vec::new();
        for part in 0..3 {
            run(&opened, seed * 10 + part, self.transactions);
            moments.push(pause(&opened));
            opened.db.checkpoint().unwrap();
        }
        run(&opened, seed * 10 + 9, 30);
        moments.push(pause(&opened));
        match crashes {
            true => opened.db.log().unwrap().flush().unwrap(),
            false => opened.db.close().unwrap(),
        }
        moments
    }

    pub fn restore(&self, later: Continuation, until: Until) -> Result<u64, Error> {
        self.restore_from("backup", later, until)
    }

    fn restore_from(&self, backup: &str, later: Continuation, until: Until) -> Result<u64, Error> {
        let to = directory();
        let new = to.path().join("new");
        let how = Restore::new(vec![self.at(backup)], &new).continued(later).until(until);
        builder(self.c, How::default()).0.restore(&how)?;
        Ok(builder(self.c, How::default()).0.open(&new)?.digest())
    }

    pub fn archive(&self) -> Continuation {
        Continuation { archive: Some(self.at("archive")), log: Vec::new() }
    }

    pub fn archive_and_log(&self) -> Continuation {
        Continuation { log: vec![self.at("log")], ..self.archive() }
    }
}

/// Lets an epoch pass before and after a moment.
pub fn pause(opened: &Opened) -> Moment {
    std::thread::sleep(Duration::from_millis(25));
    let moment = Moment { at_us: clock::wall_us(), digest: opened.db.digest() };
    std::thread::sleep(Duration::from_millis(25));
    moment
}

pub fn segments(dir: &Path) -> usize {
    let streams = std::fs::read_dir(dir).into_iter().flatten().flatten();
    streams.filter_map(|stream| std::fs::read_dir(stream.path()).ok()).map(Iterator::count).sum()
}

/// Promise: with the archive and the log, each moment since the backup is restored.
pub fn any_moment_comes_back(c: Combination, seed: u64) {
    // Commands are short, and on a busy machine many go into one batch.
    let place = Place { transactions: 600, ..Place::new(c) };
    let opened = place.open().unwrap();
    populate(&opened);
    opened.db.backup(place.at("backup")).unwrap();
    let mut moments = vec![pause(&opened)];
    opened.db.close().unwrap();
    for life in 0..3 {
        // A life without a transaction.
        place.open().unwrap().db.close().unwrap();
        moments.extend(place.live(seed + life, life != 1));
    }
    assert!(segments(&place.at("archive")) > 3, "{c:?}: little was archived");
    for (nth, moment) in moments.iter().enumerate() {
        let until = Until::Time(moment.at_us);
        let digest = place.restore(place.archive_and_log(), until).unwrap();
        assert_eq!(digest, moment.digest, "{c:?}: moment {nth}");
    }
    let newest = place.restore(place.archive_and_log(), Until::Newest).unwrap();
    assert_eq!(newest, moments[moments.len() - 1].digest, "{c:?}");
    let alone = refused(place.restore(place.archive(), Until::Newest), "an archive alone");
    assert!(alone.to_string().contains("end at no common moment"), "{alone}");
}

/// Promise: a power cut at any step of a truncation loses nothing of the archive, or of the log.
/// Returns the number of checkpoints cut off.
pub fn cut_truncations(c: Combination) -> u64 {
    let (mut step, mut cuts) = (0, 0);
    loop {
        let mut place = Place::new(c);
        let device = power_cut(step);
        place.device = Some(Arc::new(device.clone()));
        let opened = place.open().unwrap();
        populate(&opened);
        opened.db.backup(place.at("backup")).unwrap();
        let done: Vec<Transfer> = run(&opened, step, 3000);
        assert!(!done.is_empty());
        opened.db.log().unwrap().flush().unwrap();
        let digest = opened.db.digest();
        device.cut_after(step);
        let taken = opened.db.checkpoint();
        device.cut();
        let through = taken.is_ok();
        if let Ok(taken) = taken {
            assert!(taken.truncated_bytes > 0, "the checkpoint truncates nothing");
        }
        drop(opened);
        place.device = None;
        cuts += u64::from(!through);
        let opened = place.open().unwrap();
        assert_eq!(opened.db.digest(), digest, "step {step}");
        let between = pause(&opened);
        run(&opened, step + 1000, 400);
        opened.db.checkpoint().unwrap();
        run(&opened, step + 2000, 10);
        opened.db.log().unwrap().flush().unwrap();
        let newest = opened.db.digest();
        drop(opened);
        let found = |until| place.restore(place.archive_and_log(), until).unwrap();
        assert_eq!(found(Until::Time(between.at_us)), digest, "step {step}");
        assert_eq!(found(Until::Newest), newest, "step {step}");
        if through {
            break;
        }
        step += 1;
        assert!(step < 300, "a checkpoint has no more steps than that");
    }
    cuts
}

/// Promise: a restore over a part of the log that was truncated without the archive is refused, and
/// the archive serves a backup made after the gap.
pub fn a_gap_is_found(c: Combination) {
    let mut place = Place::new(c);
    let opened = place.open().unwrap();
    populate(&opened);
    opened.db.backup(place.at("backup")).unwrap();
    run(&opened, 5, 3000);
    assert!(opened.db.checkpoint().unwrap().truncated_bytes > 0);
    opened.db.close().unwrap();
    let log = Continuation { archive: None, log: vec![place.at("log")] };
    let over = refused(place.restore(log, Until::Newest), "a log that begins later");
    assert!(over.to_string().contains("truncated there without an archive"), "{over}");
    place.live(1, true);
    place.archives = false;
    place.live(2, true);
    place.archives = true;
    place.live(3, true);
    let over = refused(place.restore(place.archive_and_log(), Until::Newest), "a gap");
    assert!(over.to_string().contains("truncated there without an archive"), "{over}");
    let opened = place.open().unwrap();
    opened.db.backup(place.at("second")).unwrap();
    drop(opened);
    let moments = place.live(4, true);
    let found = |until| place.restore_from("second", place.archive_and_log(), until).unwrap();
    for moment in &moments {
        assert_eq!(found(Until::Time(moment.at_us)), moment.digest);
    }
}
