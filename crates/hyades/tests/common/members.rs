//! Members of a replicated database: files written from the lanes of a primary, and a follower that
//! replays the files.

use super::followers::{Primary, declared};
use super::tee::Tee;
use super::{Combination, How, directory};
use hyades::wal::{
    BeginAt, Chunk, Error as LogError, Incarnation, IncarnationSettings, LogOptions, Lsn, Mirror,
    StreamStart, Unfinished, open_read,
};
use hyades::{
    CheckpointSettings, Database, Error, FollowedLog, Follower, FrameChunks, FrameSource,
    ImagePlace, Promotion, Restore,
};
use hyades_platform::device::{Device, FileDevice};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

/// The newest incarnation of a mirror.
pub struct MirrorFrames(pub Mutex<Mirror>);

impl FrameSource for MirrorFrames {
    fn frames(&self, stream: usize, from: Lsn, to: Lsn) -> Result<FrameChunks, LogError> {
        let mut reader = self.0.lock().unwrap().reader(stream, from, to)?;
        Ok(Box::new(std::iter::from_fn(move || reader.next_chunk().transpose())))
    }
}

/// An earlier incarnation, by stream.
struct EarlierFrames(Vec<Vec<Chunk>>);

impl EarlierFrames {
    fn read(mirror: &Mirror, incarnation: &Incarnation) -> EarlierFrames {
        let mut lanes = vec![Vec::new(); incarnation.dims.len()];
        for mut reader in mirror.earlier_readers() {
            while let Some(chunk) = reader.next_chunk().unwrap() {
                if reader.incarnation == incarnation.number {
                    lanes[reader.dimension].push(chunk);
                }
            }
        }
        EarlierFrames(lanes)
    }
}

impl FrameSource for EarlierFrames {
    fn frames(&self, stream: usize, from: Lsn, to: Lsn) -> Result<FrameChunks, LogError> {
        let within = self.0[stream].iter().filter(|c| c.end() > from && c.start() < to);
        let part = |c: &Chunk| Ok(c.part(c.start().max(from), c.end().min(to)).unwrap());
        Ok(Box::new(within.map(part).collect::<Vec<_>>().into_iter()))
    }
}

/// The beginning of an incarnation, for a copy of the log.
pub fn begin_at(incarnation: &Incarnation) -> BeginAt {
    let stream =
        |dim: &hyades::wal::Dimension| StreamStart { stream: dim.stream, start: dim.start };
    BeginAt { number: incarnation.number, streams: incarnation.dims.iter().map(stream).collect() }
}

/// The incarnation after an ended incarnation.
pub fn begin_after(ended: &Incarnation) -> BeginAt {
    let stream =
        |dim: &hyades::wal::Dimension| StreamStart { stream: dim.stream, start: dim.end.unwrap() };
    // Numbers may be left out: of candidates that died before they began.
    let number = ended.number + 1 + ended.number % 2;
    BeginAt { number, streams: ended.dims.iter().map(stream).collect() }
}

/// The settings of a primary's incarnation, for a copy of its log.
pub fn settings_of(primary: &Primary) -> IncarnationSettings {
    let Incarnation { data_only, protocol, settings, .. } = primary.incarnation();
    IncarnationSettings { catalogue: primary.catalogue(), data_only, protocol, settings }
}

pub fn mirror_options(c: Combination, dir: &Path, device: Option<Arc<dyn Device>>) -> LogOptions {
    let how = How { device, ..How::default() };
    declared(c, how).0.mirror_options(vec![dir.to_owned()], c.streams)
}

/// Follows the files of a mirror from their beginning up to the end of their newest incarnation,
/// which has ended.
pub fn follow_all(c: Combination, frames: &MirrorFrames) -> Follower {
    let mirror = frames.0.lock().unwrap();
    let manifest = mirror.manifest().clone();
    let base = manifest.checkpoint.as_ref().map(|_| mirror.recovering());
    let (catalogue, incarnations) = (&manifest.catalogue[..], &manifest.incarnations);
    let begin = FollowedLog { catalogue, incarnation: &incarnations[0], base };
    let mut follower = declared(c, How::default()).0.follow(&begin).unwrap();
    let ends = |i: &Incarnation| i.dims.iter().map(|dim| dim.end.unwrap()).collect::<Vec<_>>();
    let (newest, earlier) = incarnations.split_last().unwrap();
    let earlier: Vec<_> = earlier.iter().map(|i| (i, EarlierFrames::read(&mirror, i))).collect();
    drop(mirror);
    for ((incarnation, frames), next) in earlier.iter().zip(&incarnations[1..]) {
        follower.last_round(&ends(incarnation), frames).unwrap();
        follower.next_incarnation(next, catalogue).unwrap();
    }
    follower.last_round(&ends(newest), frames).unwrap();
    follower
}

/// A member that follows.
pub struct Member {
    c: Combination,
    node: &'static str,
    pub dir: TempDir,
    pub frames: MirrorFrames,
    pub follower: Follower,
}

impl Member {
    /// A new member, with empty files.
    pub fn join(primary: &Primary, node: &'static str, device: Option<Arc<dyn Device>>) -> Member {
        let (c, dir) = (primary.c, directory());
        let database = primary.db().log().unwrap().manifest().uuid();
        let options = mirror_options(c, dir.path(), device);
        let mut mirror = Mirror::open(options, node, database).unwrap();
        mirror.begin(&begin_at(&primary.incarnation()), &[], settings_of(primary), 0).unwrap();
        let frames = MirrorFrames(Mutex::new(mirror));
        Member { c, node, dir, frames, follower: primary.follower() }
    }

