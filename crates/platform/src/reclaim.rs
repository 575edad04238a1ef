//! Deferred freeing of memory that other threads may still be reading.
//!
//! A thread pins with [`pin`] before following pointers of a shared structure. Memory unlinked from
//! the structure goes through [`retire`], with its size, and is freed once all guards pinned at the
//! time are gone. crossbeam-epoch decides when the guards are gone. By itself crossbeam-epoch frees
//! at most 512 objects in 128 pins, so a thread with more than four retired objects for each pin
//! would leave the rest in memory for ever.
//!
//! **Bound.** A thread *collects* at the drop of its outermost guard if the thread has retired
//! `DUE_OBJECTS` or `DUE_BYTES` since its last collection. A collection frees up to
//! `FREED_OBJECTS`, and up to twice as many objects as made the collection due. So the waiting
//! memory is at most the memory retired by all threads during two lifetimes of the oldest guard,
//! plus `DUE_BYTES` and one collection's objects for each thread. If more than `EASE_BYTES` wait,
//! each thread collects, whether the thread retires or only reads. While more than `CROWDED_BYTES`
//! wait, a collecting thread gives the processor to threads interrupted while pinned, up to
//! `MOST_YIELDS` times. Loops over many rows call [`Guard::refresh`], so the lifetimes are the
//! lifetimes of transactions. A transaction pinned for long is found by [`end_long_pins`].
//!
//! The counts are per process, like crossbeam-epoch's default collector: a guard of a database
//! delays the freeing of another database's memory, so only the sum tells the memory held back by a
//! guard.

#![allow(unsafe_code)]

use crate::clock;
use crate::sync::Padded;
use std::cell::Cell;
use std::mem::ManuallyDrop;
// Not loom's: the counts steer the time of freeing. The permission to free is decided by
// crossbeam-epoch alone.
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The number of retired objects, or of retired bytes, that makes a collection due.
const DUE_OBJECTS: u32 = 64;
const DUE_BYTES: u64 = 64 << 10;

/// The collector's own memory for the objects that a thread hands over at once, however few.
const BAG_BYTES: u64 = 2 << 10;

/// The most objects freed by a call of crossbeam-epoch's `flush`: eight bags of 64.
const FREED_OBJECTS: u32 = 512;

/// The bytes retired under one guard at which a thread hands the memory over while pinned, so other
/// threads can free the memory.
const HAND_OVER_BYTES: u64 = 1 << 20;

/// The waiting bytes above which every thread collects.
const EASE_BYTES: i64 = 8 << 20;

/// The waiting bytes above which, if not freeable, threads let other threads run, and how often in
/// a collection at most.
const CROWDED_BYTES: i64 = 16 << 20;
const MOST_YIELDS: u32 = 32;

/// Fruitless collections in a row become rarer, down to a collection in `1 << MOST_FRUITLESS` pins.
const MOST_FRUITLESS: u32 = 6;

/// The change in bytes at which a thread adds its own count to the common count.
const PUBLISHED_BYTES: i64 = 64 << 10;

/// The collector's own memory for an object: an entry in a bag.
const ENTRY_BYTES: usize = 32;

/// Bytes retired and not freed, but for up to [`PUBLISHED_BYTES`] of each thread. Relaxed: a count.
static WAITING: Padded<AtomicI64> = Padded(AtomicI64::new(0));

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { threads: Vec::new(), free: Vec::new() });

/// The state of a thread. Written only by the thread, except for `ended`, and all is Relaxed:
/// counts and hints. Kept for ever, and reused by a later thread, so guards can refer to the state.
/// There are as many states as the most threads at the same time so far.
#[derive(Debug, Default)]
struct ThreadState {
    /// Number of the outermost pin times two, plus one while pinned.
    pins: AtomicU64,
    /// The value of `pins` of a pin due to end. Written by any thread.
    ended: AtomicU64,
    depth: AtomicU32,
    /// Number of objects retired.
    retired: AtomicU64,
    /// Retired since the last collection.
    due_objects: AtomicU32,
    due_bytes: AtomicU64,
    /// Bytes retired, less bytes freed, not in [`WAITING`] yet.
    unpublished: AtomicI64,
    /// Fruitless collections in a row, and unpins until the next collection.
    fruitless: AtomicU32,
    skips: AtomicU32,
}

