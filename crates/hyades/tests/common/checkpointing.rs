//! Databases that take checkpoints while transactions run.

use super::held::HeldDevice;
use super::{
    Combination, How, Opened, Transfer, ballast_rows, check, directory, files, populate, power_cut,
    run, try_open,
};
use hyades::{CheckpointSettings, Replay};
use hyades_platform::device::{Device, FileDevice, PowerCutDevice};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Small blocks and long pauses, so that much happens between the cut and the last row.
pub fn slow() -> CheckpointSettings {
    changed(|settings| (settings.share, settings.block_bytes) = (0.05, 1))
}

/// Settings for checkpoints that may take all processors.
pub fn fast() -> CheckpointSettings {
    changed(|settings| settings.share = 1.0)
}

/// The default settings but for a change.
pub fn changed(change: impl FnOnce(&mut CheckpointSettings)) -> CheckpointSettings {
    let mut settings = CheckpointSettings::default();
    change(&mut settings);
    settings
}

pub fn open(dir: &Path, c: Combination, device: Option<PowerCutDevice>, how: How) -> Opened {
    let device: Option<Arc<dyn Device>> = device.map(|d| Arc::new(d) as _);
    let threads = how.threads;
    let replay = how.replay;
    try_open(dir, c, How { device, ..how })
        .unwrap_or_else(|error| panic!("{c:?} {threads} {replay:?}: {error}"))
}

/// Inserts rows that only lengthen a scan.
pub fn ballast(opened: &Opened, rows: u64) {
    ballast_at(opened, 0, rows);
}

pub fn ballast_at(opened: &Opened, from: u64, rows: u64) {
    for first in (from..from + rows).step_by(1000) {
        match opened.inserting {
            None => opened.db.try_transact(|tx| ballast_rows(tx, first)).unwrap().unwrap(),
            Some([_, ballast]) => opened.call(ballast, &first),
        }
    }
}

/// Runs transactions while checkpoints are taken without a pause. Returns the acknowledged
/// transfers and the number of checkpoints.
pub fn run_with_checkpoints(opened: &Opened, seed: u64, count: u64) -> (Vec<Transfer>, u64) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let keeper = scope.spawn(|| {
            let mut taken = 0;
            // At least one, even if the transactions end early.
            while opened.db.checkpoint().is_ok() {
                taken += 1;
                if over.load(Ordering::Acquire) {
                    break;
                }
            }
            taken
        });
        let acknowledged = run(opened, seed, count);
        over.store(true, Ordering::Release);
        (acknowledged, keeper.join().unwrap())
    })
}

/// Checks that every way to recover yields the same state.
pub fn same_state(dir: &Path, c: Combination, digest: u64, acknowledged: &[Transfer]) {
    for (threads, replay) in
        [(1, Replay::Wavefront), (2, Replay::Wavefront), (3, Replay::Pools), (2, Replay::Serial)]
    {
        let what = format!("{c:?} recovered by {threads} threads, {replay:?}");
        let again = open(dir, c, None, How { threads, replay, ..How::default() });
        assert_eq!(again.db.digest(), digest, "{what}: another state");
        assert!(again.db.recovery().image_rows > 0, "{what}: there was a checkpoint");
        check(&again, acknowledged, &what);
        again.db.close().unwrap();
    }
}

pub fn the_state_is_the_state_that_was(c: Combination, seed: u64) {
    let dir = directory();
    let device = power_cut(seed);
    let how = How { checkpoints: slow(), ..How::default() };
    let opened = open(dir.path(), c, Some(device.clone()), how);
    populate(&opened);
    ballast(&opened, 5000);
    let (acknowledged, taken) = run_with_checkpoints(&opened, seed, 1500);
    assert!(taken > 0, "{c:?}: {:?}", opened.db.checkpoints());
    opened.db.log().expect("there is a log").flush().unwrap();
    let before = opened.db.digest();
    device.cut();
    drop(opened);
    same_state(dir.path(), c, before, &acknowledged);
}

/// Cuts the power `step` changes of the device after the start of a checkpoint. Everything was
/// acknowledged before, so the state must be the same whichever checkpoint is used. Returns whether
/// the checkpoint completed.
pub fn power_fails_at(c: Combination, seed: u64, step: u64) -> bool {
    let dir = directory();
    let device = power_cut(seed * 1000 + step);
    let checkpoints = fast();
    let how = How { checkpoints, ..How::default() };
    let opened = open(dir.path(), c, Some(device.clone()), how);
    populate(&opened);
    // Enough rows for whole segments to be truncated.
    ballast(&opened, 10_000);
    opened.db.checkpoint().unwrap();
    ballast_at(&opened, 10_000, 10_000 * c.streams.min(3) as u64);
    let acknowledged = run(&opened, seed, 20);
    let before = opened.db.digest();
    opened.db.log().expect("there is a log").flush().unwrap();
    device.cut_after(step);
    let through = opened.db.checkpoint().is_ok();
    device.cut();
    drop(opened);
    for _ in 0..2 {
        let again = open(dir.path(), c, None, How::default());
        assert_eq!(again.db.digest(), before, "{c:?} seed {seed} step {step}: another state");
        check(&again, &acknowledged, "after the power was cut");
        nothing_is_left_behind(&again, dir.path());
        again.db.close().unwrap();
    }
    through
}

/// The switch of the manifest to a second checkpoint fails, and the process ends: the state is
/// unchanged. A power cut is not tested, because this device removes files at once.
pub fn manifest_stays(c: Combination, seed: u64) {
    let dir = directory();
    let device = HeldDevice::new(FileDevice::shared());
    let checkpoints = fast();
    let device_: Arc<dyn Device> = Arc::new(device.clone());
    let how = How { checkpoints, device: Some(device_), ..How::default() };
    let opened = try_open(dir.path(), c, how).unwrap();
    populate(&opened);
    ballast(&opened, 3000);
    opened.db.checkpoint().unwrap();
    let acknowledged = run(&opened, seed, 100);
    let before = opened.db.digest();
    opened.db.log().expect("there is a log").flush().unwrap();
    device.refuse("MANIFEST");
    opened.db.checkpoint().unwrap_err();
    // It is unknown which checkpoint is in force, so no other may be taken.
    opened.db.checkpoint().unwrap_err();
    drop(opened);
    let again = open(dir.path(), c, None, How::default());
    assert_eq!(again.db.digest(), before, "{c:?}: another state");
    check(&again, &acknowledged, "after the manifest was not written");
    nothing_is_left_behind(&again, dir.path());
    again.db.checkpoint().unwrap();
}

/// Checks that the only checkpoint on disk is the checkpoint named by the manifest.
pub fn nothing_is_left_behind(opened: &Opened, dir: &Path) {
    let manifest = opened.db.log().expect("there is a log").manifest();
    let parts = manifest.checkpoint.map_or(0, |c| c.parts.len());
    let is_part = |path: &std::path::PathBuf| {
        path.file_name().unwrap().to_string_lossy().starts_with("checkpoint-")
    };
    assert_eq!(files(dir).iter().filter(|p| is_part(p)).count(), parts);
}
