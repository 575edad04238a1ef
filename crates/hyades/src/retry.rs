//! Retries of conflicting transactions: after a while a transaction runs alone, or ends with an
//! error.
//!
//! Under optimistic concurrency control, and under locking that never waits, short transactions can
//! starve a long one. After a while it closes the [`Gate`]: no other transaction begins until it
//! has ended. Transactions that were already running may still make it fail, at most once per
//! session. Correctness does not depend on the gate. A session waits at it no longer than a few
//! times the duration of the starving transaction's attempts, so that a closure that waits for
//! another thread, which waits at the gate, still makes progress.
//!
//! That is not so where transactions take turns: one waits for its turn until it comes, which is no
//! conflict and has no bound here. So a closure must not wait for a thread that needs one of its
//! partitions. Only a transaction that is run inside one of another database does not wait: it
//! conflicts instead, so two databases that are nested both ways do not stop for ever.

use crate::error::Error;
use hyades_platform::clock;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// How often and for how long a transaction is retried after conflicts; see
/// [`Builder::retries`](crate::Builder::retries).
///
/// Waiting for a turn under [`Concurrency::Partitioned`](crate::Concurrency::Partitioned) is not a
/// conflict, and nothing here bounds it: it lasts until the transactions ahead have ended.
///
/// ```
/// use hyades::Database;
/// use std::time::Duration;
/// let builder = Database::builder().retries(|retries| {
///     retries.deadline = Some(Duration::from_secs(2));
///     retries.alone_after = Some(Duration::from_millis(20));
/// });
/// # drop(builder);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetrySettings {
    /// A transaction that has met conflicts for this long runs alone: no other one begins until it
    /// has ended. Default: 100 ms. Never if `None`.
    pub alone_after: Option<Duration>,
    /// After this many attempts that met a conflict the transaction ends with [`Error::Starved`];
    /// at least 1. Default: `None`, no limit.
    pub attempts: Option<u64>,
    /// A conflict this long after the first one ends the transaction with [`Error::Starved`].
    /// Default: 30 s. Never if `None`.
    pub deadline: Option<Duration>,
}

impl Default for RetrySettings {
    fn default() -> Self {
        RetrySettings {
            alone_after: Some(Duration::from_millis(100)),
            attempts: None,
            deadline: Some(Duration::from_secs(30)),
        }
    }
}

impl RetrySettings {
    /// Returns an error if no attempt is allowed.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.attempts == Some(0) {
            return Err(Error::Misuse(
                "a transaction needs at least one attempt: RetrySettings::attempts is 0"
                    .to_string(),
            ));
        }
        Ok(())
    }
}

/// Waits a little, randomly and longer with each failed attempt, so that conflicting transactions
/// separate.
pub(crate) fn back_off(rng: &mut fastrand::Rng, attempts: u64) {
    if attempts < 3 {
        std::hint::spin_loop();
    } else if attempts < 16 {
        (0..rng.u32(0..1 << attempts.min(10))).for_each(|_| std::hint::spin_loop());
    } else {
        std::thread::yield_now();
    }
}

/// Minimum time that a transaction waits at a gate that stays closed.
const SHORTEST_WAIT: Duration = Duration::from_millis(200);

/// If longer, it waits for this many times the longest attempt of the starving transaction.
const ATTEMPTS_WAITED: u64 = 4;

/// Closed while a transaction runs alone.
#[derive(Default)]
pub(crate) struct Gate {
    /// Written by the session that closes the gate, under `holder`; read by every session before a
    /// transaction. Relaxed: a transaction that begins in between counts as one already running.
    closed: AtomicBool,
    /// The longest attempt of the transaction that runs alone, in ns; a hint.
    attempt_ns: AtomicU64,
    /// Whether a session has closed the gate.
    holder: Mutex<bool>,
    opened: Condvar,
}

/// Keeps the gate closed until it is dropped.
pub(crate) struct Alone<'g>(&'g Gate);

impl Gate {
    /// Waits while another transaction runs alone, for a bounded time. Called before a transaction.
    #[inline]
    pub fn pass(&self) {
        if self.closed.load(Ordering::Relaxed) {
            self.wait();
        }
    }

