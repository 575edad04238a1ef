//! Poplar, with transaction numbers instead of vectors: an item of docs/protocols.
//!
//! A transaction's number (SSN) is above the numbers of the rows touched and of the transaction's
//! stream. The transaction is acknowledged once every stream is durable up to the number or, if the
//! transaction has read nothing, once its own record is durable. Recovery keeps the records up to
//! the lowest end of all streams, and beyond it the records of transactions that have read nothing;
//! the highest number of a row wins.

use crate::case::{Case, Rules};
use crate::check::{Outcome, Protocol, explore};
use crate::vector::names;
use stateright::{Model, Property};

const STREAMS: usize = 2;

/// The action of an idle stream for waiting transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Idle {
    /// Nothing.
    Nothing,
    /// The stream takes the highest number as its own, in memory.
    InMemory,
    /// The stream writes a record that contains only the stream's number.
    Durably,
}

/// The model.
#[derive(Debug, Clone)]
pub struct Poplar {
    /// Number of transactions.
    pub txns: usize,
    /// The action of an idle stream.
    pub idle: Idle,
    /// Whether a one-column write logs the whole row, and still counts as having read nothing.
    pub whole_rows: bool,
    /// Whether a deleted row's number is deleted with the row.
    pub forgets: bool,
    /// Whether an operation that finds no row depends on nothing once the tombstone is removed.
    pub forgets_removed: bool,
}

/// The operation of a transaction on the only row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// Overwrites or inserts the row.
    Write,
    /// Overwrites one column of the row without reading any.
    Column,
    /// Reads and writes the row.
    Update,
    /// Deletes the row.
    Delete,
    /// Reads the row, or its absence, and leaves no record.
    Read,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Txn {
    op: Op,
    stream: u8,
    /// The position among the entries of the transaction's stream, from 1.
    place: u8,
    number: u8,
    /// The transaction whose value was read, or is copied into the record.
    source: Option<u8>,
    answered: bool,
}

impl Txn {
    fn write_only(&self) -> bool {
        matches!(self.op, Op::Write | Op::Column)
    }
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    txns: Vec<Txn>,
    /// The row's number, its last writer, and whether it exists.
    number: u8,
    writer: Option<u8>,
    present: bool,
    /// Whether the tombstone of the deleted row has been removed. The number is kept elsewhere.
    removed: bool,
    /// Numbers of the entries of each stream, and how many are durable.
    streams: [Vec<u8>; STREAMS],
    durable: [u8; STREAMS],
    /// Numbers that idle streams have taken in memory.
    marks: [u8; STREAMS],
}

/// A step of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// A transaction runs.
    Run(Op, u8),
    /// All entries of a stream become durable.
    Flush(usize),
    /// An idle stream takes the highest number.
    Heartbeat(usize),
    /// The tombstone of the deleted row is removed.
    Remove,
}

const ANSWERED: &str = "an acknowledged transaction is recovered";
const CLOSED: &str = "a recovered transaction has read only recovered writes";
const LAST: &str = "the last recovered writer of a row wins";
const ENDS: &str = "when everything is durable, every transaction is acknowledged";

impl Poplar {
    /// The corrected rules.
    pub fn mended(txns: usize) -> Poplar {
        let idle = Idle::Durably;
        Poplar { txns, idle, whole_rows: false, forgets: false, forgets_removed: false }
    }

    fn last(entries: &[u8], durable: u8) -> u8 {
        durable.checked_sub(1).map_or(0, |last| entries[last as usize])
    }

    /// The lowest number up to which all streams are durable, or state so in memory if `memory` is
    /// set.
    fn common(state: &State, memory: bool) -> u8 {
        let end = |lane: usize| {
            let last = Self::last(&state.streams[lane], state.durable[lane]);
            if memory { last.max(state.marks[lane]) } else { last }
        };
        (0..STREAMS).map(end).min().unwrap_or(0)
    }

    fn answer(state: &mut State) {
        let common = Self::common(state, true);
        let durable = state.durable;
        for txn in &mut state.txns {
            txn.answered |= if txn.write_only() {
                txn.place <= durable[txn.stream as usize]
            } else {
                txn.number <= common
            };
        }
    }

    /// Whether a power cut now would leave the transaction in the recovered state.
    fn live(state: &State, number: u8) -> bool {
        let txn = &state.txns[number as usize];
        let own = txn.op == Op::Read || txn.place <= state.durable[txn.stream as usize];
        own && (txn.write_only() || txn.number <= Self::common(state, false))
    }

    fn numbers(state: &State) -> std::ops::Range<u8> {
        0..state.txns.len() as u8
    }

