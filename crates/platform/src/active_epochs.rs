//! The epochs of committing threads: a slot per thread, as in Silo (Tu, Zheng, Kohler, Liskov,
//! Madden, SOSP 2013, section 4.1).

use crate::epoch::{Epoch, EpochNumber};
use crate::sync::{AtomicU64, Ordering, Padded, Unpoisoned, spin_hint, yield_now};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The value of a slot without a committing thread: above all epochs.
const IDLE: u64 = EpochNumber::ABOVE_ALL.0;

/// The epoch at the start of a thread's commit, if committing. Written by the thread (SeqCst,
/// before reading the epoch of its transaction), read by a thread after advancing the epoch: either
/// the reader finds the slot entered, or the committing thread sees the new epoch.
#[derive(Debug)]
pub struct EpochSlot(Padded<SlotState>);

#[derive(Debug)]
struct SlotState {
    entered: AtomicU64,
    /// The index among the slots. Read and written under the slots' lock: Relaxed.
    at: AtomicUsize,
}

impl EpochSlot {
    /// Marks the thread as committing. Call this before reading the epoch of the transaction.
    #[inline]
    pub fn enter(&self, epoch: &Epoch) {
        self.0.entered.store(epoch.current().0, Ordering::SeqCst);
    }

    /// Returns the epoch entered by the thread, or an epoch above all if idle.
    fn entered(&self) -> EpochNumber {
        EpochNumber(self.0.entered.load(Ordering::SeqCst))
    }

    /// Marks the slot as idle. Call this when the commit is installed.
    #[inline]
    pub fn leave(&self) {
        // Release: a thread sees the installed rows after finding the slot idle.
        self.0.entered.store(IDLE, Ordering::Release);
    }
}

/// The slots of all committing threads.
#[derive(Debug, Default)]
pub struct ActiveEpochs(Mutex<Vec<Arc<EpochSlot>>>);

impl ActiveEpochs {
    /// Adds an idle slot.
    pub fn add(&self) -> Arc<EpochSlot> {
        let mut slots = self.0.lock().unpoisoned();
        let state = SlotState { entered: AtomicU64::new(IDLE), at: AtomicUsize::new(slots.len()) };
        let slot = Arc::new(EpochSlot(Padded(state)));
        slots.push(slot.clone());
        slot
    }

    /// Removes a slot, in a time independent of the number of slots: closing a database removes
    /// thousands. Has no effect on a removed slot.
    pub fn remove(&self, slot: &Arc<EpochSlot>) {
        let mut slots = self.0.lock().unpoisoned();
        let at = slot.0.at.load(Ordering::Relaxed);
        if slots.get(at).is_some_and(|other| Arc::ptr_eq(other, slot)) {
            slots.swap_remove(at);
            if let Some(moved) = slots.get(at) {
                moved.0.at.store(at, Ordering::Relaxed);
            }
        }
    }

    /// Returns an epoch below which no thread will reserve another frame: the current epoch, or a
    /// lower epoch of a committing thread. A thread entering its slot after this read of the slot
    /// reads its epoch later still, so the thread's epoch is not below `now`.
    pub fn lowest(&self, epoch: &Epoch) -> EpochNumber {
        let now = epoch.current();
        let slots = self.0.lock().unpoisoned();
        slots.iter().fold(now, |lowest, slot| lowest.min(slot.entered()))
    }

    /// Waits until every commit begun in `epoch` or earlier is installed. The epoch must have
    /// ended, so a thread entering its slot from now on reads a later epoch.
    pub fn wait_for_all_of(&self, epoch: EpochNumber) {
        let slots = self.0.lock().unpoisoned().clone();
        for slot in slots {
            let mut looks = 0u32;
            loop {
                if slot.entered() > epoch {
                    break;
                }
                // Commits take microseconds, except for waits for the device.
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

    /// After the removal of any slot, all remaining slots stay.
    #[test]
    fn slots_are_removed_in_any_order() {
        let (epoch, active) = (Epoch::new(EpochNumber(1)), ActiveEpochs::default());
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            // Slot n holds the n-th epoch from here.
            let slots = [0, 1, 2].map(|_| {
                let slot = active.add();
                slot.enter(&epoch);
                epoch.advance();
                slot
            });
            let mut left = vec![0, 1, 2];
            for at in order {
                active.remove(&slots[at]);
                active.remove(&slots[at]);
                left.retain(|other| *other != at);
                let lowest = left.iter().map(|at| slots[*at].entered()).min();
                assert_eq!(active.lowest(&epoch), lowest.unwrap_or(epoch.current()), "{order:?}");
            }
        }
    }
}
