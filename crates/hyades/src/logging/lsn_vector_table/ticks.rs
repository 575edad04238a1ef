//! Ticks: what is known to be cold without a look at its vectors.
//!
//! A tick ends whenever the cold vector is raised, and *then* it is noted up to where the streams are
//! reserved. A reference bears a tick that was the present one after the newest position in its slot had
//! been reserved. So once the cold vector covers what was noted at the end of a tick, all references that
//! bear it are cold.

use super::reference::{self, PackedReference, TICKS};
use hyades_platform::mutation::{self, Mutation};
use hyades_platform::sync::{AtomicU64, Mutex, Ordering, Padded, checker_fence};
use hyades_wal::lsn_vector::covers;
use std::collections::VecDeque;

/// See the module.
pub(super) struct Ticks {
    /// The present tick modulo 2^32, in the high half, and how many before it are not cold. Stored under
    /// `ended`.
    both: Padded<AtomicU64>,
    /// By tick that has ended and is not cold: up to where the streams were reserved then.
    ended: Mutex<VecDeque<Vec<u64>>>,
}

impl Ticks {
    pub fn new() -> Self {
        Ticks { both: Padded(AtomicU64::new(0)), ended: Mutex::new(VecDeque::new()) }
    }

    /// The present tick. SeqCst: it comes after the reservation of what is about to be stored, as
    /// [`Ticks::end`] ends a tick before it looks how far the streams are reserved.
    #[inline]
    pub fn now(&self) -> u64 {
        checker_fence();
        self.both.load(Ordering::SeqCst) >> 32
    }

    /// Whether a reference, which was loaded before, is cold by its tick. The cold vector has to be loaded
    /// after this.
    #[inline]
    pub fn is_cold(&self, packed: PackedReference) -> bool {
        // Acquire: the reference was loaded before, so its tick has begun here; and what is found to be
        // cold is so in the cold vector that is loaded from now on.
        let both = self.both.load(Ordering::Acquire);
        // A tick is of the last few, or so old that it seems to be one to come.
        let age = (both >> 32).wrapping_sub(reference::tick(packed)) & TICKS;
        age as u32 > both as u32
    }

    /// Whether a tick, as [`Ticks::now`] gave it, is cold by now.
    pub fn has_cooled(&self, tick: u64) -> bool {
        // Acquire: who finds the slot's next generation, published after this, finds the cold vector raised.
        let both = self.both.load(Ordering::Acquire);
        let age = ((both >> 32) as u32).wrapping_sub(tick as u32);
        age > both as u32
    }

    /// The cold vector has been raised to `cold`: a tick ends. `reserved` says up to where the streams are
    /// reserved.
    pub fn end(&self, cold: &[u64], reserved: impl FnOnce(&mut [u64])) {
        let mut ended = self.ended.lock().expect("no holder panics");
        let both = self.both.load(Ordering::Relaxed);
        let early = mutation::is(Mutation::EvictWarm);
        while ended.front().is_some_and(|reserved| early || covers(cold, reserved)) {
            ended.pop_front();
        }
        // Ticks are told apart by their low bits: a log that stands still stays in the same.
        let ends = (ended.len() as u64) < TICKS / 2;
        let now = ((both >> 32) as u32).wrapping_add(u32::from(ends));
        let warm = ended.len() as u64 + u64::from(ends);
        // Release: who finds that a tick is cold finds the cold vector raised. SeqCst: see `now`.
        self.both.store(u64::from(now) << 32 | warm, Ordering::SeqCst);
        checker_fence();
        if ends {
            let mut lanes = vec![0; cold.len()];
            reserved(&mut lanes);
            ended.push_back(lanes);
        }
    }
}
