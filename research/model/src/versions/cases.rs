//! The cases of the model.

use super::VersionsMistake as Mistake;
use super::{
    AS_OF, Access, CAUGHT, COMMITTED, HeldAgainst, Isolation, KEPT, OURS, SERIAL, Versions,
    VersionsMistake, VersionsProgram, VersionsRules,
};
use crate::case::{Case, Rules};
use crate::check::{Outcome, explore};

const ITEM: &str = "Hekaton";

const READ_A: Access = Access::Read(0);
const READ_B: Access = Access::Read(1);
const MARK_A: Access = Access::Mark(0);
const MARK_B: Access = Access::Mark(1);

type Accesses = &'static [Access];

const READ: Accesses = &[READ_A];
const READ_BOTH: Accesses = &[READ_A, READ_B];
const WRITE: Accesses = &[MARK_A];
const READ_A_WRITE_B: Accesses = &[READ_A, MARK_B];
const READ_B_WRITE_A: Accesses = &[READ_B, MARK_A];
const READ_BOTH_WRITE_A: Accesses = &[READ_A, READ_B, MARK_A];
const READ_BOTH_WRITE_B: Accesses = &[READ_A, READ_B, MARK_B];
const MODIFY: Accesses = &[READ_A, MARK_A];
/// Marks first, and reads later.
const MARK_B_READ_A: Accesses = &[MARK_B, READ_A];

/// Each transaction in a session of its own.
fn at_once(accesses: &[Accesses]) -> Vec<VersionsProgram> {
    let each = accesses.iter().enumerate();
    each.map(|(slot, accesses)| VersionsProgram { slot: slot as u8, accesses }).collect()
}

/// The first two transactions in sequence in a session, the rest at once.
fn in_sessions(accesses: &[Accesses]) -> Vec<VersionsProgram> {
    let each = accesses.iter().enumerate();
    let slot = |at: usize| at.saturating_sub(1) as u8;
    each.map(|(at, accesses)| VersionsProgram { slot: slot(at), accesses }).collect()
}

fn run(rules: VersionsRules, sets: Vec<Vec<VersionsProgram>>) -> Outcome {
    explore(Versions { rules, sets })
}

fn slip(mistake: VersionsMistake, accesses: &[Accesses]) -> Outcome {
    run(VersionsRules { mistake: Some(mistake), ..OURS }, vec![at_once(accesses)])
}

fn mistake(rule: &'static str, promise: &'static str, explore: fn() -> Outcome) -> Case {
    Case::breaks((ITEM, Rules::Mutation), rule, promise, explore)
}

const SNAPSHOT: VersionsRules = VersionsRules {
    isolation: Isolation::Snapshot,
    held_against: HeldAgainst::SnapshotIsolation,
    is_short: false,
    speculates: false,
    mistake: None,
};

/// The cases of this model.
pub fn cases() -> Vec<Case> {
    let mut cases = reading();
    cases.extend(committing());
    cases.extend(ours());
    cases
}

/// Mistakes that readers notice.
fn reading() -> Vec<Case> {
    vec![
        mistake("a reader takes its timestamp before it announces a bound", KEPT, || {
            slip(Mistake::ReadBeforeAnnouncing, &[READ, WRITE])
        }),
        mistake("a writer draws its timestamp before it says that it draws", AS_OF, || {
            slip(Mistake::DrawBeforeSaying, &[READ, WRITE])
        }),
        mistake("a bound is taken for the timestamp of a reader", AS_OF, || {
            slip(Mistake::BoundAsTimestamp, &[READ, WRITE, WRITE])
        }),
        mistake("a writer overlooks readers", KEPT, || {
            slip(Mistake::OverlookReaders, &[READ, WRITE])
        }),
        mistake("versions are dropped although a bound is below their end", KEPT, || {
            slip(Mistake::OverlookBounds, &[READ, WRITE])
        }),
        mistake("a reader does not look at the slot of a marked row", AS_OF, || {
            slip(Mistake::OverlookPreparing, &[READ, WRITE])
        }),
        mistake("a transaction does not wait for a commit it depends on", COMMITTED, || {
            let mistake = Some(Mistake::ForgetDependencies);
            run(VersionsRules { speculates: true, mistake, ..OURS }, vec![at_once(&[READ, WRITE])])
        }),
        mistake("a transaction is not ended that had announced a bound only", KEPT, || {
            let mistake = Some(Mistake::OverlookEndedBound);
            let rules = VersionsRules { is_short: true, mistake, ..OURS };
            run(rules, vec![at_once(&[READ, WRITE, WRITE])])
        }),
    ]
}

/// Mistakes of commits.
fn committing() -> Vec<Case> {
    vec![
        mistake("validation looks only at what is in place", SERIAL, || {
            slip(Mistake::ValidateInPlaceOnly, &[READ_A_WRITE_B, WRITE])
        }),
        mistake("validation looks at the version first, and then at the mark", SERIAL, || {
            slip(Mistake::VersionBeforeHolder, &[READ_A_WRITE_B, WRITE])
        }),
        mistake("a transaction whose reads were overwritten is not late", CAUGHT, || {
            slip(Mistake::OverwrittenIsNotLate, &[READ_A_WRITE_B, WRITE])
        }),
        mistake("a transaction whose reads another one holds is not late", CAUGHT, || {
            slip(Mistake::HeldIsNotLate, &[READ_A_WRITE_B, WRITE])
        }),
        mistake("a version above the own timestamp is overwritten", SERIAL, || {
            slip(Mistake::OverwriteNewer, &[MODIFY, WRITE])
        }),
        mistake("snapshot isolation is held against a serial order", SERIAL, || {
            let rules = VersionsRules { held_against: HeldAgainst::SerialOrder, ..SNAPSHOT };
            run(rules, vec![at_once(&[READ_A_WRITE_B, READ_B_WRITE_A])])
        }),
    ]
}

/// Readers, writers, and transactions that read and write.
fn mixed() -> Vec<Vec<VersionsProgram>> {
    vec![
        at_once(&[READ_A_WRITE_B, READ_B_WRITE_A, READ_BOTH]),
        at_once(&[READ_A_WRITE_B, WRITE, MODIFY]),
        at_once(&[READ_BOTH_WRITE_A, READ_BOTH_WRITE_B, READ]),
        at_once(&[MARK_B_READ_A, MODIFY, READ_BOTH]),
        in_sessions(&[WRITE, MODIFY, READ_A_WRITE_B]),
        in_sessions(&[WRITE, WRITE, READ_BOTH_WRITE_B]),
    ]
}

/// Writers of one row, and readers that the writers may end.
fn on_one_row() -> Vec<Vec<VersionsProgram>> {
    vec![at_once(&[READ, MODIFY, WRITE]), in_sessions(&[READ, READ_A_WRITE_B, WRITE])]
}

/// The rules as built.
fn ours() -> Vec<Case> {
    vec![
        Case::holds(ITEM, "bounds, timestamps, marks, and late data", 300_000, || {
            run(OURS, mixed())
        }),
        Case::holds(ITEM, "the same with speculative reads", 300_000, || {
            run(VersionsRules { speculates: true, ..OURS }, mixed())
        }),
        Case::holds(ITEM, "the same under snapshot isolation", 300_000, || run(SNAPSHOT, mixed())),
        Case::holds(ITEM, "bounds, timestamps, marks, where room is short", 50_000, || {
            run(VersionsRules { is_short: true, ..OURS }, on_one_row())
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::cases;
    use crate::case::verify_item;

    #[test]
    fn versions_are_read_as_of_a_timestamp_and_replayed() {
        verify_item(cases(), "Hekaton");
    }
}
