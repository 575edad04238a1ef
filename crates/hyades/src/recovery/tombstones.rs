//! Removal of tombstones while data records are replayed in any order.
//!
//! The tombstone of a deletion D stays while a record with an earlier version of the row may
//! follow: without the tombstone the record would bring the row back. Let W be such a record.
//!
//! **Rule.** In its stream, W stands before every record F whose epoch is later than D's. Reason:
//! W's writer reserved W's place before releasing the row. D's transaction locked the row after the
//! release, and read D's epoch while holding the lock. F's transaction read F's epoch after the
//! beginning of F's epoch, thus after the read of D's epoch, and reserved F's place still later. So
//! the tombstone can be removed once, in each stream, all records before some F have been applied
//! or are dead, or nothing of the stream is left. Where the number of a record is its version,
//! numbers rise along each stream, and versions take the place of epochs.
//!
//! A transaction with a timestamp drawn at its start does not read its epoch under the lock. With
//! such transactions, and where a record may be undone at the end, tombstones stay until the end.

use super::replay::ReplayContext;
use crate::concurrency::replaying::RowLock;
use crate::storage::Stamp;
use crate::storage::key::KeyBytes;
use crate::storage::record::word;
use crate::storage::table::Lookup;
use crate::storage::tid::Tid;
use hyades_index::NoHooks;
use hyades_platform::broken;
use hyades_platform::reclaim::Guard;
use hyades_platform::sync::Unpoisoned;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Tombstones are checked when their number reaches twice the number left by the last check plus
/// this, or [`MANY`].
const SLACK: usize = 16;

/// A thread with more tombstones than this waits for the threads whose chunks hold the tombstones
/// up, at most this often for each of its own chunks: a chunk may also wait for the next reads of
/// the waiting thread.
const MANY: usize = 8_192;
const WAITS: u32 = 50;
const WAIT: Duration = Duration::from_micros(200);

/// A row that was absent when last applied, with the version that deleted it.
pub(crate) struct Tombstone {
    pub table: u32,
    pub key: KeyBytes,
    pub tid: Tid,
}

/// The order that shows when no earlier version of a row can follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Epochs,
    Versions,
}

impl Order {
    /// Whether a record of version `later` stands behind all records that wrote the row before
    /// `deleted`.
    fn is_behind(self, deleted: Tid, later: Tid) -> bool {
        match self {
            Order::Epochs => deleted.epoch() < later.epoch(),
            Order::Versions => deleted < later,
        }
    }
}

/// How far the chunks of a stream have been replayed. Chunks are handed out in the stream's order,
/// and completed in any order.
#[derive(Default)]
pub(crate) struct ReplayedChunks(Mutex<Chunks>);

#[derive(Default)]
struct Chunks {
    handed_out: u64,
    /// All chunks below this number are completed.
    completed: u64,
    /// Completed chunks above `completed`, with their highest versions.
    ahead: BTreeMap<u64, Tid>,
    /// The highest version in the chunks below `completed`.
    passed: Tid,
    /// The version of the next record to be handed out.
    next: Tid,
}

/// A chunk being replayed. Completed when all clones are dropped: each record not judged yet keeps
/// a clone.
pub(crate) struct OpenChunk {
    stream: Arc<ReplayedChunks>,
    number: u64,
    /// The highest version seen in the chunk. Raised by the thread decoding the chunk; Relaxed:
    /// read when the last clone is dropped.
    highest: AtomicU64,
}

impl OpenChunk {
    pub fn saw(&self, tid: Tid) {
        self.highest.fetch_max(tid.bits(), Ordering::Relaxed);
    }
}

impl Drop for OpenChunk {
    fn drop(&mut self) {
        let highest = Tid::from_bits(self.highest.load(Ordering::Relaxed));
        let mut chunks = self.stream.chunks();
        chunks.ahead.insert(self.number, highest);
        while let Some(highest) = {
            let completed = chunks.completed;
            chunks.ahead.remove(&completed)
        } {
            chunks.completed += 1;
            chunks.passed = chunks.passed.max(highest);
        }
    }
}

impl ReplayedChunks {
    fn chunks(&self) -> std::sync::MutexGuard<'_, Chunks> {
        self.0.lock().unpoisoned()
    }

    /// Hands out the next chunk of the stream.
    pub fn hand_out(self: &Arc<Self>) -> Arc<OpenChunk> {
        let mut chunks = self.chunks();
        let number = chunks.handed_out;
        chunks.handed_out += 1;
        Arc::new(OpenChunk { stream: Arc::clone(self), number, highest: AtomicU64::new(0) })
    }

    /// Sets the version of the next record to be handed out; [`Tid::ABOVE_ALL`] if there is no
    /// further record.
    pub fn set_next(&self, next: Tid) {
        self.chunks().next = next;
    }

    /// Returns the version of a record of the stream; all records before it are applied or dead.
    fn settled(&self) -> Tid {
        let chunks = self.chunks();
        match chunks.completed == chunks.handed_out {
            true => chunks.passed.max(chunks.next),
            false => chunks.passed,
        }
    }
}

