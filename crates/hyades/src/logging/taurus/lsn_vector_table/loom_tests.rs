//! The LSN vector table under every schedule of a few threads with at most three preemptions.

use super::*;
use hyades_platform::sync::fence;
use loom::thread;
use std::sync::Arc;

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Creates a table over a single stream, with a reserved end above every position used here.
fn table() -> LsnVectorTable {
    LsnVectorTable::new(1, 1 << 20, Box::new(|_| 20))
}

/// Returns the row's write vector, and the join of both vectors.
fn fold(table: &LsnVectorTable, row: &Reference) -> (u64, u64) {
    let (mut write, mut both) = ([0], [0]);
    if table.fold(row, FoldTarget::Apart(&mut write, &mut both), &mut table.ring()).joins_eviction {
        table.join_eviction(&mut write);
        table.join_eviction(&mut both);
    }
    (write[0], both[0])
}

struct Hot {
    table: LsnVectorTable,
    /// Read at 2, with its own, evicted slot: the owner may reuse the slot.
    row: Reference,
    /// Read at 3 by a single transaction. The next reader gives the row its own slot.
    other: Reference,
}

/// Also returns the ring of the slot's owner, which has no other slot.
fn hot() -> (Arc<Hot>, Ring) {
    let table = table();
    let (row, other) = (Reference::new(0), Reference::new(0));
    let (mut first, mut owner) = (table.ring(), table.ring());
    table.raise_read(&row, &[1], 0, &mut first);
    table.raise_read(&row, &[2], 0, &mut owner);
    first.taken = 0;
    table.raise_read(&other, &[3], 0, &mut first);
    table.raise_eviction(&[2], |reserved| reserved.fill(3));
    (Arc::new(Hot { table, row, other }), owner)
}

fn give_out(hot: &Arc<Hot>, mut ring: Ring) -> thread::JoinHandle<()> {
    let hot = Arc::clone(hot);
    thread::spawn(move || {
        hot.table.begin(&mut ring);
        hot.table.raise_read(&hot.other, &[7], 0, &mut ring);
    })
}

fn read_at(hot: &Arc<Hot>, lsn: u64) -> thread::JoinHandle<()> {
    let hot = Arc::clone(hot);
    thread::spawn(move || {
        let mut ring = hot.table.ring();
        hot.table.raise_read(&hot.row, &[lsn], 0, &mut ring);
    })
}

/// The owner reuses a slot while a reader raises the slot's row: either the owner sees the raise,
/// or the reader sees that the slot is no longer the row's.
#[test]
fn a_reader_of_a_slot_that_is_given_out_again_is_not_lost() {
    check(|| {
        let (hot, ring) = hot();
        let threads = [give_out(&hot, ring), read_at(&hot, 10)];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(fold(&hot.table, &hot.row).1, 10, "the reader is lost");
        // The raise may be too late for `row`, and count for `other`.
        assert!(fold(&hot.table, &hot.other).1 >= 7);
    });
}

/// Two readers raise the same row concurrently.
#[test]
fn of_two_readers_none_is_lost() {
    check(|| {
        let (hot, _ring) = hot();
        let threads = [read_at(&hot, 10), read_at(&hot, 12)];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(fold(&hot.table, &hot.row).1, 12);
    });
}

/// Two readers with the same vector, and the owner of the slot: the reader that finds the component
/// raised already must also notice whether the raise was in time.
#[test]
fn who_finds_a_lane_raised_knows_whether_it_was_in_time() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let (hot, ring) = hot();
        let owner = give_out(&hot, ring);
        let first = read_at(&hot, 10);
        let mut own = hot.table.ring();
        hot.table.raise_read(&hot.row, &[10], 0, &mut own);
        // From here on a writer has to find the second reader.
        assert_eq!(fold(&hot.table, &hot.row).1, 10, "the second reader is lost");
        owner.join().unwrap();
        first.join().unwrap();
    });
}

/// A concurrent reader finds the row's vectors, or finds the row evicted; never another row's
/// vectors, and never less than the row had.
#[test]
fn who_looks_meanwhile_finds_no_less() {
    check(|| {
        let (hot, ring) = hot();
        let owner = give_out(&hot, ring);
        let (mut write, mut both) = ([0], [0]);
        if !hot
            .table
            .fold(&hot.row, FoldTarget::Apart(&mut write, &mut both), &mut hot.table.ring())
            .joins_eviction
        {
            assert_eq!((write, both), ([0], [2]), "another row's vectors");
        } else {
            hot.table.join_eviction(&mut both);
            assert!(both[0] >= 2, "less than the row had");
        }
        owner.join().unwrap();
    });
}

