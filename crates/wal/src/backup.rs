//! Copies of a log, in use or not: a copy opens as the log itself would have (`docs/format.md`,
//! section 11).

use crate::Lsn;
use crate::base_files::{BaseFiles, Pins};
use crate::copy_plan::{CopiedFrom, CopyKind, CopySource, PlannedCopy};
use crate::error::Error;
use crate::file_copy::copy_bytes;
use crate::log::{Log, Shared};
use crate::manifest::{Incarnation, Manifest, Seen};
use crate::open::Recovering;
use crate::options::LogOptions;
use crate::segment::{Chain, Segment};
use crate::stream_id::StreamId;
use crate::unfinished::Unfinished;
use crate::verdict::Verdict;
use hyades_platform::device::Device;
use hyades_platform::sync::locked;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The counts of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Copied {
    /// The number of files.
    pub files: u64,
    /// The total size of the files in bytes.
    pub bytes: u64,
}

impl Log {
    /// Copies everything durable now: the checkpoint, and the streams up to the frontier. Includes
    /// each transaction acknowledged before the call. Transactions continue; the adoption of
    /// checkpoints and truncation wait. The copy is read back and checked.
    ///
    /// # Errors
    /// The log has stopped; a file could not be copied, or is damaged. The log is not affected.
    pub fn backup(&self, to: &Unfinished) -> Result<Copied, Error> {
        self.copy(to, CopyKind::Database)
    }

    /// Like [`backup`](Self::backup), for a new member of a database with a replicated log: the
    /// copy is opened with [`Mirror::open`](crate::Mirror::open), and goes on in the incarnation.
    ///
    /// # Errors
    /// As [`backup`](Self::backup).
    pub fn base(&self, to: &Unfinished) -> Result<Copied, Error> {
        self.copy(to, CopyKind::Base)
    }

    /// The files of a [`base`](Self::base), to be read while the log goes on. `seen`: where the
    /// reading of the lanes may go on, for the manifest.
    ///
    /// # Errors
    /// The log has stopped; or a segment could not be looked at.
    pub fn base_files(&self, seen: Vec<Seen>) -> Result<BaseFiles, Error> {
        let _kept = self.keep_files();
        let mut manifest = self.manifest_as_copied()?;
        manifest.member.get_or_insert_default().seen = seen;
        let places: Vec<_> = manifest.dirs.iter().cloned().map(Some).collect();
        let device = self.device();
        let source = CopySource { device: &**device, places: &places, spares: BTreeMap::new() };
        let planned = source.plan(manifest, CopyKind::Base, Path::new("."))?;
        Ok(BaseFiles::new(planned.files, self.handle.pins.pin(device)))
    }

    fn copy(&self, to: &Unfinished, kind: CopyKind) -> Result<Copied, Error> {
        let _kept = self.keep_files();
        let manifest = self.manifest_as_copied()?;
        let places: Vec<_> = manifest.dirs.iter().cloned().map(Some).collect();
        copy(&**self.device(), &places, (manifest, kind), BTreeMap::new(), to)
    }

    /// The manifest with the ends of what is durable now.
    fn manifest_as_copied(&self) -> Result<Manifest, Error> {
        if let Some(cause) = self.poisoned() {
            return Err(cause.into());
        }
        let mut manifest = self.manifest();
        // The marks first: then the frames that state the marks are below the ends.
        for (lane, dim) in
            manifest.incarnations.last_mut().into_iter().flat_map(|i| &mut i.dims).enumerate()
        {
            dim.mark = self.frontier().mark(lane);
        }
        // The rule `admits` decides the liveness of the records up to there.
        let ends = self.handle.shared.durable_positions();
        end_newest(&mut manifest, &ends);
        Ok(manifest)
    }
}

impl Shared {
    /// The durable positions of all streams, as if after a crash: no anchor below these positions
    /// states more of a stream than its position here. Records leave out positions covered by the
    /// anchor, so a record behind such an anchor would be dead, and a record with a read from it
    /// live.
    fn durable_positions(&self) -> Vec<Lsn> {
        // No anchor is placed meanwhile. Earlier anchors state positions durable by then, and later
        // anchors are behind the positions durable now.
        let placing: Vec<_> = self.streams.iter().map(|stream| locked(&stream.anchors)).collect();
        let mut positions = vec![0; self.streams.len()];
        self.frontier.load_into(&mut positions);
        drop(placing);
        positions
    }
}

impl Recovering {
    /// Copies the whole log, up to the ends found by the verdict. The copy is read back and
    /// checked.
    ///
    /// # Errors
    /// A file could not be copied.
    pub fn backup(&self, verdict: &Verdict, to: &Unfinished) -> Result<Copied, Error> {
        let mut manifest = self.manifest().clone();
        if let (Some(end), Some(newest)) = (verdict.ends().last(), manifest.incarnations.last_mut())
        {
            // A checkpoint in the copy may reach to the end, so that no mark is read again.
            let open = newest.dims.iter_mut().zip(&end.marks).filter(|(dim, _)| dim.end.is_none());
            open.for_each(|(dim, &mark)| dim.mark = dim.mark.max(mark));
            end_newest(&mut manifest, &end.ends);
        }
        let spare = |(id, chain): (&StreamId, &Chain)| Some((*id, chain.spare.clone()?));
        let spares = self.chains.iter().filter_map(spare).collect();
        copy(&**self.device(), &self.places, (manifest, CopyKind::Database), spares, to)
    }

