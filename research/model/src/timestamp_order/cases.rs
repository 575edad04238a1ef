//! The cases of the model.

use super::OrderMistake as Mistake;
use super::{AS_OF, Accesses, CAUGHT, OrderMistake, OrderedAccess, PREFIX, TimestampOrder};
use crate::case::{Case, Rules};
use crate::check::{Outcome, explore};

const ITEM: &str = "Timestamp order";

const READ_A: OrderedAccess = OrderedAccess::Read(0);
const READ_B: OrderedAccess = OrderedAccess::Read(1);
const MARK_A: OrderedAccess = OrderedAccess::Mark(0);
const MARK_B: OrderedAccess = OrderedAccess::Mark(1);

const READ: Accesses = &[READ_A];
const READ_BOTH: Accesses = &[READ_A, READ_B];
const MISS: Accesses = &[READ_B];
const WRITE: Accesses = &[MARK_A];
const INSERT: Accesses = &[MARK_B];
const READ_A_INSERT: Accesses = &[READ_A, MARK_B];
const MISS_WRITE_A: Accesses = &[READ_B, MARK_A];
const MODIFY: Accesses = &[READ_A, MARK_A];
const VISIT_A_INSERT: Accesses = &[OrderedAccess::Visit(0), MARK_B];
const INSERT_AND_FAIL: Accesses = &[OrderedAccess::MarkAndFail(1)];

const NO_BACKGROUND: (bool, bool) = (false, false);
const SNAPSHOT: (bool, bool) = (true, false);
const SWEEP: (bool, bool) = (false, true);

fn run(
    mistake: Option<OrderMistake>,
    sets: &[&[Accesses]],
    (has_snapshot, is_swept): (bool, bool),
) -> Outcome {
    let sets = sets.iter().map(|set| set.to_vec()).collect();
    explore(TimestampOrder { mistake, sets, has_snapshot, is_swept })
}

fn slip(mistake: OrderMistake, set: &[Accesses], background: (bool, bool)) -> Outcome {
    run(Some(mistake), &[set], background)
}

fn mistake(rule: &'static str, promise: &'static str, explore: fn() -> Outcome) -> Case {
    Case::breaks((ITEM, Rules::Mutation), rule, promise, explore)
}

/// The cases of this model.
pub fn cases() -> Vec<Case> {
    let mut cases = mistakes();
    cases.extend(mistakes_in_gaps());
    cases.push(Case::holds(ITEM, "last readers of rows and gaps, and late data", 100_000, || {
        run(None, MIXED, NO_BACKGROUND)
    }));
    cases.push(Case::holds(ITEM, "the same beside a snapshot", 50_000, || {
        run(None, BESIDE_SNAPSHOT, SNAPSHOT)
    }));
    cases.push(Case::holds(ITEM, "the same beside the removal of a row", 40_000, || {
        run(None, BESIDE_SWEEP, SWEEP)
    }));
    cases
}

fn mistakes() -> Vec<Case> {
    vec![
        mistake("a reader looks for earlier marks before it marks a row as read", AS_OF, || {
            slip(Mistake::LookBeforeReadMark, &[WRITE, READ], NO_BACKGROUND)
        }),
        mistake("a row is overwritten that was read later", AS_OF, || {
            slip(Mistake::OverwriteReadLater, &[WRITE, READ], NO_BACKGROUND)
        }),
        mistake("a row that is marked and not written does not count as read", AS_OF, || {
            slip(Mistake::VisitWithoutReadMark, &[WRITE, VISIT_A_INSERT], NO_BACKGROUND)
        }),
        mistake("a transaction commits in an epoch that is closed", PREFIX, || {
            slip(Mistake::CommitInClosedEpoch, &[WRITE], SNAPSHOT)
        }),
        mistake(
            "a transaction asks whether its epoch is closed before it enters one",
            PREFIX,
            || slip(Mistake::AskBeforeEntering, &[WRITE], SNAPSHOT),
        ),
        mistake("what was overwritten by a later transaction does not make late", CAUGHT, || {
            slip(Mistake::OverwrittenIsNotLate, &[READ_A_INSERT, WRITE], NO_BACKGROUND)
        }),
        mistake("what a later transaction has marked does not make late", CAUGHT, || {
            slip(Mistake::HeldIsNotLate, &[READ_A_INSERT, WRITE], NO_BACKGROUND)
        }),
    ]
}

fn mistakes_in_gaps() -> Vec<Case> {
    vec![
        mistake("a gap is not marked as read", AS_OF, || {
            slip(Mistake::GapWithoutReadMark, &[INSERT, MISS], NO_BACKGROUND)
        }),
        mistake("a gap is checked before it is marked as read", AS_OF, || {
            slip(Mistake::GapCheckedFirst, &[INSERT, MISS], NO_BACKGROUND)
        }),
        mistake("an inserted row does not inherit the last reader of its gap", AS_OF, || {
            let set = &[INSERT, MISS, INSERT_AND_FAIL];
            slip(Mistake::InsertWithoutInheriting, set, NO_BACKGROUND)
        }),
        mistake("a row leaves its last reader to the gap before it is dead", AS_OF, || {
            slip(Mistake::InheritBeforeDead, &[INSERT, MISS, INSERT_AND_FAIL], SWEEP)
        }),
        mistake("a row that is removed does not leave its last reader to the gap", AS_OF, || {
            let set = &[INSERT, MISS, INSERT_AND_FAIL];
            slip(Mistake::RemoveWithoutInheriting, set, SWEEP)
        }),
    ]
}

const MIXED: &[&[Accesses]] = &[
    &[READ_A_INSERT, MISS_WRITE_A, READ_BOTH],
    &[MODIFY, WRITE, READ],
    &[VISIT_A_INSERT, WRITE, MISS],
    &[INSERT, MISS, INSERT_AND_FAIL],
    &[READ_A_INSERT, MODIFY, MISS_WRITE_A],
    &[VISIT_A_INSERT, MODIFY, READ_BOTH],
    &[MISS_WRITE_A, INSERT, INSERT_AND_FAIL],
    &[INSERT, MISS_WRITE_A, READ_A_INSERT],
];

const BESIDE_SNAPSHOT: &[&[Accesses]] =
    &[&[READ_A_INSERT, MODIFY, MISS_WRITE_A], &[WRITE, INSERT, READ_BOTH]];

const BESIDE_SWEEP: &[&[Accesses]] =
    &[&[INSERT, MISS, INSERT_AND_FAIL], &[INSERT, INSERT, MISS_WRITE_A]];

#[cfg(test)]
mod tests {
    use super::cases;
    use crate::case::verify_item;

    #[test]
    fn what_commits_at_its_beginning_has_read_what_is_before_it() {
        verify_item(cases(), "Timestamp order");
    }
}
