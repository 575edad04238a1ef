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

use crate::begin::{self, Begin};
use crate::lane_tail::{LaneTail, Tailed};
use crate::marks;
use crate::service::LogService;
use crate::standby_checkpoint::StandbyCheckpoints;
use hyades::{
    Builder, CheckpointStats, CutMark, Database, FollowedLog, Follower, FrameChunks, FrameSource,
};
use hyades_platform::sync::Unpoisoned;
use hyades_wal::{BeginAt, Lsn, Mirror, RemoteEnded, StreamStart};
use std::fmt;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The files are synced so often while there is something to sync.
const SYNC_EVERY: Duration = Duration::from_millis(100);
/// The lanes are read so often while no mark comes.
const LOOK_EVERY: Duration = Duration::from_secs(1);
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

/// Why a standby stops.
#[derive(Debug)]
#[non_exhaustive]
pub enum StandbyError {
    /// No primary has begun in time.
    NoPrimary,
    /// The log service holds something else than the log of the database.
    Service(RemoteEnded),
    /// The standby's files.
    Files(hyades_wal::Error),
    /// The records cannot be replayed.
    Replay(hyades::Error),
    /// The files are of an earlier incarnation, and the standby cannot go on over its end.
    Behind {
        /// The incarnation of the files.
        files: u32,
        /// The incarnation of the log.
        newest: u32,
    },
    /// Another process has taken the log over as this incarnation.
    Ended {
        /// The incarnation.
        by: u32,
    },
}

impl fmt::Display for StandbyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StandbyError::NoPrimary => f.write_str("no primary has begun to write the log"),
            StandbyError::Service(ended) => ended.fmt(f),
            StandbyError::Files(error) => write!(f, "the files of the standby: {error}"),
            StandbyError::Replay(error) => write!(f, "the log cannot be followed: {error}"),
            StandbyError::Behind { files, newest } => write!(
                f,
                "the files of the standby are of incarnation {files}, and the log has reached \
                 incarnation {newest}: begin with empty directories"
            ),
            StandbyError::Ended { by } => {
                write!(f, "the log was taken over, as incarnation {by}: open the standby again")
            }
        }
    }
}

impl std::error::Error for StandbyError {}

impl From<RemoteEnded> for StandbyError {
    fn from(ended: RemoteEnded) -> Self {
        StandbyError::Service(ended)
    }
}

impl From<hyades_wal::Error> for StandbyError {
    fn from(error: hyades_wal::Error) -> Self {
        StandbyError::Files(error)
    }
}

impl From<hyades::Error> for StandbyError {
    fn from(error: hyades::Error) -> Self {
        StandbyError::Replay(error)
    }
}

/// The mirror as the source of a round.
#[derive(Debug)]
struct MirrorFrames(Mutex<Mirror>);

impl FrameSource for MirrorFrames {
    fn frames(&self, stream: usize, from: Lsn, to: Lsn) -> Result<FrameChunks, hyades_wal::Error> {
        let mut reader = self.0.lock().unpoisoned().reader(stream, from, to)?;
        Ok(Box::new(std::iter::from_fn(move || reader.next_chunk().transpose())))
    }
}

/// A standby. [`Standby::step`] does its work.
pub struct Standby {
    /// The first field: its thread ends before the directories are given back.
    checkpoints: StandbyCheckpoints,
    service: Arc<dyn LogService>,
    database: [u8; 16],
    begin: Begin,
    frames: MirrorFrames,
    follower: Follower,
    tails: Vec<LaneTail>,
    marks: Receiver<Vec<u8>>,
    /// The newest mark that was received, and not replayed.
    mark: Option<CutMark>,
    /// The mark of the last round.
    replayed: Option<CutMark>,
    synced_at: Instant,
    looked_at: Instant,
}

impl fmt::Debug for Standby {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Standby").field("served", &self.follower.served()).finish_non_exhaustive()
    }
}

/// Waits for the beginning of the newest incarnation.
fn wait_for_begin(service: &dyn LogService, patience: Duration) -> Result<Begin, StandbyError> {
    let began = Instant::now();
    loop {
        if let Some(lease) = begin::newest(service)?
            && let Some(begin) = begin::read(service, lease.incarnation)?
        {
            return Ok(begin);
        }
        if began.elapsed() >= patience {
            return Err(StandbyError::NoPrimary);
        }
        std::thread::sleep(ASK_EVERY);
    }
}

