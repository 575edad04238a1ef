//! A database as of some moment, or what is left of a damaged one, in a new directory.
//!
//! Moments are cuts between epochs ([`crate::engine::cut`] says why that is a state in which every
//! transaction has all that it depends on): replay passes over the records of later epochs. What is damaged
//! cuts streams off, and then the rule that judges a crash judges this: a record counts iff all that it needs
//! lies below where the streams end now. The state becomes a checkpoint in the new directory, which cannot
//! be opened before that is whole.

use crate::config::{Builder, Protocol};
use crate::error::Error;
use crate::inspect;
use crate::logging::record::{Head, Tid};
use crate::opening::{self, Source};
use crate::recovery::catalogue::Catalogue;
use crate::recovery::report::Loss;
use crate::transaction_id::TransactionId;
use hyades_platform::device::{Device, FileDevice};
use hyades_wal::{FrameKind, LogOptions, ReaderEnd, Recovering, StreamReader, Unfinished};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// The file that says how a recovered database came about.
const NOTE: &str = "RECOVERED.txt";

/// Up to when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Until {
    /// All that there is.
    #[default]
    Newest,
    /// Everything acknowledged by this time, in microseconds since 1970, and nothing that began a few
    /// milliseconds later: the cut falls at the first epoch that is known to have begun after it.
    Time(u64),
    /// This transaction, and all of its epoch.
    Transaction(TransactionId),
    /// Without this transaction: nothing of its epoch.
    Before(TransactionId),
}

impl FromStr for Until {
    type Err = String;

    /// Reads `newest`, a transaction id, or a time: a date and a time of day, UTC, as in
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
                "{text:?} is no moment: give a time in UTC, as in 2026-11-21T14:03:07.25Z, a transaction id, \
                 as in 5213.3.1048576, or newest"
            )
        })
    }
}

/// What [`Builder::restore`] is to do.
#[derive(Clone, Debug)]
pub struct Restore {
    from: Vec<PathBuf>,
    to: PathBuf,
    until: Until,
    salvage: bool,
}

impl Restore {
    /// From these directories, all those of the database or of a backup, to that one, which must be empty or
    /// absent.
    pub fn new(from: Vec<PathBuf>, to: impl AsRef<Path>) -> Restore {
        Restore { from, to: to.as_ref().to_owned(), until: Until::Newest, salvage: false }
    }

    /// Up to then; all that there is if not set.
    pub fn until(mut self, until: Until) -> Restore {
        self.until = until;
        self
    }

    /// Goes on where the log is damaged, with what is provably whole: streams end where they are damaged, and
    /// all that depends on what lies behind is left out. What was lost is reported. For databases that cannot
    /// be opened and of which there is no copy.
    pub fn salvage(mut self, salvage: bool) -> Restore {
        self.salvage = salvage;
        self
    }
}

/// What was recovered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RestoreReport {
    /// The last epoch that is in it; None: all that there was.
    pub cut_epoch: Option<u64>,
    /// When the last epoch that left something began, in microseconds since 1970, if the log says so.
    pub last_epoch_us: Option<u64>,
    /// When the first epoch that was left out began.
    pub next_epoch_us: Option<u64>,
    /// Rows.
    pub rows: u64,
    /// Transactions replayed, on top of a checkpoint if there was one.
    pub transactions: u64,
    /// Records passed over because what they depend on was lost.
    pub dead: u64,
    /// What could not be read, and what went with it.
    pub losses: Vec<Loss>,
}

