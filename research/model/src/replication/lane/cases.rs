//! The cases of this model.

use super::{BELOW, FENCED, Lane, LaneRule, ONCE, SAME, WHOLE};
use crate::case::{Case, Rules};
use crate::check::{Outcome, explore};

const ITEM: &str = "Replicated lane";

/// Two candidates, two batches each.
fn two(rule: LaneRule, lies: u8) -> Outcome {
    explore(Lane { rule, candidates: 2, batches: 2, copies: 2, lies })
}

fn built(candidates: usize, batches: u8, copies: usize, lies: u8) -> Outcome {
    explore(Lane { rule: LaneRule::Built, candidates, batches, copies, lies })
}

/// The cases of this model.
pub fn cases() -> Vec<Case> {
    macro_rules! mistake {
        ($rule:ident, $lies:literal, $promise:ident, $text:literal) => {
            Case::breaks((ITEM, Rules::Mutation), $text, $promise, || two(LaneRule::$rule, $lies))
        };
    }
    vec![
        mistake!(WindowOfTwo, 0, WHOLE, "a lane has two batches under way"),
        mistake!(
            EachForItself,
            0,
            BELOW,
            "two batches are under way, and each is acknowledged for itself"
        ),
        mistake!(BlindResume, 0, BELOW, "a refused writer takes the end, and looks for nothing"),
        mistake!(LastAlone, 0, BELOW, "a writer looks at the last message alone"),
        mistake!(Unconditional, 0, BELOW, "data is appended without a condition"),
        mistake!(ByAbsence, 0, BELOW, "a batch that a look does not show has failed"),
        mistake!(AtSend, 0, BELOW, "a batch is acknowledged when it is sent"),
        mistake!(AnyReply, 0, BELOW, "a reply counts for whatever is under way"),
        mistake!(SealUnread, 0, BELOW, "a candidate does not read up to its seal"),
        mistake!(ReadsShort, 0, SAME, "a candidate takes the end from a view without its seal"),
        mistake!(SkipsHoles, 1, ONCE, "a reader goes on behind a hole"),
        mistake!(TakesRepetitions, 1, ONCE, "a reader takes a repetition"),
        mistake!(TakesEnded, 1, FENCED, "a reader takes messages of an ended incarnation"),
        Case::holds(ITEM, "one writer and two candidates", 400_000, || built(2, 4, 2, 0)),
        Case::holds(ITEM, "one writer and three candidates", 600_000, || built(3, 1, 2, 0)),
        Case::holds(ITEM, "the service breaks its promises once", 800_000, || built(2, 2, 2, 1)),
    ]
}

#[cfg(test)]
mod tests {
    use super::cases;
    use crate::case::verify_item;

    #[test]
    fn acknowledged_batches_are_below_the_end() {
        verify_item(cases(), super::ITEM);
    }
}
