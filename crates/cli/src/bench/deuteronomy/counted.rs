//! A data component that counts how often it is asked for a key.

use hyades_deuteronomy::{DataComponent, DataLayer, Error, Found};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A data component, and how often it was asked for a key.
pub struct Counted {
    data: Arc<dyn DataComponent>,
    /// A sum, which orders nothing: Relaxed.
    gets: AtomicU64,
}

impl Counted {
    /// Counts from 0.
    pub fn new(data: Arc<dyn DataComponent>) -> Self {
        Self { data, gets: AtomicU64::new(0) }
    }

    /// How often it was asked for a key.
    pub fn gets(&self) -> u64 {
        self.gets.load(Ordering::Relaxed)
    }
}

impl DataLayer for Counted {
    fn below(&self) -> &dyn DataComponent {
        self.data.as_ref()
    }

    fn get(&self, key: &[u8]) -> Result<Found, Error> {
        self.gets.fetch_add(1, Ordering::Relaxed);
        self.data.get(key)
    }
}
