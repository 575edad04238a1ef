//! The clock, and what each session has announced: its timestamp, and where it may have reserved.
//!
//! An announcement is made *before* what it announces is drawn. Otherwise a session that has drawn
//! and not yet announced is missed, and what it needs is removed (`docs/protocols/deuteronomy.md`,
//! D9).
//!
//! For transactions and positions Release and Acquire are enough, since what is announced is drawn
//! by a read-modify-write: a thread that has read the clock above a timestamp has read the drawing
//! of it, or a later one, and sees what was announced before; and a thread that knows a frame to be
//! durable has that from the flusher, which has it from the session that has reserved it. A
//! snapshot draws nothing: there the order is that of SeqCst.
//!
//! A snapshot draws no timestamp: it reads as of just below the *horizon*, below which every
//! transaction has ended. It is announced as a transaction at the horizon would be, so what it
//! reads is kept. Invariant: no oldest timestamp that a thread goes by is above the horizon of a
//! snapshot that has been announced before that thread looked for one; the horizon is at or above
//! all that threads went by before.

use super::place::Place;
use crate::data_component::{LAST_TS, MAX_TS};
use hyades_platform::broken;
use hyades_platform::sync::{AtomicU64, AtomicUsize, Ordering, Padded, checker_fence};
use hyades_wal::Lsn;
use std::sync::{Mutex, MutexGuard};

/// The announcement of a session without a transaction: above all timestamps.
const IDLE: u64 = u64::MAX;

/// In the announcement of a transaction that has written: it is to abort.
const IS_SHED: u64 = 1 << 63;

/// What a session has announced. Written by the session, read by all threads that look for the
/// oldest active timestamp or for a complete prefix of a stream: see the head of the file.
#[derive(Debug)]
struct Announcement {
    /// A lower bound of the timestamp of its transaction.
    ts: AtomicU64,
    /// A value that the clock has had, for the next announcement: that need not read the clock,
    /// which other sessions write. Used by the session alone, Relaxed; no step for the checker of
    /// schedules.
    seen: std::sync::atomic::AtomicU64,
    /// A [`Place`]: a lower bound of the position of a record that it has not handed to the proxy.
    reserving: AtomicU64,
    /// A [`Place`]: a lower bound of the position of the first part of its transaction, until the
    /// record is handed to the proxy. Written and read as `reserving`.
    holding: AtomicU64,
    /// The timestamp of its transaction, if that has written and not ended, and whether it is to
    /// abort ([`IS_SHED`]); 0 otherwise. Written by the session; others set the bit by an exchange,
    /// which fails once the transaction has ended. Relaxed: it orders nothing.
    writing: AtomicU64,
}

/// The clock of a database, and the announcements of its sessions.
#[derive(Debug)]
pub(crate) struct Timestamps {
    /// The next timestamp.
    clock: Padded<AtomicU64>,
    /// The highest oldest timestamp that a thread has found: all below have ended. Raised before it
    /// is used, read by snapshots after they have announced themselves (SeqCst: the one or the
    /// other finds the other).
    horizon: Padded<AtomicU64>,
    /// How many snapshots there are, or are about to be. Raised before they are announced.
    snapshots: AtomicUsize,
    announced: Box<[Padded<Announcement>]>,
    /// Places at or above this one were never taken: they are not looked at. Raised before a
    /// session announces anything; read after the clock, or the durable positions. So a session
    /// whose raise is missed draws above what was read. SeqCst, for snapshots.
    used: AtomicUsize,
    free: Mutex<Vec<usize>>,
}

impl Timestamps {
    /// A clock whose first timestamp is `first`, for this many sessions.
    pub fn new(first: u64, sessions: usize) -> Self {
        let idle = |_| {
            let none = || AtomicU64::new(Place::NONE.word());
            let (ts, seen) = (AtomicU64::new(IDLE), first.into());
            let (reserving, holding, writing) = (none(), none(), AtomicU64::new(0));
            Padded(Announcement { ts, seen, reserving, holding, writing })
        };
        Self {
            clock: Padded(AtomicU64::new(first)),
            horizon: Padded(AtomicU64::new(first)),
            snapshots: AtomicUsize::new(0),
            announced: (0..sessions).map(idle).collect(),
            used: AtomicUsize::new(0),
            free: Mutex::new((0..sessions).rev().collect()),
        }
    }

    fn free(&self) -> MutexGuard<'_, Vec<usize>> {
        self.free.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Takes a session's place among the announcements; None if all are taken.
    pub fn enter(&self) -> Option<usize> {
        let at = self.free().pop()?;
        self.used.fetch_max(at + 1, Ordering::SeqCst);
        self.announced[at].seen.store(self.next(), Ordering::Relaxed);
        Some(at)
    }

    /// The announcements of all sessions there are, or have been.
    fn announced(&self) -> &[Padded<Announcement>] {
        &self.announced[..self.used.load(Ordering::SeqCst)]
    }

    /// Gives the place back.
    pub fn leave(&self, at: usize) {
        debug_assert_eq!(self.announced[at].ts.load(Ordering::Relaxed), IDLE, "it still runs");
        self.free().push(at);
    }

    /// B1: announces a bound below the timestamp to be drawn.
    #[inline]
    pub fn announce(&self, at: usize) {
        if broken!(DrawFirst) {
            return;
        }
        let own = &self.announced[at];
        own.ts.store(own.seen.load(Ordering::Relaxed), Ordering::Release);
    }

