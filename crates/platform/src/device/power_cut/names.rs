//! The names of files as seen by the process, and the changes not on the medium yet.
//!
//! A new file has a hidden name on the medium until its directory is synced. Until then renames and
//! removals change only the view; the pending changes are kept in order.

use super::FileBody;
use crate::device::{Device, FileDevice};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Prefix of the names of files without a durable directory entry; listings omit these files.
pub(super) const HIDDEN: &str = ".unsynced-";

#[derive(Debug, Default)]
pub(super) struct DirectoryNames {
    directories: HashMap<PathBuf, Directory>,
    /// Open files by physical path: two handles to a file share the unsynced bytes.
    pub(super) files: HashMap<PathBuf, Arc<FileBody>>,
}

#[derive(Debug, Default)]
pub(super) struct Directory {
    /// Name as seen -> name on the medium.
    pub(super) view: BTreeMap<String, String>,
    /// Changes not on the medium yet, oldest first.
    pub(super) pending: Vec<NameChange>,
}

#[derive(Debug)]
pub(super) enum NameChange {
    Rename { physical: String, name: String },
    Remove { physical: String },
}

pub(super) fn not_found(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{} does not exist", path.display()))
}

pub(super) fn split(path: &Path) -> io::Result<(PathBuf, String)> {
    match (path.parent(), path.file_name()) {
        (Some(dir), Some(name)) => Ok((dir.to_owned(), name.to_string_lossy().into_owned())),
        _ => Err(not_found(path)),
    }
}

impl DirectoryNames {
    /// Returns the directory as seen; reads the directory from the medium the first time.
    pub(super) fn directory(&mut self, dir: &Path) -> io::Result<&mut Directory> {
        if !self.directories.contains_key(dir) {
            let mut view = BTreeMap::new();
            for name in FileDevice.list(dir)? {
                if !name.starts_with(HIDDEN) {
                    view.insert(name.clone(), name);
                }
            }
            self.directories.insert(dir.to_owned(), Directory { view, pending: Vec::new() });
        }
        self.directories.get_mut(dir).ok_or_else(|| not_found(dir))
    }

    /// Returns the file's path on the medium.
    pub(super) fn physical(&mut self, path: &Path) -> io::Result<PathBuf> {
        let (dir, name) = split(path)?;
        match self.directory(&dir)?.view.get(&name) {
            Some(physical) => Ok(dir.join(physical)),
            None => Err(not_found(path)),
        }
    }

    /// Applies the pending changes to the medium, in order: a cut in between leaves a prefix.
    pub(super) fn sync(&mut self, dir: &Path) -> io::Result<()> {
        let mut pending = VecDeque::from(std::mem::take(&mut self.directory(dir)?.pending));
        while let Some(change) = pending.pop_front() {
            match change {
                NameChange::Rename { physical, name } => {
                    let (from, to) = (dir.join(&physical), dir.join(&name));
                    fs::rename(&from, &to)?;
                    for value in self.directory(dir)?.view.values_mut() {
                        if *value == physical {
                            value.clone_from(&name);
                        }
                    }
                    for later in &mut pending {
                        let (NameChange::Rename { physical: p, .. }
                        | NameChange::Remove { physical: p }) = later;
                        if *p == physical {
                            p.clone_from(&name);
                        }
                    }
                    self.files.remove(&to);
                    if let Some(body) = self.files.remove(&from) {
                        self.files.insert(to, body);
                    }
                }
                NameChange::Remove { physical } => {
                    fs::remove_file(dir.join(&physical))?;
                    self.files.remove(&dir.join(&physical));
                }
            }
        }
        Ok(())
    }
}
