//! Ordinary files: positioned vectored writes, and `fdatasync`.

#[cfg(target_os = "linux")]
use super::FileMemory;
use super::uncached::Uncached;
use super::{Device, DeviceFile, DirectoryLock, whole};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, IoSlice, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// Bytes written at once when a file is filled with zeros.
const ZERO_CHUNK: u64 = 1 << 20;
/// The same with concurrent users of the device: another user's sync waits for at most a piece.
const PIECE: u64 = 256 << 10;

/// The file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileDevice;

impl FileDevice {
    /// The file system, shared.
    pub fn shared() -> Arc<dyn Device> {
        Arc::new(Self)
    }
}

/// A file of the file system. `sync` is false where there is nothing to sync to.
#[derive(Debug)]
pub(super) struct PlainFile {
    file: File,
    sync: bool,
    uncached: Uncached,
}

impl PlainFile {
    pub(super) fn new(file: File, sync: bool) -> Self {
        Self { file, sync, uncached: Uncached::default() }
    }

    /// Writes a chunk of zeros at `offset` of a file that gets `len` bytes; returns the chunk's
    /// end.
    fn write_zeros(&self, zeros: &[u8], offset: u64, len: u64) -> io::Result<u64> {
        let chunk = &zeros[..(len - offset).min(zeros.len() as u64) as usize];
        self.write_at(&[IoSlice::new(chunk)], offset)?;
        Ok(offset + chunk.len() as u64)
    }

    /// Fills the file with zeros from `offset` on, so no space has to be allocated later.
    fn fill(&self, mut offset: u64, len: u64) -> io::Result<()> {
        let zeros = vec![0; len.min(ZERO_CHUNK) as usize];
        while offset < len {
            offset = self.write_zeros(&zeros, offset, len)?;
        }
        Ok(())
    }

    /// The same in pieces: see [`Device::create_in_pieces`].
    fn fill_in_pieces(&self, len: u64, pause: &mut dyn FnMut(u64) -> bool) -> io::Result<()> {
        let zeros = vec![0; len.min(PIECE) as usize];
        let mut offset = 0;
        while offset < len {
            let end = self.write_zeros(&zeros, offset, len)?;
            self.sync_data()?;
            if end < len && !pause(end - offset) {
                return self.fill(end, len);
            }
            offset = end;
        }
        Ok(())
    }

    /// Creates an empty file, or empties an existing file.
    fn create(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).open(path)?;
        Ok(Self::new(file, true))
    }
}

impl DeviceFile for PlainFile {
    fn write_at(&self, slices: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        if self.sync && self.uncached.write(&self.file, slices, offset)? {
            return Ok(());
        }
        whole::write(slices, offset, |slices, offset| {
            Ok(rustix::io::pwritev(&self.file, slices, offset)?)
        })
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        whole::read(buffer, offset, |buffer, offset| self.file.read_at(buffer, offset))
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.sync { self.file.sync_data() } else { Ok(()) }
    }

    fn drop_cached(&self) {
        if self.sync {
            // Pages not dropped are read from the cache.
            let _ = rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::DontNeed);
        }
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    #[cfg(target_os = "linux")]
    fn map(&self) -> io::Result<Box<dyn FileMemory>> {
        super::nvm::mapping::map(&self.file, !self.sync)
    }
}

