//! The rules for replay, and the expected results.

use super::{Counted, ENDS, Looking, ORDERED, Replay};
use crate::case::{Case, Rules};
use crate::check::{Outcome, explore};

/// The cases of this model.
pub fn cases() -> Vec<Case> {
    use Rules::{Mutation, Printed};
    fn run(model: Replay) -> Outcome {
        explore(model)
    }
    vec![
        Case::breaks(("E2", Printed), "RLV counts replayed transactions", ENDS, || {
            run(Replay { anchors: 2, looks_idle: true, ends: true, ..as_printed(1) })
        }),
        Case::breaks(
            ("E2", Mutation),
            "a worker updates RLV only after it has replayed a record",
            ENDS,
            || run(Replay { looks_idle: false, ..Replay::ours(1) }),
        ),
        Case::holds("E2", "RLV counts frames of every kind, and reaches the ends", 10_000, || {
            run(Replay { anchors: 2, txns: 2, losses: false, ..Replay::ours(1) })
        }),
        Case::breaks(
            ("E5", Printed),
            "two workers to a pool; RLV comes from what is left in the pool",
            ORDERED,
            || run(as_printed(2)),
        ),
        Case::breaks(
            ("E5", Mutation),
            "a record is dequeued before it is replayed, and RLV ignores it meanwhile",
            ORDERED,
            || run(Replay { in_flight: false, ..Replay::ours(2) }),
        ),
        Case::holds("E5", "records in flight hold RLV back", 10_000, || {
            run(Replay { losses: false, ..Replay::ours(2) })
        }),
        Case::breaks(
            ("E6", Printed),
            "one worker; a record may come between \"the pool is empty\" and reading maxLSN",
            ORDERED,
            || run(Replay { looking: Looking::PoolThenMax, ..as_printed(1) }),
        ),
        Case::breaks(
            ("E6", Mutation),
            "maxLSN is raised before the record is enqueued",
            ORDERED,
            || run(Replay { raised_first: true, ..Replay::ours(1) }),
        ),
        Case::breaks(("E6", Mutation), "maxLSN is read after the pool is checked", ORDERED, || {
            run(Replay { looking: Looking::PoolThenMax, ..Replay::ours(1) })
        }),
        Case::holds("E6", "maxLSN is read before the pool is checked", 10_000, || {
            run(Replay::ours(1))
        }),
    ]
}

/// Algorithms 3 and 4: RLV is raised after a record was run. Dead records are skipped, to keep E1
/// out, and only E2 checks whether replay ends.
fn as_printed(workers: usize) -> Replay {
    Replay {
        counted: Counted::Transactions,
        in_flight: false,
        looking: Looking::Atomically,
        looks_idle: false,
        ends: false,
        ..Replay::ours(workers)
    }
}

#[cfg(test)]
mod tests {
    use super::cases;
    use crate::case::verify_item;

    #[test]
    fn replay_comes_to_its_end() {
        verify_item(cases(), "E2");
    }

    #[test]
    fn a_record_in_flight_is_not_replayed() {
        verify_item(cases(), "E5");
    }

    #[test]
    fn an_empty_pool_says_nothing_by_itself() {
        verify_item(cases(), "E6");
    }
}
