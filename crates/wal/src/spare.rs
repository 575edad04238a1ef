//! A spare: a copy of a stream's recovered tail still under a temporary name, because the writing
//! process died during the opening before the renaming (`start.rs`).
//!
//! A spare is used only if whole. The spare is then read in place of the original: the original may
//! since have lost bytes held only in the page cache, or have rotted where no durable statement
//! covers the bytes. The spare need not be durable either: the opening copies the spare again, and
//! the spare's statements about its own stream do not count.

use crate::error::Error;
use crate::manifest::{Dimension, Manifest, StreamEntry};
use crate::reader::StreamReader;
use crate::segment::{Chain, Segment, read_header};
use hyades_platform::device::Device;
use std::path::PathBuf;
use std::sync::Arc;

/// Finds a spare that continues the stream's last begun segment.
pub(crate) fn find(
    device: &Arc<dyn Device>,
    manifest: &Manifest,
    stream: &StreamEntry,
    chain: &Chain,
) -> Result<Option<Segment>, Error> {
    let Some(newest) = manifest.newest() else { return Ok(None) };
    let is_open = |dim: &Dimension| dim.stream == stream.id && dim.end.is_none();
    let (Some(lane), Some(last)) = (newest.dims.iter().position(is_open), chain.last_started())
    else {
        return Ok(None);
    };
    // Leftovers without an extension are old segments.
    for path in chain.leftovers.iter().filter(|path| path.extension().is_some()) {
        let sequence = last.sequence + 1;
        // A wrong version or database is not an error here; only under final names are files
        // checked for both.
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
