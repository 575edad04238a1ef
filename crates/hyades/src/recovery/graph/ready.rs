//! A queue of records that waited and now lack nothing.

use hyades_platform::sync::{Arc, AtomicUsize, Mutex, Ordering, Unpoisoned};
use std::collections::VecDeque;

/// First in, first out; each record is taken by a single thread. Testing for emptiness costs one
/// load.
pub(super) struct Ready<R> {
    records: Mutex<VecDeque<Arc<R>>>,
    /// Number of records; changed under the lock of `records`.
    len: AtomicUsize,
}

impl<R> Ready<R> {
    pub fn new() -> Self {
        Ready { records: Mutex::new(VecDeque::new()), len: AtomicUsize::new(0) }
    }

    pub fn push(&self, record: Arc<R>) {
        let mut records = self.records.lock().unpoisoned();
        records.push_back(record);
        self.len.store(records.len(), Ordering::Release);
    }

    pub fn take(&self) -> Option<Arc<R>> {
        if self.len.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut records = self.records.lock().unpoisoned();
        let record = records.pop_front()?;
        self.len.store(records.len(), Ordering::Release);
        Some(record)
    }
}
