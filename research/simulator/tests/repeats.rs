//! Promise: a stepped history repeats exactly.
#![allow(missing_docs)]

use hyades_simulator::case;
use hyades_simulator::plan::{Combination, Plan};

#[test]
fn a_seed_gives_the_same_history_and_the_same_bytes_on_the_disk() {
    // Each history runs on one thread at a time.
    const THREADS: usize = 2;
    std::thread::scope(|scope| {
        for first in 0..THREADS {
            // Every second one: neighbours differ in the record kind only.
            let combinations = Combination::with_calls().iter().copied().enumerate().step_by(2);
            let share = combinations.skip(first).step_by(THREADS);
            scope.spawn(move || {
                share.for_each(|(seed, combination)| repeats(seed as u64, combination))
            });
        }
    });
}

fn repeats(seed: u64, combination: Combination) {
    let mut plan = Plan::random(seed, combination);
    plan.stepped = true;
    let run = || {
        let plan = plan.clone();
        // A new thread has no thread-local state from earlier runs.
        std::thread::spawn(move || case::run(&plan, &case::Stage::default())).join().unwrap()
    };
    let (first, second) = (run(), run());
    assert!(first.is_sound(), "{plan:?}: {:?}", first.sentences());
    assert_eq!(first.acknowledged, second.acknowledged, "{plan:?}");
    assert_eq!(first.faults, second.faults, "{plan:?}");
    assert_eq!(first.story, second.story, "{plan:?}");
    let content = |outcome: &case::Outcome| outcome.image.as_ref().unwrap().content();
    assert!(content(&first) == content(&second), "{plan:?}: the disks differ");
}
