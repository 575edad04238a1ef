//! The transaction component over the data component in memory, on failing disks.
#![allow(missing_docs)]

#[path = "common/faulty.rs"]
mod faulty;

use faulty::{Fault, Faulty};
use hyades_deuteronomy::torture::{LifeCounts, LivingStore, MemoryStore, live};
use hyades_deuteronomy::{DataComponent, Error, MemoryData, PartitionedData};
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
    assert!(met.scans > 3000 && met.snapshots > 1000, "{met:?}");
    assert!(met.long_snapshots > 300, "{met:?}");
    assert!(met.committed > 10_000 && met.acknowledged > 4_000, "{met:?}");
    assert!(met.checkpoints > 100 && met.truncated > 0 && met.failed_openings > 50, "{met:?}");
    assert!(met.redone > 500 && met.dead > 20 && met.aborted.len() >= 4, "{met:?}");
}

/// The data component in memory, with failures in most lives.
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

/// Two data components in memory sharing the keys. A checkpoint of the second fails in some lives,
/// the opening's or a later checkpoint: then only the first component has the checkpoint. Each
/// keeps an arbitrary part at a crash.
struct Parts {
    data: [Arc<MemoryData>; 2],
    /// The number of successful checkpoints before the failure.
    fails: Option<usize>,
    /// The number of openings with one component ahead of the other.
    ahead: usize,
}

impl LivingStore for Parts {
    fn open(&mut self) -> Result<Arc<dyn DataComponent>, Error> {
        let points = self.data.each_ref().map(|data| data.resume_point().unwrap());
        self.ahead += usize::from(points[0] != points[1]);
        let second = Faulty::new(self.data[1].clone());
        // In the current life only.
        if let Some(after) = self.fails.take() {
            *second.checkpoint.lock().unwrap() = Some(Fault::Fails);
            second.checkpoint_after.store(after, std::sync::atomic::Ordering::Relaxed);
        }
        let parts: Vec<Arc<dyn DataComponent>> = vec![self.data[0].clone(), second];
        Ok(Arc::new(PartitionedData::new(vec![vec![4]], parts)?))
    }

    fn arm(&mut self, rng: &mut fastrand::Rng) -> bool {
        self.fails = (rng.u8(0..4) == 0).then(|| rng.usize(0..4));
        self.fails.is_some()
    }

    fn crash(&mut self, rng: &mut fastrand::Rng, _: bool) {
        self.data.iter_mut().for_each(|data| {
            let kept = [0.0, 0.3, 1.0][rng.usize(0..3)];
            *data = Arc::new(data.after_crash(|| rng.f64() < kept));
        });
    }

    fn content(&self) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
        let content = self.data.iter().flat_map(|data| data.content());
        Some(content.map(|(key, _, value)| (key, value)).collect())
    }
}

#[test]
fn acknowledged_is_recovered_into_several_data_components() {
    let mut met = LifeCounts::default();
    let mut ahead = 0;
    for seed in 0..200 {
        let data = [(); 2].map(|()| Arc::new(MemoryData::outliving()));
        let mut store = Parts { data, fails: None, ahead: 0 };
        if let Err(wrong) = live(seed, &mut store, &mut met) {
            panic!("seed {seed}: {wrong}");
        }
        ahead += store.ahead;
    }
    println!("{met:#?}, {ahead} begin with one ahead");
    assert!(met.committed > 5000 && met.scans > 1000 && met.checkpoints > 50, "{met:?}");
    assert!(ahead > 0, "no checkpoint has reached only one of them");
}
