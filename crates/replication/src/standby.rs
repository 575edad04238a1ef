//! A standby: a copy of the database on another machine, which reads.
//!
//! A standby reads the lanes into files of its own ([`Mirror`]), and replays them from one cut mark
//! of the primary to the next ([`Follower`]). Between two rounds its tables are exactly the
//! primary's as of an epoch, and every record in the tables is stored by the log service: **a
//! standby never shows what can be lost**.
//!
//! A standby takes checkpoints by the settings of its builder
//! ([`Builder::max_recovery`](hyades::Builder::max_recovery)), and begins with the newest when it
//! starts again.
//!
//! Marks tell how far the lanes are to be read: a standby reads when a mark comes, and once a
//! second otherwise. A mark that is lost does no harm: the next mark leads further.
//!
//! An incarnation ends where the lanes say, once each has the seal of a later one. The standby
//! records the ends, replays the rest, and goes on with the next incarnation once that has begun.
//! Files that end elsewhere, such as those of a former primary, are filled from the lanes, or cut;
//! if they hold more than the lanes *as stored*, the log service has lost something, and the
//! standby stops.

mod frames;
mod hearing;
mod places;
mod takeover;

use self::frames::{EarlierFrames, MirrorFrames, append};
use self::places::FilePlaces;
pub(crate) use self::places::ReadFrom;
use crate::begin::{self, Begin};
use crate::lane_place::{LanePlace, seen_before};
use crate::lane_tail::LaneTail;
use crate::service::LogService;
use crate::standby_checkpoint::StandbyCheckpoints;
pub use crate::standby_error::StandbyError;
use crate::verify::ComparedState;
use hyades::{Builder, CheckpointStats, CutMark, Database, FollowedLog, Follower};
use hyades_platform::clock;
use hyades_platform::sync::Unpoisoned;
use hyades_wal::{
    BaseFiles, BeginAt, Dimension, Incarnation, Lsn, Mirror, RemoteEnded, StreamStart,
};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The files are synced so often while there is something to sync.
const SYNC_EVERY_NS: u64 = 100_000_000;
/// The lanes are read so often while no mark comes.
const LOOK_EVERY_NS: u64 = 1_000_000_000;
/// How soon the lanes are read again that a mark is ahead of.
const AGAIN: Duration = Duration::from_millis(1);
/// How often the log service is asked for an incarnation that has not begun.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// Where a standby is, and what it follows.
#[derive(Clone, Debug)]
pub struct StandbySettings {
    /// The name of the standby's node.
    pub node: String,
    /// The directories of its files, empty or those of the same node.
    pub dirs: Vec<PathBuf>,
    /// How long to wait for a primary that has not begun.
    pub patience: Duration,
}

/// A standby. [`Standby::step`] does its work.
pub struct Standby {
    /// The first field: its thread ends before the directories are given back.
    checkpoints: StandbyCheckpoints,
    service: Arc<dyn LogService>,
    database: [u8; 16],
    /// The incarnation that is followed.
    incarnation: Incarnation,
    frames: MirrorFrames,
    follower: Follower,
    tails: Vec<LaneTail>,
    /// By lane, the places that the files reach.
    places: Vec<FilePlaces>,
    /// Whether the last round of the incarnation has ended.
    has_ended: bool,
    marks: Receiver<Vec<u8>>,
    /// The newest mark that was received, and not replayed; the mark of a verification is replayed
    /// before later marks.
    mark: Option<CutMark>,
    /// The verification of `mark`; 0 for none.
    verification: u64,
    /// A state that a verification compares.
    compared: Option<ComparedState>,
    /// The mark of the last round.
    replayed: Option<CutMark>,
    synced_ns: u64,
    looked_ns: u64,
}

impl fmt::Debug for Standby {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Standby")
            .field("incarnation", &self.incarnation.number)
            .field("served", &self.follower.served())
            .finish_non_exhaustive()
    }
}

