//! Restores a database as of some moment, or salvages a damaged one, into a new directory.
//!
//! A moment is a cut between epochs ([`crate::engine::cut`] explains why the state contains all
//! dependencies of its transactions): replay skips the records of later epochs. In a salvage,
//! damage ends streams early, and the same rule applies as after a crash: a record is live iff all
//! its needs are below the ends of the streams. The state is written as a checkpoint into the new
//! directory; the directory cannot be opened before the checkpoint is complete.

mod report;

pub use report::RestoreReport;

use crate::calendar::{parse_time, time};
use crate::config::{Builder, Protocol};
use crate::error::Error;
use crate::inspect;
use crate::logging::StampFormat;
use crate::opening::{self, RestoreSource};
use crate::origin;
use crate::recovery::catalogue::Catalogue;
use crate::recovery::decode::RecordShape;
use crate::recovery::report::StreamRead;
use crate::transaction_id::TransactionId;
use hyades_platform::device::{Device, FileDevice};
use hyades_platform::epoch::EpochNumber;
use hyades_platform::event;
use hyades_wal::{
    Continuation, FrameKind, LogOptions, ReaderEnd, Recovering, StreamReader, Unfinished,
};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// The file that describes the making of a restored database.
const NOTE: &str = "RECOVERED.txt";

/// The moment to restore to, see [`Restore::until`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Until {
    /// Everything in the log.
    #[default]
    Newest,
    /// Everything acknowledged by this time, in microseconds since 1970, and nothing begun a few
    /// milliseconds later: the cut is before the first epoch with a known start after the time.
    Time(u64),
    /// Everything up to and including this transaction's epoch.
    Transaction(TransactionId),
    /// Everything before this transaction's epoch.
    Before(TransactionId),
}

impl FromStr for Until {
    type Err = String;

    /// Parses `newest`, a transaction id, or a UTC date and time of day, as in
    /// `2026-11-21T14:03:07.25Z` or `2026-11-21 14:03`.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "newest" {
            return Ok(Until::Newest);
        }
        if text.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
            return text.parse().map(Until::Transaction);
        }
        parse_time(text).map(Until::Time).ok_or_else(|| {
            format!(
                "{text:?} is no moment: give a time in UTC, as in 2026-11-21T14:03:07.25Z, a \
                 transaction id, as in 5213.3.1048576, or newest"
            )
        })
    }
}

/// Describes a restore for [`Builder::restore`].
#[derive(Clone, Debug)]
pub struct Restore {
    from: Vec<PathBuf>,
    to: PathBuf,
    later: Continuation,
    until: Until,
    salvage: bool,
}

impl Restore {
    /// Restores from `from`, all directories of the database or of a backup, to the directory `to`;
    /// `to` must be empty or absent.
    pub fn new(from: Vec<PathBuf>, to: impl AsRef<Path>) -> Restore {
        let (later, until) = (Continuation::default(), Until::Newest);
        Restore { from, to: to.as_ref().to_owned(), later, until, salvage: false }
    }

    /// Sets where the log goes on behind the backup in `from`: its archive
    /// ([`LogSettings::archive`](crate::LogSettings::archive)), and the directories of the database
    /// itself, or of a later backup. Then any moment since the backup can be restored. An archive
    /// alone does not do: its streams end at no common moment.
    ///
    /// ```
    /// use hyades::wal::Continuation;
    /// use hyades::{Database, Restore, Schema, Type};
    /// # let temporary = tempfile::tempdir()?;
    /// # let [dir, archive, copy, new] = ["a", "b", "c", "d"].map(|n| temporary.path().join(n));
    /// let describe = || {
    ///     let builder = Database::builder();
    ///     let mut builder = builder.log_settings(|log| log.archive = Some(archive.clone()));
    ///     let schema = Schema::new("words").column("w", Type::Text).primary_key(&["w"]);
    ///     let words = builder.table(schema);
    ///     (builder, words)
    /// };
    /// let (builder, words) = describe();
    /// let db = builder.open(&dir)?;
    /// db.backup(&copy)?;
    /// db.transact(|tx| Ok(tx.insert(words, &["later".into()])?))?;
    /// db.checkpoint()?;
    /// db.close()?;
    ///
    /// let later = Continuation { archive: Some(archive.clone()), log: vec![dir] };
    /// let report = describe().0.restore(&Restore::new(vec![copy], &new).continued(later))?;
    /// assert_eq!(report.rows, 1);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn continued(mut self, later: Continuation) -> Restore {
        self.later = later;
        self
    }

    /// Sets the moment to restore to. Default: [`Until::Newest`].
    pub fn until(mut self, until: Until) -> Restore {
        self.until = until;
        self
    }

    /// Sets whether to continue where the log is damaged, with the provably intact part: each
    /// stream ends at its first damage, and everything dependent on the rest is left out. The
    /// report lists the losses. For databases that cannot be opened and have no backup. Default:
    /// false.
    pub fn salvage(mut self, salvage: bool) -> Restore {
        self.salvage = salvage;
        self
    }
}

