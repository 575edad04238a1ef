//! Epochs closed for cut marks, and snapshots of the state that a follower serves.

use super::{OpenSnapshot, SnapshotState, Snapshots};
use crate::logging::Needs;
use crate::storage::tid::Tid;
use hyades_platform::clock;
use hyades_platform::epoch::{Epoch, EpochNumber};
use hyades_platform::sync::{AtomicBool, Ordering, Unpoisoned};
use std::sync::MutexGuard;
use std::sync::{Arc, OnceLock};

impl Snapshots {
    /// Closes an epoch for a cut mark, as a snapshot of the epoch would: no transaction commits in
    /// the epoch once a later epoch has begun. No version is kept.
    pub fn close_epoch(&self, epoch: EpochNumber) {
        self.closed.fetch_max(epoch.0, Ordering::SeqCst);
    }

    /// Until the guard is dropped, no other snapshot is opened.
    pub fn hold_opening(&self) -> MutexGuard<'_, ()> {
        self.opening.lock().unpoisoned()
    }

    /// Begins a snapshot of the present, for a mark of the same epoch. The mark waits for commits.
    /// `None` if the epoch may not end.
    pub fn begin_for_mark(&self, epoch: &Epoch) -> Option<Arc<SnapshotState>> {
        let state = self.begin(epoch)?;
        state.needs.set(Needs::default()).expect("it is noted once");
        Some(state)
    }

    /// Opens a snapshot of a state that is whole: everything up to `epoch` is installed, and
    /// nothing later will be installed before the call returns. Closed like other snapshots.
    pub fn open_as_of(&self, epoch: EpochNumber) -> Arc<SnapshotState> {
        if let Some(open) = self.share_as_of(epoch) {
            return open;
        }
        let mut registry = self.registry.lock().unpoisoned();
        let newest = registry.open.back().map(|open| open.state.epoch);
        debug_assert!(newest < Some(epoch), "a follower serves later and later epochs");
        let state = Arc::new(SnapshotState {
            epoch,
            last: Tid::last_of(epoch),
            generation: self.generation.fetch_add(1, Ordering::SeqCst) + 1,
            opened_ns: clock::monotonic_ns(),
            ended: AtomicBool::new(false),
            needs: OnceLock::from(Needs::default()),
        });
        registry.open.push_back(OpenSnapshot { state: state.clone(), users: 1 });
        self.publish(&registry);
        // So a snapshot without users does not stay open.
        self.overwritten.store(true, Ordering::SeqCst);
        state
    }

    /// Ends all snapshots: their readers fail at the next operation, and nothing is kept for them
    /// any more. Whatever is written after the call, readers that find it also find the end.
    pub fn end_all(&self, epoch: &Epoch) {
        self.end_oldest(epoch, |_| true);
    }

    /// Opens the snapshot of `epoch` once more, if the snapshot is open and was not ended: then the
    /// versions of the epoch are kept, whatever has been installed since.
    pub fn share_as_of(&self, epoch: EpochNumber) -> Option<Arc<SnapshotState>> {
        let mut registry = self.registry.lock().unpoisoned();
        let newest = registry.open.back_mut().filter(|open| open.state.epoch == epoch)?;
        newest.users += 1;
        Some(newest.state.clone())
    }
}
