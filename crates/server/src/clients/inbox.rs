//! Messages that wait until a subscriber's event loop sends them.

use crate::clients::ClientEntry;
use crate::clients::channels::Delivery;
use crate::config::OutputLimit;
use hyades_platform::sync::Unpoisoned;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The messages to a client.
#[derive(Default)]
pub struct Inbox {
    messages: Mutex<VecDeque<Delivery>>,
    /// Bytes of the messages; written under the lock.
    bytes: AtomicUsize,
    /// The inbox was full: later messages are dropped.
    is_over: AtomicBool,
}

impl Inbox {
    /// Adds a message for `client`, or disconnects a client that reads too slowly.
    pub fn add(&self, client: &ClientEntry, limit: OutputLimit, delivery: Delivery) {
        let mut messages = self.messages.lock().unpoisoned();
        if self.is_over.load(Ordering::Relaxed) {
            return;
        }
        let before = self.bytes.load(Ordering::Relaxed);
        let bytes = before + delivery.bytes();
        let is_over = limit.is_over(bytes as u64);
        let becomes_high = limit.is_high(bytes as u64) && !limit.is_high(before as u64);
        if is_over {
            self.is_over.store(true, Ordering::Relaxed);
            messages.clear();
            client.kill();
        } else {
            messages.push_back(delivery);
        }
        let is_first = messages.len() == 1;
        self.bytes.store(if is_over { 0 } else { bytes }, Ordering::Release);
        drop(messages);
        // The client's loop takes all messages when it looks.
        if is_first || becomes_high {
            client.call();
        }
    }

    /// Bytes of the messages, about.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether there are messages.
    pub fn is_empty(&self) -> bool {
        self.bytes.load(Ordering::Acquire) == 0
    }

    /// Takes the first message.
    pub fn take(&self) -> Option<Delivery> {
        let mut messages = self.messages.lock().unpoisoned();
        let first = messages.pop_front()?;
        let bytes = self.bytes.load(Ordering::Relaxed) - first.bytes();
        self.bytes.store(bytes, Ordering::Release);
        Some(first)
    }
}
