//! The cases of this model.

use super::{EXACT, MarkRule, Marks};
use crate::case::{Case, Rules};
use crate::check::{Outcome, explore};

const ITEM: &str = "Cut marks";

/// Two sessions of a transaction each, two marks.
fn two(rule: MarkRule, late: bool, parts: bool) -> Outcome {
    explore(Marks { rule, sessions: 2, transactions: 1, marks: 2, epochs: 4, late, parts })
}

fn built(sessions: usize, transactions: u8, marks: usize, epochs: u8, more: bool) -> Outcome {
    let rule = MarkRule::Built;
    explore(Marks { rule, sessions, transactions, marks, epochs, late: more, parts: more })
}

/// The cases of this model.
pub fn cases() -> Vec<Case> {
    macro_rules! mistake {
        ($rule:ident, $late:literal, $parts:literal, $promise:ident, $text:literal) => {
            Case::breaks((ITEM, Rules::Mutation), $text, $promise, || {
                two(MarkRule::$rule, $late, $parts)
            })
        };
    }
    vec![
        mistake!(ToEarly, false, false, EXACT, "`to` is read before all sessions have left"),
        mistake!(FromLate, false, false, EXACT, "`from` is noted after the epoch was advanced"),
        mistake!(Unchecked, false, false, EXACT, "the epoch is not checked once `from` is noted"),
        mistake!(ClosedLate, true, false, EXACT, "the epoch is closed just before `to` is read"),
        mistake!(TakesLater, false, false, EXACT, "a round applies records of later epochs"),
        mistake!(SkipsNone, false, false, EXACT, "a round skips no epoch"),
        mistake!(FromTo, false, false, EXACT, "a round begins at `to` of the last mark"),
        mistake!(
            EpochFirst,
            false,
            false,
            EXACT,
            "a session reads its epoch, then enters its slot"
        ),
        mistake!(PartFirst, false, true, EXACT, "a part is reserved before the epoch is read"),
        Case::holds(ITEM, "two sessions of two transactions", 1_000_000, || {
            built(2, 2, 2, 4, false)
        }),
        Case::holds(ITEM, "versions drawn at the beginning, and parts", 500_000, || {
            built(2, 1, 2, 4, true)
        }),
        Case::holds(ITEM, "three sessions", 250_000, || built(3, 1, 2, 3, false)),
        Case::holds(ITEM, "three marks", 230_000, || built(2, 1, 3, 5, false)),
    ]
}

#[cfg(test)]
mod tests {
    use super::cases;
    use crate::case::verify_item;

    #[test]
    fn a_round_has_exactly_the_epochs_of_its_mark() {
        verify_item(cases(), super::ITEM);
    }
}
