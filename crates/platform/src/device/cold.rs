//! Cold reads: drops the system's cached pages of files, for reads from the disk.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Syncs every file below the directory and asks the system to drop the cached pages. Returns the
/// total length of the files in bytes. The system may keep pages mapped by another process. Files
/// in shared memory have no other storage and stay.
///
/// # Errors
/// A file cannot be opened or synced.
pub fn drop_cached(dir: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            bytes += drop_cached(&entry.path())?;
        } else if kind.is_file() {
            let file = File::open(entry.path())?;
            // Dirty pages cannot be dropped.
            file.sync_all()?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
            bytes += file.metadata()?.len();
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_counted_and_keep_what_they_hold() {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("stream");
        fs::create_dir(&below).unwrap();
        fs::write(below.join("a"), vec![1; 9000]).unwrap();
        fs::write(dir.path().join("b"), b"xy").unwrap();
        assert_eq!(drop_cached(dir.path()).unwrap(), 9002);
        assert_eq!(fs::read(below.join("a")).unwrap(), vec![1; 9000]);
        assert!(drop_cached(&dir.path().join("none")).is_err());
    }
}
