//! The content of a simulated disk: names and bytes, in the page cache and on the medium.

use crate::random::Random;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The unit in which unsynced bytes mostly reach the medium.
pub(super) const SECTOR: usize = 512;
/// The unit in which bytes stored into a mapped file do.
const LINE: usize = crate::device::LINE as usize;

pub(super) fn not_found(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{} does not exist", path.display()))
}

pub(super) fn split(path: &Path) -> io::Result<(&Path, String)> {
    match (path.parent(), path.file_name()) {
        (Some(dir), Some(name)) => Ok((dir, name.to_string_lossy().into_owned())),
        _ => Err(not_found(path)),
    }
}

/// A change of names, not durable yet.
#[derive(Clone, Debug)]
enum PendingChange {
    Link(String, u64),
    Unlink(String),
    Rename(String, String),
}

fn apply(names: &mut BTreeMap<String, u64>, change: &PendingChange) {
    match change {
        PendingChange::Link(name, file) => drop(names.insert(name.clone(), *file)),
        PendingChange::Unlink(name) => drop(names.remove(name)),
        PendingChange::Rename(from, to) => {
            if let Some(file) = names.remove(from) {
                names.insert(to.clone(), file);
            }
        }
    }
}

#[derive(Clone, Debug, Default)]
struct NameTable {
    seen: BTreeMap<String, u64>,
    durable: BTreeMap<String, u64>,
    pending: Vec<PendingChange>,
}

/// A file's bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct FileBytes {
    pub seen: Vec<u8>,
    durable: Vec<u8>,
    /// Writes not durable yet, oldest first.
    dirty: Vec<(usize, Vec<u8>)>,
    /// Lines of the mapped file on their way to the medium, older than all of `dirty` there.
    flushing: Vec<(usize, Vec<u8>)>,
    /// The last synced write and the later unsynced writes: the start time, the range, and whether
    /// synced.
    last_writes: Vec<(u64, Range<usize>, bool)>,
}

fn put(bytes: &mut Vec<u8>, offset: usize, new: &[u8]) {
    if bytes.len() < offset + new.len() {
        bytes.resize(offset + new.len(), 0);
    }
    bytes[offset..offset + new.len()].copy_from_slice(new);
}

/// Fractions of the dirty sectors on the medium after a power cut; a fraction is drawn per file.
const KEPT: [f64; 5] = [0.0, 0.1, 0.5, 0.9, 1.0];

fn is_gone() -> io::Error {
    io::Error::other("the file is gone")
}

impl FileBytes {
    /// Stores the bytes of a transfer. Transfers with the same `began` belong to the same write.
    pub fn write(&mut self, began: u64, offset: usize, bytes: &[u8]) {
        put(&mut self.seen, offset, bytes);
        // Zeros fill new files and carry no data, so do not count as a write.
        if bytes.iter().any(|b| *b != 0) {
            let end = offset + bytes.len();
            match self.last_writes.iter_mut().find(|(at, _, synced)| *at == began && !synced) {
                Some((_, range, _)) => range.end = end,
                None => self.last_writes.push((began, offset..end, false)),
            }
        }
        self.dirty.push((offset, bytes.to_vec()));
    }