/// Waits for the beginning of the first incarnation of the log.
fn wait_for_begin(service: &dyn LogService, patience: Duration) -> Result<Begin, StandbyError> {
    let until = clock::monotonic_ns() + patience.as_nanos() as u64;
    loop {
        match begin::next(service, 0) {
            Ok(Some(begin)) => return Ok(begin),
            Ok(None) | Err(RemoteEnded::Silent) => {}
            Err(error) => return Err(error.into()),
        }
        if clock::monotonic_ns() >= until {
            return Err(StandbyError::NoPrimary);
        }
        clock::sleep_until(clock::monotonic_ns() + ASK_EVERY.as_nanos() as u64);
    }
}

/// The number of lanes of the database, as the log service's keys say.
///
/// # Errors
/// No primary has begun in time; or the service holds something else.
pub fn lanes(service: &dyn LogService, patience: Duration) -> Result<usize, StandbyError> {
    Ok(wait_for_begin(service, patience)?.incarnation.dims.len())
}

/// An incarnation without streams, before the first.
fn nothing() -> Incarnation {
    Incarnation {
        number: 0,
        data_only: false,
        protocol: String::new(),
        settings: BTreeMap::new(),
        clean: true,
        dims: Vec::new(),
    }
}

/// The catalogue of the files. New files begin with the first incarnation that has begun.
fn first_catalogue(mirror: &mut Mirror, first: Option<Begin>) -> Result<Vec<u8>, StandbyError> {
    let Some(first) = first.filter(|_| mirror.manifest().incarnations.is_empty()) else {
        return Ok(mirror.manifest().catalogue.clone());
    };
    if first.needs_base {
        return Err(StandbyError::NeedsBase);
    }
    mirror.begin(&begin_at(&first.incarnation), &[], first.settings(), first.epoch_floor)?;
    Ok(first.catalogue().expect("it was checked when it was read"))
}

/// By stream, where an incarnation ends by the manifest.
fn recorded_ends(incarnation: &Incarnation) -> Vec<Lsn> {
    incarnation.dims.iter().map(|dim| dim.end.unwrap_or(dim.start)).collect()
}

fn begin_at(incarnation: &Incarnation) -> BeginAt {
    let start = |dim: &Dimension| StreamStart { stream: dim.stream, start: dim.start };
    BeginAt { number: incarnation.number, streams: incarnation.dims.iter().map(start).collect() }
}

impl Standby {
    /// Joins a database as a standby. `builder` declares the tables and procedures of the database.
    /// The files go on where they are, and the tables begin with their checkpoint, if there is one.
    ///
    /// # Errors
    /// No primary has begun; the files are of another node or database; the declared tables or
    /// procedures are not those of the primary.
    pub fn join(
        service: Arc<dyn LogService>,
        settings: &StandbySettings,
        builder: Builder,
    ) -> Result<Standby, StandbyError> {
        // Marks from here on: none is missed that a record of the first read needs.
        let marks = service.listen();
        let begin = wait_for_begin(&*service, settings.patience)?;
        let database = begin.database().expect("it was checked when it was read");
        let options = builder.mirror_options(settings.dirs.clone(), begin.incarnation.dims.len());
        let mirror = Mirror::open(options, &settings.node, database)?;
        let from = ReadFrom::of_files(&*service, &mirror, Some(begin), None)?;
        Standby::over((service, marks), mirror, from, builder)
    }

