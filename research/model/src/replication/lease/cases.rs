//! The cases of this model.

use super::{CALM, FRESH, LED, Lease, LeaseRule};
use crate::case::{Case, Rules};
use crate::check::{Outcome, explore};

const ITEM: &str = "Lease";
/// At most 10 percent apart.
const APART: [u8; 2] = [10, 11];

fn run(rule: LeaseRule, candidates: usize, rates: [u8; 2], well: bool) -> Outcome {
    explore(Lease { rule, rates, candidates, well })
}

/// The cases of this model.
pub fn cases() -> Vec<Case> {
    macro_rules! mistake {
        ($rule:ident, $promise:ident, $text:literal) => {
            Case::breaks((ITEM, Rules::Mutation), $text, $promise, || {
                run(LeaseRule::$rule, 1, APART, $promise == CALM)
            })
        };
    }
    vec![
        mistake!(FromArrival, FRESH, "the lease counts from the arrival of the reply"),
        mistake!(LookRenews, FRESH, "the lease counts from a look that finds the holder's own set"),
        mistake!(CheckedBefore, FRESH, "the lease is checked before the read"),
        mistake!(WholeTime, FRESH, "the holder answers for all of L"),
        mistake!(NoWaiting, FRESH, "a candidate does not wait"),
        mistake!(FromLook, FRESH, "a candidate counts from the sending of its look"),
        mistake!(ThroughOutage, CALM, "a candidate's time runs through an outage"),
        mistake!(RenewsBlindly, FRESH, "the holder renews without a condition"),
        mistake!(TakesBlindly, FRESH, "a candidate sets the key without a condition"),
        mistake!(ClockStops, FRESH, "the holder's clock stands still in a suspended machine"),
        mistake!(ReleasesEarly, FRESH, "a holder that has released the lease answers"),
        mistake!(RefusedIsFenced, LED, "a holder whose set is refused takes itself for fenced"),
        Case::breaks(
            (ITEM, Rules::Mutation),
            "each clock may be wrong by a tenth, so that two are 22 % apart",
            FRESH,
            || run(LeaseRule::Built, 1, [9, 11], false),
        ),
        Case::holds(ITEM, "a holder and a candidate", 1_000, || {
            run(LeaseRule::Built, 1, APART, true)
        }),
        Case::holds(ITEM, "a holder and two candidates", 100_000, || {
            run(LeaseRule::Built, 2, APART, true)
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::cases;
    use crate::case::verify_item;

    #[test]
    fn an_old_holder_answers_nothing_stale() {
        verify_item(cases(), super::ITEM);
    }
}
