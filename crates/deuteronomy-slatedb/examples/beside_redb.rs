//! SlateDB beside redb, alone and under the transaction component:
//! `cargo run --release --example beside_redb -- DIR [rounds] [seconds]`, or with `--features aws`
//! and a URL as `s3://bucket` for DIR.
//!
//! Values of 100 bytes under random keys of 8. Alone: 200,000 keys are upserted in batches of 200,
//! then checkpointed; random keys are read by a thread. Under the component: transactions of 4
//! accesses, of which 84 % read, 80/20, on 200,000 keys, ten times the budget, in 8 sessions: half
//! of the budget holds versions, half is the store's cache. The rounds alternate; medians and
//! ranges are printed.
#![allow(missing_docs)]

use hyades_deuteronomy::{
    DataComponent, Database, Error, LogOptions, Operation, Options, RedbData, ResumePoint,
};
use hyades_deuteronomy_slatedb::{SlateData, SlateOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const KEYS: u64 = 200_000;
const VALUE: [u8; 100] = [7; 100];
const BATCH: usize = 200;
/// The cache of a store alone.
const CACHE: usize = 128 << 20;
/// A tenth of the keys and values, and of their headers.
const BUDGET: usize = 2 << 20;
const ACCESSES: usize = 4;
const SESSIONS: u64 = 8;
/// The transactions of a session that wait for the log.
const IN_FLIGHT: usize = 512;

type Failure = Box<dyn std::error::Error>;

/// Where the objects are: a directory, or the URL of an object storage.
enum Place {
    Dir(PathBuf),
    Url(String),
}

/// A store, and what its memory is.
#[derive(Clone, Copy, PartialEq)]
enum Store {
    Slate,
    Redb,
}

impl Store {
    fn open(self, place: &Place, scratch: &Path, cache: usize) -> Result<Data, Failure> {
        let name = scratch.file_name().expect("it has a name").to_string_lossy().into_owned();
        let options = SlateOptions::default().cache_bytes(cache);
        Ok(match (self, place) {
            (Store::Redb, _) => Arc::new(RedbData::open(&scratch.join("data.redb"), cache)?),
            (Store::Slate, Place::Dir(_)) => {
                Arc::new(SlateData::open_dir(&scratch.join("objects"), options)?)
            }
            (Store::Slate, Place::Url(url)) => Arc::new(SlateData::open_url(url, &name, options)?),
        })
    }
}

type Data = Arc<dyn DataComponent>;

/// What a round has measured.
#[derive(Clone, Copy, Debug)]
struct Rates {
    /// Upserts a second, the checkpoint included.
    upserts: f64,
    /// Reads of the store a second.
    gets: f64,
    /// Reads of the store after it was opened again, with a cache of `BUDGET / 2`.
    small_gets: f64,
    /// Transactions of the component a second.
    transactions: f64,
}

fn gets(data: &dyn DataComponent, time: Duration) -> Result<f64, Failure> {
    let (mut rng, mut read, began) = (fastrand::Rng::with_seed(2), 0, Instant::now());
    while began.elapsed() < time {
        data.get(&rng.u64(0..KEYS).to_be_bytes())?;
        read += 1;
    }
    Ok(f64::from(read) / began.elapsed().as_secs_f64())
}

/// Upserts a second: each key once, in an order drawn.
fn upserts(data: &dyn DataComponent) -> Result<f64, Failure> {
    let mut keys: Vec<[u8; 8]> = (0..KEYS).map(u64::to_be_bytes).collect();
    fastrand::Rng::with_seed(1).shuffle(&mut keys);
    let point = ResumePoint { highest_ts: KEYS, ..ResumePoint::initial([1; 16]) };
    let began = Instant::now();
    for (at, some) in keys.chunks_mut(BATCH).enumerate() {
        some.sort_unstable();
        let ts = 1 + at as u64;
        let all = some.iter().map(|key| Operation { key: &key[..], ts, value: Some(&VALUE[..]) });
        data.apply(&all.collect::<Vec<_>>())?;
    }
    data.checkpoint(&point)?;
    Ok(KEYS as f64 / began.elapsed().as_secs_f64())
}

/// A row: four fifths of the accesses go to a fifth of the rows.
fn drawn(rng: &mut fastrand::Rng) -> [u8; 8] {
    let row = match rng.u8(0..5) {
        0 => rng.u64(0..KEYS),
        _ => 5 * rng.u64(0..KEYS / 5),
    };
    row.to_be_bytes()
}

/// Transactions of a session, until all are acknowledged.
fn run(database: &Database, seed: u64, time: Duration) -> Result<u32, Error> {
    let (mut session, mut queue) = (database.session()?, database.commit_queue());
    let (mut rng, mut run, began) = (fastrand::Rng::with_seed(seed), 0, Instant::now());
    while began.elapsed() < time {
        let accesses: [_; ACCESSES] = std::array::from_fn(|_| (drawn(&mut rng), rng.u8(0..100)));
        let ((), ticket) = session.submit(|tx| {
            for (key, dice) in &accesses {
                match *dice < 84 {
                    true => drop(tx.get(key)?),
                    false => tx.put(key, &VALUE)?,
                }
            }
            Ok::<_, Error>(())
        })?;
        queue.push(ticket, ());
        queue.drain(drop)?;
        while queue.len() > IN_FLIGHT {
            queue.wait_for_one()?;
            queue.drain(drop)?;
        }
        run += 1;
    }
    while !queue.is_empty() {
        queue.wait_for_one()?;
        queue.drain(drop)?;
    }
    Ok(run)
}

/// Transactions a second of all sessions.
fn transactions(data: Data, scratch: &Path, time: Duration) -> Result<f64, Failure> {
    let mut options = Options::new(LogOptions::new(vec![scratch.join("log")], 2));
    options.memory_bytes = BUDGET / 2;
    options.redo_bytes = 8 << 20;
    let database = Database::open(options, data)?;
    let mut keys: Vec<[u8; 8]> = (0..KEYS).map(u64::to_be_bytes).collect();
    fastrand::Rng::with_seed(1).shuffle(&mut keys);
    let mut session = database.session()?;
    for some in keys.chunks(100) {
        session.execute(|tx| some.iter().try_for_each(|key| tx.put(key, &VALUE)))?;
    }
    drop(session);
    database.checkpoint()?;
    let began = Instant::now();
    let all = std::thread::scope(|scope| {
        let begin = |seed| {
            scope.spawn({
                let database = &database;
                move || run(database, seed, time)
            })
        };
        let running: Vec<_> = (0..SESSIONS).map(begin).collect();
        let ended = running.into_iter().map(|thread| thread.join().expect("no panic"));
        ended.sum::<Result<u32, Error>>()
    })?;
    let rate = f64::from(all) / began.elapsed().as_secs_f64();
    database.close()?;
    Ok(rate)
}

fn round(store: Store, place: &Place, time: Duration) -> Result<Rates, Failure> {
    let parent = match place {
        Place::Dir(dir) => dir.clone(),
        Place::Url(_) => std::env::temp_dir(),
    };
    let scratch = tempfile::TempDir::new_in(&parent)?;
    let data = store.open(place, scratch.path(), CACHE)?;
    let (upserts, gets_all) = (upserts(&*data)?, gets(&*data, time)?);
    drop(data);
    let data = store.open(place, scratch.path(), BUDGET / 2)?;
    let small_gets = gets(&*data, time)?;
    drop(data);
    let second = tempfile::TempDir::new_in(&parent)?;
    let data = store.open(place, second.path(), BUDGET / 2)?;
    let transactions = transactions(data, second.path(), time)?;
    Ok(Rates { upserts, gets: gets_all, small_gets, transactions })
}

/// Chooses a rate.
type RateOf = fn(&Rates) -> f64;

fn spread(rates: &[Rates], field: RateOf) -> (f64, String) {
    let mut all: Vec<f64> = rates.iter().map(field).collect();
    all.sort_by(f64::total_cmp);
    let median = all[all.len() / 2];
    (median, format!("{median:.0} ({:.0} to {:.0})", all[0], all[all.len() - 1]))
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let place = arguments.next().ok_or("name a directory, or the URL of an object storage")?;
    let rounds: usize = arguments.next().map_or(Ok(5), |rounds| rounds.parse())?;
    let seconds: f64 = arguments.next().map_or(Ok(2.0), |seconds| seconds.parse())?;
    let time = Duration::from_secs_f64(seconds);
    let place = match place.contains("://") {
        true => Place::Url(place),
        false => Place::Dir(place.into()),
    };
    let (mut slate, mut redb) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        slate.push(round(Store::Slate, &place, time)?);
        redb.push(round(Store::Redb, &place, time)?);
    }
    let fields: [(&str, RateOf); 4] = [
        ("upserts/s, with a checkpoint", |rates| rates.upserts),
        ("gets/s, all in the cache", |rates| rates.gets),
        ("gets/s, with a cache of 1 MiB", |rates| rates.small_gets),
        ("transactions/s of the component, ten times the budget", |rates| rates.transactions),
    ];
    println!("| | SlateDB | redb | SlateDB to redb |\n|---|---|---|---|");
    for (what, field) in fields {
        let ((slate, slates), (redb, redbs)) = (spread(&slate, field), spread(&redb, field));
        println!("| {what} | {slates} | {redbs} | {:.2} |", slate / redb);
    }
    Ok(())
}
