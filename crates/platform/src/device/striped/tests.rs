use super::*;
use crate::device::{FileDevice, MemoryDevice, SimulatedDisk};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// A set of `n` directories in a temporary directory, with units of 16 bytes.
fn set(n: usize) -> (tempfile::TempDir, PathBuf, StripedDevice) {
    let dir = tempfile::tempdir().unwrap();
    let dirs: Vec<_> =
        (0..n).map(|i| (dir.path().join(format!("d{i}")), MemoryDevice::shared())).collect();
    let first = dirs[0].0.clone();
    let device = StripedDevice::new(dirs, 16);
    device.create_dir(&first).unwrap();
    (dir, first, device)
}

#[test]
fn a_striped_file_holds_what_a_plain_one_does() {
    let mut random = fastrand::Rng::with_seed(5);
    for parts in [1, 2, 3, 5] {
        let (dir, first, device) = set(parts);
        let plain = MemoryDevice.create(&dir.path().join("plain"), 700).unwrap();
        let file = device.create(&first.join("f"), 700).unwrap();
        for _ in 0..100 {
            let bytes: Vec<u8> = (0..random.usize(0..200)).map(|_| random.u8(..)).collect();
            let cut = random.usize(0..=bytes.len());
            let slices = [IoSlice::new(&bytes[..cut]), IoSlice::new(&bytes[cut..])];
            let offset = random.u64(0..600);
            file.write_at(&slices, offset).unwrap();
            plain.write_at(&slices, offset).unwrap();
            let (mut a, mut b) = (vec![9; random.usize(0..300)], Vec::new());
            b.clone_from(&a);
            let offset = random.u64(0..800);
            assert_eq!(
                file.read_at(&mut a, offset).unwrap(),
                plain.read_at(&mut b, offset).unwrap()
            );
            assert_eq!(a, b);
            assert_eq!(file.len().unwrap(), plain.len().unwrap());
        }
        file.sync_data().unwrap();
        let again = device.open(&first.join("f")).unwrap();
        let (mut a, mut b) = (vec![0; 900], vec![0; 900]);
        assert_eq!(again.read_at(&mut a, 0).unwrap(), plain.read_at(&mut b, 0).unwrap());
        assert_eq!(a, b);
    }
}

#[test]
fn every_directory_has_its_share() {
    let (dir, first, device) = set(3);
    device.create(&first.join("f"), 16 * 7 + 5).unwrap();
    let len = |i: usize| std::fs::metadata(dir.path().join(format!("d{i}/f"))).unwrap().len();
    assert_eq!([len(0), len(1), len(2)], [48, 37, 32]);
}

#[test]
fn names_move_and_go_together_and_small_files_have_one_part() {
    let (dir, first, device) = set(3);
    device.create(&first.join("f"), 100).unwrap();
    device.rename(&first.join("f"), &first.join("g")).unwrap();
    device.write_small(&first.join("m"), b"manifest").unwrap();
    let names = |i: usize| MemoryDevice.list(&dir.path().join(format!("d{i}"))).unwrap();
    assert_eq!([names(0), names(1), names(2)], [vec!["g", "m"], vec!["g"], vec!["g"]]);
    device.rename(&first.join("m"), &first.join("g")).unwrap();
    assert_eq!([names(0), names(1), names(2)], [vec!["g"], vec![], vec![]]);
    device.remove(&first.join("g")).unwrap();
    assert!(device.remove(&first.join("g")).is_err());
    assert!(device.open(&first.join("g")).is_err());
    let _held = device.lock_dir(&first).unwrap();
    assert!(FileDevice.lock_dir(&dir.path().join("d2")).is_err());
}

#[test]
fn a_part_that_was_lost_reads_as_zeros() {
    let (dir, first, device) = set(2);
    let file = device.create(&first.join("f"), 64).unwrap();
    file.write_at(&[IoSlice::new(&[7; 64])], 0).unwrap();
    std::fs::remove_file(dir.path().join("d1/f")).unwrap();
    let mut got = [9; 64];
    let file = device.open(&first.join("f")).unwrap();
    assert_eq!(file.read_at(&mut got, 0).unwrap(), 48);
    assert_eq!((got[0], got[16], got[31], got[32]), (7, 0, 0, 7));
}

