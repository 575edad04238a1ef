//! Rounds: a follower replays the log of another process from one cut mark to the next.
//!
//! A round reads each stream from the `from` of the last mark to the `to` of the new mark, skips
//! the epochs of the last mark and leaves out the epochs after the new mark. Between rounds the
//! tables hold exactly the transactions of all epochs up to the mark. The first round begins at a
//! checkpoint, or at the beginning of the log; it ends at a mark after everything that the
//! checkpoint may show. A mark may skip others: rounds grow, and the follower catches up.
//!
//! At the end of an incarnation, known positions of all streams, the last round replays the rest:
//! what depends on positions behind the end is dead, as at a recovery.

use super::host::Following;
use super::image::{AnyImage, FollowerImage, ServedImage};
use super::image_schedule::ImageSchedule;
use super::promotion::{Declarations, PromoteRounds, Promotion};
use crate::checkpoint::CheckpointSettings;
use crate::config::Builder;
use crate::database::Database;
use crate::engine::closed_epochs::CutMark;
use crate::error::Error;
use crate::recovery::frame_source::FrameSource;
use crate::recovery::report::{IncarnationReport, RecoveryReport};
use crate::recovery::slice::{self, Slice};
use crate::recovery::standing_threads::StandingThreads;
use crate::storage::Stamp;
use hyades_platform::epoch::EpochNumber;
use hyades_platform::{clock, event};
use hyades_wal::{Checkpoint, Covered, Incarnation, Lsn};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Rounds of fewer bytes run on the caller's thread: other threads would take longer to begin.
const SMALL_BYTES: u64 = 256 << 10;

/// Minimum amount of log replayed on all threads, in bytes, for a measurement of replay speed.
const MEASURABLE_BYTES: u64 = 8 << 20;

/// A round of a [`Follower`].
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct RoundReport {
    /// The last epoch of the served state.
    pub epoch: u64,
    /// Bytes of log in the round, with what the last round has read already.
    pub bytes: u64,
    /// Replayed transactions.
    pub records: u64,
    /// Whether the state before was served meanwhile, at the cost of keeping it.
    pub beside_readers: bool,
    /// The duration.
    pub seconds: f64,
}

/// A database that follows the log of another process, see
/// [`Builder::follow`](crate::Builder::follow).
pub struct Follower {
    rounds: Box<dyn AnyRounds>,
    database: Database,
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follower").field("served", &self.rounds.served()).finish()
    }
}

impl Follower {
    pub(crate) fn new(rounds: Box<dyn AnyRounds>, database: Database) -> Follower {
        Follower { rounds, database }
    }

    /// The follower as a database that is only read: each transaction, and each snapshot, reads the
    /// state as of the last round that has ended.
    ///
    /// What writes fails with [`Abort::ReadOnly`](crate::Abort::ReadOnly), and checkpoints and
    /// backups with [`Error::Misuse`].
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// The last epoch of the served state; `None` before the first round, unless the follower began
    /// with an exact checkpoint.
    pub fn served(&self) -> Option<u64> {
        self.rounds.served().map(|epoch| epoch.0)
    }

    /// Replays the log up to a mark. `source` has the frames of all streams up to `mark.to`. The
    /// mark may be any later mark of the same incarnation.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the mark does not follow the last one, and the follower goes on.
    /// [`Error::Recovery`] or [`Error::Log`] if the frames cannot be replayed: the follower is of
    /// no use any more.
    pub fn round(
        &mut self,
        mark: &CutMark,
        source: &dyn FrameSource,
    ) -> Result<RoundReport, Error> {
        self.rounds.round(mark, source)
    }

    /// Replays the rest of an incarnation that has ended, by stream, at `ends`. Records that depend
    /// on something behind the ends are dead.
    ///
    /// # Errors
    /// As of [`Follower::round`].
    pub fn last_round(
        &mut self,
        ends: &[Lsn],
        source: &dyn FrameSource,
    ) -> Result<RoundReport, Error> {
        self.rounds.last_round(ends, source)
    }

    /// Begins a checkpoint of the served state, which may be written by another thread while rounds
    /// go on. The rows that rounds overwrite meanwhile are saved, in up to `buffer_bytes`, above
    /// which the next round waits.
    ///
    /// # Errors
    /// [`Error::Misuse`] if nothing is served, after a [last round](Follower::last_round), or while
    /// another image is being written.
    pub fn begin_image(&self, buffer_bytes: u64) -> Result<FollowerImage, Error> {
        self.rounds.begin_image(buffer_bytes).map(FollowerImage)
    }

    /// Decides when images are due, by the settings of checkpoints of the follower's builder.
    pub fn image_schedule(&self) -> ImageSchedule {
        ImageSchedule::new(self.rounds.checkpoints().clone())
    }

