//! Promise: a standby that takes checkpoints goes on from the newest, wherever its process dies or
//! its power fails: while an image is written, while the manifest is replaced, while the log is
//! truncated.
#![allow(missing_docs)]

use fastrand::Rng;
use hyades::device::{Device, SimulatedDevice, SimulatedDisk, SimulatedFault};
use hyades::{
    Abort, Builder, Column, Database, ProcedureId, RecordKind, Schema, Table, Transaction, Type,
};
use hyades_replication::simulated::{Faults, SimulatedLog};
use hyades_replication::{
    FirstAppender, LogService, MarkSender, Standby, StandbyError, StandbySettings,
};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const STREAMS: usize = 3;
const ACCOUNTS: i64 = 50;
const BALANCE: i64 = 1_000;
const ACCOUNT: Table = Table::nth(0);
const JOURNAL: Table = Table::nth(1);
const AMOUNT: Column<i64> = Column::at(1);

/// Moves money, writes a row into the journal, and removes an earlier one now and then.
fn transfer(tx: &Transaction<'_>, input: (i64, i64, i64, i64)) -> Result<(), Abort> {
    let (number, from, to, amount) = input;
    for (id, change) in [(from, -amount), (to, amount)] {
        let balance = tx.get(ACCOUNT, id)?.map_or(BALANCE, |row| row.get(AMOUNT));
        tx.upsert(ACCOUNT, &[id.into(), (balance + change).into()])?;
    }
    if number % 3 == 0 {
        tx.delete(JOURNAL, number / 2)?;
    }
    tx.insert(JOURNAL, &[number.into(), amount.into()])?;
    Ok(())
}

/// `device`: of a standby, which takes checkpoints.
fn declared(record: RecordKind, device: Option<SimulatedDevice>) -> (Builder, ProcedureId) {
    let is_standby = device.is_some();
    let mut builder = Database::builder().streams(STREAMS).record(record).log_settings(|log| {
        (log.buffer_bytes, log.segment_bytes) = (1 << 16, 1 << 16);
        log.device = device.map(|device| Arc::new(device) as Arc<dyn Device>);
    });
    if is_standby {
        builder = builder.checkpoint_settings(|settings| {
            settings.interval = Some(Duration::from_millis(10));
            (settings.share, settings.files_per_dir) = (1.0, 2);
        });
    }
    let table = |name: &str| {
        Schema::new(name).column("id", Type::I64).column("n", Type::I64).primary_key(&["id"])
    };
    builder.table(table("account"));
    builder.table(table("journal"));
    let transfer = builder.procedure("transfer", 1, transfer);
    (builder, transfer)
}

/// The balances, and the numbers in the journal.
fn content(database: &Database) -> (Vec<(i64, i64)>, Vec<i64>) {
    let read = database.transact(|tx| {
        let pair = |row: &hyades::Row<'_>| (row.get(Column::<i64>::at(0)), row.get(AMOUNT));
        let accounts = tx.scan(ACCOUNT).rows()?.iter().map(pair).collect();
        let journal = tx.scan(JOURNAL).rows()?.iter().map(|row| pair(row).0).collect();
        Ok((accounts, journal))
    });
    read.unwrap()
}

/// A primary, and a standby on a simulated disk.
struct World {
    service: Arc<dyn LogService>,
    primary: Database,
    record: RecordKind,
    disk: SimulatedDisk,
    call: ProcedureId,
    number: AtomicI64,
    _marks: MarkSender,
    _dir: tempfile::TempDir,
}

impl World {
    fn new(record: RecordKind, seed: u64) -> World {
        let faults = Faults { old_looks: 0.1, delays: 0.1, ..Faults::default() };
        let service: Arc<dyn LogService> = Arc::new(SimulatedLog::new(STREAMS, seed, faults));
        let dir = tempfile::tempdir().unwrap();
        let appender = FirstAppender::new(service.clone(), "one");
        let (builder, call) = declared(record, None);
        let primary = builder.remote(Arc::new(appender)).open(dir.path()).unwrap();
        let every = Duration::from_millis(2);
        let marks = MarkSender::start(&primary, service.clone(), every).unwrap();
        let (disk, number) = (SimulatedDisk::new(), AtomicI64::new(0));
        World { service, primary, record, disk, call, number, _marks: marks, _dir: dir }
    }