    /// B2, B3: draws a timestamp; None where they are used up ([`LAST_TS`]).
    #[inline]
    pub fn draw(&self, at: usize) -> Option<u64> {
        let own = &self.announced[at];
        if own.seen.load(Ordering::Relaxed) > LAST_TS {
            return None;
        }
        let ts = self.clock.fetch_add(1, Ordering::SeqCst);
        debug_assert!(ts <= MAX_TS, "{ts} could not be read again");
        debug_assert!(
            own.ts.load(Ordering::Relaxed) <= ts || broken!(DrawFirst),
            "{ts} is below its announcement"
        );
        own.ts.store(ts, Ordering::Release);
        own.seen.store(ts + 1, Ordering::Relaxed);
        Some(ts)
    }

    /// Withdraws the announcement. Release: what the transaction has left behind is visible to
    /// those that find it idle.
    #[inline]
    pub fn end(&self, at: usize) {
        self.announced[at].ts.store(IDLE, Ordering::Release);
    }

    /// Announces a snapshot, and returns the horizon: it reads what is below.
    pub fn announce_snapshot(&self, at: usize) -> u64 {
        self.snapshots.fetch_add(1, Ordering::SeqCst);
        let announced = &self.announced[at].ts;
        // Below everything, until the horizon is known: it may rise meanwhile.
        announced.store(0, Ordering::SeqCst);
        checker_fence();
        let horizon = self.horizon.load(Ordering::SeqCst);
        announced.store(horizon, Ordering::SeqCst);
        horizon
    }

    /// Withdraws the announcement of a snapshot.
    pub fn end_snapshot(&self, at: usize) {
        self.end(at);
        let before = self.snapshots.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "a snapshot ends that did not begin");
    }

    /// The lowest of a timestamp and those announced.
    fn lowest_announced(&self, upper: u64) -> u64 {
        self.announced().iter().fold(upper, |lowest, a| lowest.min(a.ts.load(Ordering::SeqCst)))
    }

    /// O1, O2: a timestamp below which no transaction is active, or will be, and which is at or
    /// below the horizon of every snapshot. The clock is read first: a transaction that draws below
    /// it has announced itself before. O3 raises the horizon; then O4 looks for snapshots that may
    /// have missed that.
    pub fn oldest_active(&self) -> u64 {
        let oldest = self.lowest_announced(self.clock.load(Ordering::SeqCst));
        self.horizon.fetch_max(oldest, Ordering::SeqCst);
        checker_fence();
        match self.snapshots.load(Ordering::SeqCst) {
            0 => oldest,
            _ => self.lowest_announced(oldest),
        }
    }

    /// The timestamp to be drawn next.
    pub fn next(&self) -> u64 {
        self.clock.load(Ordering::SeqCst)
    }

    /// Announces that the session is about to reserve at or behind this position.
    pub fn announce_reserving(&self, at: usize, stream: usize, behind: Lsn) {
        let bound = Place::new(stream, behind).word();
        self.announced[at].reserving.store(bound, Ordering::Release);
    }

    /// The record has been handed to the proxy, or was not written. Release: a thread that finds
    /// that finds the record, too.
    #[inline]
    pub fn end_reserving(&self, at: usize) {
        self.announced[at].reserving.store(Place::NONE.word(), Ordering::Release);
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

    /// Announces that the transaction writes: it has memory that only its end gives back.
    pub fn announce_writing(&self, at: usize, ts: u64) {
        self.announced[at].writing.store(ts, Ordering::Relaxed);
    }

    /// The transaction has ended.
    pub fn end_writing(&self, at: usize) {
        let writing = &self.announced[at].writing;
        if writing.load(Ordering::Relaxed) != 0 {
            writing.store(0, Ordering::Relaxed);
        }
    }

    /// Whether the transaction is to abort, to make room for an older one.
    pub fn is_shed(&self, at: usize) -> bool {
        self.announced[at].writing.load(Ordering::Relaxed) & IS_SHED != 0
    }

    /// Whether a transaction above this timestamp has written and not ended.
    pub fn is_younger_writing(&self, ts: u64) -> bool {
        let writing = |a: &Padded<Announcement>| a.writing.load(Ordering::Relaxed) & !IS_SHED;
        self.announced.iter().any(|announced| writing(announced) > ts)
    }

    /// The youngest transaction above this timestamp that has written, and is not to abort yet, is
    /// to abort now. Returns its timestamp, if there is one.
    pub fn shed_youngest_above(&self, ts: u64) -> Option<u64> {
        loop {
            let writing = self.announced.iter().map(|announced| &announced.writing);
            let written = writing.map(|writing| (writing.load(Ordering::Relaxed), writing));
            let above = written.filter(|(word, _)| word & IS_SHED == 0 && *word > ts);
            let (youngest, writing) = above.max_by_key(|(word, _)| *word)?;
            let shed = youngest | IS_SHED;
            let (set, failed) = (Ordering::Relaxed, Ordering::Relaxed);
            if writing.compare_exchange(youngest, shed, set, failed).is_ok() {
                return Some(youngest);
            }
        }
    }

    /// Lowers the positions of streams: each transaction with a part below has handed its record to
    /// the proxy. So redo that begins there finds all parts of the others. The positions must have
    /// been durable before the call, see [`lower_to_handed_over`](Self::lower_to_handed_over).
    pub fn lower_to_held(&self, durable: &mut [Lsn]) {
        for announced in self.announced() {
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
        for announced in self.announced() {
            let place = Place::from_word(announced.reserving.load(Ordering::SeqCst));
            if let Some((stream, behind)) = place.get() {
                durable[stream] = durable[stream].min(behind);
            }
        }
    }
}

#[cfg(all(test, loom))]
#[path = "timestamp_loom_tests.rs"]
mod loom_tests;

#[cfg(all(test, not(loom)))]
#[path = "timestamp_tests.rs"]
mod tests;