    /// A standby over files.
    pub(crate) fn over(
        (service, marks): (Arc<dyn LogService>, Receiver<Vec<u8>>),
        mut mirror: Mirror,
        ReadFrom { first, places }: ReadFrom,
        builder: Builder,
    ) -> Result<Standby, StandbyError> {
        let catalogue = first_catalogue(&mut mirror, first)?;
        let manifest = mirror.manifest();
        let database = manifest.uuid();
        // The incarnation with which the tables begin: of the checkpoint, unless all its frames
        // were truncated.
        let of_checkpoint = manifest.checkpoint.as_ref().map(|image| image.incarnation);
        let known = manifest.incarnations.iter();
        let from = known.clone().find(|known| Some(known.number) >= of_checkpoint);
        let mut incarnation = from.cloned().unwrap_or_else(nothing);
        let later: Vec<Incarnation> =
            known.filter(|later| later.number > incarnation.number).cloned().collect();
        let base = of_checkpoint.map(|_| mirror.recovering());
        let mut follower = builder.follow(&FollowedLog {
            catalogue: &catalogue,
            incarnation: &incarnation,
            base,
        })?;
        for later in later {
            let mut readers: Vec<_> = mirror.earlier_readers();
            readers.retain(|reader| reader.incarnation == incarnation.number);
            let readers = Mutex::new(readers.into_iter().map(Some).collect());
            follower.last_round(&recorded_ends(&incarnation), &EarlierFrames { readers })?;
            follower.next_incarnation(&later, &catalogue)?;
            incarnation = later;
        }
        let received = mirror.received();
        let tail = |(lane, dim): (usize, &Dimension)| {
            let from = places.get(lane).filter(|from| from.incarnation == incarnation.number);
            LaneTail::new((lane, dim.clone()), (database, incarnation.number), from)
        };
        let tails = incarnation.dims.iter().enumerate().map(tail).collect();
        let places = places.into_iter().map(FilePlaces::new).collect();
        let now = clock::monotonic_ns();
        let is_ended = mirror.has_ended() || incarnation.dims.is_empty();
        let mut standby = Standby {
            service,
            database,
            incarnation,
            frames: MirrorFrames(Mutex::new(mirror)),
            checkpoints: StandbyCheckpoints::new(&follower),
            follower,
            tails,
            places,
            has_ended: false,
            marks,
            mark: None,
            verification: 0,
            compared: None,
            replayed: None,
            synced_ns: now,
            looked_ns: now,
        };
        if is_ended {
            standby.end_incarnation(received)?;
        }
        Ok(standby)
    }

    /// The standby as a database that is only read.
    pub fn database(&self) -> &Database {
        self.follower.database()
    }

    /// The database's uuid.
    pub fn uuid(&self) -> [u8; 16] {
        self.database
    }

    /// The number of the followed incarnation; 0 before the first.
    pub fn incarnation(&self) -> u32 {
        self.incarnation.number
    }

    /// The last epoch of the served state; `None` before the first round.
    pub fn served(&self) -> Option<u64> {
        self.follower.served()
    }

    /// All epochs up to here count as used, as far as this member knows.
    pub(crate) fn epoch(&self) -> u64 {
        let floor = self.frames.0.lock().unpoisoned().manifest().epoch_floor;
        self.served().unwrap_or(0).max(floor)
    }

    /// The state that a verification compares, once it is there.
    pub(crate) fn take_compared(&mut self) -> Option<ComparedState> {
        self.compared.take()
    }

    /// The newest mark that was received and not replayed: how far the primary is ahead.
    pub fn ahead(&self) -> Option<&CutMark> {
        self.mark.as_ref()
    }

    /// The age of the served state in microseconds, by the wall clocks of the primary and here;
    /// `None` before the first mark.
    pub fn lag_us(&self) -> Option<u64> {
        self.replayed.as_ref().map(|mark| clock::wall_us().saturating_sub(mark.wall_us))
    }

    /// The bytes of the log that are known of and not replayed; `None` before the first mark was
    /// replayed.
    pub fn behind_bytes(&self) -> Option<u64> {
        let replayed = self.replayed.as_ref()?;
        let mut known = self.received();
        if let Some(mark) = &self.mark {
            known.iter_mut().zip(&mark.to).for_each(|(known, to)| *known = (*known).max(*to));
        }
        let behind = known.iter().zip(&replayed.to).map(|(known, at)| known.saturating_sub(*at));
        Some(behind.sum())
    }

    /// The standby's checkpoints so far, and how long a replay would take now.
    pub fn checkpoints(&self) -> CheckpointStats {
        self.checkpoints.stats()
    }

