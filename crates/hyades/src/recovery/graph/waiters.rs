//! Records that wait for a position of a stream: few, so a lock protects them. The lowest awaited
//! position is known without the lock.
//!
//! A thread adds a waiter and then looks at the position; a thread raises the position and then
//! looks for waiters. All four SeqCst: one of the two sees the other.

use crate::logging::predecessors::Predecessor;
use hyades_platform::sync::{AtomicU64, Mutex, Ordering, Unpoisoned};
use hyades_wal::Lsn;
use std::collections::BTreeMap;

pub(super) enum Waiter {
    /// A node that needs everything up to the position.
    Position(u32),
    /// A node that follows the record at the position.
    Successor(u32, Predecessor),
}

pub(super) struct Waiters {
    /// The lowest awaited position; `Lsn::MAX` if there is none. Written under the lock.
    lowest: AtomicU64,
    by_position: Mutex<Numbered>,
}

/// By position and number: the number tells waiters for the same position apart.
#[derive(Default)]
struct Numbered {
    waiters: BTreeMap<(Lsn, u64), Waiter>,
    next: u64,
}

impl Default for Waiters {
    fn default() -> Self {
        Waiters { lowest: AtomicU64::new(Lsn::MAX), by_position: Mutex::default() }
    }
}

impl Waiters {
    fn publish(&self, numbered: &Numbered) {
        let lowest = numbered.waiters.first_key_value().map_or(Lsn::MAX, |((at, _), _)| *at);
        self.lowest.store(lowest, Ordering::SeqCst);
    }

    pub fn add(&self, position: Lsn, waiter: Waiter) {
        let mut numbered = self.by_position.lock().unpoisoned();
        let number = numbered.next;
        numbered.next += 1;
        numbered.waiters.insert((position, number), waiter);
        self.publish(&numbered);
    }

    /// Takes a waiter for a position that was reached, if there is any.
    #[inline]
    pub fn take_up_to(&self, reached: impl Fn() -> Lsn) -> Option<Waiter> {
        let lowest = self.lowest.load(Ordering::SeqCst);
        if lowest == Lsn::MAX || lowest > reached() {
            return None;
        }
        let mut numbered = self.by_position.lock().unpoisoned();
        let first = numbered.waiters.first_entry().filter(|first| first.key().0 <= reached());
        let waiter = first.map(|first| first.remove());
        self.publish(&numbered);
        waiter
    }

    /// Takes a waiter for a position behind `end`, if there is any.
    pub fn take_above(&self, end: Lsn) -> Option<Waiter> {
        if self.lowest.load(Ordering::SeqCst) == Lsn::MAX {
            return None;
        }
        let mut numbered = self.by_position.lock().unpoisoned();
        let last = numbered.waiters.last_entry().filter(|last| last.key().0 > end);
        let waiter = last.map(|last| last.remove());
        self.publish(&numbered);
        waiter
    }
}
