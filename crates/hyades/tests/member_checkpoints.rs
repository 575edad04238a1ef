//! Promise: a member that dies at any change of its disk while it takes a checkpoint begins with
//! the checkpoint before, or with the new one, and follows on.
#![allow(missing_docs)]

mod common;

use common::followers::Primary;
use common::members::{MirrorFrames, begin_at, mirror_options, settings_of};
use common::{Combination, broken};
use hyades::wal::Mirror;
use hyades::{
    CheckpointSettings, Concurrency, CutMark, Error, FollowedLog, Follower, ImagePlace, Protocol,
    RecordKind,
};
use hyades_platform::device::{SimulatedDevice, SimulatedDisk, SimulatedFault};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

const COMMANDS: Combination = Combination {
    protocol: Protocol::Taurus,
    concurrency: Concurrency::Silo,
    record: RecordKind::Adaptive,
    streams: 3,
};

fn run(primary: &Primary, seed: u64) {
    let (number, mut rng) = (AtomicU64::new(seed << 32), fastrand::Rng::with_seed(seed));
    let mut session = primary.db().session().unwrap();
    (0..250).for_each(|_| primary.change(&mut session, &mut rng, &number));
}

/// The member's process, which begins with the checkpoint in the files.
struct Process {
    device: SimulatedDevice,
    frames: MirrorFrames,
    follower: Follower,
}

fn open_mirror(primary: &Primary, device: &SimulatedDevice) -> Mirror {
    let options = mirror_options(primary.c, Path::new("/db"), Some(Arc::new(device.clone())));
    Mirror::open(options, "b", primary.db().log().unwrap().manifest().uuid()).unwrap()
}

impl Process {
    fn begin(primary: &Primary, disk: &SimulatedDisk, seed: u64) -> Process {
        let device = disk.process(seed);
        let mut mirror = open_mirror(primary, &device);
        let incarnation = primary.incarnation();
        if mirror.incarnation().is_none() {
            mirror.begin(&begin_at(&incarnation), &[], settings_of(primary), 0).unwrap();
        }
        let base = mirror.manifest().checkpoint.as_ref().map(|_| mirror.recovering());
        let catalogue = primary.catalogue();
        let log = FollowedLog { catalogue: &catalogue, incarnation: &incarnation, base };
        let follower = primary.declared().follow(&log).unwrap();
        Process { device, frames: MirrorFrames(Mutex::new(mirror)), follower }
    }

    fn round(&mut self, primary: &Primary, mark: &CutMark) {
        primary.tee.feed(&mut self.frames.0.lock().unwrap());
        self.follower.round(mark, &self.frames).unwrap();
    }

    /// Takes a checkpoint.
    fn checkpoint(&mut self) -> Result<(), Error> {
        let image = self.follower.begin_image(1 << 20)?;
        let mut mirror = self.frames.0.lock().unwrap();
        let ((number, parts), uuid) = (mirror.next_checkpoint(2), mirror.manifest().uuid());
        let device = mirror.device().clone();
        let place = ImagePlace { device, uuid, number, parts, before: 0 };
        let settings = CheckpointSettings::default();
        let (checkpoint, _) = image.write(&place, &settings, &AtomicBool::new(false))?;
        mirror.sync()?;
        mirror.adopt(checkpoint, None)?;
        Ok(())
    }
}

/// A checkpoint replaces another one, and the process dies at each change in turn. Returns how
/// often the new checkpoint was found, and how often the one before.
fn dies_at_each_change(c: Combination, seed: u64) -> [u32; 2] {
    let primary = Primary::new(c, seed);
    let mark = || {
        let mark = primary.mark();
        primary.wait_for(&mark);
        mark
    };
    let disk = SimulatedDisk::new();
    run(&primary, seed * 3);
    let mut process = Process::begin(&primary, &disk, 1);
    let first = mark();
    process.round(&primary, &first);
    process.checkpoint().unwrap();
    run(&primary, seed * 3 + 1);
    let second = mark();
    primary.tee.feed(&mut process.frames.0.lock().unwrap());
    process.frames.0.lock().unwrap().sync().unwrap();
    drop(process);
    disk.kill();
    run(&primary, seed * 3 + 2);
    let third = mark();
    let digest = primary.db().digest();
    let mut found = [0; 2];
    for change in 0.. {
        let disk = disk.fork();
        let mut process = Process::begin(&primary, &disk, change);
        process.round(&primary, &second);
        process.device.arm(SimulatedFault::Stop(change));
        let taken = process.checkpoint();
        let is_alive = process.device.is_alive();
        assert!(taken.is_ok() || !is_alive, "{taken:?}");
        drop(process);
        match change % 2 {
            0 => disk.kill(),
            _ => disk.power_cut(change + seed),
        }
        let mut process = Process::begin(&primary, &disk, change + 1);
        let begun_at = process.follower.served().expect("there is a checkpoint");
        assert!([first.epoch, second.epoch].contains(&begun_at), "change {change}: {begun_at}");
        assert!(taken.is_err() || begun_at == second.epoch, "change {change}: it was taken");
        found[usize::from(begun_at == first.epoch)] += 1;
        process.round(&primary, &third);
        assert_eq!(process.follower.database().digest(), digest, "{c:?}, change {change}");
        process.checkpoint().unwrap();
        if is_alive {
            return found;
        }
    }
    unreachable!("a checkpoint makes a limited number of changes");
}

#[test]
fn a_member_that_dies_in_a_checkpoint_has_one() {
    let _alone = broken::alone();
    let data = Combination { record: RecordKind::Data, ..COMMANDS };
    let serial = Combination { protocol: Protocol::Serial, streams: 1, ..data };
    // How many changes follow the manifest depends on the segments that other threads prepare: so
    // the histories go on until the process has died there several times.
    let mut behind_manifest = 0;
    for seed in 1..40 {
        for c in [COMMANDS, data, serial] {
            let found = dies_at_each_change(c, seed);
            assert!(found[1] > 5, "{found:?}");
            // The last one did not die.
            behind_manifest += found[0] - 1;
        }
        if behind_manifest > 3 {
            return;
        }
    }
    panic!("the process died {behind_manifest} times behind the manifest");
}
