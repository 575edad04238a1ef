//! The transaction component over the data component in memory, on disks that fail.
#![allow(missing_docs)]

mod common;
#[path = "common/torture.rs"]
mod lives;

use hyades_deuteronomy::{DataComponent, Error, Found, Limits, MemoryData, Operation, ResumePoint};
use lives::{Met, Store, torture};
use std::sync::Arc;

struct Memory(Arc<MemoryData>);

impl Memory {
    fn new() -> Self {
        Memory(Arc::new(MemoryData::outliving()))
    }
}

impl Store for Memory {
    fn open(&mut self) -> Result<Arc<dyn DataComponent>, Error> {
        Ok(self.0.clone())
    }

    fn crash(&mut self, rng: &mut fastrand::Rng, _: bool) {
        let kept = [0.0, 0.3, 1.0][rng.usize(0..3)];
        self.0 = Arc::new(self.0.after_crash(|| rng.f64() < kept));
    }

    fn content(&self) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
        Some(self.0.content().into_iter().map(|(key, _, value)| (key, value)).collect())
    }
}

#[test]
fn acknowledged_is_recovered_and_reads_are_serializable() {
    let mut met = Met::default();
    for seed in 0..400 {
        if let Err(wrong) = torture(seed, &mut Memory::new(), &mut met) {
            panic!("seed {seed}: {wrong}");
        }
    }
    println!("{met:#?}");
    assert!(met.committed > 10_000 && met.acknowledged > 4_000, "{met:?}");
    assert!(met.checkpoints > 100 && met.truncated > 0 && met.failed_openings > 50, "{met:?}");
    assert!(met.redone > 500 && met.dead > 20 && met.aborted.len() >= 4, "{met:?}");
}

/// What a data component does wrong on purpose.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    /// The last operation to arrive wins (D3, D10).
    ByArrival,
    /// It does not say which version it returns (D4).
    NoTimestamps,
    /// Deleted keys are forgotten at once (E20).
    ForgetsAtOnce,
    /// A checkpoint is not stable when it returns.
    UnstableCheckpoint,
}

struct WrongData(Arc<MemoryData>, Wrong);

impl DataComponent for WrongData {
    fn get(&self, key: &[u8]) -> Result<Found, Error> {
        let found = self.0.get(key)?;
        Ok(match self.1 {
            Wrong::NoTimestamps => Found { ts: 0, ..found },
            _ => found,
        })
    }

    fn apply(&self, batch: &[Operation<'_>]) -> Result<(), Error> {
        self.0.apply(batch)
    }

    fn checkpoint(&self, point: &ResumePoint) -> Result<(), Error> {
        self.0.checkpoint(point)
    }

    fn resume_point(&self) -> Result<Option<ResumePoint>, Error> {
        self.0.resume_point()
    }

    fn forget_below(&self, ts: u64) -> Result<(), Error> {
        self.0.forget_below(ts)
    }

    fn limits(&self) -> Limits {
        self.0.limits()
    }
}
