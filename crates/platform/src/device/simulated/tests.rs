use super::*;

fn written(disk: &SimulatedDisk, path: &str, bytes: &[u8], sync: bool) -> Arc<dyn DeviceFile> {
    let device = disk.process(1);
    device.create_dir(Path::new("/d")).unwrap();
    let file = device.create(Path::new(path), 0).unwrap();
    file.write_at(&[IoSlice::new(bytes)], 0).unwrap();
    device.sync_dir(Path::new("/d")).unwrap();
    if sync {
        file.sync_data().unwrap();
    }
    file
}

fn seen(disk: &SimulatedDisk, path: &str) -> Vec<u8> {
    disk.process(0).read_small(Path::new(path)).unwrap()
}

#[test]
fn a_killed_process_leaves_the_page_cache_and_a_power_cut_takes_it() {
    let disk = SimulatedDisk::new();
    let file = written(&disk, "/d/f", &[7; 4096], false);
    disk.kill();
    assert!(file.sync_data().is_err(), "a dead process syncs nothing");
    assert_eq!(seen(&disk, "/d/f"), [7; 4096]);
    let lost = (0..20).filter(|&seed| {
        let fork = disk.fork();
        fork.power_cut(seed);
        seen(&fork, "/d/f") != [7; 4096]
    });
    assert!(lost.count() > 5, "a power cut loses what was not synced");
    assert_eq!(seen(&disk, "/d/f"), [7; 4096], "a fork is a copy");
}

#[test]
fn what_is_synced_stays() {
    let disk = SimulatedDisk::new();
    written(&disk, "/d/f", b"kept", true);
    (0..20).for_each(|seed| disk.power_cut(seed));
    assert_eq!(seen(&disk, "/d/f"), b"kept");
}

#[test]
fn sectors_are_lost_torn_and_reordered() {
    let disk = SimulatedDisk::new();
    let file = written(&disk, "/d/f", &[0; 8192], true);
    for n in 1..5u8 {
        file.write_at(&[IoSlice::new(&[n; 4096])], u64::from(n) * 512).unwrap();
    }
    let (mut torn, mut reordered) = (false, false);
    for seed in 0..300 {
        let fork = disk.fork();
        fork.power_cut(seed);
        let bytes = seen(&fork, "/d/f");
        torn |= bytes.chunks(SECTOR_BYTES).any(|s| s.iter().any(|b| *b != s[0]));
        // The end of the last write is present, the beginning of an earlier write is missing.
        reordered |= bytes[4 * 512 + 4095] == 4 && bytes[512] == 0;
    }
    assert!(torn && reordered, "{torn} {reordered}");
}

const SECTOR_BYTES: usize = super::medium::SECTOR;

#[test]
fn a_failed_sync_marks_pages_clean_that_no_later_sync_writes() {
    let mut lost = 0;
    for seed in 0..20 {
        let disk = SimulatedDisk::new();
        let device = disk.process(seed);
        device.create_dir(Path::new("/d")).unwrap();
        let file = device.create(Path::new("/d/f"), 0).unwrap();
        device.sync_dir(Path::new("/d")).unwrap();
        device.arm(SimulatedFault::Sync { after: 0, for_ever: false });
        file.write_at(&[IoSlice::new(&[7; 2048])], 0).unwrap();
        assert!(file.sync_data().is_err());
        file.sync_data().unwrap();
        let mut cached = [0; 2048];
        assert_eq!(file.read_at(&mut cached, 0).unwrap(), 2048);
        assert_eq!(cached, [7; 2048]);
        disk.power_cut(seed);
        lost += u32::from(seen(&disk, "/d/f") != [7; 2048]);
    }
    assert!(lost > 5, "{lost}");
}

