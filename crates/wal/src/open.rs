//! Opening a log: finding the files, and the types that enforce recovery before use.
//!
//! [`open`] returns a [`Recovering`]. Its readers are read to the end; its
//! [`verdict`](Recovering::verdict) states that nothing durable is missing; only the verdict starts
//! a [`Log`](crate::Log).

use crate::Lsn;
use crate::archive::{self, Archive};
use crate::base_writer;
use crate::error::Error;
use crate::manifest::{
    Incarnation, MANIFEST, MARKER, MARKS, Manifest, Marker, StreamEntry, part_name,
};
use crate::options::LogOptions;
use crate::reader::{StreamEnd, StreamReader};
use crate::segment::{Chain, stream_dir};
use crate::spare;
use crate::stream_id::StreamId;
use crate::unfinished;
use hyades_platform::broken;
use hyades_platform::device::{Device, DirectoryLock};
use hyades_platform::random;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A log found and locked, without any write to its files so far.
#[derive(Debug)]
pub struct Recovering {
    pub(crate) options: LogOptions,
    pub(crate) locks: Vec<DirectoryLock>,
    pub(crate) manifest: Manifest,
    /// Where the manifest is, or will be.
    pub(crate) manifest_dir: PathBuf,
    /// Where each of the manifest's directories is now.
    pub(crate) places: Vec<Option<PathBuf>>,
    pub(crate) chains: BTreeMap<StreamId, Chain>,
    /// Damage and missing files found so far, if the opening is lenient.
    damage: Vec<Error>,
    /// Streams known to be damaged: (incarnation, lane).
    pub(crate) broken: BTreeSet<(u32, usize)>,
    /// By incarnation, the usable end of each stream; usable anchors state no higher position.
    pub(crate) whole: BTreeMap<u32, Vec<Lsn>>,
    pub(crate) lenient: Leniency,
}

/// The relaxed checks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Leniency {
    /// Damage is noted, and the rest is read.
    pub(crate) damaged: bool,
    /// The log may be an unfinished copy.
    pub(crate) unfinished: bool,
    /// The log is only read: nothing is created, and the directories may be read-only and shared
    /// with other readers.
    pub(crate) reading: bool,
}

/// Finds and locks a log, to continue it. Nothing is written, except that missing directories are
/// created to be locked.
///
/// # Errors
/// A directory is in use, read-only, another database's, or a member's of a replicated
/// database ([`Mirror`](crate::Mirror) opens a member's); the manifest or a segment is missing,
/// damaged or of another version; the options are not valid.
pub fn open(options: LogOptions) -> Result<Recovering, Error> {
    let recovering = open_as(options, Leniency::default())?;
    recovering.manifest.refuse_member(&recovering.manifest_dir)?;
    if let Some(archive) = &recovering.options.archive {
        Archive::new(&*recovering.options.device, archive).check(&recovering.manifest)?;
    }
    Ok(recovering)
}

/// Finds a log and locks it for reading only: nothing is created or written, and no write
/// permission is needed. Several readers can share a log; readers and a writer exclude each other,
/// so the files do not change while they are read. [`Recovering::start`] refuses a log opened for
/// reading.
///
/// # Errors
/// A directory is in use, missing, or another database's; the manifest or a segment is missing,
/// damaged or of another version; the options are not valid.
pub fn open_read(options: LogOptions) -> Result<Recovering, Error> {
    open_as(options, Leniency { reading: true, ..Leniency::default() })
}

/// As [`open_read`], but missing or damaged parts are noted in [`Recovering::damage`] and treated
/// as absent: for the inspection and salvage of a damaged log.
///
/// # Errors
/// A directory is in use or another database's; the manifest is missing, damaged or of another
/// version.
pub fn open_damaged(options: LogOptions) -> Result<Recovering, Error> {
    open_as(options, Leniency { damaged: true, reading: true, ..Leniency::default() })
}

