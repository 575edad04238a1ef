//! Bytes that wait for the data component.

use hyades_platform::sync::{AtomicUsize, Ordering, Padded};
use std::sync::Arc;

/// The bytes that wait for the data component and are not counted in the version table. Sessions
/// add and the proxy subtracts; both read. Relaxed: a sum, which orders nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeldBytes(Arc<Padded<AtomicUsize>>);

impl HeldBytes {
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub fn add(&self, bytes: usize) {
        if bytes > 0 {
            self.0.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    pub fn subtract(&self, bytes: usize) {
        if bytes > 0 {
            self.0.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}
