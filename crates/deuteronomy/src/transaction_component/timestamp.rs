//! The clock, and the announcements of each session: the timestamp, and the positions of possible
//! reservations.
//!
//! An announcement is made *before* the announced timestamp is drawn. Otherwise a session is missed
//! between drawing and announcing, and the versions needed by the session are removed
//! (`docs/protocols/deuteronomy.md`, D9).
//!
//! For transactions and positions Release and Acquire are enough, since an announced timestamp is
//! drawn by a read-modify-write: a thread with a clock read above a timestamp has read the
//! timestamp's drawing, or a later drawing, and sees the earlier announcement; and a thread's
//! knowledge of a durable frame comes from the flusher, and the flusher's from the reserving
//! session. A snapshot draws nothing: there the order is the order of SeqCst.
//!
//! A snapshot draws no timestamp: the snapshot reads as of just below the *horizon*; below the
//! horizon every transaction has ended. The snapshot is announced like a transaction at the
//! horizon, so the versions read are kept. Invariant: no oldest timestamp used by a thread is above
//! the horizon of a snapshot announced before the thread looked for an oldest timestamp; the
//! horizon is at or above all oldest timestamps used before.

use super::groups::{GROUP, Groups};
use super::place::Place;
use crate::data_component::{LAST_TS, MAX_TS};
use hyades_platform::broken;
use hyades_platform::sync::{AtomicU64, AtomicUsize, Ordering, Padded, checker_fence};
use hyades_wal::Lsn;
use std::sync::{Mutex, MutexGuard};

/// The announcement of a session without a transaction: above all timestamps.
const IDLE: u64 = u64::MAX;

/// Groups of sessions are put to rest by a look for the oldest timestamp when the clock has passed
/// a multiple of this number since the last look. Under the checker of schedules a test puts groups
/// to rest.
const REST_EVERY: u64 = if cfg!(loom) { 1 << 60 } else { 256 };

/// In the announcement of a writing transaction: the transaction is to abort.
const IS_SHED: u64 = 1 << 63;

/// The announcements of a session. Written by the session, read by all threads in search of the
/// oldest active timestamp or of a complete prefix of a stream: see the head of the file.
#[derive(Debug)]
struct Announcement {
    /// A lower bound of the timestamp of the session's transaction.
    ts: AtomicU64,
    /// A past value of the clock, for the next announcement: the announcement need not read the
    /// clock, a variable written by other sessions. Used by the session alone, Relaxed; no step for
    /// the checker of schedules.
    seen: std::sync::atomic::AtomicU64,
    /// A [`Place`]: a lower bound of the position of a record not yet handed to the proxy.
    reserving: AtomicU64,
    /// A [`Place`]: a lower bound of the position of the first part of the transaction, until the
    /// record is handed to the proxy. Written and read as `reserving`.
    holding: AtomicU64,
    /// The timestamp of a transaction with writes, not yet ended, and whether the transaction is to
    /// abort ([`IS_SHED`]); 0 otherwise. Written by the session; other sessions set the bit by an
    /// exchange; the exchange fails once the transaction has ended. Relaxed: the word orders
    /// nothing.
    writing: AtomicU64,
}

/// The clock of a database, and the announcements of the sessions.
#[derive(Debug)]
pub(crate) struct Timestamps {
    /// The next timestamp.
    clock: Padded<AtomicU64>,
    /// The highest oldest timestamp found by a thread: all transactions below have ended. Raised
    /// before its use, read by snapshots after their announcement (SeqCst: at least one of the two
    /// finds the other).
    horizon: Padded<AtomicU64>,
    /// The clock at the last look for the oldest timestamp, about. Relaxed: tells only whether
    /// another look is worth its cost.
    looked_at: Padded<std::sync::atomic::AtomicU64>,
    /// The number of timestamps, for each session of a group at most, between two looks worth their
    /// cost.
    per_look: u64,
    /// The number of present and imminent snapshots. Raised before their announcement.
    snapshots: AtomicUsize,
    announced: Box<[Padded<Announcement>]>,
    groups: Groups,
    /// The number of places ever taken: higher places are not looked at. Raised before a session
    /// announces anything; read after the clock, or the durable positions. So a session with a
    /// missed raise draws above the value read. SeqCst, for snapshots.
    used: AtomicUsize,
    free: Mutex<Vec<usize>>,
}