/// E4: a reader stamps the row and then checks whether the row is locked; a writer locks the row
/// and then loads the read stamp. At least one finds the other.
#[test]
fn a_reader_and_a_writer_never_miss_each_other() {
    for hot_before in [false, true] {
        check(move || {
            let (hot, _ring) = hot();
            let row = if hot_before { &hot.row } else { &hot.other };
            let lock = Arc::new(AtomicU64::new(0));
            let reader = {
                let (hot, lock) = (Arc::clone(&hot), Arc::clone(&lock));
                thread::spawn(move || {
                    let row = if hot_before { &hot.row } else { &hot.other };
                    let mut ring = hot.table.ring();
                    hot.table.raise_read(row, &[10], 0, &mut ring);
                    fence(Ordering::SeqCst);
                    lock.load(Ordering::SeqCst) == 0
                })
            };
            let _ = lock.compare_exchange(0, 1, Ordering::SeqCst, Ordering::Relaxed);
            let (_, both) = fold(&hot.table, row);
            let valid = reader.join().unwrap();
            assert!(!valid || both >= 10, "neither has seen the other");
        });
    }
}

/// A reader reserves its position and stamps a row while ticks end and are evicted: the stamp is
/// not taken for an older stamp.
#[test]
fn what_is_raised_while_ticks_end_is_not_taken_for_evicted() {
    for own in [false, true] {
        check(move || {
            let table = Arc::new(table());
            let row = Arc::new(Reference::new(0));
            let log = Arc::new(AtomicU64::new(2));
            if own {
                let (mut first, mut second) = (table.ring(), table.ring());
                table.raise_read(&row, &[1], 0, &mut first);
                table.raise_read(&row, &[2], 0, &mut second);
            }
            let keeper = {
                let (table, log) = (Arc::clone(&table), Arc::clone(&log));
                thread::spawn(move || {
                    for _ in 0..2 {
                        table.raise_eviction(&[2], |reserved| {
                            reserved.fill(log.load(Ordering::SeqCst));
                        });
                    }
                })
            };
            let place = log.fetch_add(1, Ordering::SeqCst) + 1;
            let mut ring = table.ring();
            table.raise_read(&row, &[place], 0, &mut ring);
            assert_eq!(fold(&table, &row).1, place, "the reader is lost");
            keeper.join().unwrap();
            assert_eq!(fold(&table, &row).1, place, "the reader is lost");
        });
    }
}

/// A shared slot of an evicted tick is reused while a former row of the slot is read.
#[test]
fn who_looks_at_a_shared_slot_meanwhile_finds_no_less() {
    check(|| {
        let table = table();
        let (row, other) = (Reference::new(0), Reference::new(0));
        let mut ring = table.ring();
        table.set_write(&row, &[2], 0, &mut ring);
        table.begin(&mut ring);
        table.raise_eviction(&[1], |reserved| reserved.fill(2));
        let shared = Arc::new((table, row, other));
        let owner = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (table, _, other) = &*shared;
                table.raise_eviction(&[2], |reserved| reserved.fill(2));
                table.set_write(other, &[7], 0, &mut ring);
            })
        };
        let (table, row, other) = &*shared;
        let (mut write, mut both) = ([0], [0]);
        let found = table.fold(row, FoldTarget::Apart(&mut write, &mut both), &mut table.ring());
        assert!(!found.warm || write == [2], "another row's vector");
        assert_eq!(fold(table, row).0, 2, "less than the row had");
        owner.join().unwrap();
        assert_eq!(fold(table, row).0, 2);
        assert_eq!(fold(table, other).0, 7);
    });
}

