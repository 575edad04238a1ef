//! Keeps the threads that replay records apart from the removal of garbage, without a lock for each
//! record: every thread writes a flag of its own.

use hyades_platform::sync::{AtomicBool, Ordering, Padded, checker_fence, yield_now};

/// The threads of a replay. A thread sets its flag and then looks for a pause; a pause is announced
/// and then looks for flags. All four SeqCst: one of the two notices the other.
pub(crate) struct Pauses {
    is_paused: AtomicBool,
    running: Box<[Padded<AtomicBool>]>,
}

/// A thread that replays records. The drop ends the replay, even if a procedure panics.
pub(crate) struct RunningThread<'p> {
    flag: &'p AtomicBool,
}

impl Drop for RunningThread<'_> {
    fn drop(&mut self) {
        self.flag.store(false, Ordering::Release);
    }
}

/// No thread replays records.
pub(crate) struct Paused<'p>(&'p Pauses);

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        self.0.is_paused.store(false, Ordering::Release);
    }
}

impl Pauses {
    pub fn new(threads: usize) -> Pauses {
        let running = (0..threads).map(|_| Padded(AtomicBool::new(false))).collect();
        Pauses { is_paused: AtomicBool::new(false), running }
    }

    /// Lets the thread with this number replay records until the drop; waits for the end of a
    /// pause.
    pub fn run(&self, thread: usize) -> RunningThread<'_> {
        let flag = &self.running[thread].0;
        loop {
            flag.store(true, Ordering::SeqCst);
            checker_fence();
            if !self.is_paused.load(Ordering::SeqCst) {
                return RunningThread { flag };
            }
            flag.store(false, Ordering::Release);
            while self.is_paused.load(Ordering::Acquire) {
                yield_now();
            }
        }
    }

    /// Waits until no thread replays records, and keeps threads from it until the drop. The caller
    /// replays no records. One thread at a time may call.
    pub fn pause(&self) -> Paused<'_> {
        let was = self.is_paused.swap(true, Ordering::SeqCst);
        debug_assert!(!was, "one thread pauses the others at a time");
        checker_fence();
        for running in &self.running {
            while running.load(Ordering::SeqCst) {
                yield_now();
            }
        }
        Paused(self)
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    /// The garbage of two threads; the checker finds accesses that race.
    struct Shared {
        pauses: Pauses,
        garbage: UnsafeCell<u32>,
    }

    // SAFETY: the checker reports every access that `pauses` does not keep apart from another.
    unsafe impl Sync for Shared {}
    // SAFETY: as above.
    unsafe impl Send for Shared {}

    #[test]
    fn no_record_is_replayed_during_a_pause() {
        loom::model(|| {
            let shared = Arc::new(Shared { pauses: Pauses::new(1), garbage: UnsafeCell::new(0) });
            let other = Arc::clone(&shared);
            let thread = thread::spawn(move || {
                for _ in 0..2 {
                    let _running = other.pauses.run(0);
                    // SAFETY: see `Shared`.
                    other.garbage.with(|read| unsafe { std::ptr::read(read) });
                }
            });
            let paused = shared.pauses.pause();
            // SAFETY: see `Shared`.
            shared.garbage.with_mut(|write| unsafe { *write += 1 });
            drop(paused);
            thread.join().unwrap();
        });
    }
}
