//! A data component with failures, or panics, on a test's request.
#![allow(dead_code, reason = "each test file uses a part of this")]

use hyades_deuteronomy::{
    Abort, DataComponent, DataLayer, Error, MemoryData, Operation, ResumePoint,
};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The act of a method instead of its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Returns an error of the data component.
    Fails,
    /// Returns an error foreign to data components.
    FailsOddly,
    /// Panics.
    Panics,
}

/// The data component in memory, with faults.
#[derive(Debug)]
pub struct Faulty {
    pub data: Arc<MemoryData>,
    /// The fault of the next `apply`, after a number of successful calls.
    pub apply: Mutex<Option<Fault>>,
    pub apply_after: AtomicUsize,
    /// The fault of the next `checkpoint`, after a number of successful calls.
    pub checkpoint: Mutex<Option<Fault>>,
    pub checkpoint_after: AtomicUsize,
    /// How often `checkpoint` was called.
    pub checkpoints: AtomicUsize,
}

impl Faulty {
    pub fn new(data: Arc<MemoryData>) -> Arc<Self> {
        let (apply, checkpoint) = Default::default();
        let (apply_after, checkpoint_after, checkpoints) = Default::default();
        Arc::new(Self { data, apply, apply_after, checkpoint, checkpoint_after, checkpoints })
    }
}

fn meet(fault: &Mutex<Option<Fault>>) -> Result<(), Error> {
    let fault = fault.lock().unwrap().take();
    match fault {
        None => Ok(()),
        Some(Fault::Fails) => Err(Error::DataComponent("a test says so".into())),
        Some(Fault::FailsOddly) => Err(Abort::Shed.into()),
        Some(Fault::Panics) => panic!("a test says so"),
    }
}

fn meet_after(after: &AtomicUsize, fault: &Mutex<Option<Fault>>) -> Result<(), Error> {
    match after.load(Ordering::Relaxed).checked_sub(1) {
        Some(left) => after.store(left, Ordering::Relaxed),
        None => meet(fault)?,
    }
    Ok(())
}

impl DataLayer for Faulty {
    fn below(&self) -> &dyn DataComponent {
        self.data.as_ref()
    }

    fn apply(&self, batch: &[Operation<'_>]) -> Result<(), Error> {
        meet_after(&self.apply_after, &self.apply)?;
        self.data.apply(batch)
    }

    fn may_cut(&self, _: &[u8], _: &[u8]) -> bool {
        true
    }

    fn checkpoint(&self, point: &ResumePoint) -> Result<(), Error> {
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
        meet_after(&self.checkpoint_after, &self.checkpoint)?;
        self.data.checkpoint(point)
    }
}
