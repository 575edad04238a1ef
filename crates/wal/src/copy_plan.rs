//! What a copy of a log consists of: the files, each with the length that the copy needs.

use crate::Lsn;
use crate::error::Error;
use crate::format::{self, BATCH_HEADER, BatchHeader};
use crate::manifest::{
    FROM_LANES, Incarnation, MIRRORED, Manifest, Marker, Member, WholeTo, part_name,
};
use crate::segment::{Chain, Segment, segment_path, start_of, stream_dir};
use crate::stream_id::StreamId;
use hyades_platform::device::Device;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What a copy is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyKind {
    /// A database, which ends where the copy ends.
    Database,
    /// The first files of a member of a replicated database: the newest incarnation goes on.
    Base,
    /// The same, where the ends of the newest incarnation are recorded.
    EndedBase,
}

/// Where the content of a file of a copy comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CopiedFrom {
    /// The beginning of a file.
    File(PathBuf),
    Bytes(Vec<u8>),
}

/// A file of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlannedFile {
    /// Below the directory of the copy.
    pub(crate) name: String,
    pub(crate) length: u64,
    pub(crate) content: CopiedFrom,
}

/// The files of a copy, the manifest and the marker last.
#[derive(Debug)]
pub(crate) struct PlannedCopy {
    pub(crate) files: Vec<PlannedFile>,
    pub(crate) manifest: Manifest,
}

/// The log that is copied.
pub(crate) struct CopySource<'c> {
    pub(crate) device: &'c dyn Device,
    /// The location of each of the manifest's directories.
    pub(crate) places: &'c [Option<PathBuf>],
    /// By stream, the spare read in place of its last segment's tail (see `spare.rs`).
    pub(crate) spares: BTreeMap<StreamId, Segment>,
}

impl PlannedFile {
    fn of_file(name: String, path: PathBuf, length: u64) -> PlannedFile {
        PlannedFile { name, length, content: CopiedFrom::File(path) }
    }

    fn of_bytes(name: String, bytes: Vec<u8>) -> PlannedFile {
        PlannedFile { name, length: bytes.len() as u64, content: CopiedFrom::Bytes(bytes) }
    }
}

