//! The cost of following: `cargo bench -p hyades-replication --bench follow`, with the number of
//! transactions and of rounds if wanted.
//!
//! Over a log service in memory that answers at once, so that what is measured is this program's:
//!
//! - *marks*: the rate of a primary with two writers while cut marks are made each 20 ms, beside
//!   the rate without marks, in turn; the median of the rounds' ratios.
//! - *replay*: the time of an opening that recovers a log, and of a new standby until the same log
//!   is in its files and its tables, in turn; the ratio of recovery to standby.
//! - *lag*: the age of the state that a standby shows, sampled while a primary runs at half of the
//!   rate measured before, on the same processors.
#![allow(missing_docs)]

use fastrand::Rng;
use hyades::{
    Abort, Builder, Column, Database, ProcedureId, RecordKind, Schema, Table, Transaction, Type,
};
use hyades_replication::simulated::{Faults, SimulatedLog};
use hyades_replication::{FirstAppender, LogService, MarkSender, Standby, StandbySettings};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const STREAMS: usize = 2;
const ACCOUNTS: i64 = 100_000;
const ACCOUNT: Table = Table::nth(0);
const AMOUNT: Column<i64> = Column::at(1);
const MARKS: Duration = Duration::from_millis(20);
const ROUND: Duration = Duration::from_secs(2);

fn transfer(tx: &Transaction<'_>, input: (i64, i64, i64)) -> Result<(), Abort> {
    let (from, to, amount) = input;
    for (id, change) in [(from, -amount), (to, amount)] {
        let balance = tx.get(ACCOUNT, id)?.map_or(0, |row| row.get(AMOUNT));
        tx.upsert(ACCOUNT, &[id.into(), (balance + change).into()])?;
    }
    Ok(())
}

fn declared(record: RecordKind) -> (Builder, ProcedureId) {
    let mut builder = Database::builder().streams(STREAMS).record(record);
    let schema = Schema::new("account").column("id", Type::I64).column("n", Type::I64);
    builder.table(schema.primary_key(&["id"]).hash());
    let transfer = builder.procedure("transfer", 1, transfer);
    (builder, transfer)
}

fn service() -> Arc<dyn LogService> {
    Arc::new(SimulatedLog::new(STREAMS, 1, Faults::default()))
}

fn primary(
    service: &Arc<dyn LogService>,
    record: RecordKind,
    dir: &Path,
) -> (Database, ProcedureId) {
    let (builder, call) = declared(record);
    let remote = Arc::new(FirstAppender::new(service.clone(), "one"));
    (builder.remote(remote).open(dir).expect("it opens"), call)
}

/// Runs two writers until `stop`, each with a pause after some transfers. Counts them.
fn write(
    (database, call): (&Database, ProcedureId),
    pause: Duration,
    (stop, count): (&AtomicBool, &AtomicU64),
) {
    std::thread::scope(|scope| {
        for seed in 0..2 {
            scope.spawn(move || {
                let mut rng = Rng::with_seed(seed);
                let mut session = database.session().expect("a session");
                while !stop.load(Relaxed) {
                    let mut last = None;
                    for _ in 0..64 {
                        let [from, to] = [(); 2].map(|()| rng.i64(0..ACCOUNTS));
                        let input = (from, to, rng.i64(1..9));
                        last = Some(session.call(call, &input).expect("it runs").1);
                    }
                    last.expect("there was one").wait().expect("it is stored");
                    count.fetch_add(64, Relaxed);
                    if !pause.is_zero() {
                        std::thread::sleep(pause);
                    }
                }
            });
        }
    });
}

/// Transactions in a second, for the length of a round.
fn rate(
    opened: (&Database, ProcedureId),
    pause: Duration,
    beside: impl FnOnce(&AtomicBool),
) -> f64 {
    let (stop, count, began) = (AtomicBool::new(false), AtomicU64::new(0), Instant::now());
    std::thread::scope(|scope| {
        scope.spawn(|| write(opened, pause, (&stop, &count)));
        beside(&stop);
        stop.store(true, Relaxed);
    });
    count.load(Relaxed) as f64 / began.elapsed().as_secs_f64()
}

