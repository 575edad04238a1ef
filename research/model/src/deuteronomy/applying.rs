//! What reaches the data component, and the losses of the log allowed then: item "Deuteronomy" of
//! docs/protocols.
//!
//! Two small models. Two writers of a key log in the one order and install in the other (D3). The
//! log is truncated while an operation waits for its commit (D10).

use super::scripts::{ITEM, ScriptStep, Scripts};
use crate::case::{Case, Rules};
use crate::check::{Outcome, explore};

fn step<S>(does: &'static str, act: fn(S) -> Option<S>) -> ScriptStep<S> {
    ScriptStep { does, act }
}

/// Writers 5 and 7 of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Installing {
    /// The next position of the log, and the positions of both records; 0 before they are logged.
    next: u8,
    logged: [u8; 2],
    /// The newest version put into the table.
    newest: u8,
    /// A writer that finds a younger version aborts.
    committed: [bool; 2],
    ended: [bool; 2],
    /// The content of the data component: a version, and the position of the version's record.
    kept: (u8, u8),
    applied: [bool; 2],
}

const WRITERS: [u8; 2] = [5, 7];
const AGREE: &str = "the data component keeps the newest committed version";

fn log(s: Installing, at: usize) -> Option<Installing> {
    let mut next = Installing { next: s.next + 1, ..s };
    next.logged[at] = s.next;
    Some(next)
}

fn install(s: Installing, at: usize) -> Option<Installing> {
    let (mut next, is_newest) = (s, s.newest < WRITERS[at]);
    if is_newest {
        next.newest = WRITERS[at];
    }
    next.committed[at] = is_newest;
    next.ended[at] = true;
    Some(next)
}

/// Applies committed writes, in the order of the log.
fn apply(s: Installing, by_lsn: bool) -> Option<Installing> {
    let waits = |at: &usize| s.committed[*at] && !s.applied[*at];
    let at = (0..2).filter(waits).min_by_key(|at| s.logged[*at])?;
    let mut next = s;
    next.applied[at] = true;
    let is_newer = match by_lsn {
        true => s.logged[at] > s.kept.1,
        false => WRITERS[at] > s.kept.0,
    };
    if is_newer {
        next.kept = (WRITERS[at], s.logged[at]);
    }
    Some(next)
}

fn installing(by_lsn: bool) -> Outcome {
    let apply = match by_lsn {
        true => || step("applies the next operation", |s| apply(s, true)),
        false => || step("applies the next operation", |s| apply(s, false)),
    };
    let initial = Installing {
        next: 1,
        logged: [0; 2],
        newest: 3,
        committed: [false; 2],
        ended: [false; 2],
        kept: (3, 0),
        applied: [false; 2],
    };
    explore(Scripts {
        initial,
        scripts: vec![
            (
                "W5",
                vec![
                    step("logs its update", |s| log(s, 0)),
                    step("enters its version and commits, or aborts", |s| install(s, 0)),
                ],
            ),
            (
                "W7",
                vec![
                    step("logs its update", |s| log(s, 1)),
                    step("enters its version and commits, or aborts", |s| install(s, 1)),
                ],
            ),
            ("the proxy", vec![apply(), apply()]),
        ],
        promise: (AGREE, |s| {
            let all_applied = s.ended == [true; 2] && s.applied == s.committed;
            !all_applied || s.kept.0 == s.newest
        }),
        verdict: "the data component keeps version 5, and version 7 is committed",
        reaches: ("both are committed, and the older was logged last", |s| {
            s.committed == [true; 2] && s.logged[0] > s.logged[1]
        }),
    })
}

/// A transaction with a part, seen by the proxy before the commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Truncating {
    waits: bool,
    is_seen: bool,
    is_durable: bool,
    answered: bool,
    applied: bool,
    stable: bool,
    truncated: bool,
    power_failed: bool,
}

const THERE: &str = "what is acknowledged is in the stable data component or in the log";

fn powered(s: Truncating, next: Truncating) -> Option<Truncating> {
    (!s.power_failed).then_some(next)
}

fn truncating(up_to_seen: bool) -> Outcome {
    let truncate = match up_to_seen {
        true => step("truncates the log up to what it has seen", |s: Truncating| {
            powered(s, Truncating { truncated: s.is_seen, ..s })
        }),
        false => step("truncates the log up to the first operation that waits", |s: Truncating| {
            powered(s, Truncating { truncated: s.is_seen && !s.waits && s.stable, ..s })
        }),
    };
    explore(Scripts {
        initial: Truncating {
            waits: false,
            is_seen: false,
            is_durable: false,
            answered: false,
            applied: false,
            stable: false,
            truncated: false,
            power_failed: false,
        },
        scripts: vec![
            (
                "T",
                vec![
                    step("commits, and its record is durable", |s| {
                        powered(s, Truncating { is_durable: true, ..s })
                    }),
                    step("is answered", |s| powered(s, Truncating { answered: true, ..s })),
                ],
            ),
            (
                "the proxy",
                vec![
                    step("sees the part of T, and keeps it", |s| {
                        powered(s, Truncating { is_seen: true, waits: true, ..s })
                    }),
                    step("applies the part of T", |s: Truncating| {
                        let next = Truncating { waits: false, applied: true, ..s };
                        s.is_durable.then(|| powered(s, next)).flatten()
                    }),
                ],
            ),
            (
                "the checkpoint",
                vec![
                    step("makes the data component stable", |s| {
                        powered(s, Truncating { stable: s.applied, ..s })
                    }),
                    truncate,
                ],
            ),
            ("the power", vec![step("fails", |s| Some(Truncating { power_failed: true, ..s }))]),
        ],
        promise: (THERE, |s| !(s.power_failed && s.answered && s.truncated && !s.stable)),
        verdict: "T is answered, and what it has written is nowhere",
        reaches: ("the log is truncated, and T is answered", |s| s.truncated && s.answered),
    })
}

pub(super) fn cases() -> Vec<Case> {
    let printed =
        |rule, promise, explore| Case::breaks((ITEM, Rules::Printed), rule, promise, explore);
    let holds = |rule, states, explore| Case::holds(ITEM, rule, states, explore);
    vec![
        printed("the data component keeps the operation with the highest LSN", AGREE, || {
            installing(true)
        }),
        holds("the data component keeps the operation with the highest timestamp", 25, || {
            installing(false)
        }),
        printed("the log is truncated up to what the proxy has seen", THERE, || truncating(true)),
        holds("the log is truncated up to the first operation that waits", 40, || {
            truncating(false)
        }),
    ]
}
