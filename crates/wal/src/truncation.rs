//! Truncation: a checkpoint is adopted, and the log that the checkpoint covers goes. For a log
//! being written and for a mirror.
//!
//! Invariant: no file is removed or reused before the manifest durably stops naming the file.

use crate::Lsn;
use crate::base_files::Pins;
use crate::error::Error;
use crate::manifest::{Checkpoint, Covered, Manifest, part_name};
use crate::segment::{segment_path, stream_dir};
use crate::stream_id::StreamId;
use hyades_platform::broken;
use hyades_platform::device::Device;
use hyades_platform::event;
use std::path::{Path, PathBuf};

/// A stream of the newest incarnation.
#[derive(Debug)]
pub(crate) struct TruncatedLane {
    pub(crate) stream: StreamId,
    /// (sequence, start) of the begun segments; the last is being written.
    pub(crate) begun: Vec<(u64, Lsn)>,
    /// The stream's durable mark.
    pub(crate) mark: u64,
}

/// Segments that go.
#[derive(Debug)]
pub(crate) struct Gone {
    pub(crate) lane: usize,
    /// How many of the lane's begun segments go, from the first on.
    segments: usize,
    /// The first segment kept.
    kept: (u64, Lsn),
    pub(crate) paths: Vec<PathBuf>,
}

impl Gone {
    /// Takes the segments out of the lane's list of begun segments.
    pub(crate) fn take_from(&self, begun: &mut Vec<(u64, Lsn)>) {
        begun.drain(..self.segments);
        debug_assert_eq!(
            begun.first(),
            Some(&self.kept),
            "a segment that the manifest names is removed"
        );
    }
}

/// A change of the manifest, and what goes with the change.
#[derive(Debug)]
pub(crate) struct Truncation {
    before: Manifest,
    pub(crate) next: Manifest,
    gone: Vec<Gone>,
}

impl Truncation {
    /// A manifest that names the checkpoint, and neither the earlier incarnations nor the segments
    /// below the checkpoint's positions, and has the catalogue if given.
    pub(crate) fn plan(
        before: &Manifest,
        checkpoint: Checkpoint,
        catalogue: Option<Vec<u8>>,
        lanes: &[TruncatedLane],
    ) -> Self {
        let mut next = before.clone();
        keep_newest_incarnation(&mut next);
        let newest = next.newest().map(|newest| newest.number);
        assert_eq!(newest, Some(checkpoint.incarnation), "the checkpoint is of another run");
        assert!(
            before.checkpoint.as_ref().is_none_or(|old| old.number < checkpoint.number),
            "checkpoint {} has the files of an earlier one",
            checkpoint.number
        );
        let mut gone = Vec::new();
        for Covered { stream, from } in &checkpoint.streams {
            let Some(lane) = lanes.iter().position(|lane| lane.stream == *stream) else { continue };
            gone.extend(cut(&mut next, before, lane, &lanes[lane], *from));
        }
        next.checkpoint = Some(checkpoint);
        if let Some(catalogue) = catalogue {
            next.catalogue = catalogue;
        }
        // The truncated frames, or frames skipped from now on, may hold the last statement of a
        // stream's mark.
        if let Some(newest) = next.incarnations.last_mut() {
            for (dim, lane) in newest.dims.iter_mut().zip(lanes) {
                dim.mark = lane.mark;
            }
        }
        Truncation { before: before.clone(), next, gone }
    }

    /// Writes the manifest, then releases the files no longer named: `retire` takes the segments. A
    /// remaining file is a leftover, removed by the next opening. Files in the list of a base are
    /// removed with the list.
    pub(crate) fn carry_out(
        mut self,
        (device, pins): (&dyn Device, &Pins),
        manifest_dir: &Path,
        mut retire: impl FnMut(&Gone),
    ) -> Result<(), Error> {
        if broken!(TruncateBeforeManifest) {
            self.release(device, pins, &mut retire);
            return self.next.write(device, manifest_dir);
        }
        self.next.write(device, manifest_dir)?;
        self.release(device, pins, &mut retire);
        Ok(())
    }

