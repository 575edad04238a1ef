//! Lives of a database on disks that fail: one thread interleaves transactions, flushes, applies,
//! takes checkpoints, and dies, in an order that follows from a seed.

use super::history::{
    ExecutedInLife, KeyByte, KeyState, LifeHistory, ScannedKeys, WriteNumber, bytes, number,
};
use super::reading::OpenSnapshot;
use super::stores::LivingStore;
use crate::{
    Database, Error, LogOptions, Options, ReaderRecords, ScanOrder, Session, Transaction,
    UpdateLogging, Value,
};
use hyades_platform::device::{SimulatedDevice, SimulatedDisk, SimulatedFault};
use std::collections::BTreeMap;
use std::future::Future;
use std::ops::{Bound, ControlFlow};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

const KEYS: [KeyByte; 8] = [0, 1, 2, 3, 4, 5, 6, 7];
const LANES: usize = 4;
/// Fewer than the entries of the transaction table, which are used again and again.
const SESSIONS: usize = 15;
/// How often each session runs a transaction in a life.
const ROUNDS: usize = 4;
const LIVES: usize = 4;

/// What was met, so that a test can see that it has met enough.
#[derive(Debug, Default)]
pub struct LifeCounts {
    /// Committed transactions.
    pub committed: usize,
    /// Scans.
    pub scans: usize,
    /// Snapshots that have ended.
    pub snapshots: usize,
    /// Acknowledged transactions.
    pub acknowledged: usize,
    /// Errors of transactions, by their text.
    pub aborted: BTreeMap<String, usize>,
    /// Openings that worked.
    pub lives: usize,
    /// Openings that failed as they had to.
    pub failed_openings: usize,
    /// Lives that failed, as they had to, before the recovered state was read.
    pub unreadable: usize,
    /// Checkpoints.
    pub checkpoints: usize,
    /// Bytes of the log that these have truncated.
    pub truncated: u64,
    /// Keys that recovery has applied again.
    pub redone: u64,
    /// Transactions that recovery has found dead.
    pub dead: u64,
}

impl LifeCounts {
    /// Adds those of another run.
    pub fn add(&mut self, other: LifeCounts) {
        let LifeCounts { committed, scans, acknowledged, aborted, lives, .. } = other;
        self.committed += committed;
        self.scans += scans;
        self.acknowledged += acknowledged;
        aborted.into_iter().for_each(|(why, n)| *self.aborted.entry(why).or_default() += n);
        self.lives += lives;
        self.snapshots += other.snapshots;
        self.failed_openings += other.failed_openings;
        self.unreadable += other.unreadable;
        self.checkpoints += other.checkpoints;
        self.truncated += other.truncated;
        self.redone += other.redone;
        self.dead += other.dead;
    }
}

/// A transaction that runs.
struct OpenInLife<'s> {
    tx: Transaction<'s>,
    executed: ExecutedInLife,
}

fn options(device: SimulatedDevice, streams: usize, lag_bytes: usize) -> Options {
    let mut log = LogOptions::new(vec![PathBuf::from("/log")], streams);
    log.buffer_bytes = 1 << 14;
    log.segment_bytes = 1 << 16;
    log.block_bytes = 1024;
    log.anchor_interval_bytes = 2048;
    log.max_writers = 2 * SESSIONS;
    log.device = Arc::new(device);
    log.stepped = true;
    let mut options = Options::new(log);
    options.memory_bytes = 4 << 10;
    options.sessions = SESSIONS;
    options.transactions = 16;
    options.lag_bytes = lag_bytes;
    options
}

/// How this seed's lives log: in one record or in parts, at once or with buffers that transactions
/// may not fit into; which readers log; and into how many pieces batches are cut.
fn log_as(seed: u64, options: &mut Options) {
    let threads = 1 + seed as usize % 3;
    options.proxy_threads = threads..=threads;
    match seed % 4 {
        1 => options.update_logging = UpdateLogging::AtOnce,
        2 => options.log.buffer_bytes = 1 << 12,
        _ => {}
    }
    options.reader_records = match seed % 7 {
        3 => ReaderRecords::IfNeeded,
        5 => ReaderRecords::Always,
        _ => ReaderRecords::Never,
    };
}

