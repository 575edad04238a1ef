//! A device as slow as non-volatile memory: flushing a cache line takes longer than in ordinary
//! memory.

use super::{Device, DeviceFile, forward_names};
use crate::clock;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

/// Bytes of a cache line.
const LINE: u64 = 64;

/// How slow non-volatile memory is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Nvm {
    /// The latency relative to ordinary memory; 2 in the experiments of Poplar (section 6).
    pub factor: f64,
    /// Time to flush a cache line to ordinary memory, in nanoseconds.
    pub line_ns: f64,
}

impl Default for Nvm {
    fn default() -> Self {
        Nvm { factor: 2.0, line_ns: 80.0 }
    }
}

/// Wraps a device in memory. A write spins for the extra time of flushing its cache lines in
/// sequence on non-volatile memory. In the experiment a write counts as durable on return; a sync
/// adds nothing. Reads take the same extra time.
#[derive(Clone, Debug)]
pub struct NvmDevice {
    inner: Arc<dyn Device>,
    extra_ns: f64,
}

impl NvmDevice {
    /// Wraps `inner` and adds the extra latency of `nvm`.
    pub fn new(inner: Arc<dyn Device>, nvm: Nvm) -> Self {
        NvmDevice { inner, extra_ns: (nvm.factor - 1.0).max(0.0) * nvm.line_ns }
    }

    fn wrap(&self, inner: Arc<dyn DeviceFile>) -> Arc<dyn DeviceFile> {
        Arc::new(NvmFile { inner, extra_ns: self.extra_ns })
    }
}

#[derive(Debug)]
struct NvmFile {
    inner: Arc<dyn DeviceFile>,
    extra_ns: f64,
}

impl NvmFile {
    /// Spins for the extra time of the cache lines of `bytes` at `offset`.
    fn spin_extra(&self, offset: u64, bytes: u64) {
        if bytes > 0 {
            let lines = (offset + bytes).div_ceil(LINE) - offset / LINE;
            let extra = (lines as f64 * self.extra_ns).round() as u64;
            clock::spin_until(clock::monotonic_ns() + extra);
        }
    }
}

impl DeviceFile for NvmFile {
    fn write_at(&self, slices: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.inner.write_at(slices, offset)?;
        self.spin_extra(offset, slices.iter().map(|slice| slice.len() as u64).sum());
        Ok(())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let n = self.inner.read_at(buffer, offset)?;
        self.spin_extra(offset, n as u64);
        Ok(n)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.inner.sync_data()
    }

    fn drop_cached(&self) {
        self.inner.drop_cached();
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
}

impl Device for NvmDevice {
    fn name(&self) -> &'static str {
        "nvm"
    }

    fn create(&self, path: &Path, len: u64) -> io::Result<Arc<dyn DeviceFile>> {
        Ok(self.wrap(self.inner.create(path, len)?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DeviceFile>> {
        Ok(self.wrap(self.inner.open(path)?))
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn DeviceFile>> {
        Ok(self.wrap(self.inner.open_read(path)?))
    }

    fn write_small(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.inner.write_small(path, bytes)
    }

    forward_names!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::MemoryDevice;

    #[test]
    fn every_flushed_line_takes_what_the_factor_says() {
        let dir = tempfile::tempdir().unwrap();
        let nvm = Nvm { factor: 3.0, line_ns: 100.0 };
        let device = NvmDevice::new(MemoryDevice::shared(), nvm);
        let file = device.create(&dir.path().join("f"), 4096).unwrap();
        let took = |write: &dyn Fn()| {
            clock::simulate(Some(0));
            write();
            let took = clock::monotonic_ns();
            clock::simulate(None);
            took
        };
        let write = |bytes: usize, at| file.write_at(&[IoSlice::new(&vec![5; bytes])], at).unwrap();
        assert_eq!(took(&|| write(64, 128)), 200);
        assert_eq!(took(&|| write(64, 100)), 400);
        assert_eq!(took(&|| write(1, 0)), 200);
        assert_eq!(took(&|| write(0, 0)), 0);
        assert_eq!(took(&|| file.sync_data().unwrap()), 0);
        let mut got = [0; 640];
        assert_eq!(took(&|| drop(file.read_at(&mut [0; 640], 0))), 2000);
        file.read_at(&mut got, 0).unwrap();
        assert_eq!((got[0], got[1], got[191]), (5, 0, 5));
    }
}
