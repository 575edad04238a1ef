//! Short torture of the server's clients.
#![allow(missing_docs)]

use hyades_simulator::clients::{run, torture_clients};
use hyades_simulator::{HANGS_AFTER, Options, SHRINK_FOR, Scheduler};

fn options(seconds: f64) -> Options {
    let seed = std::env::var("HYADES_SEED").map_or(1, |seed| seed.parse().unwrap());
    let seconds = std::env::var("HYADES_SECONDS").map_or(seconds, |s| s.parse().unwrap());
    Options {
        seconds,
        seed,
        lying_sync: false,
        scheduler: Scheduler::Stepped,
        protocol: None,
        hangs_after: HANGS_AFTER,
        shrink_for: SHRINK_FOR,
        keep: std::env::temp_dir(),
    }
}

#[test]
fn what_a_client_was_told_stays_true_whatever_the_disk_does() {
    // Once, unless the machine is so busy that there are few crashes.
    let mut crashes = 0;
    for turn in 0..10 {
        let options = options(4.0);
        let options = Options { seed: options.seed + 1_000 * turn, ..options };
        let torture = torture_clients(&options, |line| eprintln!("{line}")).unwrap();
        eprintln!("{:?} {:#?}", torture.report, torture.faults);
        assert!(torture.report.is_sound(), "{:?}, kept in {:?}", torture.report, torture.kept);
        crashes += torture.report.crashes;
        if crashes > 10 {
            return;
        }
    }
    panic!("there were only {crashes} crashes");
}

/// A client with more than a megabyte of replies unsent runs nothing until they are sent.
#[test]
fn a_history_with_a_full_output_ends() {
    let outcome = run(19404626494250, false);
    assert!(outcome.is_sound(), "{outcome:?}");
}

#[test]
fn a_disk_that_lies_about_syncs_is_found_out_by_clients() {
    let keep = tempfile::tempdir().unwrap();
    let keep = keep.path().to_owned();
    let options = Options { lying_sync: true, keep, ..options(60.0) };
    let torture = torture_clients(&options, |line| eprintln!("{line}")).unwrap();
    assert!(!torture.report.is_sound() && torture.report.crashes > 0, "{:?}", torture.report);
}

#[test]
fn a_seed_gives_the_same_history_of_clients() {
    for seed in 1..6 {
        let (one, other) = (run(seed, false), run(seed, false));
        assert_eq!(format!("{:?}", one.faults), format!("{:?}", other.faults), "seed {seed}");
        assert_eq!(
            (one.crashes, one.acknowledged),
            (other.crashes, other.acknowledged),
            "seed {seed}"
        );
    }
}
