//! Checkpoints: the data component makes its data stable, and the log is truncated.
//!
//! A separate thread takes due checkpoints, so operations are applied meanwhile, and sessions in
//! need of room get room. A single checkpoint is taken at a time.

use crate::error::Error;
use crate::proxy::StopOnPanic;
use crate::transaction_component::TransactionComponent;
use hyades_platform::clock;
use hyades_platform::event;
use hyades_platform::sync::locked;
use hyades_wal::{Checkpoint, Covered, Log, Lsn};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

/// A due checkpoint is taken once the resume point can move by this part of the redo limit.
const PART_TO_MOVE: u64 = 4;
/// Writers wait for a running checkpoint while the log behind the resume point is longer than this
/// multiple of the redo limit.
const MOST_BEHIND: u64 = 4;
/// The least length of the log for such a wait, in bytes.
const LEAST_BEHIND: u64 = 1 << 20;
/// A checkpoint is due once scans have passed over this number of deleted keys since the last
/// checkpoint, which takes scans about as long as a checkpoint takes, and once the second number of
/// nanoseconds has gone by since the end of the last checkpoint.
const MOST_PASSED: u64 = 1 << 20;
const PASSED_EVERY_NS: u64 = 200_000_000;
/// The pause between two looks of a thread waiting for a checkpoint.
const PAUSE: Duration = Duration::from_micros(200);

/// The shared state of the checkpoint thread and other threads.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    /// Whether a checkpoint may be due, and whether the thread is to end.
    told: Mutex<(bool, bool)>,
    changed: Condvar,
    /// Held while a checkpoint is taken.
    taking: Mutex<()>,
    /// The start of the data component's checkpoint, by the monotonic clock; 0 without a checkpoint
    /// under way. Written by the checkpointing thread, read by other threads. Relaxed: the value
    /// orders nothing.
    since_ns: AtomicU64,
    /// The end of the last checkpoint. Written and read in the same way.
    ended_ns: AtomicU64,
}

/// Marks the data component as at a checkpoint, until the mark is dropped.
struct AtCheckpoint<'c>(&'c Checkpoints);

impl Drop for AtCheckpoint<'_> {
    fn drop(&mut self) {
        self.0.ended_ns.store(clock::monotonic_ns(), Ordering::Relaxed);
        self.0.since_ns.store(0, Ordering::Relaxed);
    }
}

impl Checkpoints {
    /// Tells that a checkpoint may be due.
    pub fn tell_due(&self) {
        let mut told = locked(&self.told);
        if !std::mem::replace(&mut told.0, true) {
            self.changed.notify_one();
        }
    }

    /// Waits until a checkpoint may be due; false if the thread is to end.
    pub fn wait(&self) -> bool {
        let mut told = locked(&self.told);
        while !told.0 && !told.1 {
            told = self.changed.wait(told).unwrap_or_else(|e| e.into_inner());
        }
        told.0 = false;
        !told.1
    }

    /// Ends the thread.
    pub fn close(&self) {
        locked(&self.told).1 = true;
        self.changed.notify_all();
    }

    /// Returns the time of the data component at its checkpoint; None without a checkpoint under
    /// way.
    fn call(&self) -> Option<Duration> {
        let since = self.since_ns.load(Ordering::Relaxed);
        let call = || Duration::from_nanos(clock::monotonic_ns().saturating_sub(since));
        (since != 0).then(call)
    }

    fn begin_call(&self) -> AtCheckpoint<'_> {
        self.since_ns.store(clock::monotonic_ns().max(1), Ordering::Relaxed);
        AtCheckpoint(self)
    }

    /// Waits for another checkpoint.
    ///
    /// # Errors
    /// [`Error::Stalled`]: the data component has been at the checkpoint for longer than
    /// `patience`.
    fn take(&self, patience: Duration) -> Result<MutexGuard<'_, ()>, Error> {
        loop {
            match self.taking.try_lock() {
                Ok(taking) => return Ok(taking),
                // A panic has stopped the log.
                Err(TryLockError::Poisoned(taking)) => return Ok(taking.into_inner()),
                Err(TryLockError::WouldBlock) => {}
            }
            if let Some(call) = self.call().filter(|call| *call > patience) {
                return Err(Error::Stalled(call));
            }
            std::thread::sleep(PAUSE);
        }
    }
}

impl TransactionComponent {
    /// P1 to P4. Returns the number of truncated bytes of the log: none where the data component,
    /// or a part of it, does not outlive the process.
    ///
    /// # Errors
    /// The data component or the log failed, now or before. The log is stopped.
    /// [`Error::Stalled`].
    pub fn checkpoint(&self) -> Result<u64, Error> {
        // The thread of the proxy applies, or the current thread where there is none.
        match self.options.log.stepped || self.proxy.is_closed() {
            true => drop(self.run_proxy()?),
            false => self.proxy.ask(&self.log, false, self.options.store_patience, || false)?,
        }
        self.checkpoint_from(0)
    }