/// The number of lanes of the newest incarnation, as the log service's keys say.
///
/// # Errors
/// No primary has begun in time; or the service holds something else.
pub fn lanes(service: &dyn LogService, patience: Duration) -> Result<usize, StandbyError> {
    Ok(wait_for_begin(service, patience)?.incarnation.dims.len())
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
        let incarnation = &begin.incarnation;
        let options = builder.mirror_options(settings.dirs.clone(), incarnation.dims.len());
        let mut mirror = Mirror::open(options, &settings.node, database)?;
        let catalogue = begin.catalogue().expect("it was checked when it was read");
        let base = mirror.recovering().manifest().checkpoint.as_ref().map(|_| mirror.recovering());
        let follower = builder.follow(&FollowedLog { catalogue: &catalogue, incarnation, base })?;
        match mirror.incarnation() {
            Some(known) if known == incarnation.number => {}
            Some(files) => {
                return Err(StandbyError::Behind { files, newest: incarnation.number });
            }
            None => {
                let start = |dim: &hyades_wal::Dimension| StreamStart {
                    stream: dim.stream,
                    start: dim.start,
                };
                let streams = incarnation.dims.iter().map(start).collect();
                let at = BeginAt { number: incarnation.number, streams };
                mirror.begin(&at, &[], begin.settings(), begin.epoch_floor)?;
            }
        }
        let seen = mirror.manifest().member.as_ref().map_or(&[][..], |member| &member.seen);
        let received = mirror.received();
        let tail = |(lane, dim): (usize, &hyades_wal::Dimension)| {
            let seen = seen.iter().find(|seen| seen.stream == dim.stream);
            let seen = seen.filter(|seen| seen.end <= received[lane]);
            LaneTail::new((lane, dim.clone()), (database, incarnation.number), seen)
        };
        let tails = incarnation.dims.iter().enumerate().map(tail).collect();
        let now = Instant::now();
        Ok(Standby {
            service,
            database,
            frames: MirrorFrames(Mutex::new(mirror)),
            checkpoints: StandbyCheckpoints::new(&follower),
            follower,
            tails,
            marks,
            mark: None,
            replayed: None,
            synced_at: now,
            looked_at: now,
            begin,
        })
    }

    /// The standby as a database that is only read.
    pub fn database(&self) -> &Database {
        self.follower.database()
    }

    /// The last epoch of the served state; `None` before the first round.
    pub fn served(&self) -> Option<u64> {
        self.follower.served()
    }

    /// The newest mark that was received and not replayed: how far the primary is ahead.
    pub fn ahead(&self) -> Option<&CutMark> {
        self.mark.as_ref()
    }

    /// The standby's checkpoints so far, and how long a replay would take now.
    pub fn checkpoints(&self) -> CheckpointStats {
        self.checkpoints.stats()
    }

    /// Abandons the checkpoint that is being written, if any, and waits for its end.
    pub fn abandon_checkpoint(&mut self) {
        self.checkpoints.abandon();
    }

    /// The files and the follower, for a takeover: no checkpoint is being written, so the follower
    /// can be [promoted](Follower::promote) once the incarnation has ended in both.
    pub fn into_parts(mut self) -> (Mirror, Follower) {
        self.abandon_checkpoint();
        (self.frames.0.into_inner().unpoisoned(), self.follower)
    }

    /// By stream, the position that the standby's files will have after any crash.
    pub fn proven(&self) -> Vec<Lsn> {
        self.frames.0.lock().unpoisoned().proven()
    }

    /// Waits for a mark at most as long, reads the lanes up to the mark, and replays. Returns the
    /// epoch that is served now, if it is a new one.
    ///
    /// # Errors
    /// The incarnation has ended, or the standby cannot follow.
    pub fn step(&mut self, wait: Duration) -> Result<Option<u64>, StandbyError> {
        let ahead = self.mark.is_some();
        if let Ok(mark) = self.marks.recv_timeout(if ahead { AGAIN.min(wait) } else { wait }) {
            self.note_mark(&mark);
            while let Ok(mark) = self.marks.try_recv() {
                self.note_mark(&mark);
            }
        }
        let is_late = self.looked_at.elapsed() >= LOOK_EVERY;
        if self.mark.is_some() || is_late {
            self.looked_at = Instant::now();
            self.read_lanes(is_late)?;
        }
        let served = self.replay()?;
        if self.synced_at.elapsed() >= SYNC_EVERY {
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
        self.frames.0.lock().unpoisoned().sync()?;
        self.synced_at = Instant::now();
        Ok(())
    }

    fn note_mark(&mut self, bytes: &[u8]) {
        // Damaged, or of another database with the name: as if it were lost.
        let Ok((database, mark)) = marks::decode(bytes) else { return };
        let incarnation = &self.begin.incarnation;
        let is_own = database == self.database
            && mark.incarnation == incarnation.number
            && mark.to.len() == incarnation.dims.len();
        let newest = self.mark.as_ref().map(|mark| mark.epoch).max(self.follower.served());
        if is_own && newest.is_none_or(|newest| mark.epoch > newest) {
            self.mark = Some(mark);
        }
    }

    /// Reads the lanes that the mark is ahead of, or all.
    fn read_lanes(&mut self, all: bool) -> Result<(), StandbyError> {
        for (lane, tail) in self.tails.iter_mut().enumerate() {
            let to = self.mark.as_ref().map_or(0, |mark| mark.to[lane]);
            if !all && tail.end() >= to {
                continue;
            }
            loop {
                let found = tail.read(&*self.service)?;
                let mut mirror = self.frames.0.lock().unpoisoned();
                let nothing = found.is_empty();
                for found in found {
                    match found {
                        Tailed::Frames { start, frames, seen } => {
                            mirror.append(lane, start, &frames)?;
                            mirror.note_seen(lane, seen);
                        }
                        Tailed::Ended { by } => return Err(StandbyError::Ended { by }),
                    }
                }
                if nothing || tail.end() >= to {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Replays up to the mark, once all frames up to there are here.
    fn replay(&mut self) -> Result<Option<u64>, StandbyError> {
        let Some(mark) = &self.mark else { return Ok(None) };
        let received = self.frames.0.lock().unpoisoned().received();
        if received.iter().zip(&mark.to).any(|(received, to)| received < to) {
            return Ok(None);
        }
        self.follower.round(mark, &self.frames)?;
        self.replayed = self.mark.take();
        Ok(self.follower.served())
    }
}
