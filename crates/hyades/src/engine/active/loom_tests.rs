//! A reader and a writer find each other, in every interleaving.

use super::*;
use hyades_platform::epoch::EpochNumber;
use std::sync::Arc;

/// A row: the slot of its mark, its version, and a kept older version.
struct Row {
    active: ActiveTransactions,
    epoch: Epoch,
    owner: AtomicU32,
    version: AtomicU64,
    kept: AtomicU64,
}

/// A row, its first version, and the slots of a writer and a reader.
fn row_and_slots() -> (Arc<Row>, Tid, [u32; 2]) {
    let first = Tid::new(EpochNumber(5), 0);
    let row = Arc::new(Row {
        active: ActiveTransactions::new(),
        epoch: Epoch::new(EpochNumber(5)),
        owner: AtomicU32::new(0),
        version: AtomicU64::new(first.bits()),
        kept: AtomicU64::new(0),
    });
    let slots = [0; 2].map(|_| row.active.add().unwrap());
    (row, first, slots)
}

/// Commits like a writer. Returns the timestamp.
fn overwrite(row: &Row, number: u32) -> Tid {
    row.owner.store(number, Ordering::SeqCst);
    checker_fence();
    let tid = row.active.prepare(number, &row.epoch).unwrap();
    install(row, number, tid);
    row.owner.store(0, Ordering::Release);
    row.active.end(number);
    tid
}

/// Keeps the row for the readers that want it, and writes the row.
fn install(row: &Row, number: u32, tid: Tid) {
    let mut readers = ReaderTimes::default();
    row.active.find_readers(number, tid, &mut readers);
    let base = row.version.load(Ordering::Relaxed);
    if readers.want(Tid::from_bits(base)) {
        row.kept.store(base, Ordering::Release);
    }
    row.version.store(tid.bits(), Ordering::Release);
}

/// Reads like a transaction. Returns the read timestamp, and the version found.
fn read(row: &Row, number: u32) -> (Tid, u64) {
    let as_of = row.active.begin(number, &row.epoch);
    checker_fence();
    loop {
        let owner = row.owner.load(Ordering::SeqCst);
        let writer = if owner == 0 { Preparing::No } else { row.active.preparing(owner) };
        match writer {
            Preparing::No => {}
            Preparing::At(at) if at > as_of => {}
            _ => {
                loom::thread::yield_now();
                continue;
            }
        }
        let version = row.version.load(Ordering::Acquire);
        if version <= as_of.bits() {
            return (as_of, version);
        }
        return (as_of, row.kept.load(Ordering::Acquire));
    }
}

/// A reader finds the newest version not above its timestamp.
#[test]
fn a_reader_finds_the_version_of_its_timestamp() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let (row, first, [writer, reader]) = row_and_slots();
        let written = {
            let row = Arc::clone(&row);
            loom::thread::spawn(move || overwrite(&row, writer))
        };
        let (as_of, found) = read(&row, reader);
        let written = written.join().unwrap();
        let newest = if written <= as_of { written } else { first };
        assert_eq!(found, newest.bits(), "as of {as_of}");
    });
}

/// Where timestamps are drawn at the beginning: a writer keeps a row that an earlier reader may
/// want.
#[test]
fn a_writer_keeps_the_version_of_each_earlier_reader() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let (row, first, [writer, reader]) = row_and_slots();
        let written = {
            let row = Arc::clone(&row);
            loom::thread::spawn(move || {
                let tid = row.active.begin_at(writer, &row.epoch);
                let floor = row.active.replay_floor(&row.epoch, false);
                assert!(floor <= tid, "it has no position yet");
                install(&row, writer, tid);
                tid
            })
        };
        let as_of = row.active.begin_at(reader, &row.epoch);
        assert!(row.active.lowest(&row.epoch) <= as_of, "it reads");
        let version = row.version.load(Ordering::Acquire);
        if version > as_of.bits() {
            let kept = row.kept.load(Ordering::Acquire);
            assert_eq!(kept, first.bits(), "as of {as_of}");
        }
        let written = written.join().unwrap();
        assert_ne!(written, as_of, "timestamps differ");
    });
}
