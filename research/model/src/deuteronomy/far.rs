//! A data component whose process may be lost alone: item "Deuteronomy" of docs/protocols.
//!
//! The client of the server gives it two operations, takes a checkpoint, and reads the first
//! operation's key once that operation has left memory. The server's process is lost twice, with
//! what it has not made stable. A further thread of the client brings each next process, its
//! *boot*, up to date.

use super::scripts::{ITEM, ScriptStep, Scripts};
use crate::case::{Case, Rules};
use crate::check::{Outcome, explore};

const NOTHING_MISSED: &str =
    "a read finds what was applied, and a resume point covers only what is stable";

type Set = [bool; 2];

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Far {
    /// The operations that the client keeps.
    kept: Set,
    /// The operations whose call has returned.
    returned: Set,
    /// Those that a checkpoint under way will have made stable.
    covered: Set,
    /// The server: the process, the operations in memory and on the medium, and the operations
    /// covered by the resume point.
    boot: u8,
    held: Set,
    stable: Set,
    claimed: Set,
    /// The boot that the client asks.
    asked: u8,
    /// The boot that is being brought up to date.
    next: u8,
    /// What a read has found.
    read: Option<bool>,
}

fn either(one: Set, two: Set) -> Set {
    [one[0] || two[0], one[1] || two[1]]
}

fn keep(s: Far, at: usize) -> Option<Far> {
    let mut next = s;
    next.kept[at] = true;
    Some(next)
}

/// A call to the server waits for the boot that the client asks.
fn at_server(s: Far, act: impl FnOnce(&mut Far)) -> Option<Far> {
    let mut next = s;
    act(&mut next);
    (s.asked == s.boot).then_some(next)
}

fn send(s: Far, at: usize) -> Option<Far> {
    at_server(s, |s| s.held[at] = true)
}

/// The call returns, unless the process was lost meanwhile: then it is made again.
fn note(s: Far, at: usize) -> Option<Far> {
    at_server(s, |s| {
        s.held[at] = true;
        s.returned[at] = true;
    })
}

fn begin_checkpoint(s: Far) -> Option<Far> {
    Some(Far { covered: s.returned, ..s })
}

fn make_stable(s: Far) -> Option<Far> {
    at_server(s, |s| {
        s.stable = s.held;
        s.claimed = s.covered;
    })
}

/// The operations of the checkpoint go.
fn forget(s: Far) -> Option<Far> {
    let kept = std::array::from_fn(|at| s.kept[at] && !s.covered[at]);
    Some(Far { kept, ..s })
}

fn read(s: Far) -> Option<Far> {
    let found = s.held[0];
    // Before, the version is in memory.
    s.returned[0].then_some(s).and_then(|s| at_server(s, |s| s.read = Some(found)))
}

fn lose(s: Far) -> Option<Far> {
    Some(Far { boot: s.boot + 1, held: s.stable, ..s })
}

/// The client finds another boot.
fn find(s: Far) -> Option<Far> {
    (s.asked != s.boot).then_some(Far { next: s.boot, ..s })
}

fn give_kept(s: Far) -> Option<Far> {
    match s.next == s.boot {
        true => Some(Far { held: either(s.held, s.kept), ..s }),
        // Lost meanwhile: the next one is another boot.
        false => Some(s),
    }
}

fn ask_next(s: Far) -> Option<Far> {
    Some(Far { asked: s.next, ..s })
}

type Act = fn(Far) -> Option<Far>;

/// The rules: the first two steps of an operation, the end of a checkpoint, and the steps that
/// bring a boot up to date.
struct FarRules {
    first: [[Act; 2]; 2],
    forget: Act,
    returning: [Act; 2],
}

const BUILT: FarRules = FarRules {
    first: [[|s| keep(s, 0), |s| send(s, 0)], [|s| keep(s, 1), |s| send(s, 1)]],
    forget,
    returning: [give_kept, ask_next],
};

fn far(rules: FarRules) -> Outcome {
    let step = |does, act: Act| ScriptStep { does, act };
    let mut applies = Vec::new();
    let notes: [Act; 2] = [|s| note(s, 0), |s| note(s, 1)];
    for ([one, two], note) in rules.first.into_iter().zip(notes) {
        applies.push(step("begins to apply an operation", one));
        applies.push(step("goes on", two));
        applies.push(step("has applied the operation", note));
    }
    let mut returns = Vec::new();
    for _ in 0..2 {
        returns.push(step("finds another boot", find));
        returns.extend(rules.returning.map(|act| step("brings the boot up to date", act)));
    }
    explore(Scripts {
        initial: Far::default(),
        scripts: vec![
            ("the proxy", applies),
            (
                "the checkpoint",
                vec![
                    step("begins", begin_checkpoint),
                    step("is stable", make_stable),
                    step("lets operations go", rules.forget),
                ],
            ),
            ("a reader", vec![step("reads", read)]),
            ("the server", vec![step("is lost", lose), step("is lost", lose)]),
            ("the client", returns),
        ],
        promise: (NOTHING_MISSED, |s| {
            let is_stable = (0..2).all(|at| s.stable[at] || !s.claimed[at]);
            s.read != Some(false) && is_stable
        }),
        verdict: "an operation is neither at the server nor with the client",
        reaches: ("a boot is given what the one before has lost", |s| {
            s.boot == 2 && s.asked == 2 && s.held == [true; 2] && s.stable == [false; 2]
        }),
    })
}

pub(super) fn cases() -> Vec<Case> {
    let mistake =
        |rule, explore| Case::breaks((ITEM, Rules::Mutation), rule, NOTHING_MISSED, explore);
    vec![
        mistake("an operation is kept only once it is sent", || {
            let first: [[Act; 2]; 2] =
                [[|s| note(s, 0), |s| keep(s, 0)], [|s| note(s, 1), |s| keep(s, 1)]];
            far(FarRules { first, ..BUILT })
        }),
        mistake("what was applied during a checkpoint goes with it", || {
            far(FarRules {
                forget: |s| {
                    let kept = std::array::from_fn(|at| s.kept[at] && !s.returned[at]);
                    Some(Far { kept, ..s })
                },
                ..BUILT
            })
        }),
        mistake("a boot is asked before it has what is kept", || {
            far(FarRules { returning: [ask_next, give_kept], ..BUILT })
        }),
        Case::holds(ITEM, "kept before it is sent, until stable; given before asked", 300, || {
            far(BUILT)
        }),
    ]
}