impl Timestamps {
    /// Makes a clock with the first timestamp `first`, for `sessions` sessions. Between two looks
    /// for the oldest timestamp about `per_look` timestamps for each session, or for a group of
    /// sessions, may be drawn ([`oldest_lately`](Self::oldest_lately)).
    pub fn new(first: u64, sessions: usize, per_look: u64) -> Self {
        let idle = |_| {
            let none = || AtomicU64::new(Place::NONE.word());
            let (ts, seen) = (AtomicU64::new(IDLE), first.into());
            let (reserving, holding, writing) = (none(), none(), AtomicU64::new(0));
            Padded(Announcement { ts, seen, reserving, holding, writing })
        };
        Self {
            clock: Padded(AtomicU64::new(first)),
            horizon: Padded(AtomicU64::new(first)),
            looked_at: Padded(first.into()),
            per_look,
            snapshots: AtomicUsize::new(0),
            announced: (0..sessions).map(idle).collect(),
            groups: Groups::new(sessions),
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

    /// The announcements of sessions there are, or have been, without groups at rest.
    fn announced(&self) -> impl Iterator<Item = &Padded<Announcement>> {
        let used = &self.announced[..self.used.load(Ordering::SeqCst)];
        let groups = used.chunks(GROUP).enumerate();
        groups.filter(|(group, _)| !self.groups.is_at_rest(*group)).flat_map(|(_, group)| group)
    }

    /// Puts groups of idle sessions to rest.
    #[cold]
    fn rest(&self) {
        let used = &self.announced[..self.used.load(Ordering::SeqCst)];
        for (group, announced) in used.chunks(GROUP).enumerate() {
            let is_idle = |a: &Padded<Announcement>| a.ts.load(Ordering::SeqCst) == IDLE;
            self.groups.rest(group, || announced.iter().all(is_idle));
        }
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
        let bound = own.seen.load(Ordering::Relaxed);
        match Groups::is_always_seen(at) {
            true => own.ts.store(bound, Ordering::Release),
            false => own.ts.store(bound, Ordering::SeqCst),
        }
        self.groups.wake(at);
    }

    /// B2, B3: draws a timestamp; None where timestamps are used up ([`LAST_TS`]).
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

    /// Withdraws the announcement. Release: the versions left by the transaction are visible to a
    /// thread that finds the session idle.
    #[inline]
    pub fn end(&self, at: usize) {
        self.announced[at].ts.store(IDLE, Ordering::Release);
    }

    /// Announces a snapshot, and returns the horizon: the snapshot reads versions below.
    pub fn announce_snapshot(&self, at: usize) -> u64 {
        self.snapshots.fetch_add(1, Ordering::SeqCst);
        let announced = &self.announced[at].ts;
        // Below everything, until the horizon is known: the horizon may rise meanwhile.
        announced.store(0, Ordering::SeqCst);
        self.groups.wake(at);
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

    /// Returns the lowest of a timestamp and the announced timestamps.
    fn lowest_announced(&self, upper: u64) -> u64 {
        self.announced().fold(upper, |lowest, a| lowest.min(a.ts.load(Ordering::SeqCst)))
    }

    /// O1, O2: returns a timestamp below which no transaction is active, or will be; the timestamp
    /// is at or below the horizon of every snapshot. The clock is read first: a transaction with a
    /// draw below the clock's value has announced itself before. O3 raises the horizon; then O4
    /// looks for snapshots with a possible miss of the raise.
    pub fn oldest_active(&self) -> u64 {
        let clock = self.clock.load(Ordering::SeqCst);
        if self.looked_at.load(Ordering::Relaxed) / REST_EVERY != clock / REST_EVERY {
            self.rest();
        }
        let oldest = self.lowest_announced(clock);
        self.horizon.fetch_max(oldest, Ordering::SeqCst);
        self.looked_at.store(clock, Ordering::Relaxed);
        checker_fence();
        match self.snapshots.load(Ordering::SeqCst) {
            0 => oldest,
            _ => self.lowest_announced(oldest),
        }
    }

    /// As [`oldest_active`](Self::oldest_active), but perhaps a little lower: a look takes a cache
    /// line of each session, so a recent look of any thread serves all threads. The horizon is
    /// right, unless there are snapshots: a snapshot may have missed the raise.
    pub fn oldest_lately(&self) -> u64 {
        let recent = self.per_look * self.used.load(Ordering::Relaxed).min(GROUP) as u64;
        let since = self.next().saturating_sub(self.looked_at.load(Ordering::Relaxed));
        if since > recent {
            return self.oldest_active();
        }
        let horizon = self.horizon.load(Ordering::SeqCst);
        checker_fence();
        match self.snapshots.load(Ordering::SeqCst) {
            0 => horizon,
            _ => self.oldest_active(),
        }
    }

    /// The timestamp to be drawn next.
    pub fn next(&self) -> u64 {
        self.clock.load(Ordering::SeqCst)
    }

    /// Announces an imminent reservation of the session at or behind `behind`.
    pub fn announce_reserving(&self, at: usize, stream: usize, behind: Lsn) {
        let bound = Place::new(stream, behind).word();
        self.announced[at].reserving.store(bound, Ordering::Release);
    }

    /// The record has been handed to the proxy, or was not written. Release: a thread that finds
    /// the announcement withdrawn finds the record, too.
    #[inline]
    pub fn end_reserving(&self, at: usize) {
        self.announced[at].reserving.store(Place::NONE.word(), Ordering::Release);
    }

    /// Announces an imminent reservation of the first part of a transaction, at or behind `behind`.
    pub fn announce_holding(&self, at: usize, stream: usize, behind: Lsn) {
        let bound = Place::new(stream, behind).word();
        self.announced[at].holding.store(bound, Ordering::SeqCst);
    }

    /// The record of the transaction has been handed to the proxy, or there will be none.
    pub fn end_holding(&self, at: usize) {
        self.announced[at].holding.store(Place::NONE.word(), Ordering::SeqCst);
    }

    /// Announces a writing transaction: the transaction has memory given back only by its end.
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

    /// Whether a transaction above `ts` has written and not ended.
    pub fn is_younger_writing(&self, ts: u64) -> bool {
        let writing = |a: &Padded<Announcement>| a.writing.load(Ordering::Relaxed) & !IS_SHED;
        self.announced.iter().any(|announced| writing(announced) > ts)
    }

    /// Marks the youngest transaction above `ts` with writes, not yet marked, for an abort. Returns
    /// its timestamp, if any.
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
    /// the proxy. So redo from there finds all parts of the other transactions. The positions must
    /// have been durable before the call, see [`lower_to_handed_over`](Self::lower_to_handed_over).
    pub fn lower_to_held(&self, durable: &mut [Lsn]) {
        for announced in self.announced() {
            let place = Place::from_word(announced.holding.load(Ordering::SeqCst));
            if let Some((stream, behind)) = place.get() {
                durable[stream] = durable[stream].min(behind);
            }
        }
    }

    /// Lowers the positions of streams to the end of the prefix with all records handed to the
    /// proxy. The positions must have been durable before the call: a record below was then
    /// reserved, and announced before, so the record is found here or was handed over already.
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
