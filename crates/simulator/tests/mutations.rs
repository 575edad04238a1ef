//! A check that cannot fail is not a check: each rule, broken on purpose, is missed within a minute.
#![allow(missing_docs)]
#![cfg(feature = "mutations")]

use hyades_platform::mutation::{self, Mutation};
use hyades_simulator::{Options, Scheduler, torture};

/// The rules whose breach the torture has to find. The rule is one for the whole process, so all are
/// in one test.
#[test]
fn each_broken_rule_is_found_within_a_minute() {
    let only = std::env::var("HYADES_MUTATION").ok();
    let keep = tempfile::tempdir().unwrap();
    for rule in Mutation::ALL.into_iter().filter(|rule| !rule.is_of_checkpoints()) {
        if only.as_ref().is_some_and(|only| only != rule.name()) {
            continue;
        }
        mutation::set(Some(rule));
        let options = Options {
            seconds: 60.0,
            seed: 1,
            lying_sync: false,
            scheduler: Scheduler::Both,
            keep: keep.path().to_owned(),
        };
        let found = torture(&options, |line| eprintln!("{}: {line}", rule.name())).unwrap();
        mutation::set(None);
        eprintln!("{}: {:?}", rule.name(), found.report);
        assert!(!found.report.is_sound(), "{} goes unnoticed: {:?}", rule.name(), found.report);
    }
}