    /// Abandons the checkpoint that is being written, if any, and waits for its end.
    pub fn abandon_checkpoint(&mut self) {
        self.checkpoints.abandon();
    }

    /// By stream, the position that the standby's files will have after any crash.
    pub fn proven(&self) -> Vec<Lsn> {
        self.frames.0.lock().unpoisoned().proven()
    }

    /// By stream, the end of the frames in synced files.
    pub fn synced(&self) -> Vec<Lsn> {
        self.frames.0.lock().unpoisoned().synced()
    }

    /// By stream, the end of the frames that the standby has.
    pub fn received(&self) -> Vec<Lsn> {
        self.frames.0.lock().unpoisoned().received()
    }

    /// By lane, the place up to which the files have all after any crash; empty before the first
    /// incarnation.
    pub(crate) fn places(&mut self) -> Vec<LanePlace> {
        let proven = self.proven();
        self.places.iter_mut().zip(proven).map(|(place, proven)| place.proven(proven)).collect()
    }

    /// The files as a base for another member; `None` before the first incarnation.
    pub(crate) fn base_files(&mut self) -> Result<Option<BaseFiles>, hyades_wal::Error> {
        let places = self.places();
        let streams: Vec<_> = self.incarnation.dims.iter().map(|dim| dim.stream).collect();
        let mirror = self.frames.0.lock().unpoisoned();
        mirror.base_files(seen_before(&places, &streams))
    }

    /// Waits for a mark at most as long, reads the lanes up to the mark, and replays. Returns the
    /// epoch that is served now, if it is a new one.
    ///
    /// # Errors
    /// The standby cannot follow.
    pub fn step(&mut self, wait: Duration) -> Result<Option<u64>, StandbyError> {
        let ahead = self.mark.is_some();
        if let Some(mark) = self.wait_for_mark(if ahead { AGAIN.min(wait) } else { wait }) {
            self.note_mark(&mark);
            while let Ok(mark) = self.marks.try_recv() {
                self.note_mark(&mark);
            }
        }
        let now = clock::monotonic_ns();
        let is_late = now.saturating_sub(self.looked_ns) >= LOOK_EVERY_NS;
        let mut served = None;
        if !self.has_ended && (self.mark.is_some() || is_late) {
            self.looked_ns = now;
            self.read_lanes(is_late)?;
            served = self.replay()?;
            let ends: Option<Vec<Lsn>> = self.tails.iter().map(LaneTail::ended_at).collect();
            if let Some(ends) = ends {
                self.end_incarnation(ends)?;
                served = self.served();
            }
        }
        if self.has_ended && (ahead || is_late || served.is_some()) {
            self.looked_ns = now;
            self.look_for_next()?;
        }
        if now.saturating_sub(self.synced_ns) >= SYNC_EVERY_NS {
            self.sync()?;
        }
        let mut mirror = self.frames.0.lock().unpoisoned();
        self.checkpoints.step(&self.follower, &mut mirror, self.replayed.as_ref())?;
        drop(mirror);
        Ok(served)
    }

    /// Writes and syncs what was read.
    ///
    /// # Errors
    /// A file could not be written.
    pub fn sync(&mut self) -> Result<(), StandbyError> {
        if !self.has_ended {
            self.frames.0.lock().unpoisoned().sync()?;
            // Those reached are let go.
            self.places();
        }
        self.synced_ns = clock::monotonic_ns();
        Ok(())
    }

