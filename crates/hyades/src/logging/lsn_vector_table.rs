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
//! Most transactions depend on nothing but what is cold, so that their vector is the cold one but for their
//! own lane. They need no slot: a reference of [`Kind::Single`] has the lane and the position. Who finds
//! it joins the cold vector, which is not below what it was then.
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
//! There are so many slots at most. Who wants another one says that slots get few, and the cold vector is raised as
//! far as it can be. Where that does not help, rows share the common slot (`common_slot.rs`).
//!
//! There are no latches. A slot is given out again by its owner alone. Who reads looks at the head before
//! and after (a sequence lock). A slot of one row is marked by its owner, who then looks at the vectors,
//! and either takes the mark off or goes on to fill it. Who raises a read vector does so lane by lane, then
//! looks at the head: either the owner, who marks first, saw the raise, or the raiser sees the mark.

mod common_slot;
#[cfg(all(test, loom))]
mod loom_tests;
mod reference;
mod single;
mod slot;
mod slots;
mod taking;
#[cfg(all(test, not(loom)))]
mod tests;
mod ticks;

pub(crate) use reference::Reference;
pub(crate) use slots::Ring;

use super::lanes::{zip_lanes, zip_lanes_mut};
use crate::storage::prefetch::prefetch;
use hyades_platform::sync::{AtomicBool, AtomicU64, Ordering, checker_fence};
use hyades_wal::{Log, lsn_vector::covers};
use reference::{Kind, PackedReference, Single};
use slot::{Slot, raise_lanes, store};
use slots::Slots;
use std::sync::Mutex;
use ticks::Ticks;

/// A slot that is not cold after so many ticks is held up by a stream that stands still.
const PATIENCE: u32 = 8;

/// What a row was found to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowObservation {
    /// It is not cold altogether.
    pub warm: bool,
    /// When replay is through with its last users; `None` if that is not known.
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

impl RowObservation {
    const COLD: RowObservation = RowObservation { warm: false, replayed: None, cold: true };
}

/// Where the vectors of a row are that is not known to be cold.
enum Hot<'t> {
    /// In a slot of this generation.
    Slot(Slot<'t>, u64),
    Single(Single),
}

/// Up to where a stream is reserved.
pub(crate) type ReservedEnds = Box<dyn Fn(usize) -> u64 + Send + Sync>;

pub(crate) struct LsnVectorTable {
    lanes: usize,
    own: Slots,
    shared: Slots,
    /// Rings of sessions that have ended.
    spare: Mutex<Vec<Ring>>,
    /// The cold vector. Raised by `raise_cold` only; read by everyone.
    cold: Box<[AtomicU64]>,
    ticks: Ticks,
    reserved: ReservedEnds,
    /// Slots get few. Said by sessions, taken back by who raises the cold vector; a hint, Relaxed.
    pressed: AtomicBool,
}

impl LsnVectorTable {
    /// A table of about so many bytes at most.
    pub fn new(lanes: usize, bytes: u64, reserved: ReservedEnds) -> Self {
        LsnVectorTable {
            lanes,
            own: Slots::new(lanes, 2, bytes / 2, common_slot::RESERVED),
            shared: Slots::new(lanes, 1, bytes / 2, 0),
            spare: Mutex::new(Vec::new()),
            cold: (0..lanes).map(|_| AtomicU64::new(0)).collect(),
            ticks: Ticks::new(),
            reserved,
            pressed: AtomicBool::new(false),
        }
    }

    /// For the streams of a log.
    pub fn on(log: &Log, bytes: u64) -> Self {
        let reserved = log.clone();
        Self::new(log.streams(), bytes, Box::new(move |stream| reserved.next_lsn(stream)))
    }

    /// A ring for a new session.
    pub fn ring(&self) -> Ring {
        let mut ring = self.spare.lock().expect("no holder panics").pop().unwrap_or_default();
        ring.reserved.resize(self.lanes, 0);
        ring
    }

    /// Takes back the ring of a session that ends.
    pub fn give_back(&self, ring: Ring) {
        self.spare.lock().expect("no holder panics").push(ring);
    }

    /// A new transaction of the ring's session begins.
    #[inline]
    pub fn begin(&self, ring: &mut Ring) {
        ring.taken = 0;
        ring.single = None;
    }

    /// How many slots exist, used or not.
    #[cfg(all(test, not(loom)))]
    pub fn slots(&self) -> u32 {
        self.own.len() - common_slot::RESERVED + self.shared.len()
    }

    /// Whether a row is known to be cold by its reference alone, as most are.
    #[inline(always)]
    fn is_known_cold(&self, packed: PackedReference) -> bool {
        packed == 0 || self.ticks.is_cold(packed)
    }

