//! Retries of conflicting transactions: after a while a transaction runs alone, or ends with an
//! error.
//!
//! Under optimistic concurrency control, and under locking that never waits, short transactions can
//! starve a long transaction. After a while the long transaction closes the [`Gate`]: no other
//! transaction begins until the long transaction has ended. Transactions already running may still
//! make it fail, at most once per session. Correctness does not depend on the gate. A session waits
//! at the gate no longer than a few times the duration of the starving transaction's attempts, so
//! that a closure that waits for another thread, which waits at the gate, still makes progress.
//!
//! Transactions that take turns wait until their turn comes: the wait is no conflict and has no
//! bound here. So a closure must not wait for a thread that needs a partition of the closure.
//! Only a transaction run inside a transaction of another database does not wait: the inner
//! transaction conflicts instead, so two databases nested both ways do not stop for ever.

use crate::error::Error;
use hyades_platform::sync::Unpoisoned;
use hyades_platform::{callback, clock};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// How often and for how long a transaction is retried after conflicts; see
/// [`Builder::retries`](crate::Builder::retries).
///
/// Waiting for a turn, where transactions take turns, is not a conflict, and has no bound here: the
/// wait lasts until the transactions ahead have ended.
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
    /// The time with conflicts after which a transaction runs alone: no other transaction begins
    /// until its end. Default: 100 ms. Never if `None`.
    pub alone_after: Option<Duration>,
    /// The number of attempts with a conflict after which the transaction ends with
    /// [`Error::Starved`]; at least 1. Default: `None`, no limit.
    pub attempts: Option<u64>,
    /// The time after the first conflict from which a conflict ends the transaction with
    /// [`Error::Starved`]. Default: 30 s. Never if `None`.
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

/// Minimum wait of a transaction at a gate that stays closed.
const SHORTEST_WAIT: Duration = Duration::from_millis(200);

/// The factor of a longer wait: the longest attempt of the starving transaction is multiplied by
/// this factor and by the number of waiting transactions. So in the time of these attempts about
/// one transaction goes on that may make the starving transaction fail, however many sessions there
/// are.
const ATTEMPTS_WAITED: u32 = 4;

/// Closed while a transaction runs alone.
#[derive(Default)]
pub(crate) struct Gate {
    /// Written by the session that closes the gate, under the lock of `holder`: otherwise the
    /// session could open the gate just closed by the next session. Read by every session before a
    /// transaction. Relaxed: a transaction that begins in between counts as already running.
    closed: AtomicBool,
    /// The longest attempt of the transaction that runs alone, in ns; a hint.
    attempt_ns: AtomicU64,
    holder: Mutex<GateHolder>,
    opened: Condvar,
}

#[derive(Default)]
struct GateHolder {
    /// Whether a session has closed the gate.
    is_held: bool,
    /// The number of transactions waiting for the gate to open.
    waiting: u32,
}

/// Keeps the gate closed until the drop.
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
        let mut holder = self.holder.lock().unpoisoned();
        holder.waiting += 1;
        while holder.is_held {
            let attempt = Duration::from_nanos(self.attempt_ns.load(Ordering::Relaxed));
            let longest = SHORTEST_WAIT.max(attempt * (ATTEMPTS_WAITED * holder.waiting));
            let waited = Duration::from_nanos(clock::monotonic_ns() - began);
            let Some(left) = longest.checked_sub(waited).filter(|left| !left.is_zero()) else {
                break;
            };
            holder = self.opened.wait_timeout(holder, left).unpoisoned().0;
        }
        holder.waiting -= 1;
    }

    /// Closes the gate. If another session has closed the gate, waits for at most `at_most`, then
    /// returns `None`.
    pub fn close(&self, at_most: Duration) -> Option<Alone<'_>> {
        let holder = self.holder.lock().unpoisoned();
        let waited = self.opened.wait_timeout_while(holder, at_most, |holder| holder.is_held);
        let (mut holder, _) = waited.unpoisoned();
        if holder.is_held {
            return None;
        }
        holder.is_held = true;
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
        let mut holder = self.0.holder.lock().unpoisoned();
        holder.is_held = false;
        self.0.closed.store(false, Ordering::Relaxed);
        drop(holder);
        self.0.opened.notify_all();
    }
}