    /// A new member that begins with a copy of the primary's files, with its checkpoint.
    pub fn of_base(primary: &Primary, node: &'static str) -> Member {
        let dir = directory();
        let to = Unfinished::begin(FileDevice::shared(), dir.path()).unwrap();
        primary.db().log().unwrap().base(&to).unwrap();
        to.finish().unwrap();
        Member::open(primary, node, dir)
    }

    /// The member's process begins anew, with the member's checkpoint.
    pub fn restart(self, primary: &Primary) -> Member {
        let Member { node, dir, frames, follower, .. } = self;
        drop((frames, follower));
        Member::open(primary, node, dir)
    }

    /// A member on files with a checkpoint of the primary's incarnation.
    fn open(primary: &Primary, node: &'static str, dir: TempDir) -> Member {
        let c = primary.c;
        let database = primary.db().log().unwrap().manifest().uuid();
        let mirror = Mirror::open(mirror_options(c, dir.path(), None), node, database).unwrap();
        let (catalogue, incarnation) = (primary.catalogue(), primary.incarnation());
        let begin = FollowedLog {
            catalogue: &catalogue,
            incarnation: &incarnation,
            base: Some(mirror.recovering()),
        };
        let follower = primary.declared().follow(&begin).unwrap();
        Member { c, node, dir, frames: MirrorFrames(Mutex::new(mirror)), follower }
    }

    /// Writes an image of the served state, and truncates the files.
    pub fn checkpoint(&mut self) {
        let image = self.follower.begin_image(1 << 20).unwrap();
        let mut mirror = self.frames.0.lock().unwrap();
        let ((number, parts), uuid) = (mirror.next_checkpoint(2), mirror.manifest().uuid());
        let device = mirror.device().clone();
        let place = ImagePlace { device, uuid, number, parts, before: 0 };
        let settings = CheckpointSettings::default();
        let (checkpoint, _) = image.write(&place, &settings, &AtomicBool::new(false)).unwrap();
        mirror.sync().unwrap();
        mirror.adopt(checkpoint, None).unwrap();
    }

    /// A round up to the present.
    pub fn round(&mut self, primary: &Primary) {
        let mark = primary.mark();
        primary.wait_for(&mark);
        primary.tee.feed(&mut self.frames.0.lock().unwrap());
        self.follower.round(&mark, &self.frames).unwrap();
    }

    /// The primary is gone: the rest of its incarnation.
    pub fn end(&mut self, tee: &Tee) {
        let ends = tee.ends();
        let mut mirror = self.frames.0.lock().unwrap();
        tee.feed(&mut mirror);
        mirror.end(&ends).unwrap();
        drop(mirror);
        self.follower.last_round(&ends, &self.frames).unwrap();
    }

    /// Goes on with the incarnation of a new primary.
    pub fn go_on(&mut self, primary: &Primary) {
        let incarnation = primary.incarnation();
        let mut mirror = self.frames.0.lock().unwrap();
        let ends = mirror.received();
        mirror.begin(&begin_at(&incarnation), &ends, settings_of(primary), 0).unwrap();
        self.follower.next_incarnation(&incarnation, &primary.catalogue()).unwrap();
    }

    /// Becomes primary.
    pub fn promote(self, seed: u64, above_epoch: u64) -> Result<Primary, Error> {
        let Member { c, node, dir, frames, follower } = self;
        let (db, procedures, tee) = promote(c, node, frames, follower, (seed, above_epoch))?;
        Ok(Primary::of((c, procedures), db, tee, dir))
    }

    /// Opens the files of a former member again. `tee` has the newest incarnation, if that has not
    /// ended in the files.
    pub fn reopen(c: Combination, node: &'static str, dir: TempDir, tee: Option<&Tee>) -> Member {
        let database = open_read(mirror_options(c, dir.path(), None)).unwrap().manifest().uuid();
        let mut mirror = Mirror::open(mirror_options(c, dir.path(), None), node, database).unwrap();
        if let Some(tee) = tee {
            assert!(!mirror.has_ended());
            tee.feed(&mut mirror);
            mirror.end(&tee.ends()).unwrap();
        }
        let frames = MirrorFrames(Mutex::new(mirror));
        let follower = follow_all(c, &frames);
        Member { c, node, dir, frames, follower }
    }
}

/// Makes a follower on the files of a mirror primary.
pub fn promote(
    c: Combination,
    node: &str,
    frames: MirrorFrames,
    follower: Follower,
    (seed, above_epoch): (u64, u64),
) -> Result<(Database, super::followers::Procedures, Arc<Tee>), Error> {
    let mirror = frames.0.into_inner().unwrap();
    let at = begin_after(mirror.manifest().newest().unwrap());
    let tee = Tee::new(at.streams.len(), seed);
    tee.begin_at(at.streams.iter().map(|stream| stream.start).collect());
    let (builder, procedures) = declared(c, How::default());
    let to = Promotion {
        files: mirror.into_recovering().unwrap(),
        node: node.to_owned(),
        at,
        remote: tee.clone(),
        above_epoch,
    };
    Ok((follower.promote(builder, to)?, procedures, tee))
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (path, to) = {
            let entry = entry.unwrap();
            (entry.path(), to.join(entry.file_name()))
        };
        if path.is_dir() {
            copy(&path, &to);
        } else {
            std::fs::copy(path, to).unwrap();
        }
    }
}

/// The state that a plain recovery finds in a copy of a member's files.
pub fn recovered(c: Combination, dir: &Path) -> (Database, TempDir) {
    let place = directory();
    let (files, to) = (place.path().join("files"), place.path().join("to"));
    copy(dir, &files);
    let how = Restore::new(vec![files], &to);
    declared(c, How::default()).0.restore(&how).unwrap();
    (declared(c, How::default()).0.open(&to).unwrap(), place)
}
