//! Restores: a new database with the state of an earlier moment.
//!
//! The moment is a timestamp. A transaction depends on transactions of lower timestamps alone, so
//! the recovered transactions up to a timestamp are a state the database was in, as seen by a
//! transaction just behind.

use crate::closed::ClosedDatabase;
use crate::copying::{check_is_empty, copy_operations};
use crate::data_component::{DataComponent, MAX_TS, ScanOrder};
use crate::error::Error;
use crate::recovery::{Redo, RedoLimits, begin_incarnation, first_point};
use hyades_platform::device::FileDevice;
use hyades_platform::event;
use hyades_wal::{Continuation, LogOptions, Unfinished};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file that describes the making of a restored database.
const NOTE: &str = "RECOVERED.txt";
/// The bytes of operations held in memory before they are applied.
const MEMORY: usize = 32 << 20;

/// The counts of [`Restore::run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// The keys copied from the data component.
    pub keys: u64,
    /// The transactions applied from the log on top.
    pub transactions: u64,
    /// The transactions of the log left out as later than the moment.
    pub later: u64,
    /// The highest timestamp of a transaction in the restored state.
    pub timestamp: u64,
}

/// The moment to restore to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Until {
    /// All transactions.
    #[default]
    Newest,
    /// The transactions with timestamps up to this one, a
    /// [`Transaction::timestamp`](crate::Transaction::timestamp).
    Timestamp(u64),
    /// Every transaction acknowledged by this time, in microseconds since 1970 by the machine's
    /// clock, and none begun more than 100 ms later.
    Time(u64),
}

/// Restores a database as of a moment: [`run`](Restore::run).
///
/// A log reaches back to its last checkpoint, so the data must not be older. The log of a backup
/// reaches from the backup's data to the backup's end; the log of a database with an archive
/// ([`LogOptions::archive`]) goes on from there to any later moment.
///
/// ```
/// # #[cfg(feature = "redb")] {
/// use hyades_deuteronomy::{Continuation, Database, LogOptions, Options, RedbData, Restore, Until};
/// use std::sync::Arc;
///
/// # let temporary = tempfile::tempdir()?;
/// # let dir = temporary.path();
/// let options = |name: &str| {
///     let mut log = LogOptions::new(vec![dir.join(name)], 2);
///     log.archive = Some(dir.join(format!("{name}-archive")));
///     Options::new(log)
/// };
/// let data = |file: &str| RedbData::open(&dir.join(file), 1 << 20);
/// let database = Database::open(options("log"), Arc::new(data("data.redb")?))?;
/// let mut session = database.session()?;
/// session.execute(|tx| tx.put(b"balance", b"100"))?;
/// database.backup(dir.join("backup"), &data("backup.redb")?)?;
/// let good = session.execute(|tx| tx.put(b"balance", b"90").map(|()| tx.timestamp()))?;
/// session.execute(|tx| tx.delete(b"balance"))?;
/// drop(session);
/// database.close()?;
///
/// let later =
///     Continuation { archive: Some(dir.join("log-archive")), log: vec![dir.join("log")] };
/// let backup = data("backup.redb")?;
/// Restore::new(vec![dir.join("backup")], &backup)
///     .continued(later)
///     .until(Until::Timestamp(good))
///     .run(dir.join("new"), &data("new.redb")?)?;
/// let restored = Database::open(options("new"), Arc::new(data("new.redb")?))?;
/// let balance = restored.session()?.execute(|tx| tx.get(b"balance"))?;
/// assert_eq!(balance.as_deref(), Some(&b"90"[..]));
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Restore<'d> {
    log: Vec<PathBuf>,
    data: &'d dyn DataComponent,
    later: Continuation,
    until: Until,
}

impl<'d> Restore<'d> {
    /// From the directories `log`, all of a log, and the data component `data`, both of a
    /// [backup](crate::Database::backup) or of a database that is not open. Both are only read.
    pub fn new(log: Vec<PathBuf>, data: &'d dyn DataComponent) -> Self {
        Self { log, data, later: Continuation::default(), until: Until::Newest }
    }

