//! When versions and entries may leave memory: item "Deuteronomy" of docs/protocols.
//!
//! Four small models. A version leaves the table when the data component holds the version (D6). An
//! old version is dropped when no transaction needs it (D9). A fetch that ends late does not come
//! back as the newest version (D11). An entry of the transaction table is used again when nothing
//! is lost with the entry (D12, on which the paper is silent).

use super::scripts::ITEM;
use super::scripts::{Script, ScriptStep, Scripts};
use crate::case::{Case, Rules};
use crate::check::{Outcome, explore};

fn step<S>(does: &'static str, act: fn(S) -> Option<S>) -> ScriptStep<S> {
    ScriptStep { does, act }
}

/// A committed version in the table, and an older one in the data component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Held {
    in_table: bool,
    /// Noted: the data component holds the version.
    noted: bool,
    applied: bool,
    missed: bool,
    read_new: Option<bool>,
}

const FOUND: &str = "a committed version is in the table or in the data component";

fn held(notes_first: bool) -> Outcome {
    let note = step("notes that the version is applied", |s| Some(Held { noted: true, ..s }));
    let apply = step("applies the version", |s| Some(Held { applied: true, ..s }));
    let proxy = if notes_first { vec![note, apply] } else { vec![apply, note] };
    let drop = |s: Held| s.noted.then_some(Held { in_table: false, ..s });
    let look = |s: Held| match s.in_table {
        true => Some(Held { read_new: Some(true), ..s }),
        false => Some(Held { missed: true, ..s }),
    };
    let fetch = |s: Held| s.missed.then_some(Held { read_new: Some(s.applied), ..s });
    explore(Scripts {
        initial: Held {
            in_table: true,
            noted: false,
            applied: false,
            missed: false,
            read_new: None,
        },
        scripts: vec![
            ("the proxy", proxy),
            ("the evictor", vec![step("drops the version", drop)]),
            (
                "R",
                vec![step("looks into the table", look), step("reads the data component", fetch)],
            ),
        ],
        promise: (FOUND, |s| s.read_new != Some(false)),
        verdict: "R has read the version before",
        reaches: ("R reads the data component", |s| s.missed && s.read_new.is_some()),
    })
}

/// A clock, and one transaction that needs the version before the written version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Active {
    clock: u8,
    announced: u8,
    ts: u8,
    /// The timestamp of the newer version; 0 before it is written.
    newer: u8,
    /// The clock as loaded by the collector, and the oldest active timestamp in the collector's
    /// view.
    upper: u8,
    oldest: u8,
    has_older: bool,
    is_lost: bool,
    has_read: bool,
}

const NONE: u8 = u8::MAX;
const NEEDED: &str = "no version is dropped that an active transaction may read";

fn active(draws_first: bool, clock_last: bool) -> Outcome {
    let announce = step("announces a bound", |s: Active| Some(Active { announced: s.clock, ..s }));
    let draw = step("draws its timestamp", |s: Active| {
        Some(Active { ts: s.clock, clock: s.clock + 1, ..s })
    });
    let publish =
        step("announces its timestamp", |s: Active| Some(Active { announced: s.ts, ..s }));
    let read = step("reads", |s: Active| {
        let needs_older = s.newer == 0 || s.ts < s.newer;
        Some(Active { is_lost: needs_older && !s.has_older, has_read: true, ..s })
    });
    let write = step("draws, writes and commits", |s: Active| {
        Some(Active { newer: s.clock, clock: s.clock + 1, ..s })
    });
    let begin = match draws_first {
        true => vec![draw, publish, read],
        false => vec![announce, draw, publish, read],
    };
    let load = step("loads the clock", |s: Active| {
        Some(Active { upper: s.clock, oldest: s.oldest.min(s.clock), ..s })
    });
    let look = step("looks at the announcements", |s: Active| {
        Some(Active { oldest: s.oldest.min(s.announced), ..s })
    });
    let drop = step("drops the older version", |s: Active| {
        (s.newer > 0 && s.newer < s.oldest).then_some(Active { has_older: false, ..s })
    });
    let collect = if clock_last { vec![look, load, drop] } else { vec![load, look, drop] };
    explore(Scripts {
        initial: Active {
            clock: 5,
            announced: NONE,
            ts: 0,
            newer: 0,
            upper: NONE,
            oldest: NONE,
            has_older: true,
            is_lost: false,
            has_read: false,
        },
        scripts: vec![("T", begin), ("W", vec![write]), ("the collector", collect)],
        promise: (NEEDED, |s| !s.is_lost),
        verdict: "T finds the version dropped that it has to read",
        reaches: ("a version is dropped", |s| !s.has_older && s.has_read),
    })
}

