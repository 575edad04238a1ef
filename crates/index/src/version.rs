//! The version word of a node: a lock bit, an obsolete bit and a counter.
//!
//! A node's entries *and key range* change only while the node's lock is held, and every release
//! after a change steps the counter. So the data read between two equal observations of an unlocked
//! word is a consistent snapshot, and an unchanged word later means an unchanged node.

#![forbid(unsafe_code)]

use hyades_platform::sync::{AtomicU64, Ordering, fence, spin_hint, yield_now};

const LOCKED: u64 = 1;
const OBSOLETE: u64 = 2;
const STEP: u64 = 4;

/// The first version of a new node.
pub(super) const FIRST: u64 = STEP;

/// A version word. Written under the word's lock bit, set by a compare-and-swap; read by all.
pub(super) struct Version(AtomicU64);

impl Version {
    pub fn new() -> Self {
        Version(AtomicU64::new(FIRST))
    }

    /// The stable version to read under, or `None` when the node has left the tree. Waits while
    /// another thread holds the lock, so the caller must hold none itself.
    ///
    /// Acquire: later reads see the previous holder's writes before the release of the lock.
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

    /// As [`Version::read`], but returns `None` instead of waiting.
    pub fn read_now(&self) -> Option<u64> {
        let word = self.0.load(Ordering::Acquire);
        (word & (LOCKED | OBSOLETE) == 0).then_some(word)
    }

