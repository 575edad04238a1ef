//! The hot-row table: LSN vectors of the rows touched lately (Taurus, section 4.1).
//!
//! A row does not carry its vectors. It carries a *reference*: the number of a slot in this table and
//! the generation in which the slot was given to it. A slot whose two vectors lie at or below the
//! **cold vector** may be given to another row, in its next generation; a row whose reference is
//! of an older generation is *cold* and stands for the cold vector: PLV - delta, the paper's value
//! for a row that comes back into the lock table.
//!
//! Invariant: the cold vector is monotone and never above what is durable, and a slot changes
//! generation only while both of its vectors are at or below the cold vector as published. So who
//! finds an older generation and then loads the cold vector gets at least what the row had.
//! Generations make the identity of a row's vectors independent of where the row is in memory.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use hyades_wal::lsn_vector::{covers, join};

/// What a row remembers: slot number + 1 in the low half, generation in the high half; 0 for a row
/// that was never hot.
pub(crate) type Reference = AtomicU64;

const CHUNK_SLOTS: usize = 1024;
const CHUNKS: usize = 1 << 14;

/// Head of a slot: generation << 1 | latch.
const LATCHED: u64 = 1;

#[repr(align(64))]
struct Chunk {
    heads: Box<[AtomicU64]>,
    depths: Box<[AtomicU32]>,
    /// Of slot s: the write vector at 2 * s * lanes, then the read vector. Guarded by the head.
    vectors: UnsafeCell<Box<[u64]>>,
}

// SAFETY: `vectors` is touched only between `latch` and `unlatch` of the slot concerned, and slots do
// not overlap.
unsafe impl Sync for Chunk {}

/// Slots that a session hands out, oldest first.
#[derive(Default)]
pub(crate) struct Ring {
    slots: VecDeque<u32>,
}

pub(crate) struct LsnVectorTable {
    lanes: usize,
    chunks: Box<[OnceLock<Box<Chunk>>]>,
    next: AtomicU32,
    /// Rings of sessions that have ended.
    spare: Mutex<Vec<Ring>>,
    /// The cold vector. Raised by `raise_cold` only; read by everyone.
    cold: Box<[AtomicU64]>,
}

/// A latched slot.
struct Latched<'a> {
    chunk: &'a Chunk,
    at: usize,
    lanes: usize,
    generation: u64,
}

impl Latched<'_> {
    fn vectors(&mut self) -> (&mut [u64], &mut [u64]) {
        let start = self.at * 2 * self.lanes;
        // SAFETY: the latch of slot `at` is held by this value, which lends the slot's own range.
        let all = unsafe {
            let base = (*self.chunk.vectors.get()).as_mut_ptr().add(start);
            std::slice::from_raw_parts_mut(base, 2 * self.lanes)
        };
        all.split_at_mut(self.lanes)
    }
}

impl Drop for Latched<'_> {
    fn drop(&mut self) {
        // Release: what was done to the vectors is seen by the next holder of the latch.
        self.chunk.heads[self.at].store(self.generation << 1, Ordering::Release);
    }
}

