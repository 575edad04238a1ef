//! Several devices, each mounted on a directory.

use super::{Device, DeviceFile, DirectoryLock};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Selects the device by path: a path in or below a mounted directory is on the device mounted
/// there (the deepest match). All other paths are on the first device.
#[derive(Clone, Debug)]
pub struct MountedDevice {
    mounts: Vec<(PathBuf, Arc<dyn Device>)>,
    name: &'static str,
}

impl MountedDevice {
    /// Mounts each device on its directory.
    ///
    /// # Panics
    /// Without a device.
    pub fn new(mounts: Vec<(PathBuf, Arc<dyn Device>)>) -> Self {
        assert!(!mounts.is_empty(), "at least one device has to be mounted");
        let name = mounts[0].1.name();
        MountedDevice { mounts, name }
    }

    /// Returns the device of a path.
    fn at(&self, path: &Path) -> &Arc<dyn Device> {
        let mounted = self.mounts.iter().filter(|(dir, _)| path.starts_with(dir));
        let deepest = mounted.max_by_key(|(dir, _)| dir.components().count());
        &deepest.unwrap_or(&self.mounts[0]).1
    }
}

impl Device for MountedDevice {
    fn name(&self) -> &'static str {
        self.name
    }

    fn durable(&self) -> bool {
        self.mounts.iter().all(|(_, device)| device.durable())
    }

    fn reads_wait(&self) -> bool {
        self.mounts.iter().any(|(_, device)| device.reads_wait())
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.at(dir).create_dir(dir)
    }

    fn create(&self, path: &Path, len: u64) -> io::Result<Arc<dyn DeviceFile>> {
        self.at(path).create(path, len)
    }

    fn create_in_pieces(
        &self,
        path: &Path,
        len: u64,
        pause: &mut dyn FnMut(u64) -> bool,
    ) -> io::Result<Arc<dyn DeviceFile>> {
        self.at(path).create_in_pieces(path, len, pause)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DeviceFile>> {
        self.at(path).open(path)
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn DeviceFile>> {
        self.at(path).open_read(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let device = self.at(from);
        if !Arc::ptr_eq(device, self.at(to)) {
            return Err(io::Error::new(
                io::ErrorKind::CrossesDevices,
                format!("{} and {} are on different devices", from.display(), to.display()),
            ));
        }
        device.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.at(path).remove(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.at(dir).list(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.at(dir).sync_dir(dir)
    }

    fn read_small(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.at(path).read_small(path)
    }

    fn write_small(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.at(path).write_small(path, bytes)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.at(path).exists(path)
    }

    fn lock_dir(&self, dir: &Path) -> io::Result<DirectoryLock> {
        self.at(dir).lock_dir(dir)
    }

    fn lock_dir_shared(&self, dir: &Path) -> io::Result<DirectoryLock> {
        self.at(dir).lock_dir_shared(dir)
    }

    fn check_writable(&self, dir: &Path) -> io::Result<()> {
        self.at(dir).check_writable(dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{FileDevice, SimulatedDisk};

    #[test]
    fn a_file_is_on_the_device_of_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        let (here, there) = (dir.path().join("a"), dir.path().join("a/b"));
        let disk: Arc<dyn Device> = Arc::new(SimulatedDisk::new().process(1));
        disk.create_dir(&there).unwrap();
        let mounts = vec![(here.clone(), FileDevice::shared()), (there.clone(), disk.clone())];
        let device = MountedDevice::new(mounts);
        device.create_dir(&here).unwrap();
        device.write_small(&here.join("x"), b"1").unwrap();
        device.write_small(&there.join("y"), b"2").unwrap();
        assert!(FileDevice.exists(&here.join("x")).unwrap());
        assert!(!FileDevice.exists(&there.join("y")).unwrap());
        assert_eq!(disk.read_small(&there.join("y")).unwrap(), b"2");
        let error = device.rename(&here.join("x"), &there.join("x")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::CrossesDevices);
    }
}
