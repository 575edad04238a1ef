//! Logs and stores no longer belonging together: another kind of store, or older copies.

use super::{
    Content, DURABLE_STORES, STORES, content, open_store, options_of_small_buffers, refusal,
};
use hyades_deuteronomy::{DataComponent, Database, Error, MemoryData};
use hyades_wal::IncarnationSettings;
use std::path::Path;
use std::sync::Arc;

fn open(dir: &Path, data: Arc<dyn DataComponent>) -> Result<Database, Error> {
    Database::open(options_of_small_buffers(dir, 2), data)
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}

/// Writes the keys of a round, and closes the database, with a truncation of the log.
fn write_and_close(log: &Path, data: Arc<dyn DataComponent>, round: u8, content: &mut Content) {
    let database = open(log, data).unwrap();
    let mut session = database.session().unwrap();
    for nth in 0..50 {
        session.execute(|tx| tx.put(&[round, nth], &[round; 500])).unwrap();
        content.insert(vec![round, nth], vec![round; 500]);
    }
    drop(session);
    database.close().unwrap();
}

#[test]
fn another_kind_of_store_on_a_log_that_was_truncated_is_refused_and_loses_nothing() {
    for name in DURABLE_STORES {
        let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [log, stores] = dirs.each_ref().map(|dir| dir.path());
        let mut expected = Content::new();
        write_and_close(log, open_store(name, stores), 1, &mut expected);
        let others = STORES.iter().filter(|other| *other != name).map(|other| (*other, false));
        for (other, is_outliving) in others.chain([("memory", true)]) {
            let empty = tempfile::tempdir().unwrap();
            let data = match is_outliving {
                true => Arc::new(MemoryData::outliving()),
                false => open_store(other, empty.path()),
            };
            let wrong = refusal(open(log, Arc::clone(&data)));
            assert!(wrong.contains("truncated") && wrong.contains("Open that"), "{wrong}");
            assert_eq!(data.resume_point().unwrap(), None, "{other} was bound");
        }
        let database = open(log, open_store(name, stores)).unwrap();
        assert!(content(&mut database.session().unwrap()) == expected, "{name}");
    }
}

#[test]
fn an_older_copy_of_a_store_or_of_a_log_is_refused_and_loses_nothing() {
    for name in DURABLE_STORES {
        let dirs = [(); 4].map(|()| tempfile::tempdir().unwrap());
        let [log, stores, old_log, old_stores] = dirs.each_ref().map(|dir| dir.path());
        let mut expected = Content::new();
        write_and_close(log, open_store(name, stores), 1, &mut expected);
        copy(log, old_log);
        copy(stores, old_stores);
        write_and_close(log, open_store(name, stores), 2, &mut expected);
        let wrong = refusal(open(log, open_store(name, old_stores)));
        assert!(wrong.contains("truncated beyond what the data component holds"), "{wrong}");
        assert!(wrong.contains("taken together"), "{wrong}");
        let wrong = refusal(open(old_log, open_store(name, stores)));
        assert!(wrong.contains("ahead of the log") && wrong.contains("together"), "{wrong}");
        // The new copies go together, and so do the old copies.
        let database = open(log, open_store(name, stores)).unwrap();
        assert!(content(&mut database.session().unwrap()) == expected, "{name}");
        drop(database);
        let database = open(old_log, open_store(name, old_stores)).unwrap();
        expected.retain(|key, _| key[0] == 1);
        assert!(content(&mut database.session().unwrap()) == expected, "{name}");
    }
}

/// An older copy of a store with an untruncated log lacks nothing: the copy is filled from the log.
#[test]
fn an_older_copy_of_a_store_is_filled_from_a_log_that_has_all() {
    for name in DURABLE_STORES {
        let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let [log, stores, old_stores] = dirs.each_ref().map(|dir| dir.path());
        let mut expected = Content::new();
        write_and_close(log, open_store(name, stores), 1, &mut expected);
        copy(stores, old_stores);
        let database = open(log, open_store(name, stores)).unwrap();
        database.session().unwrap().execute(|tx| tx.put(b"new", b"1")).unwrap();
        expected.insert(b"new".to_vec(), b"1".to_vec());
        drop(database);
        let database = open(log, open_store(name, old_stores)).unwrap();
        assert!(content(&mut database.session().unwrap()) == expected, "{name}");
    }
}

/// Begins an incarnation of another protocol, as a database of the engine does.
fn take_over(dir: &Path) {
    let recovering = hyades_wal::open(options_of_small_buffers(dir, 2).log).unwrap();
    let mut ends = Vec::new();
    for mut reader in recovering.readers() {
        while reader.next_chunk().unwrap().is_some() {}
        ends.push(reader.end());
    }
    let verdict = recovering.verdict(&ends).unwrap();
    let settings =
        IncarnationSettings { protocol: "other".to_string(), ..IncarnationSettings::default() };
    recovering.start(settings, &verdict, 0).unwrap().close().unwrap();
}

#[test]
fn a_log_of_another_protocol_is_refused_with_what_to_do() {
    let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let [new, used, copied] = dirs.each_ref().map(|dir| dir.path());
    let data = Arc::new(MemoryData::outliving());
    let mut expected = Content::new();
    write_and_close(used, data.clone(), 1, &mut expected);
    copy(used, copied);
    for (dir, advice) in [
        (new, "give the transaction component a directory of its own"),
        (used, "restore a copy from before that"),
    ] {
        take_over(dir);
        let wrong = refusal(open(dir, data.clone()));
        assert!(wrong.contains("its protocol is \"other\"") && wrong.contains(advice), "{wrong}");
    }
    let database = open(copied, data).unwrap();
    assert!(content(&mut database.session().unwrap()) == expected);
}
