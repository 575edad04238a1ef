use super::*;
use crate::device::{FileDevice, MemoryDevice, SimulatedDevice, SimulatedDisk, SimulatedFault};

const NVM: Nvm = Nvm { factor: 3.0, first_ns: 100.0, line_ns: 10.0 };

fn put(file: &dyn DeviceFile, bytes: &[u8], offset: u64) {
    file.write_at(&[IoSlice::new(bytes)], offset).unwrap();
}

#[test]
fn every_flushed_line_takes_what_the_factor_says() {
    let device = NvmDevice::new(Arc::new(SimulatedDisk::new().process(1)), NVM);
    device.create_dir(Path::new("/d")).unwrap();
    let file = device.create(Path::new("/d/f"), 4096).unwrap();
    let took = |write: &dyn Fn()| {
        clock::simulate(Some(0));
        write();
        let took = clock::monotonic_ns();
        clock::simulate(None);
        took
    };
    let write = |bytes: usize, at| put(&*file, &vec![5; bytes], at);
    assert_eq!(took(&|| write(64, 128)), 200);
    assert_eq!(took(&|| write(64, 100)), 220);
    assert_eq!(took(&|| write(1, 0)), 200);
    assert_eq!(took(&|| write(0, 0)), 0);
    assert_eq!(took(&|| write(100, 4090)), 240, "beyond the mapping as well");
    assert_eq!(took(&|| file.sync_data().unwrap()), 0);
    let mut got = [0; 640];
    assert_eq!(took(&|| drop(file.read_at(&mut [0; 640], 0))), 380);
    file.read_at(&mut got, 0).unwrap();
    assert_eq!((got[0], got[1], got[191]), (5, 0, 5));
}

/// A disk with a file of `len` bytes, mapped, with a durable name.
fn simulated(seed: u64, len: u64) -> (SimulatedDisk, SimulatedDevice, Arc<dyn DeviceFile>) {
    let disk = SimulatedDisk::new();
    let below = disk.process(seed);
    let device = NvmDevice::new(Arc::new(below.clone()), NVM);
    device.create_dir(Path::new("/d")).unwrap();
    let file = device.create(Path::new("/d/f"), len).unwrap();
    file.sync_data().unwrap();
    device.sync_dir(Path::new("/d")).unwrap();
    (disk, below, file)
}

fn after_cut(disk: &SimulatedDisk, seed: u64) -> Vec<u8> {
    let fork = disk.fork();
    fork.power_cut(seed);
    fork.process(0).read_small(Path::new("/d/f")).unwrap()
}

