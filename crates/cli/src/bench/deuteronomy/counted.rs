//! A data component that counts how often it is asked for a key.

use hyades_deuteronomy::{
    DataComponent, Error, Found, KeyRange, Limits, Operation, ResumePoint, ScanOrder,
};
use std::ops::ControlFlow;
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

impl DataComponent for Counted {
    fn get(&self, key: &[u8]) -> Result<Found, Error> {
        self.gets.fetch_add(1, Ordering::Relaxed);
        self.data.get(key)
    }

    fn scan(
        &self,
        range: KeyRange<'_>,
        order: ScanOrder,
        each: &mut dyn FnMut(Operation<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.data.scan(range, order, each)
    }

    fn apply(&self, batch: &[Operation<'_>]) -> Result<(), Error> {
        self.data.apply(batch)
    }

    fn checkpoint(&self, point: &ResumePoint) -> Result<(), Error> {
        self.data.checkpoint(point)
    }

    fn resume_point(&self) -> Result<Option<ResumePoint>, Error> {
        self.data.resume_point()
    }

    fn forget_below(&self, ts: u64) -> Result<(), Error> {
        self.data.forget_below(ts)
    }

    fn limits(&self) -> Limits {
        self.data.limits()
    }
}
