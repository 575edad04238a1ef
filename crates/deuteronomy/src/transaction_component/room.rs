//! Room where the budget of memory is exhausted by uncommitted writes: the youngest writing
//! transaction is aborted, older transactions go on.
//!
//! A transaction in need of room tells the youngest writing transaction above. The told transaction
//! aborts at its next write, or commits before; either way its writes can leave. Then the next
//! transaction is told. A snapshot tells none, because a snapshot aborts no transaction, and leaves
//! no room to other transactions: the versions read by a snapshot can leave at once. Invariants:
//! - Only the older waits for the younger, and here only: so never in a circle with waits for an
//!   older transaction; those waits are bounded in time.
//! - While a transaction waits for room, no younger transaction gets any of the last quarter. So
//!   freed room is for the oldest waiting transaction: the oldest gets room if the rest of the
//!   budget is not with still older transactions.
//! - A transaction told to abort was active, and had written, at the time.

use super::TransactionComponent;
use super::work::Work;
use crate::error::{Abort, Error};
use hyades_platform::clock;
use hyades_platform::event;
use hyades_platform::sync::locked;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The pause between two looks of a waiting transaction.
const PAUSE: Duration = Duration::from_micros(200);
/// The part of its patience after which a waiting transaction tells another transaction as well.
const PART_TO_NEXT: u64 = 8;
/// The number of looks without a younger transaction, and without room, after which a transaction
/// counts as the youngest: a younger transaction with room from before the wait may have come and
/// gone once.
const ALONE: u32 = 2;

/// The transactions waiting for room.
#[derive(Debug)]
pub(crate) struct Room {
    /// The timestamps of waiting transactions, and their places among the announcements.
    waiting: Mutex<BTreeSet<(u64, usize)>>,
    /// The lowest waiting timestamp; above all if there is none. Written under the lock. Relaxed:
    /// after a missed change a transaction gets a little room.
    oldest: AtomicU64,
    /// The number of aborted transactions. Relaxed: the count orders nothing.
    shed: AtomicU64,
}

/// A waiting transaction, until the value is dropped.
struct WaitsForRoom<'r> {
    room: &'r Room,
    waiter: (u64, usize),
}

impl Room {
    pub fn new() -> Self {
        let (oldest, shed) = (AtomicU64::new(u64::MAX), AtomicU64::new(0));
        Self { waiting: Mutex::default(), oldest, shed }
    }

    /// Whether the available room should be left to an older transaction.
    pub fn is_for_older(&self, work: &Work) -> bool {
        let oldest = self.oldest.load(Ordering::Relaxed);
        // A transaction about to begin is younger than all.
        oldest != u64::MAX && !work.is_snapshot && (!work.is_active() || oldest < work.ts)
    }

    fn change(&self, change: impl FnOnce(&mut BTreeSet<(u64, usize)>)) {
        let mut waiting = locked(&self.waiting);
        change(&mut waiting);
        let oldest = waiting.first().map_or(u64::MAX, |(ts, _)| *ts);
        self.oldest.store(oldest, Ordering::Relaxed);
    }

    fn begin_to_wait(&self, work: &Work) -> WaitsForRoom<'_> {
        let waiter = (work.ts, work.at);
        self.change(|waiting| {
            waiting.insert(waiter);
        });
        WaitsForRoom { room: self, waiter }
    }

    /// Counts a transaction aborted for its room.
    pub fn count_shed(&self) {
        self.shed.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of transactions aborted for room.
    pub fn shed(&self) -> u64 {
        self.shed.load(Ordering::Relaxed)
    }
}

impl WaitsForRoom<'_> {
    /// Whether no older transaction waits.
    fn is_oldest(&self) -> bool {
        locked(&self.room.waiting).first() == Some(&self.waiter)
    }
}

impl Drop for WaitsForRoom<'_> {
    fn drop(&mut self) {
        self.room.change(|waiting| {
            waiting.remove(&self.waiter);
        });
    }
}

impl TransactionComponent {
    /// Waits until there is room, where [`make_room`](Self::make_room) could make none, or has to
    /// leave the room to an older transaction.
    ///
    /// # Errors
    /// [`Abort::Shed`]: the transaction is the youngest, or has waited for too long, or is a
    /// snapshot.
    pub(super) fn wait_for_room(&self, work: &Work) -> Result<(), Error> {
        let shed = || Err(Abort::Shed.into());
        if !work.is_active() || work.is_snapshot {
            return shed();
        }
        if self.options.log.stepped {
            // Where a single thread does all work, the thread would wait for itself.
            self.timestamps.shed_youngest_above(work.ts);
            return shed();
        }
        let patience = u64::try_from(self.options.room_patience.as_nanos()).unwrap_or(u64::MAX);
        let until = clock::monotonic_ns().saturating_add(patience);
        let waits = self.room.begin_to_wait(work);
        // The transaction last told to abort, and the time; and the number of looks with none to
        // tell.
        let (mut told, mut alone): (Option<(u64, u64)>, u32) = (None, 0);
        loop {
            // Before: a transaction ending meanwhile may leave room only after the look for room.
            let is_youngest = !self.timestamps.is_younger_writing(work.ts);
            if waits.is_oldest() {
                match self.collect() {
                    Err(Error::Aborted(Abort::Shed)) => {}
                    collected => return collected,
                }
            }
            alone = if is_youngest { alone + 1 } else { 0 };
            let now = clock::monotonic_ns();
            if alone >= ALONE || now >= until || self.timestamps.is_shed(work.at) {
                return shed();
            }
            let is_leaving = |(younger, at): (u64, u64)| {
                self.transactions.is_active(younger) && now - at < patience / PART_TO_NEXT
            };
            if waits.is_oldest() && !told.is_some_and(is_leaving) {
                let next = self.timestamps.shed_youngest_above(work.ts);
                if let Some(timestamp) = next {
                    event!(WARN, "transaction aborted for room", timestamp = timestamp);
                }
                // Without another transaction, the told transactions have not ended yet.
                told = next.map_or(told, |younger| Some((younger, now)));
            }
            std::thread::sleep(PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_for_the_oldest_that_waits() {
        let room = Room::new();
        let [mut one, mut two, idle] = [0, 1, 2].map(|at| Work::new(at, 1));
        (one.ts, two.ts) = (3, 5);
        let is_for_older = || [&one, &two, &idle].map(|work| room.is_for_older(work));
        assert_eq!(is_for_older(), [false; 3]);
        let second = room.begin_to_wait(&two);
        assert_eq!((is_for_older(), second.is_oldest()), ([false, false, true], true));
        let first = room.begin_to_wait(&one);
        assert_eq!(is_for_older(), [false, true, true]);
        assert_eq!((first.is_oldest(), second.is_oldest()), (true, false));
        two.is_snapshot = true;
        assert!(!room.is_for_older(&two), "a snapshot leaves room to none");
        drop(first);
        assert!(second.is_oldest() && room.is_for_older(&idle) && !room.is_for_older(&one));
        drop(second);
        assert!(!room.is_for_older(&idle));
    }
}
