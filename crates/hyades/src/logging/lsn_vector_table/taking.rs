//! How slots are taken: a cold one, or a new one, is marked, filled and given its next generation. Where there
//! is none, the common slot is raised (`common_slot.rs`).

use super::reference::{self, GENERATIONS, Kind, PackedReference};
use super::slot::{MARKED, Slot, store};
use super::slots::Slots;
use super::{LsnVectorTable, PATIENCE, Ring};
use crate::storage::prefetch::prefetch;
use hyades_platform::mutation::{self, Mutation};
use hyades_platform::sync::{Ordering, checker_fence, fence};

impl LsnVectorTable {
    /// The slot for all rows that have the transaction's final vector, this one, and the other one cold.
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
        // Few fit a cache: the next one comes there while the next transaction runs.
        if let Some(next) = ring.free.last() {
            prefetch(self.shared.get(*next, Kind::Written).head());
        }
        let slot = self.shared.get(number, Kind::Written);
        let before = slot.head().load(Ordering::Relaxed) >> 1;
        let generation = (before + 1) & GENERATIONS;
        // Nobody raises anything here: who finds the mark only has to wait.
        slot.head().store(before << 1 | MARKED, Ordering::Relaxed);
        let tick = self.fill(slot, generation, replayed, |slot| store(slot.first(), vector));
        ring.hand_out(number, tick);
        reference::pack(number, Kind::Written, tick, generation)
    }

    /// A slot that is cold, or a new one; none if there may be no more.
    #[cold]
    fn free_shared(&self, ring: &mut Ring) -> Option<u32> {
        ring.take_back(|tick| self.ticks.has_cooled(tick));
        if let Some(number) = ring.free.pop() {
            self.shared.pass_on(&mut ring.free);
            return Some(number);
        }
        // No tick gets cold while one stream stands still. What does not depend on that one does.
        let is_old = |tick| self.ticks.now().wrapping_sub(tick) as u32 > PATIENCE;
        for _ in 0..2 {
            let oldest = ring.oldest_if(is_old);
            for number in [oldest, ring.late.pop_front()].into_iter().flatten() {
                if self.is_cold(self.shared.get(number, Kind::Written).first()) {
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

    /// A new slot, if there may be another. There are to be no more than are needed.
    #[cold]
    fn add(&self, slots: &Slots) -> Option<u32> {
        if slots.are_many() {
            self.pressed.store(true, Ordering::Relaxed);
        }
        slots.add()
    }

    /// Takes a slot for one row, filled by `fill`.
    pub(super) fn take_own(
        &self,
        ring: &mut Ring,
        replayed: u64,
        fill: impl FnOnce(Slot<'_>),
    ) -> u64 {
        let mut taken = None;
        // A hot row keeps its slot for long and would stand in the way of those behind it.
        for _ in 0..ring.own.len().min(4) {
            let number = ring.own.pop_front().expect("as many as counted");
            ring.own.push_back(number);
            let slot = self.own.get(number, Kind::Own);
            let generation = slot.head().load(Ordering::Relaxed) >> 1;
            // SeqCst: the mark comes before the looks at the vectors, see `raise_in_place`.
            slot.head().store(generation << 1 | MARKED, Ordering::SeqCst);
            checker_fence();
            let warm = mutation::is(Mutation::EvictWarm);
            if self.is_cold(slot.first()) && (warm || self.is_cold(slot.second())) {
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
        // As for shared ones: it is marked by an exchange, which would wait for it to come from memory.
        if let Some(next) = ring.own.front() {
            prefetch(self.own.get(*next, Kind::Own).head());
        }
        let tick = self.fill(slot, generation, replayed, fill);
        reference::pack(number, Kind::Own, tick, generation)
    }

    /// Fills a slot that is marked, or new, and takes the mark off. Returns the tick of it.
    #[inline]
    fn fill(
        &self,
        slot: Slot<'_>,
        generation: u64,
        replayed: u64,
        fill: impl FnOnce(Slot<'_>),
    ) -> u64 {
        let tick = self.ticks.now();
        // The mark comes before what is filled in: who sees any of it sees that the slot is marked.
        fence(Ordering::Release);
        fill(slot);
        slot.replayed().store(replayed, Ordering::Relaxed);
        // Release: who finds this generation finds the slot filled.
        slot.head().store(generation << 1, Ordering::Release);
        tick
    }
}
