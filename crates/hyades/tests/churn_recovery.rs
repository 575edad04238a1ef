//! Promise: a database opens in the memory in which it ran, however many rows were inserted and
//! removed since the last checkpoint.
//!
//! Running and opening are separate processes; the kernel reports their peaks of resident memory.
#![allow(missing_docs)]

mod common;
use common::directory;
use hyades::{
    Builder, Column, Concurrency, Database, Error, Protocol, RecordKind, Schema, Table,
    Transaction, Type, Value,
};
use hyades_schemes::{GSN, PLOVER, POPLAR, SILO_R, TAURUS_2016, all_controls};
use std::path::Path;
use std::process::Command;

/// The allocator of programs that allocate on many threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROWS: Table = Table::nth(0);
const THREADS: i64 = 2;
/// Live rows of each thread at a time.
const LIVE: i64 = 50;
/// Bytes of a row's text.
const TEXT: usize = 100;
/// Rows that each thread writes in turn, where rows are long.
const LONG_ROWS: i64 = 20;

#[derive(Clone, Copy, Debug)]
struct Case {
    protocol: Protocol,
    concurrency: Concurrency,
    record: RecordKind,
    streams: usize,
    hashed: bool,
    transactions: i64,
    threads: usize,
    /// Bytes of the text of a row, if transactions overwrite a long row; 0: transactions remove
    /// rows.
    long: usize,
}

impl Case {
    fn rows_of_thread(&self) -> i64 {
        if self.long > 0 { LONG_ROWS } else { LIVE + 1 }
    }
}

/// Overwrites a row.
fn overwrite(tx: &Transaction<'_>, base: i64, n: i64, bytes: usize) -> Result<(), hyades::Abort> {
    let text = "x".repeat(bytes);
    tx.upsert(ROWS, &[(base + n % LONG_ROWS).into(), (n % 9).into(), Value::Text(&text)])?;
    Ok(())
}

/// Deletes the rows of step `n` of a client, and inserts the rows of the next step.
fn step(tx: &Transaction<'_>, base: i64, n: i64) -> Result<(), hyades::Abort> {
    let text = "x".repeat(TEXT);
    for id in base + n * LIVE..base + (n + 1) * LIVE {
        if n > 0 {
            tx.delete(ROWS, id)?;
        }
        tx.insert(ROWS, &[(id + LIVE).into(), (n % 9).into(), Value::Text(&text)])?;
    }
    // One row stays, and is written again and again.
    let group = Column::<i64>::at(1).set(n);
    if !tx.update(ROWS, base - 1, &[group])? {
        tx.insert(ROWS, &[(base - 1).into(), n.into(), Value::Text("stays")])?;
    }
    Ok(())
}

fn builder(case: &Case) -> (Builder, hyades::ProcedureId) {
    let mut builder = Database::builder()
        .protocol(case.protocol)
        .concurrency(case.concurrency)
        .record(case.record)
        .streams(case.streams)
        .recovery_threads(case.threads);
    let schema = Schema::new("rows")
        .column("id", Type::I64)
        .column("group", Type::I64)
        .column("text", Type::Text)
        .primary_key(&["id"])
        .index("by_group", &["group"]);
    builder.table(if case.hashed { schema.hash() } else { schema });
    let long = case.long;
    let run = move |tx: &Transaction<'_>, (base, n): (i64, i64)| match long {
        0 => step(tx, base, n),
        long => overwrite(tx, base, n, long),
    };
    let step = builder.procedure("step", 1, run);
    (builder, step)
}

/// The peak of resident memory of this process, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn base(thread: i64) -> i64 {
    (thread + 1) << 40
}

fn run(case: &Case, dir: &Path) {
    let (builder, procedure) = builder(case);
    let db = builder.open(dir).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let db = &db;
            scope.spawn(move || {
                let mut session = db.session().unwrap();
                for n in 0..case.transactions {
                    let ticket = match case.record {
                        RecordKind::Data => {
                            let body = |tx: &Transaction<'_>| Ok(step(tx, base(thread), n)?);
                            session.submit(body).unwrap().1
                        }
                        _ => session.call(procedure, &(base(thread), n)).unwrap().1,
                    };
                    if n % 64 == 0 {
                        ticket.wait().unwrap();
                    }
                }
            });
        }
    });
    db.close().unwrap();
}

/// Opens the database and checks its rows.
fn open(case: &Case, dir: &Path) {
    let db = builder(case).0.open(dir).unwrap();
    let peak = peak();
    assert_eq!(db.rows(), (THREADS * case.rows_of_thread()) as u64);
    println!("peak {peak}");
    if case.long > 0 {
        return;
    }
    let found = db.transact(|tx| {
        let mut found = 0;
        for thread in 0..THREADS {
            let from = base(thread) + case.transactions * LIVE;
            found += (from..from + LIVE).filter(|&id| tx.get(ROWS, id).unwrap().is_some()).count();
        }
        Ok::<_, Error>(found as i64)
    });
    assert_eq!(found.unwrap(), THREADS * LIVE);
}

