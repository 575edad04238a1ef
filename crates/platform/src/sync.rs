//! Atomics and threads for the lock-free parts: the standard library's, or loom's when the crate is
//! built with `--cfg loom`, so the same code runs under the schedule checker.

#[cfg(not(loom))]
pub use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence, fence,
};
#[cfg(not(loom))]
pub use std::sync::{Arc, Mutex, MutexGuard, RwLock};

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(loom)]
pub use loom::sync::{Arc, Mutex, MutexGuard, RwLock};

/// A value alone on its cache lines.
///
/// Two lines of 64 bytes, because the adjacent-line prefetcher of common processors fetches in
/// pairs: with a single line two streams' counters would still bounce together.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Padded<T>(pub T);

impl<T> std::ops::Deref for Padded<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// The result of a lock whose holders do not panic.
pub trait Unpoisoned<T> {
    /// The guard, or the value.
    ///
    /// # Panics
    /// A holder of the lock has panicked: the protected data may be half changed.
    #[track_caller]
    fn unpoisoned(self) -> T;
}

impl<T> Unpoisoned<T> for std::sync::LockResult<T> {
    #[inline]
    fn unpoisoned(self) -> T {
        self.expect("no holder panics")
    }
}

/// Locks a mutex whose critical sections leave the data whole after a panic: poisoning is ignored.
pub fn locked<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// Gives the processor to another thread, or to the schedule checker.
pub fn yield_now() {
    #[cfg(not(loom))]
    std::thread::yield_now();
    #[cfg(loom)]
    loom::thread::yield_now();
}

/// A SeqCst fence under the schedule checker, otherwise nothing. The checker treats SeqCst
/// operations as AcqRel and has the single total order only for fences. Used between the two halves
/// of Dekker's pattern where the halves are SeqCst operations.
#[inline(always)]
pub fn checker_fence() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

/// Tells the processor about a short wait in a loop.
#[inline]
pub fn spin_hint() {
    #[cfg(not(loom))]
    std::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
}
