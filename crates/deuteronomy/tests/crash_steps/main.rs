//! The process dies at each step of a fixed run: of restart, work, checkpoint, truncation and
//! close. Nothing acknowledged is lost, nothing is there in part, and nothing comes back.
//!
//! Each run stops at a change of the log's device, or at a step of the data component, by a kill or
//! by a power cut, and goes on from the remaining state. Openings stop at each step as well, also
//! twice in a row.
#![allow(missing_docs)]

mod script;
mod steps;
mod stores;
mod world;

use hyades_deuteronomy::UpdateLogging;
use steps::{Repeats, crash_at_each_step};
use stores::{SteppedMemory, SteppedRedb};
use world::{CrashWorld, LifePhase, StepCounts};

/// Each run makes and drops a database; the system's allocator would return the buffers each time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const PHASES: [LifePhase; 6] = [
    LifePhase::Opening,
    LifePhase::Work,
    LifePhase::Checkpoint,
    LifePhase::Truncation,
    LifePhase::Closing,
    LifePhase::Forgetting,
];

/// Checks that each phase of each process was met, with the required events.
fn check_that_enough_was_met(met: &StepCounts, phases: &[LifePhase]) {
    for (before, phase) in (0..3).flat_map(|before| phases.iter().map(move |p| (before, *p))) {
        let stops = met.stops.get(&(before, phase)).copied().unwrap_or_default();
        assert!(stops >= 4, "{stops} stops in {phase:?} after {before} others: {met:?}");
    }
    assert!(met.judged > 1500 && met.shorter > 200 && met.truncated > 0, "{met:?}");
    assert!(met.redone > 500 && met.older > 200 && met.dead > 10, "{met:?}");
}

#[test]
fn over_a_data_component_in_memory() {
    let world = CrashWorld::new(SteppedMemory::new(1), UpdateLogging::AtCommit);
    let met = crash_at_each_step(&world, Repeats { second: 48, third: 300 });
    check_that_enough_was_met(&met, &PHASES);
}

#[test]
fn over_two_data_components_one_of_which_may_be_ahead() {
    let world = CrashWorld::new(SteppedMemory::new(2), UpdateLogging::AtOnce);
    let met = crash_at_each_step(&world, Repeats { second: 48, third: 300 });
    check_that_enough_was_met(&met, &PHASES);
    assert!(met.uneven > 100, "{met:?}");
}

#[test]
fn over_redb() {
    let world = CrashWorld::new(SteppedRedb::default(), UpdateLogging::AtCommit);
    let met = crash_at_each_step(&world, Repeats { second: 250, third: 600 });
    // The data component forgets in memory, until the next checkpoint.
    check_that_enough_was_met(&met, &PHASES[..5]);
}
