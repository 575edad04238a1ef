//! A thread that panics takes nobody with it who would wait for it for ever.
#![allow(missing_docs)]

mod common;
use common::checkpointing::ballast;
use common::{How, combinations, directory, populate, run, try_open};
use hyades::{CheckpointSettings, Error, Replay};
use hyades_platform::device::{Device, DeviceFile, DirectoryLock, FileDevice};
use std::io::{self, IoSlice};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// A device on which, after so many of them, one read panics.
#[derive(Clone, Debug)]
struct PanickingDevice {
    inner: Arc<dyn Device>,
    left: Arc<AtomicI64>,
}

#[derive(Debug)]
struct PanickingFile {
    inner: Arc<dyn DeviceFile>,
    left: Arc<AtomicI64>,
}

impl DeviceFile for PanickingFile {
    fn write_at(&self, slices: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.inner.write_at(slices, offset)
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        assert_ne!(self.left.fetch_sub(1, Ordering::SeqCst), 0, "told to");
        self.inner.read_at(buffer, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.inner.sync_data()
    }
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
}

impl PanickingDevice {
    fn wrap(&self, inner: Arc<dyn DeviceFile>) -> Arc<dyn DeviceFile> {
        Arc::new(PanickingFile { inner, left: self.left.clone() })
    }
}

impl Device for PanickingDevice {
    fn name(&self) -> &'static str {
        "panicking"
    }
    fn durable(&self) -> bool {
        self.inner.durable()
    }
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.create_dir(dir)
    }
    fn create(&self, path: &Path, len: u64) -> io::Result<Arc<dyn DeviceFile>> {
        Ok(self.wrap(self.inner.create(path, len)?))
    }
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DeviceFile>> {
        Ok(self.wrap(self.inner.open(path)?))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.inner.remove(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.inner.list(dir)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.sync_dir(dir)
    }
    fn read_small(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.inner.read_small(path)
    }
    fn write_small(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.inner.write_small(path, bytes)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.inner.exists(path)
    }
    fn lock_dir(&self, dir: &Path) -> io::Result<DirectoryLock> {
        self.inner.lock_dir(dir)
    }
}

/// Panics that are wanted, and what follows from them, are not worth a page each.
fn be_quiet() {
    let loud = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let wanted = info
            .payload_as_str()
            .is_some_and(|said| said.contains("told to") || said.contains("PoisonError"));
        if !wanted {
            loud(info);
        }
    }));
}

#[test]
fn a_replay_ends_when_one_of_its_threads_panics() {
    be_quiet();
    let mut told = 0;
    for (seed, c) in combinations().into_iter().enumerate().filter(|(_, c)| c.streams < 16) {
        let dir = directory();
        let opened = try_open(dir.path(), c, How::default()).unwrap();
        populate(&opened);
        ballast(&opened, 3000);
        opened.db.checkpoint().unwrap();
        run(&opened, seed as u64, 300);
        opened.db.close().unwrap();
        let replay = if seed % 3 == 0 { Replay::Pools } else { Replay::Wavefront };
        for reads in 0.. {
            let left = Arc::new(AtomicI64::new(reads));
            let device = PanickingDevice { inner: FileDevice::shared(), left: left.clone() };
            let device: Arc<dyn Device> = Arc::new(device);
            let checkpoints = CheckpointSettings::default();
            let how =
                How { device: Some(device), threads: 2, replay, checkpoints, ..How::default() };
            match catch_unwind(AssertUnwindSafe(|| try_open(dir.path(), c, how))) {
                // Before replay has begun the thread is the caller's own.
                Err(_) => {}
                Ok(Err(Error::Recovery(why))) => {
                    // The one that was told to, or another that found what that one left behind.
                    assert!(why.contains("a thread of the replay panicked"), "{c:?}: {why}");
                    told += 1;
                }
                Ok(Err(error)) => panic!("{c:?}, after {reads} reads: {error}"),
                Ok(Ok(_)) => {
                    assert!(left.load(Ordering::SeqCst) >= 0, "{c:?}: after {reads} reads");
                    break;
                }
            }
            assert!(reads < 1000, "opening reads less than that");
        }
    }
    assert!(told > 100, "only {told} replays had a thread that panicked");
}
