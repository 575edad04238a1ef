//! Messages that wait until a subscriber's event loop sends them.

use crate::channels::Delivery;
use crate::clients::ClientEntry;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A subscriber is disconnected if more bytes wait for it: it reads too slowly.
const MOST_BYTES: usize = if cfg!(test) { 1 << 20 } else { 32 << 20 };

/// The messages to a client.
#[derive(Default)]
pub struct Inbox {
    messages: Mutex<VecDeque<Delivery>>,
    /// Their bytes; written under the lock.
    bytes: AtomicUsize,
    /// More was sent to it than it can keep: what follows is dropped.
    is_over: AtomicBool,
}

impl Inbox {
    /// Adds a message to the inbox of `client`, or disconnects it.
    pub fn add(&self, client: &ClientEntry, delivery: Delivery) {
        let mut messages = self.messages.lock().expect("no holder panics");
        if self.is_over.load(Ordering::Relaxed) {
            return;
        }
        let bytes = self.bytes.load(Ordering::Relaxed) + delivery.bytes();
        if bytes > MOST_BYTES {
            self.is_over.store(true, Ordering::Relaxed);
            messages.clear();
            client.kill();
        } else {
            messages.push_back(delivery);
        }
        let is_first = messages.len() == 1;
        self.bytes.store(if bytes > MOST_BYTES { 0 } else { bytes }, Ordering::Release);
        drop(messages);
        // Its loop takes all that is there when it looks.
        if is_first {
            client.call();
        }
    }

    /// Whether there are messages.
    pub fn is_empty(&self) -> bool {
        self.bytes.load(Ordering::Acquire) == 0
    }

    /// Takes the first message.
    pub fn take(&self) -> Option<Delivery> {
        let mut messages = self.messages.lock().expect("no holder panics");
        let first = messages.pop_front()?;
        let bytes = self.bytes.load(Ordering::Relaxed) - first.bytes();
        self.bytes.store(bytes, Ordering::Release);
        Some(first)
    }
}
