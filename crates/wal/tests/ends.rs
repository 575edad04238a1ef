//! Promise: the ends of the streams, and their marks, are known before the streams are read, from
//! a small part of the last segments; and the ends are those that reading everything finds.
#![allow(missing_docs)]

mod common;
use common::{Drawn, append, read_all, small, truncate};
use hyades_platform::device::{Device, DeviceFile, DirectoryLock, MemoryDevice};
use hyades_platform::mutation::{self, Mutation};
use hyades_platform::random::Random;
use hyades_wal::{
    Error, IncarnationSettings, Log, LogOptions, Lsn, MARKS, NUMBERS_ARE_VERSIONS, open,
};
use std::fs;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Counts the bytes read of files, except of the beginnings of files: every opening reads these.
#[derive(Clone, Debug)]
struct Counted {
    inner: Arc<dyn Device>,
    read: Arc<AtomicU64>,
}

#[derive(Debug)]
struct CountedFile(Arc<dyn DeviceFile>, Arc<AtomicU64>);

impl DeviceFile for CountedFile {
    fn write_at(&self, slices: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.0.write_at(slices, offset)
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = self.0.read_at(buffer, offset)?;
        self.1.fetch_add(if offset == 0 { 0 } else { read as u64 }, Ordering::SeqCst);
        Ok(read)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}

impl Counted {
    fn wrap(&self, file: Arc<dyn DeviceFile>) -> Arc<dyn DeviceFile> {
        Arc::new(CountedFile(file, Arc::clone(&self.read)))
    }

    /// The bytes read since the last call.
    fn take(&self) -> u64 {
        self.read.swap(0, Ordering::SeqCst)
    }
}

impl Device for Counted {
    fn name(&self) -> &'static str {
        "counted"
    }
    fn durable(&self) -> bool {
        self.inner.durable()
    }
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.create_dir(dir)
    }
    fn create(&self, path: &Path, len: u64) -> io::Result<Arc<dyn DeviceFile>> {
        self.inner.create(path, len)
    }
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DeviceFile>> {
        self.inner.open(path)
    }
    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn DeviceFile>> {
        Ok(self.wrap(self.inner.open_read(path)?))
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

/// Opens a log whose streams state marks.
fn opened(options: LogOptions) -> Log {
    let recovering = open(options).unwrap();
    let (_, verdict) = read_all(&recovering).unwrap();
    let mut settings = IncarnationSettings::default();
    settings.settings.insert(MARKS.to_string(), NUMBERS_ARE_VERSIONS.to_string());
    recovering.start(settings, &verdict, 1).unwrap()
}

/// The ends and marks of all incarnations as found first, if reading everything finds no damage.
/// Reading everything compares the two (`common::read_all`).
fn ends(options: LogOptions) -> Result<Vec<Vec<(Lsn, u64)>>, Error> {
    let recovering = open(options)?;
    read_all(&recovering)?;
    let found = recovering.manifest().incarnations.iter().map(|incarnation| {
        let ends = recovering.find_ends(incarnation)?;
        Ok(ends.iter().map(|end| (end.valid_to, end.mark)).collect())
    });
    found.collect()
}

/// The broken rule is global to the process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn options(dir: &Path, device: Arc<dyn Device>) -> LogOptions {
    let mut options = small(dir, 2, device);
    options.segment_bytes = 1 << 20;
    options.buffer_bytes = 1 << 18;
    options.stepped = true;
    options
}

/// Two streams of several segments, in batches of about 100 kB, of which each fourth one states a
/// higher mark.
fn long_log(dir: &Path) -> [Lsn; 2] {
    let log = opened(options(dir, MemoryDevice::shared()));
    let marks = Arc::new(Drawn::default());
    log.install_marks(marks.clone());
    let mut writer = log.writer().unwrap();
    for batch in 0..100 {
        for stream in 0..2 {
            marks.0.store(1 + batch / 4, Ordering::SeqCst);
            (0..25).for_each(|_| _ = append(&mut writer, stream, &[7; 4000]));
            assert!(log.step(stream));
        }
    }
    [0, 1].map(|stream| log.frontier().durable(stream))
}

