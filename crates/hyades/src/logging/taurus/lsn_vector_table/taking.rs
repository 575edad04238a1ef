//! How slots are taken: an evicted or new slot is marked, filled and given its next generation. If
//! there is no slot, the common slot is raised (`common_slot.rs`).

use super::reference::{self, GENERATIONS, Kind, PackedReference};
use super::slot::{MARKED, Slot, store};
use super::slots::Slots;
use super::{LsnVectorTable, Ring, STALLED_TICKS};
use hyades_platform::broken;
use hyades_platform::prefetch::prefetch;
use hyades_platform::sync::{Ordering, checker_fence, fence};

impl LsnVectorTable {
    /// Returns the transaction's shared slot: for rows with the final `vector` as one of two
    /// vectors, the second vector being evicted.
    #[inline]
    pub(super) fn shared(&self, ring: &mut Ring, vector: &[u64], replayed: u64) -> PackedReference {
        if ring.taken == 0 {
            ring.taken = self.take_shared(ring, vector, replayed);
        }
        ring.taken
    }

    fn take_shared(&self, ring: &mut Ring, vector: &[u64], replayed: u64) -> PackedReference {
        let number = match ring.free.pop() {
            Some(number) => number,
            None => match self.free_shared(ring) {
                Some(number) => number,
                None => return self.use_common(vector, &[], replayed),
            },
        };
        // Few slots fit a cache: the next slot is prefetched while the next transaction runs.
        if let Some(next) = ring.free.last() {
            prefetch(self.shared.get(*next, Kind::Written).head());
        }
        let slot = self.shared.get(number, Kind::Written);
        let before = slot.head().load(Ordering::Relaxed) >> 1;
        let generation = (before + 1) & GENERATIONS;
        // A shared slot is never raised: a reader that finds the mark only has to wait.
        slot.head().store(before << 1 | MARKED, Ordering::Relaxed);
        let tick = self.fill(slot, generation, replayed, |slot| store(slot.first(), vector));
        ring.hand_out(number, tick);
        reference::pack(number, Kind::Written, tick, generation)
    }

    /// Returns an evicted or a new slot; `None` if the limit is reached.
    #[cold]
    fn free_shared(&self, ring: &mut Ring) -> Option<u32> {
        ring.take_back(|tick| self.ticks.is_tick_evicted(tick));
        if let Some(number) = ring.free.pop() {
            self.shared.pass_on(&mut ring.free);
            return Some(number);
        }
        // No tick is evicted while a stream is stalled, but slots independent of the stream can be.
        let is_old = |tick| self.ticks.now().wrapping_sub(tick) as u32 > STALLED_TICKS;
        for _ in 0..2 {
            let oldest = ring.oldest_if(is_old);
            for number in [oldest, ring.late.pop_front()].into_iter().flatten() {
                if self.is_evicted(self.shared.get(number, Kind::Written).first()) {
                    ring.free.push(number);
                } else {
                    ring.late.push_back(number);
                }
            }
        }
        if let Some(number) = ring.free.pop().or_else(|| self.add(&self.shared)) {
            return Some(number);
        }
        self.shared.take_surplus(&mut ring.free);
        ring.free.pop()
    }

    /// Returns a new slot, if the limit allows. Requests eviction when slots are running short.
    #[cold]
    fn add(&self, slots: &Slots) -> Option<u32> {
        if slots.is_running_short() {
            self.short_of_slots.store(true, Ordering::Relaxed);
        }
        slots.add()
    }

    /// Takes a slot for a single row, fills the slot by `fill`, and returns the reference.
    pub(super) fn take_own(
        &self,
        ring: &mut Ring,
        replayed: u64,
        fill: impl FnOnce(Slot<'_>),
    ) -> u64 {
        let mut taken = None;
        // Several slots are tried: a row in use keeps its slot for long, and would block later
        // slots.
        for _ in 0..ring.own.len().min(4) {
            let number = ring.own.pop_front().expect("as many as counted");
            ring.own.push_back(number);
            let slot = self.own.get(number, Kind::Own);
            let generation = slot.head().load(Ordering::Relaxed) >> 1;
            // SeqCst: the mark precedes the checks of the vectors, see `raise_in_place`.
            slot.head().store(generation << 1 | MARKED, Ordering::SeqCst);
            checker_fence();
            let warm = broken!(EvictBeforeDurable);
            if self.is_evicted(slot.first()) && (warm || self.is_evicted(slot.second())) {
                taken = Some((number, slot, (generation + 1) & GENERATIONS));
                break;
            }
            slot.head().store(generation << 1, Ordering::Release);
        }
        let (number, slot, generation) = match taken {
            Some(taken) => taken,
            None => {
                let Some(number) = self.add(&self.own) else {
                    return self.fill_common(replayed, fill);
                };
                ring.own.push_back(number);
                (number, self.own.get(number, Kind::Own), 0)
            }
        };
        // As for shared slots: marking is an exchange, which would wait for a cache miss.
        if let Some(next) = ring.own.front() {
            prefetch(self.own.get(*next, Kind::Own).head());
        }
        let tick = self.fill(slot, generation, replayed, fill);
        reference::pack(number, Kind::Own, tick, generation)
    }

    /// Fills a marked or new slot, and removes the mark. Returns the slot's tick.
    #[inline]
    fn fill(
        &self,
        slot: Slot<'_>,
        generation: u64,
        replayed: u64,
        fill: impl FnOnce(Slot<'_>),
    ) -> u64 {
        let tick = self.ticks.now();
        // The mark precedes the new content: a reader that sees any new content sees the mark.
        fence(Ordering::Release);
        fill(slot);
        slot.replayed().store(replayed, Ordering::Relaxed);
        // Release: a reader that finds the generation finds the slot filled.
        slot.head().store(generation << 1, Ordering::Release);
        tick
    }
}
