//! The hot-row table: LSN vectors of the rows touched lately (Taurus, section 4.1).
//!
//! A row does not carry its vectors. It carries a *reference*: the number of a slot in this table, the
//! generation in which the slot was given out, and the *tick* in which it was. A slot whose vectors lie at
//! or below the **cold vector** may be given out again, in its next generation; a row whose reference is of
//! an older generation is *cold* and stands for the cold vector: PLV - delta, the paper's value for a row
//! that comes back into the lock table.
//!
//! All rows that a transaction writes end with the same vectors: its own, and no reader yet. The cold rows
//! that a command reads end with its vector as their read vector. So they all share one slot, and their
//! references say which it is. Nobody changes a shared slot, and it has one vector only: the other one of
//! its rows is cold. Who has to raise a row's read vector there gives the row a slot of its own first. (To
//! start anew with no reader loses none: the writer's vector covers the readers of before, or, where the
//! writer is a data record, the writer replays after them, and whoever follows the writer follows them.)
//!
//! **Ticks** (`ticks.rs`) tell most cold rows, and most slots that may be given out again, without a look
//! at the slot, which would have to come from memory: once a tick is cold, so are all references that bear
//! it. Who raises a vector in place gives the row a reference of the present tick.
//!
//! Invariant: the cold vector is monotone and never above what is durable, and a slot changes
//! generation, and a tick becomes cold, only while the vectors are at or below the cold vector as
//! published. So who finds an older generation or a cold tick and then loads the cold vector gets at
//! least what the row had.
//!
//! There are no latches. A slot is given out again by its owner alone. Who reads looks at the head before
//! and after (a sequence lock). A slot of one row is marked by its owner, who then looks at the vectors,
//! and either takes the mark off or goes on to fill it. Who raises a read vector does so lane by lane, then
//! looks at the head: either the owner, who marks first, saw the raise, or the raiser sees the mark.

#[cfg(all(test, loom))]
mod loom_tests;
mod reference;
mod slot;
mod slots;
#[cfg(all(test, not(loom)))]
mod tests;
mod ticks;

pub(crate) use reference::Reference;
pub(crate) use slots::Ring;

use super::lanes::{zip_lanes, zip_lanes_mut};
use crate::storage::prefetch::prefetch;
use hyades_platform::mutation::{self, Mutation};
use hyades_platform::sync::{AtomicU64, Ordering, checker_fence, fence};
use hyades_wal::lsn_vector::covers;
use reference::{GENERATIONS, Kind, Packed};
use slot::{MARKED, Slot, raise_lanes, store};
use slots::Slots;
use std::sync::Mutex;
use ticks::Ticks;

/// A slot that is not cold after so many ticks is held up by a stream that stands still.
const PATIENCE: u32 = 8;

/// What a row was found to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// When replay is through with its last users; `None` for a row that is cold altogether.
    pub replayed: Option<u64>,
    /// One of its vectors that were asked for is the cold vector, at least.
    pub cold: bool,
}

/// Where a row's vectors are joined into.
pub(crate) enum Into<'v> {
    /// The write vector, here.
    Write(&'v mut [u64]),
    /// Both, here.
    Both(&'v mut [u64]),
    /// The write vector into the first, both into the second.
    Apart(&'v mut [u64], &'v mut [u64]),
}

/// To what a row's vectors are raised.
struct Raise<'v> {
    /// `None` for a reader.
    write: Option<&'v [u64]>,
    read: &'v [u64],
    /// When replay is through with whoever raises.
    replayed: u64,
}

impl Row {
    const COLD: Row = Row { replayed: None, cold: true };
}

pub(crate) struct LsnVectorTable {
    lanes: usize,
    own: Slots,
    shared: Slots,
    /// Rings of sessions that have ended.
    spare: Mutex<Vec<Ring>>,
    /// The cold vector. Raised by `raise_cold` only; read by everyone.
    cold: Box<[AtomicU64]>,
    ticks: Ticks,
}

impl LsnVectorTable {
    pub fn new(lanes: usize) -> Self {
        LsnVectorTable {
            lanes,
            own: Slots::new(lanes, 2),
            shared: Slots::new(lanes, 1),
            spare: Mutex::new(Vec::new()),
            cold: (0..lanes).map(|_| AtomicU64::new(0)).collect(),
            ticks: Ticks::new(),
        }
    }

