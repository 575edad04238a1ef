//! Mutation tests: rules of partitioned execution, each broken on purpose, are noticed by the tests
//! of `partitioned.rs`.

use crate::common::broken::{self, BrokenRule};
use crate::common::partitions::{all_get_their_turns, commands_replay_in_their_order};
use crate::common::partitions::{builder, open, pieces_stay, pieces_survive_power_cuts};
use hyades::Protocol;
use hyades_platform::mutation::Mutation;
use std::time::Duration;

/// The longest time to get turns before transactions count as stuck.
const BOUND: Duration = Duration::from_secs(10);

#[test]
fn each_broken_rule_of_partitions_is_noticed() {
    let _alone = broken::alone();
    let pieces = || pieces_stay(&open(builder(Protocol::None, 64)), Duration::from_secs(20));
    let rules: [BrokenRule<'_>; 6] = [
        (Mutation::UncheckedPartitions, &pieces),
        (Mutation::HandOnBeforeInstall, &pieces),
        (Mutation::HandOnBeforeFrames, &|| pieces_survive_power_cuts(false, 40)),
        (Mutation::StampHomeOnly, &commands_replay_in_their_order),
        (Mutation::StampWrittenOnly, &commands_replay_in_their_order),
        // Last: threads that wait in a circle stay there.
        (Mutation::OvertakeInQueues, &|| all_get_their_turns(BOUND)),
    ];
    // Nothing is noticed where no rule is broken: the bounds suffice.
    assert!(commands_replay_in_their_order());
    assert!(all_get_their_turns(BOUND));
    broken::each_is_noticed(&rules);
}