    /// Reads the lanes that the mark is ahead of, or all, as far as the incarnation goes.
    fn read_lanes(&mut self, all: bool) -> Result<(), StandbyError> {
        let is_later =
            self.mark.as_ref().is_some_and(|mark| mark.incarnation > self.incarnation.number);
        for (lane, tail) in self.tails.iter_mut().enumerate() {
            let to = self.mark.as_ref().map_or(0, |mark| mark.to[lane]);
            if tail.ended_at().is_some() || !all && !is_later && tail.end() >= to {
                continue;
            }
            loop {
                let found = tail.read(&*self.service)?;
                let nothing = found.is_empty();
                for found in found {
                    append(&self.frames, &mut self.places, lane, found)?;
                }
                if nothing || tail.ended_at().is_some() || !is_later && tail.end() >= to {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Replays up to the mark, once all frames up to there are here.
    fn replay(&mut self) -> Result<Option<u64>, StandbyError> {
        let number = self.incarnation.number;
        let Some(mark) = self.mark.as_ref().filter(|mark| mark.incarnation == number) else {
            return Ok(None);
        };
        let received = self.frames.0.lock().unpoisoned().received();
        if received.iter().zip(&mark.to).any(|(received, to)| received < to) {
            return Ok(None);
        }
        let round = self.follower.round(mark, &self.frames);
        let (mark, verification) = (self.mark.take(), std::mem::take(&mut self.verification));
        match round {
            // A mark of before what the first image shows: a later mark follows.
            Err(hyades::Error::Misuse(_)) if self.follower.served().is_none() => Ok(None),
            Err(error) => Err(error.into()),
            Ok(_) => {
                if let Some(mark) = mark.as_ref().filter(|_| verification > 0) {
                    let snapshot = self.database().open_snapshot();
                    let CutMark { incarnation, epoch, .. } = *mark;
                    self.compared =
                        Some(ComparedState { verification, incarnation, epoch, snapshot });
                }
                self.replayed = mark;
                Ok(self.follower.served())
            }
        }
    }

    /// Ends the incarnation, by stream, at `ends`: records the ends in the files, and replays the
    /// rest.
    fn end_incarnation(&mut self, ends: Vec<Lsn>) -> Result<(), StandbyError> {
        // An image of the incarnation that is not adopted yet comes too late.
        self.checkpoints.abandon();
        let mut mirror = self.frames.0.lock().unpoisoned();
        // What was received was stored: the files take from lanes alone, and what a former primary
        // proves was acknowledged.
        for (stream, (&stored, &end)) in mirror.received().iter().zip(&ends).enumerate() {
            if stored > end {
                return Err(StandbyError::Lost { stream, end, stored });
            }
        }
        if !self.incarnation.dims.is_empty() {
            mirror.end(&ends)?;
        }
        drop(mirror);
        self.follower.last_round(&ends, &self.frames)?;
        (self.has_ended, self.mark, self.replayed) = (true, None, None);
        self.verification = 0;
        Ok(())
    }

    /// Goes on with the next incarnation, if one has begun.
    fn look_for_next(&mut self) -> Result<(), StandbyError> {
        let Some(next) = begin::next(&*self.service, self.incarnation.number)? else {
            return Ok(());
        };
        let number = next.incarnation.number;
        let mut mirror = self.frames.0.lock().unpoisoned();
        let ends = mirror.received();
        let starts: Vec<Lsn> = next.incarnation.dims.iter().map(|dim| dim.start).collect();
        if !self.incarnation.dims.is_empty() && starts != ends {
            return Err(RemoteEnded::Different(format!(
                "incarnation {number} begins at {starts:?} by stream, and the incarnation before \
                 ends at {ends:?} by the lanes"
            ))
            .into());
        }
        let catalogue = next.catalogue().expect("it was checked when it was read");
        self.follower.next_incarnation(&next.incarnation, &catalogue)?;
        mirror.begin(&begin_at(&next.incarnation), &ends, next.settings(), next.epoch_floor)?;
        drop(mirror);
        let places = next.places();
        let lanes = next.incarnation.dims.iter().zip(&places).enumerate();
        let tail = |(lane, (dim, from)): (usize, (&Dimension, &LanePlace))| {
            LaneTail::new((lane, dim.clone()), (self.database, number), Some(from))
        };
        self.tails = lanes.map(tail).collect();
        self.places = places.into_iter().map(FilePlaces::new).collect();
        (self.incarnation, self.has_ended) = (next.incarnation, false);
        // Read at once.
        self.looked_ns = 0;
        Ok(())
    }
}
