//! The transaction component over the data component in memory, on disks that fail.
#![allow(missing_docs)]

#[path = "common/faulty.rs"]
mod faulty;

use faulty::{Fault, Faulty};
use hyades_deuteronomy::{DataComponent, Error, MemoryData};
use hyades_simulator::deuteronomy::{LifeCounts, LivingStore, MemoryStore, live};
use std::sync::Arc;

#[test]
fn acknowledged_is_recovered_and_reads_are_serializable() {
    let mut met = LifeCounts::default();
    for seed in 0..400 {
        if let Err(wrong) = live(seed, &mut MemoryStore::default(), &mut met) {
            panic!("seed {seed}: {wrong}");
        }
    }
    println!("{met:#?}");
    assert!(met.scans > 3000, "{met:?}");
    assert!(met.committed > 10_000 && met.acknowledged > 4_000, "{met:?}");
    assert!(met.checkpoints > 100 && met.truncated > 0 && met.failed_openings > 50, "{met:?}");
    assert!(met.redone > 500 && met.dead > 20 && met.aborted.len() >= 4, "{met:?}");
}

/// The data component in memory, which fails in most lives.
struct FaultyMemory {
    data: Arc<MemoryData>,
    fault: Option<(Fault, usize)>,
}

impl LivingStore for FaultyMemory {
    fn open(&mut self) -> Result<Arc<dyn DataComponent>, Error> {
        let faulty = Faulty::new(self.data.clone());
        if let Some((fault, after)) = self.fault.take() {
            *faulty.apply.lock().unwrap() = Some(fault);
            faulty.apply_after.store(after, std::sync::atomic::Ordering::Relaxed);
        }
        Ok(faulty)
    }

    fn arm(&mut self, rng: &mut fastrand::Rng) -> bool {
        let fault = [Fault::Fails, Fault::FailsOddly][rng.usize(0..2)];
        self.fault = (rng.u8(0..4) > 0).then(|| (fault, rng.usize(0..20)));
        self.fault.is_some()
    }

    fn crash(&mut self, rng: &mut fastrand::Rng, _: bool) {
        let kept = [0.0, 0.3, 1.0][rng.usize(0..3)];
        self.data = Arc::new(self.data.after_crash(|| rng.f64() < kept));
    }
}

#[test]
fn acknowledged_is_recovered_after_the_data_component_has_failed() {
    let mut met = LifeCounts::default();
    for seed in 0..400 {
        let mut store = FaultyMemory { data: Arc::new(MemoryData::outliving()), fault: None };
        if let Err(wrong) = live(seed, &mut store, &mut met) {
            panic!("seed {seed}: {wrong}");
        }
    }
    println!("{met:#?}");
    assert!(met.committed > 5000 && met.acknowledged > 2000 && met.checkpoints > 100, "{met:?}");
}