/// See [`Builder::restore`].
pub(crate) fn restore(mut builder: Builder, how: &Restore) -> Result<RestoreReport, Error> {
    if builder.protocol == Protocol::None {
        return Err(Error::Misuse(
            "without a log there is nothing to recover from: choose the protocol of the database"
                .into(),
        ));
    }
    let device = builder.log.device.clone().unwrap_or_else(FileDevice::shared);
    let mut from = open(how, &device)?;
    // Nothing is begun where the declarations do not fit.
    Catalogue::join(&from.manifest().catalogue, &builder.tables, &builder.procedures)?;
    if how.salvage {
        from.find_damage()?;
    }
    let known = match how.until {
        Until::Newest => None,
        Until::Time(_) => Some(Known::read(&from, None)?),
        Until::Transaction(id) | Until::Before(id) => Some(Known::read(&from, Some(id))?),
    };
    let (cut, mut report) = cut(how.until, &from, known)?;
    let to = Unfinished::begin(device, &how.to)?;
    builder.log.dirs = vec![how.to.clone()];
    builder.checkpoints.interval = None;
    builder.checkpoints.max_recovery = None;
    // Nobody else is at work on it.
    builder.checkpoints.share = 1.0;
    let until = cut.unwrap_or(u64::MAX);
    let source = Source { from, until, salvage: how.salvage, to: &to };
    let database = match opening::open_from(builder, source) {
        Ok(database) => database,
        Err(error) => {
            to.abandon();
            return Err(error);
        }
    };
    let recovered = database.recovery();
    report.transactions = recovered.records;
    report.dead = recovered.dead;
    report.losses.clone_from(&recovered.losses);
    report.rows = database.rows();
    database.checkpoint()?;
    database.close()?;
    to.leave_note(NOTE, &note(how, &report))?;
    to.finish()?;
    Ok(report)
}

fn open(how: &Restore, device: &Arc<dyn Device>) -> Result<Recovering, Error> {
    for dir in &how.from {
        // Opening would make a directory that is not there.
        if !device.exists(dir).unwrap_or(true) {
            return Err(Error::Misuse(format!("there is no directory {}", dir.display())));
        }
    }
    let mut options = LogOptions::new(how.from.clone(), 1);
    options.device = Arc::clone(device);
    let open = if how.salvage { hyades_wal::open_damaged } else { hyades_wal::open_read };
    let from = open(options)?;
    if from.is_fresh() {
        return Err(Error::Misuse(
            "the directories hold no database: give those that it has".into(),
        ));
    }
    Ok(from)
}

/// What the log says of epochs and of the places of records.
#[derive(Debug, Default)]
struct Known {
    /// When epochs began, microseconds since 1970.
    began_us: BTreeMap<u64, u64>,
    /// The first epoch that left a record.
    first_epoch: Option<u64>,
    /// Whether the transaction that was asked for is there.
    found: bool,
    /// Where streams end.
    ends: Vec<ReaderEnd>,
}

impl Known {
    /// Reads all records' heads.
    fn read(from: &Recovering, wanted: Option<TransactionId>) -> Result<Known, Error> {
        let all = std::thread::scope(|scope| {
            let readers = from.readers().into_iter();
            let threads: Vec<_> = readers
                .map(|reader| scope.spawn(move || Known::read_stream(reader, wanted)))
                .collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect::<Result<Vec<_>, Error>>()
        })?;
        let mut known = Known::default();
        for of in all {
            for (epoch, began) in of.began_us {
                let earliest = known.began_us.entry(epoch).or_insert(began);
                *earliest = began.min(*earliest);
            }
            known.first_epoch = known.first_epoch.into_iter().chain(of.first_epoch).min();
            known.found |= of.found;
            known.ends.extend(of.ends);
        }
        Ok(known)
    }

    fn read_stream(
        mut reader: StreamReader,
        wanted: Option<TransactionId>,
    ) -> Result<Known, Error> {
        let wanted = wanted.filter(|id| id.stream == reader.stream);
        let mut known = Known::default();
        while let Some(chunk) = reader.next_chunk()? {
            for frame in chunk.frames().filter(|frame| frame.kind == FrameKind::Record) {
                let Some(head) = Head::decode(&mut &frame.payload[..]) else { continue };
                let epoch = Tid(head.tid).epoch();
                known.first_epoch = Some(known.first_epoch.map_or(epoch, |e| e.min(epoch)));
                if let Some(began) = head.epoch_us {
                    let earliest = known.began_us.entry(epoch).or_insert(began);
                    *earliest = began.min(*earliest);
                }
                known.found |= wanted.is_some_and(|id| (id.epoch, id.lsn) == (epoch, frame.end));
            }
        }
        known.ends.push(reader.end());
        Ok(known)
    }
}