/// The states of all threads.
struct Registry {
    threads: Vec<Watched>,
    free: Vec<&'static Padded<ThreadState>>,
}

/// A thread, and its pin last seen.
struct Watched {
    state: &'static Padded<ThreadState>,
    pins: u64,
    since_ns: u64,
}

/// The calling thread's state, reused by another thread afterwards.
struct Owned(&'static Padded<ThreadState>);

thread_local! {
    static OWNED: Owned = Owned(registry().state());
    /// The content of [`OWNED`], from its creation to the thread's end. Read at each pin: without a
    /// destructor, and so without a look at the variable's state.
    static OWN_STATE: Cell<Option<&'static ThreadState>> = const { Cell::new(None) };
}

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The calling thread's state; `None` while the thread ends.
#[inline]
fn own_state() -> Option<&'static ThreadState> {
    OWN_STATE.get().or_else(first_own_state)
}

#[cold]
fn first_own_state() -> Option<&'static ThreadState> {
    let state = OWNED.try_with(|owned| &**owned.0).ok();
    OWN_STATE.set(state);
    state
}

impl Registry {
    fn state(&mut self) -> &'static Padded<ThreadState> {
        self.free.pop().unwrap_or_else(|| {
            let state: &'static Padded<ThreadState> = Box::leak(Box::default());
            self.threads.push(Watched { state, pins: 0, since_ns: 0 });
            state
        })
    }

    /// The present pins, each with the time since the look that first found the pin.
    fn pins(&mut self) -> impl Iterator<Item = (&'static ThreadState, u64, Duration)> {
        let now = clock::monotonic_ns();
        self.threads.iter_mut().filter_map(move |thread| {
            let pins = thread.state.pins.load(Ordering::Relaxed);
            if pins != thread.pins {
                (thread.pins, thread.since_ns) = (pins, now);
            }
            let age = Duration::from_nanos(now.saturating_sub(thread.since_ns));
            (pins % 2 == 1).then_some((&**thread.state, pins, age))
        })
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        OWN_STATE.set(None);
        self.0.publish();
        // A guard dropped afterwards, by a later destructor of the thread, still has the state: the
        // guard counts down its own count.
        registry().free.push(self.0);
    }
}

impl ThreadState {
    #[inline]
    fn add(counter: &AtomicU64, by: u64) -> u64 {
        let sum = counter.load(Ordering::Relaxed) + by;
        counter.store(sum, Ordering::Relaxed);
        sum
    }

    #[inline]
    fn enter(&self) {
        let depth = self.depth.load(Ordering::Relaxed);
        self.depth.store(depth + 1, Ordering::Relaxed);
        if depth == 0 {
            Self::add(&self.pins, 1);
        }
    }

    /// Returns whether the guard was the outermost.
    #[inline]
    fn leave(&self) -> bool {
        let depth = self.depth.load(Ordering::Relaxed) - 1;
        self.depth.store(depth, Ordering::Relaxed);
        if depth == 0 {
            Self::add(&self.pins, 1);
        }
        depth == 0
    }

    #[inline]
    fn count(&self, bytes: i64) {
        let sum = self.unpublished.load(Ordering::Relaxed) + bytes;
        self.unpublished.store(sum, Ordering::Relaxed);
        if sum.abs() >= PUBLISHED_BYTES {
            self.publish();
        }
    }

    fn publish(&self) {
        let sum = self.unpublished.load(Ordering::Relaxed);
        self.unpublished.store(0, Ordering::Relaxed);
        WAITING.fetch_add(sum, Ordering::Relaxed);
    }

    /// Whether the thread should collect. The thread holds no guard.
    #[inline]
    fn is_due(&self) -> bool {
        self.due_objects.load(Ordering::Relaxed) >= DUE_OBJECTS
            || self.due_bytes.load(Ordering::Relaxed) >= DUE_BYTES
            || WAITING.load(Ordering::Relaxed) > EASE_BYTES
    }

