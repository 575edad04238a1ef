//! Beginning an incarnation: the recovered tail is made durable, the streams are chosen, the
//! manifest is replaced (`docs/format.md`, sections 6 and 8).

mod given;
mod tail;

pub use self::given::{BeginAt, StreamStart};
pub(crate) use self::tail::{Tail, write_segment};
use crate::Lsn;
use crate::archive::Archive;
use crate::error::Error;
use crate::log::{Log, Opened};
use crate::manifest::{
    Dimension, Incarnation, IncarnationSettings, Manifest, Marker, PART_PREFIX, StreamEntry,
};
use crate::open::Recovering;
use crate::preparer::LanePlace;
use crate::probe::PROBE_PREFIX;
use crate::remote::RemoteIncarnation;
use crate::segment::{Prepared, prepare, stream_dir};
use crate::stream_id::StreamId;
use crate::verdict::Verdict;
use hyades_platform::broken;
use hyades_platform::device::Device;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::mpsc;

/// A stream of the next incarnation.
pub(crate) struct LaneStart {
    pub(crate) stream: StreamId,
    pub(crate) start: Lsn,
    pub(crate) place: LanePlace,
    pub(crate) replies: mpsc::Receiver<Result<Prepared, Error>>,
    pub(crate) first: Prepared,
    /// (sequence, start) of the stream's begun segments.
    pub(crate) begun: Vec<(u64, Lsn)>,
}

impl Recovering {
    /// Begins a new incarnation. First the recovered tails are made durable; then the manifest
    /// records the ends of the last incarnation and the beginning of the new one; then the flushers
    /// start.
    ///
    /// `epoch` is a floor: all epochs up to `epoch` count as used.
    ///
    /// # Errors
    /// A file could not be written, the log is open for reading only, or the verdict is about
    /// another log. Nothing is lost then, and the log can be opened again.
    pub fn start(
        self,
        settings: IncarnationSettings,
        verdict: &Verdict,
        epoch: u64,
    ) -> Result<Log, Error> {
        self.manifest.refuse_member(&self.manifest_dir)?;
        self.start_at(settings, verdict, epoch, None)
    }

    pub(super) fn start_at(
        mut self,
        settings: IncarnationSettings,
        verdict: &Verdict,
        epoch: u64,
        at: Option<(&BeginAt, &str)>,
    ) -> Result<Log, Error> {
        if self.lenient.reading {
            let what = "the log is open for reading only: open it to go on with it";
            return Err(Error::Invalid(what.into()));
        }
        if verdict.ends().len() != self.manifest.incarnations.len() {
            return Err(Error::Invalid("the verdict is about another log".into()));
        }
        self.claim_directories()?;
        let tails = self.keep_tails(verdict)?;
        if let Some((_, node)) = at {
            // Not before: the manifest that names the member also records the ends. An opening as a
            // member leaves out what no header proves, and no lane has the last records yet.
            self.become_member(node);
        }
        let at = at.map(|(at, _)| at);
        let (lanes, dropped) = self.begin_incarnation(settings, epoch, at, &tails)?;
        self.remove_leftovers(&dropped);
        Log::run(Opened {
            options: self.options,
            locks: self.locks,
            manifest: self.manifest,
            manifest_dir: self.manifest_dir,
            lanes,
        })
    }

