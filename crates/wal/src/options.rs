//! The options of a log.

use crate::error::Error;
use crate::format::{self, BATCH_HEADER, LARGEST_BLOCK, LEAST_BLOCK};
use crate::frame::{self, MAX_PAYLOAD};
use crate::lsn_vector::MAX_LANES;
use crate::remote::Remote;
use hyades_platform::device::{Device, FileDevice};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The smallest ring buffer, in bytes.
const LEAST_BUFFER: usize = 4096;
/// The smallest segment, in blocks, or in units of its header.
const LEAST_SEGMENT: usize = 16;

const _: () = assert!(8 * MAX_LANES <= LEAST_BUFFER / 4, "an anchor fits into every buffer");
const _: () = assert!(8 * MAX_LANES <= least_segment(LEAST_BLOCK) / 4, "and into every segment");

/// The smallest segment with blocks of `block_bytes`, in bytes.
const fn least_segment(block_bytes: usize) -> usize {
    LEAST_SEGMENT * format::header_bytes(block_bytes)
}

/// The layout of a log, and the times of flushes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LogOptions {
    /// The log directories. A new log's manifest goes to the first; streams are placed round-robin.
    pub dirs: Vec<PathBuf>,
    /// The number of streams of the next incarnation: 1 to 64.
    pub streams: usize,
    /// The size of each stream's ring buffer in bytes: a power of two, 4 KiB to 1 GiB.
    pub buffer_bytes: usize,
    /// The maximum segment size in bytes: a multiple of the block, from 16 blocks (and 16 KiB) to 1
    /// TiB. Sizes double up to the maximum from 4 MiB (or from the maximum, if smaller).
    pub segment_bytes: u64,
    /// The unit of writing in bytes: a power of two, 64 to 65,536. No block is written twice, so on
    /// a device with larger blocks a torn write may damage durable bytes: smaller units are for
    /// memory, with blocks of a cache line.
    pub block_bytes: usize,
    /// None: a flush starts as soon as there is something to write and the device is free; but a
    /// busy stream without a waiting thread is flushed at most every 500 us, or every 2 ms after a
    /// batch of at least 1 KiB. Otherwise work is collected for the interval, or until
    /// `flush_fill_bytes` are reserved.
    pub flush_interval: Option<Duration>,
    /// The backlog in bytes that ends `flush_interval` early: the writer reaching the backlog wakes
    /// the flusher.
    pub flush_fill_bytes: usize,
    /// The number of frames that ends `flush_interval` early, in the same way.
    pub flush_fill_frames: Option<u64>,
    /// Writers flush their own records, see [`Writer::flush`](crate::Writer::flush). The flushers'
    /// threads sleep, except while a thread waits for a record not flushed by a writer.
    pub flushed_by_writers: bool,
    /// The number of bytes of frames between two anchors of a stream.
    pub anchor_interval_bytes: u64,
    /// The device of the directories.
    pub device: Arc<dyn Device>,
    /// How many [`Writer`](crate::Writer)s may exist at a time: 1 to 65,536.
    pub max_writers: usize,
    /// Writers reserve by compare-and-swap, in a loop, and not by an addition: to measure the gain
    /// of the addition.
    pub reserve_by_exchange: bool,
    /// A replicated log, which stores every batch beside the files: a position counts as durable
    /// once both have it.
    pub remote: Option<Arc<dyn Remote>>,
    /// A directory outside of the log directories, best on another device: truncations copy the
    /// segments that go to it first, so that a backup can be recovered to any later moment
    /// ([`open_continued`](crate::open_continued)). The archive grows until
    /// [`prune_archive`](crate::prune_archive); while it cannot be written, the log is not
    /// truncated.
    pub archive: Option<PathBuf>,
    /// Starts no threads: [`Log::step`](crate::Log::step) flushes a stream. For simulation: a
    /// single thread does all work in a reproducible order.
    pub stepped: bool,
}

impl LogOptions {
    /// The default options for the directories `dirs`.
    pub fn new(dirs: Vec<PathBuf>, streams: usize) -> Self {
        Self {
            dirs,
            streams,
            buffer_bytes: 8 << 20,
            segment_bytes: 64 << 20,
            block_bytes: 4096,
            flush_interval: None,
            flush_fill_bytes: 1 << 20,
            flush_fill_frames: None,
            flushed_by_writers: false,
            anchor_interval_bytes: 256 << 10,
            device: FileDevice::shared(),
            max_writers: 256,
            reserve_by_exchange: false,
            remote: None,
            archive: None,
            stepped: false,
        }
    }

