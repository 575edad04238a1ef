//! Torture as people run it, shortly.
#![allow(missing_docs)]

use hyades_simulator::{HANGS_AFTER, Options, Scheduler, torture};

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
        keep: std::env::temp_dir(),
    }
}

#[test]
fn nothing_acknowledged_is_lost_whatever_the_disk_does() {
    let torture = torture(&options(8.0), |line| eprintln!("{line}")).unwrap();
    eprintln!("{:?} {:#?}", torture.report, torture.faults);
    assert!(torture.report.is_sound(), "{:?}, kept in {:?}", torture.report, torture.kept);
    assert!(torture.report.crashes > 20, "{:?}", torture.report);
}

#[test]
fn a_disk_that_lies_about_syncs_is_found_out() {
    let options = Options { lying_sync: true, ..options(60.0) };
    let torture = torture(&options, |line| eprintln!("{line}")).unwrap();
    assert!(!torture.report.is_sound(), "{:?}", torture.report);
}
