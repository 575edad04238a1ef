//! The rules for judging records, and the expected results.

use super::{ANSWERED, Answer, CLOSED, Ends, FOR_EVER, Judge, Judging, OldDead, SEEN};
use crate::case::{Case, Rules};
use crate::check::{Outcome, explore};
use crate::history::Stamping;

fn as_printed(streams: usize) -> Judge {
    Judge {
        answer: Answer::InStreamOrder,
        judging: Judging::StopAtFirstDead,
        ..Judge::ours(streams, 4, 1)
    }
}

/// The cases of this model.
pub fn cases() -> Vec<Case> {
    use Rules::{Mutation, Printed};
    fn run(model: Judge) -> Outcome {
        explore(model)
    }
    vec![
        Case::breaks(
            ("E1", Printed),
            "acknowledge in stream order; at recovery stop at the first dead record",
            SEEN,
            || run(as_printed(2)),
        ),
        Case::breaks(
            ("E1", Mutation),
            "acknowledge by vector alone, but stop at the first dead record",
            ANSWERED,
            || run(Judge { judging: Judging::StopAtFirstDead, ..Judge::ours(2, 4, 1) }),
        ),
        Case::breaks(
            ("E1", Mutation),
            "acknowledge before the transaction's own frame is durable",
            ANSWERED,
            || run(Judge { answer: Answer::WithoutOwnFrame, ..Judge::ours(2, 3, 1) }),
        ),
        Case::breaks(("E1", Mutation), "stamp rows after they are released", SEEN, || {
            run(Judge { stamping: Stamping::AfterRelease, ..Judge::ours(2, 3, 1) })
        }),
        Case::holds("E1", "one rule for both: the vector, own frame included", 100_000, || {
            run(Judge::ours(3, 4, 1))
        }),
        Case::breaks(("E3", Printed), "a stream ends at its file's size", CLOSED, || {
            run(Judge { ends: Ends::FileSize, ..Judge::ours(2, 3, 1) })
        }),
        Case::holds("E3", "a stream ends where its valid prefix ends", 1_000, || {
            run(Judge { txns: 4, ..Judge::ours(2, 4, 1) })
        }),
        Case::breaks(
            ("E10", Printed),
            "positions wrap around (here at 2, in the paper at 2^32)",
            ANSWERED,
            || run(Judge { modulus: 2, ..Judge::ours(2, 3, 1) }),
        ),
        Case::holds("E10", "positions never wrap around", 1_000, || run(Judge::ours(2, 3, 1))),
        Case::breaks(("Waiting", Mutation), "readers are acknowledged at once", SEEN, || {
            run(Judge { answer: Answer::ReadersAtOnce, ..Judge::ours(2, 3, 1) })
        }),
        Case::holds("Waiting", "readers wait for what they read", 1_000, || {
            run(Judge::ours(2, 4, 1))
        }),
        Case::breaks(
            ("After recovery", Printed),
            "old dead records are judged by the newest ends",
            FOR_EVER,
            || run(Judge { old_dead: OldDead::NewestEnds, ..Judge::ours(2, 4, 2) }),
        ),
        Case::breaks(
            ("After recovery", Mutation),
            "recovery cuts each stream off at its first dead record",
            FOR_EVER,
            || run(Judge { old_dead: OldDead::CutOff, ..Judge::ours(2, 4, 2) }),
        ),
        Case::holds(
            "After recovery",
            "dead records keep the ends of their incarnation",
            10_000,
            || run(Judge::ours(2, 4, 2)),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::cases;
    use crate::case::verify_item;

    #[test]
    fn acknowledged_is_recovered() {
        verify_item(cases(), "E1");
    }

    #[test]
    fn a_stream_ends_where_its_valid_prefix_ends() {
        verify_item(cases(), "E3");
    }

    #[test]
    fn positions_do_not_wrap() {
        verify_item(cases(), "E10");
    }

    #[test]
    fn readers_wait_for_what_they_read() {
        verify_item(cases(), "Waiting");
    }

    #[test]
    fn dead_stays_dead_and_recovered_stays_recovered() {
        verify_item(cases(), "After recovery");
    }
}