fn arm(device: &SimulatedDevice, rng: &mut fastrand::Rng) -> bool {
    let after = rng.u64(0..120);
    let for_ever = rng.bool();
    let fault = match rng.u8(0..13) {
        0..3 => SimulatedFault::Stop(after),
        // In the opening.
        10..13 => SimulatedFault::Stop(after / 20),
        3 => SimulatedFault::Sync { after: after / 2, for_ever },
        4 => SimulatedFault::Write(after),
        5 => SimulatedFault::Full(rng.u64(0..400_000)),
        6 => SimulatedFault::Short,
        _ => return false,
    };
    device.arm(fault);
    true
}

/// Runs some lives, all that happens in which follows from the seed.
///
/// # Errors
/// The first thing that is wrong.
///
/// # Panics
/// A rule that is asserted is broken.
pub fn live(seed: u64, store: &mut dyn LivingStore, met: &mut LifeCounts) -> Result<(), String> {
    let rng = &mut fastrand::Rng::with_seed(seed);
    let disk = SimulatedDisk::new();
    let streams = rng.usize(1..=3);
    let (mut history, mut next_write) = (LifeHistory::default(), 1);
    for life in 0..=LIVES {
        let device = disk.process(rng.u64(..));
        // The last life looks at what is left.
        let is_faulty = life < LIVES && (arm(&device, rng) | store.arm(rng));
        let lag_bytes = [0, 700, 1 << 20][rng.usize(0..3)];
        let mut options = options(device.clone(), streams, lag_bytes);
        log_as(seed, &mut options);
        let opened = store.open().and_then(|data| Database::open(options, data));
        let database = match opened {
            Ok(database) => database,
            Err(_) if is_faulty => {
                met.failed_openings += 1;
                die(None, &disk, store, rng);
                continue;
            }
            Err(error) => return Err(format!("life {life} does not begin: {error}")),
        };
        met.lives += 1;
        met.redone += database.recovered().keys;
        met.dead += database.recovered().dead;
        let recovered = match read_all(&database) {
            Ok(recovered) => recovered,
            Err(error) if is_faulty && is_of_fault(&error) => {
                met.unreadable += 1;
                die(Some(database), &disk, store, rng);
                continue;
            }
            Err(error) => return Err(format!("life {life} cannot be read: {error}")),
        };
        let judged = history.check_recovered(&KEYS, &recovered);
        judged.map_err(|wrong| format!("life {life} begins with a wrong state: {wrong}"))?;
        history = LifeHistory { base: recovered, executed: Vec::new() };
        work(&database, &mut history, &mut next_write, rng, met);
        if rng.bool() {
            // The last flush is cut short.
            device.arm(SimulatedFault::Stop(rng.u64(0..4)));
            for stream in 0..streams {
                database.log().step(stream);
            }
        }
        history.executed.iter_mut().for_each(ExecutedInLife::look);
        met.acknowledged += history.executed.iter().filter(|e| e.acknowledged).count();
        history.check_reads().map_err(|wrong| format!("life {life}: {wrong}"))?;
        let is_quiet = rng.u8(0..4) == 0 && database.log().poisoned().is_none();
        if is_quiet && quiet_end(database, &mut history, store)? {
            continue;
        }
        die(None, &disk, store, rng);
    }
    Ok(())
}

/// Closes the database; the data component then holds what the history has left.
fn quiet_end(
    database: Database,
    history: &mut LifeHistory,
    store: &dyn LivingStore,
) -> Result<bool, String> {
    if database.log().flush().is_err() {
        history.executed.iter_mut().for_each(ExecutedInLife::look);
        return Ok(false);
    }
    history.executed.iter_mut().for_each(ExecutedInLife::look);
    if let Some(open) = history.executed.iter().find(|e| e.ticket.is_some() && !e.acknowledged) {
        return Err(format!("all is durable, and {} is not acknowledged", open.ts));
    }
    if database.close().is_err() {
        return Ok(false);
    }
    if let Some(content) = store.content() {
        let expected = history.last_state();
        let expected: BTreeMap<_, _> =
            expected.iter().filter_map(|(key, written)| Some((vec![*key], (*written)?))).collect();
        let found = content.iter().map(|(key, value)| (key.clone(), number(value)));
        if found.clone().collect::<BTreeMap<_, _>>() != expected {
            let found: Vec<_> = found.collect();
            return Err(format!("the data component holds {found:?}, not {expected:?}"));
        }
    }
    Ok(true)
}

