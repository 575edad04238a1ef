//! A check that cannot fail is not a check: each rule, broken on purpose, is missed within a minute.
#![allow(missing_docs)]
#![cfg(feature = "mutations")]

use hyades::Protocol;
use hyades_platform::mutation::{self, Mutation};
use hyades_simulator::{Options, Scheduler, torture};
use std::time::{Duration, Instant};

/// Whether the rule has a test of its own that breaks it.
fn is_broken_elsewhere(rule: Mutation) -> bool {
    // What these break is how long something takes: `slow_stream.rs` of the engine, and the counters' tests.
    let of_speed = matches!(
        rule,
        Mutation::WaitForOneLane
            | Mutation::BacklogInBytes
            | Mutation::WaitInFullStream
            | Mutation::FlusherWaitsForNumber
    );
    of_speed
        || (rule.is_of_checkpoints() && rule != Mutation::LongBlocks)
        // It takes a kill between two steps of the preparation of a file, and no sync of its directory
        // between the next opening and a power cut: `names.rs` tries each step.
        || rule == Mutation::BelieveNames
        // What these leave takes room, and no answer is wrong: `crates/hyades/tests/garbage.rs`.
        || matches!(rule, Mutation::SweepHeldUp | Mutation::ForgetLeftBehind)
        // The programs of a history are deterministic: `crates/hyades/tests/determinism.rs`.
        || rule == Mutation::ForgetOutcomes
        // Its tables are larger than what it does: `crates/hyades/tests/crowded.rs`.
        || rule == Mutation::ForgetCommon
}

/// The protocol that has the rule, if only one has.
fn protocol_of(rule: Mutation) -> Option<Protocol> {
    match rule {
        Mutation::CloseOpenEpochs => Some(Protocol::SiloR),
        Mutation::SkipUndo => Some(Protocol::Physiological),
        Mutation::MarkInMemory | Mutation::OwnMarkOnly | Mutation::ForgetReadNumbers => {
            Some(Protocol::Gsn)
        }
        Mutation::SkipReadFold
        | Mutation::ForgetUnmarkedReaders
        | Mutation::EvictWarm
        | Mutation::StopAtFirstDead
        | Mutation::DeadByNewestEnd
        | Mutation::PassParked => Some(Protocol::Taurus),
        _ => None,
    }
}

/// The rules whose breach the torture has to find. The rule is one for the whole process, so all are
/// in one test. With `HYADES_MUTATION` set to the name of a rule it breaks that one alone.
#[test]
fn each_broken_rule_is_found_within_a_minute() {
    let only = std::env::var("HYADES_MUTATION").ok();
    let keep = tempfile::tempdir().unwrap();
    // Where other work has the processors, a minute is little.
    let seconds = std::env::var("HYADES_MUTATION_SECONDS").map_or(60.0, |s| s.parse().unwrap());
    for &rule in Mutation::ALL {
        let wanted = only.as_ref().map_or(!is_broken_elsewhere(rule), |only| only == rule.name());
        if !wanted {
            continue;
        }
        mutation::set(Some(rule));
        let options = Options {
            seconds,
            seed: 1,
            lying_sync: false,
            scheduler: Scheduler::Both,
            protocol: protocol_of(rule),
            // A lost wake-up shows as a hang, and there is to be time for it.
            hangs_after: Duration::from_secs(40),
            keep: keep.path().to_owned(),
        };
        let began = Instant::now();
        let found = torture(&options, |line| eprintln!("{}: {line}", rule.name())).unwrap();
        mutation::set(None);
        let seconds = began.elapsed().as_secs_f64();
        eprintln!("{}: after {seconds:.1} s {:?}", rule.name(), found.report);
        assert!(!found.report.is_sound(), "{} goes unnoticed: {:?}", rule.name(), found.report);
    }
}