    /// Stores bytes into the mapped file: each line reaches the medium by itself.
    pub fn store(&mut self, began: u64, mut offset: usize, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (line, rest) = bytes.split_at(bytes.len().min(LINE - offset % LINE));
            self.write(began, offset, line);
            (offset, bytes) = (offset + line.len(), rest);
        }
    }

    /// Begins to write back the lines with any byte of a range, as they are now.
    pub fn flush(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let end = range.end.next_multiple_of(LINE).min(self.seen.len());
        let lines = range.start / LINE * LINE..end;
        // A sync must not put older bytes over those on their way.
        for (offset, bytes) in std::mem::take(&mut self.dirty) {
            let ends = offset + bytes.len();
            let before = lines.start.clamp(offset, ends) - offset;
            let behind = lines.end.clamp(offset, ends) - offset;
            if behind <= before || before == 0 && behind == 0 {
                self.dirty.push((offset, bytes));
                continue;
            }
            let parts = [(offset, &bytes[..before]), (offset + behind, &bytes[behind..])];
            let parts = parts.into_iter().filter(|(_, part)| !part.is_empty());
            self.dirty.extend(parts.map(|(offset, part)| (offset, part.to_vec())));
        }
        for line in lines.clone().step_by(LINE) {
            let bytes = self.seen[line..(line + LINE).min(lines.end)].to_vec();
            self.flushing.push((line, bytes));
        }
    }

    /// The lines on their way have arrived.
    pub fn fence(&mut self) {
        self.count_synced();
        for (offset, bytes) in std::mem::take(&mut self.flushing) {
            put(&mut self.durable, offset, &bytes);
        }
    }

    /// What was written until now counts as synced.
    fn count_synced(&mut self) {
        if let Some((at, range, _)) = self.last_writes.pop() {
            self.last_writes = vec![(at, range, true)];
        }
    }

    /// All that is not durable yet, oldest first.
    fn take_dirty(&mut self) -> impl Iterator<Item = (usize, Vec<u8>)> + use<> {
        let flushing = std::mem::take(&mut self.flushing);
        flushing.into_iter().chain(std::mem::take(&mut self.dirty))
    }

    fn is_clean(&self) -> bool {
        self.dirty.is_empty() && self.flushing.is_empty() && self.seen == self.durable
    }

    pub fn sync(&mut self) {
        self.count_synced();
        for (offset, bytes) in self.take_dirty() {
            put(&mut self.durable, offset, &bytes);
        }
    }

    /// Writes some of the dirty sectors to the medium, in any order, a few torn. The rest are
    /// dropped: the page cache still shows the rest, and no later sync writes them.
    pub fn sync_in_part(&mut self, random: &mut Random) {
        let kept = KEPT[random.below(KEPT.len() as u64) as usize];
        for (offset, bytes) in self.take_dirty() {
            let mut at = 0;
            while at < bytes.len() {
                let end = bytes.len().min(at + SECTOR - (offset + at) % SECTOR);
                if random.chance(kept) {
                    let torn = random.chance(0.02);
                    let to = if torn { at + random.below((end - at) as u64) as usize } else { end };
                    put(&mut self.durable, offset + at, &bytes[at..to]);
                }
                at = end;
            }
        }
    }
}

/// Everything on the disk.
#[derive(Clone, Debug, Default)]
pub(super) struct Medium {
    directories: BTreeMap<PathBuf, NameTable>,
    /// Forks of a disk share the files without a write since the fork.
    files: BTreeMap<u64, Arc<FileBytes>>,
    next_file: u64,
    /// Counts operations.
    pub now: u64,
    /// The number of the process with access to the disk; processes with lower numbers are dead.
    pub process: u64,
    pub locks: BTreeMap<PathBuf, u64>,
}

impl Medium {
    fn names(&mut self, dir: &Path) -> io::Result<&mut NameTable> {
        self.directories.get_mut(dir).ok_or_else(|| not_found(dir))
    }

    pub fn is_directory(&self, dir: &Path) -> bool {
        self.directories.contains_key(dir)
    }

    /// Directories themselves are durable at once.
    pub fn create_dir(&mut self, dir: &Path) {
        for dir in dir.ancestors().filter(|d| !d.as_os_str().is_empty()) {
            self.directories.entry(dir.to_owned()).or_default();
        }
    }

    pub fn create(&mut self, path: &Path) -> io::Result<u64> {
        let (dir, name) = split(path)?;
        let file = self.next_file;
        let names = self.names(dir)?;
        names.seen.insert(name.clone(), file);
        names.pending.push(PendingChange::Link(name, file));
        self.next_file += 1;
        self.files.insert(file, Arc::default());
        Ok(file)
    }

    pub fn find(&self, path: &Path) -> io::Result<u64> {
        let (dir, name) = split(path)?;
        let names = self.directories.get(dir).ok_or_else(|| not_found(dir))?;
        names.seen.get(&name).copied().ok_or_else(|| not_found(path))
    }

    pub fn body(&self, file: u64) -> io::Result<&FileBytes> {
        self.files.get(&file).map(|body| &**body).ok_or_else(is_gone)
    }

