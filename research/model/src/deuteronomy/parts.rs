//! Transactions in parts, and the point where redo begins: item "Deuteronomy" of docs/protocols.
//!
//! One stream. T logs a part, then its record, and hands the record to the proxy. A checkpoint
//! makes the content of the data component stable, with a resume point. After a power cut redo
//! begins at the resume point. Promise: T is redone with its part, unless the data component holds
//! T. Left out: the times of durability; here everything logged is durable.

use super::scripts::{ITEM, ScriptStep, Scripts};
use crate::case::{Case, Rules};
use crate::check::{Outcome, explore};

/// A position above all: no announcement.
const NONE: u8 = u8::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Stream {
    end: u8,
    /// T's announcement.
    holding: u8,
    /// The start of T's part; 0 before the part is logged.
    part: u8,
    has_record: bool,
    /// In the inbox, and not yet taken out.
    in_inbox: bool,
    /// Taken out of the inbox, and not applied.
    is_waiting: bool,
    is_applied: bool,
    /// The bound loaded by the checkpoint.
    bound: u8,
    resume: u8,
    is_stable: bool,
    power_failed: bool,
}

/// The rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PartRule {
    Built,
    /// A transaction announces nothing before its first part.
    HoldsNothing,
    /// A transaction withdraws the announcement before it has handed its record over.
    WithdrawsFirst,
    /// The announcements are looked at after the inbox.
    InboxFirst,
    /// The resume point is below waiting records, not below their parts.
    BelowRecords,
}

use PartRule::{BelowRecords, Built, HoldsNothing, InboxFirst, WithdrawsFirst};

const WHOLE: &str = "redo finds all parts of each transaction that it has to apply";

fn step(does: &'static str, act: fn(Stream) -> Option<Stream>) -> ScriptStep<Stream> {
    ScriptStep { does, act }
}

fn alive(s: Stream, next: Stream) -> Option<Stream> {
    (!s.power_failed).then_some(next)
}

fn transaction(rule: PartRule) -> Vec<ScriptStep<Stream>> {
    let announce = step("announces a bound", |s| alive(s, Stream { holding: s.end, ..s }));
    let part = step("logs a part", |s| alive(s, Stream { part: s.end, end: s.end + 1, ..s }));
    let record =
        step("logs its record", |s| alive(s, Stream { has_record: true, end: s.end + 1, ..s }));
    let hand_over = step("hands its record over", |s| alive(s, Stream { in_inbox: true, ..s }));
    let withdraw = step("withdraws its bound", |s| alive(s, Stream { holding: NONE, ..s }));
    match rule {
        HoldsNothing => vec![part, record, hand_over],
        WithdrawsFirst => vec![announce, part, record, withdraw, hand_over],
        _ => vec![announce, part, record, hand_over, withdraw],
    }
}

fn checkpoint(rule: PartRule) -> Vec<ScriptStep<Stream>> {
    let load = step("loads the end of the stream", |s| alive(s, Stream { bound: s.end, ..s }));
    let look = step("looks at the announcements", |s| {
        alive(s, Stream { bound: s.bound.min(s.holding), ..s })
    });
    let take = step("takes what was handed over", |s| {
        let is_waiting = s.is_waiting || s.in_inbox;
        alive(s, Stream { is_waiting, in_inbox: false, ..s })
    });
    let apply = step("applies what waits", |s| {
        let (is_waiting, is_applied) = (false, s.is_applied || s.is_waiting);
        alive(s, Stream { is_waiting, is_applied, ..s })
    });
    let built: fn(Stream) -> Option<Stream> = |s| {
        let resume = if s.is_waiting { s.bound.min(s.part) } else { s.bound };
        alive(s, Stream { resume, is_stable: s.is_applied, ..s })
    };
    let below_records: fn(Stream) -> Option<Stream> = |s| {
        let resume = if s.is_waiting { s.bound.min(s.part + 1) } else { s.bound };
        alive(s, Stream { resume, is_stable: s.is_applied, ..s })
    };
    let stable = if rule == BelowRecords { below_records } else { built };
    let stable = step("makes the data and the resume point stable", stable);
    match rule {
        InboxFirst => vec![load, take, look, stable, apply],
        _ => vec![load, look, take, stable, apply],
    }
}

fn parts(rule: PartRule) -> Outcome {
    // Two checkpoints: the second may find applied what the first has left waiting.
    let twice = checkpoint(rule).into_iter().chain(checkpoint(rule)).collect();
    let other = step("logs a record", |s| alive(s, Stream { end: s.end + 1, ..s }));
    explore(Scripts {
        initial: Stream {
            end: 1,
            holding: NONE,
            part: 0,
            has_record: false,
            in_inbox: false,
            is_waiting: false,
            is_applied: false,
            bound: 0,
            resume: 0,
            is_stable: false,
            power_failed: false,
        },
        scripts: vec![
            ("T", transaction(rule)),
            ("U", vec![other]),
            ("a checkpoint", twice),
            ("the power", vec![step("fails", |s| alive(s, Stream { power_failed: true, ..s }))]),
        ],
        promise: (WHOLE, |s| {
            let is_redone = s.power_failed && s.has_record && !s.is_stable;
            !is_redone || s.resume <= s.part
        }),
        verdict: "T's record is redone without its part",
        reaches: ("the resume point is behind T", |s| s.is_stable && s.resume > s.part + 1),
    })
}

pub(super) fn cases() -> Vec<Case> {
    let mistake = |rule, explore| Case::breaks((ITEM, Rules::Mutation), rule, WHOLE, explore);
    vec![
        mistake("no bound is announced before the first part", || parts(HoldsNothing)),
        mistake("the bound of a part is withdrawn before the record is handed over", || {
            parts(WithdrawsFirst)
        }),
        mistake("the bounds of parts are looked at after the inbox", || parts(InboxFirst)),
        mistake("the resume point is below records that wait, not below their parts", || {
            parts(BelowRecords)
        }),
        Case::holds(ITEM, "the resume point is below each part that is not applied", 100, || {
            parts(Built)
        }),
    ]
}