/// Runs a part of a case in another process, and returns its peak.
fn apart(part: &str, case: &str, dir: &Path) -> u64 {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_part", "--ignored", "--nocapture"])
        .env("CHURN_PART", part)
        .env("CHURN_CASE", case)
        .env("CHURN_DIR", dir)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let number = text.lines().find_map(|line| line.strip_prefix("peak "));
    let errors = String::from_utf8_lossy(&output.stderr);
    number.unwrap_or_else(|| panic!("{part} {case}: {text}{errors}")).parse().unwrap()
}

const RECORDS: [RecordKind; 3] = [RecordKind::Data, RecordKind::Command, RecordKind::Adaptive];

#[test]
#[ignore = "other tests run it in a process of its own"]
fn a_part() {
    let Ok(text) = std::env::var("CHURN_CASE") else { return };
    let words: Vec<&str> = text.split(' ').collect();
    let protocols = [Protocol::Taurus, Protocol::Serial, SILO_R, POPLAR, PLOVER, GSN, TAURUS_2016];
    let case = Case {
        protocol: protocols.into_iter().find(|p| p.name() == words[0]).unwrap(),
        concurrency: all_controls().find(|control| control.name() == words[1]).unwrap(),
        record: RECORDS.into_iter().find(|record| format!("{record:?}") == words[2]).unwrap(),
        streams: words[3].parse().unwrap(),
        hashed: words[4] == "true",
        transactions: words[5].parse().unwrap(),
        threads: words[6].parse().unwrap(),
        long: words[7].parse().unwrap(),
    };
    let dir = std::env::var("CHURN_DIR").unwrap();
    match std::env::var("CHURN_PART").unwrap().as_str() {
        "run" => {
            run(&case, Path::new(&dir));
            println!("peak {}", peak());
        }
        _ => open(&case, Path::new(&dir)),
    }
}

fn check(case: Case) {
    let dir = directory();
    let text = format!(
        "{} {} {:?} {} {} {} {} {}",
        case.protocol.name(),
        case.concurrency.name(),
        case.record,
        case.streams,
        case.hashed,
        case.transactions,
        case.threads,
        case.long
    );
    let ran = apart("run", &text, dir.path());
    // On a busy machine a delayed thread holds up the tombstones of the other thread.
    let bound = ran + ran / 2 + (64 << 20);
    let mut peaks = (0..TRIES).map(|_| apart("open", &text, dir.path()));
    let opened = peaks.find(|&opened| {
        println!("{text}: ran in {} MB, opened in {} MB", ran >> 20, opened >> 20);
        opened <= bound
    });
    assert!(opened.is_some(), "{text}: ran in {ran} bytes, and opened in more than {bound}");
}

/// Openings, of which one has to fit. Memory that grows with the log would fit none.
const TRIES: usize = 5;

/// A million removed rows: 280 bytes of memory and more for each, if the rows stayed.
const TRANSACTIONS: i64 = 10_000;

const CASE: Case = Case {
    protocol: Protocol::Taurus,
    concurrency: Concurrency::Silo,
    record: RecordKind::Data,
    streams: 3,
    hashed: false,
    transactions: TRANSACTIONS,
    threads: 2,
    long: 0,
};

#[test]
fn data_records_of_several_streams() {
    check(CASE);
    check(Case { hashed: true, ..CASE });
    check(Case { concurrency: Concurrency::Hekaton, threads: 1, ..CASE });
}

#[test]
fn data_records_of_one_stream() {
    check(Case { protocol: Protocol::Serial, streams: 1, ..CASE });
}

#[test]
fn data_records_whose_versions_are_epochs_or_numbers() {
    for protocol in [SILO_R, POPLAR, GSN] {
        check(Case { protocol, concurrency: Concurrency::NoWait, ..CASE });
    }
}

#[test]
fn commands_and_both() {
    check(Case { record: RecordKind::Command, transactions: TRANSACTIONS / 2, ..CASE });
    check(Case { record: RecordKind::Adaptive, hashed: true, ..CASE });
    let serial = Case { protocol: Protocol::Serial, streams: 1, ..CASE };
    check(Case { record: RecordKind::Command, transactions: TRANSACTIONS / 2, ..serial });
}

#[test]
fn records_that_list_their_predecessors() {
    let case = Case { protocol: TAURUS_2016, ..CASE };
    check(case);
    check(Case { record: RecordKind::Command, ..case });
    check(Case { record: RecordKind::Adaptive, hashed: true, ..case });
}

/// Replay along lists of predecessors keeps versions of rows, which commands may still read.
#[test]
fn versions_of_rows_that_commands_may_read() {
    let (protocol, record) = (TAURUS_2016, RecordKind::Command);
    check(Case { protocol, record, transactions: 2 * TRANSACTIONS, long: 40_000, ..CASE });
}