pub(crate) fn open_as(options: LogOptions, lenient: Leniency) -> Result<Recovering, Error> {
    options.check()?;
    let take = |dir: &PathBuf| take(&*options.device, dir, lenient.reading);
    let locks = options.dirs.iter().map(take).collect::<Result<Vec<_>, Error>>()?;
    let mut notes = DamageNotes { tolerant: lenient.damaged, damage: Vec::new() };
    let identity = read_identity(&options, lenient, &mut notes)?;
    let places = locate(&options, &identity, &mut notes)?;
    let chains = read_chains(&options, &identity, &places, &mut notes)?;
    let Identity { manifest, manifest_dir, .. } = identity;
    Ok(Recovering {
        options,
        locks,
        manifest,
        manifest_dir,
        places,
        chains,
        damage: notes.damage,
        broken: BTreeSet::new(),
        whole: BTreeMap::new(),
        lenient,
    })
}

/// Damage and missing files found by the opening.
struct DamageNotes {
    /// Whether damage is noted. Otherwise it stops the opening.
    tolerant: bool,
    damage: Vec<Error>,
}

impl DamageNotes {
    /// Notes an error, or returns the error if the opening has to stop.
    fn note(&mut self, error: Error) -> Result<(), Error> {
        // A denied permission does not prove damage of the file.
        let is_refused = matches!(
            &error,
            Error::Io { source, .. } if source.kind() == ErrorKind::PermissionDenied
        );
        if !self.tolerant || is_refused {
            return Err(error);
        }
        self.damage.push(error);
        Ok(())
    }
}

/// The manifest, and the markers of the given directories.
struct Identity {
    manifest: Manifest,
    manifest_dir: PathBuf,
    /// By given directory; None without a readable marker.
    markers: Vec<Option<Marker>>,
    /// The directories with an unreadable marker.
    unreadable: Vec<PathBuf>,
}

impl Identity {
    /// The given directories without a readable marker.
    fn unmarked<'o>(&self, options: &'o LogOptions) -> Vec<&'o PathBuf> {
        let dirs = options.dirs.iter().zip(&self.markers);
        dirs.filter(|(_, marker)| marker.is_none()).map(|(dir, _)| dir).collect()
    }
}

