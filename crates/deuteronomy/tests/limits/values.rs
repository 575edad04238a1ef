//! Values from empty to the largest and a value past the limit, and transactions of one and of many
//! writes.

use super::{Content, STORES, content, open_store, options};
use hyades_deuteronomy::{DataComponent, Database, Error, MemoryData};
use std::sync::Arc;

/// The capacity of a frame of the log with the default options, and the overhead of a write in a
/// frame.
const FRAME: usize = 1 << 20;
const BESIDE: usize = 30;

#[test]
fn empty_and_largest_values_survive_a_crash_and_larger_ones_are_refused() {
    for name in STORES {
        let (dir, stores) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let open = || Database::open(options(dir.path(), 2), open_store(name, stores.path()));
        let (database, mut expected) = (open().unwrap(), Content::new());
        let mut session = database.session().unwrap();
        // The empty key has the empty value in one transaction, and other values later.
        for (nth, len) in [0, 1, 40_000, 65_536, FRAME - BESIDE - 1].into_iter().enumerate() {
            let value = vec![nth as u8; len];
            for key in [vec![], vec![nth as u8]] {
                session.execute(|tx| tx.put(&key, &value)).unwrap();
                expected.insert(key, value.clone());
            }
        }
        session.execute(|tx| tx.put(b"", b"")).unwrap();
        expected.insert(Vec::new(), Vec::new());
        for len in [FRAME - BESIDE, FRAME, 100_000_000] {
            let mut tx = session.begin().unwrap();
            tx.put(&[0], b"with what is refused").unwrap();
            match tx.put(b"k", &vec![7; len]) {
                Err(error @ Error::WriteTooLarge(bytes, limit)) => {
                    assert_eq!((bytes, limit), (len + 1 + BESIDE, FRAME));
                    assert!(error.to_string().contains("whatever the options"), "{error}");
                }
                other => panic!("{len} over {name}: {other:?}"),
            }
            assert_eq!(tx.get(b"k").unwrap(), None);
            tx.commit().unwrap().wait().unwrap();
        }
        expected.insert(vec![0], b"with what is refused".to_vec());
        assert!(content(&mut session) == expected, "{name}");
        drop((session, database));
        for _ in 0..2 {
            let database = open().unwrap();
            let mut session = database.session().unwrap();
            assert!(content(&mut session) == expected, "{name}");
            let empty = session.execute(|tx| tx.get(b"")).unwrap();
            assert_eq!(empty.as_deref(), Some(&b""[..]), "{name}");
            drop(session);
            database.close().unwrap();
        }
    }
}

/// The limit of a store above the limit of a frame: the error names the store's.
#[test]
fn a_value_that_no_store_takes_is_refused_as_such() {
    for name in STORES {
        let (dir, stores) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let data = open_store(name, stores.path());
        let database = Database::open(options(dir.path(), 1), data).unwrap();
        let mut session = database.session().unwrap();
        for len in [1 << 30, (1 << 30) + 1] {
            // Untouched zeros take no memory.
            let value = vec![0; len];
            let put = session.execute(|tx| tx.put(b"k", &value));
            let is_right = match put {
                Err(Error::ValueTooLong(found, limit)) => {
                    *name != "memory" && (found, limit) == (len, 1 << 30) && len > limit
                }
                Err(Error::WriteTooLarge(..)) => *name == "memory" || len == 1 << 30,
                _ => false,
            };
            assert!(is_right, "{len} over {name}");
        }
        assert!(content(&mut session).is_empty());
    }
}

/// With small buffers a frame is smaller, and the text names the options for a larger frame.
#[test]
fn a_larger_buffer_helps_up_to_the_largest_frame() {
    for (buffer, segment, frame) in
        [(1 << 16, 1 << 20, 1 << 14), (1 << 20, 1 << 16, 1 << 14), (1 << 23, 1 << 26, FRAME)]
    {
        let dir = tempfile::tempdir().unwrap();
        let mut options = options(dir.path(), 1);
        (options.log.buffer_bytes, options.log.segment_bytes) = (buffer, segment);
        let database = Database::open(options, Arc::new(MemoryData::new())).unwrap();
        let mut session = database.session().unwrap();
        session.execute(|tx| tx.put(b"k", &vec![1; frame - BESIDE - 1])).unwrap();
        let wrong = session.execute(|tx| tx.put(b"k", &vec![1; frame - BESIDE])).unwrap_err();
        assert!(matches!(wrong, Error::WriteTooLarge(_, limit) if limit == frame), "{wrong}");
        let (text, helps) = (wrong.to_string(), frame < FRAME);
        assert_eq!(text.contains("Enlarge both in the options of the log"), helps, "{text}");
        assert!(text.contains("over several keys"), "{text}");
    }
}

