//! The archive of a log: a truncation copies the segments that go into a further directory first,
//! so an older backup can be restored to any later moment (`docs/format.md`, section 11).
//!
//! **Invariant.** A segment leaves the log only after the segment's copy and the archive's list are
//! durable. A crash in between leaves copies that the next truncation makes again.

use crate::Lsn;
use crate::error::Error;
use crate::file_copy::{PIECE, copy_bytes};
use crate::manifest::{
    Incarnation, MANIFEST, MARKER, Manifest, StreamEntry, seal_archive, unseal, write_atomically,
};
use crate::segment::{Chain, Segment, read_header, segment_path, sequence_of, stream_dir};
use crate::stream_id::StreamId;
use hyades_platform::device::{Device, DeviceFile};
use hyades_platform::{broken, event};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file with the list of an archive.
const LIST: &str = "ARCHIVE";

/// The content of the file `ARCHIVE`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ArchiveList {
    /// Identity, streams and incarnations as of the last truncation, with all earlier ones since
    /// the archive's beginning. The streams' positions are the archive's.
    pub(crate) manifest: Manifest,
    /// By stream, the end of the archived part.
    pub(crate) ends: BTreeMap<StreamId, Lsn>,
}

/// The archive of an open log.
pub(crate) struct Archive<'a> {
    device: &'a dyn Device,
    dir: &'a Path,
}

impl<'a> Archive<'a> {
    pub(crate) fn new(device: &'a dyn Device, dir: &'a Path) -> Self {
        Self { device, dir }
    }

    /// Refuses a directory that cannot be the archive of the log with this manifest.
    pub(crate) fn check(&self, manifest: &Manifest) -> Result<(), Error> {
        let Self { device, dir } = *self;
        for name in [MANIFEST, MARKER] {
            let path = dir.join(name);
            if device.exists(&path).map_err(Error::io(&path, "look for"))? {
                return Err(Error::Invalid(format!(
                    "{} is a log directory and cannot be the archive of a log: give a directory of \
                     its own",
                    dir.display()
                )));
            }
        }
        match read_list(device, dir)? {
            Some(list) if list.manifest.uuid != manifest.uuid => Err(Error::Invalid(format!(
                "{} is the archive of another database: give another directory",
                dir.display()
            ))),
            _ => Ok(()),
        }
    }

    /// Begins the archive, or notes where the last incarnation has ended: at an opening, before
    /// incarnations are forgotten that have no frames left.
    pub(crate) fn note(&self, manifest: &Manifest) -> Result<(), Error> {
        let mut list = self.list_for(manifest)?;
        list.take(manifest, manifest, self.dir);
        write_atomically(self.device, &self.dir.join(LIST), &seal_archive(&list))
    }

    /// The list, to go on with for this log.
    fn list_for(&self, manifest: &Manifest) -> Result<ArchiveList, Error> {
        let Self { device, dir } = *self;
        device.create_dir(dir).map_err(Error::io(dir, "create the directory"))?;
        self.check(manifest)?;
        let nothing =
            || Manifest { streams: Vec::new(), incarnations: Vec::new(), ..manifest.clone() };
        let list = read_list(device, dir)?;
        Ok(list.unwrap_or_else(|| ArchiveList { manifest: nothing(), ends: BTreeMap::new() }))
    }

    /// Copies the segments named by `before` and not by `next`.
    pub(crate) fn keep(&self, before: &Manifest, next: &Manifest) -> Result<(), Error> {
        self.keep_segments(before, next).map_err(|cause| Error::NotArchived(Box::new(cause)))
    }

    fn keep_segments(&self, before: &Manifest, next: &Manifest) -> Result<(), Error> {
        let Self { device, dir } = *self;
        let mut list = self.list_for(before)?;
        for stream in &before.streams {
            let goes = self.segments_that_go(before, next, stream)?;
            if !goes.is_empty() {
                self.copy_all(stream.id, &goes)?;
            }
        }
        list.take(before, next, dir);
        if broken!(ListAfterTruncation) {
            next.write(device, &next.dirs[0])?;
        }
        device.sync_dir(dir).map_err(Error::io(dir, "sync the directory"))?;
        write_atomically(device, &dir.join(LIST), &seal_archive(&list))
    }

    /// The begun segments of a stream that the next manifest does not name.
    fn segments_that_go(
        &self,
        before: &Manifest,
        next: &Manifest,
        stream: &StreamEntry,
    ) -> Result<Vec<Segment>, Error> {
        let (place, uuid) = (stream_dir(&before.dirs[stream.dir], stream.id), before.uuid());
        match next.stream(stream.id) {
            Some(kept) => (stream.first_sequence..kept.first_sequence)
                .map(|sequence| {
                    let path = segment_path(&place, sequence);
                    read_header(self.device, path, stream.id, &uuid, sequence)
                })
                .collect(),
            None => {
                let first = stream.first_sequence;
                let (chain, error) = Chain::read(self.device, &place, stream.id, &uuid, first);
                error.map_or(Ok(()), Err)?;
                Ok(chain.segments.into_iter().filter(|segment| segment.header.is_some()).collect())
            }
        }
    }

