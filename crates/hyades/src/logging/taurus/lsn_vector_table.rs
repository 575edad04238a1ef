//! The LSN vector table, or hot-row table: LSN vectors of recently used rows (Taurus, section 4.1).
//!
//! A row holds no vectors, but a *reference*: the number of a slot in this table, the slot's
//! generation, and the *tick* in which the slot was handed out. A slot with vectors covered by the
//! **eviction vector** may be reused in its next generation. A row with a reference of an older
//! generation is *evicted*: the row's vectors are the eviction vector, which is PLV - delta, the
//! paper's value for a row that re-enters the lock table.
//!
//! All rows written by a transaction get the same vectors: the transaction's own vector, and no
//! reader yet. Evicted rows read by a command get the command's vector as read vector. So all these
//! rows share a slot, and the kind in the references tells which vector the slot has. A shared slot
//! is immutable and has a single vector; the second vector of its rows is the eviction vector. A
//! reader that has to raise the read vector of a row in a shared slot first gives the row its own
//! slot. (Forgetting earlier readers loses no order: the writer's vector covers the readers, or,
//! where the writer is a data record, the writer replays after the readers, and all followers of
//! the writer follow the readers.)
//!
//! Most transactions depend on evicted rows only: the transaction's vector is the eviction vector
//! except in the transaction's own component. Such a vector needs no slot: a reference of
//! [`Kind::Single`] has the component and the position. A session that loads the reference joins
//! the eviction vector, which never falls.
//!
//! **Ticks** (`ticks.rs`) identify most evicted rows, and most reusable slots, without a load of
//! the slot, which would be a cache miss: once a tick is evicted, so are all references with the
//! tick. A transaction that raises a vector in place gives the row a reference of the current tick.
//!
//! Invariant: the eviction vector is monotone and never above the durable positions, and a slot
//! changes its generation, and a tick is evicted, only while the vectors are covered by the
//! eviction vector as published. So a session that finds an older generation or an evicted tick,
//! and then loads the eviction vector, gets at least the row's vectors.
//!
//! The number of slots is bounded. A session that finds slots running short sets `short_of_slots`,
//! and the eviction vector is raised as far as possible. Where the raise does not help, rows share
//! the common slot (`common_slot.rs`).
//!
//! There are no latches. Only the owner, a session's ring, reuses a slot. A reader loads the head
//! before and after the vectors (a sequence lock). The owner of a slot of a single row marks the
//! slot, then checks the vectors, and either removes the mark or fills the slot. A raise of a read
//! vector raises the components, then checks the head: either the owner, which marks first, saw the
//! raise, or the raiser sees the mark.

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

pub use reference::Reference;
pub use slots::Ring;

use crate::logging::HotRows;
use crate::logging::lanes::{zip_lanes, zip_lanes_mut};
use hyades_platform::prefetch::prefetch;
use hyades_platform::sync::{AtomicBool, AtomicU64, Ordering, Unpoisoned, checker_fence};
use hyades_wal::{Log, Lsn, lsn_vector::covers};
use reference::{Kind, PackedReference, Single};
use slot::{Slot, raise_lanes, store};
use slots::Slots;
use std::sync::Mutex;
use ticks::Ticks;

/// A slot that cannot be evicted after this many ticks is held up by a stalled stream.
const STALLED_TICKS: u32 = 8;

/// The result of looking up a row's vectors.
#[derive(Clone, Copy, Debug)]
pub struct RowObservation {
    /// Whether the row has its own vectors: the row is not evicted altogether.
    pub warm: bool,
    /// When replay is expected to be done with the row's last users; `None` if unknown.
    pub replayed: Option<u64>,
    /// Whether a requested vector is at least the eviction vector, which the caller joins.
    pub joins_eviction: bool,
}

/// The destination of a join of a row's vectors.
pub enum FoldTarget<'v> {
    /// Of the write vector.
    Write(&'v mut [u64]),
    /// Of both.
    Both(&'v mut [u64]),
    /// The first of the write vector, the second of both.
    Apart(&'v mut [u64], &'v mut [u64]),
}

/// The target values of a raise of a row's vectors.
struct Raise<'v> {
    /// `None` for a reader.
    write: Option<&'v [u64]>,
    read: &'v [u64],
    /// When replay is expected to be done with the raising transaction.
    replayed: u64,
}