/// A fetch of T10, which ends, and version 20, which comes and goes. Version 3 is there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Fetching {
    /// The versions in the table.
    old_in_table: bool,
    new_in_table: bool,
    in_data: u8,
    drops: u8,
    number: u8,
    fetched: u8,
    t10_ended: bool,
    is_written: bool,
    is_dropped: bool,
    read: u8,
}

const NOT_BACK: &str = "a late fetch does not bring an old version back as the newest";

fn fetching(checks_number: bool) -> Outcome {
    let insert: fn(Fetching) -> Option<Fetching> = match checks_number {
        true => |s| Some(Fetching { old_in_table: s.drops == s.number && s.fetched == 3, ..s }),
        false => |s| Some(Fetching { old_in_table: s.fetched == 3, ..s }),
    };
    let t10 = vec![
        step("finds the key missing", |s: Fetching| Some(Fetching { number: s.drops, ..s })),
        step("reads the data component", |s: Fetching| Some(Fetching { fetched: s.in_data, ..s })),
        step("ends", |s: Fetching| Some(Fetching { t10_ended: true, ..s })),
        step("enters what it has fetched", insert),
    ];
    let w20 = vec![
        step("writes and commits", |s: Fetching| {
            Some(Fetching { new_in_table: true, is_written: true, ..s })
        }),
        // The proxy holds the version back while T10 is active.
        step("is applied", |s: Fetching| s.t10_ended.then_some(Fetching { in_data: 20, ..s })),
        step("is dropped with all versions", |s: Fetching| {
            let (old_in_table, new_in_table, drops) = (false, false, s.drops + 1);
            Some(Fetching { old_in_table, new_in_table, drops, is_dropped: true, ..s })
        }),
    ];
    let read = |s: Fetching| {
        let read = match (s.new_in_table, s.old_in_table) {
            (true, _) => 20,
            (_, true) => 3,
            _ => s.in_data,
        };
        s.is_written.then_some(Fetching { read, ..s })
    };
    let (old_in_table, new_in_table) = (false, false);
    explore(Scripts {
        initial: Fetching {
            old_in_table,
            new_in_table,
            in_data: 3,
            drops: 0,
            number: 0,
            fetched: 0,
            t10_ended: false,
            is_written: false,
            is_dropped: false,
            read: 0,
        },
        scripts: vec![("T10", t10), ("W20", w20), ("T30", vec![step("reads", read)])],
        promise: (NOT_BACK, |s| s.read != 3),
        verdict: "T30 has read version 3, and version 20 is committed",
        reaches: ("T30 reads after version 20 was dropped", |s| s.is_dropped && s.read == 20),
    })
}

/// The entry of T5, which has left a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum EntryOf {
    Active,
    Committed,
    Free,
    /// Another transaction.
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Entry {
    entry: EntryOf,
    /// T5's version is in the version list.
    in_list: bool,
    is_latched: bool,
    found: bool,
    /// R takes T5 for committed.
    taken: bool,
    /// T5's record is durable, and R knows that the record has to be.
    is_durable: bool,
    waits_for_it: bool,
    answered: bool,
    power_failed: bool,
}

const ENTRY: Entry = Entry {
    entry: EntryOf::Active,
    in_list: true,
    is_latched: false,
    found: false,
    taken: false,
    is_durable: false,
    waits_for_it: false,
    answered: false,
    power_failed: false,
};

const ABORTED: &str = "no version of an aborted transaction is taken for committed";
const LOST: &str = "what an answered reader has read is durable";

/// R looks at the entry of the version found.
fn look(s: Entry) -> Option<Entry> {
    let taken = Entry { taken: true, is_latched: false, ..s };
    match s.entry {
        _ if !s.found => None,
        // R waits, without the latch, and looks again.
        EntryOf::Active => None,
        EntryOf::Committed => Some(Entry { waits_for_it: true, ..taken }),
        EntryOf::Free | EntryOf::Other => Some(taken),
    }
}

