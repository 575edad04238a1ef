//! The cases of snapshots.

use super::ReaderStep::{Advance, Ask, Check, Clear, Close, Open, Read, Wait};
use super::WriterStep::{Enter, Install, Leave, Lock, Look, Mark, ReadEpoch};
use super::{AS_LEFT, Mistake, NOT_REUSED, OURS, Order, RECENT, Snapshots, reading};
use crate::case::{Case, Rules};
use crate::check::{Outcome, explore};

const ITEM: &str = "Snapshots";

fn run(order: Order) -> Outcome {
    explore(Snapshots { order })
}

fn slip(mistake: Mistake) -> Outcome {
    run(Order { mistake: Some(mistake), ..OURS })
}

fn mistake(rule: &'static str, promise: &'static str, explore: fn() -> Outcome) -> Case {
    Case::breaks((ITEM, Rules::Mutation), rule, promise, explore)
}

/// The cases of both models.
pub fn cases() -> Vec<Case> {
    let mut cases = opening();
    cases.extend(keeping());
    cases.extend(sharing());
    cases.push(Case::holds(
        ITEM,
        "publish, clear, check, advance, wait; enter, lock, read the epoch, look, mark, keep",
        100_000,
        || run(OURS),
    ));
    cases.extend(reading::cases(ITEM));
    cases
}

/// Mistakes of opening a snapshot, and of writers meanwhile.
fn opening() -> Vec<Case> {
    vec![
        mistake("a snapshot is read before the commits of its epoch have ended", AS_LEFT, || {
            run(Order {
                reader: &[Ask, Open, Clear, Check, Advance, Read(0), Read(1), Close],
                ..OURS
            })
        }),
        mistake("a writer reads its epoch before it enters its slot", AS_LEFT, || {
            run(Order {
                writer: &[ReadEpoch, Enter, Lock, Look, Mark, Install(0), Install(1), Leave],
                ..OURS
            })
        }),
        mistake("a writer looks for snapshots before it reads its epoch", AS_LEFT, || {
            run(Order {
                writer: &[Enter, Lock, Look, ReadEpoch, Mark, Install(0), Install(1), Leave],
                ..OURS
            })
        }),
    ]
}

/// Mistakes of keeping versions.
fn keeping() -> Vec<Case> {
    vec![
        mistake("only versions below the newest snapshot's epoch are kept", AS_LEFT, || {
            slip(Mistake::KeepsOnlyOlder)
        }),
        mistake("closing a snapshot forgets that others are open", AS_LEFT, || {
            slip(Mistake::ForgetsOthers)
        }),
        mistake("memory is reused that the newest snapshot does not need", NOT_REUSED, || {
            slip(Mistake::ReusesBelowNewest)
        }),
    ]
}

/// Mistakes of sharing a snapshot.
fn sharing() -> Vec<Case> {
    vec![
        mistake("the flag is set when the transaction has ended", RECENT, || {
            run(Order {
                writer: &[Enter, Lock, ReadEpoch, Look, Install(0), Install(1), Leave, Mark],
                ..OURS
            })
        }),
        mistake("a snapshot is shared that is not the last one", RECENT, || {
            slip(Mistake::SharesAny)
        }),
        mistake("the flag is cleared after the epoch was advanced", RECENT, || {
            run(Order {
                reader: &[
                    Ask,
                    Open,
                    Check,
                    Advance,
                    Clear,
                    Wait(0),
                    Wait(1),
                    Read(0),
                    Read(1),
                    Close,
                ],
                ..OURS
            })
        }),
        mistake("the flag is cleared after the check of the epoch", RECENT, || {
            run(Order {
                reader: &[
                    Ask,
                    Open,
                    Check,
                    Clear,
                    Advance,
                    Wait(0),
                    Wait(1),
                    Read(0),
                    Read(1),
                    Close,
                ],
                ..OURS
            })
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::cases;
    use crate::case::verify_item;

    #[test]
    fn a_snapshot_finds_what_it_is_to_hold() {
        verify_item(cases(), "Snapshots");
    }
}