    /// Prepares the streams of the next incarnation, and records its beginning in the manifest.
    /// `at`: where the incarnation begins, if the replicated log says. Returns the streams, and the
    /// directories of streams that are not needed any more.
    pub(crate) fn begin_incarnation(
        &mut self,
        settings: IncarnationSettings,
        epoch: u64,
        at: Option<&BeginAt>,
        tails: &BTreeMap<StreamId, (u64, Lsn)>,
    ) -> Result<(Vec<LaneStart>, Vec<PathBuf>), Error> {
        let ends = self.stream_ends();
        if let Some(at) = at {
            self.check_begin(at)?;
        }
        if let Some(archive) = self.options.archive.as_ref().filter(|_| !broken!(OpenUnnoted)) {
            Archive::new(&*self.options.device, archive).note(&self.manifest)?;
        }
        self.forget_empty_incarnations();
        let chosen = match at {
            Some(at) => self.given_streams(at)?,
            None => self.choose_streams(),
        };
        let mut lanes = Vec::new();
        for (lane, (id, dir)) in chosen.into_iter().enumerate() {
            let own_end = ends.get(&id).copied().unwrap_or(0);
            let start = match at {
                Some(at) if !broken!(StartAtOwnEnd) => at.streams[lane].start,
                _ => own_end,
            };
            lanes.push(self.prepare_lane(id, dir, start, tails)?);
        }
        self.sync_names()?;
        let manifest = &mut self.manifest;
        let number = at.map_or(manifest.next_incarnation, |at| at.number);
        manifest.next_incarnation = number + 1;
        manifest.block_bytes = self.options.block_bytes;
        manifest.epoch_floor = manifest.epoch_floor.max(epoch);
        manifest.catalogue = settings.catalogue;
        let dim = |lane: &LaneStart| Dimension {
            stream: lane.stream,
            start: lane.start,
            end: None,
            mark: 0,
        };
        manifest.incarnations.push(Incarnation {
            number,
            data_only: settings.data_only,
            protocol: settings.protocol,
            settings: settings.settings,
            clean: false,
            dims: lanes.iter().map(dim).collect(),
        });
        let dropped = self.drop_unused_streams();
        self.begin_remote()?;
        self.manifest.write(&*self.options.device, &self.manifest_dir)?;
        Ok((lanes, dropped))
    }

    /// Tells the remote, if any, of the newest incarnation.
    fn begin_remote(&self) -> Result<(), Error> {
        let Manifest { epoch_floor, catalogue, .. } = &self.manifest;
        let (Some(remote), Some(newest)) = (&self.options.remote, self.manifest.newest()) else {
            return Ok(());
        };
        let streams: Vec<(StreamId, Lsn)> =
            newest.dims.iter().map(|dim| (dim.stream, dim.start)).collect();
        let incarnation = RemoteIncarnation {
            log: self.manifest.uuid(),
            number: newest.number,
            streams: &streams,
            data_only: newest.data_only,
            protocol: &newest.protocol,
            settings: &newest.settings,
            catalogue,
            epoch_floor: *epoch_floor,
        };
        remote.begin(&incarnation).map_err(Error::Remote)
    }

    /// Claims every given directory for the log.
    pub(crate) fn claim_directories(&mut self) -> Result<(), Error> {
        let device = &*self.options.device;
        let mut added = Vec::new();
        for dir in &self.options.dirs {
            match self.places.iter().position(|p| p.as_ref() == Some(dir)) {
                Some(index) => self.manifest.dirs[index].clone_from(dir),
                None => {
                    added.push((self.manifest.dirs.len(), dir));
                    self.manifest.dirs.push(dir.clone());
                    self.places.push(Some(dir.clone()));
                }
            }
        }
        // An emptied or replaced directory is a new directory: the former directory is nowhere.
        for (known, place) in self.manifest.dirs.iter_mut().zip(&self.places) {
            if place.as_ref() != Some(known) && self.options.dirs.contains(known) {
                *known = PathBuf::new();
            }
        }
        // The manifest first: a marker without a manifest means a lost manifest, and a place stated
        // by a marker must not go to another directory if the opening fails.
        if !added.is_empty() {
            self.manifest.write(device, &self.manifest_dir)?;
        }
        for (index, dir) in added {
            Marker { uuid: self.manifest.uuid.clone(), dir: index }.write(device, dir)?;
        }
        Ok(())
    }

