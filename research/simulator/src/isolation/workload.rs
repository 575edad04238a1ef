//! Random histories of list appends and register writes through the public interface, with crashes,
//! and their check.

use super::graph::{self, Anomaly};
use super::{End, Observed, Op, Order};
use crate::life::Counters;
use crate::plan::{Combination, Plan};
use fastrand::Rng;
use hyades::{
    Abort, Builder, Column, Database, Error, Isolation, Partitions, ProcedureId, Schema, Session,
    Table, Transaction, Type,
};
use hyades_platform::device::SimulatedDisk;
use hyades_schemes::TICTOC;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

const LISTS: Table = Table::nth(0);
const REGISTERS: Table = Table::nth(1);
const VALUES: Column<[u8]> = Column::at(1);
const VALUE: Column<u64> = Column::at(1);

/// An operation for a transaction to execute.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Ask {
    Append(u64, u64),
    List(u64),
    Write(u64, u64),
    Scan(u64, u64),
}

/// The argument of the procedure.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Asked {
    asks: Vec<Ask>,
    give_up: bool,
}

thread_local! {
    /// The operations of the last transaction on this thread.
    static DONE: RefCell<Vec<Op>> = const { RefCell::new(Vec::new()) };
}

fn list(tx: &Transaction<'_>, key: u64) -> Result<Vec<u64>, Abort> {
    let row = tx.get(LISTS, key)?;
    let bytes = row.as_ref().map_or(&[][..], |row| row.get(VALUES));
    let word = |chunk: &[u8]| u64::from_le_bytes(chunk.try_into().expect("chunks of eight"));
    Ok(bytes.chunks_exact(8).map(word).collect())
}

fn run(tx: &Transaction<'_>, asked: &Asked) -> Result<(), Abort> {
    let mut done = Vec::new();
    for ask in &asked.asks {
        done.push(match *ask {
            Ask::Append(key, value) => {
                let mut values = list(tx, key)?;
                values.push(value);
                let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                tx.upsert(LISTS, &[key.into(), bytes[..].into()])?;
                Op::Append { key, value }
            }
            Ask::List(key) => Op::List { key, saw: list(tx, key)? },
            Ask::Write(key, value) => {
                let over = tx.get(REGISTERS, key)?.map(|row| row.get(VALUE));
                tx.upsert(REGISTERS, &[key.into(), value.into()])?;
                Op::Write { key, value, over }
            }
            Ask::Scan(from, to) => {
                let (lower, upper) = ([from.into()], [to.into()]);
                let rows = tx.scan(REGISTERS).from(&lower).to(&upper).rows()?;
                let pair = |row: &hyades::Row<'_>| (row.get(Column::<u64>::at(0)), row.get(VALUE));
                Op::Scan { from, to, saw: rows.iter().map(pair).collect() }
            }
        });
    }
    DONE.set(done);
    if asked.give_up { Err(Abort::User(0)) } else { Ok(()) }
}

/// Parameters of a workload.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Protocol, concurrency control, record kind and number of streams.
    pub combination: Combination,
    /// The isolation of transactions.
    pub isolation: Isolation,
    /// Seed of all random choices.
    pub seed: u64,
    /// Number of threads, with a session each.
    pub sessions: usize,
    /// Transactions of each session in a life.
    pub transactions: usize,
    /// Number of lists, and of registers.
    pub keys: u64,
    /// Number of openings of the database. All lives but the last end in a power cut.
    pub lives: usize,
}

/// How a transaction runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Closure,
    Procedure,
    /// As of a snapshot; only reads.
    Snapshot,
}

impl Load {
    /// The order promised by the concurrency control.
    pub fn order(&self) -> Order {
        if self.isolation == Isolation::Snapshot {
            Order::Snapshots
        } else if self.combination.concurrency == TICTOC {
            Order::Sessions
        } else {
            Order::RealTime
        }
    }

