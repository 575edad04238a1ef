//! Lives of a database over SlateDB: the log loses power and fails, and the process dies between
//! any two writes of objects.
#![allow(missing_docs)]

mod common;

use common::storage::Storage;
use common::{PATH, small_tables};
use hyades_deuteronomy::torture::{LifeCounts, LivingStore, live};
use hyades_deuteronomy::{DataComponent, Error};
use hyades_deuteronomy_slatedb::SlateData;
use hyades_deuteronomy_slatedb::object_store::memory::InMemory;
use std::sync::Arc;

/// The objects, which outlive every process.
struct Objects {
    objects: Arc<InMemory>,
    process: Option<Arc<Storage>>,
    /// The writes until the next process dies.
    dies_after: Option<usize>,
}

impl LivingStore for Objects {
    fn open(&mut self) -> Result<Arc<dyn DataComponent>, Error> {
        let process = Storage::new(Arc::clone(&self.objects));
        if let Some(left) = self.dies_after.take() {
            process.die_after(left);
        }
        self.process = Some(Arc::clone(&process));
        let mut options = small_tables();
        // A few operations.
        options.settings.l0_sst_size_bytes = 1 << 10;
        Ok(Arc::new(SlateData::open(process, PATH, options)?))
    }

    fn arm(&mut self, rng: &mut fastrand::Rng) -> bool {
        self.dies_after = rng.bool().then(|| rng.usize(1..40));
        self.dies_after.is_some()
    }

    fn crash(&mut self, _: &mut fastrand::Rng, _: bool) {
        if let Some(process) = self.process.take() {
            process.die();
        }
    }
}

#[test]
fn acknowledged_is_recovered_from_log_and_object_storage() {
    let mut met = LifeCounts::default();
    for seed in 0..300 {
        let objects = Arc::new(InMemory::new());
        let mut store = Objects { objects, process: None, dies_after: None };
        if let Err(wrong) = live(seed, &mut store, &mut met) {
            panic!("seed {seed}: {wrong}");
        }
    }
    println!("{met:#?}");
    assert!(met.scans > 3000 && met.long_snapshots > 200, "{met:?}");
    assert!(met.committed > 8000 && met.acknowledged > 4000, "{met:?}");
    assert!(met.checkpoints > 500 && met.truncated > 0 && met.redone > 500, "{met:?}");
    assert!(met.failed_openings > 100, "{met:?}");
}
