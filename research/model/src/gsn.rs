//! GSN, with one record for each transaction, and numbers above all dependencies: an item of
//! docs/protocols.

use crate::case::{Case, Rules};
use crate::check::{Outcome, explore};
use crate::numbered::promises::{ANSWERED, CLOSED, ENDS, RIGOROUS};
use crate::numbered::{Idle, Marks, Numbered, Scheme};

fn in_turn(txns: usize) -> Numbered {
    Numbered::in_turn(Scheme::Gsn, txns)
}

fn ours(txns: usize) -> Numbered {
    Numbered::ours(Scheme::Gsn, txns)
}

/// The cases of this model.
pub fn cases() -> Vec<Case> {
    use Rules::Mutation;
    fn run(model: Numbered) -> Outcome {
        explore(model)
    }
    vec![
        Case::breaks(("GSN", Mutation), "a stream without records states no mark", ENDS, || {
            run(Numbered { idle: Idle::Nothing, ..in_turn(3) })
        }),
        Case::breaks(
            ("GSN", Mutation),
            "an idle stream takes numbers in memory alone",
            ANSWERED,
            || run(Numbered { idle: Idle::InMemory, ..in_turn(3) }),
        ),
        Case::breaks(
            ("GSN", Mutation),
            "a worker answers when its own record is durable",
            ANSWERED,
            || run(Numbered { answers: Marks::Own, ..in_turn(3) }),
        ),
        Case::breaks(
            ("GSN", Mutation),
            "every record that is found counts, whatever its number",
            CLOSED,
            || run(Numbered { counts: Marks::Own, ..in_turn(3) }),
        ),
        Case::breaks(
            ("GSN", Mutation),
            "a number is above those of the rows overwritten, and not of those read",
            CLOSED,
            || run(Numbered { above_reads: false, ..in_turn(3) }),
        ),
        Case::breaks(("GSN", Mutation), "what writes nothing waits for nothing", CLOSED, || {
            run(Numbered { readers_wait: false, ..in_turn(3) })
        }),
        Case::breaks(
            ("GSN", Mutation),
            "a number is drawn before the place of its record",
            ANSWERED,
            || run(Numbered { latched: false, ..ours(2) }),
        ),
        Case::breaks(
            ("GSN", Mutation),
            "rows that were read get the number after they were validated",
            RIGOROUS,
            || run(Numbered { draws_first: false, ..ours(3) }),
        ),
        Case::holds("GSN", "one transaction after the other", 50_000, || run(in_turn(4))),
        Case::holds("GSN", "transactions at the same time", 100_000, || run(ours(3))),
    ]
}

#[cfg(test)]
mod tests {
    use super::cases;
    use crate::case::verify_item;

    #[test]
    fn numbers_grow_along_every_dependency_and_every_stream() {
        verify_item(cases(), "GSN");
    }
}
