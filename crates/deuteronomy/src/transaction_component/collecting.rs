//! How memory stays within its budget: what leaves the version table, and when writers wait for the
//! data component.
//!
//! Between three quarters of the budget and all of it, sessions sweep a few buckets now and then,
//! for what no transaction needs and none has read lately. Beyond the budget a session has to find
//! room before it goes on: by the same for the whole table, then by what an open transaction may
//! need. Invariants:
//! - What is committed and not applied counts within the budget. Of what has left the table and
//!   waits, there is half of the budget at most: then writers wait for the data component.
//! - A sweep that finds nothing is not repeated: a transaction or a snapshot that stays open keeps
//!   the horizon where it is, and costs others one sweep, not one for each write.

use super::TransactionComponent;
use super::version_table::Sweep;
use super::work::Work;
use crate::error::{Abort, Error};
use hyades_platform::clock;
use std::sync::atomic::Ordering;

/// The most buckets that a transaction sweeps for each time that it asks for room in a version
/// table that is nearly full.
const SWEEP_SOFT: usize = 16;
/// How often a session asks for that before it sweeps, for all these times at once: to find the
/// oldest active transaction, the announcements of all sessions are looked at. Fewer, if that would
/// be more than the whole table.
pub(super) const ASKED_AT_ONCE: u32 = 16;
/// A sweep that has dropped fewer bytes than this for each bucket was in vain.
const LEAST_PER_BUCKET: usize = 4;
/// How often the whole table is swept for what no active transaction needs, while these come and
/// go.
const ROUNDS: u32 = 6;
/// A sweep of the whole table that has dropped less than the budget divided by this has found next
/// to nothing.
const PINNED_SHARE: usize = 16;

impl TransactionComponent {
    /// Keeps memory within its budget. Called where a transaction begins, and before it puts
    /// something into the version table; no latch is held.
    ///
    /// A transaction that is open for long keeps the versions above it. It does not keep others out
    /// for that: where the budget is exhausted they go, and it ends with [`Abort::SnapshotTooOld`]
    /// if it reads one of their keys. What is not durable yet is waited for, and so is the data
    /// component. Only what is not committed can exhaust the budget beyond that: then the youngest
    /// transaction is aborted that has written (see [`room`](super::room)).
    ///
    /// # Errors
    /// [`Abort::Shed`]: this is the youngest, or it has waited for too long. [`Error::Stalled`].
    pub fn make_room(&self, work: &mut Work) -> Result<(), Error> {
        let (bytes, budget) = (self.versions.bytes(), self.options.memory_bytes);
        if bytes <= budget / 4 * 3 {
            return Ok(());
        }
        if self.room.is_for_older(work) {
            return self.wait_for_room(work);
        }
        // However much the sessions put into the table between two sweeps, the upper limit holds:
        // beyond it each one collects, and close to it each one sweeps, unless that is in vain.
        let asked = work.ask_for_room();
        let in_vain = work.sweeps_in_vain();
        let at_once = ASKED_AT_ONCE.min((self.versions.buckets() / SWEEP_SOFT) as u32) << in_vain;
        let is_close = bytes > budget / 8 * 7 && in_vain == 0;
        if bytes <= budget && !is_close && asked < at_once {
            return Ok(());
        }
        let began = clock::monotonic_ns();
        let most = SWEEP_SOFT * asked.min(ASKED_AT_ONCE) as usize;
        let oldest_active = self.timestamps.oldest_active();
        let dropped = self.versions.sweep(most, budget / 4 * 3, oldest_active, Sweep::Unread);
        work.has_swept(dropped < most * LEAST_PER_BUCKET);
        let collected = self.collect();
        self.collecting_ns.fetch_add(clock::monotonic_ns() - began, Ordering::Relaxed);
        match collected {
            Err(Error::Aborted(Abort::Shed)) => self.wait_for_room(work),
            collected => collected,
        }
    }

    /// Drops versions, as many as it takes.
    ///
    /// # Errors
    /// [`Abort::Shed`]: what is not committed takes up the budget. [`Error::Stalled`]; the log has
    /// stopped.
    pub(super) fn collect(&self) -> Result<(), Error> {
        let budget = self.options.memory_bytes;
        let is_enough = || self.versions.bytes() <= budget;
        if is_enough() {
            return Ok(());
        }
        self.drop_unneeded()?;
        // Of what some may need, a quarter goes at once: until the table has filled up again, there
        // is no need to look.
        for is_flushed in [false, true] {
            if is_enough() {
                return Ok(());
            }
            // What is committed and not durable yet will be: that is worth a wait, as a transaction
            // that is shed would find the same when it is run again. Where one thread does all
            // work, that thread decides when the log is flushed.
            if is_flushed && !self.options.log.stepped {
                self.log.flush().map_err(hyades_wal::Error::from)?;
            }
            self.apply(true, is_enough)?;
            let oldest_active = self.timestamps.oldest_active();
            let all = self.versions.buckets();
            self.versions.sweep(all, budget / 4 * 3, oldest_active, Sweep::PastActive);
        }
        match is_enough() {
            true => Ok(()),
            false => Err(Abort::Shed.into()),
        }
    }

    /// Drops what no active transaction needs, what was read lately last. Not where a sweep of the
    /// whole table has found next to nothing at the same horizon.
    fn drop_unneeded(&self) -> Result<(), Error> {
        let budget = self.options.memory_bytes;
        let mut horizon = self.timestamps.oldest_active();
        if self.pinned_at.load(Ordering::Relaxed) == horizon {
            return Ok(());
        }
        let mut dropped = 0;
        for round in 0..ROUNDS {
            // Only what the data component holds can leave. What it has is looked for first: it may
            // take long to get more.
            if round > 0 || self.options.log.stepped {
                self.apply(false, || self.versions.bytes() <= budget)?;
            }
            let before = std::mem::replace(&mut horizon, self.timestamps.oldest_active());
            if round > 1 && horizon == before {
                if dropped < budget / PINNED_SHARE {
                    self.pinned_at.store(horizon, Ordering::Relaxed);
                }
                return Ok(());
            }
            let what = if round == 0 { Sweep::Unread } else { Sweep::Unneeded };
            let all = self.versions.buckets();
            dropped = self.versions.sweep(all, budget / 8 * 7, horizon, what);
            if self.versions.bytes() <= budget {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Holds a transaction back that is about to write for the first time, or once more, while too
    /// much waits for the data component: what has left the version table takes up half of the
    /// budget, or the log has become long while a checkpoint is under way.
    ///
    /// # Errors
    /// [`Error::Stalled`]: it waits for too long. The log has stopped.
    pub(super) fn hold_back(&self) -> Result<(), Error> {
        let is_enough = || self.held.get() <= self.options.memory_bytes / 2;
        if !is_enough() {
            self.apply(true, is_enough)?;
            while !is_enough() && !self.options.log.stepped && !self.proxy.is_closed() {
                // The rest is not durable.
                self.log.flush().map_err(hyades_wal::Error::from)?;
                self.apply(true, is_enough)?;
            }
        }
        self.wait_for_checkpoint()
    }
}
