//! Lives of a database on failing disks: a single thread interleaves transactions, flushes,
//! applies, takes checkpoints, and dies, in an order given by a seed.

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

/// The counts of events met, for a test's check of its coverage.
#[derive(Debug, Default)]
pub struct LifeCounts {
    /// Committed transactions.
    pub committed: usize,
    /// Scans.
    pub scans: usize,
    /// Ended snapshots.
    pub snapshots: usize,
    /// Ended long snapshots.
    pub long_snapshots: usize,
    /// Acknowledged transactions.
    pub acknowledged: usize,
    /// Errors of transactions, by text.
    pub aborted: BTreeMap<String, usize>,
    /// Successful openings.
    pub lives: usize,
    /// Openings with a required failure.
    pub failed_openings: usize,
    /// Lives with a required failure before the recovered state was read.
    pub unreadable: usize,
    /// Checkpoints.
    pub checkpoints: usize,
    /// Bytes of the log truncated by checkpoints.
    pub truncated: u64,
    /// Keys applied again by recovery.
    pub redone: u64,
    /// Transactions found dead by recovery.
    pub dead: u64,
    /// Writes of values without a byte, and of values of several pages.
    pub empty_values: usize,
    /// See `empty_values`.
    pub large_values: usize,
    /// Histories with a key without a byte, and with a long key.
    pub empty_keys: usize,
    /// See `empty_keys`.
    pub long_keys: usize,
    /// Openings with more than six streams, and with another number of streams than before.
    pub many_streams: usize,
    /// See `many_streams`.
    pub other_streams: usize,
}

impl LifeCounts {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: LifeCounts) {
        let LifeCounts { committed, scans, acknowledged, aborted, lives, .. } = other;
        self.committed += committed;
        self.scans += scans;
        self.acknowledged += acknowledged;
        aborted.into_iter().for_each(|(why, n)| *self.aborted.entry(why).or_default() += n);
        self.lives += lives;
        self.snapshots += other.snapshots;
        self.long_snapshots += other.long_snapshots;
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
    /// The transactions run since the state was last read.
    pub history: LifeHistory,
    pub next_write: u64,
    /// Whether something may fail in the current life.
    pub is_faulty: bool,
    pub met: &'m mut LifeCounts,
    /// The first failed operation among operations that must succeed.
    pub refused: Option<WrongLife>,
}

/// Runs some lives; all events follow from the seed.
///
/// # Errors
/// The first fault found.
///
/// # Panics
/// An asserted rule is broken.
pub fn live(seed: u64, store: &mut dyn LivingStore, met: &mut LifeCounts) -> Result<(), WrongLife> {
    live_on(seed, false, store, met)
}

/// The same, on a disk of the log whose syncs do nothing: no database survives lost syncs, so a
/// check without a finding sees nothing.
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
        // The last life looks at the remaining state.
        let may_fail = life < LIVES;
        lives.is_faulty = may_fail && (arm(&device, &mut lives.rng) | store.arm(&mut lives.rng));
        match lives.run(life, &device, streams, store)? {
            LifeEnd::Closed => {}
            LifeEnd::Died(left) => {
                die(&disk, store, &mut lives.rng);
                // The process's memory is dropped only after the process is dead.
                drop(left);
            }
        }
    }
    Ok(())
}

/// How a life ends.
enum LifeEnd {
    /// With a closed database.
    Closed,
    /// With the rest in memory.
    Died(Option<Database>),
}

impl Lives<'_> {
    /// Opens the database, compares the state, and works.
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

    /// Looks for acknowledged transactions.
    pub fn look(&mut self) {
        self.history.executed.iter_mut().for_each(ExecutedInLife::look);
    }

    /// Checks for failures of operations that must succeed.
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

    /// Notes an error of an operation; the error must have a reason.
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

    /// Closes the database; the data component then holds the state left by the history.
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
