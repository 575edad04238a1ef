//! Queues of records that waited and now lack nothing: one for each thread.

use hyades_platform::sync::{AtomicUsize, Mutex, Ordering, Padded, Unpoisoned};
use std::collections::VecDeque;

/// A thread puts in what it releases, and takes from its own queue first; a thread without records
/// takes from the others. First in, first out; each record is taken by a single thread.
pub(super) struct ReadyQueues(Box<[Padded<ReadyQueue>]>);

#[derive(Default)]
struct ReadyQueue {
    /// Locked by another thread than its own only to take a record.
    records: Mutex<VecDeque<u32>>,
    /// Number of records; changed under the lock of `records`.
    len: AtomicUsize,
}

impl ReadyQueues {
    pub fn new(threads: usize) -> Self {
        ReadyQueues((0..threads).map(|_| Padded::default()).collect())
    }

    pub fn push(&self, thread: usize, record: u32) {
        let queue = &self.0[thread];
        let mut records = queue.records.lock().unpoisoned();
        records.push_back(record);
        queue.len.store(records.len(), Ordering::Release);
    }

    pub fn take(&self, thread: usize) -> Option<u32> {
        let (before, own) = self.0.split_at(thread);
        own.iter().chain(before).find_map(|queue| queue.take())
    }
}

impl ReadyQueue {
    /// Testing for emptiness costs one load.
    fn take(&self) -> Option<u32> {
        if self.len.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut records = self.records.lock().unpoisoned();
        let record = records.pop_front()?;
        self.len.store(records.len(), Ordering::Release);
        Some(record)
    }
}
