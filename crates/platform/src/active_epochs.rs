//! The epochs in which threads are committing: one slot per thread, as in Silo (Tu, Zheng, Kohler,
//! Liskov, Madden, SOSP 2013, section 4.1).

use crate::epoch::{Epoch, EpochNumber};
use crate::sync::{AtomicU64, Ordering, Padded, spin_hint, yield_now};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The value of a slot whose thread is not committing: above all epochs.
const IDLE: u64 = EpochNumber::ABOVE_ALL.0;

/// The epoch in which a thread began to commit, if it is committing. Written by that thread
/// (SeqCst, before it reads the epoch of its transaction), read by a thread that has advanced the
/// epoch: either the reader finds the slot entered, or the committing thread sees the new epoch.
#[derive(Debug)]
pub struct EpochSlot(Padded<AtomicU64>);

impl EpochSlot {
    /// Marks the thread as committing. Call it before reading the epoch of the transaction.
    #[inline]
    pub fn enter(&self, epoch: &Epoch) {
        self.0.store(epoch.current().0, Ordering::SeqCst);
    }

    /// The epoch that the thread has entered, or one above all if it is idle.
    fn entered(&self) -> EpochNumber {
        EpochNumber(self.0.load(Ordering::SeqCst))
    }

    /// Marks the slot as idle. Call it when the commit is installed.
    #[inline]
    pub fn leave(&self) {
        // Release: a thread that finds the slot idle sees what was installed.
        self.0.store(IDLE, Ordering::Release);
    }
}

/// The slots of all threads that commit.
#[derive(Debug, Default)]
pub struct ActiveEpochs(Mutex<Vec<Arc<EpochSlot>>>);

impl ActiveEpochs {
    /// Adds an idle slot.
    pub fn add(&self) -> Arc<EpochSlot> {
        let slot = Arc::new(EpochSlot(Padded(AtomicU64::new(IDLE))));
        self.0.lock().expect("no holder panics").push(slot.clone());
        slot
    }

    /// Removes a slot.
    pub fn remove(&self, slot: &Arc<EpochSlot>) {
        self.0.lock().expect("no holder panics").retain(|s| !Arc::ptr_eq(s, slot));
    }

    /// Returns an epoch below which no thread will reserve another frame: the current one, or a
    /// lower one in which a thread is still committing. A thread that enters its slot after this
    /// has read the slot reads its epoch later still, so that epoch is not below `now`.
    pub fn lowest(&self, epoch: &Epoch) -> EpochNumber {
        let now = epoch.current();
        let slots = self.0.lock().expect("no holder panics");
        slots.iter().fold(now, |lowest, slot| lowest.min(slot.entered()))
    }

    /// Waits until every commit that began in this epoch or an earlier one is installed. The epoch
    /// must have ended, so that a thread that enters its slot from now on reads a later one.
    pub fn wait_for_all_of(&self, epoch: EpochNumber) {
        let slots = self.0.lock().expect("no holder panics").clone();
        for slot in slots {
            let mut looks = 0u32;
            loop {
                if slot.entered() > epoch {
                    break;
                }
                // Commits take microseconds, unless they wait for the device.
                looks += 1;
                match looks {
                    0..64 => spin_hint(),
                    64..128 => yield_now(),
                    _ => std::thread::sleep(Duration::from_micros(50)),
                }
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_commit_holds_its_epoch_until_it_leaves() {
        let (epoch, active) = (Epoch::new(EpochNumber(5)), ActiveEpochs::default());
        assert_eq!(active.lowest(&epoch), EpochNumber(5));
        let (first, second) = (active.add(), active.add());
        first.enter(&epoch);
        epoch.advance();
        second.enter(&epoch);
        assert_eq!(active.lowest(&epoch), EpochNumber(5));
        active.wait_for_all_of(EpochNumber(4));
        first.leave();
        active.wait_for_all_of(EpochNumber(5));
        assert_eq!(active.lowest(&epoch), EpochNumber(6));
        epoch.advance();
        assert_eq!(active.lowest(&epoch), EpochNumber(6));
        active.remove(&second);
        assert_eq!(active.lowest(&epoch), EpochNumber(7));
    }
}
