//! How fast a checkpoint is written.

use crate::error::Error;
use hyades_platform::clock;
use hyades_wal::Log;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Lets each writer be busy for a share of the time only, its CPU time and the device's taken together.
pub(super) struct Pace<'p> {
    /// The share of its time that each writer may be busy.
    duty: f64,
    stop: &'p AtomicBool,
    log: &'p Log,
}

/// A rest is taken in pieces of this, to notice what ends it.
const PIECE: Duration = Duration::from_millis(2);

impl<'p> Pace<'p> {
    /// For so many writers that together may take `share` of the machine. `stop` ends the checkpoint, and
    /// so does the failure of the log, without which it would never count.
    pub fn new(share: f64, writers: usize, stop: &'p AtomicBool, log: &'p Log) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let duty = (share * cores as f64 / writers.max(1) as f64).clamp(0.01, 1.0);
        Pace { duty, stop, log }
    }

    /// Whether it is of no use to go on; [`Pace::begin`] says why.
    pub fn is_over(&self) -> bool {
        // Acquire: with whatever made the stop necessary.
        self.stop.load(Ordering::Acquire) || self.log.poisoned().is_some()
    }

    /// A stretch of work begins.
    pub fn begin(&self) -> Result<u64, Error> {
        if let Some(cause) = self.log.poisoned() {
            return Err(Error::Poisoned(cause.to_string()));
        }
        if self.is_over() {
            return Err(Error::Misuse(
                "the checkpoint was given up because the database is being closed".to_string(),
            ));
        }
        Ok(clock::monotonic_ns())
    }

    /// The stretch that began then is over: rests as long as it took, and the share asks for, unless it is
    /// `urgent` to go on.
    pub fn rest(&self, began_ns: u64, urgent: impl Fn() -> bool) {
        let took = clock::monotonic_ns().saturating_sub(began_ns) as f64;
        let mut left = Duration::from_nanos((took * (1.0 - self.duty) / self.duty) as u64);
        while !left.is_zero() && !self.is_over() && !urgent() {
            let piece = left.min(PIECE);
            std::thread::sleep(piece);
            left -= piece;
        }
    }
}
