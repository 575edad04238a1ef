//! Restores: a new database with the state of an earlier moment.
//!
//! The moment is a timestamp. A transaction depends on transactions of lower timestamps alone, so
//! the recovered transactions up to a timestamp are a state the database was in, as seen by a
//! transaction just behind.

use crate::binding::{check, check_is_named, check_is_not_ahead};
use crate::copying::{check_is_empty, copy_operations};
use crate::data_component::{DataComponent, MAX_TS, ScanOrder};
use crate::error::Error;
use crate::recovery::{Redo, RedoLimits, begin_incarnation, first_point, read_to_the_ends};
use hyades_platform::device::FileDevice;
use hyades_wal::{LogOptions, Unfinished};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file that describes the making of a restored database.
const NOTE: &str = "RECOVERED.txt";
/// The bytes of operations held in memory before they are applied.
const MEMORY: usize = 32 << 20;

/// The counts of [`restore`].
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

/// Restores a database as of a moment: from the directories `log`, all of a log, and the data
/// component `data`, both of a [backup](crate::Database::backup) or of a database that is not open.
/// The state of all transactions with timestamps up to `until` becomes a new database: a log in the
/// new directory `dir`, and the data in the empty data component `into`. None: all transactions.
/// The original is only read.
///
/// A log reaches back to its last checkpoint, so the data must not be older. The log of a backup
/// reaches from the backup's data to the backup's end. The log of the database reaches back to a
/// backup as long as no checkpoint was taken since: a checkpoint is taken at a close, and each time
/// that [`redo_bytes`](crate::Options::redo_bytes) were written.
///
/// A transaction's timestamp is [`Transaction::timestamp`](crate::Transaction::timestamp), and
/// `hyades log dump` lists timestamps.
///
/// ```
/// # #[cfg(feature = "redb")] {
/// use hyades_deuteronomy::{Database, LogOptions, Options, RedbData, restore};
/// use std::sync::Arc;
///
/// # let temporary = tempfile::tempdir()?;
/// # let dir = temporary.path();
/// let options = |log: &str| Options::new(LogOptions::new(vec![dir.join(log)], 2));
/// let data = |file: &str| RedbData::open(&dir.join(file), 1 << 20);
/// let database = Database::open(options("log"), Arc::new(data("data.redb")?))?;
/// let mut session = database.session()?;
/// session.execute(|tx| tx.put(b"balance", b"100"))?;
/// database.backup(dir.join("backup"), &data("backup.redb")?)?;
/// let good = session.execute(|tx| tx.put(b"balance", b"90").map(|()| tx.timestamp()))?;
/// session.execute(|tx| tx.delete(b"balance"))?;
/// // A crash, or a disk of data that is lost.
/// drop((session, database));
///
/// // The log of the database, with the older data of the backup.
/// let (log, backup) = (vec![dir.join("log")], data("backup.redb")?);
/// restore(&log, &backup, Some(good), dir.join("new"), &data("new.redb")?)?;
/// let restored = Database::open(options("new"), Arc::new(data("new.redb")?))?;
/// let balance = restored.session()?.execute(|tx| tx.get(b"balance"))?;
/// assert_eq!(balance.as_deref(), Some(&b"90"[..]));
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The log and the data component do not belong together, are damaged or open elsewhere; the data
/// component holds later transactions than `until`, so an older backup is needed; `dir` or `into`
/// is not empty; a copy could not be made. An interrupted restore does not open.
pub fn restore(
    log: &[PathBuf],
    data: &dyn DataComponent,
    until: Option<u64>,
    dir: impl AsRef<Path>,
    into: &dyn DataComponent,
) -> Result<Restored, Error> {
    check_is_empty(into)?;
    let until = until.unwrap_or(MAX_TS);
    let recovering = hyades_wal::open_read(LogOptions::new(log.to_vec(), 1))?;
    let (verdict, without_record) = read_to_the_ends(&recovering)?;
    let point = data.resume_point()?;
    check(recovering.manifest(), recovering.is_fresh(), &verdict, point.as_ref())?;
    check_is_named(&recovering, data, point.as_ref())?;
    check_is_not_ahead(data, point.as_ref(), without_record.highest_ts())?;
    let held = data.highest_ts()?;
    if held > until {
        return Err(Error::Invalid(format!(
            "the data component holds transactions up to the timestamp {held}, later than {until}: \
             restore from the data of an older backup"
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
    Ok(Restored {
        keys: rows.keys,
        transactions: counts.transactions,
        later: redo.later,
        timestamp,
    })
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
