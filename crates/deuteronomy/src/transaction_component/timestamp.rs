//! The clock, and what each session has announced: its timestamp, and where it may have reserved.
//!
//! An announcement is made *before* what it announces is drawn. Otherwise a session that has drawn
//! and not yet announced is missed, and what it needs is removed (`docs/protocols.md`, D9).

use super::place::Place;
use hyades_platform::sync::{AtomicU64, Ordering, Padded};
use hyades_wal::Lsn;
use std::sync::{Mutex, MutexGuard};

/// The announcement of a session without a transaction: above all timestamps.
const IDLE: u64 = u64::MAX;

/// What a session has announced. Written by the session, read by all threads that look for the
/// oldest active timestamp or for a complete prefix of a stream. SeqCst, see the methods.
#[derive(Debug)]
struct Announcement {
    /// A lower bound of the timestamp of its transaction.
    ts: AtomicU64,
    /// A [`Place`]: a lower bound of the position of a record that it has not handed to the proxy.
    reserving: AtomicU64,
    /// A [`Place`]: a lower bound of the position of the first part of its transaction, until the
    /// record is handed to the proxy. Written and read as `reserving`.
    holding: AtomicU64,
}

/// The clock of a database, and the announcements of its sessions.
#[derive(Debug)]
pub(crate) struct Timestamps {
    /// The next timestamp.
    clock: Padded<AtomicU64>,
    announced: Box<[Padded<Announcement>]>,
    free: Mutex<Vec<usize>>,
}

impl Timestamps {
    /// A clock whose first timestamp is `first`, for this many sessions.
    pub fn new(first: u64, sessions: usize) -> Self {
        let idle = |_| {
            let none = || AtomicU64::new(Place::NONE.word());
            Padded(Announcement { ts: AtomicU64::new(IDLE), reserving: none(), holding: none() })
        };
        Self {
            clock: Padded(AtomicU64::new(first)),
            announced: (0..sessions).map(idle).collect(),
            free: Mutex::new((0..sessions).rev().collect()),
        }
    }

    fn free(&self) -> MutexGuard<'_, Vec<usize>> {
        self.free.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Takes a session's place among the announcements; None if all are taken.
    pub fn enter(&self) -> Option<usize> {
        self.free().pop()
    }

    /// Gives the place back.
    pub fn leave(&self, at: usize) {
        debug_assert_eq!(self.announced[at].ts.load(Ordering::Relaxed), IDLE, "it still runs");
        self.free().push(at);
    }

    /// B1: announces a bound below the timestamp to be drawn.
    pub fn announce(&self, at: usize) {
        let bound = self.clock.load(Ordering::SeqCst);
        self.announced[at].ts.store(bound, Ordering::SeqCst);
    }

    /// B2, B3: draws a timestamp.
    pub fn draw(&self, at: usize) -> u64 {
        let announced = &self.announced[at].ts;
        let ts = self.clock.fetch_add(1, Ordering::SeqCst);
        debug_assert!(announced.load(Ordering::Relaxed) <= ts, "{ts} is below its announcement");
        announced.store(ts, Ordering::SeqCst);
        ts
    }

    /// Withdraws the announcement. SeqCst, as a release: what the transaction has left behind is
    /// visible to those that find it idle.
    pub fn end(&self, at: usize) {
        self.announced[at].ts.store(IDLE, Ordering::SeqCst);
    }

    /// O1, O2: a timestamp below which no transaction is active, or will be. The clock is read
    /// first: a transaction that draws below it has announced itself before.
    pub fn oldest_active(&self) -> u64 {
        let upper = self.clock.load(Ordering::SeqCst);
        self.announced.iter().fold(upper, |oldest, a| oldest.min(a.ts.load(Ordering::SeqCst)))
    }

    /// The timestamp to be drawn next.
    pub fn next(&self) -> u64 {
        self.clock.load(Ordering::SeqCst)
    }