    fn release(&mut self, device: &dyn Device, pins: &Pins, retire: &mut impl FnMut(&Gone)) {
        let Self { before, next, gone } = self;
        for gone in gone {
            event!(DEBUG, "segments truncated", lane = gone.lane, segments = gone.paths.len());
            if pins.is_pinned() {
                gone.paths.drain(..).for_each(|path| pins.remove(device, path));
            }
            retire(gone);
        }
        for stream in before.streams.iter().filter(|s| next.stream(s.id).is_none()) {
            let mut dims = next.incarnations.iter().flat_map(|incarnation| &incarnation.dims);
            let is_kept = dims.any(|dim| dim.stream == stream.id);
            debug_assert!(!is_kept, "an incarnation of the manifest needs stream {}", stream.id);
            let dir = stream_dir(&before.dirs[stream.dir], stream.id);
            for name in device.list(&dir).unwrap_or_default() {
                pins.remove(device, dir.join(name));
            }
        }
        if let Some(old) = &before.checkpoint {
            for (at, part) in old.parts.iter().enumerate() {
                let name = part_name(old.number, at);
                debug_assert!(!next.names_part(part.dir, &name), "the manifest still names {name}");
                pins.remove(device, before.dirs[part.dir].join(name));
            }
        }
    }

    /// How many bytes of frames go.
    pub(crate) fn bytes(&self) -> u64 {
        let kept = |manifest: &Manifest| -> u128 {
            let incarnations = manifest.incarnations.iter().flat_map(|i| &i.dims);
            incarnations
                .filter_map(|dim| {
                    let from = manifest.stream(dim.stream)?.kept_from.max(dim.start);
                    // A still open end counts the same in both manifests.
                    Some(u128::from(dim.end.unwrap_or(u64::MAX).saturating_sub(from)))
                })
                .sum()
        };
        kept(&self.before).saturating_sub(kept(&self.next)) as u64
    }
}

/// Takes the segments of a stream below `up_to` out of the manifest.
fn cut(
    next: &mut Manifest,
    before: &Manifest,
    lane: usize,
    segments: &TruncatedLane,
    up_to: Lsn,
) -> Option<Gone> {
    let begun = &segments.begun;
    // A segment can go if the next segment begins at or below the position.
    let n = begun.windows(2).take_while(|pair| pair[1].1 <= up_to).count();
    debug_assert!(n < begun.len().max(1), "the segment that is being written is truncated");
    let id = segments.stream;
    let (stream, old) = (next.stream_mut(id)?, before.stream(id)?);
    let &(sequence, start) = begun.get(n)?;
    if n == 0 || sequence <= stream.first_sequence {
        return None;
    }
    debug_assert!(start <= up_to, "frames from {up_to} to {start} are still needed");
    stream.first_sequence = sequence;
    stream.kept_from = stream.kept_from.max(start);
    let place = stream_dir(&before.dirs[old.dir], id);
    let gone = old.first_sequence..sequence;
    let paths = gone.map(|sequence| segment_path(&place, sequence)).collect();
    Some(Gone { lane, segments: n, kept: (sequence, start), paths })
}

/// Keeps only the newest incarnation and the streams of the incarnation.
fn keep_newest_incarnation(manifest: &mut Manifest) {
    let Some(newest) = manifest.incarnations.pop() else { return };
    manifest.streams.retain(|s| newest.dims.iter().any(|d| d.stream == s.id));
    manifest.incarnations = vec![newest];
}

impl Manifest {
    /// The number of the next checkpoint, and where its parts go: `parts` for each of the
    /// directories `given`.
    pub(crate) fn next_checkpoint(
        &self,
        parts: usize,
        given: &[PathBuf],
    ) -> (u64, Vec<(usize, PathBuf)>) {
        let number = self.checkpoint.as_ref().map_or(1, |c| c.number + 1);
        let dirs = self.dirs.iter().enumerate().filter(|(_, dir)| given.contains(dir));
        let part =
            |(part, (at, dir)): (usize, (usize, &PathBuf))| (at, dir.join(part_name(number, part)));
        let each = dirs.flat_map(|dir| std::iter::repeat_n(dir, parts));
        (number, each.enumerate().map(part).collect())
    }
}
