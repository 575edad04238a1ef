//! The last writer of a row: the stamp of rows and gaps.

use super::{Id, Reference};
use hyades_platform::sync::{AtomicU64, Ordering, fence};

/// Replaces the last writer's id while that and its needs change.
pub(super) const BUSY: Id = u64::MAX;

/// The stamp of a row or a gap.
#[derive(Default)]
pub(crate) struct LastWriter {
    /// The record that wrote the row last; 0 for a gap, for a new row that was a gap before, and
    /// for a row not written in this incarnation.
    pub(super) writer: Name,
    /// The writer's predecessor vector; for a gap, the join of those of all deleters whose
    /// tombstones it absorbed.
    pub(super) vector: Reference,
}

/// The id of a row's last writer, a sequence lock over what that writer needs. Written under the
/// row's write protection, read under its protection or before its version is checked once more.
///
/// A reader that finds the id changing, or changed, leaves this predecessor out, and relies on the
/// later check of the row's version to fail. That check does not fail by itself: the writer has
/// locked the row before it changes the id, but nothing else orders the reader's check behind the
/// lock. So all that a writer stores here is Release, and all that a reader loads is Acquire:
/// whatever the reader has seen of this change, the lock happened before it, and the check comes
/// behind both.
#[derive(Default)]
pub(super) struct Name(AtomicU64);

impl Name {
    /// Loads the id. What is read of this writer comes after this.
    #[inline]
    pub fn get(&self) -> Id {
        self.0.load(Ordering::Acquire)
    }

    /// Whether what was read since [`Name::get`] returned this id belongs to it.
    #[inline]
    pub fn is_still(&self, name: Id) -> bool {
        // Earlier loads come before the one below.
        fence(Ordering::Acquire);
        self.0.load(Ordering::Acquire) == name
    }

    /// Begins a change: what belongs to the id changes after this. The caller has locked the row.
    #[inline]
    pub fn change(&self) {
        self.0.store(BUSY, Ordering::Release);
        // A reader that sees any of the change sees that the id has changed.
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

    /// Commits as an optimistic reader does: returns the version that it read, and the predecessor
    /// that it lists.
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
