//! A small bank and a table with random changes, run by two threads under any combination, with
//! checks.
#![allow(dead_code, missing_docs, reason = "each test file uses its part")]

pub mod archiving;
pub mod arriving;
pub mod beside;
pub mod broken;
pub mod by_hand;
pub mod checkpointing;
pub mod definition;
pub mod evolving;
pub mod followers;
pub mod following;
pub mod grouped;
pub mod held;
pub mod late;
pub mod leased;
pub mod members;
pub mod multiversion;
pub mod ordering;
pub mod partitions;
pub mod sums;
pub mod tee;
pub mod waiting;
pub mod watched;

use hyades::{
    Abort, CheckpointSettings, Column, Concurrency, Database, Error, Index, PostedCall,
    ProcedureId, Protocol, RecordKind, Replay, Schema, Table, Transaction, Type, Value,
};
use hyades_platform::device::{Device, PowerCutDevice, PowerCutOptions};
use hyades_schemes::{
    ARRIVAL, GSN, PARTITIONED, PHYSIOLOGICAL, PLOVER, POPLAR, SILO_R, TAURUS_2016, all_controls,
};
use serde::{Deserialize, Serialize};
use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub const ACCOUNTS: Table = Table::nth(0);
pub const TRANSFERS: Table = Table::nth(1);
pub const ITEMS: Table = Table::nth(2);
pub const HISTORY: Table = Table::nth(3);
pub const BALANCE: Column<i64> = Column::at(1);
pub const ITEM_GROUP: Column<i32> = Column::at(1);
pub const ITEM_NAME: Column<str> = Column::at(2);
pub const BY_GROUP: Index = Index(0);

/// The protocols that log data records of transactions that run before they are logged.
pub const PROTOCOLS: [Protocol; 8] =
    [Protocol::Serial, Protocol::Taurus, TAURUS_2016, POPLAR, SILO_R, PLOVER, GSN, PHYSIOLOGICAL];

#[derive(Clone, Copy, Debug)]
pub struct Combination {
    pub protocol: Protocol,
    pub concurrency: Concurrency,
    pub record: RecordKind,
    pub streams: usize,
}

impl Combination {
    /// Whether the engine opens the combination.
    pub fn is_sound(&self) -> bool {
        let Combination { protocol, concurrency, record, .. } = *self;
        concurrency.runs_under(protocol)
            && (record == RecordKind::Data || concurrency.takes_commands_under(protocol))
    }
}

/// Protocols that cannot log commands.
pub const DATA_ONLY: [Protocol; 4] = [SILO_R, GSN, PLOVER, POPLAR];

pub fn combinations() -> Vec<Combination> {
    let mut all = Vec::new();
    for concurrency in all_controls() {
        for record in [RecordKind::Data, RecordKind::Command, RecordKind::Adaptive] {
            for (protocol, streams) in [
                (Protocol::Serial, 1),
                (Protocol::Taurus, 1),
                (Protocol::Taurus, 3),
                (Protocol::Taurus, 16),
                (TAURUS_2016, 1),
                (TAURUS_2016, 3),
                (TAURUS_2016, 16),
            ] {
                all.push(Combination { protocol, concurrency, record, streams });
            }
        }
        for protocol in DATA_ONLY {
            for streams in [1, 3, 16] {
                let record = RecordKind::Data;
                all.push(Combination { protocol, concurrency, record, streams });
            }
        }
        let (protocol, record) = (PHYSIOLOGICAL, RecordKind::Data);
        all.push(Combination { protocol, concurrency, record, streams: 1 });
    }
    all.retain(Combination::is_sound);
    all
}

/// [`combinations`], and combinations that log calls before they run, and nothing else.
pub fn combinations_and_calls() -> Vec<Combination> {
    let (protocol, concurrency) = (ARRIVAL, PARTITIONED);
    let record = RecordKind::Command;
    let calls = [1, 3, 16].map(|streams| Combination { protocol, concurrency, record, streams });
    combinations().into_iter().chain(calls).collect()
}