    /// A ring for a new session.
    pub fn ring(&self) -> Ring {
        self.spare.lock().expect("no holder panics").pop().unwrap_or_default()
    }

    /// Takes back the ring of a session that ends.
    pub fn give_back(&self, ring: Ring) {
        self.spare.lock().expect("no holder panics").push(ring);
    }

    /// A new transaction of the ring's session begins: starts loading the slots that it will take.
    #[inline]
    pub fn begin(&self, ring: &mut Ring) {
        ring.taken = 0;
        if let Some(number) = ring.free.last() {
            prefetch(self.shared.get(*number, Kind::Written).head());
        }
    }

    /// How many slots exist, used or not.
    #[cfg(all(test, not(loom)))]
    pub fn slots(&self) -> u32 {
        self.own.len() + self.shared.len()
    }

    /// The slot and generation of a reference, unless it is known to be cold by its tick.
    #[inline]
    fn find(&self, packed: Packed) -> Option<(Slot<'_>, u64)> {
        let number = reference::number(packed)?;
        if self.ticks.is_cold(packed) {
            return None;
        }
        let kind = reference::kind(packed);
        let slots = if kind == Kind::Own { &self.own } else { &self.shared };
        Some((slots.get(number, kind), reference::generation(packed)))
    }

    /// Starts loading the row's slot, if it has one that is not known to be cold.
    #[inline]
    pub fn prefetch(&self, row: &Reference) {
        if let Some((slot, _)) = self.find(row.load(Ordering::Relaxed)) {
            prefetch(slot.head());
        }
    }

    /// Joins the row's vectors. What is cold is left to the caller, see [`Row`].
    #[inline]
    pub fn fold(&self, row: &Reference, into: Into<'_>) -> Row {
        // Acquire half: pairs with the Release that published the reference; its slot is filled.
        // SeqCst: a writer that has locked the row, or changed its gap, and then finds no reference
        // here comes before the fence of a reader that published one, which will see the lock
        // (docs/protocols.md, E4).
        checker_fence();
        let packed = row.load(Ordering::SeqCst);
        match self.find(packed) {
            Some((slot, generation)) => slot.fold(generation, into),
            None => Row::COLD,
        }
    }

    /// The row's write vector becomes `vector`, which is not below what it was: the final vector of
    /// the ring's transaction. The caller holds the row's write protection.
    #[inline]
    pub fn set_write(&self, row: &Reference, vector: &[u64], replayed: u64, ring: &mut Ring) {
        let taken = self.shared(ring, vector, replayed);
        // Release: who finds the reference finds its slot filled.
        row.store(reference::with_kind(taken, Kind::Written), Ordering::Release);
    }

    /// The row's read vector is raised to at least `vector`, the final vector of the ring's
    /// transaction. Many readers may do this at once.
    #[inline]
    pub fn raise_read(&self, row: &Reference, vector: &[u64], replayed: u64, ring: &mut Ring) {
        let seen = row.load(Ordering::Acquire);
        if self.find(seen).is_none() {
            // It is cold, as most are.
            let taken = self.shared(ring, vector, replayed);
            if publish(row, seen, reference::with_kind(taken, Kind::Read)) {
                return;
            }
        } else if ring.taken != 0 && seen == reference::with_kind(ring.taken, Kind::Read) {
            // The transaction reads it a second time.
            return;
        }
        self.raise(row, &Raise { write: None, read: vector, replayed }, ring);
    }

    /// The row's write and read vectors are raised to at least those of `from`.
    pub fn inherit(&self, to: &Reference, from: &Reference, ring: &mut Ring) {
        if from.load(Ordering::SeqCst) == 0 && to.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut copy = vec![0; 2 * self.lanes];
        let (write, both) = copy.split_at_mut(self.lanes);
        let source = self.fold(from, Into::Apart(&mut *write, &mut *both));
        if source.cold {
            self.join_cold(write);
            self.join_cold(both);
        }
        if source.replayed.is_none() {
            // A target that is cold too stands for the cold vector as well; a hot one must be raised to it.
            loop {
                let seen = to.load(Ordering::Acquire);
                if self.find(seen).is_some_and(|(slot, generation)| slot.is_of(generation)) {
                    break;
                }
                // A reader that found the target hot must not make it so again with what it had alone.
                if seen == 0 || publish(to, seen, 0) {
                    return;
                }
            }
        }
        let replayed = source.replayed.unwrap_or(0);
        self.raise(to, &Raise { write: Some(write), read: both, replayed }, ring);
    }

