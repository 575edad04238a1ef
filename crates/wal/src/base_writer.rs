//! A base that arrives in pieces from another member, and takes the place of what a member's
//! directories hold.
//!
//! Each file has a name of its own in the directory of its final name until all files are synced.
//! Then the file `ARRIVED` lists the names, and the base counts: the files of before are removed,
//! and the base's get their names, the manifest nearly last. After a crash the next opening as a
//! member goes on with that. Without `ARRIVED`, what has arrived is a leftover, and the files of
//! before count.

use crate::error::Error;
use crate::manifest::{MANIFEST, MARKER, PART_PREFIX, seal_body, unseal};
use crate::open::take;
use crate::options::LogOptions;
use hyades_platform::device::{Device, DeviceFile, DirectoryLock};
use std::collections::BTreeSet;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Says that a base has arrived whole, and lists the names of its files.
const ARRIVED: &str = "ARRIVED";
const ARRIVING: &str = "arriving-";
const STREAM: &str = "stream-";
const FORMAT: u32 = 9;

/// Writes a base into the directories of a member, which are locked meanwhile. Dropped before
/// [`finish`](Self::finish), the base leaves the files of before as they are.
#[derive(Debug)]
pub struct BaseWriter {
    device: Arc<dyn Device>,
    dirs: Vec<PathBuf>,
    files: Vec<(String, u64)>,
    /// The file being written, and how far; the ones before are synced.
    at: usize,
    open: Option<Arc<dyn DeviceFile>>,
    written: u64,
    _locks: Vec<DirectoryLock>,
}

fn is_name(name: &str) -> bool {
    let is_plain = |part: &str| {
        let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        part.starts_with(|c: char| c.is_ascii_alphanumeric()) && part.chars().all(letters)
    };
    match name.split_once('/') {
        Some((dir, file)) => dir.starts_with(STREAM) && is_plain(dir) && is_plain(file),
        None => is_plain(name) && name != ARRIVED && !name.starts_with(ARRIVING),
    }
}

/// Where a file is until the base counts.
fn arriving(dir: &Path, at: usize, name: &str) -> PathBuf {
    let path = dir.join(name);
    path.with_file_name(format!("{ARRIVING}{at:06}"))
}

/// Refuses a directory in which a base takes the place of a member's files.
pub(crate) fn refuse(device: &dyn Device, dir: &Path) -> Result<(), Error> {
    let path = dir.join(ARRIVED);
    if !device.exists(&path).map_err(Error::io(&path, "look for"))? {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "{} is a member's of a replicated database, whose files a base is about to replace: start \
         the member",
        dir.display()
    )))
}

/// Goes on with a base that has arrived, if there is one, before the directories are opened.
pub(crate) fn settle(options: &LogOptions) -> Result<(), Error> {
    let (device, dirs) = (&*options.device, &options.dirs);
    let path = dirs[0].join(ARRIVED);
    if !device.exists(&path).map_err(Error::io(&path, "look for"))? {
        return Ok(());
    }
    let take = |dir: &PathBuf| take(device, dir, false);
    let _locks = dirs.iter().map(take).collect::<Result<Vec<_>, Error>>()?;
    let bytes = device.read_small(&path).map_err(Error::io(&path, "read"))?;
    let names: Vec<String> = unseal(&path, &bytes)?;
    adopt(device, dirs, &names)
}

impl BaseWriter {
    /// Begins to write a base of these files, with their lengths, into the options' directories:
    /// all files go into the first.
    ///
    /// # Errors
    /// A directory is in use; or a file has no name of a base.
    pub fn begin(options: LogOptions, files: Vec<(String, u64)>) -> Result<BaseWriter, Error> {
        if let Some((name, _)) = files.iter().find(|(name, _)| !is_name(name)) {
            return Err(Error::Invalid(format!("{name:?} is no file of a base")));
        }
        let (device, dirs) = (options.device, options.dirs);
        let take = |dir: &PathBuf| take(&*device, dir, false);
        let locks = dirs.iter().map(take).collect::<Result<Vec<_>, Error>>()?;
        clear_arriving(&*device, &dirs[0])?;
        let (at, open, written) = (0, None, 0);
        Ok(BaseWriter { device, dirs, files, at, open, written, _locks: locks })
    }

    /// The files, with their lengths.
    pub fn files(&self) -> &[(String, u64)] {
        &self.files
    }

    /// The file and the position of the next bytes; `None` once all are written.
    ///
    /// # Errors
    /// A file could not be created or synced.
    pub fn awaits(&mut self) -> Result<Option<(usize, u64)>, Error> {
        while let Some((name, length)) = self.files.get(self.at) {
            let path = arriving(&self.dirs[0], self.at, name);
            if self.open.is_none() {
                let dir = path.parent().unwrap_or(&self.dirs[0]);
                self.device.create_dir(dir).map_err(Error::io(dir, "create the directory"))?;
                let file = self.device.create(&path, 0).map_err(Error::io(&path, "create"))?;
                (self.open, self.written) = (Some(file), 0);
            }
            if self.written < *length {
                return Ok(Some((self.at, self.written)));
            }
            if let Some(file) = self.open.take() {
                file.sync_data().map_err(Error::io(&path, "sync"))?;
            }
            self.at += 1;
        }
        Ok(None)
    }

