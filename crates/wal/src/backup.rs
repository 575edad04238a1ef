//! Copies of a log, in use or not: a copy opens as the log itself would have (`docs/format.md`,
//! section 11).

use crate::Lsn;
use crate::error::Error;
use crate::format::{self, BATCH_HEADER, BatchHeader};
use crate::log::{Log, Shared};
use crate::manifest::{FROM_LANES, Incarnation, MIRRORED, Manifest, Marker, Member, part_name};
use crate::open::Recovering;
use crate::options::LogOptions;
use crate::segment::{Chain, Segment, segment_path, start_of, stream_dir};
use crate::stream_id::StreamId;
use crate::unfinished::Unfinished;
use crate::verdict::Verdict;
use hyades_platform::device::{Device, DeviceFile};
use hyades_platform::sync::locked;
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The number of bytes copied at once.
const PIECE: usize = 1 << 20;

/// The counts of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Copied {
    /// The number of files.
    pub files: u64,
    /// The total size of the files in bytes.
    pub bytes: u64,
}

/// A copy in progress.
struct Copying<'c> {
    device: &'c dyn Device,
    /// The location of each of the manifest's directories.
    places: &'c [Option<PathBuf>],
    /// The manifest, with the ends of all incarnations.
    manifest: Manifest,
    /// By stream, the spare read in place of its last segment's tail (see `spare.rs`).
    spares: BTreeMap<StreamId, Segment>,
    to: &'c Unfinished,
    copied: Copied,
    kind: CopyKind,
}

/// What a copy is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyKind {
    /// A database, which ends where the copy ends.
    Database,
    /// The first files of a member of a replicated database: the newest incarnation goes on.
    Base,
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

    fn copy(&self, to: &Unfinished, kind: CopyKind) -> Result<Copied, Error> {
        let _kept = self.keep_files();
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
        let places: Vec<_> = manifest.dirs.iter().cloned().map(Some).collect();
        copy(&**self.device(), &places, (manifest, kind), BTreeMap::new(), to)
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
        if let Some(end) = verdict.ends().last() {
            end_newest(&mut manifest, &end.ends);
        }
        let spare = |(id, chain): (&StreamId, &Chain)| Some((*id, chain.spare.clone()?));
        let spares = self.chains.iter().filter_map(spare).collect();
        copy(&**self.device(), &self.places, (manifest, CopyKind::Database), spares, to)
    }

    /// Copies the files of a mirror, up to `ends` in the newest incarnation, as a base.
    pub(crate) fn base(&self, ends: &[Lsn], to: &Unfinished) -> Result<Copied, Error> {
        let mut manifest = self.manifest().clone();
        end_newest(&mut manifest, ends);
        let manifest = (manifest, CopyKind::Base);
        copy(&**self.device(), &self.places, manifest, BTreeMap::new(), to)
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
    let copied = Copied::default();
    let mut copying = Copying { device, places, manifest, spares, to, copied, kind };
    copying.checkpoint()?;
    copying.streams()?;
    let manifest = copying.names()?;
    check(&manifest, to)?;
    Ok(copying.copied)
}