    /// Makes every file and directory name of the log durable. Visible names may be in the page
    /// cache only, if a process was killed after a rename or mkdir and before the sync.
    pub(crate) fn sync_names(&self) -> Result<(), Error> {
        if broken!(TrustDirectoryEntries) {
            return Ok(());
        }
        let device = &*self.options.device;
        let mut dirs: Vec<PathBuf> = self.options.dirs.clone();
        for stream in &self.manifest.streams {
            dirs.push(self.dir_of(stream.id)?);
        }
        for dir in dirs {
            device.sync_dir(&dir).map_err(Error::io(&dir, "sync the directory"))?;
        }
        Ok(())
    }

    pub(crate) fn dir_of(&self, stream: StreamId) -> Result<PathBuf, Error> {
        let entry = self.manifest.stream(stream);
        let place = entry.and_then(|s| self.places[s.dir].as_ref());
        place
            .map(|place| stream_dir(place, stream))
            .ok_or_else(|| Error::Invalid(format!("log stream {stream} has no directory")))
    }

    /// The position at which each stream continues.
    pub(super) fn stream_ends(&self) -> BTreeMap<StreamId, Lsn> {
        let mut ends = BTreeMap::new();
        for dim in self.manifest.incarnations.iter().flat_map(|i| &i.dims) {
            let end = ends.entry(dim.stream).or_insert(0);
            *end = dim.end.unwrap_or(dim.start).max(*end);
        }
        ends
    }

    /// Removes incarnations without kept frames.
    fn forget_empty_incarnations(&mut self) {
        let kept: BTreeMap<StreamId, Lsn> =
            self.manifest.streams.iter().map(|s| (s.id, s.kept_from)).collect();
        // `choose_streams` runs on the incarnations left here, but must know the streams of the
        // newest.
        let active: BTreeSet<StreamId> = self.newest_streams().collect();
        self.manifest.incarnations.retain(|incarnation| {
            incarnation.dims.iter().any(|dim| {
                let from = kept.get(&dim.stream).copied().unwrap_or(0).max(dim.start);
                dim.end.is_none_or(|end| end > from)
            })
        });
        self.manifest.streams.iter_mut().for_each(|s| s.active = active.contains(&s.id));
    }