    /// What the reference of a row stands for that is not known to be cold.
    #[inline]
    fn hot(&self, packed: PackedReference) -> Hot<'_> {
        let kind = reference::kind(packed);
        if kind == Kind::Single {
            return Hot::Single(reference::single(packed));
        }
        let slots = if kind == Kind::Own { &self.own } else { &self.shared };
        Hot::Slot(slots.get(reference::number(packed), kind), reference::generation(packed))
    }

    /// What a reference stands for, unless it is known to be cold.
    fn find(&self, packed: PackedReference) -> Option<Hot<'_>> {
        if self.is_known_cold(packed) { None } else { Some(self.hot(packed)) }
    }

    /// Starts loading the row's slot, if it has one that is not known to be cold.
    #[inline]
    pub fn prefetch(&self, row: &Reference) {
        let packed = row.load(Ordering::Relaxed);
        // Most rows have no slot.
        if reference::has_slot(packed) && !self.ticks.is_cold(packed) {
            self.prefetch_hot(packed);
        }
    }

    fn prefetch_hot(&self, packed: PackedReference) {
        if let Hot::Slot(slot, _) = self.hot(packed) {
            prefetch(slot.head());
        }
    }

    /// Joins the row's vectors. What is cold is left to the caller, see [`RowObservation`].
    #[inline]
    pub fn fold(&self, row: &Reference, into: Into<'_>, ring: &mut Ring) -> RowObservation {
        // Acquire half: pairs with the Release that published the reference; its slot is filled.
        // SeqCst: a writer that has locked the row, or changed its gap, and then finds no reference
        // here comes before the validation of a reader that published one, which will see the lock
        // (docs/protocols.md, E4).
        checker_fence();
        let packed = row.load(Ordering::SeqCst);
        if self.is_known_cold(packed) {
            RowObservation::COLD
        } else {
            self.fold_hot(packed, into, ring)
        }
    }

    fn fold_hot(&self, packed: PackedReference, into: Into<'_>, ring: &mut Ring) -> RowObservation {
        match self.hot(packed) {
            Hot::Slot(slot, generation) => slot.fold(generation, into),
            Hot::Single(single) => self.fold_single(single, into, ring),
        }
    }

    /// The row's write vector becomes `vector`, which is not below what it was: the final vector of
    /// the ring's transaction. The caller holds the row's write protection.
    #[inline]
    pub fn set_write(&self, row: &Reference, vector: &[u64], replayed: u64, ring: &mut Ring) {
        let taken = self.shared(ring, vector, replayed);
        // Release: who finds the reference finds its slot filled.
        row.store(taken, Ordering::Release);
    }

    /// The row's read vector is raised to at least `vector`, the final vector of the ring's
    /// transaction. Many readers may do this at once.
    #[inline]
    pub fn raise_read(&self, row: &Reference, vector: &[u64], replayed: u64, ring: &mut Ring) {
        // SeqCst: who finds the row raised already comes before its own validation too (E4).
        let seen = row.load(Ordering::SeqCst);
        if self.is_known_cold(seen) {
            let taken = self.shared(ring, vector, replayed);
            if publish(row, seen, reference::of_reader(taken)) {
                return;
            }
        } else if ring.taken != 0 && seen == reference::of_reader(ring.taken) {
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
        let source = self.fold(from, Into::Apart(&mut *write, &mut *both), ring);
        if source.cold {
            self.join_cold(write);
            self.join_cold(both);
        }
        if !source.warm {
            // A target that is cold too stands for the cold vector as well; a hot one must be raised to it.
            loop {
                let seen = to.load(Ordering::Acquire);
                match self.find(seen) {
                    Some(Hot::Slot(slot, generation)) if slot.is_of(generation) => break,
                    Some(Hot::Single(_)) => break,
                    _ => {}
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
            // SeqCst: as above.
            let seen = row.load(Ordering::SeqCst);
            let fresh = match self.find(seen) {
                Some(Hot::Slot(slot, generation)) => {
                    if self.raise_in_place(row, seen, slot, generation, to) {
                        return;
                    }
                    self.own_copy(slot, generation, to, ring)
                }
                Some(Hot::Single(single)) => match self.succeed(single, to, ring) {
                    None => return,
                    fresh => fresh,
                },
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
            return reference::of_reader(self.shared(ring, to.read, to.replayed));
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
                    lanes.iter().zip(wanted).all(|(lane, lsn)| lane.load(Ordering::SeqCst) >= *lsn)
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

    fn is_cold(&self, vector: &[AtomicU64]) -> bool {
        // SeqCst: see `take_own`. Acquire: a slot's new generation (Release) is published after these.
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
