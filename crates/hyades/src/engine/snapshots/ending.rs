//! Ends readers that are too old, or whose older versions take too much memory.

use super::{SnapshotState, Snapshots};
use crate::storage::tid::Tid;
use hyades_platform::epoch::Epoch;
use hyades_platform::event;
use hyades_platform::sync::{Ordering, Unpoisoned};

impl Snapshots {
    /// Ends snapshots, the oldest first, while `too_many` returns true.
    #[cold]
    pub(super) fn end_oldest(&self, epoch: &Epoch, too_many: impl Fn(&SnapshotState) -> bool) {
        let mut ended = 0;
        let mut registry = self.registry.lock().unpoisoned();
        while let Some(oldest) = registry.open.pop_front_if(|open| too_many(&open.state)) {
            oldest.state.ended.store(true, Ordering::SeqCst);
            ended += u64::from(oldest.users > 0);
            self.publish(&registry);
            self.free(&registry, epoch);
        }
        drop(registry);
        if ended > 0 {
            self.ended.fetch_add(ended, Ordering::Relaxed);
            event!(WARN, "snapshots ended", count = ended);
        }
    }

    /// Ends readers, the oldest first, until the versions take no more memory than allowed.
    #[cold]
    pub(super) fn end_readers(&self, tid: Tid, epoch: &Epoch) {
        let too_many = || self.hold_too_much();
        while too_many() {
            let lowest = self.lowest_reader(epoch);
            self.end_oldest(epoch, |state| state.last < lowest && too_many());
            if !self.end_oldest_transaction(tid) {
                return self.end_oldest(epoch, |_| too_many());
            }
            self.free(&self.registry.lock().unpoisoned(), epoch);
        }
    }

    /// Ends the transaction that reads the oldest state before `tid`, if any.
    pub(super) fn end_oldest_transaction(&self, tid: Tid) -> bool {
        let has_ended = self.readers.as_ref().is_some_and(|readers| readers.end_oldest(tid));
        if has_ended {
            self.ended.fetch_add(1, Ordering::Relaxed);
            event!(WARN, "transaction ended that read an old state");
        }
        has_ended
    }
}