    fn lost(state: &State) -> Option<u8> {
        Self::numbers(state).find(|n| {
            let txn = &state.txns[*n as usize];
            txn.answered && txn.op != Op::Read && !Self::live(state, *n)
        })
    }

    fn deceived(state: &State) -> Option<(u8, u8)> {
        let mut readers = Self::numbers(state).filter_map(|n| {
            let txn = &state.txns[n as usize];
            let counts = if txn.op == Op::Read { txn.answered } else { Self::live(state, n) };
            txn.source.filter(|_| counts).map(|source| (n, source))
        });
        readers.find(|(_, source)| !Self::live(state, *source))
    }

    /// The recovered writer of the row, and the right writer, if the two differ.
    fn wrong_writer(state: &State) -> Option<(u8, u8)> {
        let live = |n: &u8| state.txns[*n as usize].op != Op::Read && Self::live(state, *n);
        let last = Self::numbers(state).filter(live).max()?;
        let wins =
            Self::numbers(state).filter(live).max_by_key(|n| state.txns[*n as usize].number)?;
        (wins != last).then_some((wins, last))
    }

    fn unanswered(&self, state: &State) -> Option<u8> {
        let all =
            (0..STREAMS).all(|lane| state.durable[lane] as usize == state.streams[lane].len());
        let beats = (0..STREAMS).any(|lane| self.may_beat(state, lane));
        let waiting = Self::numbers(state).find(|n| !state.txns[*n as usize].answered);
        if all && !beats { waiting } else { None }
    }

    fn highest(state: &State) -> u8 {
        state.streams.iter().flatten().copied().max().unwrap_or(0)
    }

    fn may_beat(&self, state: &State, lane: usize) -> bool {
        let own = state.streams[lane].last().copied().unwrap_or(0).max(state.marks[lane]);
        self.idle != Idle::Nothing
            && state.durable[lane] as usize == state.streams[lane].len()
            && own < Self::highest(state)
    }

    fn run(&self, state: &mut State, op: Op, stream: u8) {
        let lane = stream as usize;
        let this = state.txns.len() as u8;
        let reads = matches!(op, Op::Update | Op::Read) || op == Op::Column && self.whole_rows;
        let source = if reads { state.writer } else { None };
        let (mut number, mut place) = (state.number, 0);
        if op == Op::Read && state.removed && self.forgets_removed {
            number = 0;
        }
        if op != Op::Read {
            let own = state.streams[lane].last().copied().unwrap_or(0).max(state.marks[lane]);
            number = number.max(own) + 1;
            state.streams[lane].push(number);
            place = state.streams[lane].len() as u8;
            state.number = if op == Op::Delete && self.forgets { 0 } else { number };
            state.writer = Some(this);
            state.present = op != Op::Delete;
            state.removed = false;
        }
        state.txns.push(Txn { op, stream, place, number, source, answered: false });
        Self::answer(state);
    }
}

