//! The version word of a node: a lock bit, an obsolete bit and a counter.
//!
//! A node's entries *and its key range* change only while its lock is held, and every release
//! after a change steps the counter. So what was read between two equal observations of an
//! unlocked word is a consistent snapshot, and an unchanged word later means an unchanged node.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering, fence};

const LOCKED: u64 = 1;
const OBSOLETE: u64 = 2;
const STEP: u64 = 4;

/// The version that a new node starts with.
pub(super) const FIRST: u64 = STEP;

/// Written by whoever holds the lock bit (taking it is a compare-and-swap), read by everyone.
pub(super) struct Version(AtomicU64);

impl Version {
    pub fn new() -> Self {
        Version(AtomicU64::new(FIRST))
    }

    /// The stable version to read under, or `None` when the node has left the tree. Waits while
    /// another thread holds the lock, so the caller must hold none itself.
    ///
    /// Acquire: what the previous holder wrote before releasing is seen by the reads that follow.
    #[inline]
    pub fn read(&self) -> Option<u64> {
        let word = self.0.load(Ordering::Acquire);
        if word & (LOCKED | OBSOLETE) == 0 { Some(word) } else { self.wait() }
    }

    #[cold]
    fn wait(&self) -> Option<u64> {
        let mut backoff = Backoff::new();
        loop {
            let word = self.0.load(Ordering::Acquire);
            if word & OBSOLETE != 0 {
                return None;
            }
            if word & LOCKED == 0 {
                return Some(word);
            }
            backoff.pause();
        }
    }

    /// As [`Version::read`], but gives up instead of waiting.
    pub fn read_now(&self) -> Option<u64> {
        let word = self.0.load(Ordering::Acquire);
        (word & (LOCKED | OBSOLETE) == 0).then_some(word)
    }

    /// Whether everything read since `observed` was obtained still stands.
    ///
    /// The fence pairs with the one in [`Version::try_lock`]: if any of those reads saw a store of
    /// a later holder, this load sees that holder's lock bit or something newer.
    #[inline]
    pub fn validate(&self, observed: u64) -> bool {
        fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed) == observed
    }

    /// The word as it is now, in the single total order of sequentially consistent operations.
    #[inline]
    pub fn current(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Takes the lock if nothing has changed since `observed`, which so validates all reads made
    /// under it as well.
    ///
    /// Sequentially consistent, so that a gap stamp raised by another thread before it looks at
    /// this word, and read here after this swap, cannot be missed by both.
    #[inline]
    pub fn try_lock(&self, observed: u64) -> bool {
        fence(Ordering::Acquire);
        let locked = self
            .0
            .compare_exchange(observed, observed | LOCKED, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok();
        // No store made under the lock may be seen without the lock bit.
        fence(Ordering::Release);
        locked
    }

    /// Releases the lock taken at `observed` after a change; gives the new version.
    #[inline]
    pub fn unlock_changed(&self, observed: u64) -> u64 {
        self.0.store(observed + STEP, Ordering::Release);
        observed + STEP
    }

    /// Releases the lock taken at `observed` when nothing was written under it.
    pub fn unlock_unchanged(&self, observed: u64) {
        self.0.store(observed, Ordering::Release);
    }

    /// Releases the lock of a node that has left the tree: no later observation is stable.
    pub fn unlock_obsolete(&self, observed: u64) {
        self.0.store((observed + STEP) | OBSOLETE, Ordering::Release);
    }
}

/// Spins shortly, then yields the processor to the thread that is waited for.
pub(in crate::storage) struct Backoff(u32);

impl Backoff {
    pub fn new() -> Self {
        Backoff(0)
    }

    pub fn pause(&mut self) {
        if self.0 < 6 {
            for _ in 0..1 << self.0 {
                std::hint::spin_loop();
            }
            self.0 += 1;
        } else {
            std::thread::yield_now();
        }
    }
}