impl Builder {
    /// Restores a database as of some moment, or salvages a damaged one, into a new directory. The
    /// original's directories are only read; log directories of this builder are ignored. Declare
    /// the same tables and procedures as the original, or tables changed as [`Builder::table`]
    /// says: the new database then has the new schema.
    ///
    /// ```
    /// use hyades::{Database, Restore, Schema, Type, Until};
    /// # let temporary = tempfile::tempdir()?;
    /// # let (dir, new) = (temporary.path().join("a"), temporary.path().join("b"));
    /// let describe = || {
    ///     let mut builder = Database::builder();
    ///     let schema = Schema::new("words").column("w", Type::Text).primary_key(&["w"]);
    ///     let words = builder.table(schema);
    ///     (builder, words)
    /// };
    /// let (builder, words) = describe();
    /// let db = builder.open(&dir)?;
    /// let (_, ticket) = db.session()?.submit(|tx| Ok(tx.insert(words, &["kept".into()])?))?;
    /// let id = ticket.transaction_id().expect("it wrote something");
    /// ticket.wait()?;
    /// # std::thread::sleep(std::time::Duration::from_millis(20));
    /// db.transact(|tx| Ok(tx.insert(words, &["a mistake".into()])?))?;
    /// db.close()?;
    ///
    /// let how = Restore::new(vec![dir], &new).until(Until::Transaction(id));
    /// let report = describe().0.restore(&how)?;
    /// assert_eq!((report.rows, report.cut_epoch), (1, Some(id.epoch)));
    /// assert_eq!(describe().0.open(&new)?.rows(), 1);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Misuse`] if the log does not reach back to the moment; the new directory is not
    /// empty; the declarations do not match; the original is in use or, without salvage, damaged.
    pub fn restore(self, how: &Restore) -> Result<RestoreReport, Error> {
        restore(self, how)
    }
}

fn restore(mut builder: Builder, how: &Restore) -> Result<RestoreReport, Error> {
    if builder.protocol == Protocol::None {
        return Err(Error::Misuse(
            "without a log there is nothing to recover from: choose the protocol of the database"
                .into(),
        ));
    }
    let device = builder.log.device.clone().unwrap_or_else(FileDevice::shared);
    let mut from = open(how, &device)?;
    origin::check(from.manifest())?;
    // Checks the declarations before anything is created.
    let stored = &from.manifest().catalogue;
    Catalogue::join(stored, &builder.tables, &builder.procedures, &builder.dropped, None)?;
    if how.salvage {
        from.find_damage(RecordShape::leaves_out)?;
    }
    let known = match how.until {
        Until::Newest => None,
        Until::Time(_) => Some(LogSurvey::read(&from, None)?),
        Until::Transaction(id) | Until::Before(id) => Some(LogSurvey::read(&from, Some(id))?),
    };
    let (cut, mut report) = cut(how.until, &from, known)?;
    let to = Unfinished::begin(device, &how.to)?;
    builder.log.dirs = vec![how.to.clone()];
    // The archive is the original's.
    builder.log.archive = None;
    builder.checkpoints.interval = None;
    builder.checkpoints.max_recovery = None;
    // No transaction runs, so the checkpoint may use all processors.
    builder.checkpoints.share = 1.0;
    let until = cut.unwrap_or(EpochNumber::ABOVE_ALL);
    let source = RestoreSource { from, until, salvage: how.salvage, to: &to };
    let database = match opening::open_from(builder, source) {
        Ok(database) => database,
        Err(error) => {
            to.abandon();
            return Err(error);
        }
    };
    let recovered = database.recovery();
    report.transactions = recovered.records;
    report.replay_seconds = recovered.replay_seconds;
    report.reads = StreamRead::by_stream(&recovered.incarnations);
    report.dead = recovered.dead;
    report.losses.clone_from(&recovered.losses);
    report.schema_changes.clone_from(&recovered.schema_changes);
    report.rows = database.rows();
    database.checkpoint()?;
    database.close()?;
    to.leave_note(NOTE, &note(how, &report))?;
    to.finish()?;
    let (rows, transactions) = (report.rows, report.transactions);
    let losses = report.losses.len();
    event!(INFO, "database restored", rows = rows, transactions = transactions, losses = losses);
    Ok(report)
}

