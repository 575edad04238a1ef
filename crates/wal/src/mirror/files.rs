//! The segments of a lane being written.
//!
//! Invariant: a batch is written only after the batch before is synced. So the header of a batch
//! states a durable position, as in a log that writes its own frames.

use super::lane::MirrorLane;
use crate::Lsn;
use crate::error::Error;
use crate::format::{self, BATCH_HEADER, BatchHeader, SegmentHeader};
use crate::open::Recovering;
use crate::preparer::{Preparer, Request, Urgency};
use crate::segment::{Chain, Prepared, Segment};
use crate::start::LaneStart;
use crate::supply::Supply;
use hyades_platform::broken;
use hyades_platform::device::Device;
use hyades_platform::sync::locked;
use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;

/// The most bytes of frames in a batch.
const MAX_BATCH: usize = 2 << 20;

/// The segment being written, and the next ones.
#[derive(Debug)]
pub(super) struct LaneFiles {
    current: Prepared,
    /// The file offset of the next batch; 0 while the segment has not begun.
    offset: u64,
    supply: Supply,
}

/// The source of segments for all lanes: a thread makes segments ahead of need, except in a stepped
/// mirror.
#[derive(Debug)]
pub(super) struct Segments {
    requests: mpsc::Sender<Request>,
    urgency: Arc<Urgency>,
    stepped: Option<Arc<Mutex<Preparer>>>,
    thread: Option<JoinHandle<()>>,
}

impl Segments {
    /// Gives segments to the lanes, in the order of `starts`.
    pub(super) fn begin(
        log: &Recovering,
        starts: Vec<LaneStart>,
        lanes: &mut [MirrorLane],
    ) -> Result<Self, Error> {
        debug_assert_eq!(starts.len(), lanes.len(), "each stream is prepared");
        let (requests, receiver) = mpsc::channel();
        let (mut places, mut rest) = (Vec::new(), Vec::new());
        for start in starts {
            places.push(start.place);
            rest.push((start.first, start.replies, start.begun));
        }
        let urgency: Arc<Urgency> = Arc::default();
        let device = Arc::clone(&log.options.device);
        let preparer = Preparer::new(device, places, receiver, Arc::clone(&urgency));
        let mut segments = Self { requests, urgency, stepped: None, thread: None };
        if log.options.stepped {
            segments.stepped = Some(Arc::new(Mutex::new(preparer)));
        } else {
            let thread = std::thread::Builder::new().name("mirror-preparer".into());
            let failed = Error::io(&log.manifest_dir, "start a thread for the log in");
            segments.thread = Some(thread.spawn(move || preparer.run()).map_err(failed)?);
        }
        for (lane, (current, replies, mut begun)) in rest.into_iter().enumerate() {
            let lengths = (current.length, log.options.segment_bytes);
            let (requests, urgency) = (segments.requests.clone(), Arc::clone(&segments.urgency));
            let supply = Supply::new(lane, lengths, requests, replies, urgency);
            let mut supply = match &segments.stepped {
                Some(preparer) => supply.stepped(Arc::clone(preparer)),
                None => supply,
            };
            supply.ask();
            // The current segment begins with its first batch. Until then a segment before is the
            // last one that states the anchor in effect, and is not truncated. Not a segment found
            // to begin right there: its header may be in the page cache only, while a statement
            // above the start of a segment proves the header.
            begun.pop();
            if !broken!(TrustFoundSegment) {
                begun.retain(|(_, start)| *start < lanes[lane].received);
            }
            lanes[lane].begun = begun;
            lanes[lane].files = Some(LaneFiles { current, offset: 0, supply });
        }
        Ok(segments)
    }

    /// Removes or recycles segments of a lane.
    pub(super) fn retire(&self, lane: usize, paths: Vec<PathBuf>) {
        let _ = self.requests.send(Request::Retired { lane, paths });
        if let Some(preparer) = &self.stepped {
            let _urgent = self.urgency.begin();
            locked(preparer).serve_waiting();
        }
    }
}

