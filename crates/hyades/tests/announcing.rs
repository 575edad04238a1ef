//! Replay runs procedures ahead of their turn to prefetch rows. Promise: these runs have no effect
//! on the result.
#![allow(missing_docs)]

mod common;
use common::directory;
use hyades::{Abort, Builder, Column, Database, Protocol, RecordKind, Schema, Table, Type};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const ROWS: Table = Table::nth(0);
const COUNT: Column<i64> = Column::at(1);

#[derive(Serialize, Deserialize)]
struct Step {
    id: i64,
    /// How the procedure reacts to a conflict, which ends a run ahead.
    manner: Manner,
}

#[derive(Clone, Copy, Serialize, Deserialize, PartialEq)]
enum Manner {
    /// Returns the conflict, as required.
    Good,
    /// Treats a conflict as a program error and panics.
    Panics,
    /// Ignores the conflict and goes on.
    Stubborn,
    /// Retries until there is no conflict.
    Insistent,
}

/// Runs and conflicts of the procedure, counted over all calls.
#[derive(Default)]
struct Met {
    begun: AtomicU64,
    conflicts: AtomicU64,
}

fn builder(protocol: Protocol, streams: usize, threads: usize, met: &Arc<Met>) -> Builder {
    let mut builder = Database::builder()
        .protocol(protocol)
        .streams(streams)
        .record(RecordKind::Command)
        .recovery_threads(threads);
    builder.table(
        Schema::new("rows")
            .column("id", Type::I64)
            .column("count", Type::I64)
            .column("drawn", Type::U64)
            .primary_key(&["id"])
            .hash(),
    );
    let met = Arc::clone(met);
    builder.procedure("step", 1, move |tx, step: Step| {
        met.begun.fetch_add(1, Ordering::Relaxed);
        tx.prefetch(ROWS, step.id, COUNT.only());
        // Time and random numbers are drawn before the first operation, so runs ahead draw both
        // too.
        let drawn = tx.random() ^ tx.now_us() as u64;
        let mut row = tx.get(ROWS, step.id);
        met.conflicts.fetch_add(u64::from(row.is_err()), Ordering::Relaxed);
        while step.manner == Manner::Insistent && matches!(row, Err(Abort::Conflict)) {
            row = tx.get(ROWS, step.id);
        }
        let row = match (step.manner, row) {
            (Manner::Panics, row) => row.expect("no other transaction runs"),
            (Manner::Stubborn, row) => row.unwrap_or_default(),
            (Manner::Good | Manner::Insistent, row) => row?,
        };
        let count = row.map_or(0, |row| row.get(COUNT)) + 1;
        let upserted = tx.upsert(ROWS, &[step.id.into(), count.into(), drawn.into()]);
        if step.manner == Manner::Good {
            upserted?;
        }
        Ok::<_, Abort>(count)
    });
    builder
}

fn run(dir: &Path, protocol: Protocol, streams: usize, manner: Manner, threads: usize) -> u64 {
    let met = Arc::<Met>::default();
    let db = builder(protocol, streams, 1, &met).open(dir).unwrap();
    for n in 0..4000 {
        let _: i64 = db.call("step", &Step { id: n * 7 % 1000, manner }).unwrap();
    }
    let digest = db.digest();
    db.close().unwrap();
    assert_eq!(met.conflicts.load(Ordering::Relaxed), 0);
    let met = Arc::<Met>::default();
    let db = builder(protocol, streams, threads, &met).open(dir).unwrap();
    assert_eq!(db.digest(), digest, "{protocol:?}");
    let (begun, conflicts) =
        (met.begun.load(Ordering::Relaxed), met.conflicts.load(Ordering::Relaxed));
    assert_eq!(begun, 4000 + conflicts, "each was begun once more for every conflict");
    conflicts
}

#[test]
fn procedures_that_are_begun_ahead_of_their_time_leave_nothing_behind() {
    for (protocol, streams) in [(Protocol::Taurus, 1), (Protocol::Taurus, 4), (Protocol::Serial, 1)]
    {
        for threads in [1, 2] {
            for manner in [Manner::Good, Manner::Stubborn] {
                let ahead = run(directory().path(), protocol, streams, manner, threads);
                // Two threads may always wait for each other and then never look ahead.
                assert!(ahead > 0 || threads > 1, "{protocol:?}: nothing was begun ahead");
            }
        }
    }
}

#[test]
fn a_procedure_that_takes_a_conflict_for_a_fault_is_replayed_all_the_same() {
    let loud = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let said = info.payload_as_str();
        if !said.is_some_and(|said| said.contains("no other transaction runs")) {
            loud(info);
        }
    }));
    let ahead = run(directory().path(), Protocol::Taurus, 4, Manner::Panics, 1);
    assert_eq!(ahead, 1, "a thread stops looking ahead at the first");
}

#[test]
fn a_procedure_that_tries_again_and_again_is_ended() {
    let ahead = run(directory().path(), Protocol::Taurus, 4, Manner::Insistent, 1);
    assert_eq!(ahead, 1, "a thread stops looking ahead at the first");
}