/// A gap inherits from an evicted tombstone while a reader raises the gap: the tombstone's vectors
/// are not lost, although the gap seemed to be evicted as well.
#[test]
fn what_an_evicted_row_leaves_to_another_is_not_undone_by_a_reader() {
    check(|| {
        let (hot, _ring) = hot();
        let tombstone = Arc::new(Reference::new(0));
        let mut first = hot.table.ring();
        hot.table.raise_read(&tombstone, &[3], 0, &mut first);
        let reader = read_at(&hot, 1);
        let mut ring = hot.table.ring();
        for _ in 0..2 {
            hot.table.raise_eviction(&[3], |reserved| reserved.fill(3));
        }
        hot.table.inherit(&hot.row, &tombstone, &mut ring);
        assert!(fold(&hot.table, &hot.row).1 >= 3, "less than it inherited");
        reader.join().unwrap();
        assert!(fold(&hot.table, &hot.row).1 >= 3, "less than it inherited");
    });
}

/// Reads the row in a transaction that needs no slot.
fn read_single(hot: &Hot, row: &Reference, lsn: u64) {
    let mut ring = hot.table.ring();
    hot.table.take_single(&mut ring, 0, lsn);
    hot.table.raise_read(row, &[lsn], 0, &mut ring);
}

/// As [`a_reader_and_a_writer_never_miss_each_other`], for a reader with a stamp in the row's
/// reference.
#[test]
fn a_reader_without_a_slot_and_a_writer_never_miss_each_other() {
    check(|| {
        let (hot, _ring) = hot();
        let lock = Arc::new(AtomicU64::new(0));
        let reader = {
            let (hot, lock) = (Arc::clone(&hot), Arc::clone(&lock));
            thread::spawn(move || {
                read_single(&hot, &hot.other, 10);
                fence(Ordering::SeqCst);
                lock.load(Ordering::SeqCst) == 0
            })
        };
        let _ = lock.compare_exchange(0, 1, Ordering::SeqCst, Ordering::Relaxed);
        let (_, both) = fold(&hot.table, &hot.other);
        let valid = reader.join().unwrap();
        assert!(!valid || both >= 10, "neither has seen the other");
    });
}

/// Two readers of a row, with a slot or without, after a writer or not.
#[test]
fn of_two_readers_without_slots_none_is_lost() {
    for (written, slot) in [(false, false), (false, true), (true, false)] {
        check(move || {
            let (hot, _ring) = hot();
            let row = Arc::new(Reference::new(0));
            if written {
                let mut ring = hot.table.ring();
                hot.table.take_single(&mut ring, 0, 5);
                hot.table.set_write(&row, &[5], 0, &mut ring);
            }
            let other = {
                let (hot, row) = (Arc::clone(&hot), Arc::clone(&row));
                thread::spawn(move || {
                    if slot {
                        hot.table.raise_read(&row, &[12], 0, &mut hot.table.ring());
                    } else {
                        read_single(&hot, &row, 12);
                    }
                })
            };
            read_single(&hot, &row, 10);
            assert!(fold(&hot.table, &row).1 >= 10, "the first reader is lost");
            other.join().unwrap();
            assert_eq!(fold(&hot.table, &row), (if written { 5 } else { 2 }, 12));
        });
    }
}

/// A transaction reserves its position and stamps its row while ticks end and are evicted; a reader
/// finds the position, although the reader knows a lower reserved end.
#[test]
fn a_position_is_found_as_long_as_it_is_not_evicted() {
    check(|| {
        let log = Arc::new(AtomicU64::new(2));
        let reserved = Arc::clone(&log);
        let reserved = Box::new(move |_| reserved.load(Ordering::SeqCst));
        let table = Arc::new(LsnVectorTable::new(1, 1 << 20, reserved));
        let row = Arc::new(Reference::new(0));
        let writer = {
            let (table, row, log) = (Arc::clone(&table), Arc::clone(&row), Arc::clone(&log));
            thread::spawn(move || {
                let place = log.fetch_add(1, Ordering::SeqCst) + 1;
                let mut ring = table.ring();
                table.take_single(&mut ring, 0, place);
                table.set_write(&row, &[place], 0, &mut ring);
            })
        };
        table.raise_eviction(&[2], |reserved| reserved.fill(log.load(Ordering::SeqCst)));
        let mut write = [0];
        if table.fold(&row, FoldTarget::Write(&mut write), &mut table.ring()).warm {
            assert_eq!(write, [3]);
        }
        writer.join().unwrap();
        table.raise_eviction(&[2], |reserved| reserved.fill(log.load(Ordering::SeqCst)));
        assert_eq!(fold(&table, &row).0, 3, "the writer is lost");
    });
}