/// Combinations with their places among all: all under Silo, all that log calls, and every third of
/// the rest, beginning at `offset`. For long tests of the log more than of the concurrency control;
/// with `HYADES_ALL_COMBINATIONS` in the environment, all combinations.
pub fn some_combinations(offset: usize) -> Vec<(usize, Combination)> {
    let all = std::env::var_os("HYADES_ALL_COMBINATIONS").is_some();
    let mut some: Vec<_> = combinations_and_calls().into_iter().enumerate().collect();
    some.retain(|(at, c)| {
        let always = c.concurrency == Concurrency::Silo || c.protocol == ARRIVAL;
        all || always || at % 3 == offset % 3
    });
    some
}

#[derive(Serialize, Deserialize, Clone, Copy, Debug)]
pub struct Transfer {
    pub id: u64,
    pub from: i64,
    pub to: i64,
    pub amount: i64,
}

#[derive(Serialize, Deserialize, Clone, Copy, Debug)]
pub struct Churn {
    pub seed: u64,
}

pub fn transfer(tx: &Transaction<'_>, t: Transfer) -> Result<i64, Abort> {
    let from = tx.get(ACCOUNTS, t.from)?.ok_or(Abort::User(1))?.get(BALANCE);
    let to = tx.get(ACCOUNTS, t.to)?.ok_or(Abort::User(2))?.get(BALANCE);
    if from < t.amount {
        return Err(Abort::User(3));
    }
    if t.from != t.to {
        tx.update(ACCOUNTS, t.from, &[BALANCE.set(from - t.amount)])?;
        tx.update(ACCOUNTS, t.to, &[BALANCE.set(to + t.amount)])?;
    }
    tx.insert(TRANSFERS, &[t.id.into(), t.from.into(), t.to.into(), t.amount.into()])?;
    Ok(from - t.amount)
}

/// Covers all other operations: inserts, deletes, scans, uniqueness, misses, savepoints, time and
/// random numbers. The writes depend on the reads.
pub fn churn(tx: &Transaction<'_>, churn: Churn) -> Result<(), Abort> {
    let mut rng = fastrand::Rng::with_seed(churn.seed);
    let id = rng.i32(0..60);
    let group = rng.i32(0..8);
    match rng.u32(0..8) {
        0 | 1 => {
            // The name is unique and depends on the number of rows in the group.
            let prefix = [Value::I32(group)];
            let rows = tx.scan_index(ITEMS, BY_GROUP).prefix(&prefix).rows()?;
            let name = format!("{group}-{}", rows.len());
            match tx.insert(ITEMS, &[id.into(), group.into(), name[..].into(), Value::Null]) {
                Ok(_) | Err(Abort::DuplicateKey { .. }) => {}
                Err(abort) => return Err(abort),
            }
            if tx.get(ITEMS, id + 1)?.is_none() {
                tx.insert(HISTORY, &[tx.now_us().into(), i64::from(id).into()])?;
            }
        }
        2 => {
            let first = tx.scan(ITEMS).from(&[id.into()]).limit(1).rows()?;
            if let Some(row) = first.first() {
                let Value::I32(key) = row.value(0) else { panic!() };
                tx.delete(ITEMS, key)?;
            }
        }
        3 => {
            let last = tx.scan(ITEMS).to(&[id.into()]).descending().limit(3).rows()?;
            for row in last {
                let Value::I32(key) = row.value(0) else { panic!() };
                let note = format!("{}{}", row.get(ITEM_NAME), "x".repeat(rng.usize(0..90)));
                tx.update(ITEMS, key, &[Column::<Option<&str>>::at(3).set(&note[..])])?;
            }
        }
        4 => {
            if let Some(row) = tx.get(ITEMS, id)? {
                let other = (row.get(ITEM_GROUP) + 1) % 8;
                tx.update(ITEMS, id, &[ITEM_GROUP.set(other)])?;
            }
        }
        5 => {
            let savepoint = tx.savepoint();
            tx.delete(ITEMS, id)?;
            let name = format!("temporary {}", churn.seed);
            let _ =
                tx.upsert(ITEMS, &[(id + 1).into(), group.into(), name[..].into(), Value::Null])?;
            if rng.bool() {
                tx.rollback_to(savepoint)?;
            }
        }
        6 => {
            let rows = tx.scan(HISTORY).limit(2).rows()?;
            let count = rows.len() as i64 + (tx.random() % 5) as i64;
            if let Some(row) = rows.first() {
                tx.update(HISTORY, row.row_id(), &[Column::<i64>::at(1).set(count)])?;
                if count > 4 {
                    tx.delete(HISTORY, row.row_id())?;
                }
            }
        }
        _ => {
            // Several changes of one row in one transaction.
            let name = format!("n{}", churn.seed);
            tx.upsert(ITEMS, &[id.into(), group.into(), name[..].into(), Value::Null])?;
            tx.update(ITEMS, id, &[ITEM_GROUP.set((group + 3) % 8)])?;
            tx.update(ITEMS, id, &[Column::<Option<&str>>::at(3).set("twice")])?;
        }
    }
    Ok(())
}

