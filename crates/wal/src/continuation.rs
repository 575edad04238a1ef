//! A log read on from a copy: the segments of the copy, of the archive, and of the log itself, as
//! one log.
//!
//! The streams of a database are the same in all its copies, and a segment is the same under its
//! number, up to the end of the copy. So the later source replaces the segments, the incarnations
//! and their ends of the earlier one.

use crate::archive::{ArchiveList, check_same_database, no_archive, read_list};
use crate::error::Error;
use crate::manifest::{Incarnation, Manifest, StreamEntry};
use crate::open::{Recovering, open_read};
use crate::options::LogOptions;
use crate::segment::{Chain, Segment, stream_dir};
use crate::stream_id::StreamId;
use crate::verdict::usable;
use hyades_platform::broken;
use hyades_platform::device::Device;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a log goes on that a copy begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Continuation {
    /// The archive ([`LogOptions::archive`]).
    pub archive: Option<PathBuf>,
    /// All directories of the log itself, or of a later copy; none if lost. The log must not be
    /// open.
    pub log: Vec<PathBuf>,
}

/// A later part of a log.
struct Source<'s> {
    dir: &'s Path,
    manifest: Manifest,
    chains: BTreeMap<StreamId, Chain>,
}

/// The log put together so far.
struct Joined {
    log: Recovering,
    /// The newest incarnation of the copy, with the ends of the copy.
    copied: Option<Incarnation>,
    /// The streams whose last segment is whole. A copy ends within a segment.
    whole: BTreeSet<StreamId>,
}

/// Opens a copy of a log for reading, with everything that `later` holds of the same log. Ends with
/// the log; or with the archived segments where the log is lost, as after a crash there.
///
/// # Errors
/// As [`open_read`]; the directories are of several databases; a part is missing in between.
pub fn open_continued(options: LogOptions, later: &Continuation) -> Result<Recovering, Error> {
    let log = open_read(options)?;
    let copied = log.manifest.newest().cloned();
    let mut joined = Joined { log, copied, whole: BTreeSet::new() };
    let mut archived = None;
    if let Some(dir) = &later.archive {
        let device = Arc::clone(joined.log.device());
        let list = read_list(&*device, dir)?.ok_or_else(|| no_archive(dir))?;
        check_same_database(&list.manifest, &joined.log.manifest, dir)?;
        let chains = archived_chains(&*device, &list, dir)?;
        let archived_streams: Vec<StreamId> = chains.keys().copied().collect();
        joined.go_on(Source { dir, manifest: list.manifest.clone(), chains })?;
        joined.whole.extend(archived_streams);
        archived = Some(list);
    }
    if let Some(dir) = later.log.first() {
        let mut options = LogOptions::new(later.log.clone(), 1);
        options.device = Arc::clone(joined.log.device());
        let newest = open_read(options)?;
        check_same_database(&newest.manifest, &joined.log.manifest, dir)?;
        let Recovering { manifest, chains, locks, .. } = newest;
        joined.log.locks.extend(locks);
        joined.go_on(Source { dir, manifest, chains })?;
    } else if let Some(list) = archived {
        joined.end_with_archive(&list)?;
    }
    let Joined { log, .. } = joined;
    let checked = log.manifest.check(&log.manifest_dir);
    debug_assert!(checked.is_ok(), "parts of one log make no log: {checked:?}");
    checked.map(|()| log)
}

/// The archived segments of each stream that has one.
fn archived_chains(
    device: &dyn Device,
    list: &ArchiveList,
    dir: &Path,
) -> Result<BTreeMap<StreamId, Chain>, Error> {
    let mut chains = BTreeMap::new();
    for stream in &list.manifest.streams {
        // Of a stream, no segment may have been truncated yet.
        if list.ends.get(&stream.id).is_none_or(|end| *end <= stream.kept_from) {
            continue;
        }
        let (place, uuid) = (stream_dir(dir, stream.id), list.manifest.uuid());
        let (chain, error) = Chain::read(device, &place, stream.id, &uuid, stream.first_sequence);
        error.map_or(Ok(()), Err)?;
        chains.insert(stream.id, chain);
    }
    Ok(chains)
}

/// The error for a missing part.
fn gap(dir: &Path, what: &str) -> Error {
    Error::Invalid(format!(
        "{what} is missing between the copy and {}: the log was truncated there without an \
         archive, so take a later backup, or an earlier moment without this directory",
        dir.display()
    ))
}

