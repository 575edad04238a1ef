use super::*;

fn device() -> PowerCutDevice {
    PowerCutDevice::new(PowerCutOptions::default())
}

/// A file of zeros with a durable name.
fn durable_file(
    device: &PowerCutDevice,
    len: u64,
) -> (tempfile::TempDir, PathBuf, Arc<dyn DeviceFile>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let file = device.create(&path, len).unwrap();
    device.sync_dir(dir.path()).unwrap();
    (dir, path, file)
}

#[test]
fn unsynced_bytes_are_lost_and_synced_ones_are_kept() {
    let first = device();
    let (_dir, path, file) = durable_file(&first, 4096);
    file.write_at(&[IoSlice::new(b"kept")], 510).unwrap();
    file.sync_data().unwrap();
    file.write_at(&[IoSlice::new(b"lost")], 512).unwrap();
    let mut seen = [0; 6];
    first.open(&path).unwrap().read_at(&mut seen, 510).unwrap();
    assert_eq!(&seen, b"kelost");
    first.cut();
    assert!(file.sync_data().is_err());
    device().open(&path).unwrap().read_at(&mut seen, 510).unwrap();
    assert_eq!(&seen, b"kept\0\0");
}

#[test]
fn names_are_lost_until_their_directory_is_synced() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    let first = device();
    first.write_small(&a, b"1").unwrap();
    first.sync_dir(dir.path()).unwrap();
    first.rename(&a, &b).unwrap();
    first.write_small(&a, b"2").unwrap();
    assert_eq!(first.list(dir.path()).unwrap(), ["a", "b"]);
    assert_eq!(first.read_small(&b).unwrap(), b"1");
    first.cut();
    let second = device();
    assert_eq!(second.list(dir.path()).unwrap(), ["a"]);
    assert_eq!(second.read_small(&a).unwrap(), b"1");
    second.write_small(&b, b"3").unwrap();
    second.rename(&b, &a).unwrap();
    second.sync_dir(dir.path()).unwrap();
    second.cut();
    assert_eq!(device().read_small(&a).unwrap(), b"3");
}

#[test]
fn a_lying_sync_loses_what_it_promised() {
    let liar = PowerCutDevice::new(PowerCutOptions { lying_sync: true, ..Default::default() });
    let (_dir, path, file) = durable_file(&liar, 512);
    file.write_at(&[IoSlice::new(b"x")], 0).unwrap();
    file.sync_data().unwrap();
    liar.cut();
    let mut seen = [9];
    device().open(&path).unwrap().read_at(&mut seen, 0).unwrap();
    assert_eq!(seen, [0]);
}

#[test]
fn early_sectors_tear_a_write() {
    let options = PowerCutOptions { seed: 1, early_sectors: 0.5, ..Default::default() };
    let first = PowerCutDevice::new(options);
    let (_dir, path, file) = durable_file(&first, 65536);
    file.write_at(&[IoSlice::new(&[7; 65536])], 0).unwrap();
    first.cut();
    let bytes = fs::read(&path).unwrap();
    let there = bytes.chunks(SECTOR).filter(|s| s[0] == 7).count();
    assert!(there > 0 && there < bytes.len() / SECTOR);
}

#[test]
fn what_a_cut_took_away_is_never_called_synced() {
    let first = device();
    let (_dir, _path, file) = durable_file(&first, 512);
    file.write_at(&[IoSlice::new(b"x")], 0).unwrap();
    let body = Arc::clone(locked(&first.0.names).files.values().next().unwrap());
    let mut unsynced = locked(&body.unsynced);
    let left = || first.0.changes_left.load(Ordering::SeqCst);
    let before = left();
    std::thread::scope(|scope| {
        let sync = scope.spawn(|| file.sync_data());
        // The sync has checked the power, and gets the bytes after the cut.
        while left() == before {
            std::thread::yield_now();
        }
        first.0.off.store(true, Ordering::SeqCst);
        unsynced.clear();
        drop(unsynced);
        let synced = sync.join().unwrap();
        assert!(synced.is_err(), "a sync of what is gone");
    });
}