impl RowObservation {
    const EVICTED: RowObservation =
        RowObservation { warm: false, replayed: None, joins_eviction: true };
}

/// Location of the vectors of a row not known to be evicted.
enum Hot<'t> {
    /// In a slot of this generation.
    Slot(Slot<'t>, u64),
    Single(Single),
}

/// Returns the reserved end of a stream.
pub type ReservedEnds = Box<dyn Fn(usize) -> u64 + Send + Sync>;

pub struct LsnVectorTable {
    lanes: usize,
    own: Slots,
    shared: Slots,
    /// Rings of sessions that have ended.
    spare: Mutex<Vec<Ring>>,
    /// The eviction vector. Raised by `raise_eviction` only; read by all sessions.
    eviction: Box<[AtomicU64]>,
    ticks: Ticks,
    reserved: ReservedEnds,
    /// Slots are running short. Set by sessions, cleared when the eviction vector is raised; a
    /// hint, Relaxed.
    short_of_slots: AtomicBool,
}

impl LsnVectorTable {
    /// Creates a table of about `bytes` bytes at most.
    pub fn new(lanes: usize, bytes: u64, reserved: ReservedEnds) -> Self {
        LsnVectorTable {
            lanes,
            own: Slots::new(lanes, 2, bytes / 2, common_slot::RESERVED),
            shared: Slots::new(lanes, 1, bytes / 2, 0),
            spare: Mutex::new(Vec::new()),
            eviction: (0..lanes).map(|_| AtomicU64::new(0)).collect(),
            ticks: Ticks::new(),
            reserved,
            short_of_slots: AtomicBool::new(false),
        }
    }

    /// Creates a table for the streams of a log.
    pub fn on(log: &Log, bytes: u64) -> Self {
        let reserved = log.clone();
        Self::new(log.streams(), bytes, Box::new(move |stream| reserved.next_lsn(stream)))
    }

    /// Returns a ring for a new session.
    pub fn ring(&self) -> Ring {
        let mut ring = self.spare.lock().unpoisoned().pop().unwrap_or_default();
        ring.reserved.resize(self.lanes, 0);
        ring
    }

    /// Takes back the ring of a session that ends.
    pub fn give_back(&self, ring: Ring) {
        self.spare.lock().unpoisoned().push(ring);
    }

    /// Called when a new transaction of the ring's session begins.
    #[inline]
    pub fn begin(&self, ring: &mut Ring) {
        ring.taken = 0;
        ring.single = None;
    }

    /// Returns the number of slots, used or not.
    #[cfg_attr(loom, allow(dead_code))]
    pub fn slots(&self) -> u32 {
        self.own.len() - common_slot::RESERVED + self.shared.len()
    }

    /// Returns the slots and their memory.
    #[cfg_attr(loom, allow(dead_code))]
    pub fn hot_rows(&self) -> HotRows {
        let bytes = self.own.bytes() + self.shared.bytes();
        HotRows { slots: u64::from(self.slots()), bytes }
    }

    /// Returns whether the reference alone shows that the row is evicted, as for most rows.
    #[inline(always)]
    fn is_known_evicted(&self, packed: PackedReference) -> bool {
        packed == 0 || self.ticks.is_evicted(packed)
    }