    /// The measured speed of replay on all threads, in bytes of log per second; `None` until enough
    /// was replayed in large rounds.
    pub fn replay_speed(&self) -> Option<u64> {
        self.rounds.replay_speed()
    }

    /// Goes on with the next incarnation, after the [last round](Follower::last_round).
    /// `catalogue`: as of the next incarnation.
    ///
    /// # Errors
    /// [`Error::Misuse`] before the last round, or for an incarnation that is not later;
    /// [`Error::Mismatch`] for records that cannot be followed, or that name tables or procedures
    /// by other numbers than the records so far: follow anew. Nothing has changed then.
    pub fn next_incarnation(&mut self, next: &Incarnation, catalogue: &[u8]) -> Result<(), Error> {
        self.rounds.next_incarnation(next, catalogue)
    }

    /// Makes the follower's tables those of a primary, after the
    /// [last round](Follower::last_round): the log goes on with the next incarnation, and nothing
    /// is read again. `builder` declares the tables and procedures of the follower's builder, and
    /// its settings are those of the new database.
    ///
    /// The readers of the follower's [database](Follower::database) are ended: transactions and
    /// snapshots fail with [`Abort::SnapshotEnded`](crate::Abort::SnapshotEnded) at the next
    /// operation, at the latest at their end, and new ones with [`Error::Misuse`]. None of them
    /// sees a change of the new database.
    ///
    /// # Errors
    /// [`Error::Misuse`] before the last round, while an image is being written, or if the builder
    /// declares something else; [`Error::Mismatch`] or [`Error::Log`] if the files cannot go on.
    /// The follower is gone then, and the files can be opened again.
    #[doc(hidden)]
    pub fn promote(self, builder: Builder, to: Promotion) -> Result<Database, Error> {
        self.rounds.promote(builder, to)
    }
}

/// The rounds of some engine.
pub(crate) trait AnyRounds: Send {
    fn served(&self) -> Option<EpochNumber>;
    fn round(&mut self, mark: &CutMark, source: &dyn FrameSource) -> Result<RoundReport, Error>;
    fn last_round(&mut self, ends: &[Lsn], source: &dyn FrameSource) -> Result<RoundReport, Error>;
    fn next_incarnation(&mut self, next: &Incarnation, catalogue: &[u8]) -> Result<(), Error>;
    fn begin_image(&self, buffer_bytes: u64) -> Result<Box<dyn AnyImage>, Error>;
    fn checkpoints(&self) -> &CheckpointSettings;
    fn replay_speed(&self) -> Option<u64>;
    fn promote(self: Box<Self>, builder: Builder, to: Promotion) -> Result<Database, Error>;
}

/// The state with which a follower begins.
pub(crate) struct FirstState {
    /// The tables hold the records of all epochs up to and including this epoch.
    pub cut: Option<EpochNumber>,
    /// The first round ends at this epoch or later: the tables may show transactions up to there.
    pub shown: EpochNumber,
    /// By stream, the first frame to read.
    pub from: Vec<Lsn>,
}

impl FirstState {
    /// The empty state before the first record of an incarnation.
    pub fn empty(incarnation: &Incarnation) -> FirstState {
        let from = incarnation.dims.iter().map(|dim| dim.start).collect();
        FirstState { cut: None, shown: EpochNumber::default(), from }
    }

    /// The state of a checkpoint. The checkpoint is of the incarnation; or the checkpoint is of an
    /// incarnation before, and covers all frames before the incarnation.
    ///
    /// # Errors
    /// The checkpoint is of another incarnation.
    pub fn of(checkpoint: &Checkpoint, incarnation: &Incarnation) -> Result<FirstState, Error> {
        let streams = checkpoint.streams.iter().map(|covered| covered.stream);
        let from = checkpoint.streams.iter().map(|covered| (covered.stream, covered.from));
        if checkpoint.incarnation < incarnation.number
            && from.eq(incarnation.dims.iter().map(|dim| (dim.stream, dim.start)))
        {
            // The image has all that was logged before, so it is whole as of each later epoch, too.
            let shown = EpochNumber(checkpoint.reaches_back_to());
            let whole = FirstState { cut: Some(shown), shown, ..FirstState::empty(incarnation) };
            return Ok(whole);
        }
        if checkpoint.incarnation != incarnation.number
            || !streams.eq(incarnation.dims.iter().map(|dim| dim.stream))
        {
            return Err(Error::Mismatch(format!(
                "checkpoint {} is of incarnation {} of the log, and incarnation {} is to be \
                 followed: begin with incarnation {}",
                checkpoint.number,
                checkpoint.incarnation,
                incarnation.number,
                checkpoint.incarnation
            )));
        }
        Ok(FirstState {
            cut: Some(EpochNumber(checkpoint.cut)),
            shown: EpochNumber(checkpoint.reaches_back_to()),
            from: checkpoint.streams.iter().map(|covered| covered.from).collect(),
        })
    }

