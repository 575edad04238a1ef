//! Soak test: a process works on real files, is killed and restarted, for a given time. Each run
//! draws the engine settings, the data and the client behaviour at random. Each restart compares
//! the whole state with what was acknowledged. Resident memory is checked against a bound derived
//! from the rows.
//!
//! `cargo run --release -p hyades-simulator --example soak -- --seconds 600`

use hyades::{
    Abort, Column, CommitQueue, Database, Error, Index, ProcedureId, RecordKind, Schema, Table,
    Transaction, Type,
};
use hyades_simulator::plan::Combination;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const ROWS: Table = Table::nth(0);
const COUNTS: Table = Table::nth(1);
const SHARED: Table = Table::nth(2);
const COUNT: Column<u64> = Column::at(1);
const GROUP: Column<u64> = Column::at(2);
const VALUE: Column<[u8]> = Column::at(3);

/// Number of rows that each worker writes, in turn.
const SLOTS: u64 = 40;
/// One in this many transactions of a worker also increments the row that all workers share.
const SHARES: u64 = 8;
/// One in this many transactions of a worker deletes its row.
const DELETES: u64 = 5;

/// Parameters that stay the same over all runs of a database.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Data {
    /// The longest value in bytes.
    longest_value: usize,
    /// Bytes of the longest key beyond its first sixteen.
    longest_key: usize,
    /// Whether the table of rows has a hash index.
    hashed: bool,
    workers: u64,
}

/// Parameters of one run of the process, from start to kill.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Life {
    combination: Combination,
    checkpoint_ms: Option<u64>,
    session_each: bool,
    in_flight: usize,
    data: Data,
}

fn mix(n: u64) -> u64 {
    let n = (n ^ n >> 31).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    n ^ n >> 29
}

impl Data {
    fn key(&self, worker: u64, slot: u64) -> Vec<u8> {
        let mut key = [worker.to_be_bytes(), slot.to_be_bytes()].concat();
        let more = mix(worker * SLOTS + slot) as usize % (self.longest_key + 1);
        key.resize(key.len() + more, 0);
        key
    }

    /// The value that transaction `n` of a worker writes to its row; `None` if it deletes the row.
    fn value(&self, worker: u64, n: u64) -> Option<Vec<u8>> {
        let random = mix(worker << 40 | n);
        let most = if random.is_multiple_of(4) { self.longest_value } else { 200 };
        let length = (random >> 8) as usize % (most + 1);
        (!n.is_multiple_of(DELETES)).then(|| vec![random as u8; length])
    }

    /// The rows of a worker after its first `count` transactions: slot to (transaction, value).
    fn rows(&self, worker: u64, count: u64) -> BTreeMap<u64, (u64, Vec<u8>)> {
        let recent = (count.saturating_sub(SLOTS) + 1..=count).map(|n| (n % SLOTS, n));
        recent.filter_map(|(slot, n)| Some((slot, (n, self.value(worker, n)?)))).collect()
    }

    /// Bound for the resident memory in bytes: rows, their replacements, buffers, and 256 MiB for
    /// all else.
    fn memory_limit(&self) -> u64 {
        let rows = self.workers * SLOTS * (self.longest_value / 4 + self.longest_key + 500) as u64;
        (256 << 20) + 6 * rows + 40 * self.workers * self.longest_value as u64
    }
}

/// Body of the next transaction of a worker. Returns the number of the transaction.
fn step(tx: &Transaction<'_>, data: &Data, worker: u64) -> Result<u64, Abort> {
    let n = tx.get(COUNTS, worker)?.map_or(0, |row| row.get(COUNT)) + 1;
    tx.upsert(COUNTS, &[worker.into(), n.into(), (n % 7).into()])?;
    let key = data.key(worker, n % SLOTS);
    match data.value(worker, n) {
        Some(value) => {
            tx.upsert(ROWS, &[key[..].into(), n.into(), (n % 3).into(), value[..].into()])?;
        }
        None => {
            tx.delete(ROWS, &key[..])?;
        }
    }
    if n.is_multiple_of(SHARES) {
        let shared = tx.get(SHARED, 0u64)?.map_or(0, |row| row.get(COUNT)) + 1;
        tx.upsert(SHARED, &[0u64.into(), shared.into(), shared.into()])?;
    }
    Ok(n)
}

fn open(dir: &Path, life: &Life) -> Result<(Database, ProcedureId), Error> {
    let Combination { protocol, concurrency, record, streams } = life.combination;
    let mut builder = Database::builder()
        .protocol(protocol)
        .concurrency(concurrency)
        .record(record)
        .streams(streams)
        .log_settings(|log| {
            log.buffer_bytes = 1 << 20;
            log.segment_bytes = 1 << 22;
        })
        .checkpoint_settings(|settings| {
            settings.interval = life.checkpoint_ms.map(Duration::from_millis);
            settings.share = 0.5;
        });
    let schema = |name: &str, key| {
        let schema = Schema::new(name).column("key", key).column("count", Type::U64);
        schema.column("group", Type::U64).primary_key(&["key"]).index("by_group", &["group"])
    };
    let rows = schema("rows", Type::Bytes).column("value", Type::Bytes);
    builder.table(if life.data.hashed { rows.hash() } else { rows });
    builder.table(schema("counts", Type::U64));
    builder.table(schema("shared", Type::U64));
    let data = life.data;
    let run = move |tx: &Transaction<'_>, worker: u64| step(tx, &data, worker);
    let id = builder.procedure("step", 1, run);
    Ok((builder.open(dir)?, id))
}