    fn raise(&self, row: &Reference, to: &Raise<'_>, ring: &mut Ring) {
        loop {
            let seen = row.load(Ordering::Acquire);
            let fresh = match self.find(seen) {
                Some((slot, generation)) => {
                    if self.raise_in_place(row, seen, slot, generation, to) {
                        return;
                    }
                    self.own_copy(slot, generation, to, ring)
                }
                None => None,
            };
            let fresh = fresh.unwrap_or_else(|| self.warm_up(to, ring));
            if publish(row, seen, fresh) {
                return;
            }
        }
    }

    /// A slot for a cold row.
    #[inline]
    fn warm_up(&self, to: &Raise<'_>, ring: &mut Ring) -> u64 {
        let Some(write) = to.write else {
            return reference::with_kind(self.shared(ring, to.read, to.replayed), Kind::Read);
        };
        self.take_own(ring, to.replayed, |slot| {
            self.load_cold_into(slot.first());
            raise_lanes(slot.first(), write);
            store(slot.second(), to.read);
        })
    }

    /// Raises the vectors of a row that has a slot of its own, or whose shared slot has all of it
    /// already. False if the row needs another slot, or has got one meanwhile.
    #[inline]
    fn raise_in_place(
        &self,
        row: &Reference,
        seen: u64,
        slot: Slot<'_>,
        generation: u64,
        to: &Raise<'_>,
    ) -> bool {
        let &Raise { write, read, replayed } = to;
        while slot.is_of(generation) {
            if slot.kind != Kind::Own {
                let has = |lanes: &[AtomicU64], wanted: &[u64]| {
                    lanes.iter().zip(wanted).all(|(lane, lsn)| lane.load(Ordering::Relaxed) >= *lsn)
                };
                return slot.kind == Kind::Read
                    && write.is_none()
                    && has(slot.first(), read)
                    && slot.replayed().load(Ordering::Relaxed) >= replayed
                    && slot.is_still(generation);
            }
            raise_lanes(slot.second(), read);
            if let Some(write) = write {
                raise_lanes(slot.first(), write);
            }
            if slot.replayed().load(Ordering::Relaxed) < replayed {
                slot.replayed().fetch_max(replayed, Ordering::Relaxed);
            }
            // SeqCst, like the raises: the owner marks, then looks; here it is the other way round.
            // If the owner did not see the raise, its mark is seen here.
            checker_fence();
            if slot.head().load(Ordering::SeqCst) == generation << 1 {
                let fresh = reference::with_tick(seen, self.ticks.now());
                // What is new must not be taken for cold along with what was there.
                return fresh == seen || publish(row, seen, fresh);
            }
        }
        false
    }

    /// A slot for this row alone, with what its shared slot says, raised. `None` if the row is cold, or has
    /// a slot of its own.
    #[inline]
    fn own_copy(
        &self,
        shared: Slot<'_>,
        generation: u64,
        to: &Raise<'_>,
        ring: &mut Ring,
    ) -> Option<u64> {
        let &Raise { write, read, replayed } = to;
        if shared.kind == Kind::Own || !shared.is_of(generation) {
            return None;
        }
        let before = shared.replayed().load(Ordering::Relaxed);
        let fresh = self.take_own(ring, replayed.max(before), |slot| {
            let (same, cold) = match shared.kind {
                Kind::Read => (slot.second(), slot.first()),
                _ => (slot.first(), slot.second()),
            };
            for (to, from) in same.iter().zip(shared.first()) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            self.load_cold_into(cold);
            if let Some(write) = write {
                raise_lanes(slot.first(), write);
            }
            raise_lanes(slot.second(), read);
        });
        // Otherwise the copy is of another row's vectors; the slot will be found again in the ring.
        (shared.is_of(generation) && shared.is_still(generation)).then_some(fresh)
    }