impl Device for FileDevice {
    fn name(&self) -> &'static str {
        "file"
    }

    fn durable(&self) -> bool {
        true
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        if dir.is_dir() {
            return Ok(());
        }
        let is_new = |dir: &&Path| !dir.as_os_str().is_empty() && !dir.is_dir();
        let new: Vec<&Path> = dir.ancestors().take_while(is_new).collect();
        fs::create_dir_all(dir)?;
        for dir in new {
            match dir.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => self.sync_dir(parent)?,
                _ => self.sync_dir(Path::new("."))?,
            }
        }
        Ok(())
    }

    fn create(&self, path: &Path, len: u64) -> io::Result<Arc<dyn DeviceFile>> {
        let file = PlainFile::create(path)?;
        file.fill(0, len)?;
        Ok(Arc::new(file))
    }

    fn create_in_pieces(
        &self,
        path: &Path,
        len: u64,
        pause: &mut dyn FnMut(u64) -> bool,
    ) -> io::Result<Arc<dyn DeviceFile>> {
        let file = PlainFile::create(path)?;
        file.fill_in_pieces(len, pause)?;
        Ok(Arc::new(file))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DeviceFile>> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Arc::new(PlainFile::new(file, true)))
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn DeviceFile>> {
        Ok(Arc::new(PlainFile::new(File::open(path)?, true)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn read_small(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn write_small(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = File::create(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn lock_dir(&self, dir: &Path) -> io::Result<DirectoryLock> {
        lock(dir, rustix::fs::FlockOperation::NonBlockingLockExclusive)
    }

    fn lock_dir_shared(&self, dir: &Path) -> io::Result<DirectoryLock> {
        lock(dir, rustix::fs::FlockOperation::NonBlockingLockShared)
    }

    fn check_writable(&self, dir: &Path) -> io::Result<()> {
        use rustix::fs::{Access, access};
        Ok(access(dir, Access::WRITE_OK | Access::EXEC_OK)?)
    }
}

/// Locks a directory with `flock`. The system attaches the lock to the directory itself, not to the
/// path, and needs only read permission. So the lock works on a read-only file system, and excludes
/// openers with another mount of the same directory.
fn lock(dir: &Path, how: rustix::fs::FlockOperation) -> io::Result<DirectoryLock> {
    let file = File::open(dir)?;
    match rustix::fs::flock(&file, how) {
        Ok(()) => Ok(DirectoryLock(Box::new(LockedDirectory(file)))),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(io::Error::new(
            ErrorKind::WouldBlock,
            "in use by another process, or opened twice in this one",
        )),
        Err(e) => Err(e.into()),
    }
}

/// A directory's descriptor with the lock.
///
/// The lock belongs to the open file description, and a process forked by another thread holds a
/// copy of every descriptor until its exec. Closing our descriptor would leave the lock with the
/// copy for a moment, and an opening right after would be refused. So drop unlocks explicitly.
#[derive(Debug)]
struct LockedDirectory(File);

impl Drop for LockedDirectory {
    fn drop(&mut self) {
        // If the file system no longer supports the operation, closing is the fallback.
        let _ = rustix::fs::flock(&self.0, rustix::fs::FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_the_descriptor_does_not_keep_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let file = File::open(dir.path()).unwrap();
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
        let _in_a_child = file.try_clone().unwrap();
        let held = LockedDirectory(file);
        assert!(FileDevice.lock_dir(dir.path()).is_err());
        drop(held);
        FileDevice.lock_dir(dir.path()).unwrap();
    }

    #[test]
    fn a_directory_has_one_holder() {
        let dir = tempfile::tempdir().unwrap();
        let held = FileDevice.lock_dir(dir.path()).unwrap();
        let second = FileDevice.lock_dir(dir.path()).unwrap_err();
        assert_eq!(second.kind(), ErrorKind::WouldBlock);
        drop(held);
        FileDevice.lock_dir(dir.path()).unwrap();
    }

    #[test]
    fn readers_share_a_directory_and_keep_writers_out() {
        let dir = tempfile::tempdir().unwrap();
        let first = FileDevice.lock_dir_shared(dir.path()).unwrap();
        let second = FileDevice.lock_dir_shared(dir.path()).unwrap();
        let writer = FileDevice.lock_dir(dir.path()).unwrap_err();
        assert_eq!(writer.kind(), ErrorKind::WouldBlock);
        drop((first, second));
        let _held = FileDevice.lock_dir(dir.path()).unwrap();
        let reader = FileDevice.lock_dir_shared(dir.path()).unwrap_err();
        assert_eq!(reader.kind(), ErrorKind::WouldBlock);
    }

    #[test]
    fn what_is_open_for_reading_cannot_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, b"abc").unwrap();
        let file = FileDevice.open_read(&path).unwrap();
        let mut got = [0; 3];
        assert_eq!(file.read_at(&mut got, 0).unwrap(), 3);
        file.write_at(&[IoSlice::new(b"x")], 0).unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"abc");
        FileDevice.open_read(&dir.path().join("g")).unwrap_err();
        FileDevice.check_writable(dir.path()).unwrap();
    }

    #[test]
    fn slices_land_one_after_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let file = FileDevice.create(&dir.path().join("f"), 1024).unwrap();
        file.write_at(&[IoSlice::new(b"abc"), IoSlice::new(b""), IoSlice::new(b"de")], 100)
            .unwrap();
        file.sync_data().unwrap();
        let mut got = [9; 7];
        assert_eq!(file.read_at(&mut got, 99).unwrap(), 7);
        assert_eq!(&got, b"\0abcde\0");
        assert_eq!(file.read_at(&mut got, 1020).unwrap(), 4);
        assert_eq!(file.len().unwrap(), 1024);
    }

    #[test]
    fn a_file_that_is_created_in_pieces_is_the_same() {
        let dir = tempfile::tempdir().unwrap();
        for (len, most) in [0, 1, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE, 5 * PIECE + 7]
            .into_iter()
            .flat_map(|len| [0, 1, 2, u64::MAX].map(|most| (len, most)))
        {
            let path = dir.path().join("a");
            fs::write(&path, b"of before").unwrap();
            let mut pieces = Vec::new();
            let mut pause = |bytes| {
                pieces.push(bytes);
                (pieces.len() as u64) < most
            };
            FileDevice.create_in_pieces(&path, len, &mut pause).unwrap();
            assert_eq!(fs::read(&path).unwrap(), vec![0; len as usize], "{len}, {most}");
            let expected = len.div_ceil(PIECE).saturating_sub(1).min(most.max(1));
            assert_eq!(pieces.len() as u64, expected, "{len}, {most}: {pieces:?}");
        }
    }

    #[test]
    fn a_new_file_is_zeros_to_its_last_byte() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        for len in [0, 1, 4096, (2 << 20) + 4096 + 100] {
            fs::write(&path, vec![7; 9000]).unwrap();
            FileDevice.create(&path, len as u64).unwrap();
            assert!(fs::read(&path).unwrap() == vec![0; len], "{len} bytes");
        }
    }
}
