//! Rules of the server, each broken on purpose, are noticed by the torture of the server.
#![allow(missing_docs)]

use hyades_platform::mutation::{self, Mutation};
use hyades_simulator::clients::torture_clients;
use hyades_simulator::{HANGS_AFTER, Options, SHRINK_FOR, Scheduler};

/// The broken rule is global to the process, so all are in one test.
#[test]
fn each_broken_rule_is_noticed() {
    let keep = tempfile::tempdir().unwrap();
    let seconds = std::env::var("HYADES_MUTATION_SECONDS").map_or(60.0, |s| s.parse().unwrap());
    let options = Options {
        seconds,
        seed: 1,
        lying_sync: false,
        scheduler: Scheduler::Stepped,
        protocol: None,
        hangs_after: HANGS_AFTER,
        shrink_for: SHRINK_FOR,
        keep: keep.path().to_owned(),
    };
    for &rule in Mutation::ALL.iter().filter(|rule| rule.is_of_server()) {
        mutation::set(Some(rule));
        let found = torture_clients(&options, |line| eprintln!("{}: {line}", rule.name()));
        mutation::set(None);
        let report = found.unwrap().report;
        eprintln!("{}: {report:?}", rule.name());
        assert!(!report.is_sound(), "{} goes unnoticed: {report:?}", rule.name());
        // The broken rule is the cause.
        let seed = report.seed + report.histories - 1;
        let sound = torture_clients(&Options { seconds: 0.0, seed, ..options.clone() }, |_| {});
        let sound = sound.unwrap().report;
        assert!(sound.is_sound(), "seed {seed} with all rules kept: {sound:?}");
    }
}