    /// The epoch as of which the state is whole, if there is one.
    pub fn served(&self) -> Option<EpochNumber> {
        self.cut.filter(|cut| *cut == self.shown)
    }
}

/// The rounds over tables with this metadata of rows.
pub(crate) struct Rounds<S: Stamp> {
    pub following: Arc<Following<S>>,
    /// The incarnation being followed.
    pub incarnation: Incarnation,
    /// The tables: what they hold, and where the next round begins.
    pub at: FirstState,
    pub threads: usize,
    /// Whether the incarnation's last round has ended.
    pub has_ended: bool,
    /// Why the tables hold no state any more.
    pub failed: Option<String>,
    /// The settings of the follower's builder for checkpoints.
    pub checkpoints: CheckpointSettings,
    /// The declarations of the follower's builder.
    pub declared: Declarations,
    /// How the follower becomes primary.
    pub promote: PromoteRounds<S>,
    /// What has been loaded and replayed, but for the counts of records.
    pub report: RecoveryReport,
    pub speed: ReplaySpeed,
}

/// Bytes replayed by large rounds that kept nothing, and the seconds spent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReplaySpeed {
    bytes: u64,
    seconds: f64,
}

impl ReplaySpeed {
    /// Bytes per second, if enough was replayed.
    pub fn measured(self) -> Option<u64> {
        let ReplaySpeed { bytes, seconds } = self;
        (bytes >= MEASURABLE_BYTES && seconds > 0.0).then_some((bytes as f64 / seconds) as u64)
    }
}

impl<S: Stamp> Rounds<S> {
    /// Checks that a round may end at these positions.
    fn check(&self, what: &str, to: &[Lsn]) -> Result<(), Error> {
        let number = self.incarnation.number;
        if let Some(why) = &self.failed {
            return Err(Error::Misuse(format!(
                "the follower has stopped: {why}; follow anew, from a checkpoint"
            )));
        }
        if self.has_ended {
            return Err(Error::Misuse(format!(
                "incarnation {number} of the log has ended, and {what} follows: begin the next \
                 incarnation first"
            )));
        }
        let is_behind = |(to, from): (&Lsn, &Lsn)| to >= from;
        if to.len() != self.at.from.len() || !to.iter().zip(&self.at.from).all(is_behind) {
            return Err(Error::Misuse(format!(
                "{what} of incarnation {number} is at {to:?} by stream, before {:?}, where the \
                 round begins",
                self.at.from
            )));
        }
        Ok(())
    }

    fn check_mark(&self, mark: &CutMark) -> Result<(), Error> {
        self.check("the mark", &mark.to)?;
        self.check("the mark", &mark.from)?;
        let (last, epoch) = (self.at.cut.unwrap_or_default().max(self.at.shown), mark.epoch);
        if mark.incarnation != self.incarnation.number {
            return Err(Error::Misuse(format!(
                "the mark is of incarnation {} of the log, and incarnation {} is followed",
                mark.incarnation, self.incarnation.number
            )));
        }
        // At the end of a fuzzy image the tables may hold less than the image shows.
        let is_first = self.at.cut != Some(self.at.shown);
        if epoch < last.0 || epoch == last.0 && !is_first {
            return Err(Error::Misuse(format!(
                "the mark of epoch {epoch} is not after epoch {last}, which the tables show"
            )));
        }
        Ok(())
    }

    /// Replays up to `to`. `served` returns the epoch of the state afterwards.
    fn run(
        &mut self,
        (until, is_whole): (EpochNumber, bool),
        to: &[Lsn],
        source: &dyn FrameSource,
        served: impl FnOnce(EpochNumber) -> EpochNumber,
    ) -> Result<RoundReport, Error> {
        let began_ns = clock::monotonic_ns();
        let Following { replay, serving, .. } = &*self.following;
        let (snapshots, epoch) = (&replay.engine.snapshots, &*replay.engine.epoch);
        let slice = Slice { cut: self.at.cut, until, from: &self.at.from, to, is_whole };
        let bytes = slice.bytes();
        let threads = if bytes < SMALL_BYTES { 1 } else { self.threads };
        if threads > 1 {
            replay.standing.get_or_init(|| StandingThreads::new(threads));
        }
        let records = || replay.counts.records.load(Ordering::Relaxed);
        let before = records();
        replay.engine.cut.wait_for_room(|| false);
        let beside_readers = serving.begin_round(snapshots);
        let keeps = beside_readers || replay.engine.cut.is_active();
        replay.serves.store(keeps, Ordering::Relaxed);
        // Before the first incarnation there are no streams.
        let replayed = match self.incarnation.dims.is_empty() {
            true => Ok(()),
            false => slice::replay(replay, &self.incarnation, source, &slice, threads),
        };
        if let Err(error) = replayed {
            self.failed = Some(error.to_string());
            serving.stop(error.to_string());
            return Err(error);
        }
        let highest = EpochNumber(replay.counts.max_epoch.load(Ordering::Relaxed));
        let served = served(highest);
        serving.end_round((snapshots, epoch), Some(served));
        let seconds = (clock::monotonic_ns() - began_ns) as f64 / 1e9;
        let records = records() - before;
        self.report.replay_seconds += seconds;
        if bytes >= SMALL_BYTES && !keeps {
            self.speed.bytes += bytes;
            self.speed.seconds += seconds;
        }
        event!(DEBUG, "round replayed", epoch = served.0, records = records, bytes = bytes);
        Ok(RoundReport { epoch: served.0, bytes, records, beside_readers, seconds })
    }
}

