//! Promise: a panic of a thread does not leave other threads waiting for ever.
#![allow(missing_docs)]

mod common;
use common::checkpointing::ballast;
use common::{How, combinations, directory, populate, run, try_open};
use hyades::{CheckpointSettings, Error, Replay};
use hyades_platform::device::{Device, Fault, FaultyDevice, FileDevice};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Suppresses the messages of intended panics and of the poisoned locks that follow.
fn be_quiet() {
    let loud = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let wanted = info.payload_as_str().is_some_and(|said| {
            said.contains("a fault that was armed") || said.contains("PoisonError")
        });
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
        for reads in 0u64.. {
            let device = FaultyDevice::new(FileDevice::shared());
            device.arm(Fault::Panic(reads));
            let device: Arc<dyn Device> = Arc::new(device);
            let checkpoints = CheckpointSettings::default();
            let how =
                How { device: Some(device), threads: 2, replay, checkpoints, ..How::default() };
            match catch_unwind(AssertUnwindSafe(|| try_open(dir.path(), c, how))) {
                // Before replay begins, the panicking thread is the caller's own.
                Err(_) => {}
                Ok(Err(Error::Recovery(why))) => {
                    // The armed thread, or another thread that found a lock poisoned by the panic.
                    assert!(why.contains("a thread of the replay panicked"), "{c:?}: {why}");
                    told += 1;
                }
                Ok(Err(error)) => panic!("{c:?}, after {reads} reads: {error}"),
                // Opening does no more reads.
                Ok(Ok(_)) => break,
            }
            assert!(reads < 1000, "{c:?}: opening reads less than that");
        }
    }
    assert!(told > 100, "only {told} replays had a thread that panicked");
}

#[test]
fn a_checkpoint_that_panics_is_a_failure_and_the_next_one_is_taken() {
    be_quiet();
    for (seed, c) in combinations().into_iter().enumerate().filter(|(_, c)| c.streams == 3) {
        let (dir, second) = (directory(), directory());
        let device = FaultyDevice::new(FileDevice::shared());
        let how = || How {
            device: Some(Arc::new(device.clone())),
            more_dirs: vec![second.path().to_owned()],
            ..How::default()
        };
        let opened = try_open(dir.path(), c, how()).unwrap();
        populate(&opened);
        run(&opened, seed as u64, 100);
        // A checkpoint reads back its own writes.
        device.arm(Fault::Panic(seed as u64 % 3));
        let error = opened.db.checkpoint().unwrap_err();
        assert!(matches!(&error, Error::CheckpointPanicked(_)), "{c:?}: {error}");
        assert!(error.to_string().contains("a fault that was armed"), "{c:?}: {error}");
        let stats = opened.db.checkpoints();
        assert_eq!((stats.taken, stats.failed, stats.under_way), (0, 1, false), "{c:?}");
        assert_eq!(stats.last_failure, Some(error.to_string()), "{c:?}");
        run(&opened, seed as u64 + 1, 100);
        opened.db.checkpoint().unwrap();
        let stats = opened.db.checkpoints();
        assert_eq!((stats.taken, stats.failed, stats.under_way), (1, 1, false), "{c:?}");
        let digest = opened.db.digest();
        opened.db.close().unwrap();
        let again = try_open(dir.path(), c, how()).unwrap();
        assert_eq!(again.db.digest(), digest, "{c:?}");
    }
}