#[test]
fn names_are_lost_in_order() {
    let path = Path::new("/d/f");
    let counts = (0..40).map(|seed| {
        let disk = SimulatedDisk::new();
        written(&disk, "/d/a", b"x", true);
        let device = disk.process(0);
        device.rename(Path::new("/d/a"), Path::new("/d/b")).unwrap();
        device.rename(Path::new("/d/b"), path).unwrap();
        disk.power_cut(seed);
        let names = disk.process(0).list(Path::new("/d")).unwrap();
        assert_eq!(names.len(), 1);
        names[0].clone()
    });
    let mut all: Vec<String> = counts.collect();
    all.sort();
    all.dedup();
    assert_eq!(all, ["a", "b", "f"]);
}

#[test]
fn a_full_disk_takes_a_part_and_says_so() {
    let disk = SimulatedDisk::new();
    let device = disk.process(1);
    device.create_dir(Path::new("/d")).unwrap();
    let file = device.create(Path::new("/d/f"), 0).unwrap();
    device.arm(SimulatedFault::Full(100));
    let error = file.write_at(&[IoSlice::new(&[1; 200])], 0).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::NOSPC.raw_os_error()));
    assert_eq!(file.len().unwrap(), 100);
}

#[test]
fn a_process_stops_at_the_change_it_was_told() {
    for after in 0..4 {
        let disk = SimulatedDisk::new();
        let device = disk.process(after);
        device.create_dir(Path::new("/d")).unwrap();
        device.arm(SimulatedFault::Stop(after));
        let run = || -> io::Result<()> {
            let file = device.create(Path::new("/d/f"), 0)?;
            file.write_at(&[IoSlice::new(b"x")], 0)?;
            file.sync_data()?;
            device.sync_dir(Path::new("/d"))
        };
        assert!(run().is_err());
        assert!(!device.is_alive());
    }
}

#[test]
fn a_directory_has_one_holder_until_it_dies() {
    let disk = SimulatedDisk::new();
    let device = disk.process(1);
    let dir = Path::new("/d");
    device.create_dir(dir).unwrap();
    let held = device.lock_dir(dir).unwrap();
    assert_eq!(device.lock_dir(dir).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    drop(held);
    let old = device.lock_dir(dir).unwrap();
    let next = disk.process(2);
    let _held = next.lock_dir(dir).unwrap();
    drop(old);
    assert!(next.lock_dir(dir).is_err(), "a dead holder lets nothing go");
}

#[test]
fn a_saved_disk_is_loaded_again() {
    let disk = SimulatedDisk::new();
    written(&disk, "/d/f", b"bytes", true);
    let dir = tempfile::tempdir().unwrap();
    disk.save(dir.path()).unwrap();
    assert_eq!(SimulatedDisk::load(dir.path()).unwrap().content(), disk.content());
}

#[test]
fn short_transfers_are_finished() {
    let disk = SimulatedDisk::new();
    let device = disk.process(3);
    device.arm(SimulatedFault::Short);
    device.create_dir(Path::new("/d")).unwrap();
    let bytes: Vec<u8> = (0..10_000u32).map(|n| n as u8).collect();
    let file = device.create(Path::new("/d/f"), 0).unwrap();
    for at in [0, 3000, 5000] {
        file.write_at(
            &[IoSlice::new(&bytes[at..at + 1]), IoSlice::new(&bytes[at + 1..])],
            at as u64,
        )
        .unwrap();
    }
    assert_eq!(device.read_small(Path::new("/d/f")).unwrap(), bytes);
}

#[test]
fn a_write_in_several_transfers_is_one_write() {
    for seed in 0..20 {
        let disk = SimulatedDisk::new();
        written(&disk, "/d/f", &[1; 1000], true);
        let device = disk.process(seed);
        device.arm(SimulatedFault::Short);
        let file = device.open(Path::new("/d/f")).unwrap();
        file.write_at(&[IoSlice::new(&[2; 3000])], 1000).unwrap();
        file.sync_data().unwrap();
        for seed in 0..50 {
            let Rot { offset, in_last_write, .. } = disk.fork().rot(seed).unwrap();
            assert_eq!(in_last_write, offset >= 1000, "byte {offset}");
        }
    }
}
