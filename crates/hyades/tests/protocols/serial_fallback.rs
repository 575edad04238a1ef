//! Serial fallback. Promise: where all transactions follow one another, replay tries whether one
//! thread is faster; where they do not, all threads go on; the state is the same either way.

use hyades::{Column, Database, RecordKind, Replay, Schema, Table, Transaction, Type};
use std::path::Path;

const ROWS: Table = Table::nth(0);
const N: Column<i64> = Column::at(1);
const CALLS: i64 = 2000;

fn builder() -> (hyades::Builder, hyades::ProcedureId) {
    let mut builder = Database::builder()
        .streams(4)
        .record(RecordKind::Command)
        .log_settings(|log| log.research.fixed_streams = true);
    let schema = Schema::new("rows").column("id", Type::I64).column("n", Type::I64);
    builder.table(schema.primary_key(&["id"]));
    let add = builder.procedure("add", 1, |tx: &Transaction<'_>, id: i64| {
        let mut n = tx.get(ROWS, id)?.map_or(0, |row| row.get(N));
        // As long as a transaction with some dozens of rows.
        for step in 0..4000 {
            n = std::hint::black_box(n.wrapping_mul(31).wrapping_add(step));
        }
        tx.overwrite(ROWS, &[id.into(), n.into()])
    });
    (builder, add)
}

/// Writes a log of calls on this many rows, in turn from four sessions; returns the digest.
fn write(dir: &Path, rows: i64) -> u64 {
    let (builder, add) = builder();
    let db = builder.open(dir).unwrap();
    let mut sessions = [(); 4].map(|()| db.session().unwrap());
    for call in 0..CALLS {
        sessions[call as usize % 4].call(add, &(call % rows)).unwrap().0.unwrap();
    }
    db.log().unwrap().flush().unwrap();
    db.digest()
}

#[test]
fn a_chain_of_transactions_is_tried_on_one_thread() {
    let dir = tempfile::tempdir().unwrap();
    let digest = write(dir.path(), 1);
    let alone = |replay: Replay| {
        let (builder, _) = builder();
        let db = builder.recovery_threads(4).replay(replay).open(dir.path()).unwrap();
        assert_eq!(db.digest(), digest, "{replay:?}");
        db.recovery().one_thread_seconds
    };
    // Threads that get no processor on a busy machine are not seen to be idle: then again.
    assert!((0..20).any(|_| alone(Replay::Automatic) > 0.0), "one thread was never tried");
    assert_eq!(alone(Replay::Wavefront), 0.0);
}

#[test]
fn the_state_is_the_same_with_and_without() {
    let dir = tempfile::tempdir().unwrap();
    let digest = write(dir.path(), 7);
    for threads in [1, 2, 5] {
        let (builder, _) = builder();
        let db = builder.recovery_threads(threads).replay(Replay::Automatic);
        let db = db.open(dir.path()).unwrap();
        assert_eq!(db.digest(), digest, "on {threads} threads");
        if threads == 1 {
            assert!(
                db.recovery().one_thread_seconds == 0.0,
                "one thread has nothing to fall back to"
            );
        }
    }
}
