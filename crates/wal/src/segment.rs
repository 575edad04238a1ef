//! Segment files: names, reading of headers, and preparing new segments ahead of need.

use crate::Lsn;
use crate::error::Error;
use crate::format::{NotAHeader, SEGMENT_HEADER_MAX, SegmentHeader};
use crate::stream_id::StreamId;
use hyades_platform::device::{Device, DeviceFile};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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

/// The sequence number of a segment's file name.
pub(crate) fn sequence_of(name: &str) -> Option<u64> {
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
    /// Whether the segment has only a temporary name, and may be in the page cache only (see
    /// `spare.rs`).
    pub(crate) spare: bool,
}

/// The segments of a stream, in order, and the removable files.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    pub(crate) segments: Vec<Segment>,
    pub(crate) leftovers: Vec<PathBuf>,
    /// A leftover: a copy of the last segment's frames beyond the proven end.
    pub(crate) spare: Option<Segment>,
    /// Whether the chain ends where a segment is missing or unreadable.
    pub(crate) broken: bool,
}

impl Chain {
    /// Reads the headers in a stream's directory. `first` is the first required sequence number.
    /// Anything missing or unreadable is an error and ends the chain.
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
            return Err(Error::Version {
                path,
                found: u64::from(version),
                newest: crate::format::VERSION,
            });
        }
        // A recycled or new file: not begun.
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

/// An existing segment, zero-filled or recycled, with a durable name, not begun.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) path: PathBuf,
    pub(crate) sequence: u64,
    pub(crate) length: u64,
    pub(crate) file: Arc<dyn DeviceFile>,
}

/// Makes a segment that has not begun, from a file of zeros made by `create`.
pub(crate) fn prepare(
    device: &dyn Device,
    dir: &Path,
    sequence: u64,
    length: u64,
    create: impl FnOnce(&Path) -> io::Result<Arc<dyn DeviceFile>>,
) -> Result<Prepared, Error> {
    let path = segment_path(dir, sequence);
    let temporary = path.with_extension("tmp");
    let file = create(&temporary).map_err(Error::io(&temporary, "create"))?;
    file.sync_data().map_err(Error::io(&temporary, "sync"))?;
    device.rename(&temporary, &path).map_err(Error::io(&path, "rename a new segment to"))?;
    device.sync_dir(dir).map_err(Error::io(dir, "sync the directory"))?;
    Ok(Prepared { path, sequence, length, file })
}

/// The first LSN of the stream in a segment; the maximum if the segment has not begun.
pub(crate) fn start_of(segment: &Segment) -> Lsn {
    segment.header.as_ref().map_or(Lsn::MAX, |h| h.start)
}
