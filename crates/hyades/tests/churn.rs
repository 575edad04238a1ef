//! Promise: memory of removed rows is freed while transactions go on, however much each removes.
//!
//! Each case runs in a process of its own, whose resident pages are read, so that neither other
//! tests nor counters of the engine are part of the measurement.
#![allow(missing_docs)]

mod common;
use common::directory;
use hyades::{
    Abort, Builder, Column, Concurrency, Database, Error, Protocol, Schema, Session, Table,
    Transaction, Type, Value,
};
use hyades_schemes::all_controls;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The allocator of programs that allocate on many threads. The system's allocator keeps an arena
/// for each thread, with much empty memory where threads free memory of other threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROWS: Table = Table::nth(0);

/// How a transaction removes something.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Deletes rows, and inserts as many with other keys.
    Replace,
    /// Deletes rows, and inserts the same rows in the next transaction.
    Same,
    /// Changes an indexed column of rows.
    Index,
    /// Inserts rows and aborts.
    Abort,
    /// Inserts rows, rolls back the inserts, and commits.
    RollBack,
    /// Makes long rows shorter or longer.
    Resize,
}

const KINDS: [Kind; 6] =
    [Kind::Replace, Kind::Same, Kind::Index, Kind::Abort, Kind::RollBack, Kind::Resize];

#[derive(Clone, Copy, Debug)]
struct Case {
    kind: Kind,
    concurrency: Concurrency,
    protocol: Protocol,
    hashed: bool,
    removals: usize,
    threads: usize,
    seconds: f64,
}

fn schema(hashed: bool) -> Schema {
    let schema = Schema::new("rows")
        .column("id", Type::I64)
        .column("group", Type::I64)
        .column("text", Type::Text)
        .primary_key(&["id"])
        .index("by_group", &["group"]);
    if hashed { schema.hash() } else { schema }
}

fn builder(case: &Case) -> Builder {
    let mut builder =
        Database::builder().protocol(case.protocol).concurrency(case.concurrency).streams(1);
    builder.table(schema(case.hashed));
    builder
}

/// Bytes of this process in memory.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// One thread's transactions, over keys of its own.
struct Client<'d> {
    case: &'d Case,
    session: Session,
    base: i64,
}

impl Client<'_> {
    fn transact(&mut self, body: impl FnMut(&Transaction<'_>) -> Result<(), Error>) {
        let ((), _ticket) = self.session.submit(body).unwrap();
    }

    fn removals(&self) -> i64 {
        self.case.removals as i64
    }

    fn text(&self, n: i64) -> String {
        "x".repeat(if self.case.kind == Kind::Resize && n % 2 == 1 { 700 } else { 40 })
    }

    fn insert(&mut self, from: i64, n: i64) {
        let (text, removals) = (self.text(n), self.removals());
        self.transact(|tx| {
            let mut ids = from..from + removals;
            ids.try_for_each(|id| insert(tx, id, n, &text)).map_err(Error::from)
        });
    }

    fn step(&mut self, n: i64) {
        let (text, removals) = (self.text(n), self.removals());
        let first = self.base + if self.case.kind == Kind::Replace { n * removals } else { 0 };
        let (ids, others) = (first..first + removals, first + removals..first + 2 * removals);
        match self.case.kind {
            Kind::Replace => self.transact(|tx| {
                for id in ids.clone() {
                    assert!(tx.delete(ROWS, id)?);
                    insert(tx, id + removals, n, &text)?;
                }
                Ok(())
            }),
            Kind::Same => {
                self.transact(|tx| {
                    ids.clone().try_for_each(|id| tx.delete(ROWS, id).map(|_| ()))?;
                    Ok(())
                });
                self.insert(first, n);
            }
            Kind::Index | Kind::Resize => self.transact(|tx| {
                for id in ids.clone() {
                    let group = Column::<i64>::at(1).set(n * 7 % 1_000_003);
                    tx.update(ROWS, id, &[group, Column::<str>::at(2).set(text.as_str())])?;
                }
                Ok(())
            }),
            Kind::Abort => {
                let aborted = self.session.submit(|tx| -> Result<(), Error> {
                    others.clone().try_for_each(|id| insert(tx, id, n, &text))?;
                    Err(Abort::User(7).into())
                });
                assert!(aborted.is_err());
            }
            Kind::RollBack => self.transact(|tx| {
                let before = tx.savepoint();
                others.clone().try_for_each(|id| insert(tx, id, n, &text))?;
                tx.rollback_to(before)?;
                Ok(())
            }),
        }
    }
}

fn insert(tx: &Transaction<'_>, id: i64, n: i64, text: &str) -> Result<(), Abort> {
    tx.insert(ROWS, &[id.into(), n.into(), Value::Text(text)]).map(|_| ())
}

