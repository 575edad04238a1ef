//! The lease: until when a primary may answer what it has only read.
//!
//! A process that was replaced as the primary may not know. What wrote needs no lease: its record
//! is stored by the replicated log, so no successor had sealed the log before, and what was read
//! was the newest. What only read is answered by the lease, or a replaced primary would answer from
//! its memory (docs/protocols/failover.md).
//!
//! **One place.** A transaction without a record of its own is acknowledged once its needs are
//! reached *and* [`Frontier::may_answer`](crate::Frontier::may_answer) holds: asked by
//! [`Awaited`](crate::Awaited) and [`CommitQueue`](crate::CommitQueue), after the read, since a
//! ticket is made of what was read. A read that was checked and is then delayed on its way is
//! linearizable at its check. The engine and the server answer by tickets alone; the engine lists
//! the ways (`crates/hyades/src/ticket.rs`).
//!
//! **Waiting.** Nothing wakes a waiter when the lease runs out, and nothing needs to. A waiter is
//! woken by each extension, by the end of the lease, and by the stop of the log, with which an end
//! is followed: only the stop makes the waiter fail. No wake-up is lost, by the lock of the parked
//! wakers: a waiter parks its waker, then looks at the deadline and at the log; the other side
//! changes these, then takes the wakers.

use crate::wakers::Wakers;
use hyades_platform::callback::OnDatabaseThread;
use hyades_platform::clock;
use hyades_platform::sync::{AtomicU64, Mutex, Ordering};
use std::task::Waker;
use std::time::Duration;

/// The deadline of an ended lease: above all times of the clock.
const ENDED: u64 = u64::MAX;

/// Until when a primary may answer transactions that only read: a deadline by [`clock::boot_ns`].
/// The holder extends the lease, see [`Remote::lease`](crate::Remote::lease).
#[derive(Debug)]
pub struct AnswerLease {
    /// The deadline, or [`ENDED`]. Raised, and ended for ever, by the holder; read by every thread
    /// that acknowledges (Acquire and Release: a thread that may answer sees what the holder had
    /// seen).
    until_ns: AtomicU64,
    parked: Mutex<Wakers>,
    /// The number of panicked wakers. Written by the waking threads, read for metrics: Relaxed.
    panicked: AtomicU64,
}

impl Default for AnswerLease {
    fn default() -> Self {
        AnswerLease::new()
    }
}

impl AnswerLease {
    /// A lease that has run out.
    pub fn new() -> Self {
        AnswerLease {
            until_ns: AtomicU64::new(0),
            parked: Mutex::default(),
            panicked: AtomicU64::new(0),
        }
    }

    /// Extends the lease to `until_ns`, exclusively, by [`clock::boot_ns`]; an earlier deadline
    /// than the present one changes nothing. Wakes all that wait for an answer. An ended lease
    /// stays ended.
    ///
    /// The deadline counts from the *sending* of the renewal that is known to be applied.
    pub fn extend(&self, until_ns: u64) {
        let until_ns = until_ns.min(ENDED - 1);
        let later = |now: u64| (now < until_ns).then_some(until_ns);
        let (set, failed) = (Ordering::AcqRel, Ordering::Acquire);
        let extended = self.until_ns.fetch_update(set, failed, later).is_ok();
        if extended {
            // A waker waiting for an answer would wait for the current thread.
            let _mark = OnDatabaseThread::begin();
            self.wake();
        }
    }

    /// Ends the lease for ever: nothing is answered from now on, and what waits fails with the stop
    /// of the log, which the caller brings about.
    pub fn end(&self) {
        self.until_ns.store(ENDED, Ordering::Release);
        let _mark = OnDatabaseThread::begin();
        self.wake();
    }

    /// Whether the lease was ended.
    pub fn has_ended(&self) -> bool {
        self.until_ns.load(Ordering::Acquire) == ENDED
    }

    /// Whether a transaction that has read may be answered now.
    pub fn may_answer(&self) -> bool {
        let until_ns = self.until_ns.load(Ordering::Acquire);
        // The clock is read last, so a deadline loaded before a long pause has passed by then.
        until_ns != ENDED && clock::boot_ns() < until_ns
    }

    /// Parks a waker until the next extension, the end of the lease, or a call of [`Self::wake`].
    /// Check afterwards. Returns the waker's key.
    pub(crate) fn park(&self, waker: Waker) -> u64 {
        self.parked.lock().unwrap_or_else(|e| e.into_inner()).park(0, waker)
    }

    /// How long the lease lasts from now on.
    pub fn left(&self) -> Duration {
        match self.until_ns.load(Ordering::Acquire) {
            ENDED => Duration::ZERO,
            until_ns => Duration::from_nanos(until_ns.saturating_sub(clock::boot_ns())),
        }
    }

    /// Withdraws a parked waker, if not woken yet.
    pub(crate) fn withdraw(&self, key: u64) {
        // Dropped after the lock is released.
        let _withdrawn = self.parked.lock().unwrap_or_else(|e| e.into_inner()).withdraw(0, key);
    }

    /// Wakes all that wait, to look again.
    pub(crate) fn wake(&self) {
        let woken = self.parked.lock().unwrap_or_else(|e| e.into_inner()).take_up_to(u64::MAX);
        // Outside the lock: a waker may register again at once.
        self.panicked.fetch_add(woken.wake(), Ordering::Relaxed);
    }

    /// How many wakers are parked now, and how many have panicked so far.
    pub(crate) fn wakers(&self) -> (usize, u64) {
        let parked = self.parked.lock().unwrap_or_else(|e| e.into_inner()).len();
        (parked, self.panicked.load(Ordering::Relaxed))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_lease_lasts_until_its_deadline_and_ends_for_ever() {
        clock::simulate(Some(0));
        let lease = AnswerLease::new();
        assert!(!lease.may_answer(), "it has run out from the first moment on");
        lease.extend(10);
        assert!(lease.may_answer());
        // An earlier deadline takes nothing away.
        lease.extend(5);
        clock::simulate(Some(9));
        assert!(lease.may_answer());
        clock::simulate(Some(10));
        assert!(!lease.may_answer());
        lease.extend(u64::MAX);
        assert!(lease.may_answer() && !lease.has_ended());
        lease.end();
        lease.extend(u64::MAX);
        assert!(!lease.may_answer() && lease.has_ended());
        clock::simulate(None);
    }
}