fn open(how: &Restore, device: &Arc<dyn Device>) -> Result<Recovering, Error> {
    for dir in &how.from {
        // Opening would create a missing directory.
        if !device.exists(dir).unwrap_or(true) {
            return Err(Error::Misuse(format!("there is no directory {}", dir.display())));
        }
    }
    let mut options = LogOptions::new(how.from.clone(), 1);
    options.device = Arc::clone(device);
    let is_continued = how.later != Continuation::default();
    if is_continued && how.salvage {
        return Err(Error::Misuse(
            "a salvage is of one log: salvage the log alone, or recover from the backup with its \
             archive"
                .into(),
        ));
    }
    if how.later.archive.is_some() && how.later.log.is_empty() {
        return Err(Error::Misuse(
            "the streams of an archive end at no common moment: give the directories of the \
             database itself, or of a later backup, beside the archive"
                .into(),
        ));
    }
    let from = match how.salvage {
        true => hyades_wal::open_damaged(options.clone())?,
        false => hyades_wal::open_continued(options.clone(), &how.later)?,
    };
    if is_continued {
        let copied = hyades_wal::open_read(options)?;
        if copied.manifest().catalogue != from.manifest().catalogue {
            return Err(Error::Misuse(
                "the tables or procedures of the database have changed since the backup: its log \
                 can be restored from a backup made after the change"
                    .into(),
            ));
        }
    }
    if from.is_fresh() {
        return Err(Error::Misuse(
            "the directories hold no database: give those that it has".into(),
        ));
    }
    Ok(from)
}

/// Times of epochs read from the log, and whether the wanted transaction was found.
#[derive(Debug, Default)]
struct LogSurvey {
    /// The start times of epochs, in microseconds since 1970.
    began_us: BTreeMap<EpochNumber, u64>,
    /// The first epoch with a record.
    first_epoch: Option<EpochNumber>,
    /// Whether the log has the wanted transaction's record.
    found: bool,
    /// Ends of the streams.
    ends: Vec<ReaderEnd>,
}

impl LogSurvey {
    /// Reads the heads of all records, one thread per reader.
    fn read(from: &Recovering, wanted: Option<TransactionId>) -> Result<LogSurvey, Error> {
        let all = std::thread::scope(|scope| {
            let incarnations = &from.manifest().incarnations;
            let survey = |reader: StreamReader| {
                let incarnation = incarnations.iter().find(|i| i.number == reader.incarnation);
                let stamp = incarnation.map_or(StampFormat::Empty, StampFormat::of);
                scope.spawn(move || LogSurvey::read_stream(reader, stamp, wanted))
            };
            let threads: Vec<_> = from.readers().into_iter().map(survey).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect::<Result<Vec<_>, Error>>()
        })?;
        let mut known = LogSurvey::default();
        for survey in all {
            for (epoch, began) in survey.began_us {
                let earliest = known.began_us.entry(epoch).or_insert(began);
                *earliest = began.min(*earliest);
            }
            known.first_epoch = known.first_epoch.into_iter().chain(survey.first_epoch).min();
            known.found |= survey.found;
            known.ends.extend(survey.ends);
        }
        Ok(known)
    }

    fn read_stream(
        mut reader: StreamReader,
        stamp: StampFormat,
        wanted: Option<TransactionId>,
    ) -> Result<LogSurvey, Error> {
        let wanted = wanted.filter(|id| id.stream == reader.stream.0);
        let mut known = LogSurvey::default();
        while let Some(chunk) = reader.next_chunk()? {
            for frame in chunk.frames().filter(|frame| frame.kind == FrameKind::Record) {
                let Some(head) = stamp.head(&mut &frame.payload[..]) else { continue };
                let epoch = head.tid.epoch();
                known.first_epoch = Some(known.first_epoch.map_or(epoch, |e| e.min(epoch)));
                if let Some(began) = head.epoch_us {
                    let earliest = known.began_us.entry(epoch).or_insert(began);
                    *earliest = began.min(*earliest);
                }
                known.found |= wanted.is_some_and(|id| (id.epoch, id.lsn) == (epoch.0, frame.end));
            }
        }
        known.ends.push(reader.end());
        Ok(known)
    }
}