    /// Writes the next bytes of the base, at the position that [`awaits`](Self::awaits) says.
    ///
    /// # Errors
    /// The file could not be written; or the bytes are more than the file has.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let Some((at, from)) = self.awaits()? else {
            return Err(Error::Invalid("the base is whole".into()));
        };
        let (name, length) = &self.files[at];
        let path = arriving(&self.dirs[0], at, name);
        if bytes.is_empty() || from + bytes.len() as u64 > *length {
            let n = bytes.len();
            let what = format!("{n} bytes at {from} of {name}, which has {length}");
            return Err(Error::Invalid(what));
        }
        if let Some(file) = &self.open {
            let slices = [IoSlice::new(bytes)];
            file.write_at(&slices, from).map_err(Error::io(&path, "write to"))?;
        }
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Makes the base count: the member's files are the base's then.
    ///
    /// # Errors
    /// The base is not whole; or a file could not be synced, removed or renamed. If the base counts
    /// already, the next opening as a member goes on.
    pub fn finish(mut self) -> Result<(), Error> {
        if self.awaits()?.is_some() {
            return Err(Error::Invalid("the base is not whole".into()));
        }
        let (device, dir) = (&*self.device, &self.dirs[0]);
        let names: Vec<String> = self.files.iter().map(|(name, _)| name.clone()).collect();
        sync_dirs(device, dir, &names)?;
        let body = serde_json::to_string(&names).expect("names are plain");
        let (path, temporary) = (dir.join(ARRIVED), dir.join(format!("{ARRIVING}list")));
        let text = seal_body(&body, FORMAT);
        let written = device.write_small(&temporary, text.as_bytes());
        written.map_err(Error::io(&temporary, "write"))?;
        device.rename(&temporary, &path).map_err(Error::io(&path, "rename a new file to"))?;
        device.sync_dir(dir).map_err(Error::io(dir, "sync the directory"))?;
        adopt(device, &self.dirs, &names)
    }
}

/// Makes the names of files durable.
fn sync_dirs(device: &dyn Device, dir: &Path, names: &[String]) -> Result<(), Error> {
    let paths: Vec<PathBuf> = names.iter().map(|name| dir.join(name)).collect();
    let parents: BTreeSet<&Path> = paths.iter().filter_map(|path| path.parent()).collect();
    for parent in parents.into_iter().chain([dir]) {
        device.sync_dir(parent).map_err(Error::io(parent, "sync the directory"))?;
    }
    Ok(())
}

/// The directories of streams in a log directory.
fn stream_dirs(device: &dyn Device, dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let names = device.list(dir).map_err(Error::io(dir, "list"))?;
    let is_stream = |name: &String| {
        name.strip_prefix(STREAM).is_some_and(|number| number.parse::<u32>().is_ok())
    };
    Ok(names.iter().filter(|name| is_stream(name)).map(|name| dir.join(name)).collect())
}

/// Removes what has arrived of a base that does not count.
fn clear_arriving(device: &dyn Device, dir: &Path) -> Result<(), Error> {
    let dirs = stream_dirs(device, dir)?;
    for dir in dirs.iter().map(PathBuf::as_path).chain([dir]) {
        for name in device.list(dir).map_err(Error::io(dir, "list"))? {
            if name.starts_with(ARRIVING) {
                let path = dir.join(name);
                device.remove(&path).map_err(Error::io(&path, "remove"))?;
            }
        }
    }
    Ok(())
}

/// Removes the files of before, and gives the base's files their names. Repeats without harm.
fn adopt(device: &dyn Device, dirs: &[PathBuf], names: &[String]) -> Result<(), Error> {
    let dir = &dirs[0];
    let mut pending = Vec::new();
    let mut kept = BTreeSet::new();
    for (at, name) in names.iter().enumerate() {
        let from = arriving(dir, at, name);
        match device.exists(&from).map_err(Error::io(&from, "look for"))? {
            true => pending.push((from, dir.join(name))),
            false => _ = kept.insert(dir.join(name)),
        }
    }
    for dir in dirs {
        remove_former(device, dir, &kept)?;
    }
    for (from, to) in &pending {
        device.rename(from, to).map_err(Error::io(to, "rename a file of a base to"))?;
        // In the order of the list: the manifest counts once all before are there.
        let parent = to.parent().unwrap_or(dir);
        device.sync_dir(parent).map_err(Error::io(parent, "sync the directory"))?;
    }
    let path = dir.join(ARRIVED);
    device.remove(&path).map_err(Error::io(&path, "remove"))?;
    device.sync_dir(dir).map_err(Error::io(dir, "sync the directory"))
}

fn remove_former(device: &dyn Device, dir: &Path, kept: &BTreeSet<PathBuf>) -> Result<(), Error> {
    for stream in stream_dirs(device, dir)? {
        for name in device.list(&stream).map_err(Error::io(&stream, "list"))? {
            let path = stream.join(&name);
            if !name.starts_with(ARRIVING) && !kept.contains(&path) {
                device.remove(&path).map_err(Error::io(&path, "remove"))?;
            }
        }
        device.sync_dir(&stream).map_err(Error::io(&stream, "sync the directory"))?;
    }
    for name in device.list(dir).map_err(Error::io(dir, "list"))? {
        let path = dir.join(&name);
        let is_log = name == MANIFEST || name == MARKER || name.starts_with(PART_PREFIX);
        if is_log && !kept.contains(&path) {
            device.remove(&path).map_err(Error::io(&path, "remove"))?;
        }
    }
    device.sync_dir(dir).map_err(Error::io(dir, "sync the directory"))
}
