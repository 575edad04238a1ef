//! Data components with the data in a separate database.
#![allow(missing_docs)]
#![cfg(any(feature = "redb", feature = "fjall", feature = "rocksdb"))]

use hyades_deuteronomy::{DataComponent, MemoryData, Operation, ScanOrder};
use std::ops::{Bound, ControlFlow};

/// The first `most` items of a scan.
fn scanned(
    data: &dyn DataComponent,
    range: (Bound<&[u8]>, Bound<&[u8]>),
    order: ScanOrder,
    most: usize,
) -> Vec<(Vec<u8>, u64, Option<Vec<u8>>)> {
    let mut items = Vec::new();
    let each = &mut |o: Operation<'_>| {
        items.push((o.key.to_vec(), o.ts, o.value.map(<[u8]>::to_vec)));
        match items.len() < most {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    };
    data.scan(range, order, each).unwrap();
    items
}

/// Applies batches in any order of timestamps, and compares reads and scans.
fn assert_answers_as_memory(data: &dyn DataComponent) {
    let (mut rng, memory) = (fastrand::Rng::with_seed(7), MemoryData::new());
    for _ in 0..200 {
        let mut keys: Vec<[u8; 1]> = (0..rng.usize(1..8)).map(|_| [rng.u8(0..40)]).collect();
        keys.sort_unstable();
        keys.dedup();
        let operation = |key| {
            let value = rng.bool().then_some(&b"value"[..rng.usize(0..5)]);
            Operation { key, ts: rng.u64(1..100), value }
        };
        let batch: Vec<_> = keys.iter().map(|key| &key[..]).map(operation).collect();
        data.apply(&batch).unwrap();
        memory.apply(&batch).unwrap();
        let bound = |rng: &mut fastrand::Rng, key| match rng.u8(0..3) {
            0 => Bound::Included(key),
            1 => Bound::Excluded(key),
            _ => Bound::Unbounded,
        };
        let (from, to) = ([rng.u8(0..20)], [rng.u8(20..40)]);
        let range = (bound(&mut rng, &from[..]), bound(&mut rng, &to[..]));
        let most = rng.usize(1..50);
        let order = [ScanOrder::Ascending, ScanOrder::Descending][rng.usize(0..2)];
        assert_eq!(scanned(data, range, order, most), scanned(&memory, range, order, most));
        assert_eq!(data.get(&from).unwrap(), memory.get(&from).unwrap());
    }
}

#[cfg(feature = "redb")]
#[test]
fn redb_answers_as_the_data_component_in_memory_does() {
    let dir = tempfile::tempdir().unwrap();
    let data = hyades_deuteronomy::RedbData::open(&dir.path().join("redb"), 1 << 20).unwrap();
    assert_answers_as_memory(&data);
}

#[cfg(feature = "rocksdb")]
#[test]
fn rocksdb_answers_as_the_data_component_in_memory_does() {
    let dir = tempfile::tempdir().unwrap();
    let data = hyades_deuteronomy::RocksDbData::open(dir.path(), 1 << 20).unwrap();
    assert_answers_as_memory(&data);
}

#[cfg(feature = "fjall")]
mod fjall {
    use super::*;
    use hyades_deuteronomy::{FjallData, Found, ResumePoint};
    use std::path::Path;

    /// The longest key of the store.
    const KEY_BYTES: usize = 65_526;

    fn open(dir: &Path) -> FjallData {
        FjallData::open(dir, 1 << 20).unwrap()
    }

    #[test]
    fn it_answers_as_the_data_component_in_memory_does() {
        let dir = tempfile::tempdir().unwrap();
        assert_answers_as_memory(&open(dir.path()));
    }

    #[test]
    fn the_longest_key_and_the_empty_one_come_back_and_deleted_ones_are_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let data = open(dir.path());
        assert_eq!(data.limits().key_bytes, KEY_BYTES);
        let longest = vec![0xff; KEY_BYTES];
        let batch = [&b""[..], &longest].map(|key| Operation { key, ts: 5, value: None });
        data.apply(&batch).unwrap();
        assert_eq!(data.get(b"").unwrap().ts, 5);
        data.forget_below(5).unwrap();
        assert_eq!(data.get(&longest).unwrap().ts, 5);
        data.apply(&[Operation { key: b"", ts: 6, value: Some(b"1") }]).unwrap();
        data.forget_below(7).unwrap();
        assert_eq!(data.get(&longest).unwrap(), Found::default());
        assert_eq!(data.get(b"").unwrap().value.as_deref(), Some(&b"1"[..]));
    }

    #[test]
    fn all_deleted_keys_below_are_forgotten_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let data = open(dir.path());
        let keys: Vec<[u8; 4]> = (0..10_000u32).map(u32::to_be_bytes).collect();
        let batch = (1..).zip(&keys).map(|(ts, key)| Operation { key, ts, value: None });
        data.apply(&batch.collect::<Vec<_>>()).unwrap();
        data.forget_below(9_991).unwrap();
        assert_eq!(data.get(&keys[9_989]).unwrap(), Found::default());
        assert_eq!(data.get(&keys[9_990]).unwrap().ts, 9_991);
        let all = (Bound::Unbounded, Bound::Unbounded);
        assert_eq!(scanned(&data, all, ScanOrder::Ascending, 99).len(), 10);
    }

    #[test]
    fn a_resume_point_is_there_again_with_all_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let point =
            ResumePoint { uuid: [3; 16], incarnation: 1, highest_ts: 9, positions: vec![7] };
        let data = open(dir.path());
        assert_eq!(data.resume_point().unwrap(), None);
        data.apply(&[Operation { key: b"a", ts: 1, value: Some(b"1") }]).unwrap();
        data.checkpoint(&point).unwrap();
        assert!(FjallData::open(dir.path(), 1 << 20).is_err(), "it is open");
        drop(data);
        let data = open(dir.path());
        assert_eq!(data.resume_point().unwrap(), Some(point));
        assert_eq!(data.get(b"a").unwrap().ts, 1);
    }
}
