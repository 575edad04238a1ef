//! Test helpers: small logs, and reading everything back.
#![allow(dead_code, reason = "each test file uses a part of this")]

use hyades_platform::device::Device;
use hyades_wal::{
    Checkpoint, Covered, Error, FrameKind, IncarnationSettings, Log, LogOptions, Lsn, MARKS, Marks,
    ReaderEnd, Recovering, StreamId, Verdict, Writer, open,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The last number drawn, which a test sets.
#[derive(Debug, Default)]
pub struct Drawn(pub AtomicU64);

impl Marks for Drawn {
    fn mark(&self, _: usize, _: u64, _: bool) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
    fn highest(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
    fn pause(&self) -> Duration {
        Duration::from_micros(100)
    }
}

/// A frame as read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    pub incarnation: u32,
    pub lane: usize,
    pub stream: StreamId,
    pub start: Lsn,
    pub end: Lsn,
    pub kind: FrameKind,
    pub payload: Vec<u8>,
    pub anchor: Vec<Lsn>,
}

/// Small buffers and segments, so that short tests cross their ends.
pub fn small(dir: &Path, streams: usize, device: Arc<dyn Device>) -> LogOptions {
    let mut options = LogOptions::new(vec![dir.to_owned()], streams);
    options.buffer_bytes = 1 << 14;
    options.segment_bytes = 1 << 16;
    options.block_bytes = 1024;
    options.anchor_interval_bytes = 4096;
    options.max_writers = 8;
    options.device = device;
    options
}

/// Everything in the log, in the order of incarnation, lane and position; and the verdict.
pub fn read_all(recovering: &Recovering) -> Result<(Vec<Read>, Verdict), Error> {
    let mut frames = Vec::new();
    let mut ends = Vec::new();
    for mut reader in recovering.readers() {
        let mut at = None;
        while let Some(chunk) = reader.next_chunk()? {
            assert_eq!(at.unwrap_or(chunk.start()), chunk.start());
            let mut anchor = chunk.anchor().to_vec();
            for frame in chunk.frames() {
                assert!(at.is_none_or(|at| at == frame.start));
                at = Some(frame.end);
                frames.push(Read {
                    incarnation: reader.incarnation,
                    lane: reader.dimension,
                    stream: reader.stream,
                    start: frame.start,
                    end: frame.end,
                    kind: frame.kind,
                    payload: frame.payload.to_vec(),
                    anchor: anchor.clone(),
                });
                if frame.kind == FrameKind::Anchor {
                    hyades_wal::read_anchor(frame.payload, &mut anchor).unwrap();
                }
            }
            assert_eq!(at, Some(chunk.end()));
        }
        assert!(at.is_none_or(|at| at == reader.valid_to()));
        ends.push(reader.end());
    }
    let verdict = recovering.verdict(&ends)?;
    check_ends(recovering, &ends);
    Ok((frames, verdict))
}

/// The ends found from the last segments are the ends found by reading everything.
fn check_ends(recovering: &Recovering, read: &[ReaderEnd]) {
    for incarnation in &recovering.manifest().incarnations {
        let found = recovering.find_ends(incarnation).unwrap();
        let read = read.iter().filter(|end| end.incarnation == incarnation.number);
        // Ends are never below the start of what is read.
        let read: Vec<_> = read.map(|end| (end.valid_to, end.mark)).collect();
        let has_marks = incarnation.settings.contains_key(MARKS);
        for (found, (valid_to, mark)) in found.iter().zip(read) {
            assert_eq!(found.valid_to, valid_to, "incarnation {}", incarnation.number);
            assert!(!has_marks || found.mark == mark, "{found:?}, not {mark}");
        }
    }
}

/// Opens, reads everything, and begins a new incarnation.
pub fn reopen(options: LogOptions) -> Result<(Log, Vec<Read>), Error> {
    let recovering = open(options)?;
    let (frames, verdict) = read_all(&recovering)?;
    let log = recovering.start(IncarnationSettings::default(), &verdict, 1)?;
    Ok((log, frames))
}

/// Appends a record and returns its end.
pub fn append(writer: &mut Writer, stream: usize, payload: &[u8]) -> Lsn {
    let reservation = writer.reserve(stream, payload.len());
    let end = reservation.end();
    reservation.fill(FrameKind::Record, payload);
    end
}

/// Truncates the log below `up_to`, a position of each stream, with a checkpoint of no rows.
/// Returns the number of truncated bytes of frames.
pub fn truncate(log: &Log, up_to: &[Lsn]) -> u64 {
    let manifest = log.manifest();
    let dims = &manifest.newest().unwrap().dims;
    let covered = dims.iter().zip(up_to).map(|(dim, &from)| Covered { stream: dim.stream, from });
    let (number, _) = log.next_checkpoint(1);
    let checkpoint = Checkpoint {
        number,
        cut: number,
        incarnation: log.incarnation(),
        scan_end: None,
        taken_at_us: 0,
        next_row_id: 0,
        rows: 0,
        parts: Vec::new(),
        streams: covered.collect(),
    };
    log.adopt(checkpoint).unwrap()
}

/// The first kept position of a stream's files.
pub fn kept_from(log: &Log, stream: usize) -> Lsn {
    log.manifest().streams[stream].kept_from
}