    fn copy_all(&self, stream: StreamId, segments: &[Segment]) -> Result<(), Error> {
        let Self { device, dir } = *self;
        let place = stream_dir(dir, stream);
        device.create_dir(&place).map_err(Error::io(&place, "create the directory"))?;
        for segment in segments {
            let path = segment_path(&place, segment.sequence);
            let source = device.open_read(&segment.path);
            let source = source.map_err(Error::io(&segment.path, "open"))?;
            if device.exists(&path).map_err(Error::io(&path, "look for"))? {
                self.check_same((&source, segment), &path)?;
                continue;
            }
            let temporary = path.with_extension("tmp");
            let target = device.create(&temporary, 0).map_err(Error::io(&temporary, "create"))?;
            copy_bytes((&source, &segment.path), (&target, &temporary), segment.length)?;
            if !broken!(ArchiveUnsynced) {
                target.sync_data().map_err(Error::io(&temporary, "sync"))?;
            }
            device.rename(&temporary, &path).map_err(Error::io(&path, "rename a copy to"))?;
        }
        device.sync_dir(&place).map_err(Error::io(&place, "sync the directory"))
    }

    /// Checks a copy made before a crash. Another content is of another course of the database.
    fn check_same(
        &self,
        (source, segment): (&Arc<dyn DeviceFile>, &Segment),
        path: &Path,
    ) -> Result<(), Error> {
        let copy = self.device.open_read(path).map_err(Error::io(path, "open"))?;
        let mut pieces = [vec![0; PIECE], vec![0; PIECE]];
        for at in (0..segment.length).step_by(PIECE) {
            let [ours, theirs] = &mut pieces;
            let n = source.read_at(ours, at).map_err(Error::io(&segment.path, "read"))?;
            let m = copy.read_at(theirs, at).map_err(Error::io(path, "read"))?;
            if ours[..n] != theirs[..m] {
                return Err(Error::corrupt(
                    path,
                    at,
                    format!(
                        "the archive holds another segment under the name of {}: the archive is \
                         of another copy of this database, so give another directory",
                        segment.path.display()
                    ),
                ));
            }
        }
        Ok(())
    }
}

/// The list of an archive; None if the directory has none.
pub(crate) fn read_list(device: &dyn Device, dir: &Path) -> Result<Option<ArchiveList>, Error> {
    let path = dir.join(LIST);
    if !device.exists(&path).map_err(Error::io(&path, "look for"))? {
        return Ok(None);
    }
    let bytes = device.read_small(&path).map_err(Error::io(&path, "read"))?;
    let list: ArchiveList = unseal(&path, &bytes)?;
    list.manifest.check(&path)?;
    Ok(Some(list))
}

/// Refuses to open an archive as a log.
pub(crate) fn refuse(device: &dyn Device, dir: &Path) -> Result<(), Error> {
    let path = dir.join(LIST);
    match device.exists(&path).map_err(Error::io(&path, "look for"))? {
        false => Ok(()),
        true => Err(Error::Invalid(format!(
            "{} is the archive of a log, and no log: recover from a backup with \
             `hyades recover BACKUP --archive {0} --log DIR --out NEW`",
            dir.display()
        ))),
    }
}

impl ArchiveList {
    /// Notes a truncation: everything that `before` names, and the parts of streams that go.
    fn take(&mut self, before: &Manifest, next: &Manifest, dir: &Path) {
        let Self { manifest, ends } = self;
        for stream in &before.streams {
            let end = match next.stream(stream.id) {
                Some(kept) => kept.kept_from,
                None => last_end(before, stream.id),
            };
            let archived = ends.insert(stream.id, end);
            let entry = StreamEntry { dir: 0, ..stream.clone() };
            match manifest.stream_mut(stream.id) {
                None => manifest.streams.push(entry),
                // Truncated without the archive meanwhile: what was archived before is of no use.
                Some(known)
                    if archived.is_some_and(|end| end < stream.kept_from)
                        && !broken!(KeepBehindGap) =>
                {
                    let (stream, from) = (stream.id.0, archived.unwrap_or(0));
                    event!(WARN, "archive has a gap", stream = stream, from = from);
                    *known = entry;
                }
                Some(_) => {}
            }
        }
        // The end of an incarnation is unknown if the log was opened without the archive then.
        let has_end = |known: &Incarnation| {
            let is_named = before.incarnations.iter().any(|named| named.number == known.number);
            is_named || known.dims.iter().all(|dim| dim.end.is_some())
        };
        let lost = manifest.incarnations.iter().rposition(|known| !has_end(known));
        if let Some(lost) = lost {
            let number = manifest.incarnations[lost].number;
            event!(WARN, "archive has a gap", incarnation = number);
            manifest.incarnations.drain(..=lost);
        }
        for incarnation in &before.incarnations {
            manifest.incarnations.retain(|known| known.number != incarnation.number);
            manifest.incarnations.push(incarnation.clone());
        }
        manifest.incarnations.sort_by_key(|incarnation| incarnation.number);
        manifest.dirs = vec![dir.to_owned()];
        manifest.checkpoint = None;
        manifest.block_bytes = before.block_bytes;
        manifest.next_stream = before.next_stream;
        manifest.next_incarnation = before.next_incarnation;
        manifest.epoch_floor = before.epoch_floor;
        manifest.catalogue.clone_from(&before.catalogue);
    }
}