    /// Copies the files of a mirror, up to `ends` in the newest incarnation, as a base.
    pub(crate) fn base(&self, ends: &[Lsn], to: &Unfinished) -> Result<Copied, Error> {
        let (manifest, kind) = self.base_manifest(ends);
        copy(&**self.device(), &self.places, (manifest, kind), BTreeMap::new(), to)
    }

    /// The files of a base of a mirror, see [`Mirror::base_files`](crate::Mirror::base_files).
    pub(crate) fn base_files(
        &self,
        ends: &[Lsn],
        seen: Vec<Seen>,
        pins: &Pins,
    ) -> Result<BaseFiles, Error> {
        let (mut manifest, kind) = self.base_manifest(ends);
        manifest.member.get_or_insert_default().seen = seen;
        let device = self.device();
        let (places, spares) = (&self.places[..], BTreeMap::new());
        let source = CopySource { device: &**device, places, spares };
        let planned = source.plan(manifest, kind, Path::new("."))?;
        Ok(BaseFiles::new(planned.files, pins.pin(device)))
    }

    fn base_manifest(&self, ends: &[Lsn]) -> (Manifest, CopyKind) {
        let mut manifest = self.manifest().clone();
        let is_open = |i: &Incarnation| i.dims.iter().any(|dim| dim.end.is_none());
        let kind = match manifest.newest().is_some_and(is_open) {
            true => CopyKind::Base,
            false => CopyKind::EndedBase,
        };
        end_newest(&mut manifest, ends);
        (manifest, kind)
    }
}

fn end_newest(manifest: &mut Manifest, ends: &[Lsn]) {
    if let Some(newest) = manifest.incarnations.last_mut() {
        newest.clean = true;
        debug_assert_eq!(newest.dims.len(), ends.len(), "the ends are of another incarnation");
        for (dim, &end) in newest.dims.iter_mut().zip(ends) {
            dim.end.get_or_insert(end);
        }
    }
}

fn copy(
    device: &dyn Device,
    places: &[Option<PathBuf>],
    (manifest, kind): (Manifest, CopyKind),
    spares: BTreeMap<StreamId, Segment>,
    to: &Unfinished,
) -> Result<Copied, Error> {
    let source = CopySource { device, places, spares };
    let planned = source.plan(manifest, kind, &to.dir)?;
    let copied = write(device, &planned, to)?;
    check(&planned.manifest, to)?;
    Ok(copied)
}

/// Writes the planned files, the manifest and the marker last.
fn write(device: &dyn Device, planned: &PlannedCopy, to: &Unfinished) -> Result<Copied, Error> {
    let mut copied = Copied::default();
    let mut dirs = BTreeSet::new();
    for file in &planned.files {
        let path = to.dir.join(&file.name);
        let dir = path.parent().unwrap_or(&to.dir).to_owned();
        if dir != to.dir && dirs.insert(dir.clone()) {
            to.device.create_dir(&dir).map_err(Error::io(&dir, "create the directory"))?;
        }
        match &file.content {
            CopiedFrom::File(from) => {
                let source = device.open_read(from).map_err(Error::io(from, "open"))?;
                let target = to.device.create(&path, 0).map_err(Error::io(&path, "create"))?;
                copy_bytes((&source, from), (&target, &path), file.length)?;
                target.sync_data().map_err(Error::io(&path, "sync"))?;
                copied.files += 1;
                copied.bytes += file.length;
            }
            CopiedFrom::Bytes(bytes) => {
                to.device.write_small(&path, bytes).map_err(Error::io(&path, "write"))?;
            }
        }
    }
    for dir in dirs {
        to.device.sync_dir(&dir).map_err(Error::io(&dir, "sync the directory"))?;
    }
    to.device.sync_dir(&to.dir).map_err(Error::io(&to.dir, "sync the directory"))?;
    Ok(copied)
}

/// Checks a backup by reading the whole copy.
fn check(manifest: &Manifest, to: &Unfinished) -> Result<(), Error> {
    let lanes = manifest.newest().map_or(1, |newest| newest.dims.len());
    let copy = to.open(LogOptions::new(Vec::new(), lanes))?;
    let mut ends = Vec::new();
    for mut reader in copy.readers() {
        while reader.next_chunk()?.is_some() {}
        ends.push(reader.end());
    }
    copy.verdict(&ends).map(drop)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::frame::FrameKind;
    use crate::manifest::IncarnationSettings;
    use crate::open::open;
    use std::time::{Duration, Instant};

    #[test]
    fn no_anchor_is_placed_while_the_ends_of_a_backup_are_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = LogOptions::new(vec![dir.path().to_owned()], 2);
        options.segment_bytes = 1 << 16;
        options.stepped = true;
        let recovering = open(options).unwrap();
        let verdict = recovering.verdict(&[]).unwrap();
        let log = recovering.start(IncarnationSettings::default(), &verdict, 1).unwrap();
        let shared = &log.handle.shared;
        let mut writer = log.writer().unwrap();
        std::thread::scope(|scope| {
            // An anchor is being placed in the first stream.
            let placing = locked(&shared.streams[0].anchors);
            let loading = scope.spawn(|| shared.durable_positions());
            // Time for a thread without a wait for the anchor.
            let began = Instant::now();
            while !loading.is_finished() && began.elapsed() < Duration::from_millis(200) {
                std::thread::sleep(Duration::from_millis(1));
            }
            // The anchor may state records durable before its placement.
            let reservation = writer.reserve(1, 5);
            let end = reservation.end();
            reservation.fill(FrameKind::Record, b"hello");
            assert!(log.step(1));
            drop(placing);
            // An anchor may stand behind the record.
            let durable = shared.frontier.durable(1);
            assert!(durable >= end);
            assert_eq!(loading.join().unwrap()[1], durable);
        });
    }
}
