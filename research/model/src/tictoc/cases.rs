//! The cases of the model.

use super::{CAUGHT, K, OURS, PREFIX, SERIAL, TicToc, TicTocProgram, TicTocRules};
use crate::case::{Case, Rules};
use crate::check::{Outcome, explore};

const A: u8 = 0;
const B: u8 = 1;
const C: u8 = 2;

fn program(reads: &[u8], writes: Option<u8>, stream: u8) -> TicTocProgram {
    TicTocProgram { reads: [reads.first().copied(), reads.get(1).copied()], writes, stream }
}

/// Every multiset of three of these programs: the numbering of transactions does not matter.
fn threes() -> Vec<Vec<TicTocProgram>> {
    let all = [
        program(&[A], Some(B), 0),
        program(&[A], Some(B), 1),
        program(&[A, B], Some(C), 1),
        program(&[B, A], Some(A), 0),
        program(&[], Some(A), 0),
        program(&[C], Some(A), 1),
        program(&[A, B], None, 0),
        program(&[A, K], Some(B), 0),
        program(&[A, K], None, 0),
        program(&[B], Some(K), 1),
        program(&[K, C], Some(B), 1),
    ];
    let mut sets = Vec::new();
    for (i, one) in all.iter().enumerate() {
        for (j, two) in all.iter().enumerate().skip(i) {
            sets.extend(all[j..].iter().map(|three| vec![*one, *two, *three]));
        }
    }
    sets
}

/// A gap between four: T1 reads a, and later misses k; T2 overwrites a; T3 reads a, and misses k;
/// T4 inserts k.
fn around_a_gap() -> Vec<Vec<TicTocProgram>> {
    let inserts = program(&[], Some(K), 1);
    let reads = |row| program(&[A, row], None, 0);
    vec![vec![reads(K), program(&[], Some(A), 0), reads(K), inserts]]
}

/// With one end of an epoch at most.
fn run(rules: TicTocRules) -> Outcome {
    explore(TicToc { rules, sets: threes(), epochs: 1 })
}

fn run_around_a_gap(rules: TicTocRules) -> Outcome {
    explore(TicToc { rules, sets: around_a_gap(), epochs: 0 })
}

/// The cases of this model.
pub fn cases() -> Vec<Case> {
    use Rules::{Mutation, Printed};
    const ITEM: &str = "TicToc";
    vec![
        Case::breaks((ITEM, Printed), "late transactions log commands (C7)", CAUGHT, || {
            run(TicTocRules { late_logs_data: false, ..OURS })
        }),
        Case::breaks(
            (ITEM, Mutation),
            "a transaction that has read a row that another one holds is not late (C5)",
            CAUGHT,
            || {
                let rules = TicTocRules { held_is_late: false, ..OURS };
                explore(TicToc { rules, sets: threes(), epochs: 0 })
            },
        ),
        Case::breaks(
            (ITEM, Mutation),
            "a command marks only the rows whose rts it raises (C8)",
            CAUGHT,
            || run(TicTocRules { marks_all: false, ..OURS }),
        ),
        Case::breaks((ITEM, Mutation), "late in a later epoch (C11)", PREFIX, || {
            run(TicTocRules { same_epoch: false, ..OURS })
        }),
        Case::breaks((ITEM, Mutation), "gaps have no timestamps (C20)", SERIAL, || {
            run_around_a_gap(TicTocRules { gaps_have_timestamps: false, ..OURS })
        }),
        Case::holds(
            ITEM,
            "timestamps for rows and gaps, late data, in one epoch",
            1_000_000,
            || run(OURS),
        ),
        Case::holds(ITEM, "the same, around a gap", 1_000, || run_around_a_gap(OURS)),
    ]
}

#[cfg(test)]
mod tests {
    use super::cases;
    use crate::case::verify_item;

    #[test]
    fn late_commits_are_serializable_replayed_and_cut() {
        verify_item(cases(), "TicToc");
    }
}
