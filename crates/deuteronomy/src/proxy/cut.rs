//! Cuts: snapshots of the data component as of a timestamp.
//!
//! A snapshot of the data component is the state left by the transactions up to a timestamp, if the
//! operations of all these transactions are applied, and no younger operation is. The proxy applies
//! in the order of positions, and sees to neither by itself. The steps:
//! - L1 the cut is the oldest active timestamp: each transaction below has ended, and has handed
//!   its record over. If an operation at or above the cut has been applied already, since too much
//!   waited, there is no cut yet.
//! - L2 until the cut ends, nothing at or above the cut is applied, whatever waits.
//! - L3 all records below the cut are applied, once durable: a record may stand behind a record
//!   above the cut in its stream, so the order of positions does not hold here. The resume point
//!   stays at the first record waiting.
//! - L4 the data component keeps a snapshot, before the lock of the scans is left.
//!
//! Everything in the snapshot is durable, with all its dependencies: only admitted records are
//! applied. A record below the cut depends on records below the cut alone, so durability is a
//! matter of a flush.

use super::{BATCH, Handed, NO_CUT, Proxy, Scans};
use crate::data_component::{DataComponent, DataSnapshot, ResumePoint};
use crate::error::Error;
use crate::transaction_component::timestamp::Timestamps;
use hyades_platform::broken;
use hyades_wal::Log;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, TryLockError};
use std::time::Duration;

/// An attempt to take a snapshot of the data component.
pub(crate) enum CutAttempt {
    /// The snapshot; the cut: each transaction below is in the snapshot; and the point for the
    /// beginning of redo on the snapshot.
    Taken { data: Arc<dyn DataSnapshot>, cut: u64, point: ResumePoint },
    /// Operations at or above the oldest active timestamp have been applied.
    TooEarly,
    /// Records below the cut are not durable.
    NotDurable,
    /// The data component keeps no snapshots.
    Unsupported,
}

/// The right to hold the proxy at a cut. Dropped, nothing is held back any more.
pub(crate) struct Cutting<'p> {
    proxy: &'p Proxy,
    _alone: MutexGuard<'p, ()>,
}

impl Drop for Cutting<'_> {
    fn drop(&mut self) {
        self.proxy.cut.store(NO_CUT, Ordering::Relaxed);
    }
}

impl Proxy {
    /// Begins a cut; None while another thread is at a cut.
    pub fn begin_cut(&self) -> Option<Cutting<'_>> {
        match self.cutting.try_lock() {
            Ok(alone) => Some(Cutting { proxy: self, _alone: alone }),
            Err(TryLockError::Poisoned(alone)) => {
                Some(Cutting { proxy: self, _alone: alone.into_inner() })
            }
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl Cutting<'_> {
    /// L1 to L4, as far as possible now.
    ///
    /// # Errors
    /// The data component failed, now or before; the log is stopped, unless the snapshot alone has
    /// failed. [`Error::Stalled`].
    pub fn attempt(
        &self,
        log: &Log,
        timestamps: &Timestamps,
        data: &Arc<dyn DataComponent>,
        patience: Duration,
    ) -> Result<CutAttempt, Error> {
        let proxy = self.proxy;
        proxy.with_scans(log, patience, |scans| {
            // First: a transaction ended before this look has handed its record over before
            // `receive`.
            let oldest_active = timestamps.oldest_active();
            proxy.receive(scans, log, timestamps);
            let cut = match proxy.cut.load(Ordering::Relaxed) {
                NO_CUT if scans.highest_applied >= oldest_active && !broken!(CutBelowApplied) => {
                    return Ok(Ok(CutAttempt::TooEarly));
                }
                NO_CUT => oldest_active,
                cut => cut,
            };
            proxy.cut.store(cut, Ordering::Relaxed);
            loop {
                let ready = scans.take_below_cut(log, cut, BATCH * proxy.pool.threads());
                if ready.is_empty() {
                    break;
                }
                proxy.apply(scans, data, ready)?;
            }
            let waits = |record: &Handed| record.ts < cut;
            if scans.waiting.iter().flat_map(|w| w.iter()).any(waits) && !broken!(CutBeforeApplied)
            {
                return Ok(Ok(CutAttempt::NotDurable));
            }
            let at_call = proxy.lag.begin_batch();
            let snapshot = data.snapshot();
            drop(at_call);
            Ok(snapshot.map(|snapshot| match snapshot {
                Some(data) => {
                    let point = scans.resume_point(log, timestamps);
                    CutAttempt::Taken { data, cut, point }
                }
                None => CutAttempt::Unsupported,
            }))
        })?
    }
}

impl Scans {
    /// Takes of each stream the records within the complete prefix, admitted by the frontier, and
    /// below the cut, whatever waits before; until there are as many operations.
    fn take_below_cut(&mut self, log: &Log, cut: u64, most: usize) -> Vec<Handed> {
        let (frontier, mut ready, mut operations) = (log.frontier(), Vec::new(), 0);
        for (waiting, complete) in self.waiting.iter_mut().zip(&self.handed_over) {
            waiting.take_where(&mut ready, |record| {
                let is_taken =
                    record.ts < cut && operations < most && record.is_durable(frontier, *complete);
                operations += if is_taken { record.operations.len().max(1) } else { 0 };
                is_taken
            });
        }
        self.bytes -= ready.iter().map(|record| record.bytes).sum::<usize>();
        ready
    }
}
