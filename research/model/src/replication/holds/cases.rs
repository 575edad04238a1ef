//! The cases of this model.

use super::{COPY, HoldRule, Holds, NEVER};
use crate::case::{Case, Rules};
use crate::check::{Outcome, explore};

const ITEM: &str = "Holds";

fn run(rule: HoldRule, standby: bool) -> Outcome {
    let messages = if standby { 1 } else { 2 };
    explore(Holds { rule, standby, messages, cuts: 1 })
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
        mistake!(HoldAfterBase, true, NEVER, "a joiner holds the log after it has chosen a base"),
        mistake!(OlderBase, true, NEVER, "a joiner takes an older base, and checks the log"),
        mistake!(PastBase, false, COPY, "a purge goes past the newest base"),
        mistake!(OwnBase, false, COPY, "the purger's own base counts"),
        mistake!(ReportsUnsynced, true, COPY, "a member reports what it has not synced"),
        mistake!(HoldsBeforeBases, true, NEVER, "a purger reads the holds before the bases"),
        mistake!(PlacesBeforeHolds, true, NEVER, "a purger reads the places before the holds"),
        mistake!(ReleasesFirst, true, NEVER, "a joiner gives its hold back, then takes its place"),
        mistake!(OwnFilesIgnored, true, NEVER, "a purger ignores what its own files lack"),
        Case::holds(ITEM, "a primary, a standby, a joiner", 1_000_000, || {
            run(HoldRule::Built, true)
        }),
        Case::holds(ITEM, "a primary alone, and a joiner", 100_000, || run(HoldRule::Built, false)),
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
