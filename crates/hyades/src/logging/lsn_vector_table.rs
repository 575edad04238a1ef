//! The hot-row table: LSN vectors of the rows touched lately (Taurus, section 4.1).
//!
//! A row does not carry its vectors. It carries a *reference*: the number of a slot in this table and
//! the generation in which the slot was given out. A slot whose two vectors lie at or below the
//! **cold vector** may be given out again, in its next generation; a row whose reference is of an
//! older generation is *cold* and stands for the cold vector: PLV - delta, the paper's value for a
//! row that comes back into the lock table.
//!
//! All rows that a transaction writes end with the same vectors: its own, and no reader yet. So they
//! share one slot, and so do the cold rows that a command reads. Nobody changes a shared slot; who
//! has to raise a row's read vector there gives the row a slot of its own first. (To start anew with
//! no reader loses none: the writer's vector covers the readers of before, or, where the writer is
//! a data record, the writer replays after them, and whoever follows the writer follows them.)
//!
//! Invariant: the cold vector is monotone and never above what is durable, and a slot changes
//! generation only while both of its vectors are at or below the cold vector as published. So who
//! finds an older generation and then loads the cold vector gets at least what the row had.
//!
//! There are no latches. A slot is given out again by its owner alone, who marks its head, looks at
//! the vectors, and either takes the mark off or goes on to fill it. Who reads looks at the head
//! before and after (a sequence lock). Who raises a read vector does so lane by lane, then looks at
//! the head: either the owner, who marks first, saw the raise, or the raiser sees the mark.

#[cfg(all(test, loom))]
mod loom_tests;
mod slot;
#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::VecDeque;
use std::sync::{Mutex, OnceLock};

use hyades_platform::mutation::{self, Mutation};
use hyades_platform::sync::{AtomicU32, AtomicU64, Ordering, checker_fence, fence};
use hyades_wal::lsn_vector::covers;
use slot::{MARKED, Slot, raise_lanes, store};

/// What a row remembers: slot number + 1 in the low half, with [`SHARED`], and the generation in the
/// high half; 0 for a row that was never hot.
pub(crate) type Reference = AtomicU64;

/// The slot stands for several rows.
const SHARED: u64 = 1 << 31;

// The schedule checker keeps a history of every atomic.
const CHUNK_SLOTS: usize = if cfg!(loom) { 4 } else { 1024 };
const CHUNKS: usize = if cfg!(loom) { 1 } else { 1 << 14 };

/// Slots side by side, each on cache lines of its own: head, replay time, write vector, read vector.
struct Chunk {
    words: Box<[AtomicU64]>,
    /// Where the first slot begins, so that slots begin on cache lines.
    first: usize,
}

/// Slots that a session hands out, oldest first, and what its transaction has handed out.
#[derive(Default)]
pub(crate) struct Ring {
    slots: VecDeque<u32>,
    /// The reference that all rows written by the transaction get; 0 if there is none yet.
    written: u64,
    /// The one that cold rows get which it read; 0 if there is none yet.
    read: u64,
}

impl Ring {
    /// A new transaction begins.
    #[inline]
    pub fn begin(&mut self) {
        self.written = 0;
        self.read = 0;
    }
}

pub(crate) struct LsnVectorTable {
    lanes: usize,
    /// Words from slot to slot.
    stride: usize,
    chunks: Box<[OnceLock<Chunk>]>,
    next: AtomicU32,
    /// Rings of sessions that have ended.
    spare: Mutex<Vec<Ring>>,
    /// The cold vector. Raised by `raise_cold` only; read by everyone.
    cold: Box<[AtomicU64]>,
}