    /// Holds up checkpoints until the guard is dropped.
    ///
    /// # Errors
    /// [`Error::Stalled`].
    pub fn hold_checkpoints(&self) -> Result<MutexGuard<'_, ()>, Error> {
        self.checkpoints.take(self.options.store_patience)
    }

    /// Takes a checkpoint if redo would exceed the options' limit, and a good part of redo would be
    /// saved afterwards: an active transaction may hold the resume point back. Or if scans have
    /// passed over many deleted keys: the data component keeps deleted keys until the next
    /// checkpoint.
    pub fn checkpoint_if_due(&self) -> Result<(), Error> {
        if self.is_log_long() {
            self.checkpoint_from((self.options.redo_bytes / PART_TO_MOVE).max(1))?;
        } else if self.is_much_passed() {
            self.checkpoint_from(1)?;
        }
        Ok(())
    }

    /// Whether a checkpoint is due.
    pub fn is_checkpoint_due(&self) -> bool {
        self.is_log_long() || self.is_much_passed()
    }

    fn is_much_passed(&self) -> bool {
        let ended = || self.checkpoints.ended_ns.load(Ordering::Relaxed);
        self.passed.load(Ordering::Relaxed) >= MOST_PASSED
            && clock::monotonic_ns().saturating_sub(ended()) >= PASSED_EVERY_NS
    }

    /// Whether more of the log than the options allow would be applied again.
    fn is_log_long(&self) -> bool {
        self.redo_bytes() > self.options.redo_bytes
    }

    /// The bytes of the log to be applied again after a crash.
    pub fn redo_bytes(&self) -> u64 {
        let mut durable = vec![0; self.log.streams()];
        self.log.frontier().load_into(&mut durable);
        self.behind_resume_point(&durable)
    }

    /// The bytes between the last resume point and `positions`.
    fn behind_resume_point(&self, positions: &[Lsn]) -> u64 {
        let resume_at = locked(&self.resume_at);
        let lanes = positions.iter().zip(&*resume_at);
        lanes.map(|(at, from)| at.saturating_sub(*from)).sum()
    }

    /// Takes a checkpoint if the resume point moves by `least_bytes`. A data component that does
    /// not outlive the process, wholly or in part, is given the whole log at the next opening. So
    /// the log is kept; but the durable parts make their data stable, or the data would be in their
    /// caches for ever.
    fn checkpoint_from(&self, least_bytes: u64) -> Result<u64, Error> {
        let is_durable = self.limits.is_durable;
        let patience = self.options.store_patience;
        let _taking = self.checkpoints.take(patience)?;
        if let Some(poisoned) = self.log.poisoned() {
            return Err(hyades_wal::Error::from(poisoned).into());
        }
        let (point, lowest) = self.proxy.resume_point(&self.log, &self.timestamps, patience)?;
        if self.behind_resume_point(&point.positions) < least_bytes {
            return Ok(0);
        }
        self.passed.store(0, Ordering::Relaxed);
        let _guard = StopOnPanic(&self.log);
        let take = || {
            {
                let _at_checkpoint = self.checkpoints.begin_call();
                self.data.checkpoint(&point)?;
            }
            let truncated = match is_durable {
                true => truncate(&self.log, &point.positions)?,
                false => 0,
            };
            // Last: until the log is truncated, recovery may begin at the point before.
            self.data.forget_below(lowest)?;
            *locked(&self.resume_at) = point.positions;
            Ok(truncated)
        };
        let (began, taken) = (Instant::now(), take());
        if let Ok(truncated) = &taken {
            let (seconds, truncated_bytes) = (began.elapsed().as_secs_f64(), *truncated);
            event!(INFO, "checkpoint taken", seconds = seconds, truncated_bytes = truncated_bytes);
        }
        // A failed checkpoint is not tried again.
        taken.inspect_err(|error: &Error| self.log.stop(&error.to_string()))
    }

    /// Waits while a checkpoint is under way, and the log has grown meanwhile to many times the
    /// options' limit of redo.
    ///
    /// # Errors
    /// [`Error::Stalled`]: the data component has been at the checkpoint for longer than the
    /// options allow. The log has stopped.
    pub fn wait_for_checkpoint(&self) -> Result<(), Error> {
        let Some(mut call) = self.checkpoints.call() else { return Ok(()) };
        if self.options.log.stepped {
            return Ok(());
        }
        let most = self.options.redo_bytes.saturating_mul(MOST_BEHIND).max(LEAST_BEHIND);
        let next = || (0..self.log.streams()).map(|stream| self.log.next_lsn(stream));
        while self.behind_resume_point(&next().collect::<Vec<_>>()) > most {
            if let Some(poisoned) = self.log.poisoned() {
                return Err(hyades_wal::Error::from(poisoned).into());
            }
            if call > self.options.store_patience {
                return Err(Error::Stalled(call));
            }
            std::thread::sleep(PAUSE);
            let Some(now) = self.checkpoints.call() else { break };
            call = now;
        }
        Ok(())
    }
}

/// P3: the log below `positions`, a position for each stream, is not needed any more.
fn truncate(log: &Log, positions: &[Lsn]) -> Result<u64, Error> {
    let manifest = log.manifest();
    let dims = manifest.newest().map_or(&[][..], |newest| &newest.dims);
    debug_assert_eq!(dims.len(), positions.len(), "a resume point of other streams");
    let covered = dims.iter().zip(positions);
    let (number, _) = log.next_checkpoint(1);
    let checkpoint = Checkpoint {
        number,
        cut: number,
        incarnation: log.incarnation(),
        scan_end: None,
        taken_at_us: clock::wall_us(),
        next_row_id: 0,
        rows: 0,
        parts: Vec::new(),
        streams: covered.map(|(dim, &from)| Covered { stream: dim.stream, from }).collect(),
    };
    match log.adopt(checkpoint) {
        // The resume point is stable: the log is only longer, up to the next checkpoint.
        Err(error @ hyades_wal::Error::NotArchived(_)) => {
            event!(WARN, "log not archived", error = error.to_string());
            Ok(0)
        }
        adopted => Ok(adopted?),
    }
}
