//! The pace of writing a checkpoint.

use crate::error::Error;
use hyades_platform::clock;
use hyades_wal::{Log, Poisoned};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Limits each writer to a share of its time, counting CPU time and device time together.
pub(super) struct Pace<'p> {
    /// The busy share of each writer's time.
    duty: f64,
    stop: &'p AtomicBool,
    log: Option<&'p Log>,
}

/// Pauses are slept in pieces of this length, to notice the end of a pause early.
const PIECE: Duration = Duration::from_millis(2);

impl<'p> Pace<'p> {
    /// Creates a pace for `writers` writers with `share` of all processors together. `stop` ends
    /// the checkpoint, and so does a failure of the log, if there is one: without the log the
    /// checkpoint would never become valid.
    pub fn new(share: f64, writers: usize, stop: &'p AtomicBool, log: Option<&'p Log>) -> Self {
        debug_assert!(share > 0.0, "a checkpoint has a share of the processors");
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let duty = (share * cores as f64 / writers.max(1) as f64).clamp(0.01, 1.0);
        Pace { duty, stop, log }
    }

    fn poisoned(&self) -> Option<Poisoned> {
        self.log.and_then(Log::poisoned)
    }

    /// Whether the checkpoint should be abandoned; [`Pace::over`] returns the reason.
    pub fn is_over(&self) -> bool {
        // Acquire: pairs with the Release store of `stop`.
        self.stop.load(Ordering::Acquire) || self.poisoned().is_some()
    }

    /// Why the checkpoint should be abandoned, for ever; `None` if it should go on.
    pub fn over(&self) -> Option<Error> {
        if let Some(poisoned) = self.poisoned() {
            return Some(poisoned.into());
        }
        self.is_over().then(|| {
            Error::Misuse(
                "the checkpoint was abandoned because the database is being closed".to_string(),
            )
        })
    }

    /// Starts a stretch of work and returns its start time. Fails if the checkpoint should be
    /// abandoned.
    pub fn begin(&self) -> Result<u64, Error> {
        self.over().map_or_else(|| Ok(clock::monotonic_ns()), Err)
    }

    /// Ends the stretch of work begun at `began_ns`: pauses in proportion to the stretch to keep
    /// the share, until `urgent` returns true.
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