    fn forget_due(&self) {
        self.due_objects.store(0, Ordering::Relaxed);
        self.due_bytes.store(0, Ordering::Relaxed);
    }

    /// Frees some of the memory no longer readable. The thread holds no guard.
    #[cold]
    fn collect(&self) {
        let objects = self.due_objects.load(Ordering::Relaxed);
        let has_bag =
            objects >= DUE_OBJECTS || self.due_bytes.load(Ordering::Relaxed) >= 2 * BAG_BYTES;
        let skips = self.skips.load(Ordering::Relaxed);
        if !has_bag && skips > 0 {
            return self.skips.store(skips - 1, Ordering::Relaxed);
        }
        // Twice the number retired: this makes up for memory kept by a guard.
        let rounds = 1 + 2 * objects / FREED_OBJECTS;
        let before = WAITING.load(Ordering::Relaxed);
        let mut after = before;
        for _ in 0..rounds {
            let last = after;
            self.flush();
            after = WAITING.load(Ordering::Relaxed);
            if after >= last {
                break;
            }
        }
        // Threads interrupted while pinned get on.
        for _ in 0..MOST_YIELDS {
            if after <= CROWDED_BYTES {
                break;
            }
            std::thread::yield_now();
            self.flush();
            after = WAITING.load(Ordering::Relaxed);
        }
        let fruitless = self.fruitless.load(Ordering::Relaxed);
        let fruitless = if after < before { 0 } else { (fruitless + 1).min(MOST_FRUITLESS) };
        self.fruitless.store(fruitless, Ordering::Relaxed);
        // A few objects are not worth a bag each time.
        let skips = if objects > 0 && !has_bag { DUE_OBJECTS } else { 1 << fruitless };
        self.skips.store(skips - 1, Ordering::Relaxed);
    }

    fn flush(&self) {
        crossbeam_epoch::pin().flush();
        self.forget_due();
        self.publish();
    }
}

/// Keeps the thread pinned: memory reachable during the guard's life is not freed before its drop.
#[derive(Debug)]
pub struct Guard {
    inner: ManuallyDrop<crossbeam_epoch::Guard>,
    /// `None` if the thread was ending at the pin.
    state: Option<&'static ThreadState>,
    may_end: bool,
}

/// Pins the calling thread. Guards may be nested.
#[inline]
pub fn pin() -> Guard {
    let state = own_state();
    if let Some(state) = state {
        state.enter();
    }
    Guard { inner: ManuallyDrop::new(crossbeam_epoch::pin()), state, may_end: false }
}

/// Pins the calling thread for an endable transaction, see [`Guard::must_end`].
#[inline]
pub fn pin_endable() -> Guard {
    let mut guard = pin();
    guard.may_end = true;
    guard
}

impl Guard {
    /// Unpins for a moment, so memory unlinked by other threads can be freed, and collects if due.
    /// Nothing reached under the guard may be used afterwards; the exclusive borrow ensures this.
    /// Without effect while the thread holds another guard.
    #[inline]
    pub fn refresh(&mut self) {
        let Some(state) = self.state else { return self.inner.repin() };
        if state.depth.load(Ordering::Relaxed) > 1 {
            return;
        }
        if !state.is_due() {
            ThreadState::add(&state.pins, 2);
            return self.inner.repin();
        }
        // SAFETY: `write` replaces the guard without a drop, and nothing panics before `write`.
        unsafe {
            self.unpin();
            std::ptr::write(self, pin());
        }
    }

    /// Whether the transaction has to end because of a long pin of the thread, see
    /// [`end_long_pins`]. Always false for guards of [`pin`].
    #[inline]
    pub fn must_end(&self) -> bool {
        self.may_end
            && self.state.is_some_and(|state| {
                state.ended.load(Ordering::Relaxed) == state.pins.load(Ordering::Relaxed)
            })
    }

