//! A data component that loses all data but the last checkpoint with its process; and a server for
//! tests to kill.
#![allow(dead_code, reason = "each test file uses a part of this")]

use hyades_deuteronomy::{
    DataComponent, DataSnapshot, Error, Found, KeyRange, Limits, MemoryData, Operation,
    ResumePoint, ScanOrder,
};
use hyades_deuteronomy_remote::{DataServer, RemoteData, RemoteOptions};
use std::net::SocketAddr;
use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Stable = (Vec<(Vec<u8>, u64, Option<Vec<u8>>)>, Option<ResumePoint>);

/// What is on the medium.
#[derive(Clone, Default)]
pub struct Medium(Arc<Mutex<Stable>>);

/// The data of a process, in memory; a checkpoint copies all to the medium.
pub struct VolatileData {
    now: MemoryData,
    medium: Medium,
    /// Held by what changes the data: a checkpoint holds whole batches.
    changing: Mutex<()>,
}

impl VolatileData {
    pub fn new(medium: &Medium) -> Self {
        let now = MemoryData::new();
        let (rows, point) = medium.0.lock().unwrap().clone();
        for (key, ts, value) in &rows {
            now.apply(&[Operation { key, ts: *ts, value: value.as_deref() }]).unwrap();
        }
        if let Some(point) = point {
            now.checkpoint(&point).unwrap();
        }
        VolatileData { now, medium: medium.clone(), changing: Mutex::default() }
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
    pub address: SocketAddr,
    server: Mutex<Option<DataServer>>,
}

impl Far {
    pub fn start() -> Far {
        let medium = Medium::default();
        let server = DataServer::start("127.0.0.1:0", Arc::new(VolatileData::new(&medium)));
        let server = server.unwrap();
        Far { medium, address: server.address(), server: Mutex::new(Some(server)) }
    }

    /// Ends the process: what is not on the medium is lost.
    pub fn kill(&self) {
        drop(self.server.lock().unwrap().take());
    }

    pub fn revive(&self) {
        let data = Arc::new(VolatileData::new(&self.medium));
        *self.server.lock().unwrap() = Some(DataServer::start(self.address, data).unwrap());
    }

    pub fn connect(&self) -> RemoteData {
        let options = RemoteOptions::default().patience(Duration::from_secs(30));
        RemoteData::connect(&self.address.to_string(), options).unwrap()
    }
}
