//! What the tests share.
#![allow(dead_code)]

use hyades_deuteronomy::{DataComponent, MemoryData, Operation, ResumePoint, ScanOrder};
use hyades_deuteronomy_slatedb::SlateOptions;
use std::ops::{Bound, ControlFlow};
use std::time::Duration;

pub mod storage;

/// The items of a scan.
pub type Items = Vec<(Vec<u8>, u64, Option<Vec<u8>>)>;

/// All keys.
pub const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);

/// The path of the database in a storage.
pub const PATH: &str = "data";

/// Memory tables of about a hundred operations, compacted at once.
pub fn small_tables() -> SlateOptions {
    let pause = Duration::from_millis(5);
    let mut options = SlateOptions::default().cache_bytes(1 << 20).compaction_poll(pause);
    options.settings.l0_sst_size_bytes = 8 << 10;
    options.settings.max_unflushed_bytes = 64 << 10;
    options.settings.manifest_poll_interval = pause;
    // The compactions of a dead process are taken over soon.
    let compactor = options.settings.compactor_options.as_mut().expect("the database compacts");
    compactor.worker_heartbeat_timeout = Duration::from_millis(400);
    let worker = compactor.worker.as_mut().expect("the process compacts itself");
    worker.heartbeat_interval = Duration::from_millis(50);
    options
}

/// Up to `most` items of a scan.
pub fn scanned(
    data: &dyn DataComponent,
    range: (Bound<&[u8]>, Bound<&[u8]>),
    order: ScanOrder,
    most: usize,
) -> Items {
    let mut items = Items::new();
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

/// All items.
pub fn everything(data: &dyn DataComponent) -> Items {
    scanned(data, ALL, ScanOrder::Ascending, usize::MAX)
}

/// A resume point.
pub fn point(highest_ts: u64) -> ResumePoint {
    ResumePoint { uuid: [3; 16], incarnation: 1, highest_ts, positions: vec![7] }
}

/// Operations on keys, with any timestamps.
pub fn drawn_batch<'k>(rng: &mut fastrand::Rng, keys: &'k [[u8; 2]]) -> Vec<Operation<'k>> {
    let operation = |key: &'k [u8; 2]| {
        let value = rng.bool().then_some(&b"a value of some length"[..rng.usize(0..22)]);
        Operation { key, ts: rng.u64(1..1000), value }
    };
    keys.iter().map(operation).collect()
}

/// Keys that ascend.
pub fn drawn_keys(rng: &mut fastrand::Rng) -> Vec<[u8; 2]> {
    let mut keys: Vec<_> = (0..rng.usize(1..30)).map(|_| [rng.u8(0..8), rng.u8(0..8)]).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Applies batches in any order of timestamps, takes checkpoints, and compares reads and scans with
/// the data component in memory.
pub fn assert_answers_as_memory(data: &dyn DataComponent, rounds: u64) {
    let (mut rng, memory) = (fastrand::Rng::with_seed(7), MemoryData::new());
    for round in 0..rounds {
        let keys = drawn_keys(&mut rng);
        let batch = drawn_batch(&mut rng, &keys);
        data.apply(&batch).unwrap();
        memory.apply(&batch).unwrap();
        if rng.u8(0..40) == 0 {
            data.checkpoint(&point(round)).unwrap();
        }
        let bound = |rng: &mut fastrand::Rng, key| match rng.u8(0..3) {
            0 => Bound::Included(key),
            1 => Bound::Excluded(key),
            _ => Bound::Unbounded,
        };
        let (from, to) = ([rng.u8(0..4), rng.u8(0..8)], [rng.u8(4..8), rng.u8(0..8)]);
        let range = (bound(&mut rng, &from[..]), bound(&mut rng, &to[..]));
        let most = rng.usize(1..70);
        let order = [ScanOrder::Ascending, ScanOrder::Descending][rng.usize(0..2)];
        assert_eq!(
            scanned(data, range, order, most),
            scanned(&memory, range, order, most),
            "in round {round}"
        );
        assert_eq!(data.get(&from).unwrap(), memory.get(&from).unwrap(), "in round {round}");
    }
    assert_eq!(data.highest_ts().unwrap(), memory.highest_ts().unwrap());
}