    /// # Safety
    /// The guard is not used again, nor dropped.
    #[inline]
    unsafe fn unpin(&mut self) {
        let is_outermost = self.state.is_some_and(ThreadState::leave);
        // SAFETY: by the contract the guard is dropped once.
        unsafe { ManuallyDrop::drop(&mut self.inner) };
        if let Some(state) = self.state
            && is_outermost
            && state.is_due()
        {
            state.collect();
        }
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard is being dropped.
        unsafe { self.unpin() };
    }
}

/// Calls `free` once every guard pinned now is gone. `free` frees `bytes` bytes, roughly, and does
/// not pin: an ending thread frees too, and would register anew for each pin.
///
/// # Safety
/// No guard pinned from now on reaches the memory freed by `free`; `free` may run on any thread,
/// and after everything borrowed by `free` has ended.
#[inline]
pub unsafe fn retire(guard: &Guard, bytes: usize, free: impl FnOnce()) {
    let bytes = bytes + ENTRY_BYTES;
    let free_and_count = move || {
        free();
        match own_state() {
            Some(state) => state.count(-(bytes as i64)),
            None => _ = WAITING.fetch_sub(bytes as i64, Ordering::Relaxed),
        }
    };
    // SAFETY: by the contract.
    unsafe { guard.inner.defer_unchecked(free_and_count) };
    let Some(state) = guard.state else {
        WAITING.fetch_add(bytes as i64, Ordering::Relaxed);
        return;
    };
    state.count(bytes as i64);
    ThreadState::add(&state.retired, 1);
    let objects = state.due_objects.load(Ordering::Relaxed) + 1;
    state.due_objects.store(objects, Ordering::Relaxed);
    if ThreadState::add(&state.due_bytes, bytes as u64) >= HAND_OVER_BYTES {
        guard.inner.flush();
        state.due_bytes.store(0, Ordering::Relaxed);
    }
}

/// Returns the bytes retired and not freed, in the whole process, but for 64 KiB of each thread.
#[inline]
pub fn waiting_bytes() -> u64 {
    u64::try_from(WAITING.load(Ordering::Relaxed)).unwrap_or(0)
}

/// Returns the number of objects retired by the calling thread, and by earlier threads with its
/// state.
pub fn retired_here() -> u64 {
    own_state().map_or(0, |state| state.retired.load(Ordering::Relaxed))
}

/// Frees all memory freeable now; without effect while the thread holds a guard. Memory kept by a
/// guard of another thread stays, and up to 64 objects and 64 KiB not yet handed over by each other
/// thread.
pub fn settle() {
    let Some(state) = own_state() else { return };
    if state.depth.load(Ordering::Relaxed) > 0 {
        return;
    }
    // An object is freed two steps of the epoch after its retirement, and each round makes a step
    // if no thread is pinned; the next round frees.
    let mut fruitless = 0;
    while fruitless < 16 {
        let before = WAITING.load(Ordering::Relaxed);
        state.flush();
        let has_freed = WAITING.load(Ordering::Relaxed) < before;
        fruitless = if has_freed { 0 } else { fruitless + 1 };
    }
}

/// Returns the age of the oldest pin: a lower bound, since a pin is seen only in calls of
/// `oldest_pin` and [`end_long_pins`].
pub fn oldest_pin() -> Duration {
    registry().pins().map(|(_, _, age)| age).max().unwrap_or_default()
}

/// Tells transactions pinned for longer than `limit` to end ([`Guard::must_end`]). Returns the age
/// of the oldest pin, like [`oldest_pin`].
pub fn end_long_pins(limit: Duration) -> Duration {
    let mut oldest = Duration::ZERO;
    for (thread, pins, age) in registry().pins() {
        if age > limit {
            thread.ended.store(pins, Ordering::Relaxed);
        }
        oldest = oldest.max(age);
    }
    oldest
}

/// Frees all freeable memory on drop: the last field of a structure with retired memory.
#[derive(Debug, Default)]
pub struct SettleOnDrop;

impl Drop for SettleOnDrop {
    fn drop(&mut self) {
        settle();
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
