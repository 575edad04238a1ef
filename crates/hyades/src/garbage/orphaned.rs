//! Garbage that ended or idle sessions have handed over.

use super::{Garbage, looks};
use crate::concurrency::ConcurrencyControl;
use crate::engine::Engine;
use crate::logging::LoggingProtocol;
use hyades_platform::broken;
use hyades_platform::sync::{Padded, Unpoisoned};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

/// Garbage without a session; any session may remove it.
#[derive(Default)]
pub(crate) struct OrphanedGarbage {
    /// Number of items, including the items taken out by a sweep. Changed by threads that add or
    /// remove items; read as a hint, Relaxed.
    count: Padded<AtomicUsize>,
    items: Mutex<Garbage>,
}

impl OrphanedGarbage {
    /// Number of items.
    #[inline]
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    fn items(&self) -> MutexGuard<'_, Garbage> {
        self.items.lock().unpoisoned()
    }

    /// Takes over a session's garbage.
    pub fn adopt(&self, garbage: &mut Garbage) {
        if broken!(ForgetLeftBehind) {
            *garbage = Garbage::default();
        }
        if !garbage.is_empty() {
            // Counted before they can be removed: the count is never below zero.
            self.count.fetch_add(garbage.len(), Ordering::Relaxed);
            self.items().append(garbage);
        }
    }

    /// Removes some items, for a session that has left `noted` items itself and is between
    /// transactions. The items are taken out and checked without the lock, so several threads may
    /// sweep at once. Returns the number of removed items.
    pub fn sweep<C: ConcurrencyControl<P>, P: LoggingProtocol>(
        &self,
        engine: &Engine<P, C::Row>,
        stamp: &mut P::TxnStamp,
        noted: usize,
    ) -> usize {
        let waiting = self.len();
        if waiting == 0 {
            return 0;
        }
        // Sessions that end after a few transactions advance no epoch otherwise.
        engine.epoch.advance_if_older_than(engine.epoch_interval);
        let mut taken = self.items().take(looks(noted, waiting), engine);
        self.sweep_taken::<C, P>(engine, stamp, &mut taken)
    }

    /// As [`Garbage::free_room`].
    pub fn free_room(&self, kept: usize) -> bool {
        self.items().free_room(kept)
    }

    /// Removes everything possible.
    pub fn sweep_all<C: ConcurrencyControl<P>, P: LoggingProtocol>(
        &self,
        engine: &Engine<P, C::Row>,
    ) {
        if self.len() > 0 {
            let mut stamp = engine.protocol.txn_stamp();
            let mut taken = self.items().take(usize::MAX, engine);
            self.sweep_taken::<C, P>(engine, &mut stamp, &mut taken);
            engine.protocol.end_session(stamp);
        }
    }

    fn sweep_taken<C: ConcurrencyControl<P>, P: LoggingProtocol>(
        &self,
        engine: &Engine<P, C::Row>,
        stamp: &mut P::TxnStamp,
        taken: &mut Garbage,
    ) -> usize {
        let before = taken.len();
        if before == 0 {
            taken.held.charge(engine);
            return 0;
        }
        taken.free_held::<C, P>(engine, stamp, usize::MAX);
        taken.sweep_entries::<C, P>(engine, stamp, usize::MAX);
        taken.sweep_rows::<C, P>(engine, stamp, usize::MAX);
        taken.held.charge(engine);
        let cleared = before - taken.len();
        if !taken.is_empty() {
            self.items().append(taken);
        }
        self.count.fetch_sub(cleared, Ordering::Relaxed);
        cleared
    }
}
