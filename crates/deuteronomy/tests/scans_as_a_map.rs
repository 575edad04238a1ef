//! Scans answer like an ordered map, with keys anywhere: in the table, in the data component, in
//! both, deleted in either.
#![allow(missing_docs)]

use hyades_deuteronomy::{
    DataComponent, Database, LogOptions, MemoryData, Options, PartitionedData, Row, ScanOrder,
    Session, Transaction,
};
use hyades_platform::device::MemoryDevice;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::Arc;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(dir: &Path, data: Arc<dyn DataComponent>) -> Database {
    let mut log = LogOptions::new(vec![dir.to_owned()], 2);
    log.device = MemoryDevice::shared();
    log.buffer_bytes = 1 << 20;
    log.segment_bytes = 1 << 20;
    log.stepped = true;
    let mut options = Options::new(log);
    options.memory_bytes = 64 << 10;
    Database::open(options, data).unwrap()
}

/// A key of 0 to 3 bytes, of few letters, so that many are prefixes of other keys.
fn key(rng: &mut fastrand::Rng) -> Vec<u8> {
    (0..rng.usize(0..=3)).map(|_| rng.u8(b'a'..b'n')).collect()
}

fn bound(rng: &mut fastrand::Rng) -> Bound<Vec<u8>> {
    match rng.u8(0..5) {
        0 => Bound::Unbounded,
        1..3 => Bound::Included(key(rng)),
        _ => Bound::Excluded(key(rng)),
    }
}

fn is_in((from, to): &(Bound<Vec<u8>>, Bound<Vec<u8>>), key: &[u8]) -> bool {
    let is_above = match from {
        Bound::Included(from) => key >= &**from,
        Bound::Excluded(from) => key > &**from,
        Bound::Unbounded => true,
    };
    let is_below = match to {
        Bound::Included(to) => key <= &**to,
        Bound::Excluded(to) => key < &**to,
        Bound::Unbounded => true,
    };
    is_above && is_below
}

fn limit(rng: &mut fastrand::Rng) -> usize {
    [0, 1, 2, 15, 16, 17, rng.usize(0..400), usize::MAX][rng.usize(0..8)]
}

fn compare(tx: &mut Transaction<'_>, map: &Map, rng: &mut fastrand::Rng) {
    let (range, limit) = ((bound(rng), bound(rng)), limit(rng));
    let (from, to) = (range.0.as_ref().map(Vec::as_slice), range.1.as_ref().map(Vec::as_slice));
    let mut expected: Vec<_> = map.iter().filter(|(key, _)| is_in(&range, key)).collect();
    let order = [ScanOrder::Ascending, ScanOrder::Descending][rng.usize(0..2)];
    if order == ScanOrder::Descending {
        expected.reverse();
    }
    let mut rows: Vec<Row> = Vec::new();
    match order {
        _ if limit > 0 && rng.bool() => {
            let each = |row| {
                rows.push(row);
                if rows.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            };
            tx.scan_each(from, to, order, each).unwrap();
        }
        ScanOrder::Ascending => rows = tx.scan(from, to, limit).unwrap(),
        ScanOrder::Descending => rows = tx.scan_back(from, to, limit).unwrap(),
    }
    expected.truncate(limit);
    let rows: Vec<(&[u8], &[u8])> = rows.iter().map(|(key, value)| (&**key, &**value)).collect();
    let expected: Vec<_> = expected.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    assert_eq!(rows, expected, "{range:?} {order:?} {limit}");
}

/// Runs a transaction, with or without a commit, and compares its scans with a map.
fn run(session: &mut Session, map: &mut Map, rng: &mut fastrand::Rng) {
    let (mut tx, mut own) = (session.begin().unwrap(), map.clone());
    // At times more than a piece of a scan.
    let writes = if rng.u8(0..20) == 0 { rng.usize(0..300) } else { rng.usize(0..12) };
    for _ in 0..writes {
        let key = key(rng);
        match rng.u8(0..3) {
            0 => {
                tx.delete(&key).unwrap();
                own.remove(&key);
            }
            _ => {
                let value = vec![rng.u8(..); rng.usize(0..60)];
                tx.put(&key, &value).unwrap();
                own.insert(key, value);
            }
        }
    }
    for _ in 0..rng.usize(0..4) {
        compare(&mut tx, &own, rng);
    }
    if rng.u8(0..4) > 0 {
        drop(tx.commit().unwrap());
        *map = own;
    }
}

fn answers_as_a_map(seed: u64, data: Arc<dyn DataComponent>) {
    let (dir, mut rng) = (tempfile::tempdir().unwrap(), fastrand::Rng::with_seed(seed));
    let database = open(dir.path(), data);
    let (mut session, mut map) = (database.session().unwrap(), Map::new());
    for _ in 0..400 {
        run(&mut session, &mut map, &mut rng);
        match rng.u8(0..8) {
            0..3 => drop(database.log().step(rng.usize(0..2))),
            3 => {
                database.log().flush().unwrap();
                database.step_proxy().unwrap();
            }
            4 => drop(database.checkpoint().unwrap()),
            _ => {}
        }
    }
    let mut tx = session.begin().unwrap();
    for _ in 0..50 {
        compare(&mut tx, &map, &mut rng);
    }
}

#[test]
fn over_the_data_component_in_memory() {
    (0..6).for_each(|seed| answers_as_a_map(seed, Arc::new(MemoryData::outliving())));
}

#[test]
fn over_several_that_share_the_keys() {
    for seed in 6..10 {
        let parts = (0..3).map(|_| Arc::new(MemoryData::outliving()) as Arc<dyn DataComponent>);
        let splits = vec![b"c".to_vec(), b"hh".to_vec()];
        let data = PartitionedData::new(splits, parts.collect()).unwrap();
        answers_as_a_map(seed, Arc::new(data));
    }
}

#[cfg(feature = "redb")]
#[test]
fn over_redb() {
    for seed in 10..12 {
        let dir = tempfile::tempdir().unwrap();
        let data = hyades_deuteronomy::RedbData::open(&dir.path().join("redb"), 1 << 20).unwrap();
        answers_as_a_map(seed, Arc::new(data));
    }
}
