//! Opening a log: what is there, whether it is whole, and the typestate between the two.
//!
//! No recovery, no log: [`open`] gives a [`Recovering`], whose readers are read to their ends,
//! whose [`verdict`](Recovering::verdict) says that nothing durable is missing, and only that
//! verdict starts a [`Log`](crate::Log).

use crate::Lsn;
use crate::error::Error;
use crate::lsn_vector::LsnVector;
use crate::manifest::{Incarnation, MANIFEST, Manifest, Marker, part_name};
use crate::options::LogOptions;
use crate::reader::{ReaderEnd, StreamReader};
use crate::segment::{Chain, stream_dir};
use hyades_platform::device::{Device, DirectoryLock};
use hyades_platform::mutation::{self, Mutation};
use hyades_platform::random;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// A log that was found and locked, and that nothing has been written to.
#[derive(Debug)]
pub struct Recovering {
    pub(crate) options: LogOptions,
    pub(crate) locks: Vec<DirectoryLock>,
    pub(crate) manifest: Manifest,
    /// Where the manifest is, or will be.
    pub(crate) manifest_dir: PathBuf,
    /// Where each of the manifest's directories is now.
    pub(crate) places: Vec<Option<PathBuf>>,
    pub(crate) chains: BTreeMap<u32, Chain>,
}

/// Where every stream of every incarnation ends; proof that nothing durable is missing.
#[derive(Clone, Debug)]
pub struct Verdict {
    ends: Vec<IncarnationEnd>,
}

/// Where the streams of an incarnation end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncarnationEnd {
    /// Its number.
    pub incarnation: u32,
    /// The end vector: a record is dead iff its vector is not covered by it, for ever.
    pub ends: LsnVector,
    /// Up to where something durable states that each stream was durable.
    pub(crate) proven: Vec<Lsn>,
    /// The highest mark that each stream has stated within its valid prefix.
    pub marks: Vec<u64>,
}

impl Verdict {
    /// The end vectors, in the order of incarnations.
    pub fn ends(&self) -> &[IncarnationEnd] {
        &self.ends
    }

    /// The end vector of an incarnation.
    pub fn end(&self, incarnation: u32) -> Option<&LsnVector> {
        self.ends.iter().find(|e| e.incarnation == incarnation).map(|e| &e.ends)
    }
}

/// Finds and locks a log. Nothing is written, except that missing directories are made in order to
/// be locked.
///
/// # Errors
/// A directory is in use, missing, or another database's; the manifest or a segment is missing,
/// damaged or of another version; the options are not valid.
pub fn open(options: LogOptions) -> Result<Recovering, Error> {
    options.check()?;
    let device = Arc::clone(&options.device);
    let mut locks = Vec::new();
    for dir in &options.dirs {
        device.create_dir(dir).map_err(Error::io(dir, "create the log directory"))?;
        locks.push(device.lock_dir(dir).map_err(|source| match source.kind() {
            std::io::ErrorKind::WouldBlock => Error::InUse { path: dir.clone() },
            _ => Error::Io { path: dir.clone(), action: "lock the log directory", source },
        })?);
    }
    let mut found: Option<(PathBuf, Manifest)> = None;
    let mut markers = Vec::new();
    for dir in &options.dirs {
        markers.push(Marker::read(&*device, dir)?);
        if let Some(manifest) = Manifest::read(&*device, dir)? {
            if let Some((other, _)) = &found {
                return Err(Error::Invalid(format!(
                    "{} and {} both hold a {MANIFEST}: they are different logs, open one of them",
                    other.display(),
                    dir.display()
                )));
            }
            found = Some((dir.clone(), manifest));
        }
    }
    let (manifest_dir, manifest) = match found {
        Some(found) => found,
        None => {
            if let Some((dir, _)) = options.dirs.iter().zip(&markers).find(|(_, m)| m.is_some()) {
                return Err(Error::Invalid(format!(
                    "{} is a log directory, but no given directory holds its {MANIFEST}: give the \
                     directory that does, or restore the file from a copy",
                    dir.display()
                )));
            }
            let manifest = Manifest::fresh(random::fresh_uuid(), options.block_bytes);
            (options.dirs[0].clone(), manifest)
        }
    };
    let places = places(&options, &manifest, &markers)?;
    for part in manifest.checkpoint.iter().flat_map(|c| &c.parts) {
        if places[part.dir].is_none() {
            return Err(Error::Invalid(format!(
                "the directory of a part of the checkpoint is missing: it was last seen as {}, give it \
                 among the log directories",
                manifest.dirs[part.dir].display()
            )));
        }
    }
    let mut chains = BTreeMap::new();
    for stream in &manifest.streams {
        let Some(place) = &places[stream.dir] else {
            return Err(Error::Invalid(format!(
                "the directory of log stream {} is missing: it was last seen as {}, give it among \
                 the log directories",
                stream.id,
                manifest.dirs[stream.dir].display()
            )));
        };
        let dir = stream_dir(place, stream.id);
        let first = stream.first_sequence;
        let chain = Chain::read(&*device, &dir, stream.id, &manifest.uuid(), first)?;
        check_incarnations(&manifest, &chain)?;
        chains.insert(stream.id, chain);
    }
    Ok(Recovering { options, locks, manifest, manifest_dir, places, chains })
}