/// Refuses an operation that may wait for the log, on a thread for which the log, or other work of
/// the database, waits.
///
/// # Errors
/// [`Error::Misuse`]; `what` names the operation.
#[inline]
pub(crate) fn check_may_wait(what: &str) -> Result<(), Error> {
    if callback::is_on_database_thread() { Err(in_callback(what)) } else { Ok(()) }
}

#[cold]
fn in_callback(what: &str) -> Error {
    Error::Misuse(format!(
        "{what} in a waker, or a subscriber to events, that runs on a thread of the database: it \
         would wait for that thread; let it wake another thread"
    ))
}

thread_local! {
    /// Addresses of the databases in which this thread is running a transaction.
    static UNDER_WAY: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Marks the calling thread as running a transaction of a database, until the drop.
pub(crate) struct OnThisThread {
    /// The address of the database.
    database: usize,
    /// The thread runs a transaction of another database, and must not wait for a turn in this
    /// database: a thread that has its turn here may wait for the other transaction.
    pub is_nested: bool,
}

impl OnThisThread {
    /// # Errors
    /// The thread runs a transaction of this database already, and each would wait for the other;
    /// or a waker, or a subscriber to events, on a thread of a database.
    #[inline]
    pub fn begin(database: usize) -> Result<OnThisThread, Error> {
        check_may_wait("a transaction was begun")?;
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
            Ok(OnThisThread { database, is_nested })
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
        UNDER_WAY.with_borrow_mut(|under_way| {
            // Usually the last one; an open transaction may end before one that was begun later.
            let at = under_way.iter().rposition(|database| *database == self.database);
            at.map(|at| under_way.swap_remove(at))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_is_alone_and_the_others_wait_for_it() {
        let gate = Gate::default();
        gate.pass();
        let alone = gate.close(Duration::ZERO).expect("it is open");
        assert!(gate.close(Duration::from_millis(1)).is_none());
        // The gate would stay closed for long.
        let long = Duration::from_secs(600);
        alone.attempt_took(long.as_nanos() as u64);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let began = clock::monotonic_ns();
                gate.pass();
                clock::monotonic_ns() - began
            });
            std::thread::sleep(Duration::from_millis(20));
            drop(alone);
            let waited = Duration::from_nanos(waiting.join().unwrap());
            assert!(waited < long, "{waited:?}");
        });
        assert!(gate.close(Duration::ZERO).is_some());
        gate.pass();
    }

    /// A session that closes the gate just when another session opens the gate finds the gate
    /// closed, and so do all other sessions.
    #[test]
    fn what_runs_alone_after_another_one_is_alone() {
        let gate = Gate::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5_000 {
                        let alone = gate.close(Duration::from_secs(600)).expect("it opens again");
                        for _ in 0..100 {
                            assert!(gate.is_closed(), "it runs alone");
                            std::hint::spin_loop();
                        }
                        drop(alone);
                    }
                });
            }
        });
        assert!(!gate.is_closed());
    }

    /// Of many waiting transactions few go on while the starving transaction tries a few times.
    #[test]
    fn many_that_wait_leave_it_alone_for_some_attempts() {
        let (gate, passed) = (Gate::default(), AtomicU64::new(0));
        let attempt = SHORTEST_WAIT / 2;
        let alone = gate.close(Duration::ZERO).expect("it is open");
        alone.attempt_took(attempt.as_nanos() as u64);
        std::thread::scope(|scope| {
            for _ in 0..32 {
                scope.spawn(|| {
                    gate.pass();
                    passed.fetch_add(1, Ordering::Relaxed);
                });
            }
            std::thread::sleep(attempt * 12);
            let went_on = passed.load(Ordering::Relaxed);
            drop(alone);
            assert!(went_on < 4, "{went_on}");
        });
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