impl LsnVectorTable {
    pub fn new(lanes: usize) -> Self {
        LsnVectorTable {
            lanes,
            stride: (2 + 2 * lanes).next_multiple_of(8),
            chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect(),
            next: AtomicU32::new(0),
            spare: Mutex::new(Vec::new()),
            cold: (0..lanes).map(|_| AtomicU64::new(0)).collect(),
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

    /// How many slots exist, used or not.
    #[cfg(all(test, not(loom)))]
    pub fn slots(&self) -> u32 {
        self.next.load(Ordering::Relaxed)
    }

    #[cold]
    fn new_chunk(&self) -> Chunk {
        let words: Box<[AtomicU64]> =
            (0..CHUNK_SLOTS * self.stride + 8).map(|_| AtomicU64::new(0)).collect();
        let first = words.as_ptr().align_offset(64).min(8);
        Chunk { words, first }
    }

    #[inline]
    fn slot(&self, number: u32) -> Slot<'_> {
        let cell = &self.chunks[number as usize / CHUNK_SLOTS];
        let chunk = cell.get_or_init(|| self.new_chunk());
        let start = chunk.first + number as usize % CHUNK_SLOTS * self.stride;
        Slot { words: &chunk.words[start..start + self.stride], lanes: self.lanes }
    }

    /// The slot and generation of a reference.
    #[inline]
    fn find(&self, reference: u64) -> Option<(Slot<'_>, u64)> {
        let number = (reference & (SHARED - 1)) as u32;
        Some((self.slot(number.checked_sub(1)?), reference >> 32))
    }

    /// Joins the row's write vector into `write` and, where wanted, its write and read vectors into
    /// `both`. Returns when replay is through with the row's last users, or `None` for a cold row, which stands for the cold vector.
    #[inline]
    pub fn fold(
        &self,
        row: &Reference,
        write: &mut [u64],
        both: Option<&mut [u64]>,
    ) -> Option<u64> {
        // Acquire half: pairs with the Release that published the reference; its slot is filled.
        // SeqCst: a writer that has locked the row, or changed its gap, and then finds no reference
        // here comes before the fence of a reader that published one, which will see the lock
        // (docs/protocols.md, E4).
        checker_fence();
        let (slot, generation) = self.find(row.load(Ordering::SeqCst))?;
        slot.fold(generation, write, both)
    }

    /// The row's write vector becomes `vector`, which is not below what it was: the final vector of
    /// the ring's transaction. The caller holds the row's write protection.
    #[inline]
    pub fn set_write(&self, row: &Reference, vector: &[u64], replayed: u64, ring: &mut Ring) {
        if ring.written == 0 {
            let slot = self.take(ring, replayed, |slot| {
                store(slot.write(), vector);
                // Readers of before, whom the writer need not have folded into this vector.
                self.load_cold_into(slot.read());
            });
            ring.written = slot | SHARED;
        }
        // Release: who finds the reference finds its slot filled.
        row.store(ring.written, Ordering::Release);
    }

    /// The row's read vector is raised to at least `vector`, the final vector of the ring's
    /// transaction. Many readers may do this at once.
    #[inline]
    pub fn raise_read(&self, row: &Reference, vector: &[u64], replayed: u64, ring: &mut Ring) {
        loop {
            let seen = row.load(Ordering::Acquire);
            if seen != 0 && seen == ring.read {
                // It reads the row a second time.
                return;
            }
            if self.raise_in_place(seen, None, vector, replayed) {
                return;
            }
            let fresh = match self.own_copy(seen, None, vector, replayed, ring) {
                Some(copy) => copy,
                // Cold.
                None => {
                    if ring.read == 0 {
                        let slot = self.take(ring, replayed, |slot| {
                            self.load_cold_into(slot.write());
                            store(slot.read(), vector);
                        });
                        ring.read = slot | SHARED;
                    }
                    ring.read
                }
            };
            if publish(row, seen, fresh) {
                return;
            }
        }
    }

    /// The row's write and read vectors are raised to at least those of `from`.
    pub fn inherit(&self, to: &Reference, from: &Reference, ring: &mut Ring) {
        if from.load(Ordering::SeqCst) == 0 && to.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut copy = vec![0; 2 * self.lanes];
        let (write, both) = copy.split_at_mut(self.lanes);
        let Some(replayed) = self.fold(from, write, Some(both)) else {
            // A cold source stands for the cold vector. A target that is cold too stands for it as
            // well; a hot one must be raised to it.
            self.load_cold(both);
            let seen = to.load(Ordering::Acquire);
            if self.find(seen).is_some_and(|(slot, generation)| slot.is_of(generation)) {
                write.copy_from_slice(both);
                self.raise(to, write, both, 0, ring);
            }
            return;
        };
        self.raise(to, write, both, replayed, ring);
    }

    fn raise(&self, row: &Reference, write: &[u64], read: &[u64], replayed: u64, ring: &mut Ring) {
        loop {
            let seen = row.load(Ordering::Acquire);
            if self.raise_in_place(seen, Some(write), read, replayed) {
                return;
            }
            let fresh =
                self.own_copy(seen, Some(write), read, replayed, ring).unwrap_or_else(|| {
                    self.take(ring, replayed, |slot| {
                        self.load_cold_into(slot.write());
                        raise_lanes(slot.write(), write);
                        store(slot.read(), read);
                    })
                });
            if publish(row, seen, fresh) {
                return;
            }
        }
    }

    /// Raises the vectors of a row that has a slot of its own, or whose shared slot has all of it
    /// already. False if the row is cold, or needs a slot of its own.
    #[inline]
    fn raise_in_place(
        &self,
        seen: u64,
        write: Option<&[u64]>,
        read: &[u64],
        replayed: u64,
    ) -> bool {
        let Some((slot, generation)) = self.find(seen) else { return false };
        while slot.is_of(generation) {
            if seen & SHARED != 0 {
                let has = |lanes: &[AtomicU64], wanted: &[u64]| {
                    lanes.iter().zip(wanted).all(|(lane, lsn)| lane.load(Ordering::Relaxed) >= *lsn)
                };
                return has(slot.read(), read)
                    && write.is_none_or(|write| has(slot.write(), write))
                    && slot.replayed().load(Ordering::Relaxed) >= replayed
                    && slot.is_still(generation);
            }
            raise_lanes(slot.read(), read);
            if let Some(write) = write {
                raise_lanes(slot.write(), write);
            }
            if slot.replayed().load(Ordering::Relaxed) < replayed {
                slot.replayed().fetch_max(replayed, Ordering::Relaxed);
            }
            // SeqCst, like the raises: the owner marks, then looks; here it is the other way round.
            // If the owner did not see the raise, its mark is seen here.
            checker_fence();
            if slot.head().load(Ordering::SeqCst) == generation << 1 {
                return true;
            }
        }
        false
    }

    /// A slot for this row alone, with what its shared slot says, raised. `None` if the row is cold.
    #[inline]
    fn own_copy(
        &self,
        seen: u64,
        write: Option<&[u64]>,
        read: &[u64],
        replayed: u64,
        ring: &mut Ring,
    ) -> Option<u64> {
        let (shared, generation) = self.find(seen)?;
        if !shared.is_of(generation) {
            return None;
        }
        let before = shared.replayed().load(Ordering::Relaxed);
        let fresh = self.take(ring, replayed.max(before), |slot| {
            for (to, from) in slot.write().iter().zip(shared.write()) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            for (to, from) in slot.read().iter().zip(shared.read()) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            if let Some(write) = write {
                raise_lanes(slot.write(), write);
            }
            raise_lanes(slot.read(), read);
        });
        // Otherwise the copy is of another row's vectors; the slot will be found again in the ring.
        (shared.is_of(generation) && shared.is_still(generation)).then_some(fresh)
    }

    /// Takes a slot, filled by `fill`, and returns a reference to it.
    fn take(&self, ring: &mut Ring, replayed: u64, fill: impl FnOnce(Slot<'_>)) -> u64 {
        let mut taken = None;
        // A hot row keeps its slot for long and would stand in the way of those behind it.
        for _ in 0..ring.slots.len().min(4) {
            let number = ring.slots.pop_front().expect("as many as counted");
            ring.slots.push_back(number);
            let slot = self.slot(number);
            let generation = slot.head().load(Ordering::Relaxed) >> 1;
            // SeqCst: the mark comes before the looks at the vectors, see `raise_in_place`.
            slot.head().store(generation << 1 | MARKED, Ordering::SeqCst);
            checker_fence();
            let warm = mutation::is(Mutation::EvictWarm);
            if self.is_cold(slot.write()) && (warm || self.is_cold(slot.read())) {
                let next = (generation + 1) & u64::from(u32::MAX);
                taken = Some((number, slot, next));
                break;
            }
            slot.head().store(generation << 1, Ordering::Release);
        }
        let (number, slot, generation) = taken.unwrap_or_else(|| {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            assert!((number as usize) < CHUNKS * CHUNK_SLOTS, "the hot-row table is full");
            ring.slots.push_back(number);
            (number, self.slot(number), 0)
        });
        // The mark comes before what is filled in: who sees any of it sees that the slot is marked.
        fence(Ordering::Release);
        fill(slot);
        slot.replayed().store(replayed, Ordering::Relaxed);
        // Release: who finds this generation finds the slot filled.
        slot.head().store(generation << 1, Ordering::Release);
        generation << 32 | (u64::from(number) + 1)
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
        for (lane, cold) in lanes.iter().zip(&self.cold) {
            lane.store(cold.load(Ordering::Acquire), Ordering::Relaxed);
        }
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
        for (lane, cold) in out.iter_mut().zip(&self.cold) {
            *lane = (*lane).max(cold.load(Ordering::Acquire));
        }
    }

    /// Raises the cold vector; `vector` is durable.
    pub fn raise_cold(&self, vector: &[u64]) {
        for (cold, lsn) in self.cold.iter().zip(vector) {
            // Release: pairs with the Acquire loads of those who then find an older generation.
            cold.fetch_max(*lsn, Ordering::Release);
        }
        debug_assert!({
            let mut now = vec![0; self.lanes];
            self.load_cold(&mut now);
            covers(&now, vector)
        });
    }
}

/// Gives the row another slot, unless somebody else has done so.
#[inline]
fn publish(row: &Reference, seen: u64, fresh: u64) -> bool {
    // SeqCst: as in `fold`. On failure another reader was first: its slot is raised next; ours stays in
    // the ring and is given out again like any other.
    row.compare_exchange(seen, fresh, Ordering::SeqCst, Ordering::Relaxed).is_ok()
}