/// Finds the manifest's directories among the given ones, by their markers.
fn places(
    options: &LogOptions,
    manifest: &Manifest,
    markers: &[Option<Marker>],
) -> Result<Vec<Option<PathBuf>>, Error> {
    let mut places = vec![None; manifest.dirs.len()];
    for (dir, marker) in options.dirs.iter().zip(markers) {
        let Some(marker) = marker else { continue };
        if marker.uuid != manifest.uuid {
            return Err(Error::Invalid(format!(
                "{} belongs to another database: give this one's directories only",
                dir.display()
            )));
        }
        // A directory that the manifest does not know was about to be added; it holds nothing yet.
        if let Some(place) = places.get_mut(marker.dir) {
            if place.is_some() {
                return Err(Error::Invalid(format!(
                    "{} is a copy of another log directory: give only one of them",
                    dir.display()
                )));
            }
            *place = Some(dir.clone());
        }
    }
    Ok(places)
}

/// A segment of an incarnation that the manifest does not know shows that the manifest is an old
/// one.
fn check_incarnations(manifest: &Manifest, chain: &Chain) -> Result<(), Error> {
    for segment in &chain.segments {
        if let Some(header) = &segment.header
            && header.incarnation >= manifest.next_incarnation
        {
            let message = format!(
                "it belongs to incarnation {}, which the {MANIFEST} does not know; restore the \
                 {MANIFEST} that belongs to these files",
                header.incarnation
            );
            return Err(Error::corrupt(&segment.path, 36, message));
        }
    }
    Ok(())
}

impl Recovering {
    /// What is known of the log.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Whether there was no log: nothing to recover.
    pub fn is_fresh(&self) -> bool {
        self.manifest.incarnations.is_empty()
    }

    fn reader(&self, incarnation: usize, dimension: usize) -> StreamReader {
        let incarnation = &self.manifest.incarnations[incarnation];
        let id = incarnation.dims[dimension].stream;
        // `open` made a chain for every stream, and the manifest was checked to know each of them.
        let chain = &self.chains[&id];
        let place = self.manifest.stream(id).and_then(|s| self.places[s.dir].clone());
        let mut reader = StreamReader::new(
            Arc::clone(&self.options.device),
            &self.manifest,
            incarnation,
            dimension,
            stream_dir(&place.unwrap_or_default(), id),
            chain,
        );
        if let Some(from) = self.manifest.covered(incarnation.number, id)
            && !mutation::is(Mutation::ReplayBelowCut)
        {
            reader.skip_to(from);
        }
        reader
    }

    /// The files of the checkpoint that the manifest names, in the order of their numbers.
    pub fn checkpoint_files(&self) -> Vec<PathBuf> {
        let Some(checkpoint) = &self.manifest.checkpoint else { return Vec::new() };
        let parts = checkpoint.parts.iter().enumerate();
        let place = |dir: usize| self.places[dir].clone().unwrap_or_default();
        parts.map(|(at, p)| place(p.dir).join(part_name(checkpoint.number, at))).collect()
    }