#[test]
fn what_was_synced_survives_a_power_cut_in_every_directory() {
    let disk = SimulatedDisk::new();
    let running: Arc<dyn Device> = Arc::new(disk.process(1));
    let over = |device: &Arc<dyn Device>| {
        let dirs = ["/a", "/b", "/c"].map(|dir| (PathBuf::from(dir), Arc::clone(device)));
        StripedDevice::new(dirs.into(), 4096)
    };
    let device = over(&running);
    let path = Path::new("/a/f");
    device.create_dir(Path::new("/a")).unwrap();
    let file = device.create(path, 6 * 4096).unwrap();
    // A new file has to be synced in every part, though without a write.
    file.sync_data().unwrap();
    device.sync_dir(Path::new("/a")).unwrap();
    let fresh = disk.fork();
    fresh.power_cut(8);
    let fresh: Arc<dyn Device> = Arc::new(fresh.process(4));
    assert_eq!(over(&fresh).open(path).unwrap().len().unwrap(), 6 * 4096);
    file.write_at(&[IoSlice::new(&[5; 5 * 4096])], 0).unwrap();
    file.sync_data().unwrap();
    device.sync_dir(Path::new("/a")).unwrap();
    disk.power_cut(3);
    let running: Arc<dyn Device> = Arc::new(disk.process(2));
    let mut got = vec![0; 5 * 4096];
    over(&running).open(path).unwrap().read_at(&mut got, 0).unwrap();
    assert!(got.iter().all(|byte| *byte == 5));
}

/// A file replaces another file of the same name, and the power fails before the directories are
/// synced: each directory keeps or loses its own names.
#[test]
fn a_renamed_file_is_whole_after_a_power_cut() {
    let (path, temporary) = (Path::new("/a/s/f"), Path::new("/a/s/f.tmp"));
    let (mut replaced, mut kept) = (0, 0);
    for seed in 0..200 {
        let disk = SimulatedDisk::new();
        let over = |seed: u64| {
            let device: Arc<dyn Device> = Arc::new(disk.process(seed));
            let dirs = ["/a", "/b", "/c"].map(|dir| (PathBuf::from(dir), Arc::clone(&device)));
            StripedDevice::new(dirs.into(), 4096)
        };
        let device = over(seed);
        for dir in ["/a", "/a/s"] {
            device.create_dir(Path::new(dir)).unwrap();
            device.sync_dir(Path::new(dir)).unwrap();
        }
        let content = |path: &Path, byte: u8| {
            let file = device.create(path, 3 * 4096).unwrap();
            file.write_at(&[IoSlice::new(&[byte; 3 * 4096])], 0).unwrap();
            file.sync_data().unwrap();
        };
        content(path, 1);
        device.sync_dir(Path::new("/a/s")).unwrap();
        content(temporary, 2);
        device.rename(temporary, path).unwrap();
        disk.power_cut(seed);
        let mut got = vec![0; 3 * 4096];
        over(seed + 1).open_read(path).unwrap().read_at(&mut got, 0).unwrap();
        match got[0] {
            2 => {
                assert!(
                    got.iter().all(|byte| *byte == 2),
                    "seed {seed}: an old part behind a new one"
                );
                replaced += 1;
            }
            _ => kept += 1,
        }
    }
    assert!(replaced > 0 && kept > 0, "{replaced} {kept}: both must happen");
}

/// A rendezvous: each sync returns once `needed` syncs are in progress.
#[derive(Debug)]
struct Meeting {
    came: Mutex<usize>,
    all: Condvar,
    needed: usize,
}

#[derive(Debug)]
struct Part(Arc<Meeting>);

impl DeviceFile for Part {
    fn write_at(&self, _: &[IoSlice<'_>], _: u64) -> io::Result<()> {
        Ok(())
    }

    fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
        Ok(0)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut came = self.0.came.lock().unwrap();
        *came += 1;
        self.0.all.notify_all();
        while *came < self.0.needed {
            let (guard, waited) = self.0.all.wait_timeout(came, Duration::from_secs(60)).unwrap();
            came = guard;
            if waited.timed_out() {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(0)
    }
}

#[test]
fn parts_are_synced_in_parallel_and_only_those_that_were_written() {
    let (_dir, _, device) = set(4);
    let meeting = |needed| Arc::new(Meeting { came: Mutex::new(0), all: Condvar::new(), needed });
    let all = meeting(4);
    let part = || Arc::new(Part(Arc::clone(&all))) as Arc<dyn DeviceFile>;
    let file = device.file((0..4).map(|_| part()).collect(), false);
    file.write_at(&[IoSlice::new(&[1; 64])], 0).unwrap();
    file.sync_data().unwrap();
    file.write_at(&[IoSlice::new(&[1; 17])], 15).unwrap();
    file.sync_data().unwrap();
    file.sync_data().unwrap();
    assert_eq!(*all.came.lock().unwrap(), 6);
}