    /// Announces that the session is about to reserve at or behind this position.
    pub fn announce_reserving(&self, at: usize, stream: usize, behind: Lsn) {
        let bound = Place::new(stream, behind).word();
        self.announced[at].reserving.store(bound, Ordering::SeqCst);
    }

    /// The record has been handed to the proxy, or was not written.
    pub fn end_reserving(&self, at: usize) {
        self.announced[at].reserving.store(Place::NONE.word(), Ordering::SeqCst);
    }

    /// Announces that the session is about to reserve the first part of a transaction, at or behind
    /// this position.
    pub fn announce_holding(&self, at: usize, stream: usize, behind: Lsn) {
        let bound = Place::new(stream, behind).word();
        self.announced[at].holding.store(bound, Ordering::SeqCst);
    }

    /// The record of the transaction has been handed to the proxy, or there will be none.
    pub fn end_holding(&self, at: usize) {
        self.announced[at].holding.store(Place::NONE.word(), Ordering::SeqCst);
    }

    /// Lowers the positions of streams: each transaction with a part below has handed its record to
    /// the proxy. So redo that begins there finds all parts of the others. The positions must have
    /// been durable before the call, see [`lower_to_handed_over`](Self::lower_to_handed_over).
    pub fn lower_to_held(&self, durable: &mut [Lsn]) {
        for announced in &self.announced {
            let place = Place::from_word(announced.holding.load(Ordering::SeqCst));
            if let Some((stream, behind)) = place.get() {
                durable[stream] = durable[stream].min(behind);
            }
        }
    }

    /// Lowers the positions of streams to those up to which all records have been handed to the
    /// proxy. They must have been durable before the call: a record below was then reserved, and
    /// announced before that, so it is found here or was handed over already.
    pub fn lower_to_handed_over(&self, durable: &mut [Lsn]) {
        for announced in &self.announced {
            let place = Place::from_word(announced.reserving.load(Ordering::SeqCst));
            if let Some((stream, behind)) = place.get() {
                durable[stream] = durable[stream].min(behind);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_announced_before_it_draws() {
        let timestamps = Timestamps::new(5, 2);
        let (a, b) = (timestamps.enter().unwrap(), timestamps.enter().unwrap());
        assert_eq!((timestamps.enter(), timestamps.oldest_active()), (None, 5));
        timestamps.announce(a);
        timestamps.announce(b);
        assert_eq!((timestamps.draw(b), timestamps.oldest_active()), (5, 5));
        timestamps.end(b);
        assert_eq!(timestamps.oldest_active(), 5, "a may still have drawn 5");
        assert_eq!((timestamps.draw(a), timestamps.oldest_active()), (6, 6));
        timestamps.end(a);
        assert_eq!(timestamps.oldest_active(), 7);
    }

    #[test]
    fn what_may_be_reserved_is_not_complete() {
        let timestamps = Timestamps::new(1, 2);
        let at = timestamps.enter().unwrap();
        timestamps.announce_reserving(at, 1, 30);
        let mut durable = [50, 50];
        timestamps.lower_to_handed_over(&mut durable);
        assert_eq!(durable, [50, 30]);
        timestamps.end_reserving(at);
        let mut durable = [50, 50];
        timestamps.lower_to_handed_over(&mut durable);
        assert_eq!(durable, [50, 50]);
    }

    #[test]
    fn the_first_part_of_a_transaction_is_held_and_delays_no_record() {
        let timestamps = Timestamps::new(1, 2);
        let at = timestamps.enter().unwrap();
        timestamps.announce_holding(at, 0, 20);
        let (mut durable, mut held) = ([50, 50], [50, 50]);
        timestamps.lower_to_handed_over(&mut durable);
        timestamps.lower_to_held(&mut held);
        assert_eq!((durable, held), ([50, 50], [20, 50]));
        timestamps.end_holding(at);
        timestamps.lower_to_held(&mut durable);
        assert_eq!(durable, [50, 50]);
    }
}