impl Drop for Segments {
    fn drop(&mut self) {
        let _ = self.requests.send(Request::Stop);
        // A segment in preparation is finished at once.
        let _urgent = self.urgency.begin();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl MirrorLane {
    /// Writes the next frames as a batch, which is to be synced then. Returns the start and the end
    /// of the batch; `None` if all frames are written.
    pub(super) fn write_batch(
        &mut self,
        log: &mut Recovering,
    ) -> Result<Option<(Lsn, Lsn)>, Error> {
        let from = self.synced;
        if from == self.received {
            return Ok(None);
        }
        let to = from + self.fitting(log)? as u64;
        let anchor = self.anchor();
        let Some(files) = &mut self.files else {
            return Err(Error::Invalid("the incarnation has ended".into()));
        };
        let (incarnation, uuid) =
            (log.manifest.newest().map_or(0, |i| i.number), log.manifest.uuid());
        let block = log.options.block_bytes;
        let header = SegmentHeader {
            block_bytes: block as u32,
            uuid,
            stream: self.stream,
            incarnation,
            sequence: files.current.sequence,
            start: from,
            durable: from,
            anchor,
        };
        let header = Some(header).filter(|_| files.offset == 0);
        let head = header.as_ref().map_or_else(Vec::new, SegmentHeader::encode);
        let length = (to - from) as u32;
        let batch =
            BatchHeader { stream: self.stream, incarnation, start: from, durable: from, length };
        let batch = batch.encode(&uuid);
        let used = BATCH_HEADER + length as usize;
        let padding = vec![0; used.next_multiple_of(block) - used];
        let mut slices = vec![IoSlice::new(&head), IoSlice::new(&batch)];
        slices.extend(self.recent.slices(from, to).map(IoSlice::new));
        slices.push(IoSlice::new(&padding));
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        let Prepared { path, sequence, length, file } = &files.current;
        debug_assert!(
            files.offset + total as u64 <= length.next_multiple_of(block as u64),
            "a batch ends beyond its segment of {length} bytes"
        );
        file.write_at(&slices, files.offset).map_err(Error::io(path, "write to"))?;
        files.offset += total as u64;
        if let Some(header) = header {
            let (path, sequence, length) = (path.clone(), *sequence, *length);
            let segment = Segment { path, sequence, length, header: Some(header), spare: false };
            self.begun.push((sequence, from));
            log.chains.entry(self.stream).or_default().note_begun(segment);
        }
        Ok(Some((from, to)))
    }

    /// The length of the next batch; takes the next segment if not even one frame fits.
    fn fitting(&mut self, log: &Recovering) -> Result<usize, Error> {
        let Some(files) = &mut self.files else { return Ok(0) };
        let header = format::header_bytes(log.options.block_bytes) as u64;
        loop {
            let offset = files.offset.max(header);
            let room = files.current.length.saturating_sub(offset + BATCH_HEADER as u64) as usize;
            let limit = room.min(MAX_BATCH);
            let fits = self.recent.whole_frames(self.synced, self.received, limit);
            if fits > 0 {
                return Ok(fits);
            }
            if offset == header && files.current.length >= log.options.segment_bytes {
                return Err(Error::Invalid(format!(
                    "the frame of stream {} at Lsn {} does not fit into a segment of {} bytes: set \
                     segments at least as large as the primary's",
                    self.stream, self.synced, files.current.length
                )));
            }
            files.current = files.supply.next()?;
            files.offset = 0;
            files.supply.ask();
        }
    }

    /// Syncs the batch written last. `most`: the bytes that may stay in memory.
    pub(super) fn sync_batch(&mut self, (from, to): (Lsn, Lsn), most: usize) -> Result<(), Error> {
        let Some(files) = &self.files else { return Ok(()) };
        let Prepared { path, file, .. } = &files.current;
        file.sync_data().map_err(Error::io(path, "sync"))?;
        self.raise_synced(to, most);
        // The header of the batch is durable, and states its start. No header states its end: an
        // opening cannot tell the last batch from a torn one, and leaves it out.
        self.proven = if broken!(ReportUnsynced) { self.received } else { self.proven.max(from) };
        Ok(())
    }
}

impl Chain {
    /// Notes that a segment has begun, at the end of the chain or in place of an empty one.
    fn note_begun(&mut self, segment: Segment) {
        match self.segments.iter_mut().find(|other| other.sequence == segment.sequence) {
            Some(other) => *other = segment,
            None => {
                let at = self.segments.partition_point(|other| other.sequence < segment.sequence);
                self.segments.insert(at, segment);
            }
        }
    }

    /// Makes segments of an incarnation empty that begin at or behind the incarnation's end.
    pub(super) fn clear_behind(
        &mut self,
        device: &dyn Device,
        incarnation: u32,
        end: Lsn,
    ) -> Result<(), Error> {
        for segment in &mut self.segments {
            let is_behind = |h: &SegmentHeader| h.incarnation == incarnation && h.start >= end;
            let Some(header) = segment.header.take_if(|header| is_behind(header)) else { continue };
            let path = &segment.path;
            let zeros = vec![0; format::header_bytes(header.block_bytes as usize)];
            let file = device.open(path).map_err(Error::io(path, "open"))?;
            file.write_at(&[IoSlice::new(&zeros)], 0).map_err(Error::io(path, "write to"))?;
            file.sync_data().map_err(Error::io(path, "sync"))?;
        }
        Ok(())
    }
}
