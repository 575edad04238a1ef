//! Lives of a database on disks that fail: one thread interleaves transactions, flushes, applies,
//! takes checkpoints, and dies, in an order that follows from a seed.

use super::drawn::{DrawnLives, arm};
use super::history::{ExecutedInLife, KeyState, LifeHistory, number};
use super::keys::{LONG_KEY, LifeKeys};
use super::stores::LivingStore;
use super::wrong::WrongLife;
use crate::{Database, Error};
use hyades_platform::device::{SimulatedDevice, SimulatedDisk, SimulatedFault};
use std::collections::BTreeMap;

const LIVES: usize = 4;
/// The streams whose dependencies stand in the entries of the transaction table themselves.
const NEAR_STREAMS: usize = 6;

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
    /// Writes of values without a byte, and of values that take several pages.
    pub empty_values: usize,
    /// See `empty_values`.
    pub large_values: usize,
    /// Histories with a key without a byte, and with a long one.
    pub empty_keys: usize,
    /// See `empty_keys`.
    pub long_keys: usize,
    /// Openings with more than six streams, and with another number of them than before.
    pub many_streams: usize,
    /// See `many_streams`.
    pub other_streams: usize,
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
        self.empty_values += other.empty_values;
        self.large_values += other.large_values;
        self.empty_keys += other.empty_keys;
        self.long_keys += other.long_keys;
        self.many_streams += other.many_streams;
        self.other_streams += other.other_streams;
    }
}

/// The lives of a database.
pub(super) struct Lives<'m> {
    pub drawn: DrawnLives,
    pub rng: fastrand::Rng,
    /// What has run since the state was last read.
    pub history: LifeHistory,
    pub next_write: u64,
    /// Whether something may fail in this life.
    pub is_faulty: bool,
    pub met: &'m mut LifeCounts,
    /// The first operation that has failed, and had to succeed.
    pub refused: Option<WrongLife>,
}

/// Runs some lives, all that happens in which follows from the seed.
///
/// # Errors
/// The first thing that is wrong.
///
/// # Panics
/// A rule that is asserted is broken.
pub fn live(seed: u64, store: &mut dyn LivingStore, met: &mut LifeCounts) -> Result<(), WrongLife> {
    live_on(seed, false, store, met)
}

/// The same, on a disk of the log whose syncs do nothing: no database survives that, so a check
/// that finds nothing wrong sees nothing.
///
/// # Errors
/// As [`live`].
///
/// # Panics
/// As [`live`].
pub fn live_beside_lies(
    seed: u64,
    store: &mut dyn LivingStore,
    met: &mut LifeCounts,
) -> Result<(), WrongLife> {
    live_on(seed, true, store, met)
}

fn live_on(
    seed: u64,
    lying_sync: bool,
    store: &mut dyn LivingStore,
    met: &mut LifeCounts,
) -> Result<(), WrongLife> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let disk = SimulatedDisk::new();
    let drawn = DrawnLives::draw(seed, &mut rng);
    met.empty_keys += usize::from(drawn.keys.has_empty());
    met.long_keys += usize::from(drawn.keys.longest() == LONG_KEY);
    let (history, refused, mut last_streams) = (LifeHistory::default(), None, None);
    let mut lives = Lives { drawn, rng, history, next_write: 1, is_faulty: false, met, refused };
    for life in 0..=LIVES {
        let streams = lives.drawn.draw_streams(&mut lives.rng);
        lives.met.many_streams += usize::from(streams > NEAR_STREAMS);
        lives.met.other_streams += usize::from(last_streams.is_some_and(|last| last != streams));
        last_streams = Some(streams);
        let device = disk.process(lives.rng.u64(..));
        if lying_sync {
            device.arm(SimulatedFault::LyingSync);
        }
        // The last life looks at what is left.
        let may_fail = life < LIVES;
        lives.is_faulty = may_fail && (arm(&device, &mut lives.rng) | store.arm(&mut lives.rng));
        match lives.run(life, &device, streams, store)? {
            LifeEnd::Closed => {}
            LifeEnd::Died(left) => {
                die(&disk, store, &mut lives.rng);
                // What the process has left in memory is dropped when it can do nothing any more.
                drop(left);
            }
        }
    }
    Ok(())
}

/// How a life ends.
enum LifeEnd {
    /// With a database that is closed.
    Closed,
    /// With what is left in memory.
    Died(Option<Database>),
}