/// The name of a path below no directory.
fn name_of(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

impl CopySource<'_> {
    /// Plans a copy of the log with this manifest, which has the ends of all incarnations; `dir`:
    /// the directory of the copy.
    pub(crate) fn plan(
        &self,
        manifest: Manifest,
        kind: CopyKind,
        dir: &Path,
    ) -> Result<PlannedCopy, Error> {
        let mut files = Vec::new();
        if let Some(checkpoint) = &manifest.checkpoint {
            for (at, part) in checkpoint.parts.iter().enumerate() {
                let name = part_name(checkpoint.number, at);
                let from = self.place(&manifest, part.dir)?.join(&name);
                files.push(PlannedFile::of_file(name, from, part.bytes));
            }
        }
        self.streams(&manifest, &mut files)?;
        let manifest = copied_manifest(manifest, kind, dir);
        let marker = Marker { uuid: manifest.uuid.clone(), dir: 0 };
        for (name, text) in [manifest.as_file(dir), marker.as_file()] {
            files.push(PlannedFile::of_bytes(name.to_owned(), text.into_bytes()));
        }
        Ok(PlannedCopy { files, manifest })
    }

    fn place(&self, manifest: &Manifest, dir: usize) -> Result<&Path, Error> {
        self.places[dir].as_deref().ok_or_else(|| {
            Error::Invalid(format!(
                "the directory {} is missing: give it among the log directories",
                manifest.dirs[dir].display()
            ))
        })
    }

    fn streams(&self, manifest: &Manifest, files: &mut Vec<PlannedFile>) -> Result<(), Error> {
        for stream in &manifest.streams {
            let dims = manifest.incarnations.iter().flat_map(|i| &i.dims);
            let own_dims = dims.filter(|dim| dim.stream == stream.id);
            let end = own_dims.map(|dim| dim.end.unwrap_or(dim.start)).max().unwrap_or(0);
            let from = stream_dir(self.place(manifest, stream.dir)?, stream.id);
            let uuid = manifest.uuid();
            let (chain, error) =
                Chain::read(self.device, &from, stream.id, &uuid, stream.first_sequence);
            if let Some(error) = error {
                return Err(error);
            }
            let name = |sequence: u64| {
                name_of(&segment_path(&stream_dir(Path::new(""), stream.id), sequence))
            };
            // A segment too short for its first frame was passed over, and has not begun.
            let last = chain.segments.iter().rposition(|s| start_of(s) < end);
            let begun = chain.segments.iter().take(last.map_or(0, |last| last + 1));
            // The copy is synced before the finish, so a spare gets its final name in the copy.
            let begun: Vec<&Segment> = begun.chain(self.spares.get(&stream.id)).collect();
            if begun.is_empty() {
                let zeros = vec![0; manifest.block_bytes];
                files.push(PlannedFile::of_bytes(name(stream.first_sequence), zeros));
            }
            for (at, segment) in begun.iter().enumerate() {
                // The next segment takes over at its start.
                let mut next = begun[at + 1..].iter().map(|segment| start_of(segment));
                let limit = next.find(|start| *start < Lsn::MAX).unwrap_or(end);
                let (name, path) = (name(segment.sequence), segment.path.clone());
                files.push(PlannedFile::of_file(name, path, self.needed(&uuid, segment, limit)?));
            }
        }
        Ok(())
    }

    /// The length of a segment's part below `end`, including the batch that reaches `end`.
    fn needed(&self, uuid: &[u8; 16], segment: &Segment, end: Lsn) -> Result<u64, Error> {
        let Some(header) = &segment.header else { return Ok(segment.length) };
        let path = &segment.path;
        let file = self.device.open_read(path).map_err(Error::io(path, "open"))?;
        let block = u64::from(header.block_bytes);
        let mut at = format::header_bytes(header.block_bytes as usize) as u64;
        let mut bytes = [0; BATCH_HEADER];
        while at + BATCH_HEADER as u64 <= segment.length {
            let n = file.read_at(&mut bytes, at).map_err(Error::io(path, "read"))?;
            let batch = BatchHeader::decode(&bytes[..n], uuid, header.stream, header.incarnation);
            // Damage is found when the copy is read back.
            let Some(batch) = batch else { break };
            at = (at + BATCH_HEADER as u64 + u64::from(batch.length)).next_multiple_of(block);
            if batch.start + u64::from(batch.length) >= end {
                return Ok(at.min(segment.length));
            }
        }
        Ok(segment.length)
    }
}

/// The manifest of a copy.
fn copied_manifest(mut manifest: Manifest, kind: CopyKind, dir: &Path) -> Manifest {
    let mut dims = manifest.incarnations.iter().flat_map(|incarnation| &incarnation.dims);
    debug_assert!(dims.all(|dim| dim.end.is_some()), "a stream of the copy has no end");
    manifest.dirs = vec![dir.to_owned()];
    let member = manifest.member.take();
    if kind != CopyKind::Database {
        let seen = member.map_or_else(Vec::new, |member| member.seen);
        let newest = manifest.newest().map_or(&[][..], |newest| &newest.dims);
        // The files of a base are synced before they count, as no header of theirs can state.
        let whole = |dim: &crate::manifest::Dimension| WholeTo {
            stream: dim.stream,
            to: dim.end.unwrap_or(dim.start),
        };
        let whole = newest.iter().map(whole).collect();
        manifest.member = Some(Member { node: String::new(), seen, whole });
    }
    if kind == CopyKind::Base {
        manifest.incarnations.last_mut().into_iter().for_each(go_on);
    }
    manifest.streams.iter_mut().for_each(|stream| stream.dir = 0);
    let parts = manifest.checkpoint.iter_mut().flat_map(|c| &mut c.parts);
    parts.for_each(|part| part.dir = 0);
    manifest
}

/// Takes the ends of an incarnation back, which goes on in the copy: from the lanes.
fn go_on(newest: &mut Incarnation) {
    newest.clean = false;
    newest.dims.iter_mut().for_each(|dim| dim.end = None);
    newest.settings.insert(MIRRORED.into(), FROM_LANES.into());
}
