//! A data component that counts how often it is asked for a key, and may time what it does.

use hdrhistogram::Histogram;
use hyades_deuteronomy::{DataComponent, DataLayer, Error, Found, Operation};
use hyades_platform::clock::monotonic_ns;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Nanoseconds.
pub type Times = Histogram<u64>;

/// No times yet.
pub fn no_times() -> Times {
    let mut times = Histogram::new(3).expect("three significant digits are supported");
    times.auto(true);
    times
}

/// A data component, and how often it was asked for a key.
pub struct Counted {
    data: Arc<dyn DataComponent>,
    /// A sum, which orders nothing: Relaxed.
    gets: AtomicU64,
    /// Of gets, and of each operation that was applied; none if they are not timed.
    times: Option<Mutex<(Times, Times)>>,
}

impl Counted {
    /// Counts from 0.
    pub fn new(data: Arc<dyn DataComponent>, is_timed: bool) -> Self {
        let times = is_timed.then(|| Mutex::new((no_times(), no_times())));
        Self { data, gets: AtomicU64::new(0), times }
    }

    /// How often it was asked for a key.
    pub fn gets(&self) -> u64 {
        self.gets.load(Ordering::Relaxed)
    }

    /// The times since the last call: of gets, and of each operation that was applied.
    pub fn take_times(&self) -> Option<(Times, Times)> {
        let times = self.times.as_ref()?;
        let mut times = times.lock().unwrap_or_else(|e| e.into_inner());
        Some(std::mem::replace(&mut *times, (no_times(), no_times())))
    }

    /// Does something; `note` gets the nanoseconds that it took.
    fn timed<R>(&self, act: impl FnOnce() -> R, note: impl FnOnce(&mut (Times, Times), u64)) -> R {
        let Some(times) = &self.times else { return act() };
        let began = monotonic_ns();
        let result = act();
        let took = (monotonic_ns() - began).max(1);
        note(&mut times.lock().unwrap_or_else(|e| e.into_inner()), took);
        result
    }
}

impl DataLayer for Counted {
    fn below(&self) -> &dyn DataComponent {
        self.data.as_ref()
    }

    fn get(&self, key: &[u8]) -> Result<Found, Error> {
        self.gets.fetch_add(1, Ordering::Relaxed);
        self.timed(
            || self.data.get(key),
            |times, ns| times.0.record(ns).expect("the histogram resizes itself"),
        )
    }

    fn apply(&self, batch: &[Operation<'_>]) -> Result<(), Error> {
        let count = batch.len().max(1) as u64;
        self.timed(
            || self.data.apply(batch),
            |times, ns| {
                let each = (ns / count).max(1);
                times.1.record_n(each, count).expect("the histogram resizes itself");
            },
        )
    }
}
