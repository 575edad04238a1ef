//! The contract of a data component.
#![allow(missing_docs)]

mod common;

use common::{
    ALL, PATH, assert_answers_as_memory, drawn_batch, drawn_keys, everything, point, small_tables,
};
use hyades_deuteronomy::{DataComponent, Error, Found, Operation, ScanOrder};
use hyades_deuteronomy_slatedb::object_store::memory::InMemory;
use hyades_deuteronomy_slatedb::{SlateData, SlateOptions};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The longest key of the data component.
const KEY_BYTES: usize = 65_526;

fn open() -> SlateData {
    SlateData::open(Arc::new(InMemory::new()), PATH, small_tables()).unwrap()
}

/// Over memory tables, tables of a checkpoint and compacted tables.
#[test]
fn it_answers_as_the_data_component_in_memory_does() {
    assert_answers_as_memory(&open(), 1500);
}

#[test]
fn the_longest_key_and_value_and_the_empty_ones_come_back_and_longer_ones_are_refused() {
    let data = open();
    let limits = data.limits();
    assert_eq!((limits.key_bytes, limits.value_bytes), (KEY_BYTES, 16 << 20));
    let (longest, value) = (vec![0xff; KEY_BYTES], vec![7; 16 << 20]);
    let values = [Some(&value[..]), Some(&b""[..]), None];
    for (ts, value) in (1..).zip(values) {
        for key in [&b""[..], &longest] {
            data.apply(&[Operation { key, ts, value }]).unwrap();
        }
        data.checkpoint(&point(ts)).unwrap();
        let found = Found { ts, value: value.map(<[u8]>::to_vec) };
        assert!(data.get(b"").unwrap() == found && data.get(&longest).unwrap() == found, "{ts}");
    }
    let (key, value) = (vec![0; KEY_BYTES + 1], vec![0; (16 << 20) + 1]);
    let error = data.apply(&[Operation { key: &key, ts: 9, value: None }]).unwrap_err();
    assert!(matches!(error, Error::KeyTooLong(..)), "{error}");
    let error = data.apply(&[Operation { key: b"k", ts: 9, value: Some(&value) }]).unwrap_err();
    assert!(matches!(error, Error::ValueTooLong(..)), "{error}");
    assert_eq!(data.get(b"k").unwrap(), Found::default());
}

#[test]
fn a_resume_point_is_there_again_with_all_before_it_and_what_was_not_stable_may_be_gone() {
    let storage = Arc::new(InMemory::new());
    let open = || SlateData::open(storage.clone(), PATH, SlateOptions::default()).unwrap();
    let data = open();
    assert_eq!((data.resume_point().unwrap(), data.highest_ts().unwrap()), (None, 0));
    data.apply(&[
        Operation { key: b"a", ts: 9, value: Some(b"1") },
        Operation { key: b"b", ts: 3, value: None },
    ])
    .unwrap();
    data.checkpoint(&point(9)).unwrap();
    data.apply(&[Operation { key: b"c", ts: 12, value: Some(b"3") }]).unwrap();
    // Without a flush.
    drop(data);
    let data = open();
    assert_eq!((data.resume_point().unwrap(), data.highest_ts().unwrap()), (Some(point(9)), 9));
    let items = [(b"a".to_vec(), 9, Some(b"1".to_vec())), (b"b".to_vec(), 3, None)];
    assert_eq!(everything(&data), items);
}

#[test]
fn what_is_in_a_directory_is_there_again() {
    let dir = tempfile::tempdir().unwrap();
    let open = || SlateData::open_dir(&dir.path().join("new"), SlateOptions::default()).unwrap();
    let data = open();
    data.apply(&[Operation { key: b"a", ts: 9, value: Some(b"1") }]).unwrap();
    data.checkpoint(&point(9)).unwrap();
    drop(data);
    assert_eq!(open().get(b"a").unwrap().value.as_deref(), Some(&b"1"[..]));
}