    /// Sets where the log goes on behind the backup: its archive, and the directories of the
    /// database itself if they are left. Without these the log ends with the archived segments, as
    /// if the rest of each stream were lost: up to a segment of each stream before the last
    /// truncation. Then a transaction may be missing, though a later one in another stream, which
    /// does not depend on it, is there.
    #[must_use]
    pub fn continued(mut self, later: Continuation) -> Self {
        self.later = later;
        self
    }

    /// Sets the moment. Default: [`Until::Newest`].
    #[must_use]
    pub fn until(mut self, until: Until) -> Self {
        self.until = until;
        self
    }

    /// Makes the state of the moment a new database: a log in the new directory `dir`, and the data
    /// in the empty data component `into`.
    ///
    /// # Errors
    /// The log and the data component do not belong together, are damaged or open elsewhere; a part
    /// of the log is missing; the data component holds later transactions than the moment, so an
    /// older backup is needed; `dir` or `into` is not empty; a copy could not be made. An
    /// interrupted restore does not open.
    pub fn run(&self, dir: impl AsRef<Path>, into: &dyn DataComponent) -> Result<Restored, Error> {
        let Self { log, data, later, .. } = self;
        check_is_empty(into)?;
        let asked_us = match self.until {
            Until::Time(us) => Some(us),
            Until::Newest | Until::Timestamp(_) => None,
        };
        let closed = ClosedDatabase::read(log, later, *data, asked_us)?;
        let ClosedDatabase { recovering, verdict, without_record, point } = closed;
        let until = match (self.until, without_record.times.found()) {
            (Until::Timestamp(ts), _) => ts,
            (Until::Time(_), Some(mark)) => mark.highest_ts,
            (Until::Newest, _) | (Until::Time(_), None) => MAX_TS,
        };
        let held = data.highest_ts()?;
        if held > until {
            return Err(Error::Invalid(format!(
                "the data component holds transactions up to the timestamp {held}, later than \
                 {until}: restore from the data of an older backup"
            )));
        }
        let to = Unfinished::begin(FileDevice::shared(), dir.as_ref())?;
        let rows = copy_operations(|all, each| data.scan(all, ScanOrder::Ascending, each), into)?;
        let limits = RedoLimits { until, early_above: Some(MEMORY), is_log_fixed: true };
        let mut redo = Redo::new(into, limits);
        redo.collect(&recovering, &verdict, point.as_ref(), &Arc::new(without_record))?;
        redo.apply_all()?;
        let timestamp = redo.highest_taken.max(held);
        let streams = recovering.manifest().newest().map_or(1, |newest| newest.dims.len());
        let fresh = to.open(LogOptions::new(Vec::new(), streams))?;
        let verdict = fresh.verdict(&[])?;
        let new = begin_incarnation(fresh, &verdict)?;
        // Last: a part of the data without a resume point opens with no log.
        into.checkpoint(&first_point(&new, timestamp))?;
        new.close()?;
        let counts = redo.counts;
        to.leave_note(NOTE, &note(log, until, timestamp, redo.later))?;
        to.finish()?;
        event!(INFO, "database restored", keys = rows.keys, timestamp = timestamp);
        Ok(Restored {
            keys: rows.keys,
            transactions: counts.transactions,
            later: redo.later,
            timestamp,
        })
    }
}

impl fmt::Debug for Restore<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { log, later, until, .. } = self;
        let mut out = f.debug_struct("Restore");
        out.field("log", log).field("later", later).field("until", until).finish_non_exhaustive()
    }
}

fn note(log: &[PathBuf], until: u64, timestamp: u64, later: u64) -> String {
    let dirs: Vec<String> = log.iter().map(|dir| dir.display().to_string()).collect();
    let asked = match until {
        MAX_TS => "all transactions".to_string(),
        until => format!("transactions up to the timestamp {until}"),
    };
    format!(
        "Restored from the log in {}: {asked}. The last transaction has the timestamp {timestamp}; \
         {later} later ones were left out.\n",
        dirs.join(", ")
    )
}
