//! The last writer of a row: the stamp of rows and gaps.

use hyades::plug::predecessors::Id;
use hyades::plug::vectors::Reference;
use hyades_platform::sync::{AtomicU64, Ordering, fence};

/// Replaces the last writer's id while the id and the writer's needs change.
pub(super) const BUSY: Id = u64::MAX;

/// The stamp of a row or a gap.
#[derive(Default)]
pub struct LastWriter {
    /// The record that wrote the row last; 0 for a gap, for a new row that was a gap before, and
    /// for a row not written in this incarnation.
    pub(super) writer: Name,
    /// The writer's predecessor vector; for a gap, the join of the predecessor vectors of all
    /// deleters whose tombstones the gap absorbed.
    pub(super) vector: Reference,
}

/// The id of a row's last writer, a sequence lock over the writer's needs. Written under the row's
/// write protection, read under protection or before the row's version is checked once more.
///
/// A reader that finds the id changing, or changed, leaves the predecessor out, and relies on the
/// later check of the row's version to fail. The check does not fail by itself: the writer has
/// locked the row before the change of the id, but nothing else orders the reader's check behind
/// the lock. So all stores of a writer here are Release, and all loads of a reader are Acquire:
/// whatever part of the change the reader has seen, the lock happened before that part, and the
/// check comes behind both.
#[derive(Default)]
pub(super) struct Name(AtomicU64);

impl Name {
    /// Loads the id. Reads of the writer's needs come after this load.
    #[inline]
    pub fn get(&self) -> Id {
        self.0.load(Ordering::Acquire)
    }

    /// Returns whether the needs read since [`Name::get`] returned `name` belong to `name`.
    #[inline]
    pub fn is_still(&self, name: Id) -> bool {
        // Earlier loads come before the load below.
        fence(Ordering::Acquire);
        self.0.load(Ordering::Acquire) == name
    }

    /// Begins a change: the writer's needs change after this call. The caller has locked the row.
    #[inline]
    pub fn change(&self) {
        self.0.store(BUSY, Ordering::Release);
        // A reader that sees any part of the change sees a changed id.
        fence(Ordering::Release);
    }

    /// Ends the change.
    #[inline]
    pub fn set(&self, name: Id) {
        self.0.store(name, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use std::sync::Arc;

    /// A row of one version, whose writer 1 needs 10.
    struct Row {
        /// Even while unlocked.
        word: AtomicU64,
        writer: Name,
        needs: AtomicU64,
    }

    /// Commits as an optimistic writer does.
    fn overwrite(row: &Row) {
        row.word.compare_exchange(0, 1, Ordering::SeqCst, Ordering::Relaxed).unwrap();
        row.writer.change();
        row.needs.store(20, Ordering::Relaxed);
        row.writer.set(2);
        row.word.store(2, Ordering::Release);
    }

    /// Commits as an optimistic reader does: returns the version read, and the predecessor listed.
    fn read(row: &Row) -> Option<(u64, Option<(Id, u64)>)> {
        let seen = row.word.load(Ordering::Acquire);
        let name = row.writer.get();
        let needs = row.needs.load(Ordering::Relaxed);
        let found = (name != BUSY && row.writer.is_still(name)).then_some((name, needs));
        let is_valid = seen % 2 == 0 && row.word.load(Ordering::SeqCst) == seen;
        is_valid.then_some((seen, found))
    }

    #[test]
    fn a_valid_reader_names_the_writer_of_what_it_read() {
        loom::model(|| {
            let (word, needs) = (AtomicU64::new(0), AtomicU64::new(10));
            let row = Arc::new(Row { word, writer: Name::default(), needs });
            row.writer.set(1);
            let other = Arc::clone(&row);
            let writer = loom::thread::spawn(move || overwrite(&other));
            match read(&row) {
                None => {}
                Some((0, found)) => assert_eq!(found, Some((1, 10))),
                Some((_, found)) => assert_eq!(found, Some((2, 20))),
            }
            writer.join().unwrap();
        });
    }
}