fn die(
    database: Option<Database>,
    disk: &SimulatedDisk,
    store: &mut dyn LivingStore,
    rng: &mut fastrand::Rng,
) {
    let power = rng.bool();
    match power {
        true => disk.power_cut(rng.u64(..)),
        false => disk.kill(),
    }
    drop(database);
    store.crash(rng, power);
}

/// The state.
fn read_all(database: &Database) -> Result<KeyState, Error> {
    let mut session = database.session()?;
    let mut tx = session.begin()?;
    let read = KEYS.map(|key| Ok((key, tx.get(&[key])?.as_deref().map(number))));
    read.into_iter().collect()
}

/// Whether a failing log or data component may be the reason for an error.
fn is_of_fault(error: &Error) -> bool {
    matches!(error, Error::Log(_) | Error::DataComponent(_))
}

/// Interleaves transactions until all are done, the log fails, or it is enough.
fn work(
    database: &Database,
    history: &mut LifeHistory,
    next_write: &mut u64,
    rng: &mut fastrand::Rng,
    met: &mut LifeCounts,
) {
    let sessions = (0..SESSIONS).map(|_| database.session().expect("there are enough"));
    let mut sessions: Vec<Session> = sessions.collect();
    let mut left = rng.usize(0..1500);
    for _ in 0..ROUNDS {
        work_round(database, &mut sessions, &mut left, history, next_write, rng, met);
    }
}

