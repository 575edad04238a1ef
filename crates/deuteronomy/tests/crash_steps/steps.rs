//! Crashes at each step, and at each step of the following lives.

use crate::stores::{ENDINGS, SteppedStore};
use crate::world::{CrashWorld, StepCounts};
use std::collections::BTreeMap;

/// The sampling of crashes followed by crashes at each step of the next process: of the crashes in
/// a phase the first, and then one of this number.
#[derive(Clone, Copy)]
pub struct Repeats {
    /// Of the crashes of the first process.
    pub second: usize,
    /// Of the crashes of the second process.
    pub third: usize,
}

/// The sampling of events by kind: the first is taken, and later one of `every`.
struct Sample<K>(BTreeMap<K, usize>);

impl<K: Ord> Sample<K> {
    fn takes(&mut self, kind: K, every: usize) -> bool {
        let seen = self.0.entry(kind).or_default();
        *seen += 1;
        (*seen - 1).is_multiple_of(every)
    }
}

/// Stops a new database at each step, by each ending; the remaining state, again at each step; and
/// so on.
pub fn crash_at_each_step<S: SteppedStore>(world: &CrashWorld<S>, repeats: Repeats) -> StepCounts {
    let mut met = StepCounts::default();
    let (mut seconds, mut thirds) = (Sample(BTreeMap::new()), Sample(BTreeMap::new()));
    world.at_each_step((0, ENDINGS.len()), &mut met, &mut |crashed, phase, ending, met| {
        crashed.fork().live_on(met);
        if !seconds.takes((phase, crashed.store.is_uneven()), repeats.second) {
            return;
        }
        crashed.at_each_step((ending, 1), met, &mut |mut again, phase, ending, met| {
            if thirds.takes(phase, repeats.third) {
                again.at_each_step((ending, 1), met, &mut |mut third, _, _, met| {
                    third.live_on(met);
                });
            }
            again.live_on(met);
        });
    });
    println!("{met:#?}");
    met
}