/// Returns the number of transactions of each worker that are in the database, or what is wrong.
fn look(db: &Database, data: &Data) -> Result<Vec<u64>, String> {
    let looked = db.try_transact(|tx| look_in(tx, data)).map_err(|error| error.to_string())?;
    looked.map_err(|abort: Abort| abort.to_string())?
}

fn look_in(tx: &Transaction<'_>, data: &Data) -> Result<Result<Vec<u64>, String>, Abort> {
    let (mut counts, mut shares, mut rows) = (Vec::new(), 0, 0);
    for worker in 0..data.workers {
        let count = tx.get(COUNTS, worker)?.map_or(0, |row| row.get(COUNT));
        let expected = data.rows(worker, count);
        for slot in 0..SLOTS {
            let row = tx.get(ROWS, &data.key(worker, slot)[..])?;
            let found = row.as_ref().map(|row| (row.get(COUNT), row.get(GROUP), row.get(VALUE)));
            let wanted = expected.get(&slot).map(|(n, value)| (*n, n % 3, &value[..]));
            if found != wanted {
                let short = |row: Option<(u64, u64, &[u8])>| row.map(|(n, g, v)| (n, g, v.len()));
                return Ok(Err(format!(
                    "worker {worker} has run {count} transactions; its row {slot} is {:?}, not \
                     {:?} (transaction, group, bytes)",
                    short(found),
                    short(wanted)
                )));
            }
        }
        rows += expected.len();
        counts.push(count);
        shares += count / SHARES;
    }
    let shared = tx.get(SHARED, 0u64)?.map_or(0, |row| row.get(COUNT));
    if shared != shares {
        return Ok(Err(format!(
            "{shares} transactions added to the shared row, which says {shared}"
        )));
    }
    let mut indexed = 0;
    for group in 0..3u64 {
        indexed += tx.scan_index(ROWS, Index(0)).prefix(&[group.into()]).rows()?.len();
    }
    if indexed != rows {
        return Ok(Err(format!("there are {rows} rows, and {indexed} by the index")));
    }
    Ok(Ok(counts))
}

fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    // Write errors are ignored: if the parent is gone, this process is about to be killed as well.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// The process that is killed. Prints the recovered state, then acknowledgements and memory use.
fn child(dir: &Path, life: &Life) -> Result<(), String> {
    let opened = open(dir, life).map_err(|error| format!("it cannot be opened: {error}"));
    let (db, id) = opened?;
    say(&format!("found {:?}\n", look(&db, &life.data)?));
    std::thread::scope(|scope| {
        for worker in 0..life.data.workers {
            let db = &db;
            scope.spawn(move || {
                if let Err(error) = work(db, id, worker, life) {
                    say(&format!("wrong worker {worker}: {error}\n"));
                }
            });
        }
        loop {
            std::thread::sleep(Duration::from_millis(100));
            say(&format!("memory {}\n", resident_bytes()));
        }
    })
}

/// Resident memory of this process in bytes.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

fn work(db: &Database, id: ProcedureId, worker: u64, life: &Life) -> Result<(), Error> {
    let (mut session, mut queue) = (db.session()?, db.commit_queue());
    let closures = life.combination.record == RecordKind::Data && worker.is_multiple_of(2);
    loop {
        if life.session_each {
            session = db.session()?;
        }
        let (n, ticket) = if closures {
            session.try_submit(|tx| step(tx, &life.data, worker))?
        } else {
            let (called, ticket) = session.call(id, &worker)?;
            let n = called.map(|()| session.result::<u64>());
            (n.map(|n| n.expect("it returns a number")), ticket)
        };
        queue.push(ticket, n.expect("it has no reason to abort"));
        while queue.len() >= life.in_flight {
            wait(&mut queue, worker)?;
        }
    }
}

fn wait(queue: &mut CommitQueue<u64>, worker: u64) -> Result<(), Error> {
    queue.wait_for_one()?;
    let mut acknowledged = Vec::new();
    queue.drain(|n| acknowledged.push(n))?;
    let lines = acknowledged.iter().map(|n| format!("ack {worker} {n}\n"));
    say(&lines.collect::<String>());
    Ok(())
}

fn draw_data(rng: &mut fastrand::Rng) -> Data {
    Data {
        longest_value: [100, 3000, 40_000, 300_000, 2 << 20, 12 << 20][rng.usize(0..6)],
        longest_key: [0, 20, 900, 20_000][rng.usize(0..4)],
        hashed: rng.bool(),
        workers: [1, 2, 5, 16][rng.usize(0..4)],
    }
}

