//! Keys too long for a store, or for a frame of the log.

use super::{Content, STORES, block_on, content, open_store, options, refusal};
use hyades_deuteronomy::{
    Abort, DataComponent, Database, Error, Limits, MemoryData, Operation, ScanOrder, Transaction,
};
use std::ops::Bound;
use std::sync::Arc;

/// The capacity of a frame of the log with the default options, and the overhead of a write in a
/// frame.
const FRAME: usize = 1 << 20;
const BESIDE: usize = 30;

/// A store with keys of at most 4 bytes. The store is called with no longer key.
struct Short(MemoryData);

const SHORT: usize = 4;

impl hyades_deuteronomy::DataLayer for Short {
    fn below(&self) -> &dyn DataComponent {
        &self.0
    }

    fn get(&self, key: &[u8]) -> Result<hyades_deuteronomy::Found, Error> {
        assert!(key.len() <= SHORT, "it reads {key:?}");
        self.0.get(key)
    }

    fn scan(
        &self,
        range: hyades_deuteronomy::KeyRange<'_>,
        order: ScanOrder,
        each: &mut dyn FnMut(Operation<'_>) -> std::ops::ControlFlow<()>,
    ) -> Result<(), Error> {
        for bound in [range.0, range.1] {
            let (Bound::Included(key) | Bound::Excluded(key)) = bound else { continue };
            assert!(key.len() <= SHORT, "a bound is {key:?}");
        }
        self.0.scan(range, order, each)
    }

    fn apply(&self, batch: &[Operation<'_>]) -> Result<(), Error> {
        assert!(batch.iter().all(|operation| operation.key.len() <= SHORT));
        self.0.apply(batch)
    }

    fn limits(&self) -> Limits {
        Limits { key_bytes: SHORT, value_bytes: 9, ..self.0.limits() }
    }
}

/// The lengths around the limits of all stores, and a length far above.
fn lengths(limits: Limits) -> Vec<usize> {
    let around = |len: usize| [len - 1, len, len + 1];
    let mut lengths: Vec<usize> =
        [65_526, 65_535, FRAME - BESIDE, FRAME].into_iter().flat_map(around).collect();
    lengths.extend([0, 1, 3 * FRAME]);
    if limits.key_bytes < FRAME {
        lengths.extend(around(limits.key_bytes));
    }
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

/// Whether a write of a key of `len` bytes to a store of `limits`, with an empty value, has the
/// right result.
fn is_as_expected(written: Result<(), Error>, len: usize, limits: Limits) -> bool {
    match written {
        Ok(()) => len <= limits.key_bytes && len + BESIDE <= FRAME,
        Err(Error::KeyTooLong(found, limit)) => {
            (found, limit) == (len, limits.key_bytes) && len > limit
        }
        Err(Error::WriteTooLarge(bytes, limit)) => {
            (bytes, limit) == (len + BESIDE, FRAME) && bytes > limit && len <= limits.key_bytes
        }
        Err(_) => false,
    }
}

fn is_not_found(tx: &mut Transaction<'_>, key: &[u8], limits: Limits) -> bool {
    match (tx.update(key, b""), block_on(tx.update_async(key, b""))) {
        (Err(Error::NotFound), Err(Error::NotFound)) => key.len() <= limits.key_bytes,
        (Err(Error::KeyTooLong(..)), Err(Error::KeyTooLong(..))) => key.len() > limits.key_bytes,
        _ => false,
    }
}

fn store_of(name: &str, dir: &std::path::Path) -> Arc<dyn DataComponent> {
    match name {
        "short" => Arc::new(Short(MemoryData::new())),
        name => open_store(name, dir),
    }
}

#[test]
fn a_key_that_is_too_long_is_not_found_and_cannot_be_written() {
    for name in STORES.iter().chain(&["short"]) {
        let (dir, stores) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let data = store_of(name, stores.path());
        let limits = data.limits();
        let database = Database::open(options(dir.path(), 2), data).unwrap();
        let mut session = database.session().unwrap();
        let mut expected = Content::new();
        for len in lengths(limits) {
            let key = vec![b'k'; len];
            let mut tx = session.begin().unwrap();
            assert_eq!(tx.get(&key).unwrap(), None, "{len} over {name}");
            assert_eq!(block_on(tx.get_async(&key)).unwrap(), None, "{len} over {name}");
            assert!(is_not_found(&mut tx, &key, limits), "{len} over {name}");
            let deleted = tx.delete(&key);
            assert!(is_as_expected(deleted, len, limits), "{len} over {name}");
            let inserted = tx.insert(&key, b"");
            let fits = inserted.is_ok();
            assert!(is_as_expected(inserted, len, limits), "{len} over {name}");
            let again = [tx.put(&key, b""), block_on(tx.insert_async(&key, b""))];
            for (nth, again) in again.into_iter().enumerate() {
                let is_right = match fits {
                    true if nth == 1 => matches!(again, Err(Error::Exists)),
                    true => again.is_ok(),
                    false => is_as_expected(again, len, limits),
                };
                assert!(is_right, "{len} over {name}, {nth}");
            }
            assert_eq!(tx.get(&key).unwrap().is_some(), fits, "{len} over {name}");
            // The transaction goes on without the refused write.
            tx.put(b"n", &len.to_be_bytes()).unwrap();
            tx.commit().unwrap().wait().unwrap();
            if fits {
                expected.insert(key.clone(), Vec::new());
            }
            expected.insert(b"n".to_vec(), len.to_be_bytes().to_vec());
            let mut snapshot = session.snapshot().unwrap();
            assert_eq!(snapshot.get(&key).unwrap().is_some(), fits, "{len} over {name}");
        }
        assert!(expected.len() > 3, "few keys fit into {name}");
        assert!(content(&mut session) == expected, "{name}");
        drop((session, database));
        // After a crash, and after an orderly end.
        for _ in 0..2 {
            let data = store_of(name, stores.path());
            let database = Database::open(options(dir.path(), 2), data).unwrap();
            let mut session = database.session().unwrap();
            assert!(content(&mut session) == expected, "{name}");
            for key in expected.keys() {
                assert!(session.execute(|tx| tx.get(key)).unwrap().is_some());
            }
            drop(session);
            database.close().unwrap();
        }
    }
}

/// Keys around the longest, and bounds around these keys, longer than any key.
fn keys_and_bounds(longest: usize) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let key = |len: usize, ends: &[u8]| [&vec![b'm'; len][..], ends].concat();
    let keys = vec![
        vec![],
        b"a".to_vec(),
        key(longest - 1, b"a"),
        key(longest - 1, b""),
        key(longest, b""),
        key(longest - 1, b"z"),
        b"z".to_vec(),
    ];
    let mut bounds = keys.clone();
    bounds.extend([
        key(longest - 1, b"aa"),
        key(longest - 1, b"b\x00"),
        key(longest, b"\x00"),
        key(longest, b"z"),
        key(longest, &[0xff; 70_000]),
        key(longest - 1, b"z\x00"),
        [&b"b"[..], &vec![0; longest + 1]].concat(),
        vec![0; longest + 1],
        vec![0xff; longest + 1],
    ]);
    (keys, bounds)
}

/// Compares each scan between two of the bounds with a scan of a sorted map.
fn assert_scans_as_a_map(database: &Database, expected: &Content, bounds: &[Vec<u8>]) -> usize {
    let (mut session, mut found) = (database.session().unwrap(), 0);
    let each = |key| [Bound::Included(key), Bound::Excluded(key), Bound::Unbounded];
    for (from, to) in bounds.iter().flat_map(|a| bounds.iter().map(move |b| (a, b))) {
        for (from, to) in each(&from[..]).into_iter().flat_map(|a| each(&to[..]).map(|b| (a, b))) {
            let is_behind = |key: &[u8]| match from {
                Bound::Included(from) => key >= from,
                Bound::Excluded(from) => key > from,
                Bound::Unbounded => true,
            };
            let is_before = |key: &[u8]| match to {
                Bound::Included(to) => key <= to,
                Bound::Excluded(to) => key < to,
                Bound::Unbounded => true,
            };
            let is_in = |key: &&[u8]| is_behind(key) && is_before(key);
            let expected: Vec<&[u8]> = expected.keys().map(|key| &key[..]).filter(is_in).collect();
            let (up, down) = session
                .execute(|tx| Ok::<_, Error>((tx.scan(from, to, 99)?, tx.scan_back(from, to, 99)?)))
                .unwrap();
            assert!(up.iter().map(|(key, _)| &**key).eq(expected.iter().copied()));
            assert!(down.iter().rev().map(|(key, _)| &**key).eq(expected.iter().copied()));
            found += expected.len();
        }
    }
    found
}

#[test]
fn a_bound_may_be_longer_than_any_key() {
    for name in STORES.iter().chain(&["short"]) {
        let (dir, stores) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let open = || {
            let data = store_of(name, stores.path());
            let longest = data.limits().key_bytes.min(66_000);
            (Database::open(options(dir.path(), 2), data).unwrap(), longest)
        };
        let (database, longest) = open();
        let (keys, bounds) = keys_and_bounds(longest);
        let expected: Content = keys.into_iter().map(|key| (key, b"v".to_vec())).collect();
        let mut session = database.session().unwrap();
        session
            .execute(|tx| expected.iter().try_for_each(|(key, value)| tx.put(key, value)))
            .unwrap();
        // The keys are in memory here, and only in the data component afterwards.
        let found = assert_scans_as_a_map(&database, &expected, &bounds);
        assert!(found > 1000, "{found} rows over {name}");
        drop(session);
        database.close().unwrap();
        assert_eq!(assert_scans_as_a_map(&open().0, &expected, &bounds), found, "{name}");
    }
}

/// The note of a scan with cut bounds keeps older writers out, and no other writers.
#[test]
fn a_scan_with_bounds_that_are_too_long_is_serializable() {
    let dir = tempfile::tempdir().unwrap();
    let database = Database::open(options(dir.path(), 1), store_of("short", dir.path())).unwrap();
    let (mut one, mut two) = (database.session().unwrap(), database.session().unwrap());
    // Between the keys `mmmm` and `mmmz`, both of the greatest length.
    let (from, to) = (Bound::Included(&b"mmmm-"[..]), Bound::Excluded(&b"mmmz-"[..]));
    for (key, is_within) in
        [(&b"mmmm"[..], false), (b"mmmn", true), (b"mmmz", true), (b"mmn", false), (b"mmm", false)]
    {
        let (mut older, mut younger) = (one.begin().unwrap(), two.begin().unwrap());
        assert!(younger.scan(from, to, 9).unwrap().is_empty());
        let is_kept_out = matches!(older.put(key, b"1"), Err(Error::Aborted(Abort::ReadByYounger)));
        assert_eq!(is_kept_out, is_within, "{key:?}");
        assert!(younger.scan(from, to, 9).unwrap().is_empty());
    }
}

/// Keys and values accepted by a store are in a log for filling another store.
#[test]
fn a_log_with_longer_keys_or_values_than_the_store_takes_is_refused_and_loses_nothing() {
    for (key, value) in [(&b"12345"[..], &b""[..]), (b"1234", b"1234567890")] {
        let dir = tempfile::tempdir().unwrap();
        let open = |data| Database::open(options(dir.path(), 2), data);
        let database = open(Arc::new(MemoryData::new()) as Arc<dyn DataComponent>).unwrap();
        let mut session = database.session().unwrap();
        session.execute(|tx| tx.put(b"1234", b"123456789")).unwrap();
        session.execute(|tx| tx.put(key, value)).unwrap();
        let before = content(&mut session);
        drop((session, database));
        let short = Arc::new(Short(MemoryData::new()));
        let wrong = refusal(open(Arc::clone(&short) as Arc<dyn DataComponent>));
        assert!(wrong.contains("cannot take") && wrong.contains(" bytes"), "{wrong}");
        assert_eq!((short.0.items(), short.resume_point().unwrap()), (0, None));
        let database = open(Arc::new(MemoryData::new())).unwrap();
        assert_eq!(content(&mut database.session().unwrap()), before);
    }
}

/// The answers of the store itself, as a base for other stores.
#[cfg(feature = "fjall")]
#[test]
fn fjall_never_panics_over_a_long_key() {
    use hyades_deuteronomy::{FjallData, Found, PartitionedData};
    use std::ops::ControlFlow;
    let dir = tempfile::tempdir().unwrap();
    let data = FjallData::open(&dir.path().join("one"), 1 << 20).unwrap();
    let limit = data.limits().key_bytes;
    let longest = vec![b'm'; limit];
    data.apply(&[Operation { key: &longest, ts: 5, value: Some(b"1") }]).unwrap();
    for len in [limit + 1, 65_535, 65_536, 100_000] {
        let key = vec![b'm'; len];
        assert_eq!(data.get(&key).unwrap(), Found::default());
        for value in [None, Some(&b"1"[..])] {
            let applied = data.apply(&[Operation { key: &key, ts: 6, value }]);
            assert!(
                matches!(applied, Err(Error::KeyTooLong(l, most)) if (l, most) == (len, limit))
            );
        }
        let count = |range| {
            let mut count = 0;
            data.scan(range, ScanOrder::Ascending, &mut |_| {
                count += 1;
                ControlFlow::Continue(())
            })
            .unwrap();
            count
        };
        let key = &key[..];
        assert_eq!(count((Bound::Included(key), Bound::Unbounded)), 0);
        assert_eq!(count((Bound::Unbounded, Bound::Excluded(key))), 1);
        assert_eq!(count((Bound::Excluded(key), Bound::Included(key))), 0);
        assert_eq!(count((Bound::Included(&longest), Bound::Excluded(key))), 1);
    }
    // A range may end at a key too long for the store.
    let other: Arc<dyn DataComponent> =
        Arc::new(FjallData::open(&dir.path().join("two"), 1 << 20).unwrap());
    let split = vec![b'm'; 70_000];
    let data = PartitionedData::new(vec![split], vec![Arc::new(data), other.clone()]).unwrap();
    let behind = [&longest[1..], b"n"].concat();
    data.apply(&[Operation { key: &behind, ts: 6, value: Some(b"2") }]).unwrap();
    assert_eq!(other.get(&behind).unwrap().ts, 6);
    let mut keys = Vec::new();
    data.scan((Bound::Unbounded, Bound::Unbounded), ScanOrder::Descending, &mut |o| {
        keys.push(o.key.to_vec());
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(keys == [behind, longest]);
}

#[test]
fn the_limits_of_the_stores_are_those_that_are_documented() {
    let dir = tempfile::tempdir().unwrap();
    for name in STORES {
        let Limits { key_bytes, value_bytes, .. } = open_store(name, dir.path()).limits();
        let expected = match *name {
            "redb" => (1 << 20, 1 << 30),
            "fjall" => (65_526, 1 << 30),
            _ => (usize::MAX, usize::MAX),
        };
        assert_eq!((key_bytes, value_bytes), expected, "{name}");
    }
}
