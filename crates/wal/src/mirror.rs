//! The mirror: the files of a standby, written from the frames that a follower takes from the lanes
//! of a replicated log. The files have the format of a log, and open as one.
//!
//! **Positions.** A stream is *received* up to the end of the frames taken, *synced* up to the end
//! of the frames in synced files, and *proven* up to a position that an opening finds after any
//! crash: the start of the last synced batch, which the header of the batch states. Other members
//! may rely on proven positions alone: an opening leaves out what is behind, since a later power
//! cut may take back what a restart still finds in the page cache (`docs/format.md`, section 8).
//!
//! **Invariants.**
//! 1. The files hold a prefix of what the lane holds, at the same positions, and are written as a
//!    log is: a batch after the sync of the batch before.
//! 2. An opening goes on at the proven position, in a new segment, which takes over there. The
//!    frames behind come from the lane again.
//! 3. A segment's header repeats the anchor in effect at its start, also after an opening: so the
//!    last begun segment is never truncated.
//! 4. An incarnation ends where the replicated log says. The end is recorded before anything is
//!    replayed, and frames behind the end are kept apart, in the directory `DISCARDED-k`.

mod chunks;
mod ends;
mod files;
mod lane;
mod opening;
mod recent;

pub use self::chunks::MirrorReader;
use self::files::Segments;
use self::lane::{MirrorLane, TailState};
use crate::Lsn;
use crate::backup::Copied;
use crate::base_files::{BaseFiles, Pins};
use crate::error::{Error, Poisoned, StopKind};
use crate::manifest::{Checkpoint, FROM_LANES, IncarnationSettings, MIRRORED, Manifest, Seen};
use crate::open::Recovering;
use crate::reader::StreamReader;
use crate::start::{BeginAt, LaneStart};
use crate::truncation::{TruncatedLane, Truncation};
use crate::unfinished::Unfinished;
use crate::verdict::Verdict;
use hyades_platform::device::Device;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// The most bytes of frames kept in memory, in all lanes, for readers, unless set otherwise.
const RECENT_BYTES: usize = 64 << 20;
/// A lane with more unwritten bytes is written and synced at once.
const UNSYNCED_BYTES: u64 = 8 << 20;

/// The files of a standby. See the module's comment for the words.
///
/// After an error of a device the mirror has stopped: every call fails, and the directories have to
/// be opened again. An error about frames or positions changes nothing.
#[derive(Debug)]
pub struct Mirror {
    log: Recovering,
    /// The streams of the newest incarnation.
    lanes: Vec<MirrorLane>,
    /// None while no incarnation is being written.
    segments: Option<Segments>,
    /// Whether the ends of the newest incarnation are recorded.
    has_ended: bool,
    /// The most bytes of synced frames kept in memory, in all lanes.
    recent_bytes: usize,
    /// Why the mirror has stopped.
    stopped: Option<Arc<str>>,
    /// The bases that are read from the files.
    pins: Pins,
}

