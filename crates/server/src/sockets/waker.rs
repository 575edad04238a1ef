//! Wakes an event loop from other threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

/// Wakes a poll, with one system call however often it is woken before it looks.
pub struct LoopWaker {
    poll: mio::Waker,
    is_woken: AtomicBool,
}

impl LoopWaker {
    /// A waker of the poll with this registry, and the token of its event.
    pub fn new(registry: &mio::Registry, token: mio::Token) -> std::io::Result<Arc<LoopWaker>> {
        let poll = mio::Waker::new(registry, token)?;
        Ok(Arc::new(LoopWaker { poll, is_woken: AtomicBool::new(false) }))
    }

    /// The loop looks now: what is done from here on wakes it again.
    pub fn reset(&self) {
        // A swap reads what the last one to wake has written, and so sees what it did before.
        self.is_woken.swap(false, Ordering::SeqCst);
    }

    /// As a waker for tickets.
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
            // It fails only if the poll is gone, which then needs no waking.
            let _ = self.poll.wake();
        }
    }
}
