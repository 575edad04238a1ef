//! Rules of restart, checkpoint and truncation, each broken on purpose, are noticed by crashes at
//! each step.
#![allow(missing_docs)]
#![allow(dead_code, reason = "it uses a part of the modules")]

#[path = "crash_steps/script.rs"]
mod script;
#[path = "crash_steps/steps.rs"]
mod steps;
#[path = "crash_steps/stores.rs"]
mod stores;
#[path = "crash_steps/world.rs"]
mod world;

use hyades_deuteronomy::UpdateLogging;
use hyades_platform::mutation::{self, Mutation};
use std::panic::catch_unwind;
use steps::{Repeats, crash_at_each_step};
use stores::SteppedMemory;
use world::CrashWorld;

const RULES: [Mutation; 10] = [
    Mutation::TruncateBeforeManifest,
    Mutation::AckBeforeSync,
    Mutation::TrustTail,
    Mutation::ApplyUndurable,
    Mutation::ResumeBehindWaiting,
    Mutation::ResumeBetweenParts,
    Mutation::ForgetAboveResumePoint,
    Mutation::RedoDeadRecords,
    Mutation::RedoByArrival,
    Mutation::RedoUnprovenTail,
];

/// Whether crashes at each step notice something wrong.
fn is_noticed() -> bool {
    let ways = [UpdateLogging::AtCommit, UpdateLogging::AtOnce];
    ways.into_iter().any(|update_logging| {
        let run = || {
            let world = CrashWorld::new(SteppedMemory::new(1), update_logging);
            crash_at_each_step(&world, Repeats { second: 40, third: 200 });
        };
        catch_unwind(run).is_err()
    })
}

#[test]
fn each_broken_rule_is_noticed() {
    let mut unnoticed = Vec::new();
    for rule in RULES {
        println!("{}:", rule.name());
        mutation::set(Some(rule));
        if !is_noticed() {
            unnoticed.push(rule.name());
        }
        mutation::set(None);
    }
    assert!(unnoticed.is_empty(), "not noticed: {unnoticed:?}");
}