impl Joined {
    /// Takes over what a later source holds.
    fn go_on(&mut self, source: Source<'_>) -> Result<(), Error> {
        let Source { dir, manifest, mut chains } = source;
        let own = &mut self.log.manifest;
        let last = own.newest().map_or(0, |newest| newest.number);
        take_incarnations(&mut own.incarnations, manifest.incarnations, dir)?;
        own.block_bytes = manifest.block_bytes;
        own.next_stream = own.next_stream.max(manifest.next_stream);
        own.next_incarnation = own.next_incarnation.max(manifest.next_incarnation);
        own.epoch_floor = own.epoch_floor.max(manifest.epoch_floor);
        own.catalogue = manifest.catalogue;
        for stream in manifest.streams {
            let id = stream.id;
            let is_used = |i: &Incarnation| i.dims.iter().any(|dim| dim.stream == id);
            if !own.incarnations.iter().any(is_used) {
                continue;
            }
            if own.stream(id).is_none() {
                own.streams.push(StreamEntry { dir: 0, ..stream });
            }
            let held = self.log.chains.entry(id).or_default();
            if let Some(chain) = chains.remove(&id) {
                join(held, chain, self.whole.contains(&id))
                    .map_err(|first| gap(dir, &format!("what is before segment {first}")))?;
            }
        }
        for dim in own.incarnations.iter().filter(|i| i.number > last).flat_map(|i| &i.dims) {
            if own.stream(dim.stream).is_none_or(|entry| entry.kept_from > dim.start) {
                return Err(gap(dir, &format!("the beginning of log stream {}", dim.stream)));
            }
        }
        Ok(())
    }

    /// Ends the newest incarnation where the archive, or the copy, ends. No anchor below the ends
    /// states more.
    fn end_with_archive(&mut self, list: &ArchiveList) -> Result<(), Error> {
        let Some(newest) = self.log.manifest.incarnations.last_mut() else { return Ok(()) };
        let number = newest.number;
        for (lane, dim) in newest.dims.iter_mut().enumerate() {
            let copied = self.copied.as_ref().filter(|copied| copied.number == number);
            let copied = copied.and_then(|copied| copied.dims[lane].end).unwrap_or(dim.start);
            let archived = list.ends.get(&dim.stream).copied().unwrap_or(dim.start);
            dim.end.get_or_insert(archived.max(copied).max(dim.start));
        }
        let (mut ends, mut anchors) = (Vec::new(), Vec::new());
        for mut reader in self.log.readers().into_iter().filter(|r| r.incarnation == number) {
            let (end, stated) = reader.read_anchors()?;
            ends.push(end.valid_to);
            anchors.push(stated);
        }
        let anchors: Vec<_> = anchors.iter().map(Vec::as_slice).collect();
        if let Some(newest) = self.log.manifest.incarnations.last_mut() {
            newest.clean = true;
            let ends = usable(ends, &anchors);
            newest.dims.iter_mut().zip(ends).for_each(|(dim, end)| dim.end = Some(end));
        }
        Ok(())
    }
}

/// Replaces and adds incarnations, from the first of the copy on.
fn take_incarnations(
    own: &mut Vec<Incarnation>,
    later: Vec<Incarnation>,
    dir: &Path,
) -> Result<(), Error> {
    let first = own.first().map_or(0, |first| first.number);
    for incarnation in later.into_iter().filter(|incarnation| incarnation.number >= first) {
        own.retain(|known| known.number != incarnation.number);
        own.push(incarnation);
    }
    own.sort_by_key(|incarnation| incarnation.number);
    let missing = own.windows(2).find(|pair| pair[0].number + 1 != pair[1].number);
    match missing {
        None => Ok(()),
        Some(pair) => Err(gap(dir, &format!("incarnation {}", pair[0].number + 1))),
    }
}

/// Joins the segments of a stream. The error is the first segment of `later`, if there is a gap.
fn join(held: &mut Chain, later: Chain, is_whole: bool) -> Result<(), u64> {
    let last = held.last_started().map(|segment| segment.sequence + u64::from(is_whole));
    let Some(first) = later.segments.first().map(|segment| segment.sequence) else {
        return Ok(());
    };
    if last.is_some_and(|last| first > last) && !broken!(JoinOverGap) {
        return Err(first);
    }
    let mut segments: BTreeMap<u64, Segment> =
        held.segments.drain(..).map(|segment| (segment.sequence, segment)).collect();
    for segment in later.segments {
        if segment.header.is_some() || !segments.contains_key(&segment.sequence) {
            segments.insert(segment.sequence, segment);
        }
    }
    held.segments = segments.into_values().collect();
    held.spare = later.spare;
    Ok(())
}
