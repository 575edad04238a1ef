//! Mutation tests: rules of logging on arrival, each broken on purpose, are noticed by what
//! `arrival.rs` tests.
#![allow(missing_docs)]

mod common;
use common::arriving;
use hyades_platform::mutation::{self, Mutation};
use std::panic::catch_unwind;

#[test]
fn each_broken_rule_of_calls_is_noticed() {
    let rules: [(Mutation, fn() -> bool); 4] = [
        (Mutation::EnterAfterLogging, arriving::calls_replay_in_their_order),
        (Mutation::AckByOwnFrameAlone, arriving::followers_wait_for_what_they_follow),
        (Mutation::CutWithoutQueued, arriving::a_cut_waits_for_queued_calls),
        (Mutation::RefuseAborts, arriving::aborts_are_replayed),
    ];
    let mut unnoticed = Vec::new();
    for (rule, holds) in rules {
        assert!(holds(), "{rule:?} is kept");
        mutation::set(Some(rule));
        // What an assertion notices is noticed.
        let held = catch_unwind(holds).unwrap_or(false);
        mutation::set(None);
        unnoticed.extend(held.then_some(rule.name()));
    }
    assert!(unnoticed.is_empty(), "these go unnoticed: {unnoticed:?}");
}