#[test]
fn a_write_is_durable_when_it_returns() {
    let mut random = fastrand::Rng::with_seed(3);
    for round in 0..200 {
        let (disk, _, file) = simulated(round, 1000);
        let mut expected = vec![0; 1000];
        for n in 1..=random.u8(1..20) {
            let (at, len) = (random.usize(0..1000), random.usize(0..300));
            let bytes = vec![n; len.min(1000 - at)];
            let (a, b) = bytes.split_at(random.usize(0..=bytes.len()));
            file.write_at(&[IoSlice::new(a), IoSlice::new(b)], at as u64).unwrap();
            expected[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        assert_eq!(after_cut(&disk, round), expected, "round {round}");
    }
}

/// The process dies in the last write. What was written before is there; of the last write, each
/// line is or is not.
#[test]
fn what_was_not_flushed_is_lost_line_by_line() {
    let (mut whole, mut nothing, mut mixed) = (0, 0, 0);
    for seed in 0..300 {
        let (disk, below, file) = simulated(seed, 4096);
        put(&*file, &[1; 4096], 0);
        below.arm(SimulatedFault::Stop(seed % 3));
        let slices = [IoSlice::new(&[2; 640]), IoSlice::new(&[2; 640])];
        assert!(file.write_at(&slices, 1280).is_err());
        let bytes = after_cut(&disk, seed);
        assert!(bytes[..1280].iter().chain(&bytes[2560..]).all(|b| *b == 1), "seed {seed}");
        let lines = bytes[1280..2560].chunks(LINE as usize);
        let there = lines.filter(|line| line.iter().all(|b| *b == 2)).count();
        match there {
            0 => nothing += 1,
            20 => whole += 1,
            _ => mixed += 1,
        }
    }
    assert!(whole > 10 && nothing > 10 && mixed > 50, "{whole} {nothing} {mixed}");
}

#[test]
fn a_write_beyond_the_mapping_is_durable_after_a_sync() {
    let mut lost = 0;
    for seed in 0..50 {
        let (disk, below, file) = simulated(seed, 100);
        put(&*file, &[7; 200], 50);
        assert_eq!(file.len().unwrap(), 250);
        lost += u32::from(after_cut(&disk, seed).get(50..250) != Some(&[7; 200]));
        below.arm(SimulatedFault::Sync { after: 0, for_ever: false });
        assert!(file.sync_data().is_err(), "there is something to sync");
        put(&*file, &[8; 200], 50);
        file.sync_data().unwrap();
        // Behind a sync, stores still come last.
        put(&*file, &[9; 10], 60);
        let bytes = after_cut(&disk, seed);
        assert_eq!((&bytes[50..60], &bytes[60..70]), (&[8; 10][..], &[9; 10][..]));
        assert_eq!(bytes[70..], [8; 180]);
    }
    assert!(lost > 5, "{lost}");
}

#[test]
fn a_sync_has_nothing_to_do_within_the_mapping() {
    let (_, below, file) = simulated(1, 4096);
    below.arm(SimulatedFault::Sync { after: 0, for_ever: true });
    put(&*file, &[1; 4096], 0);
    file.sync_data().unwrap();
    put(&*file, &[1], 4096);
    assert!(file.sync_data().is_err() && file.sync_data().is_err(), "it is not forgotten");
}

#[test]
fn a_device_without_memory_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let faulty = crate::device::PowerCutDevice::new(Default::default());
    let device = NvmDevice::new(Arc::new(faulty), NVM);
    let error = device.create(&dir.path().join("f"), 10).unwrap_err();
    assert!(error.to_string().contains("cannot be mapped"), "{error}");
}

/// On this machine: files of memory and of a disk.
#[cfg(all(target_os = "linux", not(miri)))]
mod mapped {
    use super::*;
    use std::fs;

    /// Devices with an empty directory each.
    fn devices() -> Vec<(NvmDevice, tempfile::TempDir)> {
        if LineFlush::of_machine().is_err() {
            return Vec::new();
        }
        let below = [
            (MemoryDevice::shared(), tempfile::tempdir_in(MemoryDevice::ROOT).unwrap()),
            (FileDevice::shared(), tempfile::tempdir().unwrap()),
        ];
        below.map(|(below, dir)| (NvmDevice::new(below, NVM), dir)).into()
    }

    #[test]
    fn what_is_stored_is_in_the_file_at_once() {
        for (device, dir) in devices() {
            let path = dir.path().join("f");
            for len in [0, 1, 64, 4095, 4096, 10_000] {
                let mut expected = vec![0; len];
                let file = device.create(&path, len as u64).unwrap();
                let mut random = fastrand::Rng::with_seed(len as u64);
                for n in 1..50 {
                    let (at, many) = (random.usize(0..=len), random.usize(0..300));
                    let bytes = vec![n; many];
                    put(&*file, &bytes, at as u64);
                    if many > 0 && expected.len() < at + many {
                        expected.resize(at + many, 0);
                    }
                    expected[at..at + many].copy_from_slice(&bytes);
                    assert_eq!(fs::read(&path).unwrap(), expected, "{len} {device:?}");
                }
                file.sync_data().unwrap();
                let mut seen = vec![0; expected.len() + 1];
                assert_eq!(file.read_at(&mut seen, 0).unwrap(), expected.len());
                assert_eq!(seen[..expected.len()], expected);
                drop(file);
                // The next opening maps what there is.
                let file = device.open(&path).unwrap();
                put(&*file, &[255], expected.len().saturating_sub(1) as u64);
                assert_eq!(fs::read(&path).unwrap().last(), Some(&255));
                assert!(device.open_read(&path).unwrap().read_at(&mut seen, 0).unwrap() > 0);
            }
        }
    }

    /// Emptied in place, the file would end the process at the next store.
    #[test]
    fn a_file_that_is_replaced_stays_for_those_who_have_it() {
        for (device, dir) in devices() {
            let path = dir.path().join("f");
            let old = device.create(&path, 8192).unwrap();
            let new = device.create(&path, 100).unwrap();
            let newer = device.create_in_pieces(&path, 50, &mut |_| true).unwrap();
            put(&*old, &[1; 8192], 0);
            put(&*new, &[2; 100], 0);
            put(&*newer, &[3; 50], 0);
            assert_eq!(fs::read(&path).unwrap(), [3; 50]);
            device.rename(&path, &dir.path().join("g")).unwrap();
            device.remove(&dir.path().join("g")).unwrap();
            put(&*newer, &[4; 50], 0);
        }
    }

    #[test]
    fn holes_get_their_space_before_they_are_stored_to() {
        use std::os::unix::fs::MetadataExt;
        for (device, dir) in devices() {
            let path = dir.path().join("f");
            fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
            assert_eq!(path.metadata().unwrap().blocks(), 0);
            let _file = device.open(&path).unwrap();
            assert!(path.metadata().unwrap().blocks() * 512 >= 1 << 20, "{device:?}");
        }
    }

    #[test]
    fn a_file_that_is_only_read_is_not_mapped() {
        for (device, dir) in devices() {
            let path = dir.path().join("f");
            fs::write(&path, [1; 100]).unwrap();
            let file = device.open_read(&path).unwrap();
            assert!(file.write_at(&[IoSlice::new(&[2])], 0).is_err());
            // It may become shorter while it is read.
            fs::File::options().write(true).open(&path).unwrap().set_len(10).unwrap();
            assert_eq!(file.read_at(&mut [0; 100], 0).unwrap(), 10);
        }
    }
}
