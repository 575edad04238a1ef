//! The process dies at each step of a fixed run: of restart, work, checkpoint, truncation and
//! close. Nothing acknowledged is lost, nothing is there in part, and nothing comes back.
//!
//! Each run stops at one change of the log's device, or at one step of the data component, by a
//! kill or by a power cut, and goes on from what is left. Openings stop at each step as well, also
//! twice in a row.
#![allow(missing_docs)]

mod script;
mod stores;
mod world;

use hyades_deuteronomy::UpdateLogging;
use std::collections::BTreeMap;
use stores::{ENDINGS, SteppedMemory, SteppedRedb, SteppedStore};
use world::{CrashWorld, LifePhase, StepCounts};

/// Which crashes are followed by crashes at each step of the next process: of those in a phase the
/// first, and one of this number.
#[derive(Clone, Copy)]
struct Repeats {
    /// Of the crashes of the first process.
    second: usize,
    /// Of the crashes of the second process.
    third: usize,
}

/// Which of the things of a kind are taken: the first, and one of `every` after it.
#[derive(Default)]
struct Sample<K>(BTreeMap<K, usize>);

impl<K: Ord> Sample<K> {
    fn takes(&mut self, kind: K, every: usize) -> bool {
        let seen = self.0.entry(kind).or_default();
        *seen += 1;
        (*seen - 1).is_multiple_of(every)
    }
}

/// Stops a new database at each step, by each ending; what is left, again at each step; and so on.
fn crash_at_each_step<S: SteppedStore>(world: &CrashWorld<S>, repeats: Repeats) -> StepCounts {
    let mut met = StepCounts::default();
    let (mut seconds, mut thirds) = (Sample::default(), Sample::default());
    world.at_each_step((0, ENDINGS.len()), &mut met, &mut |crashed, phase, ending, met| {
        crashed.fork().live_on(met);
        if !seconds.takes((phase, crashed.store.is_uneven()), repeats.second) {
            return;
        }
        crashed.at_each_step((ending, 1), met, &mut |mut again, phase, ending, met| {
            if thirds.takes(phase, repeats.third) {
                again.at_each_step((ending, 1), met, &mut |mut third, _, _, met| third.live_on(met));
            }
            again.live_on(met);
        });
    });
    println!("{met:#?}");
    met
}

/// Whether each phase of each process was met, and what has to happen.
fn check_that_enough_was_met(met: &StepCounts) {
    for before in 0..3 {
        for phase in [
            LifePhase::Opening,
            LifePhase::Work,
            LifePhase::Checkpoint,
            LifePhase::Truncation,
            LifePhase::Forgetting,
            LifePhase::Closing,
        ] {
            let stops = met.stops.get(&(before, phase)).copied().unwrap_or_default();
            assert!(stops >= 4, "{stops} stops in {phase:?} after {before} others: {met:?}");
        }
    }
    assert!(met.judged > 500 && met.shorter > 20 && met.truncated > 0, "{met:?}");
    assert!(met.redone > 100 && met.older > 50 && met.dead > 10, "{met:?}");
}

#[test]
fn over_a_data_component_in_memory() {
    let world = CrashWorld::new(SteppedMemory::new(1), UpdateLogging::AtCommit);
    let met = crash_at_each_step(&world, Repeats { second: 40, third: 200 });
    check_that_enough_was_met(&met);
}

#[test]
fn over_two_data_components_one_of_which_may_be_ahead() {
    let world = CrashWorld::new(SteppedMemory::new(2), UpdateLogging::AtOnce);
    let met = crash_at_each_step(&world, Repeats { second: 40, third: 200 });
    check_that_enough_was_met(&met);
    assert!(met.uneven > 20, "{met:?}");
}

#[test]
fn over_redb() {
    let world = CrashWorld::new(SteppedRedb::default(), UpdateLogging::AtCommit);
    let met = crash_at_each_step(&world, Repeats { second: 60, third: 300 });
    check_that_enough_was_met(&met);
}