fn draw_life(rng: &mut fastrand::Rng, data: Data) -> Life {
    Life {
        combination: Combination::random(rng),
        checkpoint_ms: [None, Some(20), Some(300)][rng.usize(0..3)],
        session_each: rng.u32(0..4) == 0,
        in_flight: [1, 8, 200][rng.usize(0..3)],
        data,
    }
}

/// What the parent knows about a database.
#[derive(Debug, Default)]
struct Known {
    /// For each worker, the last acknowledged transaction.
    acknowledged: BTreeMap<u64, u64>,
    answers: u64,
    most_memory: u64,
}

impl Known {
    /// Processes a line of the child's output. Returns what is wrong if the line shows an error.
    fn take(&mut self, line: &str, data: &Data) -> Option<String> {
        let (kind, rest) = line.split_once(' ')?;
        match kind {
            "wrong" => return Some(rest.to_string()),
            "found" => {
                let counts: Vec<u64> = serde_json::from_str(rest).ok()?;
                let lost = |(worker, at_least): (&u64, &u64)| {
                    let there = counts.get(*worker as usize).copied().unwrap_or(0);
                    (there < *at_least).then(|| {
                        format!("worker {worker}: {at_least} were acknowledged, {there} are there")
                    })
                };
                return self.acknowledged.iter().find_map(lost);
            }
            "ack" => {
                let (worker, n) = rest.split_once(' ')?;
                let last = self.acknowledged.entry(worker.parse().ok()?).or_default();
                *last = n.parse::<u64>().ok()?.max(*last);
                self.answers += 1;
            }
            "memory" => {
                let (bytes, limit) = (rest.parse::<u64>().ok()?, data.memory_limit());
                self.most_memory = self.most_memory.max(bytes);
                if bytes > limit {
                    return Some(format!("{bytes} bytes in memory are more than {limit}"));
                }
            }
            _ => {}
        }
        None
    }

    /// Starts a process and kills it after `time`.
    fn live(&mut self, dir: &Path, life: &Life, time: Duration) -> Result<(), String> {
        let failed = |error: &dyn std::error::Error| format!("no process: {error}");
        let plan = serde_json::to_string(life).map_err(|error| failed(&error))?;
        let program = std::env::current_exe().map_err(|error| failed(&error))?;
        let mut child = Command::new(program)
            .args(["--child", &dir.to_string_lossy(), &plan])
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| failed(&error))?;
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let pid = rustix::process::Pid::from_child(&child);
        let killer = std::thread::spawn(move || {
            std::thread::sleep(time);
            // Fails if the child has ended by itself. It has then printed what went wrong.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        });
        let mut wrong = None;
        for line in lines.map_while(Result::ok) {
            let found = self.take(&line, &life.data);
            wrong = wrong.or(found);
        }
        let _ = (killer.join(), child.wait());
        match wrong {
            None => Ok(()),
            Some(wrong) => Err(format!("{wrong}\n{life:?}\n{self:?}, kept in {}", dir.display())),
        }
    }
}

fn soak(seconds: f64, seed: u64, below: &Path) -> Result<(), String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let began = Instant::now();
    let (mut databases, mut kills, mut answers, mut most_memory) = (0, 0, 0, 0);
    println!("soak with seed {seed}");
    while began.elapsed().as_secs_f64() < seconds {
        let dir = below.join(format!("hyades-soak-{}-{databases}", std::process::id()));
        let (data, mut known) = (draw_data(&mut rng), Known::default());
        for _ in 0..rng.u32(2..8) {
            let longest = [300, 1500, 1500, 8000][rng.usize(0..4)];
            let time = Duration::from_millis(rng.u64(20..longest));
            known.live(&dir, &draw_life(&mut rng, data), time)?;
            kills += 1;
        }
        // One more run checks the state that the last kill left.
        known.live(&dir, &draw_life(&mut rng, data), Duration::from_secs(4))?;
        // Best effort: the directory is no longer needed.
        let _ = std::fs::remove_dir_all(&dir);
        databases += 1;
        answers += known.answers;
        most_memory = most_memory.max(known.most_memory);
        println!(
            "{:.0} s: {databases} databases, {kills} kills, {answers} answers, at most {} MB in \
             memory, nothing wrong",
            began.elapsed().as_secs_f64(),
            most_memory / 1_000_000
        );
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [kind, dir, life] = &arguments[..]
        && kind == "--child"
    {
        let life = serde_json::from_str(life).expect("the parent wrote it");
        if let Err(wrong) = child(Path::new(dir), &life) {
            say(&format!("wrong {wrong}\n"));
        }
        return ExitCode::FAILURE;
    }
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)
    };
    let seconds = value("--seconds").and_then(|s| s.parse().ok()).unwrap_or(60.0);
    let seed = value("--seed").and_then(|s| s.parse().ok());
    let below = value("--dir").map_or_else(std::env::temp_dir, PathBuf::from);
    match soak(seconds, seed.unwrap_or_else(|| fastrand::u64(..1 << 48)), &below) {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            eprintln!("{wrong}");
            ExitCode::FAILURE
        }
    }
}