#[test]
fn the_ends_are_known_from_a_small_part_of_the_log() {
    let _alone = alone();
    let dir = tempfile::tempdir_in(MemoryDevice::ROOT).unwrap();
    let durable = long_log(dir.path());
    let device = Counted { inner: MemoryDevice::shared(), read: Arc::default() };
    let recovering = open(options(dir.path(), Arc::new(device.clone()))).unwrap();
    device.take();
    let incarnation = &recovering.manifest().incarnations[0];
    let found = recovering.find_ends(incarnation).unwrap();
    let first = device.take();
    assert_eq!(
        [0, 1].map(|at: usize| (found[at].valid_to, found[at].mark)),
        durable.map(|to| (to, 25))
    );
    let mut read_ends = Vec::new();
    for mut reader in recovering.readers() {
        while reader.next_chunk().unwrap().is_some() {}
        read_ends.push(reader.end());
    }
    let whole = device.take();
    recovering.verdict(&read_ends).unwrap();
    eprintln!("{first} bytes for the ends, {whole} bytes for everything");
    assert!(whole > 20_000_000 && first < whole / 10, "{first} of {whole}");
}

/// The segment files of the streams.
fn segments(dir: &Path) -> Vec<PathBuf> {
    let entries = |dir: &Path| fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let streams = entries(dir).filter(|path| path.is_dir());
    let mut all: Vec<_> = streams.flat_map(|stream| entries(&stream).collect::<Vec<_>>()).collect();
    all.sort();
    all
}

fn short_options(dir: &Path) -> LogOptions {
    let mut options = small(dir, 2, MemoryDevice::shared());
    (options.segment_bytes, options.stepped) = (1 << 14, true);
    options.buffer_bytes = 4096;
    options.anchor_interval_bytes = 1024;
    options
}

/// Appends and flushes at random, raises marks now and then, and ends with a checkpoint at the ends
/// of the streams or without, with a close or without.
fn random_log(dir: &Path, random: &mut Random) {
    for _ in 0..=random.below(2) {
        let log = opened(short_options(dir));
        let marks = Arc::new(Drawn::default());
        log.install_marks(marks.clone());
        let mut writer = log.writer().unwrap();
        let rises = 1 + random.below(40);
        for _ in 0..random.below(120) {
            let stream = random.below(2) as usize;
            append(&mut writer, stream, &vec![7; random.below(600) as usize]);
            if random.below(rises) == 0 {
                marks.0.fetch_add(1, Ordering::SeqCst);
            }
            if random.below(3) == 0 || log.backlog(stream) > 2500 {
                log.step(stream);
            }
        }
        log.step(0);
        log.step(1);
        if random.chance(0.3) {
            truncate(&log, &[0, 1].map(|stream| log.frontier().durable(stream)));
        }
        if random.chance(0.3) {
            drop(writer);
            log.close().unwrap();
        }
    }
}

/// Damages a byte of a segment, and finds the ends; reading everything compares them. Returns
/// whether the damage was taken for a torn tail.
fn is_torn_at(dir: &Path, path: &Path, at: usize) -> bool {
    let whole = fs::read(path).unwrap();
    let mut bytes = whole.clone();
    bytes[at] ^= 0x10;
    fs::write(path, &bytes).unwrap();
    let result = std::panic::catch_unwind(|| ends(short_options(dir)));
    fs::write(path, &whole).unwrap();
    match result {
        Ok(found) => found.is_ok(),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn random_damage(seed: u64) {
    let mut random = Random::seeded(seed);
    let dir = tempfile::tempdir_in(MemoryDevice::ROOT).unwrap();
    random_log(dir.path(), &mut random);
    ends(short_options(dir.path())).unwrap();
    let all = segments(dir.path());
    for _ in 0..30 {
        let path = &all[random.below(all.len() as u64) as usize];
        let bytes = fs::read(path).unwrap();
        // The padding and the unused rest are zeros mostly.
        let used: Vec<_> = (0..bytes.len()).filter(|&at| bytes[at] != 0).collect();
        if !used.is_empty() {
            is_torn_at(dir.path(), path, used[random.below(used.len() as u64) as usize]);
        }
    }
}

#[test]
fn the_ends_found_first_are_the_ends_of_the_log_read() {
    let _alone = alone();
    (0..60).for_each(random_damage);
}

/// Breaks the rule that the frames of the last batch are checked.
#[test]
fn a_torn_batch_taken_for_whole_is_noticed() {
    let _alone = alone();
    mutation::set(Some(Mutation::TornBatchIsWhole));
    let noticed = std::panic::catch_unwind(|| (0..60).for_each(random_damage)).is_err();
    mutation::set(None);
    assert!(noticed);
}