/// The end of a stream that no open incarnation uses.
fn last_end(manifest: &Manifest, stream: StreamId) -> Lsn {
    let dims = manifest.incarnations.iter().flat_map(|incarnation| &incarnation.dims);
    let own = dims.filter(|dim| dim.stream == stream);
    own.map(|dim| dim.end.unwrap_or(dim.start)).max().unwrap_or(0)
}

/// The counts of [`prune_archive`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruned {
    /// The number of segments removed.
    pub files: u64,
    /// Their total size in bytes.
    pub bytes: u64,
}

/// Removes from an archive the segments not needed to recover from a backup, or from later ones.
/// `backup` is the manifest of the oldest backup still to be recovered from.
///
/// # Errors
/// The directory is no archive, or another database's; a file could not be removed. What is left
/// serves.
pub fn prune_archive(
    device: &dyn Device,
    archive: &Path,
    backup: &Manifest,
) -> Result<Pruned, Error> {
    let Some(mut list) = read_list(device, archive)? else { return Err(no_archive(archive)) };
    check_same_database(&list.manifest, backup, archive)?;
    let first = backup.incarnations.first().map_or(0, |first| first.number);
    list.manifest.incarnations.retain(|incarnation| incarnation.number >= first);
    let (mut gone, mut kept) = (Vec::new(), Vec::new());
    for mut stream in std::mem::take(&mut list.manifest.streams) {
        let mut dims = list.manifest.incarnations.iter().flat_map(|i| &i.dims);
        let is_used = dims.any(|dim| dim.stream == stream.id);
        if let Some(own) = backup.stream(stream.id)
            && own.first_sequence > stream.first_sequence
        {
            stream = StreamEntry { dir: 0, ..own.clone() };
        }
        let first = if is_used { stream.first_sequence } else { u64::MAX };
        gone.extend(segments_below(device, &stream_dir(archive, stream.id), first)?);
        match is_used {
            true => kept.push(stream),
            false => _ = list.ends.remove(&stream.id),
        }
    }
    list.manifest.streams = kept;
    // The list first: what stays behind after a crash is not named.
    write_atomically(device, &archive.join(LIST), &seal_archive(&list))?;
    let mut pruned = Pruned::default();
    for path in gone {
        let file = device.open_read(&path).map_err(Error::io(&path, "open"))?;
        let bytes = file.len().map_err(Error::io(&path, "measure"))?;
        device.remove(&path).map_err(Error::io(&path, "remove"))?;
        pruned.files += 1;
        pruned.bytes += bytes;
    }
    Ok(pruned)
}

/// The files of a stream's directory with segments below `first`.
fn segments_below(device: &dyn Device, dir: &Path, first: u64) -> Result<Vec<PathBuf>, Error> {
    if !device.exists(dir).map_err(Error::io(dir, "look for"))? {
        return Ok(Vec::new());
    }
    let names = device.list(dir).map_err(Error::io(dir, "list"))?;
    let is_below = |name: &String| sequence_of(name).is_some_and(|sequence| sequence < first);
    Ok(names.into_iter().filter(is_below).map(|name| dir.join(name)).collect())
}

/// The error for a directory without the list of an archive.
pub(crate) fn no_archive(dir: &Path) -> Error {
    Error::Invalid(format!(
        "{} is no archive of a log: no file {LIST} is there. An archive begins when a log is \
         opened with it",
        dir.display()
    ))
}

/// Refuses files of another database.
pub(crate) fn check_same_database(
    found: &Manifest,
    wanted: &Manifest,
    dir: &Path,
) -> Result<(), Error> {
    match found.uuid == wanted.uuid {
        true => Ok(()),
        false => Err(Error::Invalid(format!(
            "{} belongs to another database than the backup: give the directories of one",
            dir.display()
        ))),
    }
}