/// Reads the marker of each directory, and the manifest from its directory.
fn read_identity(
    options: &LogOptions,
    lenient: Leniency,
    notes: &mut DamageNotes,
) -> Result<Identity, Error> {
    let device = &*options.device;
    let mut found: Option<(PathBuf, Manifest)> = None;
    let mut markers = Vec::new();
    let mut unreadable = Vec::new();
    for dir in &options.dirs {
        if !lenient.unfinished {
            unfinished::refuse(device, dir)?;
            archive::refuse(device, dir)?;
            base_writer::refuse(device, dir)?;
        }
        markers.push(match Marker::read(device, dir) {
            Ok(marker) => marker,
            Err(error) => {
                notes.note(error)?;
                unreadable.push(dir.clone());
                None
            }
        });
        if let Some(manifest) = Manifest::read(device, dir)? {
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
    let marked = options.dirs.iter().zip(&markers).find(|(_, marker)| marker.is_some());
    let (manifest_dir, manifest) = match (found, marked) {
        (Some(found), _) => found,
        (None, Some((dir, _))) => {
            return Err(Error::Invalid(format!(
                "{} is a log directory, but no given directory holds its {MANIFEST}: give the \
                 directory that does, or restore the file from a copy",
                dir.display()
            )));
        }
        (None, None) => {
            let manifest = Manifest::fresh(random::fresh_uuid(), options.block_bytes);
            (options.dirs[0].clone(), manifest)
        }
    };
    Ok(Identity { manifest, manifest_dir, markers, unreadable })
}

/// Finds the present place of each of the manifest's directories; None for a directory not among
/// the given directories.
fn locate(
    options: &LogOptions,
    identity: &Identity,
    notes: &mut DamageNotes,
) -> Result<Vec<Option<PathBuf>>, Error> {
    let manifest = &identity.manifest;
    let mut places = places(options, manifest, &identity.markers)?;
    let unmarked = identity.unmarked(options);
    for (at, (place, path)) in places.iter_mut().zip(&manifest.dirs).enumerate() {
        if place.is_none() && unmarked.contains(&path) && manifest.needs_dir(at) {
            if !identity.unreadable.contains(path) {
                notes.note(no_marker(path))?;
            }
            // A directory without a readable marker is identified by its path.
            *place = Some(path.clone());
        }
    }
    for part in manifest.checkpoint.iter().flat_map(|c| &c.parts) {
        if places[part.dir].is_none() {
            notes.note(Error::Invalid(format!(
                "the directory of a part of the checkpoint is missing: it was last seen as {}, \
                 give it among the log directories{}",
                manifest.dirs[part.dir].display(),
                candidates(&unmarked)
            )))?;
        }
    }
    Ok(places)
}

/// Reads the segment headers of all streams, and finds the spares. Returns a chain for each stream
/// of the manifest.
fn read_chains(
    options: &LogOptions,
    identity: &Identity,
    places: &[Option<PathBuf>],
    notes: &mut DamageNotes,
) -> Result<BTreeMap<StreamId, Chain>, Error> {
    let (device, manifest) = (&options.device, &identity.manifest);
    let read_chain = |stream: &StreamEntry| {
        let dir = stream_dir(places[stream.dir].as_ref()?, stream.id);
        Some(Chain::read(&**device, &dir, stream.id, &manifest.uuid(), stream.first_sequence))
    };
    let read = parallel_if_reads_block(&**device, manifest.streams.iter().collect(), read_chain);
    let mut chains = BTreeMap::new();
    for (stream, chain) in manifest.streams.iter().zip(read) {
        let Some((mut chain, error)) = chain else {
            notes.note(Error::Invalid(format!(
                "the directory of log stream {} is missing: it was last seen as {}, give it among \
                 the log directories{}",
                stream.id,
                manifest.dirs[stream.dir].display(),
                candidates(&identity.unmarked(options))
            )))?;
            chains.insert(stream.id, Chain { broken: true, ..Chain::default() });
            continue;
        };
        error.map_or(Ok(()), |error| notes.note(error))?;
        check_incarnations(manifest, &chain).or_else(|error| notes.note(error))?;
        match spare::find(device, manifest, stream, &chain) {
            Ok(spare) => chain.spare = spare,
            Err(error) => notes.note(error)?,
        }
        chains.insert(stream.id, chain);
    }
    Ok(chains)
}

/// The error for a directory of the log without a marker.
fn no_marker(dir: &Path) -> Error {
    let message = "the file is missing, which says whose directory this is: restore it from a copy";
    Error::corrupt(&dir.join(MARKER), 0, message)
}

/// A hint for the error about a missing directory: a given directory may be the missing directory.
fn candidates(unmarked: &[&PathBuf]) -> String {
    let Some(first) = unmarked.first() else { return String::new() };
    let (dir, marker) = (first.display(), MARKER);
    format!(" ({dir} has no {marker} file: if it is that directory, restore the file from a copy)")
}

/// Locks a directory. Creates a missing directory, unless for reading only.
pub(crate) fn take(device: &dyn Device, dir: &Path, reading: bool) -> Result<DirectoryLock, Error> {
    let lock = if reading {
        if !device.exists(dir).map_err(Error::io(dir, "look for"))? {
            return Err(Error::Invalid(format!("there is no directory {}", dir.display())));
        }
        device.lock_dir_shared(dir)
    } else {
        device.create_dir(dir).map_err(Error::io(dir, "create the log directory"))?;
        let read_only = |source| Error::ReadOnly { path: dir.to_owned(), source };
        // Otherwise the whole log would be read before the first write fails.
        device.check_writable(dir).map_err(read_only)?;
        device.lock_dir(dir)
    };
    lock.map_err(|source| match source.kind() {
        ErrorKind::WouldBlock => Error::InUse { path: dir.to_owned() },
        _ => Error::Io { path: dir.to_owned(), action: "lock the log directory", source },
    })
}

/// Calls `each` for several streams: in parallel on devices with blocking reads, so that the
/// devices work at the same time.
pub(crate) fn parallel_if_reads_block<T: Send, R: Send>(
    device: &dyn Device,
    items: Vec<T>,
    each: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    if items.len() < 2 || !device.reads_wait() {
        return items.into_iter().map(each).collect();
    }
    std::thread::scope(|scope| {
        let each = &each;
        let threads: Vec<_> = items.into_iter().map(|one| scope.spawn(move || each(one))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, R>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    })
}

/// Finds the manifest's directories among the given directories, by the markers.
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
        // A directory at a place unknown to the manifest holds no file named by the manifest.
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

/// Refuses an old manifest: the manifest must know the incarnations of all segments.
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
    /// The manifest of the log.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Damage and missing files found by [`open_damaged`]. Empty for a log opened otherwise.
    pub fn damage(&self) -> &[Error] {
        &self.damage
    }

    /// Whether the log is new: there is nothing to recover.
    pub fn is_fresh(&self) -> bool {
        self.manifest.incarnations.is_empty()
    }

    fn reader(&self, incarnation: usize, dimension: usize) -> StreamReader {
        let incarnation = &self.manifest.incarnations[incarnation];
        let id = incarnation.dims[dimension].stream;
        // `open` made a chain for every stream, and the manifest was checked to know each stream.
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
            && !broken!(ReplayBelowCut)
        {
            reader.skip_to(from);
        }
        if self.lenient.damaged {
            reader.treat_read_errors_as_end();
        }
        if self.broken.contains(&(incarnation.number, dimension)) {
            reader.ignore_manifest_mark();
        }
        if let Some(whole) = self.whole.get(&incarnation.number) {
            reader.limit_anchors(whole.clone());
        }
        reader
    }

    /// The files of the checkpoint named by the manifest, in the order of their numbers.
    pub fn checkpoint_files(&self) -> Vec<PathBuf> {
        let Some(checkpoint) = &self.manifest.checkpoint else { return Vec::new() };
        let parts = checkpoint.parts.iter().enumerate();
        let place = |dir: usize| self.places[dir].clone().unwrap_or_default();
        parts.map(|(at, p)| place(p.dir).join(part_name(checkpoint.number, at))).collect()
    }

    /// The device of the log.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.options.device
    }

    /// Stores the measured replay speed, in bytes per second, in the manifest to be written.
    pub fn set_replay_speed(&mut self, bytes_per_s: u64) {
        self.manifest.replay_bytes_per_s = Some(bytes_per_s);
    }

    /// A reader for each stream of each incarnation, in this order.
    pub fn readers(&self) -> Vec<StreamReader> {
        let incarnations = self.manifest.incarnations.iter().enumerate();
        incarnations
            .flat_map(|(i, inc)| (0..inc.dims.len()).map(move |d| self.reader(i, d)))
            .collect()
    }

    /// Finds where the streams of an incarnation end, in the order of the incarnation's vectors:
    /// from the last segments. After [`open_damaged`] every stream is read as a whole.
    ///
    /// # Errors
    /// The device could not be read. If the log is damaged, the ends may be wrong: readers of the
    /// streams, and the [`verdict`](Self::verdict), find the damage.
    pub fn find_ends(&self, incarnation: &Incarnation) -> Result<Vec<StreamEnd>, Error> {
        let number = incarnation.number;
        let at = self.manifest.incarnations.iter().position(|i| i.number == number);
        let at = at.expect("the manifest has the incarnation");
        let has_marks = incarnation.settings.contains_key(MARKS);
        let end = |dimension| {
            let mut reader = self.reader(at, dimension);
            if !self.lenient.damaged {
                return reader.find_end(has_marks);
            }
            while reader.next_chunk()?.is_some() {}
            Ok(StreamEnd { valid_to: reader.valid_to(), mark: reader.mark() })
        };
        let dimensions = (0..incarnation.dims.len()).collect();
        parallel_if_reads_block(&*self.options.device, dimensions, end).into_iter().collect()
    }

    /// A reader of the newest incarnation's stream from `from` to `to`.
    pub(crate) fn tail_reader(&self, dimension: usize, from: Lsn, to: Lsn) -> StreamReader {
        let mut reader = self.reader(self.manifest.incarnations.len() - 1, dimension);
        reader.stop_at(to);
        reader.skip_to(from);
        reader
    }
}