    fn newest_streams(&self) -> impl Iterator<Item = StreamId> + '_ {
        self.manifest.newest().into_iter().flat_map(|i| i.dims.iter().map(|d| d.stream))
    }

    /// Chooses the stream and the directory for each lane: a stream of the newest incarnation
    /// continues where a lane is placed in its directory; the other lanes get new streams.
    fn choose_streams(&mut self) -> Vec<(StreamId, PathBuf)> {
        let mut chosen: Vec<(StreamId, PathBuf)> = Vec::new();
        for lane in 0..self.options.streams {
            let dir = self.options.dirs[lane % self.options.dirs.len()].clone();
            let place = self.places.iter().position(|p| p.as_ref() == Some(&dir));
            debug_assert!(place.is_some(), "{} was not claimed for this log", dir.display());
            let index = place.unwrap_or_default();
            let goes_on =
                self.manifest.streams.iter().find(|s| {
                    s.active && s.dir == index && !chosen.iter().any(|(id, _)| *id == s.id)
                });
            let id = match goes_on {
                Some(stream) => stream.id,
                None => {
                    let id = self.manifest.next_stream;
                    self.manifest.next_stream = StreamId(id.0 + 1);
                    self.manifest.streams.push(StreamEntry {
                        id,
                        dir: index,
                        first_sequence: 1,
                        kept_from: 0,
                        active: false,
                    });
                    id
                }
            };
            debug_assert!(
                chosen.iter().all(|(other, _)| *other != id),
                "two lanes have stream {id}"
            );
            chosen.push((id, dir));
        }
        chosen
    }

    /// Prepares the stream's directory, with a segment for the incarnation's first frames.
    pub(crate) fn prepare_lane(
        &self,
        stream: StreamId,
        dir: PathBuf,
        start: Lsn,
        tails: &BTreeMap<StreamId, (u64, Lsn)>,
    ) -> Result<LaneStart, Error> {
        let device = &*self.options.device;
        let dir = stream_dir(&dir, stream);
        device.create_dir(&dir).map_err(Error::io(&dir, "create the directory"))?;
        let chain = self.chains.get(&stream);
        let segments = chain.map_or(&[][..], |c| &c.segments);
        let mut begun: Vec<(u64, Lsn)> = segments
            .iter()
            .filter_map(|s| s.header.as_ref().map(|h| (s.sequence, h.start)))
            .collect();
        begun.extend(tails.get(&stream));
        let first_sequence = self.manifest.stream(stream).map_or(1, |s| s.first_sequence);
        let mut next = begun.last().map_or(first_sequence, |(sequence, _)| sequence + 1);
        // Prepared segments that have not begun are used in place.
        let mut ready = VecDeque::new();
        let block = self.options.block_bytes as u64;
        for segment in segments {
            let fits = segment.length >= self.options.first_segment_bytes();
            if segment.sequence == next && fits && segment.length.is_multiple_of(block) {
                let path = segment.path.clone();
                let file = device.open(&path).map_err(Error::io(&path, "open"))?;
                let (sequence, length) = (segment.sequence, segment.length);
                ready.push_back(Prepared { path, sequence, length, file });
                next += 1;
            }
        }
        let first = match ready.pop_front() {
            Some(first) => first,
            None => {
                next += 1;
                {
                    let length = self.options.first_segment_bytes();
                    prepare(device, &dir, next - 1, length, |path| device.create(path, length))?
                }
            }
        };
        let (reply, replies) = mpsc::channel();
        let place = LanePlace { dir, next_sequence: next, ready, reply };
        begun.push((first.sequence, start));
        debug_assert!(
            begun.is_sorted_by(|(a, _), (b, _)| a < b),
            "a segment of stream {stream} is begun twice: {begun:?}"
        );
        debug_assert!(
            begun.is_sorted_by_key(|(_, from)| *from),
            "a segment of stream {stream} begins before an earlier one: {begun:?}"
        );
        Ok(LaneStart { stream, start, place, replies, first, begun })
    }

    /// Removes streams without an incarnation from the manifest; returns their directories.
    fn drop_unused_streams(&mut self) -> Vec<PathBuf> {
        let used: BTreeSet<StreamId> =
            self.manifest.incarnations.iter().flat_map(|i| &i.dims).map(|d| d.stream).collect();
        let unused = self.manifest.streams.iter().filter(|s| !used.contains(&s.id));
        let dropped = unused.filter_map(|s| self.dir_of(s.id).ok()).collect();
        self.manifest.streams.retain(|s| used.contains(&s.id));
        dropped
    }

    /// Removes unreferenced files. A failed removal does no harm.
    pub(crate) fn remove_leftovers(&self, dropped: &[PathBuf]) {
        let device = &*self.options.device;
        for path in self.chains.values().flat_map(|c| &c.leftovers) {
            let _ = device.remove(path);
        }
        for dir in dropped {
            for name in device.list(dir).unwrap_or_default() {
                let _ = device.remove(&dir.join(name));
            }
        }
        sweep(device, &self.manifest, &self.places);
    }
}

/// Removes the files of unfinished or replaced checkpoints and of probes, and the segments of
/// streams no longer in the manifest.
fn sweep(device: &dyn Device, manifest: &Manifest, places: &[Option<PathBuf>]) {
    for (at, place) in places.iter().enumerate() {
        let Some(place) = place else { continue };
        for name in device.list(place).unwrap_or_default() {
            let path = place.join(&name);
            if name.starts_with(PART_PREFIX) && !manifest.names_part(at, &name) {
                let _ = device.remove(&path);
            }
            if name.starts_with(PROBE_PREFIX) {
                let _ = device.remove(&path);
            }
            let stream = name.strip_prefix("stream-").and_then(|n| n.parse::<u32>().ok());
            if stream.is_some_and(|id| manifest.stream(StreamId(id)).is_none()) {
                for segment in device.list(&path).unwrap_or_default() {
                    let _ = device.remove(&path.join(segment));
                }
            }
        }
    }
}
