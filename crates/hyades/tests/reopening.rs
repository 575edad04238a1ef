//! A database that is reopened many times with different settings, with power cuts in between.
#![allow(missing_docs)]

mod common;
use common::{Combination, DATA_ONLY, How, check, directory, populate, run, try_open};
use hyades::{Concurrency, Protocol, RecordKind, Replay};
use hyades_platform::device::{PowerCutDevice, PowerCutOptions};
use hyades_schemes::{TAURUS_2016, all_controls};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

fn any_combination(rng: &mut fastrand::Rng) -> Combination {
    let ordered = [Protocol::Serial, Protocol::Taurus, TAURUS_2016];
    let protocol = ordered[rng.usize(0..ordered.len())];
    let streams = if protocol == Protocol::Serial { 1 } else { rng.usize(1..=16) };
    let controls: Vec<Concurrency> = all_controls().collect();
    let concurrency = controls[rng.usize(0..controls.len())];
    if rng.u32(0..3) == 0 {
        // Protocols with numbers and watermarks alternate with others between incarnations.
        let protocol = DATA_ONLY[rng.usize(0..DATA_ONLY.len())];
        let c = Combination { protocol, concurrency, record: RecordKind::Data, streams };
        return if c.is_sound() { c } else { any_combination(rng) };
    }
    let record = [RecordKind::Data, RecordKind::Command, RecordKind::Adaptive][rng.usize(0..3)];
    let c = Combination { protocol, concurrency, record, streams };
    if c.is_sound() { c } else { any_combination(rng) }
}

fn any_way(rng: &mut fastrand::Rng, more_dirs: &[PathBuf]) -> How {
    let replay = [Replay::Wavefront, Replay::Pools, Replay::Serial][rng.usize(0..3)];
    How {
        device: None,
        threads: rng.usize(1..=4),
        replay,
        more_dirs: more_dirs.to_vec(),
        ..How::default()
    }
}

/// Opens, checks the state, runs transactions and ends in some way, 14 times.
fn live(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let roots = [directory(), directory(), directory()];
    let paths: Vec<PathBuf> = roots.iter().map(|root| root.path().to_owned()).collect();
    let mut acknowledged = Vec::new();
    let mut digest = None;
    let mut dirs = 0;
    for life in 0..14u64 {
        let c = any_combination(&mut rng);
        // A directory, once used, stays in use.
        dirs = dirs.max(rng.usize(0..4).min(2));
        let mut how = any_way(&mut rng, &paths[1..=dirs]);
        let options = PowerCutOptions {
            seed: (seed << 8) | life,
            early_sectors: [0.0, 0.3][rng.usize(0..2)],
            lying_sync: false,
        };
        let device = PowerCutDevice::new(options);
        how.device = Some(Arc::new(device.clone()));
        let what = format!("seed {seed} life {life}: {c:?} {:?} {dirs}", (how.threads, how.replay));
        let opened = try_open(&paths[0], c, how).unwrap_or_else(|e| panic!("{what}: {e}"));
        if let Some(digest) = digest {
            assert_eq!(opened.db.digest(), digest, "{what}");
        }
        if life == 0 {
            populate(&opened);
        }
        check(&opened, &acknowledged, &what);
        digest = None;
        match rng.u32(0..4) {
            // Closed in good order.
            0 => {
                acknowledged.extend(run(&opened, (seed << 8) | (life + 1), 150));
                digest = Some(opened.db.digest());
                opened.db.close().unwrap();
            }
            // The power is cut when all is durable.
            1 => {
                acknowledged.extend(run(&opened, (seed << 8) | (life + 1), 150));
                opened.db.log().unwrap().flush().unwrap();
                digest = Some(opened.db.digest());
                device.cut();
            }
            // The power is cut at once, before any work.
            2 => {
                device.cut();
            }
            // The power is cut during work.
            _ => std::thread::scope(|scope| {
                let working = scope.spawn(|| run(&opened, (seed << 8) | (life + 1), 100_000));
                std::thread::sleep(Duration::from_millis(rng.u64(1..12)));
                device.cut();
                acknowledged.extend(working.join().unwrap());
            }),
        }
    }
    let c = any_combination(&mut rng);
    let opened = try_open(&paths[0], c, any_way(&mut rng, &paths[1..=dirs])).unwrap();
    check(&opened, &acknowledged, &format!("seed {seed}, at the end"));
}

#[test]
fn many_lives_with_crashes_lose_nothing_acknowledged() {
    let offset: u64 = std::env::var("HYADES_SEED").map_or(0, |seed| seed.parse().unwrap());
    for seed in 0..6 {
        live(offset + seed);
    }
}

/// Promise: after a power cut at any step of an opening, the next opening finds the same state.
#[test]
fn a_crash_while_opening_costs_nothing() {
    for (seed, protocol) in
        [(1, Protocol::Serial), (2, Protocol::Taurus), (3, Protocol::Taurus), (4, TAURUS_2016)]
    {
        let streams = if protocol == Protocol::Serial { 1 } else { 4 };
        let record = if seed >= 3 { RecordKind::Adaptive } else { RecordKind::Command };
        let c = Combination { protocol, concurrency: Concurrency::Silo, record, streams };
        let dir = directory();
        let opened = try_open(dir.path(), c, How::default()).unwrap();
        populate(&opened);
        let acknowledged = run(&opened, seed, 100);
        opened.db.log().unwrap().flush().unwrap();
        let digest = opened.db.digest();
        drop(opened);
        let mut failures = 0;
        for step in 0..60 {
            let device = PowerCutDevice::new(PowerCutOptions::default());
            device.cut_after(step);
            let how = How { device: Some(Arc::new(device)), ..How::default() };
            match try_open(dir.path(), c, how) {
                Ok(opened) => assert_eq!(opened.db.digest(), digest, "step {step}"),
                Err(_) => failures += 1,
            }
            let again = try_open(dir.path(), c, How { threads: 1, ..How::default() }).unwrap();
            assert_eq!(again.db.digest(), digest, "after a cut at step {step}");
            check(&again, &acknowledged, "after a cut while opening");
            drop(again);
        }
        assert!(failures > 3, "the power was cut while opening: {failures}");
    }
}
