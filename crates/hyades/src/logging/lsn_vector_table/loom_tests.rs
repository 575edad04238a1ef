//! The hot-row table under every schedule of few threads.

use super::*;
use loom::thread;
use std::sync::Arc;

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// What the row stands for: its write vector, and that with the readers'.
fn fold(table: &LsnVectorTable, row: &Reference) -> (u64, u64) {
    let (mut write, mut both) = ([0], [0]);
    if table.fold(row, &mut write, Some(&mut both)).is_none() {
        table.join_cold(&mut write);
        table.join_cold(&mut both);
    }
    (write[0], both[0])
}

struct Hot {
    table: LsnVectorTable,
    /// Read at 2, with a slot of its own that is cold: its owner may give it out again.
    row: Reference,
    other: Reference,
}

/// Who owns the slot is handed the ring in which it stands alone.
fn hot() -> (Arc<Hot>, Ring) {
    let table = LsnVectorTable::new(1);
    let (row, other) = (Reference::new(0), Reference::new(0));
    let (mut first, mut owner) = (table.ring(), table.ring());
    table.raise_read(&row, &[1], 0, &mut first);
    table.raise_read(&row, &[2], 0, &mut owner);
    table.raise_cold(&[2]);
    (Arc::new(Hot { table, row, other }), owner)
}

fn give_out(hot: &Arc<Hot>, mut ring: Ring) -> thread::JoinHandle<()> {
    let hot = Arc::clone(hot);
    thread::spawn(move || {
        ring.begin();
        hot.table.set_write(&hot.other, &[7], 0, &mut ring);
    })
}

fn read_at(hot: &Arc<Hot>, lsn: u64) -> thread::JoinHandle<()> {
    let hot = Arc::clone(hot);
    thread::spawn(move || {
        let mut ring = hot.table.ring();
        hot.table.raise_read(&hot.row, &[lsn], 0, &mut ring);
    })
}

/// The owner of a slot gives it out again while a reader raises the row that has it: either the owner
/// sees the raise, or the reader sees that the slot is no longer the row's.
#[test]
fn a_reader_of_a_slot_that_is_given_out_again_is_not_lost() {
    check(|| {
        let (hot, ring) = hot();
        let threads = [give_out(&hot, ring), read_at(&hot, 10)];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(fold(&hot.table, &hot.row).1, 10, "the reader is lost");
        assert_eq!(fold(&hot.table, &hot.other).0, 7);
    });
}

/// Two readers raise the same row together.
#[test]
fn of_two_readers_none_is_lost() {
    check(|| {
        let (hot, _ring) = hot();
        let threads = [read_at(&hot, 10), read_at(&hot, 12)];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(fold(&hot.table, &hot.row).1, 12);
    });
}

/// Two readers with the same vector, and the owner of the slot: the one who finds the lane raised already
/// has to know as well whether it was raised in time.
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
        // As the second reader's transaction goes on, a writer has to find it.
        assert_eq!(fold(&hot.table, &hot.row).1, 10, "the second reader is lost");
        owner.join().unwrap();
        first.join().unwrap();
    });
}

/// Who looks at the row meanwhile finds what it had, or finds it cold; never another row's vectors for
/// its own, and never less than it had.
#[test]
fn who_looks_meanwhile_finds_no_less() {
    check(|| {
        let (hot, ring) = hot();
        let owner = give_out(&hot, ring);
        let (mut write, mut both) = ([0], [0]);
        if hot.table.fold(&hot.row, &mut write, Some(&mut both)).is_some() {
            assert_eq!((write, both), ([0], [2]), "another row's vectors");
        } else {
            hot.table.join_cold(&mut both);
            assert!(both[0] >= 2, "less than the row had");
        }
        owner.join().unwrap();
    });
}

/// E4: a reader leaves its mark and then looks whether the row is locked; a writer locks the row and then
/// looks for readers. At least one finds the other.
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