#[test]
fn transactions_of_one_write_and_of_a_hundred_thousand_are_recovered_whole() {
    for name in STORES {
        let (dir, stores) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let open = || Database::open(options(dir.path(), 2), open_store(name, stores.path()));
        let database = open().unwrap();
        let mut session = database.session().unwrap();
        session.execute(|tx| tx.put(&0u32.to_be_bytes(), b"one")).unwrap();
        session
            .execute(|tx| {
                let keys = 1..100_001u32;
                keys.map(u32::to_be_bytes).try_for_each(|key| tx.put(&key, &key))
            })
            .unwrap();
        // A transaction without a commit, not there afterwards.
        let mut open_one = session.begin().unwrap();
        open_one.put(&1u32.to_be_bytes(), b"not committed").unwrap();
        drop(open_one);
        drop((session, database));
        let database = open().unwrap();
        let content = content(&mut database.session().unwrap());
        assert_eq!(content.len(), 100_001, "{name}");
        let is_right = |(key, value): (&Vec<u8>, &Vec<u8>)| key == value || value == b"one";
        assert!(content.iter().all(is_right), "{name}");
    }
}

/// At the budget of memory and a byte past the budget.
#[test]
fn a_transaction_of_the_budget_of_memory_is_recovered_and_a_larger_one_goes_on_without() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(dir.path(), 1);
    options.memory_bytes = 64 << 10;
    let open = || {
        let data: Arc<dyn DataComponent> = Arc::new(MemoryData::new());
        Database::open(options.clone(), data).unwrap()
    };
    let database = open();
    let mut session = database.session().unwrap();
    let mut tx = session.begin().unwrap();
    tx.put(b"a", &[1; 1000]).unwrap();
    // The bytes of one more write without its value, including all bytes already there.
    let beside = match tx.put(b"b", &vec![2; 64 << 10]) {
        Err(Error::TransactionTooLarge(bytes, limit)) if limit == 64 << 10 => bytes - limit,
        other => panic!("{other:?}"),
    };
    let most = (64 << 10) - beside;
    for (len, fits) in [(most + 1, false), (most, true), (most + 1, false), (0, true), (most, true)]
    {
        match tx.put(b"b", &vec![3; len]) {
            Ok(()) => assert!(fits, "{len}"),
            Err(Error::TransactionTooLarge(bytes, limit)) => {
                assert_eq!((fits, bytes, limit), (false, (64 << 10) + 1, 64 << 10));
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(matches!(tx.put(b"", b""), Err(Error::TransactionTooLarge(..))));
    tx.commit().unwrap().wait().unwrap();
    let before = content(&mut session);
    assert_eq!((before.len(), before[&b"b"[..]].len()), (2, most));
    drop((session, database));
    assert!(content(&mut open().session().unwrap()) == before);
}

/// The largest values, and transactions of many, in the log of a database opened again with the
/// least of everything: the values are there, readable in all ways, and can be written over.
#[test]
fn the_largest_values_are_there_with_the_least_memory_and_the_smallest_buffers() {
    for name in STORES {
        let (dir, stores) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let largest = FRAME - BESIDE - 1;
        let database =
            Database::open(options(dir.path(), 3), open_store(name, stores.path())).unwrap();
        let mut session = database.session().unwrap();
        session
            .execute(|tx| (0..6u8).try_for_each(|key| tx.put(&[key], &vec![key; largest])))
            .unwrap();
        session.execute(|tx| tx.put(&[6], &vec![6; largest])).unwrap();
        drop((session, database));
        let mut least = options(dir.path(), 1);
        (least.log.buffer_bytes, least.log.segment_bytes) = (4096, 1 << 16);
        (least.memory_bytes, least.lag_bytes) = (4096, 0);
        for life in 0..3 {
            let data = open_store(name, stores.path());
            let database = Database::open(least.clone(), data).unwrap();
            let mut session = database.session().unwrap();
            for key in 0..7u8 {
                let len = if life > 0 && key == 3 { 9 } else { largest };
                let value = vec![key; len];
                let read = session.execute(|tx| tx.get(&[key])).unwrap();
                assert!(read.as_deref() == Some(&value[..]), "{key} over {name}");
                let mut snapshot = session.snapshot().unwrap();
                assert!(snapshot.get(&[key]).unwrap().as_deref() == Some(&value[..]));
            }
            let rows = content(&mut session);
            assert!(rows.len() == 7 && rows.iter().all(|(key, value)| key[0] == value[0]));
            let old = session.execute(|tx| tx.update(&[3], &[3; 9])).unwrap();
            assert_eq!(old.len(), if life > 0 { 9 } else { largest });
            let too_large = session.execute(|tx| tx.put(&[4], &vec![4; largest]));
            assert!(matches!(too_large, Err(Error::WriteTooLarge(_, 1024))), "{too_large:?}");
            drop(session);
            match life {
                1 => database.close().unwrap(),
                _ => drop(database),
            }
        }
    }
}
