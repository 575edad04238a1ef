//! Measures how long a database of many rows, or of large rows, takes to load, to checkpoint and to
//! reopen after a crash, and its update rate with and without a running checkpoint.
//!
//! `cargo run --release -p hyades-simulator --example sizes -- DIR ROWS BYTES hash|ordered`

use hyades::{Abort, Column, Database, Schema, Table, Transaction, Type};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const ROWS: Table = Table::nth(0);
const VALUE: Column<[u8]> = Column::at(1);
/// Approximate number of bytes that a loading transaction inserts.
const BATCH_BYTES: usize = 1 << 20;
const THREADS: i64 = 2;
/// How long updates run without a checkpoint. Beside a checkpoint they run until it is complete.
const UPDATES: Duration = Duration::from_secs(5);

fn open(dir: &Path, hash: bool) -> Database {
    let mut builder = Database::builder();
    let schema = Schema::new("rows").column("id", Type::I64).column("value", Type::Bytes);
    let schema = schema.primary_key(&["id"]);
    builder.table(if hash { schema.hash() } else { schema });
    builder.open(dir).unwrap_or_else(|error| {
        println!("opening failed: {error}");
        std::process::exit(1)
    })
}

/// Inserts all rows with two threads.
fn load(db: &Database, rows: i64, bytes: usize) {
    let batch = (BATCH_BYTES / (bytes + 64)).max(1);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let mut session = db.session().unwrap();
                let ids: Vec<i64> = (thread..rows).step_by(THREADS as usize).collect();
                for ids in ids.chunks(batch) {
                    let insert = |tx: &Transaction<'_>| {
                        for &id in ids {
                            tx.insert(ROWS, &[id.into(), (&vec![id as u8; bytes][..]).into()])?;
                        }
                        Ok::<_, Abort>(())
                    };
                    session.try_submit(insert).unwrap().0.unwrap();
                }
            });
        }
    });
    db.log().unwrap().flush().unwrap();
}

/// Updates random rows on two threads until `until` returns true. Returns the updates per second.
fn updates(db: &Database, rows: i64, bytes: usize, until: impl Fn() -> bool + Sync) -> f64 {
    let began = Instant::now();
    let until = &until;
    let updated: u64 = std::thread::scope(|scope| {
        let run = |thread: i64| {
            let mut session = db.session().unwrap();
            let mut rng = fastrand::Rng::with_seed(thread as u64);
            let mut updated = 0;
            while !until() {
                let (id, value) = (rng.i64(0..rows), vec![rng.u8(..); bytes]);
                let update = |tx: &Transaction<'_>| tx.update(ROWS, id, &[VALUE.set(&value[..])]);
                session.try_submit(update).unwrap().0.unwrap();
                updated += 1;
            }
            updated
        };
        let threads: Vec<_> = (0..THREADS).map(|t| scope.spawn(move || run(t))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    db.log().unwrap().flush().unwrap();
    updated as f64 / began.elapsed().as_secs_f64()
}

fn fill(dir: &Path, rows: i64, bytes: usize, hash: bool) -> ! {
    let db = open(dir, hash);
    let began = Instant::now();
    load(&db, rows, bytes);
    let seconds = began.elapsed().as_secs_f64();
    println!("loading             {seconds:.1} s, {:.0} rows/s", rows as f64 / seconds);
    let over = Instant::now() + UPDATES;
    println!("updates             {:.0}/s", updates(&db, rows, bytes, || Instant::now() > over));
    let began = Instant::now();
    db.checkpoint().unwrap();
    println!("checkpoint          {:.1} s", began.elapsed().as_secs_f64());
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            db.checkpoint().unwrap();
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let began = Instant::now();
        let is_done = || done.load(std::sync::atomic::Ordering::Relaxed);
        println!("updates beside one  {:.0}/s", updates(&db, rows, bytes, is_done));
        println!("checkpoint beside   {:.1} s", began.elapsed().as_secs_f64());
    });
    std::process::abort()
}

fn reopen(dir: &Path, rows: i64, hash: bool) {
    let began = Instant::now();
    let db = open(dir, hash);
    let seconds = began.elapsed().as_secs_f64();
    println!("opening             {seconds:.1} s");
    assert_eq!(db.rows(), rows as u64);
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, rows, bytes, index, step @ ..] = &arguments[..] else {
        eprintln!("usage: sizes DIR ROWS BYTES hash|ordered");
        std::process::exit(2)
    };
    let (dir, hash) = (Path::new(dir), index == "hash");
    let (rows, bytes) = (rows.parse().expect("a number"), bytes.parse().expect("a number"));
    match step {
        [] => {
            for step in ["fill", "reopen"] {
                let program = std::env::current_exe().expect("this program");
                Command::new(program).args(&arguments).arg(step).status().expect("it starts");
            }
        }
        [step] if step == "fill" => fill(dir, rows, bytes, hash),
        _ => reopen(dir, rows, hash),
    }
}
