//! Timers of keys with an expiry, on their way to the thread that turns the wheel
//! (`upkeep/expiry`).

use crate::data::expiries::Expiries;
use hyades_platform::sync::Unpoisoned;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// The thread is woken for this many bytes of new timers, whenever they are due.
const MOST_NEW_BYTES: usize = 256 << 10;

/// The shortest span of a bucket of the wheel, in milliseconds.
pub const FINEST_MS: i64 = 1 << DIGIT_BITS;

/// Bits of the span of the finest bucket, and of a digit.
pub const DIGIT_BITS: u32 = 6;

/// Timers on their way to the thread that turns the wheel, and numbers about the wheel for INFO.
#[derive(Default)]
pub struct Timers {
    new: Mutex<NewTimers>,
    added: Condvar,
    /// Changes whenever a database gets another generation. Written by the threads that run
    /// transactions, after the commit; read by the thread that turns the wheel.
    generations: AtomicU64,
    /// Numbers for INFO. Written by the thread that turns the wheel; nothing depends on them.
    pub numbers: TimerNumbers,
}

#[derive(Default)]
struct NewTimers {
    expiries: Expiries,
    /// The thread sleeps until this time, in milliseconds since 1970; 0 while awake.
    sleeps_until: i64,
    /// There is another reason to wake up.
    is_called: bool,
}

/// Numbers for INFO.
#[derive(Default)]
pub struct TimerNumbers {
    /// Timers.
    pub timers: AtomicU64,
    /// Bytes of all timers.
    pub bytes: AtomicU64,
    /// Due timers of keys not yet looked up.
    pub due: AtomicU64,
    /// Milliseconds since the first due timer was due.
    pub late_ms: AtomicU64,
    /// Sweeps.
    pub sweeps: AtomicU64,
    /// Milliseconds of a processor used by the thread.
    pub cpu_ms: AtomicU64,
}

impl Timers {
    /// Adds timers.
    pub fn add(&self, expiries: &Expiries) {
        let Some(first) = expiries.iter().map(|expiry| expiry.at_ms).min() else { return };
        let mut new = self.new.lock().unpoisoned();
        new.expiries.append(expiries);
        let is_much = new.expiries.bytes() >= MOST_NEW_BYTES;
        if first + FINEST_MS < new.sleeps_until || is_much && new.sleeps_until > 0 {
            new.sleeps_until = 0;
            self.added.notify_all();
        }
    }

    /// A database has another generation.
    pub fn note_generations(&self) {
        self.generations.fetch_add(1, Relaxed);
    }

    /// Changes whenever a database gets another generation.
    pub fn generations(&self) -> u64 {
        self.generations.load(Relaxed)
    }

    /// Makes the thread check whether to stop, or whether the database is open.
    pub fn wake(&self) {
        let mut new = self.new.lock().unpoisoned();
        new.is_called = true;
        new.sleeps_until = 0;
        self.added.notify_all();
    }

    /// Takes the added timers.
    pub fn take(&self) -> Expiries {
        std::mem::take(&mut self.new.lock().unpoisoned().expiries)
    }

    /// Waits until `until_ms`, or until a timer with an earlier time is added.
    pub fn wait(&self, now_ms: i64, until_ms: i64) {
        let mut new = self.new.lock().unpoisoned();
        let first = new.expiries.iter().map(|expiry| expiry.at_ms).min();
        let is_much = new.expiries.bytes() >= MOST_NEW_BYTES;
        if is_much || first.is_some_and(|at| at + FINEST_MS < until_ms) {
            return;
        }
        if std::mem::take(&mut new.is_called) {
            return;
        }
        new.sleeps_until = until_ms;
        let sleeps = |new: &mut NewTimers| new.sleeps_until != 0;
        let mut new = match until_ms {
            i64::MAX => self.added.wait_while(new, sleeps).unpoisoned(),
            at => {
                let left = Duration::from_millis((at - now_ms).clamp(1, 60_000) as u64);
                self.added.wait_timeout_while(new, left, sleeps).unpoisoned().0
            }
        };
        new.sleeps_until = 0;
        new.is_called = false;
    }
}
