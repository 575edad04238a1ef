//! Deferred freeing of memory that other threads may still be reading.
//!
//! A thread pins with [`pin`] before it follows pointers of a shared structure. Memory that was
//! unlinked from the structure goes through [`retire`], with its size, and is freed once all guards
//! are gone that were pinned at that time. crossbeam-epoch decides when they are gone. By itself it
//! frees at most 512 objects in 128 pins, so a thread that retires more than four objects for each
//! pin would leave the rest in memory for ever.
//!
//! **Bound.** A thread whose outermost guard is dropped *collects* if the thread has retired
//! `DUE_OBJECTS` or `DUE_BYTES` since its last collection. A collection frees up to
//! `FREED_OBJECTS`, and up to twice as many as made it due. So what waits is at most what all
//! threads retire during two lifetimes of the oldest guard, plus `DUE_BYTES` and one collection's
//! objects for each thread. If more than `EASE_BYTES` wait, each thread collects, whether it
//! retires or only reads, and gives the processor to threads that were interrupted while pinned.
//! Loops that visit many rows call [`Guard::refresh`], so that the lifetimes are those of
//! transactions. A transaction that stays pinned for long is found by [`end_long_pins`].
//!
//! The counts are those of the process, as crossbeam-epoch's default collector is: a guard of one
//! database delays the freeing of another one's memory, so only the sum tells what waits for it.

#![allow(unsafe_code)]

use crate::clock;
use crate::sync::Padded;
use std::cell::Cell;
use std::mem::ManuallyDrop;
// Not loom's: the counts steer when memory is freed. Whether it may be freed is decided by
// crossbeam-epoch alone.
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A thread collects after it has retired this many objects, or this many bytes.
const DUE_OBJECTS: u32 = 64;
const DUE_BYTES: u64 = 64 << 10;

/// What the collector keeps for the objects that a thread hands over at once, however few.
const BAG_BYTES: u64 = 2 << 10;

/// The most objects that one call of crossbeam-epoch's `flush` frees: eight bags of 64.
const FREED_OBJECTS: u32 = 512;

/// A thread that has retired this many bytes under one guard hands them over while it is pinned, so
/// that other threads can free them.
const HAND_OVER_BYTES: u64 = 1 << 20;

/// While more bytes than this wait, every thread collects.
const EASE_BYTES: i64 = 8 << 20;

/// While more bytes than this wait, and cannot be freed, threads let others run.
const CROWDED_BYTES: i64 = 32 << 20;

/// Collections in a row that free nothing become rarer, down to one in `1 << MOST_FRUITLESS` pins.
const MOST_FRUITLESS: u32 = 6;

/// A thread adds its own count to the common one when it has changed by this many bytes.
const PUBLISHED_BYTES: i64 = 64 << 10;

/// What the collector itself keeps for an object: its entry in a bag.
const ENTRY_BYTES: usize = 32;

/// Bytes that were retired and not freed, but for up to [`PUBLISHED_BYTES`] of each thread.
/// Relaxed: a count.
static WAITING: Padded<AtomicI64> = Padded(AtomicI64::new(0));

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { threads: Vec::new(), free: Vec::new() });

/// What a thread keeps. Only that thread writes, except for `ended`, and all is Relaxed: these are
/// counts and hints. Kept for ever, and used again by a later thread, so that guards can refer to
/// it. There are as many as there were threads at a time.
#[derive(Debug, Default)]
struct ThreadState {
    /// Number of the outermost pin times two, plus one while pinned.
    pins: AtomicU64,
    /// The value of `pins` of a pin that has to end. Written by any thread.
    ended: AtomicU64,
    depth: AtomicU32,
    /// Number of objects retired.
    retired: AtomicU64,
    /// Retired since the last collection.
    due_objects: AtomicU32,
    due_bytes: AtomicU64,
    /// Bytes retired, less those freed, that are not in [`WAITING`] yet.
    unpublished: AtomicI64,
    /// Collections in a row that have freed nothing, and unpins until the next one.
    fruitless: AtomicU32,
    skips: AtomicU32,
}

/// The states of all threads.
struct Registry {
    threads: Vec<Watched>,
    free: Vec<&'static Padded<ThreadState>>,
}

/// A thread, and the pin that was last seen there.
struct Watched {
    state: &'static Padded<ThreadState>,
    pins: u64,
    since_ns: u64,
}