impl LsnVectorTable {
    pub fn new(lanes: usize) -> Self {
        LsnVectorTable {
            lanes,
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
    #[cfg(test)]
    pub fn slots(&self) -> u32 {
        self.next.load(Ordering::Relaxed)
    }

    fn chunk(&self, slot: u32) -> (&Chunk, usize) {
        let chunk = self.chunks[slot as usize / CHUNK_SLOTS].get_or_init(|| {
            Box::new(Chunk {
                heads: (0..CHUNK_SLOTS).map(|_| AtomicU64::new(0)).collect(),
                depths: (0..CHUNK_SLOTS).map(|_| AtomicU32::new(0)).collect(),
                vectors: UnsafeCell::new(vec![0; CHUNK_SLOTS * 2 * self.lanes].into()),
            })
        });
        (chunk, slot as usize % CHUNK_SLOTS)
    }

    /// Latches the slot if it is still in the given generation.
    #[inline]
    fn latch(&self, slot: u32, generation: Option<u64>) -> Option<Latched<'_>> {
        let (chunk, at) = self.chunk(slot);
        let mut spins = 0u32;
        loop {
            // Acquire: the loads of the cold vector that follow a mismatch come after it.
            let head = chunk.heads[at].load(Ordering::Acquire);
            if generation.is_some_and(|wanted| head >> 1 != wanted) {
                return None;
            }
            // SeqCst: the load of a read vector after a write lock, and the raise of one before a
            // validation, are ordered against lock words (docs/protocols.md, E4).
            if head & LATCHED == 0
                && chunk.heads[at]
                    .compare_exchange_weak(
                        head,
                        head | LATCHED,
                        Ordering::SeqCst,
                        Ordering::Relaxed,
                    )
                    .is_ok()
            {
                return Some(Latched { chunk, at, lanes: self.lanes, generation: head >> 1 });
            }
            spins += 1;
            if spins.is_multiple_of(64) {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    #[inline]
    fn find(&self, reference: u64) -> Option<Latched<'_>> {
        if reference == 0 {
            return None;
        }
        self.latch(reference as u32 - 1, Some(reference >> 32))
    }

    /// Joins the row's write vector into `write` and, where wanted, its write and read vectors into
    /// `both`. Returns the row's depth, or `None` for a cold row, which stands for the cold vector.
    #[inline]
    pub fn fold(
        &self,
        row: &Reference,
        write: &mut [u64],
        both: Option<&mut [u64]>,
    ) -> Option<u32> {
        // Acquire half: pairs with the Release that published the reference; its slot is filled.
        // SeqCst: a writer that has locked the row, or changed its gap, and then finds no reference
        // here comes before the fence of a reader that published one, which will see the lock
        // (docs/protocols.md, E4).
        let mut slot = self.find(row.load(Ordering::SeqCst))?;
        let depth = slot.chunk.depths[slot.at].load(Ordering::Relaxed);
        let (written, read) = slot.vectors();
        join(write, written);
        if let Some(both) = both {
            join(both, written);
            join(both, read);
        }
        Some(depth)
    }

    /// The row's write vector becomes `vector`, which is not below what it was. The caller holds the
    /// row's write protection.
    #[inline]
    pub fn set_write(&self, row: &Reference, vector: &[u64], depth: u32, ring: &mut Ring) {
        if let Some(mut slot) = self.find(row.load(Ordering::Acquire)) {
            slot.chunk.depths[slot.at].store(depth, Ordering::Relaxed);
            join(slot.vectors().0, vector);
            return;
        }
        let reference = self.take(ring, depth, |write, read| {
            write.copy_from_slice(vector);
            // Readers of before, whom the writer need not have folded into this vector.
            self.load_cold(read);
        });
        row.store(reference, Ordering::Release);
    }

    /// The row's read vector is raised to at least `vector`. Many readers may do this at once.
    #[inline]
    pub fn raise_read(&self, row: &Reference, vector: &[u64], depth: u32, ring: &mut Ring) {
        self.raise(row, |_, read| join(read, vector), depth, ring);
    }

    /// The row's write and read vectors are raised to at least those of `from`.
    pub fn inherit(&self, to: &Reference, from: &Reference, ring: &mut Ring) {
        let mut copy = vec![0; 2 * self.lanes];
        let (write, both) = copy.split_at_mut(self.lanes);
        let Some(depth) = self.fold(from, write, Some(both)) else {
            // A cold source stands for the cold vector. A target that is cold too stands for it as
            // well; a hot one must be raised to it.
            if to.load(Ordering::Acquire) != 0 {
                self.load_cold(both);
                if let Some(mut slot) = self.find(to.load(Ordering::Acquire)) {
                    join(slot.vectors().0, both);
                }
            }
            return;
        };
        let raise = |to_write: &mut [u64], to_read: &mut [u64]| {
            join(to_write, write);
            join(to_read, both);
        };
        self.raise(to, raise, depth, ring);
    }

    fn raise(
        &self,
        row: &Reference,
        raise: impl Fn(&mut [u64], &mut [u64]),
        depth: u32,
        ring: &mut Ring,
    ) {
        loop {
            let seen = row.load(Ordering::Acquire);
            if let Some(mut slot) = self.find(seen) {
                let (write, read) = slot.vectors();
                raise(write, read);
                slot.chunk.depths[slot.at].fetch_max(depth, Ordering::Relaxed);
                return;
            }
            let fresh = self.take(ring, depth, |write, read| {
                self.load_cold(write);
                read.fill(0);
                raise(write, read);
            });
            // SeqCst: as in `latch`. On failure another reader was first: raise its slot; ours stays
            // in the ring and is evicted like any other.
            if row.compare_exchange(seen, fresh, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                return;
            }
        }
    }

    /// Takes a slot for a row, filled by `fill`, and returns the reference to it.
    fn take(&self, ring: &mut Ring, depth: u32, fill: impl FnOnce(&mut [u64], &mut [u64])) -> u64 {
        let mut latched = None;
        // A hot row keeps its slot for long and would stand in the way of those behind it.
        for _ in 0..ring.slots.len().min(4) {
            let slot = *ring.slots.front().expect("the ring is not empty");
            ring.slots.rotate_left(1);
            let mut candidate = self.latch(slot, None).expect("any generation will do");
            let (write, read) = candidate.vectors();
            if self.is_cold(write) && self.is_cold(read) {
                candidate.generation = (candidate.generation + 1) & u64::from(u32::MAX);
                latched = Some((slot, candidate));
                break;
            }
        }
        let (slot, mut latched) = latched.unwrap_or_else(|| {
            let slot = self.next.fetch_add(1, Ordering::Relaxed);
            assert!((slot as usize) < CHUNKS * CHUNK_SLOTS, "the hot-row table is full");
            ring.slots.push_back(slot);
            (slot, self.latch(slot, None).expect("any generation will do"))
        });
        let (write, read) = latched.vectors();
        fill(write, read);
        latched.chunk.depths[latched.at].store(depth, Ordering::Relaxed);
        latched.generation << 32 | (u64::from(slot) + 1)
    }

    fn is_cold(&self, vector: &[u64]) -> bool {
        // Acquire: a slot's new generation (Release) is published after these loads.
        vector.iter().zip(&self.cold).all(|(lsn, cold)| *lsn <= cold.load(Ordering::Acquire))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn fold(table: &LsnVectorTable, row: &Reference) -> (Vec<u64>, Vec<u64>) {
        let (mut write, mut both) = (vec![0; table.lanes], vec![0; table.lanes]);
        if table.fold(row, &mut write, Some(&mut both)).is_none() {
            table.join_cold(&mut write);
            table.join_cold(&mut both);
        }
        (write, both)
    }

    #[test]
    fn a_row_never_stands_for_less_than_it_had() {
        let table = LsnVectorTable::new(3);
        let mut ring = table.ring();
        let rows: Vec<Reference> = (0..200).map(|_| Reference::new(0)).collect();
        let mut had = vec![(vec![0; 3], vec![0; 3]); rows.len()];
        let mut rng = fastrand::Rng::with_seed(7);
        for step in 1..20_000u64 {
            let at = rng.usize(0..rows.len());
            let mut vector: Vec<u64> = (0..3).map(|_| rng.u64(0..=step)).collect();
            if rng.bool() {
                join(&mut vector, &had[at].0);
                table.set_write(&rows[at], &vector, 1, &mut ring);
                join(&mut had[at].0, &vector);
            } else {
                table.raise_read(&rows[at], &vector, 1, &mut ring);
            }
            join(&mut had[at].1, &vector);
            if step % 50 == 0 {
                table.raise_cold(&[step - 40; 3]);
            }
            let look = rng.usize(0..rows.len());
            let (write, both) = fold(&table, &rows[look]);
            assert!(covers(&write, &had[look].0), "step {step}");
            assert!(covers(&both, &had[look].1), "step {step}");
        }
        assert!(table.slots() < 2000, "slots are used again: {}", table.slots());
    }

    #[test]
    fn a_split_gap_has_what_the_whole_had() {
        let table = LsnVectorTable::new(2);
        let mut ring = table.ring();
        let (from, to) = (Reference::new(0), Reference::new(0));
        table.raise_read(&from, &[5, 9], 3, &mut ring);
        table.inherit(&to, &from, &mut ring);
        assert_eq!(fold(&table, &to).1, vec![5, 9]);
        // A tombstone that was cold leaves a gap that is hot: the gap is raised to the cold vector.
        table.raise_cold(&[7, 7]);
        let gap = Reference::new(0);
        table.raise_read(&gap, &[8, 8], 0, &mut ring);
        let tombstone = Reference::new(0);
        table.raise_cold(&[20, 7]);
        table.inherit(&gap, &tombstone, &mut ring);
        assert!(covers(&fold(&table, &gap).0, &[20, 7]));
    }

    #[test]
    fn readers_raise_together_and_none_is_lost() {
        let table = std::sync::Arc::new(LsnVectorTable::new(2));
        let row = std::sync::Arc::new(Reference::new(0));
        let threads: Vec<_> = (0..4)
            .map(|t| {
                let (table, row) = (table.clone(), row.clone());
                std::thread::spawn(move || {
                    let mut ring = table.ring();
                    for i in 0..500u64 {
                        let mut vector = [0; 2];
                        vector[t % 2] = i * 4 + t as u64;
                        table.raise_read(&row, &vector, 0, &mut ring);
                        table.raise_cold(&[(i * 4).saturating_sub(8); 2]);
                        assert!(covers(&fold(&table, &row).1, &vector));
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
    }
}
