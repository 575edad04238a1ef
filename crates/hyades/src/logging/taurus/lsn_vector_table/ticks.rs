//! Ticks: identify evicted rows without a load of their vectors.
//!
//! A tick ends whenever the eviction vector is raised, and *then* the streams' reserved ends are
//! noted. A reference has a tick that was current after the newest position in the slot had been
//! reserved. So once the eviction vector covers the ends noted at the end of a tick, all references
//! with the tick are evicted.

use super::reference::{self, PackedReference, TICKS};
use hyades_platform::broken;
use hyades_platform::sync::{AtomicU64, Mutex, Ordering, Padded, Unpoisoned, checker_fence};
use hyades_wal::lsn_vector::covers;
use std::collections::VecDeque;

/// See the module.
pub(super) struct Ticks {
    /// The current tick modulo 2^32, in the high half, and the number of earlier ticks that are not
    /// evicted. Stored under `ended`.
    both: Padded<AtomicU64>,
    /// For each ended tick that is not evicted: the streams' reserved ends at the end of the tick.
    ended: Mutex<VecDeque<Vec<u64>>>,
}

impl Ticks {
    pub fn new() -> Self {
        Ticks { both: Padded(AtomicU64::new(0)), ended: Mutex::new(VecDeque::new()) }
    }

    /// Returns the current tick. SeqCst: loaded after the reservation of the position about to be
    /// stored, as [`Ticks::end`] ends a tick before it loads the reserved ends.
    #[inline]
    pub fn now(&self) -> u64 {
        checker_fence();
        self.both.load(Ordering::SeqCst) >> 32
    }

    /// Returns whether a reference, loaded before, is evicted by its tick. The eviction vector has
    /// to be loaded after this call.
    #[inline]
    pub fn is_evicted(&self, packed: PackedReference) -> bool {
        // Acquire: the reference was loaded before, so its tick has begun here; and a reference
        // found evicted is covered by the eviction vector as loaded from now on.
        let both = self.both.load(Ordering::Acquire);
        // No tick is in the future: an age above the number of live ticks is the age of an evicted
        // tick.
        let age = (both >> 32).wrapping_sub(reference::tick(packed)) & TICKS;
        age as u32 > both as u32
    }

    /// Returns whether a tick returned by [`Ticks::now`] is evicted by now.
    pub fn is_tick_evicted(&self, tick: u64) -> bool {
        // Acquire: a reader that finds the slot's next generation, published later, finds the
        // eviction vector raised.
        let both = self.both.load(Ordering::Acquire);
        let age = ((both >> 32) as u32).wrapping_sub(tick as u32);
        age > both as u32
    }

    /// Ends a tick, after the eviction vector has been raised to `eviction`. `reserved` stores the
    /// streams' reserved ends.
    pub fn end(&self, eviction: &[u64], reserved: impl FnOnce(&mut [u64])) {
        let mut ended = self.ended.lock().unpoisoned();
        let both = self.both.load(Ordering::Relaxed);
        let early = broken!(EvictBeforeDurable);
        while ended.front().is_some_and(|reserved| early || covers(eviction, reserved)) {
            ended.pop_front();
        }
        // Ticks are identified by their low bits: with too many ticks not evicted, no tick ends.
        let ends = (ended.len() as u64) < TICKS / 2;
        let now = ((both >> 32) as u32).wrapping_add(u32::from(ends));
        let warm = ended.len() as u64 + u64::from(ends);
        // Release: a reader that finds a tick evicted finds the eviction vector raised. SeqCst: see
        // `now`.
        self.both.store(u64::from(now) << 32 | warm, Ordering::SeqCst);
        checker_fence();
        if ends {
            let mut lanes = vec![0; eviction.len()];
            reserved(&mut lanes);
            ended.push_back(lanes);
        }
    }
}
