//! Wakes an event loop from other threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

/// Wakes a poll, with a single system call for any number of wake-ups before the loop reacts.
pub struct LoopWaker {
    poll: mio::Waker,
    is_woken: AtomicBool,
}

impl LoopWaker {
    /// A waker of the poll with `registry`, and the token of the waker's event.
    pub fn new(registry: &mio::Registry, token: mio::Token) -> std::io::Result<Arc<LoopWaker>> {
        let poll = mio::Waker::new(registry, token)?;
        Ok(Arc::new(LoopWaker { poll, is_woken: AtomicBool::new(false) }))
    }

    /// Begins a turn of the loop: later events wake the loop again.
    pub fn reset(&self) {
        // A swap reads the value of the last waking thread, and so sees that thread's earlier
        // writes.
        self.is_woken.swap(false, Ordering::SeqCst);
    }

    /// The waker in the form for tickets.
    pub fn as_waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }
}

impl Wake for LoopWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_woken.swap(true, Ordering::SeqCst) {
            // The call fails only if the poll is gone; then no wake-up is needed.
            let _ = self.poll.wake();
        }
    }
}
