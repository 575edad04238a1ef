//! A second copy of a stream's recovered tail: who opened the log had made it, and died before it had
//! its name (`start.rs`).
//!
//! The copy is whole or of no use. One that is whole is read in place of the original, which may have
//! lost meanwhile what was in the page cache only, or have rotted where nothing vouches for it. It
//! need not be durable either: who opens the log now copies it again, and what it states of its own
//! stream counts for nothing.

use crate::error::Error;
use crate::manifest::{Dimension, Manifest, StreamEntry};
use crate::reader::StreamReader;
use crate::segment::{Chain, Segment, read_header};
use hyades_platform::device::Device;
use std::path::PathBuf;
use std::sync::Arc;

/// Looks for one that goes on where the stream's last segment does.
pub(crate) fn find(
    device: &Arc<dyn Device>,
    manifest: &Manifest,
    stream: &StreamEntry,
    chain: &Chain,
) -> Result<Option<Segment>, Error> {
    let Some(newest) = manifest.newest() else { return Ok(None) };
    let is_open = |dim: &Dimension| dim.stream == stream.id && dim.end.is_none();
    let (Some(lane), Some(last)) = (newest.dims.iter().position(is_open), chain.last_begun())
    else {
        return Ok(None);
    };
    // Old segments, which have no extension, are left over as well.
    for path in chain.leftovers.iter().filter(|path| path.extension().is_some()) {
        let sequence = last.sequence + 1;
        // One of another version or another database is none: that is judged by files that have their names.
        let found = read_header(&**device, path.clone(), stream.id, &manifest.uuid(), sequence);
        let segment = match found {
            Ok(segment) => Segment { spare: true, ..segment },
            Err(error @ Error::Io { .. }) => return Err(error),
            Err(_) => continue,
        };
        let Some(header) = &segment.header else { continue };
        let (start, end) = (header.start, header.durable);
        if header.incarnation != newest.number || start >= end {
            continue;
        }
        let alone = Chain { segments: vec![segment.clone()], ..Chain::default() };
        let device = Arc::clone(device);
        let mut reader = StreamReader::new(device, manifest, newest, lane, PathBuf::new(), &alone);
        reader.stop_at(end);
        reader.skip_to(start);
        while reader.next_chunk()?.is_some() {}
        if reader.valid_to() == end {
            return Ok(Some(segment));
        }
    }
    Ok(None)
}