impl Copying<'_> {
    fn place(&self, dir: usize) -> Result<&Path, Error> {
        self.places[dir].as_deref().ok_or_else(|| {
            Error::Invalid(format!(
                "the directory {} is missing: give it among the log directories",
                self.manifest.dirs[dir].display()
            ))
        })
    }

    fn checkpoint(&mut self) -> Result<(), Error> {
        let Some(checkpoint) = self.manifest.checkpoint.clone() else { return Ok(()) };
        for (at, part) in checkpoint.parts.iter().enumerate() {
            let name = part_name(checkpoint.number, at);
            let (from, to) = (self.place(part.dir)?.join(&name), self.to.dir.join(&name));
            self.file(&from, &to, part.bytes)?;
        }
        Ok(())
    }

    fn streams(&mut self) -> Result<(), Error> {
        for stream in self.manifest.streams.clone() {
            let dims = self.manifest.incarnations.iter().flat_map(|i| &i.dims);
            let own_dims = dims.filter(|dim| dim.stream == stream.id);
            let end = own_dims.map(|dim| dim.end.unwrap_or(dim.start)).max().unwrap_or(0);
            let from = stream_dir(self.place(stream.dir)?, stream.id);
            let uuid = self.manifest.uuid();
            let (chain, error) =
                Chain::read(self.device, &from, stream.id, &uuid, stream.first_sequence);
            if let Some(error) = error {
                return Err(error);
            }
            let dir = stream_dir(&self.to.dir, stream.id);
            let device = &*self.to.device;
            device.create_dir(&dir).map_err(Error::io(&dir, "create the directory"))?;
            // A segment too short for its first frame was passed over, and has not begun.
            let last = chain.segments.iter().rposition(|s| start_of(s) < end);
            let begun = chain.segments.iter().take(last.map_or(0, |last| last + 1));
            // The copy is synced before the finish, so a spare gets its final name in the copy.
            let begun: Vec<Segment> = begun.chain(self.spares.get(&stream.id)).cloned().collect();
            let none = begun.is_empty();
            for (at, segment) in begun.iter().enumerate() {
                // The next segment takes over at its start.
                let next = begun[at + 1..].iter().map(start_of).find(|start| *start < Lsn::MAX);
                let limit = next.unwrap_or(end);
                let length = self.needed(segment, limit)?;
                self.file(&segment.path, &segment_path(&dir, segment.sequence), length)?;
            }
            if none {
                let path = segment_path(&dir, stream.first_sequence);
                let zeros = vec![0; self.manifest.block_bytes];
                self.to.device.write_small(&path, &zeros).map_err(Error::io(&path, "write"))?;
            }
            self.to.device.sync_dir(&dir).map_err(Error::io(&dir, "sync the directory"))?;
        }
        Ok(())
    }

    /// The length of a segment's part below `end`, including the batch that reaches `end`.
    fn needed(&self, segment: &Segment, end: Lsn) -> Result<u64, Error> {
        let Some(header) = &segment.header else { return Ok(segment.length) };
        let path = &segment.path;
        let file = self.device.open_read(path).map_err(Error::io(path, "open"))?;
        let block = u64::from(header.block_bytes);
        let mut at = format::header_bytes(header.block_bytes as usize) as u64;
        let mut bytes = [0; BATCH_HEADER];
        while at + BATCH_HEADER as u64 <= segment.length {
            let n = file.read_at(&mut bytes, at).map_err(Error::io(path, "read"))?;
            let uuid = self.manifest.uuid();
            let batch = BatchHeader::decode(&bytes[..n], &uuid, header.stream, header.incarnation);
            // Damage is found when the copy is read back.
            let Some(batch) = batch else { break };
            at = (at + BATCH_HEADER as u64 + u64::from(batch.length)).next_multiple_of(block);
            if batch.start + u64::from(batch.length) >= end {
                return Ok(at.min(segment.length));
            }
        }
        Ok(segment.length)
    }

    fn file(&mut self, from: &Path, to: &Path, length: u64) -> Result<(), Error> {
        let source = self.device.open_read(from).map_err(Error::io(from, "open"))?;
        let target = self.to.device.create(to, 0).map_err(Error::io(to, "create"))?;
        copy_bytes((&source, from), (&target, to), length)?;
        target.sync_data().map_err(Error::io(to, "sync"))?;
        self.copied.files += 1;
        self.copied.bytes += length;
        Ok(())
    }

    /// Writes the marker and the manifest.
    fn names(&mut self) -> Result<Manifest, Error> {
        let mut manifest = self.manifest.clone();
        let mut dims = manifest.incarnations.iter().flat_map(|incarnation| &incarnation.dims);
        debug_assert!(dims.all(|dim| dim.end.is_some()), "a stream of the copy has no end");
        manifest.dirs = vec![self.to.dir.clone()];
        let member = manifest.member.take();
        if self.kind == CopyKind::Base {
            let seen = member.map_or_else(Vec::new, |member| member.seen);
            manifest.member = Some(Member { node: String::new(), seen });
            manifest.incarnations.last_mut().into_iter().for_each(go_on);
        }
        manifest.streams.iter_mut().for_each(|stream| stream.dir = 0);
        let parts = manifest.checkpoint.iter_mut().flat_map(|c| &mut c.parts);
        parts.for_each(|part| part.dir = 0);
        let (device, dir) = (&*self.to.device, &self.to.dir);
        manifest.write(device, dir)?;
        Marker { uuid: manifest.uuid.clone(), dir: 0 }.write(device, dir)?;
        Ok(manifest)
    }
}

/// Takes the ends of an incarnation back, which goes on in the copy: from the lanes.
fn go_on(newest: &mut Incarnation) {
    newest.clean = false;
    newest.dims.iter_mut().for_each(|dim| dim.end = None);
    newest.settings.insert(MIRRORED.into(), FROM_LANES.into());
}

fn copy_bytes(
    (source, from): (&Arc<dyn DeviceFile>, &Path),
    (target, to): (&Arc<dyn DeviceFile>, &Path),
    length: u64,
) -> Result<(), Error> {
    let mut piece = vec![0; PIECE.min(length as usize)];
    let mut at = 0;
    while at < length {
        let n = piece.len().min((length - at) as usize);
        let read = source.read_at(&mut piece[..n], at).map_err(Error::io(from, "read"))?;
        if read < n {
            let what = format!("it ends here, and should have {length} bytes");
            return Err(Error::corrupt(from, at + read as u64, what));
        }
        target.write_at(&[IoSlice::new(&piece[..n])], at).map_err(Error::io(to, "write to"))?;
        at += n as u64;
    }
    Ok(())
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