impl<S: Stamp> Rounds<S> {
    /// Adds the incarnation that has ended to the report.
    fn report_end(&mut self) {
        let counts = &self.following.replay.counts;
        let incarnations = &mut self.report.incarnations;
        let before = |count: fn(&IncarnationReport) -> u64| incarnations.iter().map(count).sum();
        let (records, dead, bytes): (u64, u64, u64) =
            (before(|i| i.records), before(|i| i.dead), before(|i| i.bytes));
        let seconds: f64 = incarnations.iter().map(|i| i.seconds).sum();
        let ended = IncarnationReport {
            number: self.incarnation.number,
            records: counts.records.load(Ordering::Relaxed) - records,
            dead: counts.dead.load(Ordering::Relaxed) - dead,
            bytes: counts.bytes.load(Ordering::Relaxed) - bytes,
            seconds: self.report.replay_seconds - seconds,
            streams: self.incarnation.dims.len(),
            threads: self.threads,
            ..IncarnationReport::default()
        };
        incarnations.push(ended);
    }
}

impl<S: Stamp> AnyRounds for Rounds<S> {
    fn served(&self) -> Option<EpochNumber> {
        self.following.serving.served()
    }

    fn round(&mut self, mark: &CutMark, source: &dyn FrameSource) -> Result<RoundReport, Error> {
        self.check_mark(mark)?;
        let epoch = EpochNumber(mark.epoch);
        let report = self.run((epoch, true), &mark.to, source, |_| epoch)?;
        self.at = FirstState { cut: Some(epoch), shown: epoch, from: mark.from.clone() };
        Ok(report)
    }

    fn last_round(&mut self, ends: &[Lsn], source: &dyn FrameSource) -> Result<RoundReport, Error> {
        self.check("the end", ends)?;
        let (until, last) = (EpochNumber::ABOVE_ALL, self.at.cut.unwrap_or_default());
        // Epochs of dead records are used up, too.
        let report = self.run((until, false), ends, source, |highest| highest.max(last))?;
        let epoch = EpochNumber(report.epoch);
        self.at = FirstState { cut: Some(epoch), shown: epoch, from: ends.to_vec() };
        self.has_ended = true;
        self.report_end();
        Ok(report)
    }

    fn next_incarnation(&mut self, next: &Incarnation, catalogue: &[u8]) -> Result<(), Error> {
        if !self.has_ended || next.number <= self.incarnation.number {
            return Err(Error::Misuse(format!(
                "incarnation {} of the log cannot follow incarnation {}, whose last round {}",
                next.number,
                self.incarnation.number,
                if self.has_ended { "has ended" } else { "has not ended" }
            )));
        }
        slice::check_followed(next)?;
        self.following.replay.catalogue.check_later(catalogue)?;
        self.at.from = next.dims.iter().map(|dim| dim.start).collect();
        self.incarnation = next.clone();
        self.has_ended = false;
        Ok(())
    }

    fn begin_image(&self, buffer_bytes: u64) -> Result<Box<dyn AnyImage>, Error> {
        self.check("an image", &self.at.from)?;
        let Some(cut) = self.at.served() else {
            return Err(Error::Misuse(
                "the follower has no state to write an image of: its first round has not ended"
                    .to_string(),
            ));
        };
        let dims = self.incarnation.dims.iter().zip(&self.at.from);
        let streams = dims.map(|(dim, &from)| Covered { stream: dim.stream, from }).collect();
        let positions = (self.incarnation.number, streams);
        let following = self.following.clone();
        Ok(Box::new(ServedImage::begin(following, cut, positions, buffer_bytes)?))
    }

    fn checkpoints(&self) -> &CheckpointSettings {
        &self.checkpoints
    }

    fn replay_speed(&self) -> Option<u64> {
        self.speed.measured()
    }

    fn promote(self: Box<Self>, builder: Builder, to: Promotion) -> Result<Database, Error> {
        let promote = self.promote;
        promote(*self, builder, to)
    }
}
