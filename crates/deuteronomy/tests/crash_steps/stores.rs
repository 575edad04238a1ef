//! Data components with a process death at a step, and their state after a crash.

use hyades_deuteronomy::torture::{LivingStore, RedbStore};
use hyades_deuteronomy::{
    DataComponent, DataLayer, Error, MemoryData, Operation, PartitionedData, ResumePoint,
};
use std::slice;
use std::sync::{Arc, Mutex};

/// How a process ends.
#[derive(Clone, Copy, Debug)]
pub struct Ending {
    /// By a power cut: unsynced bytes are lost, or torn. Otherwise the process is killed, and its
    /// writes stay.
    pub power: bool,
    /// The share of operations kept by a data component in memory of those applied since its last
    /// checkpoint: the component may write at any time. A data component in redb keeps none.
    pub kept: f64,
}

/// With the second ending a data component is at its last checkpoint, and the log lacks nothing.
pub const ENDINGS: [Ending; 4] = [
    Ending { power: false, kept: 1.0 },
    Ending { power: false, kept: 0.0 },
    Ending { power: true, kept: 0.0 },
    Ending { power: true, kept: 0.5 },
];

/// The storage of a data component, outliving the data component.
pub trait SteppedStore {
    /// Opens the data component on the storage left by the last data component.
    fn open(&mut self) -> Result<Arc<dyn DataComponent>, Error>;
    /// The process of the next opening dies at a step of the data component, counted from 0.
    /// `is_done` decides whether the last step is done.
    fn stop_at(&mut self, step: u64, is_done: bool);
    /// Whether the process of the last opening has died there.
    fn has_stopped(&self) -> bool;
    /// The process dies.
    fn crash(&mut self, ending: Ending, seed: u64);
    /// A copy of the state left by a crash.
    fn fork(&self) -> Self;
    /// Whether a part has a later resume point than another part.
    fn is_uneven(&self) -> bool {
        false
    }
}

/// The remaining steps of a process.
#[derive(Debug, Default)]
struct StepsLeft {
    /// None: no death.
    left: Option<u64>,
    is_done: bool,
    has_stopped: bool,
}

impl StepsLeft {
    fn step(&mut self, change: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        let stopped = || Err(Error::DataComponent("its process has died".into()));
        if self.has_stopped {
            return stopped();
        }
        self.has_stopped = self.left == Some(0);
        self.left = self.left.map(|left| left.saturating_sub(1));
        if !self.has_stopped || self.is_done {
            change()?;
        }
        if self.has_stopped { stopped() } else { Ok(()) }
    }
}

/// The data component in memory. The steps are single operations, checkpoints, and calls to forget.
struct SteppedData {
    data: Arc<MemoryData>,
    steps: Arc<Mutex<StepsLeft>>,
}

impl SteppedData {
    fn step(&self, change: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        self.steps.lock().unwrap().step(change)
    }
}

impl DataLayer for SteppedData {
    fn below(&self) -> &dyn DataComponent {
        &*self.data
    }

    fn apply(&self, batch: &[Operation<'_>]) -> Result<(), Error> {
        let apply = |operation| self.step(|| self.data.apply(slice::from_ref(operation)));
        batch.iter().try_for_each(apply)
    }

    fn checkpoint(&self, point: &ResumePoint) -> Result<(), Error> {
        self.step(|| self.data.checkpoint(point))
    }

    fn forget_below(&self, ts: u64) -> Result<(), Error> {
        self.step(|| self.data.forget_below(ts))
    }
}

/// A data component in memory, or two sharing the keys.
pub struct SteppedMemory {
    parts: Vec<Arc<MemoryData>>,
    steps: Arc<Mutex<StepsLeft>>,
}

impl SteppedMemory {
    /// An empty store of one or two parts.
    pub fn new(parts: usize) -> Self {
        let parts = (0..parts).map(|_| Arc::new(MemoryData::outliving())).collect();
        Self { parts, steps: Arc::default() }
    }

    fn part(&self, at: usize) -> Arc<dyn DataComponent> {
        Arc::new(SteppedData { data: self.parts[at].clone(), steps: self.steps.clone() })
    }
}

impl SteppedStore for SteppedMemory {
    fn open(&mut self) -> Result<Arc<dyn DataComponent>, Error> {
        if self.parts.len() == 1 {
            return Ok(self.part(0));
        }
        let parts = vec![self.part(0), self.part(1)];
        Ok(Arc::new(PartitionedData::new(vec![vec![4]], parts)?))
    }

    fn stop_at(&mut self, step: u64, is_done: bool) {
        let left = StepsLeft { left: Some(step), is_done, has_stopped: false };
        *self.steps.lock().unwrap() = left;
    }

    fn has_stopped(&self) -> bool {
        self.steps.lock().unwrap().has_stopped
    }

    fn crash(&mut self, ending: Ending, seed: u64) {
        let mut rng = fastrand::Rng::with_seed(seed);
        for data in &mut self.parts {
            *data = Arc::new(data.after_crash(|| rng.f64() < ending.kept));
        }
        self.steps = Arc::default();
    }

    fn fork(&self) -> Self {
        // The state left by a crash is stable.
        let copy = |data: &Arc<MemoryData>| Arc::new(data.after_crash(|| true));
        Self { parts: self.parts.iter().map(copy).collect(), steps: Arc::default() }
    }

    fn is_uneven(&self) -> bool {
        let points = self.parts.iter().map(|data| data.resume_point().unwrap());
        let points: Vec<Option<ResumePoint>> = points.collect();
        points.windows(2).any(|two| two[0] != two[1])
    }
}

/// A data component in redb. The steps are writes, syncs and lengths of redb's file.
#[derive(Default)]
pub struct SteppedRedb {
    store: RedbStore,
    /// How many accesses had failed before the last opening.
    failed: usize,
}

impl SteppedStore for SteppedRedb {
    fn open(&mut self) -> Result<Arc<dyn DataComponent>, Error> {
        self.failed = self.store.failed();
        self.store.open()
    }

    fn stop_at(&mut self, step: u64, _: bool) {
        self.store.stop_at(step);
    }

    fn has_stopped(&self) -> bool {
        self.store.failed() > self.failed
    }

    fn crash(&mut self, ending: Ending, seed: u64) {
        self.store.crash(&mut fastrand::Rng::with_seed(seed), ending.power);
    }

    fn fork(&self) -> Self {
        Self { store: self.store.fork(), failed: 0 }
    }
}