    /// The slot for all rows that have the transaction's final vector, this one, and the other one cold.
    #[inline]
    fn shared(&self, ring: &mut Ring, vector: &[u64], replayed: u64) -> Packed {
        if ring.taken == 0 {
            ring.taken = self.take_shared(ring, vector, replayed);
        }
        ring.taken
    }

    fn take_shared(&self, ring: &mut Ring, vector: &[u64], replayed: u64) -> Packed {
        let number = match ring.free.pop() {
            Some(number) => number,
            None => self.free_shared(ring),
        };
        let slot = self.shared.get(number, Kind::Written);
        let before = slot.head().load(Ordering::Relaxed) >> 1;
        let generation = (before + 1) & GENERATIONS;
        // Nobody raises anything here: who finds the mark only has to wait.
        slot.head().store(before << 1 | MARKED, Ordering::Relaxed);
        let tick = self.fill(slot, generation, replayed, |slot| store(slot.first(), vector));
        ring.hand_out(number, tick);
        reference::pack(number, Kind::Written, tick, generation)
    }

    /// A slot that is cold, or a new one.
    #[cold]
    fn free_shared(&self, ring: &mut Ring) -> u32 {
        ring.take_back(|tick| self.ticks.has_cooled(tick));
        if let Some(number) = ring.free.pop() {
            return number;
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
        ring.free.pop().unwrap_or_else(|| self.shared.add())
    }

    /// Takes a slot for one row, filled by `fill`.
    fn take_own(&self, ring: &mut Ring, replayed: u64, fill: impl FnOnce(Slot<'_>)) -> u64 {
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
        let (number, slot, generation) = taken.unwrap_or_else(|| {
            let number = self.own.add();
            ring.own.push_back(number);
            (number, self.own.get(number, Kind::Own), 0)
        });
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

    fn is_cold(&self, vector: &[AtomicU64]) -> bool {
        // SeqCst: see `take`. Acquire: a slot's new generation (Release) is published after these.
        vector
            .iter()
            .zip(&self.cold)
            .all(|(lsn, cold)| lsn.load(Ordering::SeqCst) <= cold.load(Ordering::Acquire))
    }

    /// Copies the cold vector into a slot that is being filled.
    fn load_cold_into(&self, lanes: &[AtomicU64]) {
        zip_lanes(lanes, &self.cold, |lane, cold| {
            lane.store(cold.load(Ordering::Acquire), Ordering::Relaxed);
        });
    }

    /// Copies the cold vector.
    #[inline]
    pub fn load_cold(&self, out: &mut [u64]) {
        for (lane, cold) in out.iter_mut().zip(&self.cold) {
            *lane = cold.load(Ordering::Acquire);
        }
    }

    /// Joins the cold vector into `out`.
    #[inline]
    pub fn join_cold(&self, out: &mut [u64]) {
        zip_lanes_mut(out, &self.cold, |lane, cold| {
            *lane = (*lane).max(cold.load(Ordering::Acquire));
        });
    }

    /// Raises the cold vector; `vector` is durable. `reserved` says up to where the streams are reserved.
    pub fn raise_cold(&self, vector: &[u64], reserved: impl FnOnce(&mut [u64])) {
        for (cold, lsn) in self.cold.iter().zip(vector) {
            // Release: pairs with the Acquire loads of those who then find an older generation.
            cold.fetch_max(*lsn, Ordering::Release);
        }
        debug_assert!({
            let mut now = vec![0; self.lanes];
            self.load_cold(&mut now);
            covers(&now, vector)
        });
        self.ticks.end(vector, reserved);
    }
}

/// Gives the row another slot, unless somebody else has done so.
#[inline]
fn publish(row: &Reference, seen: u64, fresh: u64) -> bool {
    // SeqCst: as in `fold`. On failure another reader was first: its slot is raised next; ours stays in
    // the ring and is given out again like any other.
    row.compare_exchange(seen, fresh, Ordering::SeqCst, Ordering::Relaxed).is_ok()
}
