//! Promise: replay threads share the commands of a stream, so that a thread without a stream gets
//! work too.
#![allow(missing_docs)]

mod common;
use common::directory;
use hyades::{
    Abort, Builder, Column, Database, Protocol, RecordKind, Schema, Table, Transaction, Type,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const ROWS: Table = Table::nth(0);
const COUNT: Column<u64> = Column::at(1);

const ROW_COUNT: u64 = 250;

/// Number of commands running at the same time.
#[derive(Default)]
struct Together {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// Each command increments a row. At replay a command waits until another command runs, at most for
/// `patience`.
fn builder(threads: usize, patience: Duration, together: &Arc<Together>) -> Builder {
    let mut builder = Database::builder()
        .protocol(Protocol::Taurus)
        .streams(1)
        .record(RecordKind::Command)
        .recovery_threads(threads);
    builder.table(
        Schema::new("rows").column("id", Type::U64).column("count", Type::U64).primary_key(&["id"]),
    );
    let together = Arc::clone(together);
    builder.procedure("add", 1, move |tx, id: u64| {
        // A run ahead of its turn ends here.
        let count = tx.get(ROWS, id)?.expect("it was put there").get(COUNT);
        let now = together.now.fetch_add(1, Ordering::SeqCst) + 1;
        together.most.fetch_max(now, Ordering::SeqCst);
        let began = Instant::now();
        while together.most.load(Ordering::SeqCst) < 2 && began.elapsed() < patience {
            std::thread::yield_now();
        }
        together.now.fetch_sub(1, Ordering::SeqCst);
        tx.update(ROWS, id, &[COUNT.set(count + 1)])?;
        Ok::<_, Abort>(())
    });
    builder
}

#[test]
fn a_thread_without_a_stream_is_given_commands_of_another() {
    let dir = directory();
    let together = Arc::<Together>::default();
    let db = builder(1, Duration::ZERO, &together).open(dir.path()).unwrap();
    // In one transaction: single inserts into an index would be replayed one after the other.
    let populate = |tx: &Transaction<'_>| {
        (0..ROW_COUNT).try_for_each(|id| tx.insert(ROWS, &[id.into(), 0u64.into()]).map(drop))
    };
    db.try_transact(populate).unwrap().unwrap();
    for n in 0..1000 {
        db.call::<_, ()>("add", &(n % ROW_COUNT)).unwrap();
    }
    let digest = db.digest();
    db.close().unwrap();
    assert_eq!(together.most.load(Ordering::SeqCst), 1);
    for threads in [1, 2, 4] {
        let together = Arc::<Together>::default();
        // A single thread would wait in vain a thousand times.
        let patience = Duration::from_millis(if threads == 1 { 0 } else { 50 });
        let db = builder(threads, patience, &together).open(dir.path()).unwrap();
        assert_eq!(db.digest(), digest);
        let most = together.most.load(Ordering::SeqCst);
        assert_eq!(most > 1, threads > 1, "{threads} threads ran {most} commands at a time");
        db.close().unwrap();
    }
}
