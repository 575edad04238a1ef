//! The cases of the model.

use super::VersionedReplayMistake as Mistake;
use super::{
    CAUGHT, Forgetting, FoundAtReplay, OF_SNAPSHOTS, ReadAndWrite, SERIALIZABLE, VersionedReplay,
    VersionedReplayMistake, VersionedReplayRules,
};
use crate::case::{Case, Rules};
use crate::check::{Outcome, explore};

const ITEM: &str = "Versions at replay";

const WRITE_A: ReadAndWrite = ReadAndWrite { reads: None, writes: 0 };
const MODIFY_A: ReadAndWrite = ReadAndWrite { reads: Some(0), writes: 0 };
const READ_A_WRITE_B: ReadAndWrite = ReadAndWrite { reads: Some(0), writes: 1 };
const READ_B_WRITE_A: ReadAndWrite = ReadAndWrite { reads: Some(1), writes: 0 };

fn sets() -> Vec<Vec<ReadAndWrite>> {
    vec![
        vec![WRITE_A, MODIFY_A, READ_A_WRITE_B],
        vec![WRITE_A, READ_A_WRITE_B, READ_B_WRITE_A],
        vec![MODIFY_A, READ_A_WRITE_B, READ_A_WRITE_B],
    ]
}

fn run(rules: VersionedReplayRules) -> Outcome {
    explore(VersionedReplay { rules, sets: sets() })
}

fn slip(mistake: VersionedReplayMistake, rules: VersionedReplayRules) -> Outcome {
    run(VersionedReplayRules { mistake: Some(mistake), ..rules })
}

fn mistake(rule: &'static str, promise: &'static str, explore: fn() -> Outcome) -> Case {
    Case::breaks((ITEM, Rules::Mutation), rule, promise, explore)
}

/// The cases of this model.
pub fn cases() -> Vec<Case> {
    vec![
        Case::breaks(
            (ITEM, Rules::Printed),
            "commands of snapshot isolation read as of their commit at replay",
            CAUGHT,
            || {
                let (found, has_checkpoint) = (FoundAtReplay::AsOfCommit, false);
                let forgetting = Forgetting::Never;
                run(VersionedReplayRules { found, has_checkpoint, forgetting, ..OF_SNAPSHOTS })
            },
        ),
        mistake("rows have one version at replay", CAUGHT, || {
            run(VersionedReplayRules { found: FoundAtReplay::Newest, ..SERIALIZABLE })
        }),
        mistake("a version is forgotten when the next one is replayed", CAUGHT, || {
            run(VersionedReplayRules { forgetting: Forgetting::AtOnce, ..SERIALIZABLE })
        }),
        mistake("the floor is the clock, whatever commits", CAUGHT, || {
            slip(Mistake::FloorIsClock, SERIALIZABLE)
        }),
        mistake("the common floor is the highest of all streams", CAUGHT, || {
            slip(Mistake::HighestFloor, SERIALIZABLE)
        }),
        mistake("a command that straddles epochs is replayed from a checkpoint", CAUGHT, || {
            slip(Mistake::StraddlingCommands, OF_SNAPSHOTS)
        }),
        mistake("a command does not follow the writer of what it has read", CAUGHT, || {
            slip(Mistake::OverlookReads, SERIALIZABLE)
        }),
        Case::holds(ITEM, "versions by timestamp, and floors", 100_000, || run(SERIALIZABLE)),
        Case::holds(ITEM, "versions as of what was read, and floors", 100_000, || {
            run(OF_SNAPSHOTS)
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::cases;
    use crate::case::verify_item;

    #[test]
    fn commands_find_the_versions_that_they_have_read() {
        verify_item(cases(), "Versions at replay");
    }
}