/// Interleaves transactions until each session has run one, the log fails, or it is enough.
fn work_round(
    database: &Database,
    sessions: &mut [Session],
    left: &mut usize,
    history: &mut LifeHistory,
    next_write: &mut u64,
    rng: &mut fastrand::Rng,
    met: &mut LifeCounts,
) {
    let mut fresh = sessions.iter_mut();
    let mut lanes: [Option<OpenInLife<'_>>; LANES] = Default::default();
    let mut reading: Option<OpenSnapshot<'_>> = None;
    while *left > 0 && database.log().poisoned().is_none() {
        *left -= 1;
        match rng.u8(0..100) {
            0..8 => {
                database.log().step(rng.usize(0..database.log().streams()));
            }
            8..14 => drop(database.step_proxy()),
            14..15 => {
                if let Ok(truncated) = database.checkpoint() {
                    met.checkpoints += 1;
                    met.truncated += truncated;
                }
            }
            15..18 => history.executed.iter_mut().for_each(ExecutedInLife::look),
            18..26 => {
                let went_on = match reading.take() {
                    Some(open) => open.go_on(&mut history.executed, &KEYS, rng).inspect(|open| {
                        met.snapshots += usize::from(open.is_none());
                    }),
                    None => fresh.next().map(OpenSnapshot::begin).transpose(),
                };
                match went_on {
                    Ok(open) => reading = open,
                    Err(error) => note(met, &error),
                }
            }
            _ => {
                let lane = &mut lanes[rng.usize(0..LANES)];
                match lane.take() {
                    None => match fresh.next().map(Session::begin) {
                        Some(Ok(tx)) => *lane = Some(begun(tx)),
                        Some(Err(error)) => note(met, &error),
                        None if lanes.iter().all(Option::is_none) => return,
                        None => {}
                    },
                    Some(running) => *lane = go_on(running, history, next_write, rng, met),
                }
            }
        }
    }
}

fn begun(tx: Transaction<'_>) -> OpenInLife<'_> {
    OpenInLife { executed: ExecutedInLife::begun(tx.timestamp()), tx }
}

fn note(met: &mut LifeCounts, error: &Error) {
    *met.aborted.entry(error.to_string()).or_default() += 1;
}

/// Reads a key, every second one as a future. Where one thread does all work, that never waits.
fn get(tx: &mut Transaction<'_>, key: KeyByte) -> Result<Option<Value>, Error> {
    if key.is_multiple_of(2) {
        return tx.get(&[key]);
    }
    match pin!(tx.get_async(&[key])).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(read) => read,
        Poll::Pending => panic!("a read waits, and nothing else runs"),
    }
}

/// Scans from a key on, in either order, to a limit or until the closure has enough.
fn scan(
    tx: &mut Transaction<'_>,
    executed: &mut ExecutedInLife,
    from: KeyByte,
    rng: &mut fastrand::Rng,
    met: &mut LifeCounts,
) -> Result<(), Error> {
    let (to, limit) = (KEYS[rng.usize(0..KEYS.len())], [1, 2, usize::MAX][rng.usize(0..3)]);
    let order = [ScanOrder::Ascending, ScanOrder::Descending][rng.usize(0..2)];
    let (lower, upper) = ([from], [to]);
    let (lower, upper) = (Bound::Included(&lower[..]), Bound::Excluded(&upper[..]));
    let rows = match order {
        _ if rng.bool() => {
            let mut rows = Vec::new();
            tx.scan_each(lower, upper, order, |row| {
                rows.push(row);
                match rows.len() < limit {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            })?;
            rows
        }
        ScanOrder::Ascending => tx.scan(lower, upper, limit)?,
        ScanOrder::Descending => tx.scan_back(lower, upper, limit)?,
    };
    met.scans += 1;
    let scanned = ScannedKeys { range: from..to, order, limit, rows: &rows };
    scanned.note(&mut executed.reads, &executed.writes);
    Ok(())
}

/// Does one thing in a transaction; returns it unless it has ended.
fn go_on<'s>(
    mut running: OpenInLife<'s>,
    history: &mut LifeHistory,
    next_write: &mut u64,
    rng: &mut fastrand::Rng,
    met: &mut LifeCounts,
) -> Option<OpenInLife<'s>> {
    let key = KEYS[rng.usize(0..KEYS.len())];
    let OpenInLife { tx, executed } = &mut running;
    let note_read = |executed: &mut ExecutedInLife, read: WriteNumber| {
        if !executed.writes.contains_key(&key) {
            executed.reads.push((key, read));
        }
    };
    let done = match rng.u8(0..20) {
        0..8 => get(tx, key).map(|read| {
            let read = read.as_deref().map(number);
            if let Some(own) = executed.writes.get(&key) {
                assert_eq!(read, *own, "a transaction reads its own write");
            }
            note_read(executed, read);
        }),
        8..13 => {
            let written = *next_write;
            *next_write += 1;
            tx.put(&[key], &bytes(written, rng.usize(0..300))).map(|()| {
                executed.writes.insert(key, Some(written));
            })
        }
        13 => scan(tx, executed, key, rng, met),
        14 => tx.delete(&[key]).map(|()| {
            executed.writes.insert(key, None);
        }),
        15 => {
            let written = *next_write;
            *next_write += 1;
            match tx.insert(&[key], &bytes(written, 20)) {
                Err(Error::Exists) => Ok(()),
                inserted => inserted.map(|()| {
                    note_read(executed, None);
                    executed.writes.insert(key, Some(written));
                }),
            }
        }
        16 => {
            // It may tell what it has read, once that is durable.
            running.executed.writes.clear();
            let ticket = running.tx.abort();
            history.executed.push(ExecutedInLife { ticket: Some(ticket), ..running.executed });
            return None;
        }
        _ => {
            let ticket = running.tx.commit();
            met.committed += usize::from(ticket.is_ok());
            match ticket {
                Ok(ticket) => running.executed.ticket = Some(ticket),
                Err(error) => note(met, &error),
            }
            history.executed.push(running.executed);
            return None;
        }
    };
    match done {
        Ok(()) => Some(running),
        Err(error) => {
            note(met, &error);
            None
        }
    }
}