    pub fn body_mut(&mut self, file: u64) -> io::Result<&mut FileBytes> {
        self.files.get_mut(&file).map(Arc::make_mut).ok_or_else(is_gone)
    }

    pub fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.find(from)?;
        let ((dir, old), (to_dir, new)) = (split(from)?, split(to)?);
        if dir != to_dir {
            return Err(io::Error::other("a simulated disk renames within a directory only"));
        }
        let names = self.names(dir)?;
        let change = PendingChange::Rename(old, new);
        apply(&mut names.seen, &change);
        names.pending.push(change);
        Ok(())
    }

    pub fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.find(path)?;
        let (dir, name) = split(path)?;
        let names = self.names(dir)?;
        names.seen.remove(&name);
        names.pending.push(PendingChange::Unlink(name));
        Ok(())
    }

    pub fn list(&mut self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names: Vec<String> = self.names(dir)?.seen.keys().cloned().collect();
        let below = self.directories.keys().filter(|below| below.parent() == Some(dir));
        names.extend(below.filter_map(|below| Some(below.file_name()?.to_str()?.to_owned())));
        names.sort_unstable();
        Ok(names)
    }

    pub fn sync_dir(&mut self, dir: &Path) -> io::Result<()> {
        let names = self.names(dir)?;
        names.pending.clear();
        names.durable = names.seen.clone();
        Ok(())
    }

    /// Cuts the power: a prefix of the pending name changes and any subset of the unsynced bytes
    /// survive.
    pub fn power_cut(&mut self, random: &mut Random) {
        for names in self.directories.values_mut() {
            let kept = random.below(names.pending.len() as u64 + 1) as usize;
            for change in names.pending.drain(..).take(kept) {
                apply(&mut names.durable, &change);
            }
            names.seen = names.durable.clone();
        }
        for body in self.files.values_mut() {
            if body.is_clean() {
                // Other forks keep sharing the file. The draw keeps the random sequence the same in
                // either case.
                random.below(KEPT.len() as u64);
                continue;
            }
            let body = Arc::make_mut(body);
            body.sync_in_part(random);
            body.seen = body.durable.clone();
        }
        self.drop_nameless();
    }

    fn drop_nameless(&mut self) {
        let named = |file: &u64| {
            let mut all = self.directories.values();
            all.any(|n| n.seen.values().chain(n.durable.values()).any(|f| f == file))
        };
        let gone: Vec<u64> = self.files.keys().copied().filter(|file| !named(file)).collect();
        gone.iter().for_each(|file| drop(self.files.remove(file)));
    }

    /// Every named file.
    pub fn files(&self) -> impl Iterator<Item = (PathBuf, &FileBytes)> {
        self.directories.iter().flat_map(|(dir, names)| {
            let body = |(name, file): (&String, &u64)| {
                self.files.get(file).map(|body| (dir.join(name), &**body))
            };
            names.seen.iter().filter_map(body)
        })
    }

    /// Whether the byte at `at` belongs to the last synced write in the file's directory, or to a
    /// later unsynced write.
    pub fn is_last_write(&self, path: &Path, at: usize) -> bool {
        let beside = self.files().filter(|(other, _)| other.parent() == path.parent());
        let mut writes: Vec<_> = beside
            .flat_map(|(other, body)| body.last_writes.iter().map(move |w| (w.0, other.clone(), w)))
            .collect();
        writes.sort_by_key(|(now, ..)| std::cmp::Reverse(*now));
        let unsynced = writes.iter().take_while(|(_, _, write)| !write.2).count();
        let covers = |(_, other, write): &(u64, PathBuf, &(u64, Range<usize>, bool))| {
            other == path && write.1.contains(&at)
        };
        writes.iter().take(unsynced + 1).any(covers)
    }

    /// Flips a bit, on the medium and in the page cache.
    pub fn flip(&mut self, path: &Path, at: usize, bit: u32) -> io::Result<()> {
        let file = self.find(path)?;
        let body = self.body_mut(file)?;
        for bytes in [&mut body.seen, &mut body.durable] {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << bit;
            }
        }
        Ok(())
    }
}
