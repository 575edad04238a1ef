//! An updater beside a scanner: `cargo bench -p hyades --bench snapshots [rows [rounds]]`.
//!
//! Two equal tables; one thread updates one column of random rows of the first, another scans a
//! whole table again and again, reading all columns. The updater's rate beside a scanner of its own
//! table is compared with its rate beside a scanner of the other table: the difference is the cost
//! of snapshots for writers. Rounds alternate, and medians of their ratios are shown. Plain scans,
//! in transactions, are shown beside. No log, so that nothing else is measured.
#![allow(missing_docs)]

use hyades::{
    Abort, Column, Columns, Concurrency, Database, Protocol, Schema, Session, Table, Transaction,
    Type, Value,
};
use hyades_schemes::all_controls;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const COLUMNS: u16 = 10;
const WIDTH: usize = 100;
const ROUND: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scans {
    Snapshot,
    Plain,
}

fn open(concurrency: Concurrency, rows: u64) -> (Database, [Table; 2]) {
    let mut builder = Database::builder().protocol(Protocol::None).concurrency(concurrency);
    let tables = ["first", "second"].map(|name| {
        let columns = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
        let schema = Schema::new(name).column("id", Type::U64);
        let schema =
            columns.iter().fold(schema, |s, name| s.column(name, Type::Fixed(WIDTH as u16)));
        builder.table(schema.primary_key(&["id"]))
    });
    let db = builder.open("").expect("no log");
    let mut session = db.session().expect("a session");
    let mut row = [Value::Bytes(&[7; WIDTH]); COLUMNS as usize + 1];
    for table in tables {
        for from in (0..rows).step_by(100) {
            let insert = |tx: &Transaction<'_>| {
                (from..rows.min(from + 100)).try_for_each(|id| {
                    row[0] = id.into();
                    tx.insert(table, &row).map(drop)
                })
            };
            session.try_submit(insert).expect("it runs").0.expect("new rows");
        }
    }
    (db, tables)
}

fn update(session: &mut Session, table: Table, rows: u64, random: &mut fastrand::Rng) {
    let (id, column) = (random.u64(0..rows), 1 + random.u16(0..COLUMNS));
    let value = [random.u8(..); WIDTH];
    let set =
        |tx: &Transaction<'_>| tx.update(table, id, &[Column::<[u8]>::at(column).set(&value)]);
    assert!(session.try_submit(set).expect("it runs").0.expect("it is there"));
}

/// Scans once, and notes the number of older versions at the end; false after a failure.
fn scan(db: &Database, table: Table, how: Scans, over: &AtomicBool, most: &AtomicU64) -> bool {
    if how == Scans::Snapshot {
        let snapshot = db.open_snapshot();
        let scanned = snapshot.for_each(table, Columns::ALL, |row| _ = std::hint::black_box(row));
        most.fetch_max(db.stats().old_versions, Ordering::Relaxed);
        return scanned.is_ok();
    }
    let mut attempts = 0;
    let scanned = db.try_transact(|tx| {
        attempts += 1;
        if attempts > 1 || over.load(Ordering::Relaxed) {
            return Err(Abort::User(0));
        }
        tx.scan(table).rows().map(|rows| _ = std::hint::black_box(rows))
    });
    scanned.expect("it runs").is_ok()
}

/// One round: updates per second, scans, failed scans, and the most older versions.
fn round(db: &Database, tables: [Table; 2], scanned: usize, how: Scans, rows: u64) -> [f64; 4] {
    let (over, failed, scans, most) =
        (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let updates = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let done = scan(db, tables[scanned], how, &over, &most);
                (if done { &scans } else { &failed }).fetch_add(1, Ordering::Relaxed);
            }
        });
        let (mut session, mut random) = (db.session().expect("a session"), fastrand::Rng::new());
        let (began, mut updates) = (Instant::now(), 0u64);
        while began.elapsed() < ROUND {
            for _ in 0..64 {
                update(&mut session, tables[0], rows, &mut random);
            }
            updates += 64;
        }
        over.store(true, Ordering::Relaxed);
        updates as f64 / began.elapsed().as_secs_f64()
    });
    let total = |count: AtomicU64| count.into_inner() as f64;
    [updates, total(scans), total(failed), total(most)]
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let arguments: Vec<u64> = std::env::args().filter_map(|text| text.parse().ok()).collect();
    let rows = arguments.first().copied().unwrap_or(1_000_000);
    let rounds = arguments.get(1).copied().unwrap_or(7);
    for concurrency in all_controls() {
        let (db, tables) = open(concurrency, rows);
        for how in [Scans::Snapshot, Scans::Plain] {
            let mut ratios = Vec::new();
            for _ in 0..rounds {
                let [other, own] = [1, 0].map(|scanned| round(&db, tables, scanned, how, rows));
                println!(
                    "{concurrency:?}, {how:?} scans of {rows} rows: {:.0} updates/s beside the \
                     other table's ({} scans, {} failed), {:.0} beside its own ({}, {} failed; \
                     {} versions): {:.3}",
                    other[0],
                    other[1],
                    other[2],
                    own[0],
                    own[1],
                    own[2],
                    own[3],
                    own[0] / other[0],
                );
                ratios.push(own[0] / other[0]);
            }
            println!("{concurrency:?}, {how:?} scans: median {:.3}", median(ratios));
        }
    }
}