fn rest(_: &AtomicBool) {
    std::thread::sleep(ROUND);
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns the rate with marks.
fn marks(record: RecordKind, rounds: usize) -> f64 {
    let (dir, service) = (tempfile::tempdir().expect("a directory"), service());
    let (database, call) = primary(&service, record, dir.path());
    let (mut ratios, mut rates) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let without = rate((&database, call), Duration::ZERO, rest);
        let sender = MarkSender::start(&database, service.clone(), MARKS).expect("a thread");
        let with = rate((&database, call), Duration::ZERO, rest);
        drop(sender);
        ratios.push(with / without);
        rates.push(with);
    }
    println!("{record:?}  marks    {:.3} of the rate without, {rounds} rounds", median(ratios));
    median(rates)
}

fn join(service: &Arc<dyn LogService>, record: RecordKind, dir: &Path) -> Standby {
    let patience = Duration::from_secs(5);
    let settings = StandbySettings { node: "two".into(), dirs: vec![dir.to_owned()], patience };
    Standby::join(service.clone(), &settings, declared(record).0).expect("it joins")
}

fn replay(record: RecordKind, transactions: u64, rounds: usize) {
    let (dir, service) = (tempfile::tempdir().expect("a directory"), service());
    let (database, call) = primary(&service, record, dir.path());
    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| write((&database, call), Duration::ZERO, (&stop, &count)));
        while count.load(Relaxed) < transactions {
            std::thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Relaxed);
    });
    let bytes: u64 = (0..STREAMS).map(|lane| database.log().expect("a log").next_lsn(lane)).sum();
    let (mut ratios, mut standbys, mut openings) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let began = Instant::now();
        let copy = tempfile::tempdir().expect("a directory");
        let mut standby = join(&service, record, copy.path());
        let sender = MarkSender::start(&database, service.clone(), MARKS).expect("a thread");
        while standby.served().is_none() {
            standby.step(Duration::from_millis(5)).expect("it follows");
        }
        standbys.push(began.elapsed().as_secs_f64());
        drop((sender, standby));
        let local = tempfile::tempdir().expect("a directory");
        let copy = local.path().join("copy");
        database.backup(&copy).expect("it copies");
        let began = Instant::now();
        let opened = declared(record).0.open(&copy).expect("it recovers");
        openings.push(began.elapsed().as_secs_f64());
        drop(opened);
        ratios.push(openings[openings.len() - 1] / standbys[standbys.len() - 1]);
    }
    println!(
        "{record:?}  replay   {:.2} of recovery: {} MB in {:.2} s, and {:.2} s with reading of \
         lanes and files",
        median(ratios),
        bytes / 1_000_000,
        median(openings),
        median(standbys)
    );
}

fn lag(record: RecordKind, full: f64) {
    let (dir, service) = (tempfile::tempdir().expect("a directory"), service());
    let (database, call) = primary(&service, record, dir.path());
    let _sender = MarkSender::start(&database, service.clone(), MARKS).expect("a thread");
    let pause = Duration::from_secs_f64(2.0 * 64.0 / full);
    let copy = tempfile::tempdir().expect("a directory");
    let (stop, mut samples) = (AtomicBool::new(false), Vec::new());
    let half = rate((&database, call), pause, |_| {
        std::thread::scope(|scope| {
            let follow = scope.spawn(|| {
                let mut standby = join(&service, record, copy.path());
                while !stop.load(Relaxed) {
                    let _ = standby.step(Duration::from_millis(5)).expect("it follows");
                    samples.extend(standby.lag_us());
                }
            });
            std::thread::sleep(2 * ROUND);
            stop.store(true, Relaxed);
            follow.join().expect("it ends");
        });
    });
    samples.sort_unstable();
    let at = |share: f64| samples[(samples.len() as f64 * share) as usize] as f64 / 1e3;
    println!(
        "{record:?}  lag      p50 {:.1} ms, p99 {:.1} ms at {:.2} of the full rate",
        at(0.5),
        at(0.99),
        half / full
    );
}

fn main() {
    let numbers: Vec<u64> = std::env::args().filter_map(|word| word.parse().ok()).collect();
    let transactions = numbers.first().copied().unwrap_or(1_000_000);
    let rounds = numbers.get(1).copied().unwrap_or(5) as usize;
    for record in [RecordKind::Data, RecordKind::Command] {
        let full = marks(record, rounds);
        replay(record, transactions, rounds);
        lag(record, full);
    }
}