#[test]
fn a_snapshot_keeps_its_moment_through_writes_forgetting_and_compactions() {
    let (mut rng, data) = (fastrand::Rng::with_seed(3), open());
    let mut ts = 0;
    let mut write = |rng: &mut fastrand::Rng| {
        let keys = drawn_keys(rng);
        let mut batch = drawn_batch(rng, &keys);
        batch.iter_mut().for_each(|operation| {
            ts += 1;
            operation.ts = ts;
        });
        data.apply(&batch).unwrap();
        ts
    };
    for _ in 0..20 {
        (0..20).for_each(|_| _ = write(&mut rng));
        let before = everything(&data);
        let snapshot = data.snapshot().unwrap().expect("it keeps snapshots");
        for _ in 0..40 {
            let ts = write(&mut rng);
            if rng.u8(0..10) == 0 {
                data.checkpoint(&point(ts)).unwrap();
                data.forget_below(ts + 1).unwrap();
            }
        }
        let mut items = Vec::new();
        let mut each = |o: Operation<'_>| {
            items.push((o.key.to_vec(), o.ts, o.value.map(<[u8]>::to_vec)));
            ControlFlow::Continue(())
        };
        snapshot.scan(ALL, ScanOrder::Ascending, &mut each).unwrap();
        assert_eq!(items, before);
        let (key, ts, value) = before[rng.usize(0..before.len())].clone();
        assert_eq!(snapshot.get(&key).unwrap(), Found { ts, value });
    }
}

#[test]
fn all_deleted_keys_below_are_forgotten_and_nothing_older_comes_back() {
    let data = open();
    let keys: Vec<[u8; 4]> = (0..5_000u32).map(u32::to_be_bytes).collect();
    for some in keys.chunks(500) {
        let all = some.iter().map(|key| Operation { key, ts: 1, value: Some(&b"old"[..]) });
        data.apply(&all.collect::<Vec<_>>()).unwrap();
    }
    data.checkpoint(&point(1)).unwrap();
    for (at, some) in keys.chunks(500).enumerate() {
        let ts = 2 + 500 * at as u64;
        let all = (ts..).zip(some).map(|(ts, key)| Operation { key, ts, value: None });
        data.apply(&all.collect::<Vec<_>>()).unwrap();
    }
    // An older operation comes late, and is in a newer table than the deletion.
    data.checkpoint(&point(5_001)).unwrap();
    data.apply(&[Operation { key: &keys[7], ts: 1, value: Some(b"late") }]).unwrap();
    data.apply(&[Operation { key: b"value", ts: 1, value: Some(b"1") }]).unwrap();
    data.forget_below(4_992).unwrap();
    for checkpoints in 0..2 {
        let mut left: Vec<u64> = everything(&data).iter().map(|(_, ts, _)| *ts).collect();
        assert_eq!(left.pop(), Some(1), "the value");
        assert_eq!(left, (4_992..5_002).collect::<Vec<_>>(), "after {checkpoints}");
        assert_eq!(data.get(&keys[7]).unwrap(), Found::default());
        assert_eq!(data.highest_ts().unwrap(), 5_001);
        data.checkpoint(&point(5_001)).unwrap();
    }
    data.forget_below(9_000).unwrap();
    assert_eq!(everything(&data).len(), 1);
}

/// Writers put keys that forgetting is about to delete.
#[test]
fn forgetting_removes_no_operation_at_or_above_the_floor() {
    let data = open();
    let (keys, done) = ([b"a", b"b", b"c"], AtomicBool::new(false));
    let applied = keys.map(|_| AtomicU64::new(0));
    let mut forgotten = 0;
    std::thread::scope(|scope| {
        for (key, applied) in keys.iter().zip(&applied) {
            let (data, done) = (&data, &done);
            scope.spawn(move || {
                for ts in (1..2_000u64).step_by(2) {
                    data.apply(&[Operation { key: &key[..], ts, value: None }]).unwrap();
                    applied.store(ts, Ordering::SeqCst);
                    let value = Some(&b"kept"[..]);
                    data.apply(&[Operation { key: &key[..], ts: ts + 1, value }]).unwrap();
                    assert_eq!(data.get(&key[..]).unwrap().ts, ts + 1, "an operation is lost");
                    applied.store(ts + 1, Ordering::SeqCst);
                }
                done.store(true, Ordering::SeqCst);
            });
        }
        while !done.load(Ordering::SeqCst) {
            // The next operation on a key is above the last.
            let floor = 1 + applied.iter().map(|ts| ts.load(Ordering::SeqCst)).min().unwrap();
            data.forget_below(floor).unwrap();
            forgotten += 1;
        }
    });
    assert!(forgotten > 20, "{forgotten}");
    assert!(keys.iter().all(|key| data.get(&key[..]).unwrap().value.is_some()));
}