pub struct Opened {
    pub db: Database,
    /// Aborts the process if a test takes minutes.
    pub watched: watched::Watched,
    pub transfer: ProcedureId,
    pub churn: ProcedureId,
    /// Where nothing but calls is logged: procedures that insert the accounts, and rows that only
    /// lengthen a scan.
    pub inserting: Option<[ProcedureId; 2]>,
}

impl Opened {
    /// Calls a procedure, and returns once the call is durable.
    pub fn call<A: Serialize>(&self, procedure: ProcedureId, arguments: &A) {
        let (outcome, ticket) = self.db.session().unwrap().call(procedure, arguments).unwrap();
        outcome.unwrap();
        ticket.wait().unwrap();
    }
}

/// Options for opening, apart from the combination.
pub struct How {
    pub device: Option<Arc<dyn Device>>,
    pub threads: usize,
    pub replay: Replay,
    /// Log directories besides the first.
    pub more_dirs: Vec<PathBuf>,
    pub checkpoints: CheckpointSettings,
}

impl Default for How {
    fn default() -> Self {
        How {
            device: None,
            threads: 2,
            replay: Replay::Wavefront,
            more_dirs: Vec::new(),
            checkpoints: CheckpointSettings::default(),
        }
    }
}

pub fn open(
    dir: &Path,
    c: Combination,
    device: Option<PowerCutDevice>,
    threads: usize,
    replay: Replay,
) -> Opened {
    let device = device.map(|d| Arc::new(d) as _);
    let how = How { device, threads, replay, ..How::default() };
    try_open(dir, c, how).unwrap_or_else(|error| panic!("{c:?} {threads} {replay:?}: {error}"))
}

