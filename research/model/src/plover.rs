//! Plover, with a record in each partition that a transaction writes to, and one number: an item of
//! docs/protocols.

use crate::case::{Case, Rules};
use crate::check::{Outcome, explore};
use crate::numbered::promises::{ANSWERED, CLOSED, ENDS, RIGOROUS, WHOLE};
use crate::numbered::{Idle, Marks, Numbered, Scheme};

fn in_turn(txns: usize) -> Numbered {
    Numbered::in_turn(Scheme::Plover, txns)
}

fn at_the_same_time(txns: usize) -> Numbered {
    Numbered::ours(Scheme::Plover, txns)
}

/// The cases of this model.
pub fn cases() -> Vec<Case> {
    use Rules::{Mended, Mutation, Printed};
    fn run(model: Numbered) -> Outcome {
        explore(model)
    }
    vec![
        Case::breaks(
            ("Plover", Printed),
            "a transaction waits for the partitions that it touched",
            CLOSED,
            || {
                let touched = Marks::Touched;
                run(Numbered { answers: touched, counts: touched, ..in_turn(3) })
            },
        ),
        Case::breaks(
            ("Plover", Mutation),
            "a number is above the counters of the partitions written to alone",
            CLOSED,
            || run(Numbered { above_reads: false, ..in_turn(3) }),
        ),
        Case::breaks(("Plover", Mutation), "each record counts by itself", WHOLE, || {
            run(Numbered { answers: Marks::Own, counts: Marks::Own, ..in_turn(2) })
        }),
        Case::breaks(("Plover", Mutation), "what writes nothing waits for nothing", CLOSED, || {
            run(Numbered { readers_wait: false, ..in_turn(3) })
        }),
        Case::breaks(("Plover", Mutation), "a stream without records states no mark", ENDS, || {
            run(Numbered { idle: Idle::Nothing, ..in_turn(2) })
        }),
        Case::breaks(
            ("Plover", Mutation),
            "an idle stream takes numbers in memory alone",
            ANSWERED,
            || run(Numbered { idle: Idle::InMemory, ..in_turn(3) }),
        ),
        Case::breaks(
            ("Plover", Mutation),
            "the counters are free between the number and the places",
            ANSWERED,
            || run(Numbered { latched: false, rigorous: false, ..at_the_same_time(3) }),
        ),
        Case::breaks(
            ("Plover", Mutation),
            "what was read is validated before the number is drawn",
            RIGOROUS,
            || run(Numbered { draws_first: false, ..at_the_same_time(3) }),
        ),
        Case::holds("Plover", "one transaction after the other", 100_000, || run(in_turn(5))),
        Case::holds(
            "Plover",
            "at the same time, without a promise to those that read what is overwritten",
            100_000,
            || run(Numbered { draws_first: false, rigorous: false, ..at_the_same_time(4) }),
        ),
        Case::mended(
            ("Plover", Mended),
            "the same with it: what was read is validated after the number is drawn",
            100_000,
            || run(at_the_same_time(4)),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::cases;
    use crate::case::verify_item;

    #[test]
    fn a_transaction_waits_for_every_partition() {
        verify_item(cases(), "Plover");
    }
}