fn run(db: &Database, case: &Case, thread: usize, stop: &AtomicBool, done: &AtomicU64) {
    let session = db.session().unwrap();
    let mut client = Client { case, session, base: (thread as i64) << 40 };
    client.insert(client.base, 0);
    for n in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        client.step(n);
        done.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs a case in this process. Returns the resident bytes after the first part of the time, the
/// most later, the most bytes that waited to be freed, and the number of transactions.
fn measure(case: &Case) -> [u64; 4] {
    let dir = directory();
    let db = builder(case).open(dir.path()).unwrap();
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..case.threads {
            let (db, stop, done) = (&db, &stop, &done);
            scope.spawn(move || run(db, case, thread, stop, done));
        }
        // Long enough for two transactions of each thread.
        let began = Instant::now();
        while done.load(Ordering::Relaxed) < 3 * case.threads as u64
            || began.elapsed().as_secs_f64() < case.seconds / 4.0
        {
            std::thread::sleep(Duration::from_millis(5));
        }
        let (first, began) = (resident(), Instant::now());
        let (mut most, mut removed) = (0, 0);
        while began.elapsed().as_secs_f64() < case.seconds {
            most = most.max(resident());
            removed = removed.max(db.stats().removed_bytes);
            std::thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::Relaxed);
        [first, most, removed, done.load(Ordering::Relaxed)]
    })
}

/// Runs a case in another process, which prints its measurements.
fn measure_apart(case: &Case) -> [u64; 4] {
    let Case { kind, concurrency, protocol, hashed, removals, threads, seconds } = case;
    let case = format!(
        "{kind:?} {} {} {hashed} {removals} {threads} {seconds}",
        concurrency.name(),
        protocol.name()
    );
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_case", "--ignored", "--nocapture"])
        .env("CHURN_CASE", &case)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers =
        text.lines().find_map(|line| line.strip_prefix("measured ")).unwrap_or_else(|| {
            panic!("{case}: {text}{}", String::from_utf8_lossy(&output.stderr));
        });
    let numbers: Vec<u64> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
    numbers.try_into().unwrap()
}

#[test]
#[ignore = "other tests run it in a process of its own"]
fn a_case() {
    let Ok(case) = std::env::var("CHURN_CASE") else { return };
    let words: Vec<&str> = case.split(' ').collect();
    let concurrency = all_controls().find(|control| control.name() == words[1]).unwrap();
    let protocol =
        [Protocol::None, Protocol::Taurus].into_iter().find(|p| p.name() == words[2]).unwrap();
    let case = Case {
        kind: KINDS.into_iter().find(|kind| format!("{kind:?}") == words[0]).unwrap(),
        concurrency,
        protocol,
        hashed: words[3] == "true",
        removals: words[4].parse().unwrap(),
        threads: words[5].parse().unwrap(),
        seconds: words[6].parse().unwrap(),
    };
    let [first, most, removed, done] = measure(&case);
    println!("measured {first} {most} {removed} {done}");
}

/// Checks the bytes that wait to be freed, and unless there are many threads, whose heaps take time
/// to grow, the resident bytes.
fn check(case: Case) {
    let [first, most, removed, done] = measure_apart(&case);
    println!(
        "{case:?}: {done} transactions, {} MB, then {} MB, with {} MB of removed rows",
        first >> 20,
        most >> 20,
        removed >> 20
    );
    // Rows removed by two transactions of each thread may wait: 1,000 bytes a row at most.
    let waiting = 2 * (case.threads * case.removals) as u64 * 1_000 + (32 << 20);
    assert!(removed <= waiting, "{case:?}: {removed} bytes of {waiting} wait to be freed");
    let bound = 2 * first + waiting;
    if case.threads <= 4 {
        assert!(most <= bound, "{case:?}: {first} bytes after a while, then {most} of {bound}");
    }
}

fn cases(removals: usize, seconds: f64) -> impl Iterator<Item = Case> {
    all_controls().flat_map(move |concurrency| {
        KINDS.into_iter().enumerate().map(move |(at, kind)| Case {
            kind,
            concurrency,
            protocol: if at % 2 == 0 { Protocol::Taurus } else { Protocol::None },
            hashed: at % 3 == 0,
            removals,
            threads: 2,
            seconds,
        })
    })
}

#[test]
fn few_removals_a_transaction() {
    for (removals, concurrency) in [1, 4, 5].into_iter().zip(all_controls()) {
        for case in cases(removals, 0.5).filter(|case| case.concurrency == concurrency) {
            check(case);
        }
    }
}

#[test]
fn fifty_removals_a_transaction_under_each_control() {
    cases(50, 0.7).for_each(check);
}

#[test]
fn a_hundred_thousand_removals_a_transaction() {
    let large = cases(100_000, 2.0).filter(|case| case.concurrency == Concurrency::Silo);
    large.map(|case| Case { threads: 1, ..case }).for_each(check);
}

#[test]
fn many_threads_beside_few_cores() {
    let crowded = cases(50, 1.5).filter(|case| case.concurrency == Concurrency::NoWait);
    crowded.map(|case| Case { threads: 32, ..case }).for_each(check);
}
