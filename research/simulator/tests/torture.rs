//! Short torture runs with the default options.
#![allow(missing_docs)]

use hyades_schemes::{ARRIVAL, TAURUS_2016};
use hyades_simulator::kept::SavedFailure;
use hyades_simulator::{HANGS_AFTER, Options, SHRINK_FOR, Scheduler, torture};

fn options(seconds: f64) -> Options {
    let seed = std::env::var("HYADES_SEED").map_or(1, |seed| seed.parse().unwrap());
    let seconds = std::env::var("HYADES_SECONDS").map_or(seconds, |s| s.parse().unwrap());
    Options {
        seconds,
        seed,
        lying_sync: false,
        scheduler: Scheduler::Both,
        protocol: None,
        hangs_after: HANGS_AFTER,
        shrink_for: SHRINK_FOR,
        keep: std::env::temp_dir(),
    }
}

#[test]
fn nothing_acknowledged_is_lost_whatever_the_disk_does() {
    // Once, unless the machine is so busy that there are few crashes.
    let mut crashes = 0;
    for turn in 0..10 {
        let options = options(8.0);
        let options = Options { seed: options.seed + 1_000 * turn, ..options };
        let torture = torture(&options, |line| eprintln!("{line}")).unwrap();
        eprintln!("{:?} {:#?}", torture.report, torture.faults);
        assert!(torture.report.is_sound(), "{:?}, kept in {:?}", torture.report, torture.kept);
        crashes += torture.report.crashes;
        if crashes > 20 {
            return;
        }
    }
    panic!("there were only {crashes} crashes");
}

/// Blind writers survive overwritten transactions, at these seeds, which are of their own.
#[test]
fn what_only_overwrote_survives_what_is_lost() {
    let protocol = Some(TAURUS_2016);
    let options = Options { protocol, seed: options(0.0).seed + 879_999, ..options(6.0) };
    let torture = torture(&options, |line| eprintln!("{line}")).unwrap();
    eprintln!("{:?} {:#?}", torture.report, torture.faults);
    assert!(torture.report.is_sound(), "{:?}, kept in {:?}", torture.report, torture.kept);
}

/// Calls that are logged before they run, called and posted, on varying numbers of partitions.
#[test]
fn calls_that_are_logged_first_are_replayed() {
    let protocol = Some(ARRIVAL);
    let options = Options { protocol, seed: options(0.0).seed + 104, ..options(4.0) };
    let torture = torture(&options, |line| eprintln!("{line}")).unwrap();
    eprintln!("{:?} {:#?}", torture.report, torture.faults);
    assert!(torture.report.is_sound(), "{:?}, kept in {:?}", torture.report, torture.kept);
    assert!(torture.report.acknowledged > 0, "{:?}", torture.report);
}

/// Seeds whose first history once failed, and the error.
const PAST: [(u64, &str); 2] = [
    (
        46_150_874_786_921,
        "a checkpoint of a stepped log waited for an anchor that no thread would write",
    ),
    (
        270_000_508,
        "under timestamp order checkpoints closed the epoch of every attempt of a transaction",
    ),
];

#[test]
fn what_failed_once_holds() {
    for (seed, what) in PAST {
        let torture = torture(&Options { seed, ..options(0.0) }, |line| eprintln!("{line}"));
        let report = torture.unwrap().report;
        assert!(report.is_sound() && report.histories == 1, "{what}: {report:?}");
    }
}

#[test]
fn a_disk_that_lies_about_syncs_is_found_out() {
    let options = Options { lying_sync: true, ..options(60.0) };
    let torture = torture(&options, |line| eprintln!("{line}")).unwrap();
    assert!(!torture.report.is_sound(), "{:?}", torture.report);
    // Checking the kept disk finds a violation without another run.
    let place = torture.kept.expect("it is kept");
    let (kept, disk) = SavedFailure::load(&place).unwrap();
    assert!(!kept.judge(&disk).is_empty(), "the disk in {} shows nothing", place.display());
    std::fs::remove_dir_all(place).unwrap();
}
