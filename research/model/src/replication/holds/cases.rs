//! The cases of this model.

use super::{COPY, HoldRule, Holds, NEVER};
use crate::case::{Case, Rules};
use crate::check::{Outcome, explore};

const ITEM: &str = "Holds";

fn run(rule: HoldRule, standby: bool) -> Outcome {
    let messages = if standby { 2 } else { 3 };
    explore(Holds { rule, standby, messages, cuts: 1, forgets: 1 })
}

/// The cases of this model.
pub fn cases() -> Vec<Case> {
    macro_rules! mistake {
        ($rule:ident, $standby:literal, $promise:ident, $text:literal) => {
            Case::breaks((ITEM, Rules::Mutation), $text, $promise, || {
                run(HoldRule::$rule, $standby)
            })
        };
    }
    vec![
        mistake!(HoldAfterBase, true, NEVER, "a joiner takes its place without a hold"),
        mistake!(
            LooksAtLane,
            true,
            NEVER,
            "a joiner without a hold looks where the lane begins, and takes its place"
        ),
        mistake!(PlaceAtOnce, true, NEVER, "a member that was forgotten takes its place at once"),
        mistake!(PastBase, true, NEVER, "a purge goes past the files of other members"),
        mistake!(OwnFiles, false, COPY, "the purger's own files count"),
        mistake!(ReportsUnsynced, true, COPY, "a member states what it has not synced"),
        mistake!(Unconditional, true, NEVER, "the key is set without a condition"),
        mistake!(PurgesFirst, true, NEVER, "a lane is purged before the key says so"),
        mistake!(OwnFilesIgnored, true, NEVER, "a purger ignores what its own files lack"),
        mistake!(ForgottenPurges, true, COPY, "a purger that was forgotten purges"),
        Case::holds(ITEM, "a primary, a standby, a joiner", 100_000, || run(HoldRule::Built, true)),
        Case::holds(ITEM, "a purger that ignores holds", 100_000, || {
            run(HoldRule::HoldsIgnored, true)
        }),
        Case::holds(ITEM, "a primary alone, and a joiner", 10_000, || run(HoldRule::Built, false)),
    ]
}

#[cfg(test)]
mod tests {
    use super::cases;
    use crate::case::verify_item;

    #[test]
    fn what_is_needed_is_not_purged() {
        verify_item(cases(), super::ITEM);
    }
}