pub fn try_open(dir: &Path, c: Combination, how: How) -> Result<Opened, Error> {
    let watched = watched::watched(&format!("{c:?}, {} threads, {:?}", how.threads, how.replay));
    let (mut builder, [transfer, churn]) = builder(c, how);
    let inserting = (!c.protocol.takes_data()).then(|| {
        let fill = builder.procedure("fill", 1, |tx: &Transaction<'_>, (): ()| fill(tx));
        let ballast = builder
            .procedure("ballast", 1, |tx: &Transaction<'_>, first: u64| ballast_rows(tx, first));
        [fill, ballast]
    });
    Ok(Opened { db: builder.open(dir)?, watched, transfer, churn, inserting })
}

/// A builder for the bank, and its procedures.
pub fn builder(c: Combination, how: How) -> (hyades::Builder, [ProcedureId; 2]) {
    let mut builder = Database::builder()
        .protocol(c.protocol)
        .concurrency(c.concurrency)
        .record(c.record)
        .streams(c.streams)
        .recovery_threads(how.threads)
        .replay(how.replay)
        .checkpoint_settings(|settings| *settings = how.checkpoints)
        .log_settings(|log| {
            log.buffer_bytes = 1 << 16;
            log.research.anchor_interval_bytes = 2000;
            // Shorter than in practice, so that waits for an epoch are short here.
            log.epoch = Some(Duration::from_millis(2));
            log.segment_bytes = 1 << 18;
            log.device = how.device;
            log.dirs = how.more_dirs;
        });
    bank_tables(&mut builder);
    let transfer = builder.procedure("transfer", 1, transfer);
    let churn = builder.procedure("churn", 1, churn);
    (builder, [transfer, churn])
}

pub fn bank_tables(builder: &mut hyades::Builder) {
    builder.table(
        Schema::new("accounts")
            .column("id", Type::I64)
            .column("balance", Type::I64)
            .primary_key(&["id"])
            .hash(),
    );
    builder.table(
        Schema::new("transfers")
            .column("id", Type::U64)
            .column("from", Type::I64)
            .column("to", Type::I64)
            .column("amount", Type::I64)
            .primary_key(&["id"]),
    );
    builder.table(
        Schema::new("items")
            .column("id", Type::I32)
            .column("group", Type::I32)
            .column("name", Type::Text)
            .nullable("note", Type::Text)
            .primary_key(&["id"])
            .index("by_group", &["group"])
            .unique("by_name", &["name"]),
    );
    builder.table(Schema::new("history").column("at", Type::I64).column("what", Type::I64));
}

pub const ACCOUNT_COUNT: i64 = 12;

fn fill(tx: &Transaction<'_>) -> Result<(), Abort> {
    for id in 0..ACCOUNT_COUNT {
        tx.insert(ACCOUNTS, &[id.into(), 1000i64.into()])?;
    }
    Ok(())
}

pub fn populate(opened: &Opened) {
    match opened.inserting {
        None => opened.db.try_transact(fill).unwrap().unwrap(),
        Some([fill, _]) => opened.call(fill, &()),
    }
}

/// Inserts a thousand rows that only lengthen a scan.
pub fn ballast_rows(tx: &Transaction<'_>, first: u64) -> Result<(), Abort> {
    for n in first..first + 1000 {
        let id = (1 << 63) | n;
        tx.insert(TRANSFERS, &[id.into(), 0i64.into(), 0i64.into(), 0i64.into()])?;
    }
    Ok(())
}

/// The posted transfer, if reported as committed.
fn has_committed((transfer, call): (Transfer, PostedCall<i64>)) -> Option<Transfer> {
    call.wait().is_ok().then_some(transfer)
}

/// Runs random transactions on two threads. Returns the acknowledged transfers.
pub fn run(opened: &Opened, seed: u64, count: u64) -> Vec<Transfer> {
    let worker = |w: u64| {
        let mut rng = fastrand::Rng::with_seed(seed * 100 + w);
        let mut session = opened.db.session().unwrap();
        let mut queue = opened.db.commit_queue();
        let (mut acknowledged, mut posted) = (Vec::new(), Vec::new());
        for n in 0..count {
            let result = if rng.bool() {
                let t = Transfer {
                    id: w << 32 | n | seed << 48,
                    from: rng.i64(0..ACCOUNT_COUNT),
                    to: rng.i64(0..ACCOUNT_COUNT),
                    amount: rng.i64(0..50),
                };
                // Where calls are logged on arrival, half of them are posted.
                if opened.inserting.is_some() && rng.bool() {
                    let Ok(call) = opened.db.post::<_, i64>(opened.transfer, &t) else { break };
                    posted.push((t, call));
                    if posted.len() >= 16 {
                        acknowledged.extend(posted.drain(..).filter_map(has_committed));
                    }
                    continue;
                }
                session.call(opened.transfer, &t).map(|(r, ticket)| (r.map(|()| Some(t)), ticket))
            } else {
                let c = Churn { seed: rng.u64(..) };
                session.call(opened.churn, &c).map(|(r, ticket)| (r.map(|()| None), ticket))
            };
            // After a power cut nothing more is acknowledged.
            let Ok((result, ticket)) = result else { break };
            if let Ok(Some(t)) = result {
                queue.push(ticket, t);
            }
            if queue.drain(|t| acknowledged.push(t)).is_err() {
                break;
            }
        }
        while !queue.is_empty() {
            if queue.wait_for_one().is_err() {
                let _ = queue.drain(|t| acknowledged.push(t));
                break;
            }
            let _ = queue.drain(|t| acknowledged.push(t));
        }
        acknowledged.extend(posted.drain(..).filter_map(has_committed));
        acknowledged
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|w| scope.spawn(move || worker(w))).collect();
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    })
}