    /// The workload of a plan.
    pub fn of(plan: &Plan) -> Load {
        Load {
            combination: plan.combination,
            isolation: Isolation::default(),
            seed: plan.seed,
            sessions: plan.sessions,
            // A client waits for each answer, under some protocols for a whole epoch.
            transactions: plan.transactions.min(400),
            keys: plan.tables.keys.clamp(1, 6) as u64,
            lives: plan.lives,
        }
    }

    /// A random workload for this combination.
    pub fn random(seed: u64, combination: Combination) -> Load {
        let mut rng = Rng::with_seed(seed);
        Load {
            combination,
            isolation: Isolation::default(),
            seed,
            sessions: rng.usize(2..5),
            transactions: rng.usize(40..150),
            keys: rng.u64(1..6),
            lives: rng.usize(1..4),
        }
    }
}

/// A random request of a client.
fn random_request(rng: &mut Rng, keys: u64, counters: &Counters) -> (How, Asked) {
    let how = match rng.u32(0..8) {
        0 | 1 => How::Closure,
        2 => How::Snapshot,
        _ => How::Procedure,
    };
    let mut asks: Vec<Ask> =
        (0..rng.usize(1..5)).map(|_| random_ask(rng, keys, counters)).collect();
    if how == How::Snapshot {
        asks.retain(|ask| matches!(ask, Ask::List(_) | Ask::Scan(..)));
        asks.push(Ask::Scan(0, keys - 1));
    }
    (how, Asked { asks, give_up: rng.u32(0..12) == 0 })
}

fn random_ask(rng: &mut Rng, keys: u64, counters: &Counters) -> Ask {
    let key = rng.u64(0..keys);
    match rng.u32(0..6) {
        0 | 1 => Ask::Append(key, counters.moment()),
        2 => Ask::List(key),
        3 | 4 => Ask::Write(key, counters.moment()),
        _ => Ask::Scan(key, rng.u64(key..keys)),
    }
}