    fn work(&self, seed: u64, stop: &AtomicBool) {
        let (mut rng, mut session) = (Rng::with_seed(seed), self.primary.session().unwrap());
        while !stop.load(Relaxed) {
            let [from, to] = [(); 2].map(|()| rng.i64(0..ACCOUNTS));
            let input = (self.number.fetch_add(1, Relaxed), from, to, rng.i64(1..9));
            session.call(self.call, &input).unwrap().0.unwrap();
            if rng.u8(..) < 20 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    fn join(&self, device: &SimulatedDevice) -> Result<Standby, StandbyError> {
        let settings = StandbySettings {
            node: "two".into(),
            dirs: vec![PathBuf::from("/db")],
            patience: Duration::from_secs(5),
        };
        let builder = declared(self.record, Some(device.clone())).0;
        Standby::join(self.service.clone(), &settings, builder)
    }

    /// Steps until the standby has what the primary has.
    fn catch_up(&self, standby: &mut Standby) {
        let until = Instant::now() + Duration::from_secs(30);
        while standby.served().is_none() || content(standby.database()) != content(&self.primary) {
            standby.step(Duration::from_millis(20)).unwrap();
            assert!(Instant::now() < until, "the standby does not become equal");
        }
    }
}

/// Checks what a standby shows: whole transactions, and no fewer than before.
fn check(standby: &Standby, last: &mut i64) {
    let (accounts, journal) = content(standby.database());
    let sum: i64 = accounts.iter().map(|(_, balance)| balance - BALANCE).sum();
    assert_eq!(sum, 0, "money was made or lost");
    let newest = journal.last().copied().unwrap_or(-1);
    assert!(newest >= *last, "number {newest} after {last}");
    *last = newest;
}

/// The lives of standbys that were killed.
#[derive(Debug, Default)]
struct Lives {
    /// Checkpoints taken, and bytes of log truncated.
    taken: u64,
    truncated: u64,
    /// Lives that began with a checkpoint of an earlier one.
    from_checkpoint: u64,
    lives: u64,
}

/// A life of a standby, until its device dies, or a while.
fn live(world: &World, rng: &mut Rng, lives: &mut Lives) {
    let device = world.disk.process(rng.u64(..));
    if rng.u8(..4) > 0 {
        device.arm(SimulatedFault::Stop(rng.u64(0..250)));
    }
    let or_death = |error: StandbyError| {
        assert!(!device.is_alive(), "{error}");
    };
    lives.lives += 1;
    let Ok(mut standby) = world.join(&device).map_err(or_death) else { return };
    lives.from_checkpoint += u64::from(standby.served().is_some());
    let until = Instant::now() + Duration::from_millis(rng.u64(50..500));
    let mut seen = -1;
    while Instant::now() < until && device.is_alive() {
        match standby.step(Duration::from_millis(5)).map_err(or_death) {
            Ok(Some(_)) => check(&standby, &mut seen),
            Ok(None) => {}
            Err(()) => break,
        }
        if rng.u16(..) < 200 {
            standby.abandon_checkpoint();
        }
    }
    let stats = standby.checkpoints();
    lives.taken += stats.taken;
    lives.truncated += stats.last.map_or(0, |last| last.truncated_bytes);
}

fn history(record: RecordKind, seed: u64) -> Lives {
    let world = World::new(record, seed);
    let (stop, mut rng, mut lives) =
        (AtomicBool::new(false), Rng::with_seed(seed), Lives::default());
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let (world, stop) = (&world, &stop);
            scope.spawn(move || world.work(seed * 10 + worker, stop));
        }
        let until = Instant::now() + Duration::from_millis(3_000);
        while Instant::now() < until {
            live(&world, &mut rng, &mut lives);
            match rng.bool() {
                true => world.disk.kill(),
                false => world.disk.power_cut(rng.u64(..)),
            }
        }
        stop.store(true, Relaxed);
    });
    let mut standby = world.join(&world.disk.process(1)).unwrap();
    world.catch_up(&mut standby);
    lives
}

#[test]
fn a_standby_goes_on_from_its_checkpoints_wherever_it_dies() {
    for (seed, record) in [
        (1, RecordKind::Data),
        (2, RecordKind::Command),
        (3, RecordKind::Adaptive),
        (fastrand::u64(..1 << 32), RecordKind::Data),
        (fastrand::u64(..1 << 32), RecordKind::Command),
    ] {
        eprintln!("seed {seed}");
        let lives = history(record, seed);
        eprintln!("{lives:?}");
        assert!(lives.taken > 3 && lives.from_checkpoint > 2, "{lives:?}");
    }
}

/// The files stay short, and a restart begins with the newest checkpoint.
#[test]
fn checkpoints_bound_the_files_of_a_standby() {
    let world = World::new(RecordKind::Command, 7);
    let stop = AtomicBool::new(false);
    let device = world.disk.process(1);
    let mut standby = world.join(&device).unwrap();
    let stats = std::thread::scope(|scope| {
        scope.spawn(|| world.work(1, &stop));
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            standby.step(Duration::from_millis(5)).unwrap();
            let stats = standby.checkpoints();
            let truncated = stats.last.as_ref().map_or(0, |last| last.truncated_bytes);
            if stats.taken > 5 && truncated > 0 || Instant::now() > until {
                stop.store(true, Relaxed);
                return stats;
            }
        }
    });
    assert!(stats.taken > 5 && stats.failed == 0, "{stats:?}");
    let last = stats.last.unwrap();
    assert!(last.rows > 0 && last.truncated_bytes > 0, "{last:?}");
    world.catch_up(&mut standby);
    let served = standby.served().unwrap();
    drop(standby);
    let mut standby = world.join(&world.disk.process(2)).unwrap();
    let begun_at = standby.served().expect("it begins with a checkpoint");
    assert!((last.cut_epoch..=served).contains(&begun_at), "{begun_at} of {last:?}");
    world.catch_up(&mut standby);
}
