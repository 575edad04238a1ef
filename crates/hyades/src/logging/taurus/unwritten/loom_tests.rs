//! Readers without stamps against the first writer, under every schedule.

use super::*;
use loom::thread;
use std::sync::Arc;

/// A row, and a stream.
struct Shared {
    tables: UnwrittenTables,
    reserved: AtomicU64,
    /// The row's lock word: 1 while locked.
    row: AtomicU64,
}

/// Runs a command that reads the row: returns the position of a commit without a stamp on the row.
fn read(shared: &Shared) -> Option<u64> {
    let place = shared.reserved.fetch_add(10, Ordering::SeqCst) + 10;
    if shared.tables.needs_read_stamp(0, 0) {
        return None;
    }
    checker_fence();
    (shared.row.load(Ordering::SeqCst) == 0).then_some(place)
}

/// Locks the row, and returns the position that the writer follows.
fn write(shared: &Shared) -> Option<u64> {
    let (from, to) = (0, 1);
    shared.row.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed).ok()?;
    let mut order = [0];
    let follows =
        shared.tables.overwrite(0, &mut order, |_| shared.reserved.load(Ordering::SeqCst));
    assert_eq!(follows, WriterFollows::Vector);
    Some(order[0])
}

#[test]
fn a_writer_follows_who_left_no_mark() {
    loom::model(|| {
        let shared = Arc::new(Shared {
            tables: UnwrittenTables::new(1, 1),
            reserved: AtomicU64::new(0),
            row: AtomicU64::new(0),
        });
        let readers = [0; 1].map(|_| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || read(&shared))
        });
        let other = Arc::clone(&shared);
        let other = thread::spawn(move || {
            // Another row of the table.
            other.tables.overwrite(0, &mut [0], |_| other.reserved.load(Ordering::SeqCst))
        });
        let order = write(&shared).expect("no other thread writes");
        other.join().unwrap();
        for unmarked in readers.map(|reader| reader.join().unwrap()).into_iter().flatten() {
            assert!(order >= unmarked, "{unmarked} is not below {order}");
        }
    });
}