/// Determines the last epoch to restore, and the known times around the cut.
fn cut(
    until: Until,
    from: &Recovering,
    known: Option<LogSurvey>,
) -> Result<(Option<EpochNumber>, RestoreReport), Error> {
    let mut report = RestoreReport::default();
    let Some(known) = known else { return Ok((None, report)) };
    let checkpoint = from.manifest().checkpoint.as_ref();
    let cut = match until {
        Until::Newest => None,
        Until::Time(asked) => {
            if let Some(checkpoint) = checkpoint.filter(|c| c.taken_at_us > asked) {
                return Err(too_early(checkpoint.reaches_back_to(), Some(checkpoint.taken_at_us)));
            }
            let held = EpochNumber(checkpoint.map_or(0, |c| c.reaches_back_to()));
            let mut later = known.began_us.iter().filter(|(epoch, _)| **epoch > held);
            if known.began_us.is_empty() && known.first_epoch.is_some_and(|first| first > held) {
                return Err(Error::Misuse(
                    "the log states no times: it was written by an earlier version; ask for the \
                     newest state or for a transaction"
                        .into(),
                ));
            }
            // An epoch ends before the next epoch begins, so nothing existed before the first
            // epoch.
            if let (None, Some((first, began))) = (checkpoint, known.began_us.first_key_value())
                && *began > asked
            {
                return Err(Error::Misuse(format!(
                    "the database's first transaction is of epoch {first}, which began at {}: \
                     what was asked for lies before that",
                    time(*began)
                )));
            }
            later.find(|(_, began)| **began > asked).map(|(epoch, _)| epoch.previous())
        }
        Until::Transaction(id) => Some(place(id, &known, from)?),
        Until::Before(id) => Some(place(id, &known, from)?.previous()),
    };
    if let (Some(cut), Some(checkpoint)) = (cut, checkpoint)
        && cut.0 < checkpoint.reaches_back_to()
    {
        return Err(too_early(checkpoint.reaches_back_to(), Some(checkpoint.taken_at_us)));
    }
    if let Some(cut) = cut {
        report.cut_epoch = Some(cut.0);
        report.next_epoch_us = known.began_us.range(cut.next()..).next().map(|(_, began)| *began);
    }
    let until = cut.unwrap_or(EpochNumber::ABOVE_ALL);
    report.last_epoch_us = known.began_us.range(..=until).next_back().map(|(_, began)| *began);
    Ok((cut, report))
}

fn too_early(cut: u64, taken_at_us: Option<u64>) -> Error {
    let at = taken_at_us.map_or(String::new(), |at| format!(", {}", time(at)));
    Error::Misuse(format!(
        "the log's history begins with its checkpoint, at epoch {cut}{at}: what was asked for \
         lies before that; recover it from a backup that was made before that, or ask for a later \
         state"
    ))
}

/// Returns the transaction's epoch if its record is in the log and live.
fn place(id: TransactionId, known: &LogSurvey, from: &Recovering) -> Result<EpochNumber, Error> {
    match known.found {
        true if !inspect::is_live(from, &known.ends, id)? => Err(Error::Misuse(format!(
            "transaction {id} was lost in a crash, and never acknowledged: its record is there, \
             but what it depends on is not; ask for another transaction, a time, or the newest \
             state"
        ))),
        true => Ok(EpochNumber(id.epoch)),
        false => {
            if let Some(checkpoint) = from.manifest().checkpoint.as_ref()
                && id.epoch <= checkpoint.reaches_back_to()
            {
                return Err(too_early(checkpoint.reaches_back_to(), Some(checkpoint.taken_at_us)));
            }
            Err(Error::Misuse(format!(
                "the log has no transaction {id}: it is another database's, or it was never \
                 acknowledged and lost in a crash"
            )))
        }
    }
}

fn note(how: &Restore, report: &RestoreReport) -> String {
    let mut text = String::from("This database was recovered from:\n");
    for dir in &how.from {
        let _ = writeln!(text, "  {}", dir.display());
    }
    let asked = match how.until {
        Until::Newest => "the newest state".to_string(),
        Until::Time(at) => format!("the state at {}", time(at)),
        Until::Transaction(id) => format!("the state with transaction {id}"),
        Until::Before(id) => format!("the state before transaction {id}"),
    };
    let salvage = if how.salvage { ", as far as the log is whole" } else { "" };
    let _ = write!(text, "Asked for was {asked}{salvage}. Taken was:\n{report}");
    text
}

#[cfg(test)]
mod tests {
    use super::Until;

    #[test]
    fn a_moment_may_be_a_time() {
        assert_eq!("2000-02-29T00:00:00.5Z".parse(), Ok(Until::Time(951_782_400_500_000)));
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for text in [
            "",
            "yesterday",
            "2026-02-29T00:00",
            "2026-13-01 00:00",
            "2026-01-01",
            "1.2",
            "1.2.3.4",
            "2026-01-01T24:00",
            "2026-01-01T00:00:00.1234567Z",
            "-1-1-1 0:0",
        ] {
            assert!(text.parse::<Until>().is_err(), "{text}");
        }
        assert_eq!("newest".parse(), Ok(Until::Newest));
        assert!(matches!("1.2.3".parse(), Ok(Until::Transaction(id)) if id.lsn == 3));
    }
}
