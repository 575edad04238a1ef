//! Lives of a database whose data component is a server over redb: the log and redb lose power and
//! fail, the database's process dies, and the server's process dies beside it.
#![allow(missing_docs)]

use hyades_deuteronomy::torture::{LifeCounts, LivingStore, RedbStore, live};
use hyades_deuteronomy::{
    DataComponent, DataLayer, DataSnapshot, Error, KeyRange, Operation, ResumePoint, ScanOrder,
};
use hyades_deuteronomy_remote::{DataServer, RemoteData, RemoteOptions};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The machine with the data.
struct Machine {
    store: RedbStore,
    address: Option<SocketAddr>,
    server: Option<DataServer>,
    rng: fastrand::Rng,
    /// The calls until the server's process dies; None: it lives on.
    left: Option<usize>,
}

impl Machine {
    fn start(&mut self) -> Result<(), Error> {
        let data = self.store.open()?;
        let server = match self.address {
            Some(address) => DataServer::start(address, data),
            None => DataServer::start("127.0.0.1:0", data),
        }
        .expect("the address is free");
        self.address = Some(server.address());
        self.server = Some(server);
        Ok(())
    }
}

struct RemoteStore {
    machine: Arc<Mutex<Machine>>,
    /// Whether redb may fail in the life to come, or in the life that goes on.
    may_fail: bool,
    killed: Arc<AtomicUsize>,
}

/// The client, whose server dies between two of its calls.
struct Killing {
    remote: RemoteData,
    machine: Arc<Mutex<Machine>>,
    killed: Arc<AtomicUsize>,
}

impl Killing {
    fn call(&self) {
        let machine = &mut *self.machine.lock().unwrap();
        let Some(left) = &mut machine.left else { return };
        if *left > 0 {
            *left -= 1;
            return;
        }
        machine.left = Some(machine.rng.usize(1..30));
        machine.server = None;
        let power = machine.rng.bool();
        machine.store.crash(&mut machine.rng, power);
        machine.start().expect("redb opens after a crash");
        self.killed.fetch_add(1, Ordering::Relaxed);
    }
}

impl DataLayer for Killing {
    fn below(&self) -> &dyn DataComponent {
        self.call();
        &self.remote
    }

    fn scan(
        &self,
        range: KeyRange<'_>,
        order: ScanOrder,
        each: &mut dyn FnMut(Operation<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.call();
        self.remote.scan(range, order, each)
    }

    fn checkpoint(&self, point: &ResumePoint) -> Result<(), Error> {
        self.call();
        let made = self.remote.checkpoint(point);
        self.call();
        made
    }

    /// A snapshot ends with its server, which lives on therefore.
    fn snapshot(&self) -> Result<Option<Arc<dyn DataSnapshot>>, Error> {
        self.machine.lock().unwrap().left = None;
        self.remote.snapshot()
    }
}

impl LivingStore for RemoteStore {
    fn open(&mut self) -> Result<Arc<dyn DataComponent>, Error> {
        let mut machine = self.machine.lock().unwrap();
        if machine.server.is_none() {
            machine.start()?;
        }
        machine.left = (!self.may_fail).then(|| machine.rng.usize(1..30));
        let address = machine.address.expect("it was started").to_string();
        drop(machine);
        let options = RemoteOptions::default().patience(Duration::from_secs(5));
        let remote = RemoteData::connect(&address, options)?;
        let (machine, killed) = (Arc::clone(&self.machine), Arc::clone(&self.killed));
        Ok(Arc::new(Killing { remote, machine, killed }))
    }

    fn arm(&mut self, rng: &mut fastrand::Rng) -> bool {
        let machine = &mut *self.machine.lock().unwrap();
        self.may_fail = machine.store.arm(rng);
        if self.may_fail {
            machine.server = None;
        }
        self.may_fail
    }

    fn crash(&mut self, rng: &mut fastrand::Rng, power: bool) {
        let machine = &mut *self.machine.lock().unwrap();
        machine.left = None;
        // The fault of a life does not outlive the life.
        let may_have_failed = std::mem::take(&mut self.may_fail);
        // Often the database dies alone.
        if rng.bool() || power || may_have_failed {
            machine.server = None;
            machine.store.crash(rng, power);
        }
    }
}

#[test]
fn acknowledged_is_recovered_from_log_and_server() {
    let (mut met, killed) = (LifeCounts::default(), Arc::new(AtomicUsize::new(0)));
    for seed in 0..60 {
        let machine = Machine {
            store: RedbStore::default(),
            address: None,
            server: None,
            rng: fastrand::Rng::with_seed(seed),
            left: None,
        };
        let machine = Arc::new(Mutex::new(machine));
        let mut store = RemoteStore { machine, may_fail: false, killed: Arc::clone(&killed) };
        if let Err(wrong) = live(seed, &mut store, &mut met) {
            panic!("seed {seed}: {wrong}");
        }
    }
    let killed = killed.load(Ordering::Relaxed);
    println!("{met:#?}, the server was killed {killed} times");
    assert!(killed > 200, "{killed}");
    assert!(met.committed > 1500 && met.acknowledged > 800 && met.truncated > 0, "{met:?}");
}
