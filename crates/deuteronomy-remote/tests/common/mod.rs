//! A data component that loses all data but the last checkpoint with its process; and a server for
//! tests to kill.
#![allow(dead_code, reason = "each test file uses a part of this")]

pub mod relay;

use hyades_deuteronomy::{
    DataComponent, DataSnapshot, Error, Found, KeyRange, Limits, MemoryData, Operation,
    ResumePoint, ScanOrder,
};
use hyades_deuteronomy_remote::{DataServer, RemoteData, RemoteOptions};
use std::net::SocketAddr;
use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

type Stable = (Vec<(Vec<u8>, u64, Option<Vec<u8>>)>, Option<ResumePoint>);

/// What is on the medium.
#[derive(Clone, Default)]
pub struct Medium(Arc<Mutex<Stable>>);

/// Stops threads that apply operations, while closed.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<Passing>, Condvar)>);

#[derive(Default)]
struct Passing {
    is_closed: bool,
    waiting: usize,
}

impl Gate {
    pub fn close(&self) {
        self.0.0.lock().unwrap().is_closed = true;
    }

    pub fn open(&self) {
        self.0.0.lock().unwrap().is_closed = false;
        self.0.1.notify_all();
    }

    /// Waits until a thread waits.
    pub fn until_reached(&self) {
        let passing = self.0.0.lock().unwrap();
        drop(self.0.1.wait_while(passing, |passing| passing.waiting == 0).unwrap());
    }

    fn pass(&self) {
        let (passing, changed) = &*self.0;
        let mut passing = passing.lock().unwrap();
        passing.waiting += 1;
        changed.notify_all();
        let mut passing = changed.wait_while(passing, |passing| passing.is_closed).unwrap();
        passing.waiting -= 1;
    }
}

/// The data of a process, in memory; a checkpoint copies all to the medium.
pub struct VolatileData {
    now: MemoryData,
    medium: Medium,
    gate: Gate,
    /// Held by what changes the data: a checkpoint holds whole batches.
    changing: Mutex<()>,
}

impl VolatileData {
    pub fn new(medium: &Medium, gate: &Gate) -> Self {
        let now = MemoryData::new();
        let (rows, point) = medium.0.lock().unwrap().clone();
        for (key, ts, value) in &rows {
            now.apply(&[Operation { key, ts: *ts, value: value.as_deref() }]).unwrap();
        }
        if let Some(point) = point {
            now.checkpoint(&point).unwrap();
        }
        let (medium, gate) = (medium.clone(), gate.clone());
        VolatileData { now, medium, gate, changing: Mutex::default() }
    }
}

impl DataComponent for VolatileData {
    fn get(&self, key: &[u8]) -> Result<Found, Error> {
        self.now.get(key)
    }

    fn scan(
        &self,
        range: KeyRange<'_>,
        order: ScanOrder,
        each: &mut dyn FnMut(Operation<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.now.scan(range, order, each)
    }

    fn apply(&self, batch: &[Operation<'_>]) -> Result<(), Error> {
        self.gate.pass();
        let _changing = self.changing.lock().unwrap();
        self.now.apply(batch)
    }

    fn checkpoint(&self, point: &ResumePoint) -> Result<(), Error> {
        let _changing = self.changing.lock().unwrap();
        let mut rows = Vec::new();
        let all = (Bound::Unbounded, Bound::Unbounded);
        self.now.scan(all, ScanOrder::Ascending, &mut |operation| {
            let Operation { key, ts, value } = operation;
            rows.push((key.to_vec(), ts, value.map(<[u8]>::to_vec)));
            ControlFlow::Continue(())
        })?;
        *self.medium.0.lock().unwrap() = (rows, Some(point.clone()));
        self.now.checkpoint(point)
    }

    fn resume_point(&self) -> Result<Option<ResumePoint>, Error> {
        self.now.resume_point()
    }

    fn forget_below(&self, ts: u64) -> Result<(), Error> {
        let _changing = self.changing.lock().unwrap();
        self.now.forget_below(ts)
    }

    fn snapshot(&self) -> Result<Option<Arc<dyn DataSnapshot>>, Error> {
        self.now.snapshot()
    }

    fn limits(&self) -> Limits {
        Limits { is_durable: true, ..self.now.limits() }
    }
}

/// A server at a fixed address.
pub struct Far {
    pub medium: Medium,
    pub gate: Gate,
    pub address: SocketAddr,
    server: Mutex<Option<DataServer>>,
}

impl Far {
    pub fn start() -> Far {
        let (medium, gate) = (Medium::default(), Gate::default());
        let data = Arc::new(VolatileData::new(&medium, &gate));
        let server = DataServer::start("127.0.0.1:0", data).unwrap();
        Far { medium, gate, address: server.address(), server: Mutex::new(Some(server)) }
    }

    /// Ends the process: what is not on the medium is lost.
    pub fn kill(&self) {
        drop(self.server.lock().unwrap().take());
    }

    pub fn revive(&self) {
        let data = Arc::new(VolatileData::new(&self.medium, &self.gate));
        *self.server.lock().unwrap() = Some(DataServer::start(self.address, data).unwrap());
    }

    pub fn connect(&self) -> RemoteData {
        connect(self.address)
    }
}

pub fn connect(address: SocketAddr) -> RemoteData {
    let options = RemoteOptions::default().patience(Duration::from_secs(30));
    RemoteData::connect(&address.to_string(), options).unwrap()
}

pub fn point(incarnation: u32) -> ResumePoint {
    ResumePoint { uuid: [1; 16], incarnation, highest_ts: 9, positions: vec![5] }
}
