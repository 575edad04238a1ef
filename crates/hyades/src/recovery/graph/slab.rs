//! Numbered objects that many threads use again and again, without a lock for each object: a thread
//! takes what it gave back before, and threads exchange objects in batches.

use hyades_platform::sync::{AtomicU32, Mutex, Ordering, Unpoisoned};
use std::sync::OnceLock;

/// Objects of the first chunk; each further chunk has twice as many.
const FIRST: u32 = if cfg!(loom) { 4 } else { 1 << 10 };
const CHUNKS: usize = 21;

/// Objects exchanged between threads at once.
const BATCH: u32 = if cfg!(loom) { 1 } else { 64 };

pub(super) struct Slab<O> {
    chunks: [OnceLock<Box<[O]>>; CHUNKS],
    /// The lowest number never used; 0 is no object.
    next: AtomicU32,
    /// Numbers given back by threads that had too many.
    spare: Mutex<Vec<u32>>,
}

impl<O> Default for Slab<O> {
    fn default() -> Self {
        Slab {
            chunks: std::array::from_fn(|_| OnceLock::new()),
            next: AtomicU32::new(1),
            spare: Mutex::new(Vec::new()),
        }
    }
}

impl<O: Default> Slab<O> {
    pub fn get(&self, number: u32) -> &O {
        let chunk = (number / FIRST + 1).ilog2();
        let size = FIRST << chunk;
        let objects =
            self.chunks[chunk as usize].get_or_init(|| (0..size).map(|_| O::default()).collect());
        &objects[(number + FIRST - size) as usize]
    }

    /// Takes an unused object. `free`: the unused objects of the thread.
    pub fn take(&self, free: &mut Vec<u32>) -> u32 {
        free.pop().unwrap_or_else(|| self.refill(free))
    }

    #[cold]
    fn refill(&self, free: &mut Vec<u32>) -> u32 {
        {
            let mut spare = self.spare.lock().unpoisoned();
            let from = spare.len().saturating_sub(BATCH as usize);
            free.extend(spare.drain(from..));
        }
        free.pop().unwrap_or_else(|| {
            let first = self.next.fetch_add(BATCH, Ordering::Relaxed);
            free.extend((first + 1..first + BATCH).rev());
            first
        })
    }

    /// Gives an object back. No thread uses the object any more.
    pub fn give(&self, number: u32, free: &mut Vec<u32>) {
        free.push(number);
        if free.len() >= 4 * BATCH as usize {
            let from = free.len() - 2 * BATCH as usize;
            self.spare.lock().unpoisoned().extend(free.drain(from..));
        }
    }
}

/// A value that one thread puts in and another takes out.
pub(super) struct Handover<T>(cell::UnsafeCell<Option<T>>);

// SAFETY: the callers of `put` and `take` keep their accesses apart, and values are sent from the
// first to the second.
unsafe impl<T: Send> Sync for Handover<T> {}

impl<T> Default for Handover<T> {
    fn default() -> Self {
        Handover(cell::UnsafeCell::new(None))
    }
}

impl<T> Handover<T> {
    /// Puts a value in.
    ///
    /// # Safety
    /// No other access happens at the same time.
    pub unsafe fn put(&self, value: T) {
        // SAFETY: by the contract this is the only access.
        self.0.with_mut(|at| unsafe { *at = Some(value) });
    }

    /// Takes the value out; once only.
    ///
    /// # Safety
    /// As for [`Handover::put`].
    pub unsafe fn take(&self) -> T {
        // SAFETY: by the contract this is the only access.
        let value = self.0.with_mut(|at| unsafe { (*at).take() });
        value.expect("a value is put in before it is taken")
    }
}

#[cfg(loom)]
use loom::cell;

/// The cell of the standard library, with the names of the checker's.
#[cfg(not(loom))]
mod cell {
    pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub fn new(value: T) -> Self {
            UnsafeCell(std::cell::UnsafeCell::new(value))
        }

        pub fn with_mut<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
            access(self.0.get())
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn each_number_has_an_object_of_its_own() {
        let slab: Slab<AtomicU64> = Slab::default();
        let mut free = Vec::new();
        let taken: Vec<u32> = (0..10 * FIRST).map(|_| slab.take(&mut free)).collect();
        assert_eq!(taken.iter().collect::<HashSet<_>>().len(), taken.len());
        let set = |number: &u32| slab.get(*number).store(u64::from(*number), Ordering::Relaxed);
        taken.iter().for_each(set);
        for number in &taken {
            assert_eq!(slab.get(*number).load(Ordering::Relaxed), u64::from(*number));
        }
        let highest = taken.iter().copied().max();
        taken.into_iter().for_each(|number| slab.give(number, &mut free));
        // Another thread takes what this thread has given back.
        let mut other = Vec::new();
        let again = (0..5 * FIRST).map(|_| slab.take(&mut other)).max();
        assert!(again <= highest, "objects are used again");
    }
}
