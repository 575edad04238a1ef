//! Opens snapshots of the present.
//!
//! A snapshot ends an epoch. At the limit of epochs no epoch may end: an opening waits there,
//! unless the newest snapshot can be shared. The limit is looked at before the epoch is closed:
//! under some concurrency controls every transaction of a closed epoch meets a conflict, until the
//! epoch has ended. Nothing is locked while an opening waits at the limit.

use super::{OpenSnapshot, SHARED_FOR, SnapshotState, Snapshots, is_older};
use crate::logging::Needs;
use crate::storage::tid::Tid;
use hyades_platform::active_epochs::ActiveEpochs;
use hyades_platform::broken;
use hyades_platform::clock;
use hyades_platform::epoch::Epoch;
use hyades_platform::sync::{AtomicBool, Ordering, Unpoisoned};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The number of epochs that snapshots may end at any speed. Beyond it, one in a millisecond: then
/// the numbers of epochs last for half a year of nothing else.
const EPOCHS_AT_ONCE: u64 = 1 << 23;

impl Snapshots {
    /// Opens a snapshot of the present. `note` returns the positions for which its readers have to
    /// wait, and is called when the whole snapshot is installed. [`Snapshots::close`] closes the
    /// snapshot. `None` if the epoch may not end, and `stopped` returns true.
    pub fn open(
        &self,
        (epoch, active): (&Epoch, &ActiveEpochs),
        stopped: impl Fn() -> bool,
        note: impl FnOnce() -> Needs,
    ) -> Option<Arc<SnapshotState>> {
        let arrived = self.generation.load(Ordering::SeqCst);
        loop {
            let opening = self.opening.lock().unpoisoned();
            if let Some(open) = self.share(arrived) {
                return Some(open);
            }
            if epoch.may_end(epoch.current()) {
                self.wait_for_an_epoch();
                if let Some(state) = self.begin(epoch) {
                    epoch.end(state.epoch);
                    if !broken!(SnapshotWithoutWait) {
                        active.wait_for_all_of(state.epoch);
                        self.settle(state.epoch);
                    }
                    state.needs.set(note()).expect("it is noted once");
                    return Some(state);
                }
            }
            drop(opening);
            epoch.wait_until_may_end(&stopped)?;
        }
    }

    /// An open snapshot for a caller that came when `arrived` snapshots had been opened.
    fn share(&self, arrived: u64) -> Option<Arc<SnapshotState>> {
        let mut registry = self.registry.lock().unpoisoned();
        let newest = registry.open.back_mut()?;
        let (generation, opened_ns) = (newest.state.generation, newest.state.opened_ns);
        if is_older(opened_ns, SHARED_FOR) {
            return None;
        }
        let is_last = generation == self.generation.load(Ordering::SeqCst);
        let is_current = is_last && !self.overwritten.load(Ordering::SeqCst);
        (generation > arrived || is_current).then(|| {
            newest.users += 1;
            newest.state.clone()
        })
    }

    /// Waits, if snapshots have ended epochs too fast.
    fn wait_for_an_epoch(&self) {
        loop {
            let mut registry = self.registry.lock().unpoisoned();
            let passed_ns = clock::monotonic_ns().saturating_sub(registry.began_ns);
            let passed_ms = passed_ns / 1_000_000;
            if registry.epochs < EPOCHS_AT_ONCE + passed_ms {
                registry.epochs += 1;
                return;
            }
            drop(registry);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Step 1. `None` if the epoch may not end.
    pub(super) fn begin(&self, epoch: &Epoch) -> Option<Arc<SnapshotState>> {
        let mut registry = self.registry.lock().unpoisoned();
        registry.open.retain(|open| open.users > 0);
        let generation = self.generation.fetch_add(1, Ordering::SeqCst) + 1;
        let opened_ns = clock::monotonic_ns();
        loop {
            let now = epoch.current();
            if !epoch.may_end(now) {
                self.publish(&registry);
                return None;
            }
            let newest = registry.open.back();
            debug_assert!(newest.is_none_or(|open| open.state.epoch < now), "each ends an epoch");
            let state = Arc::new(SnapshotState {
                epoch: now,
                last: Tid::last_of(now),
                generation,
                opened_ns,
                ended: AtomicBool::new(false),
                needs: OnceLock::new(),
            });
            registry.open.push_back(OpenSnapshot { state: state.clone(), users: 1 });
            self.publish(&registry);
            self.overwritten.store(false, Ordering::SeqCst);
            if epoch.current() == now {
                return Some(state);
            }
            registry.open.pop_back();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use hyades_platform::epoch::EpochNumber;

    /// At the limit no snapshot is opened, and no epoch closed; a snapshot of the present state is
    /// shared there.
    #[test]
    fn a_snapshot_waits_at_the_limit() {
        let epoch = Epoch::new(EpochNumber(5)).limited_to(EpochNumber(6));
        let (active, snapshots) = (ActiveEpochs::default(), Snapshots::default());
        let open = |stops: bool| snapshots.open((&epoch, &active), || stops, Needs::default);
        let first = open(true).unwrap();
        assert_eq!((first.epoch, epoch.current()), (EpochNumber(5), EpochNumber(6)));
        if let Some(shared) = open(true) {
            assert_eq!(shared.epoch, EpochNumber(5), "nothing was written since");
            snapshots.close(&shared, &epoch);
        }
        snapshots.close(&first, &epoch);
        std::thread::sleep(2 * SHARED_FOR);
        assert!(open(true).is_none());
        assert_eq!((snapshots.closed(), snapshots.open_now()), (EpochNumber(5), 0));
        std::thread::scope(|scope| {
            let opened = [(); 2].map(|()| scope.spawn(|| open(false)));
            std::thread::sleep(Duration::from_millis(30));
            assert!(opened.iter().all(|thread| !thread.is_finished()));
            // A caller that does without is not held up by those that wait.
            assert!(open(true).is_none());
            epoch.raise_limit(EpochNumber(9));
            for thread in opened {
                assert!(thread.join().unwrap().is_some_and(|open| open.epoch >= EpochNumber(6)));
            }
        });
    }
}
