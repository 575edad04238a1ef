//! Promise: the model stamps transactions as the engine does. The same transactions run on the
//! engine and in the model; numbers, vectors and streams of all records are compared with the
//! engine's log.
#![allow(missing_docs, reason = "tests are named by what they promise")]

use fastrand::Rng;
use hyades::inspect::Inspector;
use hyades::{
    Abort, Builder, Database, ProcedureId, Protocol, RecordKind, Schema, Session, Table,
    Transaction, Type,
};
use hyades_scaling::order::Order;
use hyades_scaling::rules::{Access, Committing, Logged, Protocol as Modelled, Rules};
use hyades_schemes::{GSN, PLOVER, POPLAR};
use hyades_wal::{LogOptions, Needs};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

const STREAMS: usize = 4;
const ROWS: i64 = 12;
const TABLE: Table = Table::nth(0);

/// A record as the log has it, with positions as counts of the records below them.
#[derive(Clone, Debug, PartialEq)]
struct Record {
    number: u64,
    vector: Vec<usize>,
}

type Calls = Vec<(i64, bool)>;

fn run(tx: &Transaction<'_>, calls: Calls) -> Result<(), Abort> {
    for (id, write) in calls {
        if write {
            tx.overwrite(TABLE, &[id.into(), id.into()])?;
        } else {
            tx.get(TABLE, id)?;
        }
    }
    Ok(())
}

fn builder(protocol: Protocol, record: RecordKind) -> (Builder, ProcedureId) {
    let mut builder = Database::builder()
        .protocol(protocol)
        .streams(if protocol == Protocol::Serial { 1 } else { STREAMS })
        .record(record)
        .log_settings(|log| {
            log.segment_bytes = 1 << 18;
            log.buffer_bytes = 1 << 18;
            // One epoch, and no anchors: their times are not deterministic.
            log.epoch = Some(Duration::from_secs(3600));
            log.research.fixed_streams = true;
            log.research.anchor_interval_bytes = 1 << 40;
        });
    let schema = Schema::new("rows").column("id", Type::I64).column("n", Type::I64);
    builder.table(schema.primary_key(&["id"]).hash());
    let procedure = builder.procedure("run", 1, run);
    (builder, procedure)
}

/// The engine's run.
struct Engine {
    dir: tempfile::TempDir,
    /// The stream of each row's partition, and of each session, by id.
    partitions: Vec<u32>,
    sessions: Vec<u32>,
}

impl Engine {
    fn run(protocol: Protocol, record: RecordKind, calls: &[(usize, Calls)]) -> Engine {
        let dir = tempfile::tempdir().unwrap();
        let (first, procedure) = builder(protocol, record);
        let db = first.open(dir.path()).unwrap();
        let mut session = db.session().unwrap();
        let populate = (0..ROWS).map(|id| stream(&mut session, procedure, &vec![(id, true)]));
        let partitions: Vec<u32> = populate.map(Option::unwrap).collect();
        drop(session);
        let lanes = lanes(&db);
        let partitions: Vec<u32> = partitions.iter().map(|id| lanes[id]).collect();
        db.close().unwrap();
        // After recovery all rows are without stamps.
        let (second, procedure) = builder(protocol, record);
        let db = second.open(dir.path()).unwrap();
        let mut sessions: Vec<Session> = (0..STREAMS).map(|_| db.session().unwrap()).collect();
        let mut seen = vec![None; STREAMS];
        for (at, accesses) in calls {
            let stream = stream(&mut sessions[*at], procedure, accesses);
            seen[*at] = seen[*at].or(stream);
        }
        drop(sessions);
        let lanes = self::lanes(&db);
        db.close().unwrap();
        let sessions = seen.into_iter().map(|id| lanes[&id.unwrap()]).collect();
        Engine { dir, partitions, sessions }
    }

    /// The records of the newest incarnation, by stream.
    fn records(&self, commands: bool) -> Vec<Vec<Record>> {
        let raw = read(self.dir.path(), commands);
        let count =
            |stream: usize, lsn: u64| raw[stream].iter().filter(|(end, ..)| *end <= lsn).count();
        let record = |(_, number, vector): &(u64, u64, Vec<u64>)| {
            let vector = vector.iter().enumerate().map(|(at, lsn)| count(at, *lsn)).collect();
            Record { number: *number, vector }
        };
        raw.iter().map(|stream| stream.iter().map(record).collect()).collect()
    }
}

/// Runs a call; returns the stream of its record.
fn stream(session: &mut Session, procedure: ProcedureId, calls: &Calls) -> Option<u32> {
    let (outcome, ticket) = session.call(procedure, calls).unwrap();
    outcome.unwrap();
    ticket.transaction_id().map(|id| id.stream)
}

/// The place of each stream in the vectors of the newest incarnation, by id.
fn lanes(db: &Database) -> BTreeMap<u32, u32> {
    let manifest = db.log().unwrap().manifest();
    let newest = manifest.newest().unwrap();
    newest.dims.iter().zip(0..).map(|(dim, lane)| (dim.stream.0, lane)).collect()
}

