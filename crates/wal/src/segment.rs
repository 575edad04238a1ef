//! Segment files: their names, reading their headers, and making new ones ahead of need.

use crate::Lsn;
use crate::error::Error;
use crate::format::{NotAHeader, SEGMENT_HEADER_MAX, SegmentHeader};
use crate::stream_id::StreamId;
use hyades_platform::device::{Device, DeviceFile};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

const PREFIX: &str = "segment-";
const TEMPORARY: &str = ".tmp";

/// The directory of a stream.
pub(crate) fn stream_dir(dir: &Path, stream: StreamId) -> PathBuf {
    dir.join(format!("stream-{stream:04}"))
}

/// The file of a segment.
pub(crate) fn segment_path(stream_dir: &Path, sequence: u64) -> PathBuf {
    stream_dir.join(format!("{PREFIX}{sequence:020}"))
}

fn sequence_of(name: &str) -> Option<u64> {
    name.strip_prefix(PREFIX)?.parse().ok()
}

/// An existing segment.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) path: PathBuf,
    pub(crate) sequence: u64,
    pub(crate) length: u64,
    /// None if the segment has not begun.
    pub(crate) header: Option<SegmentHeader>,
    /// Whether it has only a temporary name, and may be in the page cache only (see `spare.rs`).
    pub(crate) spare: bool,
}

/// The segments of a stream, in order, and the files that can be removed.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    pub(crate) segments: Vec<Segment>,
    pub(crate) leftovers: Vec<PathBuf>,
    /// One of the leftovers: a copy of what the last segment has beyond its proven end.
    pub(crate) spare: Option<Segment>,
    /// Whether the chain ends where a segment is missing or unreadable.
    pub(crate) broken: bool,
}

impl Chain {
    /// Reads the headers in a stream's directory. `first` is the first sequence number that must be
    /// present. Anything missing or unreadable is an error and ends the chain.
    pub(crate) fn read(
        device: &dyn Device,
        dir: &Path,
        stream: StreamId,
        uuid: &[u8; 16],
        first: u64,
    ) -> (Self, Option<Error>) {
        let mut chain = Self::default();
        let error = chain.fill(device, dir, stream, uuid, first).err();
        chain.broken = error.is_some();
        (chain, error)
    }

    fn fill(
        &mut self,
        device: &dyn Device,
        dir: &Path,
        stream: StreamId,
        uuid: &[u8; 16],
        first: u64,
    ) -> Result<(), Error> {
        let missing = |what: String| {
            Err(Error::corrupt(dir, 0, format!("{what} missing; restore it from a copy")))
        };
        if !device.exists(dir).map_err(Error::io(dir, "look for"))? {
            return missing(format!("the directory of log stream {stream} is"));
        }
        let mut sequences = Vec::new();
        for name in device.list(dir).map_err(Error::io(dir, "list"))? {
            match sequence_of(&name) {
                Some(sequence) if sequence >= first => sequences.push(sequence),
                Some(_) => self.leftovers.push(dir.join(name)),
                None if name.ends_with(TEMPORARY) => self.leftovers.push(dir.join(name)),
                None => {}
            }
        }
        sequences.sort_unstable();
        for (expected, sequence) in (first..).zip(&sequences) {
            if *sequence != expected {
                return missing(format!("segment {expected} of log stream {stream} is"));
            }
            let path = segment_path(dir, *sequence);
            self.segments.push(read_header(device, path, stream, uuid, *sequence)?);
        }
        if sequences.is_empty() {
            return missing(format!("segment {first} of log stream {stream} is"));
        }
        Ok(())
    }

    pub(crate) fn last_started(&self) -> Option<&Segment> {
        self.segments.iter().rev().find(|s| s.header.is_some())
    }
}

pub(crate) fn read_header(
    device: &dyn Device,
    path: PathBuf,
    stream: StreamId,
    uuid: &[u8; 16],
    sequence: u64,
) -> Result<Segment, Error> {
    let file = device.open_read(&path).map_err(Error::io(&path, "open"))?;
    let length = file.len().map_err(Error::io(&path, "measure"))?;
    let mut bytes = vec![0; SEGMENT_HEADER_MAX];
    let n = file.read_at(&mut bytes, 0).map_err(Error::io(&path, "read"))?;
    let header = match SegmentHeader::decode(&bytes[..n]) {
        Err(NotAHeader::Version(version)) => {
            return Err(Error::Version { path, found: u64::from(version) });
        }
        // A recycled or new file: it has not begun.
        Err(NotAHeader::Invalid) => None,
        Ok(header) if &header.uuid != uuid => {
            let message = "it belongs to another database; remove it or restore the right one";
            return Err(Error::corrupt(&path, 16, message));
        }
        Ok(header) if header.stream != stream || header.sequence != sequence => None,
        Ok(header) => Some(header),
    };
    Ok(Segment { path, sequence, length, header, spare: false })
}

/// An existing segment, zero-filled or recycled, with a durable name, that has not begun.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) path: PathBuf,
    pub(crate) sequence: u64,
    pub(crate) length: u64,
    pub(crate) file: Arc<dyn DeviceFile>,
}

/// Makes a segment that has not begun.
pub(crate) fn prepare(
    device: &dyn Device,
    dir: &Path,
    sequence: u64,
    length: u64,
) -> Result<Prepared, Error> {
    let path = segment_path(dir, sequence);
    let temporary = path.with_extension("tmp");
    let file = device.create(&temporary, length).map_err(Error::io(&temporary, "create"))?;
    file.sync_data().map_err(Error::io(&temporary, "sync"))?;
    device.rename(&temporary, &path).map_err(Error::io(&path, "rename a new segment to"))?;
    device.sync_dir(dir).map_err(Error::io(dir, "sync the directory"))?;
    Ok(Prepared { path, sequence, length, file })
}

