//! Snapshots of the data component as of a timestamp: item "Deuteronomy" of docs/protocols.
//!
//! Three writers, of a key each, log to one stream in any order. The proxy applies in the order of
//! positions, and, since too much waits, also what is younger than an active transaction. A third
//! thread takes a snapshot of the data component at a cut.

use super::scripts::{ITEM, ScriptStep, Scripts};
use crate::case::{Case, Rules};
use crate::check::{Outcome, explore};

const WRITERS: usize = 3;
const TIMESTAMPS: [u8; WRITERS] = [5, 7, 9];
/// The timestamp drawn next, once all writers have begun.
const NEXT: u8 = 11;
const EXACT: &str = "a snapshot has the transactions below its cut, and no others";

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Cutting {
    begun: [bool; WRITERS],
    /// The place of a committed writer's record in the stream, from 1 on.
    logged: [u8; WRITERS],
    applied: [bool; WRITERS],
    /// 0: none yet, or no longer.
    held_at: u8,
    cut: u8,
    snapshot: Option<[bool; WRITERS]>,
}

impl Cutting {
    /// The lowest timestamp of an active writer, or the next timestamp.
    fn oldest_active(&self) -> u8 {
        let is_active = |at: &usize| self.begun[*at] && self.logged[*at] == 0;
        let next = TIMESTAMPS.iter().zip(self.begun).find(|(_, begun)| !begun).map(|(ts, _)| *ts);
        (0..WRITERS).find(is_active).map_or(next.unwrap_or(NEXT), |at| TIMESTAMPS[at])
    }
}

fn begin(s: Cutting, at: usize) -> Option<Cutting> {
    // Timestamps are drawn in their order.
    let mut next = s;
    next.begun[at] = true;
    s.begun[..at].iter().all(|begun| *begun).then_some(next)
}

fn commit(s: Cutting, at: usize) -> Option<Cutting> {
    let mut next = s;
    next.logged[at] = 1 + s.logged.iter().max()?;
    Some(next)
}

/// The proxy applies the next record of the stream.
fn apply(s: Cutting) -> Option<Cutting> {
    let waits = |at: &usize| s.logged[*at] > 0 && !s.applied[*at];
    let at = (0..WRITERS).filter(waits).min_by_key(|at| s.logged[*at])?;
    let mut next = s;
    next.applied[at] = true;
    (s.held_at == 0 || TIMESTAMPS[at] < s.held_at).then_some(next)
}

/// Takes the oldest active timestamp for the cut, with nothing applied at or above.
fn choose(s: Cutting) -> Option<Cutting> {
    let cut = s.oldest_active();
    let is_applied_above = (0..WRITERS).any(|at| s.applied[at] && TIMESTAMPS[at] >= cut);
    (!is_applied_above).then_some(Cutting { cut, held_at: cut, ..s })
}

/// Applies the records below the cut.
fn apply_below(s: Cutting) -> Option<Cutting> {
    let is_below = |at: usize| s.logged[at] > 0 && TIMESTAMPS[at] < s.cut;
    let applied = std::array::from_fn(|at| s.applied[at] || is_below(at));
    Some(Cutting { applied, ..s })
}

fn take(s: Cutting) -> Option<Cutting> {
    Some(Cutting { snapshot: Some(s.applied), held_at: 0, ..s })
}

type Act = fn(Cutting) -> Option<Cutting>;

fn cutting(choose: Act, apply_below: Act) -> Outcome {
    let step = |does, act: Act| ScriptStep { does, act };
    let apply = || step("applies the next record of the stream", apply);
    explore(Scripts {
        initial: Cutting::default(),
        scripts: vec![
            ("W5", vec![step("begins", |s| begin(s, 0)), step("commits", |s| commit(s, 0))]),
            ("W7", vec![step("begins", |s| begin(s, 1)), step("commits", |s| commit(s, 1))]),
            ("W9", vec![step("begins", |s| begin(s, 2)), step("commits", |s| commit(s, 2))]),
            ("the proxy", vec![apply(), apply(), apply()]),
            (
                "the reader",
                vec![
                    step("takes the oldest active timestamp for the cut", choose),
                    step("applies the records below", apply_below),
                    step("takes the snapshot", take),
                ],
            ),
        ],
        promise: (EXACT, |s| {
            let is_right =
                |at: usize, is_in: bool| is_in == (s.logged[at] > 0 && TIMESTAMPS[at] < s.cut);
            // A writer below the cut has ended before.
            s.snapshot.is_none_or(|found| (0..WRITERS).all(|at| is_right(at, found[at])))
        }),
        verdict: "the snapshot lacks a transaction below the cut, or has one above",
        reaches: ("a record below the cut is passed over another one above", |s| {
            s.snapshot == Some([true, false, false]) && s.logged == [2, 0, 1]
        }),
    })
}

pub(super) fn cases() -> Vec<Case> {
    let mistake = |rule, explore| Case::breaks((ITEM, Rules::Mutation), rule, EXACT, explore);
    vec![
        mistake("a cut may be below what is applied", || {
            let choose = |s: Cutting| {
                let cut = s.oldest_active();
                Some(Cutting { cut, held_at: cut, ..s })
            };
            cutting(choose, apply_below)
        }),
        mistake("nothing holds the proxy at the cut", || {
            cutting(|s| choose(s).map(|s| Cutting { held_at: 0, ..s }), apply_below)
        }),
        mistake("a snapshot is taken while records below the cut wait", || cutting(choose, Some)),
        Case::holds(ITEM, "the proxy is held, and all below the cut is applied", 300, || {
            cutting(choose, apply_below)
        }),
    ]
}