/// The tombstones of a thread.
#[derive(Default)]
pub(crate) struct Tombstones {
    waiting: Vec<Tombstone>,
    /// Number of tombstones left by the last check.
    left: usize,
}

impl Tombstones {
    pub fn push(&mut self, tombstone: Tombstone) {
        self.waiting.push(tombstone);
    }

    /// Removes tombstones that no remaining record may precede, if there are enough. The thread
    /// applies no record. The thread `waits` for other threads unless one of these may wait for a
    /// record that the thread keeps.
    pub fn remove_settled<'p, S: Stamp>(
        &mut self,
        replay: &ReplayContext<S>,
        (order, waits): (Order, bool),
        streams: impl Iterator<Item = &'p ReplayedChunks> + Clone,
        guard: &mut Guard,
    ) {
        if self.waiting.len() < 2 * self.left + SLACK && self.waiting.len() < MANY {
            return;
        }
        let settled = || streams.clone().map(ReplayedChunks::settled).min();
        let mut settled_to = settled().unwrap_or(Tid::ABOVE_ALL);
        for _ in 0..WAITS {
            let is_held_up = |tombstone: &Tombstone| !order.is_behind(tombstone.tid, settled_to);
            if !waits || self.waiting.len() <= MANY || !self.waiting.first().is_some_and(is_held_up)
            {
                break;
            }
            std::thread::sleep(WAIT);
            settled_to = settled().unwrap_or(Tid::ABOVE_ALL);
        }
        self.waiting.retain(|tombstone| {
            guard.refresh();
            let is_early = broken!(ForgetUnsettledTombstones);
            !(is_early || order.is_behind(tombstone.tid, settled_to))
                || !remove(replay, tombstone, guard)
        });
        self.left = self.waiting.len();
    }

    /// Removes tombstones at once, where every record of the rows before the deletions has been
    /// applied, and no record after the deletions has begun. Tombstones that cannot be removed
    /// stay.
    pub fn remove_all<S: Stamp>(&mut self, replay: &ReplayContext<S>, guard: &Guard) {
        self.waiting.retain(|tombstone| !remove(replay, tombstone, guard));
    }

    /// Passes the remaining tombstones to the end of the replay.
    pub fn hand_over<S: Stamp>(self, replay: &ReplayContext<S>) {
        let left = self.waiting.into_iter().map(|tombstone| (tombstone.table, tombstone.key));
        replay.absent.lock().unpoisoned().extend(left);
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// Removes the row object of a tombstone. Returns whether the tombstone is done.
fn remove<S: Stamp>(replay: &ReplayContext<S>, tombstone: &Tombstone, guard: &Guard) -> bool {
    let table = &replay.engine.tables[tombstone.table as usize];
    let Lookup::Found(record) = table.find(&tombstone.key, guard) else { return true };
    // Another thread may be removing the row object, for another tombstone of the key.
    let Some(mut lock) = RowLock::take(record) else { return true };
    if lock.version & word::ABSENT == 0 || word::tid(lock.version) != tombstone.tid {
        // The row was inserted again; a later deletion has a tombstone of its own.
        return true;
    }
    if record.entries.load(Ordering::Acquire) > 0
        || !replay.held.forget_superseded(record, tombstone.tid)
    {
        return false;
    }
    lock.version |= word::DEAD;
    drop(lock);
    table.unlink(record, &NoHooks, &|_| (), guard);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyades_platform::epoch::EpochNumber;

    fn of(epoch: u64) -> Tid {
        Tid::new(EpochNumber(epoch), 7)
    }

    #[test]
    fn a_stream_is_settled_up_to_its_first_chunk_that_is_open() {
        let stream = Arc::new(ReplayedChunks::default());
        stream.set_next(of(3));
        assert_eq!(stream.settled(), of(3), "nothing of it was handed out");
        let [first, second, third] = [4, 9, 6].map(|highest| {
            let chunk = stream.hand_out();
            chunk.saw(of(highest));
            chunk.saw(of(2));
            chunk
        });
        stream.set_next(of(20));
        assert_eq!(stream.settled(), Tid::NONE);
        drop(second);
        assert_eq!(stream.settled(), Tid::NONE, "the first one is open");
        let parked = Arc::clone(&first);
        drop(first);
        assert_eq!(stream.settled(), Tid::NONE, "a record of it is not judged");
        drop(parked);
        assert_eq!(stream.settled(), of(9));
        drop(third);
        assert_eq!(stream.settled(), of(20), "the next record is behind all of them");
        stream.set_next(Tid::ABOVE_ALL);
        assert_eq!(stream.settled(), Tid::ABOVE_ALL);
    }

    #[test]
    fn records_of_the_same_epoch_may_come_in_any_order() {
        assert!(!Order::Epochs.is_behind(of(5), Tid::new(EpochNumber(5), 900)));
        assert!(Order::Epochs.is_behind(of(5), of(6)));
        assert!(Order::Versions.is_behind(of(5), Tid::new(EpochNumber(5), 900)));
        assert!(!Order::Versions.is_behind(of(5), of(5)));
    }
}