    /// Resolves the reference of a row not known to be evicted.
    #[inline]
    fn hot(&self, packed: PackedReference) -> Hot<'_> {
        let kind = reference::kind(packed);
        if kind == Kind::Single {
            return Hot::Single(reference::single(packed));
        }
        let slots = if kind == Kind::Own { &self.own } else { &self.shared };
        Hot::Slot(slots.get(reference::number(packed), kind), reference::generation(packed))
    }

    /// Resolves a reference; `None` if the row is known to be evicted.
    fn find(&self, packed: PackedReference) -> Option<Hot<'_>> {
        if self.is_known_evicted(packed) { None } else { Some(self.hot(packed)) }
    }

    /// Prefetches the row's slot, if the row has a slot and is not known to be evicted.
    #[inline]
    pub fn prefetch(&self, row: &Reference) {
        let packed = row.load(Ordering::Relaxed);
        // Most rows have no slot.
        if reference::has_slot(packed) && !self.ticks.is_evicted(packed) {
            self.prefetch_hot(packed);
        }
    }

    fn prefetch_hot(&self, packed: PackedReference) {
        if let Hot::Slot(slot, _) = self.hot(packed) {
            prefetch(slot.head());
        }
    }

    /// Joins the row's vectors. The eviction vector is left to the caller, see [`RowObservation`].
    #[inline]
    pub fn fold(&self, row: &Reference, into: FoldTarget<'_>, ring: &mut Ring) -> RowObservation {
        // Acquire half: pairs with the Release that published the reference; the slot is filled.
        // SeqCst: a writer that has locked the row, or changed the gap, and then finds no reference
        // here precedes the validation of a reader that published a reference, and the validation
        // will see the lock (docs/protocols/taurus.md, E4).
        checker_fence();
        let packed = row.load(Ordering::SeqCst);
        if self.is_known_evicted(packed) {
            RowObservation::EVICTED
        } else {
            self.fold_hot(packed, into, ring)
        }
    }

    fn fold_hot(
        &self,
        packed: PackedReference,
        into: FoldTarget<'_>,
        ring: &mut Ring,
    ) -> RowObservation {
        match self.hot(packed) {
            Hot::Slot(slot, generation) => slot.fold(generation, into),
            Hot::Single(single) => self.fold_single(single, into, ring),
        }
    }

    /// Sets the row's write vector to `vector`, the final vector of the ring's transaction. The
    /// caller holds the row's write protection. The old vector is no longer needed: `vector` covers
    /// the old vector, or later dependents of the row do not depend on the row's earlier writers.
    #[inline]
    pub fn set_write(&self, row: &Reference, vector: &[u64], replayed: u64, ring: &mut Ring) {
        let taken = self.shared(ring, vector, replayed);
        // Release: a session that loads the reference finds the slot filled.
        row.store(taken, Ordering::Release);
    }

    /// Raises the row's read vector to at least `vector`, the final vector of the ring's
    /// transaction. Many readers may raise concurrently.
    #[inline]
    pub fn raise_read(&self, row: &Reference, vector: &[u64], replayed: u64, ring: &mut Ring) {
        // SeqCst: a reader that finds the row raised already must order the load before the
        // reader's own validation, too (E4).
        let seen = row.load(Ordering::SeqCst);
        if self.is_known_evicted(seen) {
            let taken = self.shared(ring, vector, replayed);
            if publish(row, seen, reference::of_reader(taken)) {
                return;
            }
        } else if ring.taken != 0 && seen == reference::of_reader(ring.taken) {
            // The transaction reads the row a second time.
            return;
        }
        self.raise(row, &Raise { write: None, read: vector, replayed }, ring);
    }

    /// Raises the write and read vectors of `to` to at least the vectors of `from`.
    pub fn inherit(&self, to: &Reference, from: &Reference, ring: &mut Ring) {
        if from.load(Ordering::SeqCst) == 0 && to.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut copy = vec![0; 2 * self.lanes];
        let (write, both) = copy.split_at_mut(self.lanes);
        let source = self.fold(from, FoldTarget::Apart(&mut *write, &mut *both), ring);
        if source.joins_eviction {
            self.join_eviction(write);
            self.join_eviction(both);
        }
        if !source.warm {
            // An evicted target already stands for the eviction vector; any other target is raised
            // to it.
            loop {
                let seen = to.load(Ordering::Acquire);
                match self.find(seen) {
                    Some(Hot::Slot(slot, generation)) if slot.is_of(generation) => break,
                    Some(Hot::Single(_)) => break,
                    _ => {}
                }
                // Clear the reference: a reader that resolved the reference earlier must not renew
                // it with the old vectors alone.
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
            // SeqCst: as in `raise_read`.
            let seen = row.load(Ordering::SeqCst);
            let fresh = match self.find(seen) {
                Some(Hot::Slot(slot, generation)) => {
                    if self.raise_in_place(row, seen, slot, generation, to) {
                        return;
                    }
                    self.own_copy(slot, generation, to, ring)
                }
                Some(Hot::Single(single)) => match self.raise_single(single, to, ring) {
                    None => return,
                    fresh => fresh,
                },
                None => None,
            };
            let fresh = fresh.unwrap_or_else(|| self.take_for_evicted(to, ring));
            if publish(row, seen, fresh) {
                return;
            }
        }
    }

    /// Takes a slot for an evicted row.
    #[inline]
    fn take_for_evicted(&self, to: &Raise<'_>, ring: &mut Ring) -> u64 {
        let Some(write) = to.write else {
            return reference::of_reader(self.shared(ring, to.read, to.replayed));
        };
        self.take_own(ring, to.replayed, |slot| {
            self.load_eviction_into(slot.first());
            raise_lanes(slot.first(), write);
            store(slot.second(), to.read);
        })
    }

    /// Raises the vectors of a row with its own slot, or checks that the shared slot covers the
    /// raise. False if the row needs another slot, or has got another slot meanwhile.
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
            // SeqCst, like the raises: the owner marks, then checks the vectors; here the order is
            // reversed. If the owner did not see the raise, the owner's mark is seen here.
            checker_fence();
            if slot.head().load(Ordering::SeqCst) == generation << 1 {
                let fresh = reference::with_tick(seen, self.ticks.now());
                // Renew the tick: the new vectors must not be taken for evicted along with the old.
                return fresh == seen || publish(row, seen, fresh);
            }
        }
        false
    }

    /// Takes a slot for the row alone: a raised copy of the shared slot. `None` if the row is
    /// evicted, or has its own slot.
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
            let (same, other) = match shared.kind {
                Kind::Read => (slot.second(), slot.first()),
                _ => (slot.first(), slot.second()),
            };
            for (to, from) in same.iter().zip(shared.first()) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            self.load_eviction_into(other);
            if let Some(write) = write {
                raise_lanes(slot.first(), write);
            }
            raise_lanes(slot.second(), read);
        });
        // Otherwise the copy may hold another row's vectors; the slot stays in the ring for reuse.
        (shared.is_of(generation) && shared.is_still(generation)).then_some(fresh)
    }

    fn is_evicted(&self, vector: &[AtomicU64]) -> bool {
        // SeqCst: see `take_own`. Acquire: the loads precede the Release that publishes a slot's
        // new generation.
        vector
            .iter()
            .zip(&self.eviction)
            .all(|(lsn, evicted)| lsn.load(Ordering::SeqCst) <= evicted.load(Ordering::Acquire))
    }

    /// Copies the eviction vector into a slot that is being filled.
    fn load_eviction_into(&self, lanes: &[AtomicU64]) {
        zip_lanes(lanes, &self.eviction, |lane, evicted| {
            lane.store(evicted.load(Ordering::Acquire), Ordering::Relaxed);
        });
    }

    /// Copies the eviction vector.
    #[inline]
    pub fn load_eviction(&self, out: &mut [u64]) {
        for (lane, evicted) in out.iter_mut().zip(&self.eviction) {
            *lane = evicted.load(Ordering::Acquire);
        }
    }

    /// Returns whether a stream's anchor covers the eviction vector. If so, a record reserved in
    /// the stream from now on may leave the eviction vector out of the record's vector.
    #[inline(always)]
    pub fn is_eviction_below(&self, anchor: impl Iterator<Item = Lsn>) -> bool {
        let mut lanes = self.eviction.iter().zip(anchor);
        lanes.all(|(evicted, lsn)| evicted.load(Ordering::Acquire) <= lsn)
    }

    /// Joins the eviction vector into `out`.
    #[inline]
    pub fn join_eviction(&self, out: &mut [u64]) {
        zip_lanes_mut(out, &self.eviction, |lane, evicted| {
            *lane = (*lane).max(evicted.load(Ordering::Acquire));
        });
    }

    /// Raises the eviction vector to `vector`, which is durable. `reserved` stores the streams'
    /// reserved ends.
    pub fn raise_eviction(&self, vector: &[u64], reserved: impl FnOnce(&mut [u64])) {
        for (evicted, lsn) in self.eviction.iter().zip(vector) {
            // Release: pairs with the Acquire loads of sessions that then find an older generation.
            evicted.fetch_max(*lsn, Ordering::Release);
        }
        debug_assert!({
            let mut now = vec![0; self.lanes];
            self.load_eviction(&mut now);
            covers(&now, vector)
        });
        self.ticks.end(vector, reserved);
    }
}

/// Replaces the row's reference, unless another thread has done so.
#[inline]
fn publish(row: &Reference, seen: u64, fresh: u64) -> bool {
    // SeqCst: as in `fold`. On failure another thread was first, and the raise goes on with that
    // thread's slot; the caller's slot stays in the ring and is reused like any other.
    row.compare_exchange(seen, fresh, Ordering::SeqCst, Ordering::Relaxed).is_ok()
}