impl Lives<'_> {
    /// Opens the database, compares its state, and works.
    fn run(
        &mut self,
        life: usize,
        device: &SimulatedDevice,
        streams: usize,
        store: &mut dyn LivingStore,
    ) -> Result<LifeEnd, WrongLife> {
        let lag_bytes = [0, 700, 1 << 20][self.rng.usize(0..3)];
        let options = self.drawn.options(device.clone(), streams, lag_bytes);
        let opened = store.open().and_then(|data| Database::open(options, data));
        let database = match opened {
            Ok(database) => database,
            Err(_) if self.is_faulty => {
                self.met.failed_openings += 1;
                return Ok(LifeEnd::Died(None));
            }
            Err(error) => {
                return Err(WrongLife::refused(format!("life {life} does not begin: {error}")));
            }
        };
        self.met.lives += 1;
        self.met.redone += database.recovered().keys;
        self.met.dead += database.recovered().dead;
        let recovered = match read_all(&database, &self.drawn.keys) {
            Ok(recovered) => recovered,
            Err(error) if self.is_faulty && is_of_fault(&error) => {
                self.met.unreadable += 1;
                return Ok(LifeEnd::Died(Some(database)));
            }
            Err(error) => {
                return Err(WrongLife::refused(format!("life {life} cannot be read: {error}")));
            }
        };
        let judged = self.history.check_recovered(&self.drawn.keys.all(), &recovered);
        judged.map_err(|wrong| wrong.when(&format!("life {life} begins with a wrong state")))?;
        self.history = LifeHistory { base: recovered, executed: Vec::new() };
        self.work(&database);
        self.check_refused(&database, life)?;
        if self.rng.bool() {
            // The last flush is cut short.
            device.arm(SimulatedFault::Stop(self.rng.u64(0..4)));
            self.is_faulty = true;
            for stream in 0..streams {
                database.log().step(stream);
            }
        }
        self.look();
        self.met.acknowledged += self.history.executed.iter().filter(|e| e.acknowledged).count();
        self.history.check_reads().map_err(|wrong| wrong.when(&format!("life {life}")))?;
        let is_quiet = self.rng.u8(0..4) == 0 && database.log().poisoned().is_none();
        match is_quiet {
            true => self.quiet_end(database, life, store),
            false => Ok(LifeEnd::Died(Some(database))),
        }
    }

    /// Looks what is acknowledged.
    pub fn look(&mut self) {
        self.history.executed.iter_mut().for_each(ExecutedInLife::look);
    }

    /// Whether anything has failed that had to succeed.
    fn check_refused(&mut self, database: &Database, life: usize) -> Result<(), WrongLife> {
        if let Some(refused) = self.refused.take() {
            return Err(refused.when(&format!("life {life}")));
        }
        match database.log().poisoned().filter(|_| !self.is_faulty) {
            Some(poisoned) => {
                let error = Error::from(hyades_wal::Error::from(poisoned));
                Err(WrongLife::refused(format!("life {life} has stopped: {error}")))
            }
            None => Ok(()),
        }
    }

    /// Notes an error of an operation, which has to have a reason.
    pub fn note(&mut self, error: &Error) {
        let is_expected = match error {
            Error::Aborted(_) => true,
            Error::WriteTooLarge(len, limit) | Error::TransactionTooLarge(len, limit) => {
                len > limit
            }
            error => self.is_faulty && is_of_fault(error),
        };
        if !is_expected && self.refused.is_none() {
            self.refused = Some(WrongLife::refused(error.to_string()));
        }
        let what = match error {
            Error::WriteTooLarge(..) => "a key and its value do not fit into a frame".to_string(),
            Error::TransactionTooLarge(..) => "the writes exceed the memory budget".to_string(),
            error => error.to_string(),
        };
        *self.met.aborted.entry(what).or_default() += 1;
    }

    /// Closes the database; the data component then holds what the history has left.
    fn quiet_end(
        &mut self,
        database: Database,
        life: usize,
        store: &dyn LivingStore,
    ) -> Result<LifeEnd, WrongLife> {
        let refused = |error: Error| match self.is_faulty {
            true => Ok(LifeEnd::Died(None)),
            false => Err(WrongLife::refused(format!("life {life} is not closed: {error}"))),
        };
        if let Err(poisoned) = database.log().flush() {
            self.history.executed.iter_mut().for_each(ExecutedInLife::look);
            return refused(hyades_wal::Error::from(poisoned).into());
        }
        self.history.executed.iter_mut().for_each(ExecutedInLife::look);
        self.history.check_acknowledged()?;
        if let Err(error) = database.close() {
            return refused(error);
        }
        if let Some(content) = store.content() {
            let keys = &self.drawn.keys;
            let found = content.iter();
            let found = found.map(|(key, value)| (keys.of_bytes(key), Some(number(value))));
            self.history.check_content(&keys.all(), &found.collect())?;
        }
        Ok(LifeEnd::Closed)
    }
}

fn die(disk: &SimulatedDisk, store: &mut dyn LivingStore, rng: &mut fastrand::Rng) {
    let power = rng.bool();
    match power {
        true => disk.power_cut(rng.u64(..)),
        false => disk.kill(),
    }
    store.crash(rng, power);
}

/// The state.
fn read_all(database: &Database, keys: &LifeKeys) -> Result<KeyState, Error> {
    let mut session = database.session()?;
    let mut tx = session.begin()?;
    let read = keys.all().map(|key| Ok((key, tx.get(keys.bytes(key))?.as_deref().map(number))));
    read.into_iter().collect()
}

/// Whether a failing log or data component may be the reason for an error.
fn is_of_fault(error: &Error) -> bool {
    matches!(error, Error::Log(_) | Error::DataComponent(_) | Error::OutcomeUnknown)
}