/// End, number and vector of each record of the newest incarnation, by stream.
fn read(dir: &Path, commands: bool) -> Vec<Vec<(u64, u64, Vec<u64>)>> {
    let recovering = hyades_wal::open_read(LogOptions::new(vec![dir.to_owned()], 1)).unwrap();
    let manifest = recovering.manifest();
    let newest = manifest.newest().unwrap();
    let inspector = Inspector::new(manifest).unwrap();
    let mut out = vec![Vec::new(); newest.dims.len()];
    for mut reader in recovering.readers() {
        if reader.incarnation != newest.number {
            continue;
        }
        let lane = newest.dims.iter().position(|dim| dim.stream == reader.stream).unwrap();
        let mut inspect = inspector.stream(newest, reader.stream.0);
        while let Some(chunk) = reader.next_chunk().unwrap() {
            inspect.enter(&chunk);
            for frame in chunk.frames() {
                let Some(record) = inspect.read(&frame).unwrap() else { continue };
                assert_eq!(record.is_command(), commands);
                let vector = if commands { record.order() } else { record.validity() };
                let number = record.number().unwrap_or(0);
                out[lane].push((frame.end, number, vector.to_vec()));
            }
        }
    }
    out
}

/// The model's records of the same transactions.
fn model(
    protocol: Modelled,
    commands: bool,
    calls: &[(usize, Calls)],
    engine: &Engine,
) -> Vec<Vec<Record>> {
    let streams = if protocol == Modelled::Serial { 1 } else { STREAMS };
    let mut rules = Rules::new(protocol, streams, 1 << 10, commands, true);
    let mut order = Order::new(streams, 1 << 40);
    // Rows of the model in the same partitions as the engine's rows.
    let mut rows: Vec<u32> = Vec::new();
    for partition in &engine.partitions {
        let fits = |row: &u32| {
            let partitioned = protocol != Modelled::Plover;
            !rows.contains(row) && (partitioned || rules.partition(*row) == *partition as usize)
        };
        rows.push((0..1 << 10).find(fits).unwrap());
    }
    let mut logged: Vec<Logged> = Vec::new();
    for (session, calls) in calls {
        let access = |(id, write): &(i64, bool)| Access { row: rows[*id as usize], write: *write };
        let accesses: Vec<Access> = calls.iter().map(access).collect();
        let stream = engine.sessions[*session] as usize;
        let bytes = |rows: usize, unit: f64| rows as u64 * unit as u64;
        let txn = Committing { accesses: &accesses, stream, bytes, unit: 50.0 };
        rules.commit(&txn, &mut order, &mut Needs::default(), &mut logged);
    }
    let records = |stream: usize| logged.iter().filter(move |record| record.stream == stream);
    let count =
        |stream: usize, lsn: u64| records(stream).filter(|record| record.end <= lsn).count();
    let record = |record: &Logged| {
        let vector = record.vector.iter().enumerate().map(|(at, lsn)| count(at, *lsn)).collect();
        Record { number: record.number, vector }
    };
    (0..streams).map(|stream| records(stream).map(record).collect()).collect()
}

/// Transactions of several sessions. The first transactions write, so that no reader comes before
/// the table's first writer.
fn calls(seed: u64) -> Vec<(usize, Calls)> {
    let mut rng = Rng::with_seed(seed);
    let mut calls: Vec<_> = (0..STREAMS).map(|at| (at, vec![(at as i64, true)])).collect();
    for _ in 0..300 {
        let first = rng.i64(0..ROWS);
        let second = (first + rng.i64(1..ROWS)) % ROWS;
        calls.push((rng.usize(0..STREAMS), vec![(first, rng.bool()), (second, rng.bool())]));
    }
    calls
}

/// Poplar's numbers are versions: beside the sequence they have the epoch.
fn without_epoch(records: &mut [Vec<Record>]) {
    let lowest = records.iter().flatten().map(|record| record.number).min().unwrap_or(1);
    records.iter_mut().flatten().for_each(|record| record.number -= lowest - 1);
}

#[test]
fn numbers_vectors_and_streams_are_the_engines() {
    for (protocol, modelled, commands) in [
        (Protocol::Serial, Modelled::Serial, false),
        (Protocol::Taurus, Modelled::Taurus, false),
        (Protocol::Taurus, Modelled::Taurus, true),
        (PLOVER, Modelled::Plover, false),
        (POPLAR, Modelled::Poplar, false),
        (GSN, Modelled::Gsn, false),
    ] {
        for seed in 1..=3 {
            let calls = calls(seed);
            let kind = if commands { RecordKind::Command } else { RecordKind::Data };
            let engine = Engine::run(protocol, kind, &calls);
            let mut theirs = engine.records(commands);
            let ours = model(modelled, commands, &calls, &engine);
            if protocol == POPLAR {
                without_epoch(&mut theirs);
            }
            assert!(theirs.iter().flatten().count() > 200, "{protocol:?}: too few records");
            for (stream, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
                for (at, pair) in ours.iter().zip(theirs).enumerate() {
                    assert_eq!(pair.0, pair.1, "{protocol:?}, {seed}: record {at} of {stream}");
                }
                assert_eq!(ours.len(), theirs.len(), "{protocol:?}, {seed}: stream {stream}");
            }
        }
    }
}