    /// Where the log is.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.options.device
    }

    /// Remembers how fast the log was replayed, in bytes per second.
    pub fn set_replay_speed(&mut self, bytes_per_s: u64) {
        self.manifest.replay_bytes_per_s = Some(bytes_per_s);
    }

    /// One reader for each incarnation and lane, in this order.
    pub fn readers(&self) -> Vec<StreamReader> {
        let incarnations = self.manifest.incarnations.iter().enumerate();
        incarnations
            .flat_map(|(i, inc)| (0..inc.dims.len()).map(move |d| self.reader(i, d)))
            .collect()
    }

    /// A reader of the newest incarnation's lane that begins at `from`.
    pub(crate) fn tail_reader(&self, dimension: usize, from: Lsn) -> StreamReader {
        let mut reader = self.reader(self.manifest.incarnations.len() - 1, dimension);
        reader.skip_to(from);
        reader
    }

    /// Judges where the readers stopped: at tails, or at damage.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if something durable says that a stream was durable beyond the end of its
    /// valid prefix; [`Error::Invalid`] if a reader is missing or was not read to its end.
    pub fn verdict(&self, ends: &[ReaderEnd]) -> Result<Verdict, Error> {
        let incarnations = self.manifest.incarnations.iter();
        let ends = incarnations.map(|incarnation| self.judge_incarnation(incarnation, ends));
        Ok(Verdict { ends: ends.collect::<Result<_, _>>()? })
    }

    /// The verdict on one incarnation, for whoever wants to know that it is whole before going on to
    /// the next.
    ///
    /// # Errors
    /// As [`verdict`](Self::verdict).
    pub fn judge_incarnation(
        &self,
        incarnation: &Incarnation,
        ends: &[ReaderEnd],
    ) -> Result<IncarnationEnd, Error> {
        let number = incarnation.number;
        let mut lanes = Vec::new();
        for dimension in 0..incarnation.dims.len() {
            let end = ends.iter().find(|e| e.incarnation == number && e.dimension == dimension);
            lanes.push(end.filter(|e| e.finished).ok_or_else(|| {
                Error::Invalid(format!(
                    "the reader of incarnation {number}, stream {dimension} was not read to its end"
                ))
            })?);
        }
        let mut proven = Vec::new();
        for (dimension, lane) in lanes.iter().enumerate() {
            let recorded = incarnation.dims[dimension].end;
            let covered = self.manifest.covered(number, incarnation.dims[dimension].stream);
            proven.push(judge(&lanes, lane, recorded, covered, &self.manifest_dir)?);
        }
        let ends: Vec<Lsn> = lanes.iter().map(|l| l.valid_to).collect();
        let marks = lanes.iter().map(|l| l.mark).collect();
        Ok(IncarnationEnd {
            incarnation: number,
            ends: LsnVector::from_slice(&ends),
            proven,
            marks,
        })
    }
}

/// The highest Lsn that a lane is proven durable to, unless it is valid only below that.
fn judge(
    lanes: &[&ReaderEnd],
    lane: &ReaderEnd,
    recorded: Option<Lsn>,
    covered: Option<Lsn>,
    manifest_dir: &std::path::Path,
) -> Result<Lsn, Error> {
    let stated = lanes.iter().filter_map(|l| l.statements.get(lane.dimension));
    let mut best = stated.max_by_key(|s| s.lsn).cloned().unwrap_or_default();
    if let Some(from) = covered.filter(|from| *from > best.lsn) {
        best.lsn = from;
        best.path = manifest_dir.join(MANIFEST);
        best.offset = 0;
    }
    if let Some(end) = recorded {
        // Beyond a recorded end nothing counts; what is stated about it is history.
        best.lsn = end;
        best.path = manifest_dir.join(MANIFEST);
        best.offset = 0;
    }
    if best.lsn <= lane.valid_to {
        return Ok(best.lsn);
    }
    let (path, offset, why) = &lane.stopped_at;
    Err(Error::corrupt(
        path,
        *offset,
        format!(
            "{why}, and log stream {} is valid up to Lsn {} only, but {} at byte {} states that it \
             was durable up to Lsn {}; restore the files from a copy",
            lane.stream,
            lane.valid_to,
            best.path.display(),
            best.offset,
            best.lsn
        ),
    ))
}