    /// Whether everything read since `observed` was obtained is still valid.
    ///
    /// The fence pairs with the fence in [`Version::try_lock`]: if any validated read saw a store
    /// of a later holder, the load here sees the holder's lock bit or a newer word.
    #[inline]
    pub fn validate(&self, observed: u64) -> bool {
        fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed) == observed
    }

    /// The present word, in the single total order of sequentially consistent operations.
    #[inline]
    pub fn current(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Takes the lock if nothing has changed since `observed`: the success also validates all reads
    /// made under `observed`.
    ///
    /// Sequentially consistent, because another thread may raise a gap stamp and then check the
    /// word, while the holder reads the stamp after the swap: at least one of the two notices the
    /// other.
    #[inline]
    pub fn try_lock(&self, observed: u64) -> bool {
        debug_assert_eq!(observed & (LOCKED | OBSOLETE), 0, "a version is observed when stable");
        fence(Ordering::Acquire);
        let locked = self
            .0
            .compare_exchange(observed, observed | LOCKED, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok();
        // No store made under the lock may be seen without the lock bit.
        fence(Ordering::Release);
        locked
    }

    /// Whether the lock, taken at `observed`, is still held.
    fn is_locked_at(&self, observed: u64) -> bool {
        self.0.load(Ordering::Relaxed) == observed | LOCKED
    }

    /// Releases the lock taken at `observed` after a change; returns the new version.
    #[inline]
    pub fn unlock_changed(&self, observed: u64) -> u64 {
        debug_assert!(self.is_locked_at(observed), "a node is unlocked by the holder of its lock");
        self.0.store(observed + STEP, Ordering::Release);
        observed + STEP
    }

    /// Releases the lock taken at `observed` when nothing was written under the lock.
    pub fn unlock_unchanged(&self, observed: u64) {
        debug_assert!(self.is_locked_at(observed), "a node is unlocked by the holder of its lock");
        self.0.store(observed, Ordering::Release);
    }

    /// Releases the lock of a node removed from the tree: no later observation is stable.
    pub fn unlock_obsolete(&self, observed: u64) {
        debug_assert!(self.is_locked_at(observed), "a node is unlocked by the holder of its lock");
        self.0.store((observed + STEP) | OBSOLETE, Ordering::Release);
    }
}

/// Spins briefly, then yields the processor.
#[derive(Debug, Default)]
pub struct Backoff(u32);

impl Backoff {
    /// Before the first pause.
    pub fn new() -> Self {
        Backoff(0)
    }

    /// Waits, longer with each call.
    pub fn pause(&mut self) {
        if self.0 < 6 {
            for _ in 0..1 << self.0 {
                spin_hint();
            }
            self.0 += 1;
        } else {
            yield_now();
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use hyades_platform::sync::checker_fence;
    use loom::thread;
    use std::sync::Arc;

    /// A node: a version, two fields always changed together, and a gap stamp.
    struct Node {
        version: Version,
        fields: [AtomicU64; 2],
        stamp: AtomicU64,
    }

    fn node() -> Arc<Node> {
        let fields = [AtomicU64::new(0), AtomicU64::new(0)];
        Arc::new(Node { version: Version::new(), fields, stamp: AtomicU64::new(0) })
    }

    fn check(model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(model);
    }

    /// Increments both fields under the lock.
    fn change(node: &Node) {
        loop {
            let Some(seen) = node.version.read() else { return };
            let before = node.fields[0].load(Ordering::Relaxed);
            if node.version.try_lock(seen) {
                node.fields.iter().for_each(|f| f.store(before + 1, Ordering::Relaxed));
                node.version.unlock_changed(seen);
                return;
            }
            yield_now();
        }
    }

    #[test]
    fn what_was_validated_was_read_at_one_moment() {
        check(|| {
            let node = node();
            let writer = {
                let node = Arc::clone(&node);
                thread::spawn(move || (0..2).for_each(|_| change(&node)))
            };
            let seen = node.version.read().expect("it stays");
            let read = [0, 1].map(|at: usize| node.fields[at].load(Ordering::Relaxed));
            if node.version.validate(seen) {
                assert_eq!(read[0], read[1], "half of a change");
            }
            writer.join().unwrap();
        });
    }

    #[test]
    fn of_two_writers_none_overwrites_the_other() {
        check(|| {
            let node = node();
            let other = {
                let node = Arc::clone(&node);
                thread::spawn(move || change(&node))
            };
            change(&node);
            other.join().unwrap();
            assert_eq!(node.fields[0].load(Ordering::Relaxed), 2);
        });
    }

    /// A reader entering a node during the removal waits for the removal, and notices the removal.
    #[test]
    fn a_node_that_has_left_is_not_entered() {
        check(|| {
            let node = node();
            let remover = {
                let node = Arc::clone(&node);
                thread::spawn(move || {
                    let seen = node.version.read().expect("nobody else removes it");
                    assert!(node.version.try_lock(seen), "nobody else locks it");
                    node.fields.iter().for_each(|f| f.store(9, Ordering::Relaxed));
                    node.version.unlock_obsolete(seen);
                })
            };
            if let Some(seen) = node.version.read() {
                let read = node.fields[0].load(Ordering::Relaxed);
                if node.version.validate(seen) {
                    assert_eq!(read, 0, "read after it had left");
                }
            }
            remover.join().unwrap();
            assert!(node.version.read().is_none());
        });
    }

    /// A scan raises a gap's stamp and then checks that the gap is unchanged; an insertion locks
    /// the leaf and then reads the stamp. At least one of the two notices the other.
    #[test]
    fn a_scan_and_an_insertion_never_miss_each_other() {
        check(|| {
            let node = node();
            let scan = {
                let node = Arc::clone(&node);
                thread::spawn(move || {
                    let seen = node.version.read().expect("it stays");
                    node.stamp.fetch_max(5, Ordering::SeqCst);
                    checker_fence();
                    node.version.current() == seen && seen == FIRST
                })
            };
            let seen = node.version.read().expect("it stays");
            assert!(node.version.try_lock(seen));
            checker_fence();
            let stamp = node.stamp.load(Ordering::SeqCst);
            node.version.unlock_changed(seen);
            let valid = scan.join().unwrap();
            assert!(!valid || stamp == 5, "neither has seen the other");
        });
    }
}
