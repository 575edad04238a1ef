//! The cases of this model.

use super::{ABOVE, KEPT, READS, ROUND, SAME, TOLD, Takeover, TakeoverRule, Witnesses};
use crate::case::{Case, Rules};
use crate::check::{Outcome, explore};

const ITEM: &str = "Takeover";

const NO_WITNESS: Witnesses =
    Witnesses { closing: false, lease: false, mirror: false, promises_all: true };
const WITNESSES: Witnesses =
    Witnesses { closing: false, lease: true, mirror: true, promises_all: false };

/// A primary that writes two records, a successor that writes one, and the first one again.
fn tails(rule: TakeoverRule) -> Takeover {
    Takeover {
        rule,
        members: 2,
        records: &[2, 1],
        crashes: 1,
        anchors: 0,
        marks: 0,
        images: false,
        files: true,
        lies: 0,
        witnesses: NO_WITNESS,
    }
}

fn anchors(rule: TakeoverRule) -> Takeover {
    Takeover { records: &[2, 0], crashes: 0, anchors: 1, ..tails(rule) }
}

fn images(rule: TakeoverRule) -> Takeover {
    Takeover { images: true, records: &[1, 1], crashes: 0, ..tails(rule) }
}

fn epochs(rule: TakeoverRule) -> Takeover {
    Takeover { members: 3, records: &[1, 1], crashes: 0, marks: 1, ..tails(rule) }
}

fn two_candidates(rule: TakeoverRule) -> Takeover {
    Takeover { members: 3, records: &[0, 1], crashes: 0, ..tails(rule) }
}

fn losses(rule: TakeoverRule, lies: u8, witnesses: Witnesses) -> Takeover {
    Takeover { records: &[2, 0], crashes: 0, lies, witnesses, ..tails(rule) }
}

fn with(closing: bool, lease: bool, mirror: bool, promises_all: bool) -> Witnesses {
    Witnesses { closing, lease, mirror, promises_all }
}

/// The cases of this model.
pub fn cases() -> Vec<Case> {
    let mut cases = mistakes();
    cases.extend(holding());
    cases.extend(of_losses());
    cases
}

fn run(model: Takeover) -> Outcome {
    explore(model)
}

fn mistakes() -> Vec<Case> {
    macro_rules! mistake {
        ($rule:ident, $model:ident, $promise:ident, $text:literal) => {
            Case::breaks((ITEM, Rules::Mutation), $text, $promise, || {
                run($model(TakeoverRule::$rule))
            })
        };
    }
    vec![
        mistake!(RaiseAtLocal, tails, KEPT, "the frontier is raised at the local sync"),
        mistake!(AnchorsOfFiles, anchors, KEPT, "anchors state what is in the files"),
        mistake!(KeepGhost, tails, SAME, "a tail behind the end is kept"),
        mistake!(OwnEnds, tails, SAME, "a member begins at the ends of its own files"),
        mistake!(AdoptUnstored, images, SAME, "a checkpoint of what is not stored is adopted"),
        mistake!(
            NoSecondFence,
            two_candidates,
            READS,
            "two candidates have one number, and `begin` is replaced"
        ),
        mistake!(FloorForgotten, epochs, ABOVE, "an incarnation begins with the first epoch"),
        mistake!(
            FloorByRecords,
            epochs,
            ROUND,
            "an incarnation begins above the records read and the marks heard of"
        ),
        mistake!(
            LimitPassed,
            epochs,
            ABOVE,
            "a primary ends epochs beyond the limit that the lease states"
        ),
    ]
}

fn holding() -> Vec<Case> {
    use TakeoverRule::{BeginReplaced, Built, DrawnTwice};
    vec![
        Case::holds(ITEM, "two records, a takeover, a record", 80_000, || run(tails(Built))),
        Case::holds(ITEM, "the log alone is waited for", 75_000, || {
            run(Takeover { files: false, ..tails(Built) })
        }),
        Case::holds(ITEM, "three incarnations of a record each", 130_000, || {
            run(Takeover { records: &[1, 1, 1], ..tails(Built) })
        }),
        Case::holds(ITEM, "anchors", 45_000, || run(anchors(Built))),
        Case::holds(ITEM, "checkpoints of the primary", 65_000, || run(images(Built))),
        Case::holds(ITEM, "three members, with marks", 480_000, || run(epochs(Built))),
        Case::holds(ITEM, "two candidates of one number, of which one begins", 75_000, || {
            run(two_candidates(DrawnTwice))
        }),
        Case::holds(ITEM, "`begin` is replaced, and each number is drawn once", 80_000, || {
            run(tails(BeginReplaced))
        }),
    ]
}

/// What is noticed if the log loses the last messages of lanes.
fn of_losses() -> Vec<Case> {
    use TakeoverRule::{Built, StoredIgnored};
    vec![
        Case::breaks(
            (ITEM, Rules::Ours),
            "the log loses a tail, and messages state what is stored",
            KEPT,
            || run(losses(Built, 1, with(false, false, false, true))),
        ),
        Case::breaks(
            (ITEM, Rules::Ours),
            "the log loses a tail, and the lease states what is stored",
            KEPT,
            || run(losses(Built, 1, with(false, true, true, true))),
        ),
        Case::breaks(
            (ITEM, Rules::Mutation),
            "what messages state as stored is ignored",
            TOLD,
            || run(losses(StoredIgnored, 1, with(false, false, false, false))),
        ),
        Case::breaks(
            (ITEM, Rules::Mutation),
            "all lanes lose their tails, and closing messages alone state what is stored",
            TOLD,
            || run(losses(Built, 3, with(true, false, false, false))),
        ),
        Case::holds(ITEM, "a lane loses a tail, and messages tell", 10_000, || {
            run(losses(Built, 1, with(false, false, false, false)))
        }),
        Case::holds(ITEM, "a lane loses a tail, and closing messages tell", 110_000, || {
            run(losses(Built, 1, with(true, false, false, false)))
        }),
        Case::holds(ITEM, "all lanes lose their tails, and the lease tells", 110_000, || {
            run(losses(Built, 3, WITNESSES))
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::cases;
    use crate::case::verify_item;

    #[test]
    fn what_is_acknowledged_is_recovered_by_every_successor() {
        verify_item(cases(), super::ITEM);
    }
}
