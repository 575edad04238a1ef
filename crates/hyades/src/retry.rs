//! What happens to a transaction that conflicts again and again: it runs alone, or ends with an error.
//!
//! Optimistic concurrency control, and locking that never waits, let a long transaction lose against short ones
//! for ever. So after a while it closes the [`Gate`]: no other transaction begins until it is through. A
//! transaction that was under way when the gate was closed may still make it fail, each session's once. The gate
//! is not a lock that correctness rests on: a session waits for it no longer than a few times what an attempt
//! of the starving transaction takes, so that a closure that waits for another thread, which waits at the gate,
//! goes on.

use crate::error::Error;
use hyades_platform::clock;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// How often, and how long, a transaction that conflicts with others is run again.
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
pub struct RetrySettings {
    /// A transaction that has met conflicts for this long runs alone: no other begins until it is through. 100 ms
    /// if not set otherwise; never if None.
    pub alone_after: Option<Duration>,
    /// After so many attempts that met a conflict it ends with [`Error::Starved`]; at least 1. No limit if None,
    /// which is the default.
    pub attempts: Option<u64>,
    /// A conflict this long after the transaction began ends it with [`Error::Starved`]. 30 s if not set otherwise;
    /// never if None.
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
    /// Refuses what cannot be meant.
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

/// A transaction waits at the gate this long at least, unless the gate is opened.
const SHORTEST_WAIT: Duration = Duration::from_millis(200);

/// And at least so many times what the starving transaction has taken for an attempt.
const ATTEMPTS_WAITED: u64 = 4;

/// Closed while a transaction runs alone.
#[derive(Default)]
pub(crate) struct Gate {
    /// Written by the session that closes it, under `holder`; read by every session before a transaction. Relaxed: a
    /// transaction that begins in between is one that was under way.
    closed: AtomicBool,
    /// The longest attempt of the transaction that runs alone, in ns; a hint.
    attempt_ns: AtomicU64,
    /// Whether a session has closed it.
    holder: Mutex<bool>,
    opened: Condvar,
}

/// The gate is closed until this is dropped.
pub(crate) struct Alone<'g>(&'g Gate);

impl Gate {
    /// Before a transaction: waits while another one runs alone.
    #[inline]
    pub fn pass(&self) {
        if self.closed.load(Ordering::Relaxed) {
            self.wait();
        }
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

    /// Closes the gate; waits while another session has it closed, no longer than `at_most`. `None` then.
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
    /// An attempt took this long.
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
    /// The databases in which this thread is running a transaction.
    static UNDER_WAY: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// The calling thread runs a transaction of some database, until this is dropped.
pub(crate) struct OnThisThread;

impl OnThisThread {
    /// # Errors
    /// It runs one of this database already: the two could only wait for each other.
    #[inline]
    pub fn begin(database: usize) -> Result<OnThisThread, Error> {
        UNDER_WAY.with_borrow_mut(|under_way| {
            if under_way.contains(&database) {
                return Err(Error::Misuse(
                    "a transaction was begun inside another one of the same database: inside a closure or \
                     a procedure use the transaction that it is given"
                        .to_string(),
                ));
            }
            under_way.push(database);
            Ok(OnThisThread)
        })
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
        let gate = Gate::default();
        gate.pass();
        let alone = gate.close(Duration::ZERO).expect("it is open");
        assert!(gate.close(Duration::from_millis(1)).is_none());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let began = clock::monotonic_ns();
                gate.pass();
                clock::monotonic_ns() - began
            });
            std::thread::sleep(Duration::from_millis(20));
            drop(alone);
            let waited = Duration::from_nanos(waiting.join().unwrap());
            assert!(waited < SHORTEST_WAIT, "{waited:?}");
        });
        assert!(gate.close(Duration::ZERO).is_some());
        gate.pass();
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