    /// Whether another transaction runs alone.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    #[cold]
    fn wait(&self) {
        let began = clock::monotonic_ns();
        let mut held = self.holder.lock().expect("no holder panics");
        while *held {
            let attempt = Duration::from_nanos(self.attempt_ns.load(Ordering::Relaxed));
            let longest = SHORTEST_WAIT.max(attempt * ATTEMPTS_WAITED as u32);
            let waited = Duration::from_nanos(clock::monotonic_ns() - began);
            let Some(left) = longest.checked_sub(waited).filter(|left| !left.is_zero()) else {
                return;
            };
            held = self.opened.wait_timeout(held, left).expect("no holder panics").0;
        }
    }

    /// Closes the gate. If another session has it closed, waits for at most `at_most`, then returns
    /// `None`.
    pub fn close(&self, at_most: Duration) -> Option<Alone<'_>> {
        let held = self.holder.lock().expect("no holder panics");
        let waited = self.opened.wait_timeout_while(held, at_most, |held| *held);
        let (mut held, _) = waited.expect("no holder panics");
        if *held {
            return None;
        }
        *held = true;
        self.attempt_ns.store(0, Ordering::Relaxed);
        self.closed.store(true, Ordering::Relaxed);
        Some(Alone(self))
    }
}

impl Alone<'_> {
    /// Reports the duration of an attempt, in ns.
    pub fn attempt_took(&self, ns: u64) {
        self.0.attempt_ns.fetch_max(ns, Ordering::Relaxed);
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        *self.0.holder.lock().expect("no holder panics") = false;
        self.0.closed.store(false, Ordering::Relaxed);
        self.0.opened.notify_all();
    }
}

thread_local! {
    /// Addresses of the databases in which this thread is running a transaction.
    static UNDER_WAY: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Marks the calling thread as running a transaction of a database, until it is dropped.
pub(crate) struct OnThisThread {
    /// The thread runs a transaction of another database. It must not wait for a turn in this one:
    /// a thread that has its turn here may wait for that transaction.
    pub is_nested: bool,
}

impl OnThisThread {
    /// # Errors
    /// The thread runs a transaction of this database already: each would wait for the other.
    #[inline]
    pub fn begin(database: usize) -> Result<OnThisThread, Error> {
        UNDER_WAY.with_borrow_mut(|under_way| {
            if under_way.contains(&database) {
                return Err(Error::Misuse(
                    "a transaction was begun inside another one of the same database: inside a \
                     closure or a procedure use the transaction that it is given"
                        .to_string(),
                ));
            }
            let is_nested = !under_way.is_empty();
            under_way.push(database);
            Ok(OnThisThread { is_nested })
        })
    }

    /// Whether the calling thread is running a transaction of any database.
    pub fn runs_any() -> bool {
        UNDER_WAY.with_borrow(|under_way| !under_way.is_empty())
    }

    /// Whether the calling thread is running a transaction of this database.
    pub fn runs(database: usize) -> bool {
        UNDER_WAY.with_borrow(|under_way| under_way.contains(&database))
    }
}

impl Drop for OnThisThread {
    #[inline]
    fn drop(&mut self) {
        UNDER_WAY.with_borrow_mut(|under_way| under_way.pop());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_is_alone_and_the_others_wait_for_it() {
        // A thread that is held up seems to wait for longer: then it is tried again.
        let is_passed = |_| wait_beside_one_alone() < SHORTEST_WAIT;
        assert!((0..10).any(is_passed), "it waits for longer than it has to");
    }

    fn wait_beside_one_alone() -> Duration {
        let gate = Gate::default();
        gate.pass();
        let alone = gate.close(Duration::ZERO).expect("it is open");
        assert!(gate.close(Duration::from_millis(1)).is_none());
        let waited = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let began = clock::monotonic_ns();
                gate.pass();
                clock::monotonic_ns() - began
            });
            std::thread::sleep(Duration::from_millis(20));
            drop(alone);
            Duration::from_nanos(waiting.join().unwrap())
        });
        assert!(gate.close(Duration::ZERO).is_some());
        gate.pass();
        waited
    }

    #[test]
    fn a_gate_that_stays_closed_is_passed_in_the_end() {
        let gate = Gate::default();
        let alone = gate.close(Duration::ZERO).expect("it is open");
        alone.attempt_took(SHORTEST_WAIT.as_nanos() as u64 / 2);
        let began = clock::monotonic_ns();
        gate.pass();
        let waited = Duration::from_nanos(clock::monotonic_ns() - began);
        assert!(waited >= SHORTEST_WAIT * 2, "{waited:?}");
    }
}