impl Mirror {
    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.log.manifest
    }

    /// The files as recovery reads them: with a checkpoint, the base of a follower.
    pub fn recovering(&self) -> &Recovering {
        &self.log
    }

    /// The device of the files.
    pub fn device(&self) -> &Arc<dyn Device> {
        self.log.device()
    }

    /// The files of the checkpoint named by the manifest, in the order of their numbers.
    pub fn checkpoint_files(&self) -> Vec<PathBuf> {
        self.log.checkpoint_files()
    }

    /// The number of the newest incarnation, if any.
    pub fn incarnation(&self) -> Option<u32> {
        self.log.manifest.newest().map(|newest| newest.number)
    }

    /// Whether the ends of the newest incarnation are recorded: no frames follow.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Readers of the incarnations before the newest, in order.
    pub fn earlier_readers(&self) -> Vec<StreamReader> {
        let newest = self.incarnation().unwrap_or(0);
        self.log.readers().into_iter().filter(|reader| reader.incarnation < newest).collect()
    }

    fn positions(&self, position: impl Fn(&MirrorLane) -> Lsn) -> Vec<Lsn> {
        self.lanes.iter().map(position).collect()
    }

    /// By stream of the newest incarnation, the end of the frames taken: what follows is to be
    /// appended next.
    pub fn received(&self) -> Vec<Lsn> {
        self.positions(|lane| lane.received)
    }

    /// By stream, the end of the frames in synced files.
    pub fn synced(&self) -> Vec<Lsn> {
        self.positions(|lane| lane.synced)
    }

    /// By stream, a position that every later opening finds again, whatever crashes: what other
    /// members may be told. After an opening the positions in the manifest; higher ones told before
    /// stay true.
    pub fn proven(&self) -> Vec<Lsn> {
        self.positions(|lane| lane.proven)
    }

    /// By stream, the end of the valid frames that the opening found. What lies behind
    /// [`received`](Self::received) then does not count, unless the lane has the same frames.
    pub fn found(&self) -> Vec<Lsn> {
        self.positions(|lane| lane.found)
    }

    fn check_running(&self) -> Result<(), Error> {
        match &self.stopped {
            Some(cause) => {
                Err(Error::Poisoned(Poisoned { cause: Arc::clone(cause), kind: StopKind::Failed }))
            }
            None => Ok(()),
        }
    }

    /// Stops the mirror if an action failed half-way.
    fn or_stop<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        if let Err(error) = &result {
            self.stopped = Some(error.to_string().into());
        }
        result
    }

    /// Takes frames of a stream of the newest incarnation: whole frames that begin at `start`.
    /// Frames that the mirror has are skipped. The frames reach the files with the next
    /// [`sync`](Self::sync), or before. Returns the position behind the frames taken.
    ///
    /// # Errors
    /// [`Error::Remote`]: a frame is damaged, or does not belong there.
    /// [`Error::Invalid`]: frames before `start` are missing, or the incarnation has ended. Also if
    /// a file could not be written.
    pub fn append(&mut self, lane: usize, start: Lsn, frames: &[u8]) -> Result<Lsn, Error> {
        self.check_running()?;
        if self.has_ended || lane >= self.lanes.len() {
            let what = match self.has_ended {
                true => "the incarnation has ended: begin the next one first".into(),
                false => {
                    format!("the incarnation has {} streams: none is {lane}", self.lanes.len())
                }
            };
            return Err(Error::Invalid(what));
        }
        let taker = &mut self.lanes[lane];
        taker.take(start, frames)?;
        let received = taker.received;
        if received - taker.synced > UNSYNCED_BYTES {
            let written = self.write_all(lane..lane + 1);
            self.or_stop(written)?;
        }
        Ok(received)
    }

    /// Notes the message whose frames were appended last to a stream: a hint for the next opening,
    /// in [`Manifest::member`], where to go on reading the lane.
    pub fn note_seen(&mut self, lane: usize, seen: Seen) {
        debug_assert_eq!(seen.stream, self.lanes[lane].stream, "a message of another stream");
        self.lanes[lane].note(seen);
    }

    /// Writes and syncs all frames taken. Returns the proven positions.
    ///
    /// # Errors
    /// A file could not be written or synced: the mirror has stopped.
    pub fn sync(&mut self) -> Result<Vec<Lsn>, Error> {
        self.check_running()?;
        let written = self.write_all(0..self.lanes.len());
        self.or_stop(written)?;
        Ok(self.proven())
    }

    /// Sets how many bytes of synced frames stay in memory for readers, in all lanes: 64 MiB unless
    /// set. The lanes have equal shares.
    pub fn keep_in_memory(&mut self, bytes: usize) {
        self.recent_bytes = bytes;
    }

    fn write_all(&mut self, lanes: std::ops::Range<usize>) -> Result<(), Error> {
        let most = self.recent_bytes / self.lanes.len().max(1);
        loop {
            let mut written = Vec::new();
            for lane in lanes.clone() {
                if self.settle_tail(lane)?
                    && let Some(batch) = self.lanes[lane].write_batch(&mut self.log)?
                {
                    written.push((lane, batch));
                }
            }
            if written.is_empty() {
                return Ok(());
            }
            for (lane, batch) in written {
                self.lanes[lane].sync_batch(batch, most)?;
            }
        }
    }

    /// Whether the lane may be written. The first batch after an opening hides the frames found
    /// behind the proven position: it waits until the lane has the same frames. Others are kept
    /// apart first.
    fn settle_tail(&mut self, lane: usize) -> Result<bool, Error> {
        match self.lanes[lane].compare_tail() {
            TailState::Open => return Ok(false),
            TailState::Settled => {}
            TailState::Different => {
                let tail = self.lanes[lane].tail.clone();
                self.discard(lane, tail.into_iter())?;
            }
        }
        self.lanes[lane].tail = None;
        Ok(true)
    }

    /// Begins an incarnation: `at` and `settings` as the replicated log says, `ends` where the
    /// incarnation before has ended ([`end`](Self::end)); none before the first. The manifest
    /// records both durably. `epoch`: all epochs up to `epoch` count as used.
    ///
    /// # Errors
    /// As [`end`](Self::end); also if the incarnation does not begin at the ends, or its
    /// number or a stream has been used; or a file could not be written.
    pub fn begin(
        &mut self,
        at: &BeginAt,
        ends: &[Lsn],
        mut settings: IncarnationSettings,
        epoch: u64,
    ) -> Result<(), Error> {
        self.end(ends)?;
        self.log.options.streams = at.streams.len();
        self.log.options.check()?;
        self.log.check_begin(at)?;
        settings.settings.insert(MIRRORED.into(), FROM_LANES.into());
        let begun = self.begin_lanes(at, settings, epoch);
        self.or_stop(begun)
    }

    fn begin_lanes(
        &mut self,
        at: &BeginAt,
        settings: IncarnationSettings,
        epoch: u64,
    ) -> Result<(), Error> {
        self.keep_notes();
        let log = &mut self.log;
        let (starts, dropped) =
            log.begin_incarnation(settings, epoch, Some(at), &BTreeMap::new())?;
        let device = Arc::clone(log.device());
        for dir in dropped {
            for name in device.list(&dir).unwrap_or_default() {
                let _ = device.remove(&dir.join(name));
            }
        }
        let Recovering { manifest, chains, .. } = log;
        chains.retain(|stream, _| manifest.stream(*stream).is_some());
        starts.iter().for_each(|start| _ = chains.entry(start.stream).or_default());
        // Before its first anchor an incarnation's anchor is the vector of its starts.
        let anchor: Vec<Lsn> = starts.iter().map(|start| start.start).collect();
        let lane = |(lane, start): (usize, &LaneStart)| {
            let seed = self.log.seed(start.stream);
            MirrorLane::new(start.stream, lane, seed, start.start, anchor.clone())
        };
        self.lanes = starts.iter().enumerate().map(lane).collect();
        self.give_segments(starts)?;
        self.has_ended = false;
        Ok(())
    }

    fn give_segments(&mut self, starts: Vec<LaneStart>) -> Result<(), Error> {
        self.segments = Some(Segments::begin(&self.log, starts, &mut self.lanes)?);
        Ok(())
    }

    /// Takes the hints that are proven into the manifest to be written next.
    fn keep_notes(&mut self) {
        let Some(member) = &mut self.log.manifest.member else { return };
        for lane in &mut self.lanes {
            if let Some(seen) = lane.take_proven_note() {
                member.seen.retain(|old| old.stream != seen.stream);
                member.seen.push(seen);
            }
        }
    }

    /// The number of the next checkpoint, and where its parts go, as
    /// [`Log::next_checkpoint`](crate::Log::next_checkpoint).
    pub fn next_checkpoint(&self, parts: usize) -> (u64, Vec<(usize, PathBuf)>) {
        self.log.manifest.next_checkpoint(parts, &self.log.options.dirs)
    }

    /// Makes recovery begin with this checkpoint, and truncates the log, as
    /// [`Log::adopt`](crate::Log::adopt). Returns how many bytes of frames were truncated.
    ///
    /// # Errors
    /// [`Error::Invalid`]: the files are not synced up to the checkpoint's positions, or the
    /// checkpoint is of another incarnation. Also if the manifest could not be written.
    pub fn adopt(
        &mut self,
        checkpoint: Checkpoint,
        catalogue: Option<Vec<u8>>,
    ) -> Result<u64, Error> {
        self.check_running()?;
        let is_synced = checkpoint.streams.iter().all(|covered| {
            let lane = self.lanes.iter().find(|lane| lane.stream == covered.stream);
            lane.is_some_and(|lane| covered.from <= lane.synced)
        });
        if !is_synced || Some(checkpoint.incarnation) != self.incarnation() {
            return Err(Error::Invalid(format!(
                "checkpoint {} is of incarnation {}, at {:?}; the files are of incarnation {:?}, \
                 synced up to {:?}: sync the files up to the checkpoint first",
                checkpoint.number,
                checkpoint.incarnation,
                checkpoint.streams,
                self.incarnation(),
                self.synced()
            )));
        }
        self.keep_notes();
        let adopted = self.truncate(checkpoint, catalogue);
        self.or_stop(adopted)
    }

    fn truncate(
        &mut self,
        checkpoint: Checkpoint,
        catalogue: Option<Vec<u8>>,
    ) -> Result<u64, Error> {
        let lane = |lane: &MirrorLane| TruncatedLane {
            stream: lane.stream,
            begun: lane.begun.clone(),
            mark: lane.mark(),
        };
        let lanes: Vec<_> = self.lanes.iter().map(lane).collect();
        let truncation = Truncation::plan(&self.log.manifest, checkpoint, catalogue, &lanes);
        let device = Arc::clone(self.log.device());
        let (next, bytes) = (truncation.next.clone(), truncation.bytes());
        truncation.carry_out((&*device, &self.pins), &self.log.manifest_dir, |gone| {
            gone.take_from(&mut self.lanes[gone.lane].begun);
            match &self.segments {
                Some(segments) => segments.retire(gone.lane, gone.paths.clone()),
                None => gone.paths.iter().for_each(|path| _ = device.remove(path)),
            }
        })?;
        self.log.manifest = next;
        let Recovering { manifest, chains, .. } = &mut self.log;
        chains.retain(|stream, _| manifest.stream(*stream).is_some());
        for (stream, chain) in chains {
            let first = manifest.stream(*stream).map_or(0, |entry| entry.first_sequence);
            chain.segments.retain(|segment| segment.sequence >= first);
        }
        Ok(bytes)
    }

    /// Copies the files, up to what is synced, for a new member: a base, which
    /// [`open`](Self::open) makes the member's. The copy is read back and checked.
    ///
    /// # Errors
    /// A file could not be copied, or is damaged. The mirror is not affected.
    pub fn base(&self, to: &Unfinished) -> Result<Copied, Error> {
        self.check_running()?;
        self.log.base(&self.synced(), to)
    }

    /// The files of a [`base`](Self::base), to be read while the mirror goes on. `seen`: where the
    /// reading of the lanes may go on, see [`Member::seen`](crate::Member::seen). `None` before the
    /// first incarnation.
    ///
    /// # Errors
    /// A segment could not be looked at. The mirror is not affected.
    pub fn base_files(&self, seen: Vec<Seen>) -> Result<Option<BaseFiles>, Error> {
        self.check_running()?;
        match self.log.is_fresh() {
            true => Ok(None),
            false => self.log.base_files(&self.synced(), seen, &self.pins).map(Some),
        }
    }

    /// What recovery has read of the files, and where the incarnations end: for
    /// [`start_as`](Recovering::start_as). Reads nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`]: the newest incarnation has not [ended](Self::end). The mirror has
    /// stopped.
    pub fn into_recovering(self) -> Result<(Recovering, Verdict), Error> {
        self.check_running()?;
        let Some(verdict) = self.log.recorded_verdict() else {
            return Err(Error::Invalid(
                "the newest incarnation has not ended: state its ends by the replicated log".into(),
            ));
        };
        Ok((self.log, verdict))
    }
}