/// The epoch to stop at, and what is known of its time.
fn cut(
    until: Until,
    from: &Recovering,
    known: Option<Known>,
) -> Result<(Option<u64>, RestoreReport), Error> {
    let mut report = RestoreReport::default();
    let Some(known) = known else { return Ok((None, report)) };
    let checkpoint = from.manifest().checkpoint.as_ref();
    let cut = match until {
        Until::Newest => None,
        Until::Time(asked) => {
            if let Some(checkpoint) = checkpoint.filter(|c| c.taken_at_us > asked) {
                return Err(too_early(checkpoint.reaches_back_to(), Some(checkpoint.taken_at_us)));
            }
            let held = checkpoint.map_or(0, |c| c.reaches_back_to());
            let mut later = known.began_us.iter().filter(|(epoch, _)| **epoch > held);
            if known.began_us.is_empty() && known.first_epoch.is_some_and(|first| first > held) {
                return Err(Error::Misuse(
                    "the log states no times: it was written by an earlier version; ask for the newest \
                     state or for a transaction"
                        .into(),
                ));
            }
            // An epoch is over before the next one begins: earlier than the first there was nothing.
            if let (None, Some((first, began))) = (checkpoint, known.began_us.first_key_value())
                && *began > asked
            {
                return Err(Error::Misuse(format!(
                    "the database's first transaction is of epoch {first}, which began at {}: what was asked \
                     for lies before that",
                    time(*began)
                )));
            }
            later.find(|(_, began)| **began > asked).map(|(epoch, _)| epoch - 1)
        }
        Until::Transaction(id) => Some(place(id, &known, from)?),
        Until::Before(id) => Some(place(id, &known, from)?.saturating_sub(1)),
    };
    if let (Some(cut), Some(checkpoint)) = (cut, checkpoint)
        && cut < checkpoint.reaches_back_to()
    {
        return Err(too_early(checkpoint.reaches_back_to(), Some(checkpoint.taken_at_us)));
    }
    if let Some(cut) = cut {
        report.cut_epoch = Some(cut);
        report.next_epoch_us = known.began_us.range(cut + 1..).next().map(|(_, began)| *began);
    }
    let until = cut.unwrap_or(u64::MAX);
    report.last_epoch_us = known.began_us.range(..=until).next_back().map(|(_, began)| *began);
    Ok((cut, report))
}

fn too_early(cut: u64, taken_at_us: Option<u64>) -> Error {
    let at = taken_at_us.map_or(String::new(), |at| format!(", {}", time(at)));
    Error::Misuse(format!(
        "the log's history begins with its checkpoint, at epoch {cut}{at}: what was asked for lies before \
         that; recover it from a backup that was made before that, or ask for a later state"
    ))
}

/// The transaction's epoch, if it is in the log.
fn place(id: TransactionId, known: &Known, from: &Recovering) -> Result<u64, Error> {
    match known.found {
        true if !inspect::is_live(from, &known.ends, id)? => Err(Error::Misuse(format!(
            "transaction {id} was lost in a crash, and never acknowledged: its record is there, but what it \
             depends on is not; ask for another transaction, a time, or the newest state"
        ))),
        true => Ok(id.epoch),
        false => {
            if let Some(checkpoint) = from.manifest().checkpoint.as_ref()
                && id.epoch <= checkpoint.reaches_back_to()
            {
                return Err(too_early(checkpoint.reaches_back_to(), Some(checkpoint.taken_at_us)));
            }
            Err(Error::Misuse(format!(
                "the log has no transaction {id}: it is another database's, or it was never acknowledged \
                 and lost in a crash"
            )))
        }
    }
}

fn days_of(year: u64) -> u64 {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    if leap { 366 } else { 365 }
}

