//! Threads that stay between the rounds of a follower, and run closures that borrow.
#![allow(unsafe_code)]

use hyades_platform::sync::Unpoisoned;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

/// The closure of a call, called by each thread with its number.
type Work<'w> = dyn Fn(usize) + Sync + 'w;

/// A closure that lives until its call returns.
#[derive(Clone, Copy)]
struct BorrowedWork(*const Work<'static>);

// SAFETY: the closure is `Sync`: a shared reference may be used on any thread.
unsafe impl Send for BorrowedWork {}

impl BorrowedWork {
    fn of(work: &Work<'_>) -> BorrowedWork {
        let work = std::ptr::from_ref(work);
        // SAFETY: only the lifetime changes, and the pointer is followed only while the call goes
        // on, for which `work` is borrowed.
        BorrowedWork(unsafe { std::mem::transmute::<*const Work<'_>, *const Work<'static>>(work) })
    }

    /// # Safety
    /// The call has not returned.
    unsafe fn run(self, number: usize) {
        // SAFETY: the closure is borrowed until the call returns.
        unsafe { (*self.0)(number) }
    }
}

#[derive(Default)]
struct Calls {
    /// The number of calls so far, and the closure of the last one.
    begun: u64,
    work: Option<BorrowedWork>,
    /// The numbers of the threads of the call are below this.
    threads: usize,
    /// Threads of the call, without the caller, that have not ended.
    running: usize,
    closed: bool,
}

#[derive(Default)]
struct CallBoard {
    calls: Mutex<Calls>,
    begun: Condvar,
    ended: Condvar,
}

impl CallBoard {
    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unpoisoned()
    }

    /// Takes part in each call, until closed.
    fn serve(&self, number: usize) {
        let mut seen = 0;
        loop {
            let mut calls = self.calls();
            while calls.begun == seen && !calls.closed {
                calls = self.begun.wait(calls).unpoisoned();
            }
            if calls.closed {
                return;
            }
            seen = calls.begun;
            let Some(work) = calls.work.filter(|_| number < calls.threads) else { continue };
            drop(calls);
            // SAFETY: this thread is counted in `running`, for which the call waits.
            let _ = catch_unwind(AssertUnwindSafe(|| unsafe { work.run(number) }));
            let mut calls = self.calls();
            calls.running -= 1;
            if calls.running == 0 {
                self.ended.notify_all();
            }
        }
    }
}

/// Waits on drop until no other thread runs the closure of a call.
struct EndOfCall<'b>(&'b CallBoard);

impl Drop for EndOfCall<'_> {
    fn drop(&mut self) {
        let mut calls = self.0.calls();
        while calls.running > 0 {
            calls = self.0.ended.wait(calls).unpoisoned();
        }
        calls.work = None;
    }
}

/// See the module.
pub(crate) struct StandingThreads {
    board: Arc<CallBoard>,
    threads: Vec<JoinHandle<()>>,
    /// Held during a call.
    calling: Mutex<()>,
}

impl StandingThreads {
    /// Starts threads for calls of up to `threads` threads, the caller included.
    pub fn new(threads: usize) -> StandingThreads {
        let board = Arc::<CallBoard>::default();
        let start = |number: usize| {
            let board = Arc::clone(&board);
            let named = std::thread::Builder::new().name(format!("replay {number}"));
            named.spawn(move || board.serve(number)).expect("a thread can be started")
        };
        let threads = (1..threads).map(start).collect();
        StandingThreads { board, threads, calling: Mutex::new(()) }
    }

    /// Calls `work` on `threads` threads, the caller included, each with its own number. Returns
    /// once all of them have ended.
    pub fn run(&self, threads: usize, work: &Work<'_>) {
        let calling = self.calling.lock().unpoisoned();
        let threads = threads.min(self.threads.len() + 1);
        let mut calls = self.board.calls();
        debug_assert_eq!(calls.running, 0, "a call waits for its threads");
        calls.begun += 1;
        (calls.work, calls.threads) = (Some(BorrowedWork::of(work)), threads);
        calls.running = threads.saturating_sub(1);
        drop(calls);
        self.board.begun.notify_all();
        // Whatever happens here, the call waits for the other threads.
        let end = EndOfCall(&self.board);
        let ended = catch_unwind(AssertUnwindSafe(|| work(0)));
        drop(end);
        drop(calling);
        ended.unwrap_or_else(|panic| resume_unwind(panic));
    }
}

impl Drop for StandingThreads {
    fn drop(&mut self) {
        self.board.calls().closed = true;
        self.board.begun.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn each_call_runs_on_its_threads_and_returns_when_they_have_ended() {
        let standing = StandingThreads::new(4);
        for call in 0..200 {
            let threads = call % 5 + 1;
            let ran: Vec<AtomicUsize> = (0..4).map(|_| AtomicUsize::new(0)).collect();
            standing.run(threads, &|number| {
                if call % 7 == 0 {
                    std::thread::yield_now();
                }
                ran[number].fetch_add(1, Ordering::Relaxed);
            });
            let ran: Vec<_> = ran.into_iter().map(AtomicUsize::into_inner).collect();
            let expected: Vec<_> = (0..4).map(|number| usize::from(number < threads)).collect();
            assert_eq!(ran, expected);
        }
    }

    #[test]
    fn a_panic_of_a_thread_ends_its_call_alone() {
        let standing = StandingThreads::new(3);
        for panicking in 0..3 {
            let ended = AtomicUsize::new(0);
            let call = || {
                standing.run(3, &|number| {
                    assert_ne!(number, panicking, "on purpose");
                    ended.fetch_add(1, Ordering::Relaxed);
                });
            };
            assert_eq!(catch_unwind(AssertUnwindSafe(call)).is_err(), panicking == 0);
            assert_eq!(ended.load(Ordering::Relaxed), 2);
        }
    }
}
