//! Bytes waiting for the data component.

use hyades_platform::sync::{AtomicUsize, Ordering, Padded};
use std::sync::Arc;

/// The bytes waiting for the data component and not counted in the version table. Sessions add and
/// the proxy subtracts; both read. Relaxed: a sum without an ordering role.
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