/// The calling thread's state, which another thread may use after it.
struct Owned(&'static Padded<ThreadState>);

thread_local! {
    static OWNED: Owned = Owned(registry().state());
    /// What [`OWNED`] has, once there is one and until the thread ends. Read at each pin: without a
    /// destructor, and so without a look at what has become of the variable.
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

    /// The pins that were there when they were last looked at, with the time since then.
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
        // A guard that is dropped after this, by a later destructor of the thread, has the state
        // still: it counts down what it has counted up.
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

    /// Returns whether it was the outermost guard.
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

    /// Whether the thread, which holds no guard, should collect.
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

    /// Frees some of what no thread can be reading. The thread holds no guard.
    #[cold]
    fn collect(&self) {
        let objects = self.due_objects.load(Ordering::Relaxed);
        let has_bag =
            objects >= DUE_OBJECTS || self.due_bytes.load(Ordering::Relaxed) >= 2 * BAG_BYTES;
        let skips = self.skips.load(Ordering::Relaxed);
        if !has_bag && skips > 0 {
            return self.skips.store(skips - 1, Ordering::Relaxed);
        }
        // Twice as many as were retired: what a guard has kept is made up for.
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
        let fruitless = self.fruitless.load(Ordering::Relaxed);
        let fruitless = if after < before { 0 } else { (fruitless + 1).min(MOST_FRUITLESS) };
        self.fruitless.store(fruitless, Ordering::Relaxed);
        // A few objects are not worth a bag each time.
        let skips = if objects > 0 && !has_bag { DUE_OBJECTS } else { 1 << fruitless };
        self.skips.store(skips - 1, Ordering::Relaxed);
        if after > CROWDED_BYTES && after >= before {
            // Threads that were interrupted while pinned get on.
            std::thread::yield_now();
        }
    }

    fn flush(&self) {
        crossbeam_epoch::pin().flush();
        self.forget_due();
        self.publish();
    }
}

/// Keeps the thread pinned: what can be reached while it lives is not freed before it is dropped.
#[derive(Debug)]
pub struct Guard {
    inner: ManuallyDrop<crossbeam_epoch::Guard>,
    /// `None` if the thread was ending when it pinned.
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

/// Pins the calling thread for a transaction that can be ended, see [`Guard::must_end`].
#[inline]
pub fn pin_endable() -> Guard {
    let mut guard = pin();
    guard.may_end = true;
    guard
}

impl Guard {
    /// Unpins for a moment, so that what others have unlinked can be freed, and collects if that is
    /// due. Nothing that was reached under the guard may be used afterwards, which the exclusive
    /// borrow ensures. Without effect while the thread holds another guard.
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
        // SAFETY: `write` replaces the guard without a drop, and nothing panics before it.
        unsafe {
            self.unpin();
            std::ptr::write(self, pin());
        }
    }

    /// Whether the thread has been pinned for so long that its transaction has to end, see
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
        // SAFETY: by the contract it is dropped once.
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
        // SAFETY: it is being dropped.
        unsafe { self.unpin() };
    }
}

/// Calls `free` once every guard is gone that is pinned now. `free` frees `bytes` bytes, roughly,
/// and does not pin: a thread that ends frees too, and would register anew for each pin.
///
/// # Safety
/// No guard that is pinned from now on reaches what `free` frees; it may run on any thread, and
/// after everything that it borrows has ended.
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

/// Bytes that were retired and are not freed, in the whole process, but for 64 KiB of each thread.
#[inline]
pub fn waiting_bytes() -> u64 {
    u64::try_from(WAITING.load(Ordering::Relaxed)).unwrap_or(0)
}

/// Number of objects that the calling thread, and those that had its place before, have retired.
pub fn retired_here() -> u64 {
    own_state().map_or(0, |state| state.retired.load(Ordering::Relaxed))
}

/// Frees what can be freed now; without effect while the thread holds a guard. What a guard of
/// another thread keeps stays, and up to 64 objects and 64 KiB that each other thread has not
/// handed over.
pub fn settle() {
    let Some(state) = own_state() else { return };
    if state.depth.load(Ordering::Relaxed) > 0 {
        return;
    }
    // An object is freed two steps of the epoch after it was retired, and each round makes a step
    // if no thread is pinned; the next round frees.
    let mut fruitless = 0;
    while fruitless < 16 {
        let before = WAITING.load(Ordering::Relaxed);
        state.flush();
        let has_freed = WAITING.load(Ordering::Relaxed) < before;
        fruitless = if has_freed { 0 } else { fruitless + 1 };
    }
}

/// How long the thread that has been pinned longest has been so: at least this time, since a pin is
/// seen only when this or [`end_long_pins`] is called.
pub fn oldest_pin() -> Duration {
    registry().pins().map(|(_, _, age)| age).max().unwrap_or_default()
}

/// Tells transactions that have been pinned for longer than `limit` to end ([`Guard::must_end`]).
/// Returns the age of the oldest pin, as [`oldest_pin`] does.
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

/// Frees what can be freed when it is dropped: the last field of a structure that retires memory.
#[derive(Debug, Default)]
pub struct SettleOnDrop;

impl Drop for SettleOnDrop {
    fn drop(&mut self) {
        settle();
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
