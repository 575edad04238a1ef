//! Mutation tests: rules of logging on arrival, each broken on purpose, are noticed by the tests of
//! `arrival.rs`.

use crate::common::arriving::{self, Drift};
use crate::common::broken::{self, BrokenRule};
use hyades_platform::mutation::Mutation;
use std::panic::catch_unwind;

#[test]
fn each_broken_rule_of_calls_is_noticed() {
    let _alone = broken::alone();
    let drift = || arriving::a_drift_is_named(Drift::Writes);
    let rules: [(Mutation, fn() -> bool); 6] = [
        (Mutation::EnterAfterLogging, arriving::calls_replay_in_their_order),
        (Mutation::AckByOwnFrameAlone, arriving::followers_wait_for_what_they_follow),
        (Mutation::CutWithoutQueued, arriving::a_cut_waits_for_queued_calls),
        (Mutation::RefuseAborts, arriving::aborts_are_replayed),
        (Mutation::StampHomeOnly, arriving::calls_replay_in_their_order),
        (Mutation::ForgetOutcomes, drift),
    ];
    // Nothing is noticed where no rule is broken.
    for (rule, holds) in &rules {
        assert!(holds(), "{rule:?} is kept");
    }
    // A failed assertion counts as noticed.
    let caught = rules.map(|(rule, holds)| (rule, move || catch_unwind(holds).unwrap_or(false)));
    let broken = caught.each_ref().map(|(rule, holds)| (*rule, holds as &dyn Fn() -> bool));
    let broken: [BrokenRule<'_>; 6] = broken;
    broken::each_is_noticed(&broken);
}