impl Model for Poplar {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            txns: Vec::new(),
            number: 0,
            writer: None,
            present: true,
            removed: false,
            streams: Default::default(),
            durable: [0; STREAMS],
            marks: [0; STREAMS],
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.txns.len() < self.txns {
            let ops: &[Op] = match state.present {
                true => &[Op::Write, Op::Column, Op::Update, Op::Delete],
                false => &[Op::Write],
            };
            let streams = if state.txns.is_empty() { 1 } else { STREAMS as u8 };
            for stream in (0..streams).rev() {
                actions.extend(ops.iter().map(|op| Action::Run(*op, stream)));
            }
            // Without the row's number, an operation that finds no row shows nothing about later
            // writers.
            if state.present || !self.forgets {
                actions.push(Action::Run(Op::Read, 0));
            }
        }
        if !state.present && !state.removed {
            actions.push(Action::Remove);
        }
        for lane in 0..STREAMS {
            if (state.durable[lane] as usize) < state.streams[lane].len() {
                actions.push(Action::Flush(lane));
            }
            if self.may_beat(state, lane) {
                actions.push(Action::Heartbeat(lane));
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        match action {
            Action::Run(op, stream) => self.run(&mut state, op, stream),
            Action::Flush(lane) => {
                state.durable[lane] = state.streams[lane].len() as u8;
                Self::answer(&mut state);
            }
            Action::Remove => state.removed = true,
            Action::Heartbeat(lane) => {
                let highest = Self::highest(&state);
                match self.idle {
                    Idle::Durably => state.streams[lane].push(highest),
                    Idle::InMemory | Idle::Nothing => state.marks[lane] = highest,
                }
                Self::answer(&mut state);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ANSWERED, |_, s: &State| Self::lost(s).is_none()),
            Property::always(CLOSED, |_, s: &State| Self::deceived(s).is_none()),
            Property::always(LAST, |_, s: &State| Self::wrong_writer(s).is_none()),
            Property::always(ENDS, |m: &Poplar, s| m.unanswered(s).is_none()),
            Property::sometimes("an update is answered", |_, s: &State| {
                s.txns
                    .iter()
                    .any(|txn| txn.op == Op::Update && txn.answered && txn.source.is_some())
            }),
            Property::sometimes("a write is answered beyond the common end", |_, s: &State| {
                s.txns
                    .iter()
                    .any(|t| t.answered && t.write_only() && t.number > Self::common(s, true))
            }),
        ]
    }
}

impl Protocol for Poplar {
    fn tell(&self, before: &State, action: &Action, after: &State) -> String {
        let mut text = match action {
            Action::Run(op, stream) => {
                let txn = &after.txns[after.txns.len() - 1];
                let what = match op {
                    Op::Write if !before.present => "inserts a",
                    Op::Write => "writes a",
                    Op::Column => "writes a column of a",
                    Op::Update => "reads and writes a",
                    Op::Delete => "deletes a",
                    Op::Read if !before.present => "finds no a",
                    Op::Read => "reads a",
                };
                let place = match op {
                    Op::Read => String::new(),
                    _ => format!(", in stream {}", stream + 1),
                };
                format!("T{} {what}: number {}{place}", after.txns.len(), txn.number)
            }
            Action::Flush(lane) => format!("stream {} is durable", lane + 1),
            Action::Remove => "the tombstone of a is removed".to_string(),
            Action::Heartbeat(lane) if self.idle == Idle::InMemory => {
                format!("stream {}, idle, takes number {}", lane + 1, after.marks[*lane])
            }
            Action::Heartbeat(lane) => format!("stream {}, idle, writes a heartbeat", lane + 1),
        };
        let was = |n: &u8| before.txns.get(*n as usize).is_some_and(|txn| txn.answered);
        let newly: Vec<u8> =
            Self::numbers(after).filter(|n| after.txns[*n as usize].answered && !was(n)).collect();
        if !newly.is_empty() {
            text += &format!("; acknowledged: {}", names("T", newly));
        }
        text
    }

    fn verdict(&self, state: &State) -> String {
        if let Some(number) = Self::lost(state) {
            return format!("if power fails now, T{} was acknowledged and is lost", number + 1);
        }
        if let Some((number, source)) = Self::deceived(state) {
            let (number, source) = (number + 1, source + 1);
            return format!(
                "if power fails now, T{number} holds what T{source} wrote, which is lost"
            );
        }
        if let Some((wins, last)) = Self::wrong_writer(state) {
            let (wins, last) = (wins + 1, last + 1);
            return format!("if power fails now, T{wins}'s value wins, though T{last} is later");
        }
        match self.unanswered(state) {
            Some(waiting) => format!("T{} waits as long as a stream is idle", waiting + 1),
            None => "nothing is wrong".into(),
        }
    }
}

/// The cases of this model.
pub fn cases() -> Vec<Case> {
    use Rules::{Mended, Mutation, Printed};
    fn run(model: Poplar) -> Outcome {
        explore(model)
    }
    vec![
        Case::breaks(("Poplar", Printed), "an idle stream does nothing", ENDS, || {
            run(Poplar { idle: Idle::Nothing, ..Poplar::mended(3) })
        }),
        Case::breaks(
            ("Poplar", Mutation),
            "an idle stream raises its number in memory",
            ANSWERED,
            || run(Poplar { idle: Idle::InMemory, ..Poplar::mended(3) }),
        ),
        Case::breaks(
            ("Poplar", Mutation),
            "a one-column write logs the whole row, and counts as blind",
            CLOSED,
            || run(Poplar { whole_rows: true, ..Poplar::mended(3) }),
        ),
        Case::breaks(("Poplar", Mutation), "a deleted row's number is dropped", LAST, || {
            run(Poplar { forgets: true, ..Poplar::mended(4) })
        }),
        Case::breaks(
            ("Poplar", Mutation),
            "what finds no row depends on nothing once the tombstone is removed",
            CLOSED,
            || run(Poplar { forgets_removed: true, ..Poplar::mended(3) }),
        ),
        Case::mended(("Poplar", Mended), "durable heartbeats, columns, tombstones", 10_000, || {
            run(Poplar::mended(4))
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::cases;
    use crate::case::verify_item;

    #[test]
    fn an_idle_stream_says_so_durably() {
        verify_item(cases(), "Poplar");
    }
}