fn days_of_months(year: u64) -> [u64; 12] {
    let february = days_of(year) - 337;
    [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
}

/// Microseconds since 1970 at a date and time of day, UTC.
fn parse_time(text: &str) -> Option<u64> {
    let text = text.strip_suffix(['Z', 'z']).unwrap_or(text);
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let number = |text: &str| -> Option<u64> {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| text.parse().ok())?
    };
    let mut date = date.split('-').map(number);
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (whole, part) = time.split_once('.').unwrap_or((time, ""));
    let mut time = whole.split(':').map(number);
    let (hour, minute) = (time.next()??, time.next()??);
    let second = time.next().unwrap_or(Some(0))?;
    let months = (1970..10_000).contains(&year).then(|| days_of_months(year))?;
    let days_in_month = *months.get((month as usize).checked_sub(1)?)?;
    let sound = (1..=days_in_month).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60
        && date.next().is_none()
        && time.next().is_none()
        && part.len() <= 6;
    if !sound {
        return None;
    }
    let micros = if part.is_empty() { 0 } else { number(&format!("{part:0<6}"))? };
    let days = (1970..year).map(days_of).sum::<u64>()
        + months[..month as usize - 1].iter().sum::<u64>()
        + day
        - 1;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000 + micros)
}

/// A time for people: microseconds since 1970 as a date and a time of day, UTC.
pub fn time(us: u64) -> String {
    let (days, rest) = (us / 86_400_000_000, us % 86_400_000_000);
    let (mut year, mut left) = (1970, days);
    while left >= days_of(year) {
        left -= days_of(year);
        year += 1;
    }
    let months = days_of_months(year);
    let mut month = 0;
    while left >= months[month] {
        left -= months[month];
        month += 1;
    }
    let seconds = rest / 1_000_000;
    format!(
        "{year:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z",
        month + 1,
        left + 1,
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        rest % 1_000_000
    )
}

impl std::fmt::Display for RestoreReport {
    /// What was taken and what was lost, in sentences.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.cut_epoch {
            None => write!(f, "the newest state: all that the log holds")?,
            Some(epoch) => write!(f, "everything up to epoch {epoch}")?,
        }
        if let Some(began) = self.last_epoch_us {
            write!(f, "; its last epoch with a known time began at {}", time(began))?;
        }
        if let Some(began) = self.next_epoch_us {
            write!(f, "; the first one left out began at {}", time(began))?;
        }
        writeln!(f)?;
        writeln!(f, "{} rows; {} transactions replayed", self.rows, self.transactions)?;
        if !self.losses.is_empty() {
            writeln!(f, "SALVAGED: this is not all that the database held.")?;
            writeln!(
                f,
                "{} records were whole but depend on what was lost, or never were acknowledged; they are left \
                 out",
                self.dead
            )?;
        }
        for loss in &self.losses {
            match loss {
                Loss::File(message) => writeln!(f, "lost: {message}")?,
                Loss::Stream { incarnation, stream, valid_to, durable_to, message } => writeln!(
                    f,
                    "lost: incarnation {incarnation}, log stream {stream}, from Lsn {valid_to} to at least Lsn \
                     {}: {message}",
                    durable_to.max(valid_to)
                )?,
                Loss::Incarnation(number) => writeln!(
                    f,
                    "lost: all of incarnation {number}, which built on what is lost before it"
                )?,
            }
        }
        Ok(())
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
    use super::{Until, parse_time, time};

    #[test]
    fn times_are_dates() {
        assert_eq!(time(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(time(951_782_400_000_001), "2000-02-29T00:00:00.000001Z");
        assert_eq!(time(1_798_761_599_999_999), "2026-12-31T23:59:59.999999Z");
        for us in [0, 951_782_400_000_001, 1_798_761_599_999_999, 1_700_000_000_123_456] {
            assert_eq!(parse_time(&time(us)), Some(us));
        }
        assert_eq!(parse_time("1970-01-02 00:01"), Some(86_460_000_000));
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