fn aborting(frees_first: bool, without_latch: bool) -> Outcome {
    let take_out = step("takes its version out", |s: Entry| {
        (!s.is_latched).then_some(Entry { in_list: false, ..s })
    });
    let free = step("frees its entry", |s: Entry| Some(Entry { entry: EntryOf::Free, ..s }));
    let t5 = if frees_first { vec![free, take_out] } else { vec![take_out, free] };
    let claim = step("claims the entry", |s: Entry| {
        (s.entry == EntryOf::Free).then_some(Entry { entry: EntryOf::Other, ..s })
    });
    // Under the latch R finds the version and looks at the entry; if the entry is active, R has
    // found nothing yet.
    let both = step("finds the version and looks at its entry", |s: Entry| {
        look(Entry { found: s.in_list, ..s })
    });
    let find =
        step("finds the version", |s: Entry| s.in_list.then_some(Entry { found: true, ..s }));
    let reader = match without_latch {
        true => vec![find, step("looks at its entry", look)],
        false => vec![both],
    };
    let scripts: Vec<Script<Entry>> = vec![("T5", t5), ("T69", vec![claim]), ("R", reader)];
    explore(Scripts {
        initial: ENTRY,
        scripts,
        promise: (ABORTED, |s| !s.taken),
        verdict: "R has read a version of T5, which was aborted",
        reaches: ("the entry is used again", |s| s.entry == EntryOf::Other),
    })
}

fn reused(claims_undurable: bool) -> Outcome {
    let claim: fn(Entry) -> Option<Entry> = match claims_undurable {
        true => |s| (s.entry == EntryOf::Committed).then_some(Entry { entry: EntryOf::Other, ..s }),
        false => |s| {
            let is_over = s.entry == EntryOf::Committed && s.is_durable;
            is_over.then_some(Entry { entry: EntryOf::Other, ..s })
        },
    };
    let answer = |s: Entry| {
        let may_answer = s.taken && !s.power_failed && (s.is_durable || !s.waits_for_it);
        may_answer.then_some(Entry { answered: true, ..s })
    };
    let flush = |s: Entry| {
        let may_flush = s.entry != EntryOf::Active && !s.power_failed;
        may_flush.then_some(Entry { is_durable: true, ..s })
    };
    let commit = |s: Entry| Some(Entry { entry: EntryOf::Committed, ..s });
    let read = |s: Entry| look(Entry { found: true, ..s });
    explore(Scripts {
        initial: ENTRY,
        scripts: vec![
            ("T5", vec![step("commits", commit)]),
            ("T69", vec![step("claims the entry", claim)]),
            ("R", vec![step("reads the version", read), step("is answered", answer)]),
            ("the stream", vec![step("becomes durable", flush)]),
            ("the power", vec![step("fails", |s: Entry| Some(Entry { power_failed: true, ..s }))]),
        ],
        promise: (LOST, |s| !(s.power_failed && s.answered) || s.is_durable),
        verdict: "R is answered, and T5 is lost",
        reaches: ("R is answered with the entry used again", |s| {
            s.answered && !s.waits_for_it && s.entry == EntryOf::Other
        }),
    })
}

pub(super) fn cases() -> Vec<Case> {
    let case =
        |rules| move |rule, promise, explore| Case::breaks((ITEM, rules), rule, promise, explore);
    let (printed, mistake) = (case(Rules::Printed), case(Rules::Mutation));
    let holds = |rule, states, explore| Case::holds(ITEM, rule, states, explore);
    vec![
        printed("what was seen to be committed counts as applied", FOUND, || held(true)),
        holds("a version leaves the table once the data component holds it", 10, || held(false)),
        printed("a timestamp is drawn, then the transaction is active", NEEDED, || {
            active(true, false)
        }),
        mistake("the collector loads the clock last", NEEDED, || active(false, true)),
        holds("a bound is announced, then a timestamp drawn", 40, || active(false, false)),
        printed("each version that was fetched enters the table", NOT_BACK, || fetching(false)),
        holds("what was fetched enters if nothing was dropped", 20, || fetching(true)),
        mistake("an entry is free before the version is taken out", ABORTED, || {
            aborting(true, false)
        }),
        mistake("a reader looks at an entry without the latch of the version", ABORTED, || {
            aborting(false, true)
        }),
        holds("the version is taken out, then the entry is free", 4, || aborting(false, false)),
        mistake("an entry is used again before its transaction is durable", LOST, || reused(true)),
        holds("an entry is used again when its transaction is durable", 15, || reused(false)),
    ]
}