/// Declares tables, spread over partitions at random, and the procedure.
fn declare(builder: &mut Builder, rng: &mut Rng) -> ProcedureId {
    let mut spread = |schema: Schema| match rng.u32(0..6) {
        0 => schema.replicated(),
        1 => schema,
        _ => schema.partition_by("key"),
    };
    let lists = Schema::new("lists").column("key", Type::U64).column("values", Type::Bytes);
    builder.table(spread(lists.primary_key(&["key"]).hash()));
    let registers = Schema::new("registers").column("key", Type::U64).column("value", Type::U64);
    builder.table(spread(registers.primary_key(&["key"])));
    let procedure =
        builder.procedure("run", 1, |tx: &Transaction<'_>, asked: Asked| run(tx, &asked));
    if rng.bool() {
        builder.on(procedure, |()| Partitions::ALL);
    }
    procedure
}

fn submit(
    session: &mut Session,
    procedure: ProcedureId,
    asked: &Asked,
    counters: &Counters,
    (life, number, how): (usize, usize, How),
) -> Result<Observed, Error> {
    let invoked = counters.moment();
    let (result, ticket) = match how {
        How::Closure => session.try_submit(|tx| run(tx, asked))?,
        How::Procedure => session.call(procedure, asked)?,
        How::Snapshot => {
            let (result, ticket) = session.snapshot(|tx| Ok(run(tx, asked)))?;
            (result, ticket)
        }
    };
    let acknowledged = ticket.wait().is_ok();
    let moment = counters.moment();
    let end = match (acknowledged, result) {
        (true, Ok(())) => End::Acknowledged(moment),
        (true, Err(_)) => End::Aborted(moment),
        (false, _) => End::Unknown,
    };
    let mut ops = DONE.take();
    if end == End::Unknown && result.is_err() {
        // The transaction wrote nothing, and its reads were never confirmed.
        ops.clear();
    }
    Ok(Observed { life, session: number, invoked, end, ops })
}

/// Runs a workload and checks that its history has the order that the concurrency control promises.
/// Returns the number of answered transactions.
///
/// # Errors
/// The anomaly, or the error of the database.
pub fn run_and_check(load: &Load) -> Result<u64, String> {
    let history = run_load(load)?;
    let answered = history.iter().filter(|o| o.end != End::Unknown).count() as u64;
    let describe = |a: Box<Anomaly>| format!("{load:?}: {}\n{}", a.name, a.trace);
    graph::check(&history, load.order()).map_err(describe)?;
    Ok(answered)
}

/// Runs a workload. Its history ends with a read of everything.
///
/// # Errors
/// The error of the database.
pub fn run_load(load: &Load) -> Result<Vec<Observed>, String> {
    let mut history = Vec::new();
    let counters = Counters::default();
    let disk = SimulatedDisk::new();
    let mut rng = Rng::with_seed(load.seed ^ 0x150_1A71);
    for life in 0..load.lives {
        let mut builder = Database::builder()
            .protocol(load.combination.protocol)
            .concurrency(load.combination.concurrency)
            .isolation(load.isolation)
            // Of Hekaton.
            .speculative_reads(load.seed.is_multiple_of(2))
            .record(load.combination.record)
            .streams(load.combination.streams)
            .recovery_threads(2)
            .log_settings(|log| {
                log.device = Some(Arc::new(disk.process(rng.u64(..))));
                log.buffer_bytes = 1 << 16;
                log.segment_bytes = 1 << 18;
                log.research.anchor_interval_bytes = 1000;
            });
        let mut spread = Rng::with_seed(load.seed ^ 0x9A27 ^ life as u64);
        builder = builder.partitions(1 << spread.u32(0..7));
        let procedure = declare(&mut builder, &mut spread);
        let db = builder.open("/db").map_err(|e| format!("life {life} is refused: {e}"))?;
        let last = life + 1 == load.lives;
        let (time, power) = (Duration::from_micros(rng.u64(500..8000)), rng.u64(..));
        let seeds: Vec<u64> = (0..load.sessions).map(|_| rng.u64(..)).collect();
        let threads = std::thread::scope(|scope| {
            let start = |seed| {
                let (db, counters) = (&db, &counters);
                let (seed, at) = seed;
                scope.spawn(move || session(db, procedure, load, counters, seed, (life, at)))
            };
            let threads: Vec<_> = seeds.into_iter().zip(0..).map(start).collect();
            if !last {
                std::thread::sleep(time);
                disk.power_cut(power);
            }
            let join = |t: std::thread::ScopedJoinHandle<'_, _>| {
                t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect::<Vec<Vec<Observed>>>()
        });
        history.extend(threads.into_iter().flatten());
        if last {
            let all = read_everything(&db, procedure, load, &counters, life)?;
            // Nothing fails in the last life, and without this read losses might not show.
            match all.end {
                End::Acknowledged(_) => history.push(all),
                end => {
                    return Err(format!("what reads everything at the end has ended as {end:?}"));
                }
            }
        }
    }
    Ok(history)
}

fn session(
    db: &Database,
    procedure: ProcedureId,
    load: &Load,
    counters: &Counters,
    seed: u64,
    (life, number): (usize, usize),
) -> Vec<Observed> {
    let mut rng = Rng::with_seed(seed);
    let mut history = Vec::new();
    let Ok(mut session) = db.session() else { return history };
    for _ in 0..load.transactions {
        let (how, asked) = random_request(&mut rng, load.keys, counters);
        match submit(&mut session, procedure, &asked, counters, (life, number, how)) {
            Ok(observed) => history.push(observed),
            Err(_) => break,
        }
    }
    history
}

fn read_everything(
    db: &Database,
    procedure: ProcedureId,
    load: &Load,
    counters: &Counters,
    life: usize,
) -> Result<Observed, String> {
    let mut asks: Vec<Ask> = (0..load.keys).map(Ask::List).collect();
    asks.push(Ask::Scan(0, load.keys - 1));
    let asked = Asked { asks, give_up: false };
    let mut session = db.session().map_err(|e| e.to_string())?;
    let how = (life, load.sessions, How::Closure);
    submit(&mut session, procedure, &asked, counters, how).map_err(|e| e.to_string())
}