/// Renames a retired file, so that it can be written again.
fn recycle(
    device: &dyn Device,
    dir: &Path,
    sequence: u64,
    retired: &Path,
) -> Result<Prepared, Error> {
    let path = segment_path(dir, sequence);
    device.rename(retired, &path).map_err(Error::io(&path, "rename a retired segment to"))?;
    device.sync_dir(dir).map_err(Error::io(dir, "sync the directory"))?;
    let file = device.open(&path).map_err(Error::io(&path, "open"))?;
    let length = file.len().map_err(Error::io(&path, "measure"))?;
    Ok(Prepared { path, sequence, length, file })
}

/// A request to the preparer.
#[derive(Debug)]
pub(crate) enum Request {
    /// The next segment of a stream, of this length unless a retired one is reused.
    Next { lane: usize, length: u64 },
    /// Files of a stream that are not needed any more and have left the manifest.
    Retired { lane: usize, paths: Vec<PathBuf> },
    /// No more requests. Needed because a flusher may still hold a sender.
    Stop,
}

/// The preparer's state of a stream.
#[derive(Debug)]
pub(crate) struct LanePlace {
    pub(crate) dir: PathBuf,
    /// The sequence number of the next segment.
    pub(crate) next_sequence: u64,
    /// Segments that were found prepared when the log was opened.
    pub(crate) ready: VecDeque<Prepared>,
    pub(crate) reply: mpsc::Sender<Result<Prepared, Error>>,
}

/// How many retired files of a stream are kept for reuse beyond those that were needed last time.
const SPARE_FILES: usize = 2;

/// Retired files of a stream. The pool keeps as many as were needed between the last two
/// retirements, plus a few: with checkpoints at a steady rate, no file is created, zero-filled or
/// removed.
#[derive(Debug, Default)]
struct Pool {
    /// In order of retirement. An incarnation's first segments are short, and are removed first.
    files: VecDeque<PathBuf>,
    /// Segments requested since the last retirement; and between the last two.
    asked: usize,
    asked_before: usize,
}

impl Pool {
    /// Adds retired files; returns those beyond the pool's size, which are to be removed.
    fn retire(&mut self, paths: Vec<PathBuf>) -> impl Iterator<Item = PathBuf> {
        self.files.extend(paths);
        // Retirements without a request between them count as one.
        if self.asked > 0 {
            self.asked_before = std::mem::take(&mut self.asked);
        }
        let kept = self.asked_before + SPARE_FILES;
        self.files.drain(..self.files.len().saturating_sub(kept))
    }
}

/// Makes segments ahead of need, on its own thread or, in a stepped log, for a calling flusher.
#[derive(Debug)]
pub(crate) struct Preparer {
    device: Arc<dyn Device>,
    lanes: Vec<LanePlace>,
    pools: Vec<Pool>,
    requests: mpsc::Receiver<Request>,
}

impl Preparer {
    pub(crate) fn new(
        device: Arc<dyn Device>,
        lanes: Vec<LanePlace>,
        requests: mpsc::Receiver<Request>,
    ) -> Self {
        let is_next = |place: &LanePlace| {
            let mut back = place.ready.iter().rev().zip(1..);
            back.all(|(ready, before)| ready.sequence + before == place.next_sequence)
        };
        debug_assert!(
            lanes.iter().all(is_next),
            "a segment is missing behind those that are ready"
        );
        let pools = lanes.iter().map(|_| Pool::default()).collect();
        Self { device, lanes, pools, requests }
    }

    /// Serves requests until [`Request::Stop`], or until all senders are gone. Runs on its own
    /// thread: zero-filling a file and syncing a directory take long, and the result should be
    /// ready when a flusher needs it.
    pub(crate) fn run(mut self) {
        while let Ok(request) = self.requests.recv() {
            if let Request::Stop = request {
                return;
            }
            self.serve(request);
        }
    }

    /// Serves the pending requests: for a log without threads.
    pub(crate) fn serve_waiting(&mut self) {
        while let Ok(request) = self.requests.try_recv() {
            self.serve(request);
        }
    }

    fn serve(&mut self, request: Request) {
        let Self { device, lanes, pools, .. } = self;
        let device = &**device;
        match request {
            Request::Next { lane, length } => {
                let (place, pool) = (&mut lanes[lane], &mut pools[lane]);
                pool.asked += 1;
                let made = if let Some(ready) = place.ready.pop_front() {
                    Ok(ready)
                } else if let Some(old) = pool.files.pop_back() {
                    recycle(device, &place.dir, place.next_sequence, &old)
                } else {
                    prepare(device, &place.dir, place.next_sequence, length)
                };
                if let Ok(made) = &made {
                    debug_assert!(
                        made.sequence <= place.next_sequence,
                        "segment {} is missing",
                        place.next_sequence
                    );
                    place.next_sequence = place.next_sequence.max(made.sequence + 1);
                }
                // If the flusher has ended, the segment is not needed.
                let _ = place.reply.send(made);
            }
            Request::Retired { lane, paths } => {
                let next = segment_path(&lanes[lane].dir, lanes[lane].next_sequence);
                debug_assert!(
                    paths.iter().all(|path| path.file_name() < next.file_name()),
                    "a segment that was not yet made is to be written again"
                );
                for path in pools[lane].retire(paths) {
                    // A file that stays is a leftover, which the next opening removes.
                    let _ = device.remove(&path);
                }
            }
            Request::Stop => {}
        }
    }
}

/// The LSN from which a segment supplies the stream; the maximum if it has not begun.
pub(crate) fn start_of(segment: &Segment) -> Lsn {
    segment.header.as_ref().map_or(Lsn::MAX, |h| h.start)
}