pub fn check(opened: &Opened, acknowledged: &[Transfer], what: &str) {
    opened
        .db
        .try_transact(|tx| {
            let sum: i64 = (0..ACCOUNT_COUNT)
                .map(|id| Ok(tx.get(ACCOUNTS, id)?.expect("an account").get(BALANCE)))
                .sum::<Result<i64, Abort>>()?;
            assert_eq!(sum, 1000 * ACCOUNT_COUNT, "{what}: money was made or lost");
            for t in acknowledged {
                let row = tx.get(TRANSFERS, t.id)?;
                let row = row.unwrap_or_else(|| panic!("{what}: acknowledged {t:?} is missing"));
                assert_eq!(row.value(3), Value::I64(t.amount), "{what}");
            }
            let mut balances = [1000i64; ACCOUNT_COUNT as usize];
            for row in tx.scan(TRANSFERS).rows()? {
                let at = |c| match row.value(c) {
                    Value::I64(v) => v,
                    _ => panic!(),
                };
                balances[at(1) as usize] -= at(3);
                balances[at(2) as usize] += at(3);
            }
            for id in 0..ACCOUNT_COUNT {
                let balance = tx.get(ACCOUNTS, id)?.expect("an account").get(BALANCE);
                assert_eq!(balance, balances[id as usize], "{what}: a transfer is there in part");
            }
            Ok::<_, Abort>(())
        })
        .unwrap()
        .unwrap();
}

pub fn power_cut(seed: u64) -> PowerCutDevice {
    PowerCutDevice::new(PowerCutOptions { seed, early_sectors: 0.3, lying_sync: false })
}

/// A directory in memory: the disk is not under test.
pub fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

/// Every file below a directory.
pub fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// A hash of the names and contents of all files below a directory.
pub fn fingerprint(dir: &Path) -> u64 {
    try_fingerprint(dir).unwrap()
}

fn try_fingerprint(dir: &Path) -> std::io::Result<u64> {
    let mut hasher = DefaultHasher::new();
    for path in files(dir) {
        hasher.write(path.as_os_str().as_encoded_bytes());
        hasher.write(&std::fs::read(path)?);
    }
    Ok(hasher.finish())
}

/// Like [`fingerprint`], of an open database without work, once the database has prepared the next
/// segments: until then files are created and renamed.
pub fn fingerprint_at_rest(dir: &Path) -> u64 {
    let mut last = None;
    for _ in 0..100 {
        let now = try_fingerprint(dir).ok();
        match (last, now) {
            (Some(last), Some(now)) if last == now => return now,
            _ => last = now,
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    panic!("the files of an idle database change for ever");
}

/// Returns the error of an opening that must fail. Panics if it succeeded.
pub fn refused<T>(result: Result<T, Error>, what: &str) -> Error {
    match result {
        Ok(_) => panic!("{what} was accepted"),
        Err(error) => error,
    }
}
