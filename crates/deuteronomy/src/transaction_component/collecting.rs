//! Keeping memory within its budget: removals from the version table, and waits of writers for the
//! data component.
//!
//! Between three quarters of the budget and all of it, sessions sweep a few buckets now and then,
//! for versions neither needed by a transaction nor read lately. Beyond the budget a session has to
//! find room before going on: by the same sweep of the whole table, then by versions an open
//! transaction may need. Invariants:
//! - Committed, unapplied versions count within the budget. Versions removed from the table and
//!   waiting take half of the budget at most: then writers wait for the data component.
//! - A fruitless sweep is not repeated: a long-open transaction or snapshot keeps the horizon in
//!   place, and costs other transactions a single sweep, not a sweep for each write.

use super::TransactionComponent;
use super::version_table::Sweep;
use super::work::Work;
use crate::error::{Abort, Error};
use hyades_platform::clock;
use std::sync::atomic::Ordering;

/// The most buckets swept by a transaction for each request for room in a nearly full version
/// table.
const SWEEP_SOFT: usize = 16;
/// The number of requests of a session before a sweep for all requests at once: to find the oldest
/// active transaction may take a look at the announcements of all sessions. Fewer, if the sweep
/// would exceed the whole table.
pub(super) const ASKED_AT_ONCE: u32 = 16;
/// The least bytes dropped for each bucket in a successful sweep.
const LEAST_PER_BUCKET: usize = 4;
/// The number of sweeps of the whole table for versions not needed by active transactions, while
/// active transactions come and go.
const ROUNDS: u32 = 6;
/// A sweep of the whole table with less than the budget divided by this number dropped has found
/// next to nothing.
const PINNED_SHARE: usize = 16;

impl TransactionComponent {
    /// Keeps memory within its budget. Called where a transaction begins, and before an insertion
    /// into the version table; no latch is held.
    ///
    /// A long-open transaction keeps later versions, without keeping other transactions out: where
    /// the budget is exhausted the versions go, and the transaction ends with
    /// [`Abort::SnapshotTooOld`] on reading a key of a dropped version. The session waits for
    /// versions not durable yet, and for the data component. Only uncommitted writes can still
    /// exhaust the budget then: the youngest writing transaction is aborted (see
    /// [`room`](super::room)).
    ///
    /// # Errors
    /// [`Abort::Shed`]: the transaction is the youngest, or has waited for too long.
    /// [`Error::Stalled`].
    pub fn make_room(&self, work: &mut Work) -> Result<(), Error> {
        let (bytes, budget) = (self.versions.bytes(), self.options.memory_bytes);
        if bytes <= budget / 4 * 3 {
            return Ok(());
        }
        if self.room.is_for_older(work) {
            return self.wait_for_room(work);
        }
        // However much the sessions put into the table between two sweeps, the upper limit holds:
        // beyond the limit each session collects, and close to the limit each session sweeps,
        // unless in vain.
        let asked = work.ask_for_room();
        let in_vain = work.sweeps_in_vain();
        let at_once = ASKED_AT_ONCE.min((self.versions.buckets() / SWEEP_SOFT) as u32) << in_vain;
        let is_close = bytes > budget / 8 * 7 && in_vain == 0;
        if bytes <= budget && !is_close && asked < at_once {
            return Ok(());
        }
        let began = clock::monotonic_ns();
        let most = SWEEP_SOFT * asked.min(ASKED_AT_ONCE) as usize;
        let oldest_active = self.timestamps.oldest_lately();
        let dropped = self.versions.sweep(most, budget / 4 * 3, oldest_active, Sweep::Unread);
        work.has_swept(dropped < most * LEAST_PER_BUCKET);
        let collected = self.collect();
        self.collecting_ns.fetch_add(clock::monotonic_ns() - began, Ordering::Relaxed);
        match collected {
            Err(Error::Aborted(Abort::Shed)) => self.wait_for_room(work),
            collected => collected,
        }
    }

    /// Drops versions, as many as necessary.
    ///
    /// # Errors
    /// [`Abort::Shed`]: uncommitted writes take up the budget. [`Error::Stalled`]; the log has
    /// stopped.
    pub(super) fn collect(&self) -> Result<(), Error> {
        let budget = self.options.memory_bytes;
        let is_enough = || self.versions.bytes() <= budget;
        if is_enough() {
            return Ok(());
        }
        self.drop_unneeded()?;
        // Of versions possibly needed, a quarter goes at once: until the table has filled up again,
        // there is no need to look.
        for is_flushed in [false, true] {
            if is_enough() {
                return Ok(());
            }
            // Committed versions not durable yet become durable: worth a wait, because a shed
            // transaction would find the same in its next run. Where a single thread does all work,
            // the thread decides the time of a flush of the log.
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

    /// Drops versions not needed by active transactions, recently read versions last. Not where a
    /// sweep of the whole table has found next to nothing at the same horizon.
    fn drop_unneeded(&self) -> Result<(), Error> {
        let budget = self.options.memory_bytes;
        let mut horizon = self.timestamps.oldest_active();
        if self.pinned_at.load(Ordering::Relaxed) == horizon {
            return Ok(());
        }
        let mut dropped = 0;
        for round in 0..ROUNDS {
            // Only versions held by the data component can leave. Held versions are looked for
            // first: applying more may take long.
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

    /// Holds back a transaction about to write for the first time, or once more, while too much
    /// waits for the data component: versions removed from the version table take up half of the
    /// budget, or the log has become long while a checkpoint is under way.
    ///
    /// # Errors
    /// [`Error::Stalled`]: the transaction waits for too long. The log has stopped.
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