    /// The largest payload of a frame under the options: a quarter of the buffer or of a segment,
    /// at most 1 MiB, and no more than fits into a batch of the remote.
    pub fn max_payload(&self) -> usize {
        let least = (self.buffer_bytes / 4).min(self.segment_bytes as usize / 4);
        let remote = self
            .remote
            .as_ref()
            .map_or(MAX_PAYLOAD, |remote| remote.max_batch_bytes().saturating_sub(frame::MAX_HEAD));
        least.min(MAX_PAYLOAD).min(remote)
    }

    /// The size of an incarnation's first segments, in bytes.
    pub(crate) fn first_segment_bytes(&self) -> u64 {
        self.segment_bytes.min(4 << 20)
    }

    /// Checks the places beside the log directories: the archive and the remote.
    fn check_places(&self) -> Result<(), Error> {
        let wrong = |what: String| Err(Error::Invalid(what));
        if let Some(archive) = &self.archive
            && self.dirs.iter().any(|dir| dir == archive)
        {
            return wrong(format!(
                "{} is a log directory: give the archive a directory of its own",
                archive.display()
            ));
        }
        if let Some(remote) = &self.remote {
            if self.archive.is_some() {
                return wrong("a replicated log has no archive: its log service keeps it".into());
            }
            if self.flushed_by_writers {
                return wrong("writers that flush their records store nothing remotely".into());
            }
            let (bytes, least) = (remote.max_batch_bytes(), LEAST_BUFFER);
            if bytes < least {
                return wrong(format!("a remote takes {bytes} bytes at once: {least} are needed"));
            }
        }
        Ok(())
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let wrong = |what: String| Err(Error::Invalid(what));
        if self.dirs.is_empty() {
            return wrong("no log directory was given: give at least one".into());
        }
        for (i, dir) in self.dirs.iter().enumerate() {
            if self.dirs[..i].contains(dir) {
                return wrong(format!("the log directory {} was given twice", dir.display()));
            }
        }
        if !(1..=MAX_LANES).contains(&self.streams) {
            return wrong(format!("{} log streams: choose 1 to {MAX_LANES}", self.streams));
        }
        if !self.buffer_bytes.is_power_of_two()
            || !(LEAST_BUFFER..=1 << 30).contains(&self.buffer_bytes)
        {
            return wrong(format!(
                "a buffer of {} bytes: choose a power of two, at least 4096 and at most 1 GiB",
                self.buffer_bytes
            ));
        }
        if !self.block_bytes.is_power_of_two()
            || !(LEAST_BLOCK..=LARGEST_BLOCK).contains(&self.block_bytes)
        {
            return wrong(format!(
                "a block of {} bytes: choose a power of two from 64 to 65536",
                self.block_bytes
            ));
        }
        if self.segment_bytes < least_segment(self.block_bytes) as u64
            || self.segment_bytes > 1 << 40
            || !self.segment_bytes.is_multiple_of(self.block_bytes as u64)
        {
            return wrong(format!(
                "a segment of {} bytes: choose a multiple of the block ({}), at least 16 blocks \
                 and 16 KiB, at most 1 TiB",
                self.segment_bytes, self.block_bytes
            ));
        }
        if self.max_writers == 0 || self.max_writers > 1 << 16 {
            return wrong(format!("{} writers: choose 1 to 65536", self.max_writers));
        }
        if self.flushed_by_writers && self.flush_interval.is_some() {
            return wrong(
                "writers flush each record at once: set no interval between flushes".into(),
            );
        }
        self.check_places()?;
        if self.flush_fill_frames == Some(0) {
            return wrong("0 frames end an interval between flushes: choose 1 or more".into());
        }
        let longest = frame::len(self.max_payload());
        debug_assert!(
            longest <= self.buffer_bytes / 2,
            "a frame needs more than the room of a buffer"
        );
        let header = format::header_bytes(self.block_bytes);
        let needed = (header + BATCH_HEADER + longest) as u64;
        debug_assert!(needed <= self.first_segment_bytes(), "a frame does not fit into a segment");
        Ok(())
    }
}
