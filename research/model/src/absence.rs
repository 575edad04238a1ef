//! Deletions, misses and scans: item E8 of docs/protocols.
//!
//! One key is inserted and deleted; transactions run serially. The stamps of a row are lost with
//! the row, or are kept in its place. Records are judged as in `judging`; the property that replay
//! relies on is the property of `occ`.

use crate::case::{Case, Rules};
use crate::check::{Outcome, Protocol, explore};
use crate::vector::{BOTTOM, Vector, covers, join, names, show};
use stateright::{Model, Property};

/// Where the stamps of an absent key are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Absence {
    /// Nowhere: an inserted row begins with empty stamps (Taurus, section 3.4).
    Nothing,
    /// The tombstone, or gap, keeps write stamps, but misses and scans leave no read stamp.
    Writers,
    /// The tombstone, or gap, keeps write and read stamps.
    Everything,
}

/// The transactions whose conflicts must be ordered at replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Order {
    /// None: only the answers of readers are checked.
    Nobody,
    /// Insertions and deletions, as needed for data records.
    Writers,
    /// All transactions with a record, as needed for commands.
    Everyone,
}

/// The operation of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// Inserts the key.
    Insert,
    /// Deletes the key.
    Delete,
    /// Looks the key up, and writes nothing.
    Look,
    /// A command that counts the rows of a range that contains the key, and writes the count to
    /// another row.
    Count,
}

impl Op {
    fn writes_key(self) -> bool {
        matches!(self, Op::Insert | Op::Delete)
    }

    fn has_record(self) -> bool {
        self != Op::Look
    }
}

/// The model.
#[derive(Debug, Clone)]
pub struct Absent {
    /// Number of transactions.
    pub txns: usize,
    /// Where the stamps of an absent key are kept.
    pub absence: Absence,
    /// The transactions whose conflicts must be ordered at replay.
    pub order: Order,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Txn {
    op: Op,
    stream: u8,
    end: u8,
    logged: Vector,
    vector: Vector,
    /// The last earlier insertion or deletion, whose result the transaction observed.
    saw: Option<u8>,
    answered: bool,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    txns: Vec<Txn>,
    present: bool,
    writer: Option<u8>,
    write_lv: Vector,
    read_lv: Vector,
    appended: Vector,
    durable: Vector,
    crashed: bool,
}

/// A step of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// A transaction runs.
    Run(Op, u8),
    /// A stream is durable up to a position.
    Flush(usize, u8),
    /// Power fails; the streams end at their durable positions.
    Crash,
}

const SEEN: &str = "what an acknowledged reader has read is recovered";
const ORDERED: &str = "a vector has the position of each conflicting predecessor";
const STREAMS: usize = 2;

impl Absent {
    fn live(state: &State, number: u8) -> bool {
        covers(state.durable, state.txns[number as usize].vector)
    }

    /// An acknowledged reader that saw the result of a lost transaction, and the lost transaction.
    fn deceived(state: &State) -> Option<(usize, u8)> {
        let txns = state.txns.iter().enumerate();
        let mut saw = txns
            .filter(|(_, txn)| state.crashed && txn.answered && !txn.op.writes_key())
            .filter_map(|(number, txn)| txn.saw.map(|saw| (number, saw)));
        saw.find(|(_, saw)| !Self::live(state, *saw))
    }

    /// Two conflicting records; the vector of the second lacks the position of the first.
    fn unordered(&self, state: &State) -> Option<(usize, usize)> {
        let counts = |op: Op| match self.order {
            Order::Nobody => false,
            Order::Writers => op.writes_key(),
            Order::Everyone => op.has_record(),
        };
        let records = || state.txns.iter().enumerate().filter(|(_, txn)| counts(txn.op));
        let pairs = records().flat_map(|after| records().map(move |before| (before, after)));
        pairs
            .filter(|((b, before), (a, after))| {
                b < a && (before.op.writes_key() || after.op.writes_key())
            })
            .find(|((_, before), (_, after))| after.logged[before.stream as usize] < before.end)
            .map(|((b, _), (a, _))| (b, a))
    }

    fn run(&self, state: &mut State, op: Op, stream: u8) {
        let number = state.txns.len() as u8;
        let mut logged = BOTTOM;
        // A present row has stamps under every rule.
        let stamped = state.present || self.absence != Absence::Nothing;
        if stamped {
            logged = join(logged, state.write_lv);
        }
        if stamped && op.writes_key() {
            logged = join(logged, state.read_lv);
        }
        let mut vector = logged;
        let mut end = 0;
        if op.has_record() {
            state.appended[stream as usize] += 1;
            end = state.appended[stream as usize];
            vector[stream as usize] = end;
        }
        let saw = state.writer;
        match op {
            Op::Insert | Op::Delete => {
                state.writer = Some(number);
                state.present = op == Op::Insert;
                state.write_lv = vector;
                if self.absence == Absence::Nothing {
                    state.read_lv = BOTTOM;
                }
            }
            Op::Count | Op::Look => {
                if state.present || self.absence == Absence::Everything {
                    state.read_lv = join(state.read_lv, vector);
                }
            }
        }
        state.txns.push(Txn { op, stream, end, logged, vector, saw, answered: false });
        Self::answer(state);
    }

    fn answer(state: &mut State) {
        for txn in &mut state.txns {
            txn.answered |= covers(state.durable, txn.vector);
        }
    }
}

impl Model for Absent {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            txns: Vec::new(),
            present: false,
            writer: None,
            write_lv: BOTTOM,
            read_lv: BOTTOM,
            appended: BOTTOM,
            durable: BOTTOM,
            crashed: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.crashed {
            return;
        }
        if state.txns.len() < self.txns {
            let change = if state.present { Op::Delete } else { Op::Insert };
            // The stream not used last comes first: traces over two streams are the clearest.
            let last = state.txns.last().map_or(1, |txn| txn.stream);
            for stream in [1 - last, last] {
                actions.extend([change, Op::Count].map(|op| Action::Run(op, stream)));
            }
            actions.push(Action::Run(Op::Look, 0));
        }
        for lane in 0..STREAMS {
            let ends = state.durable[lane] + 1..=state.appended[lane];
            actions.extend(ends.map(|end| Action::Flush(lane, end)));
        }
        actions.push(Action::Crash);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        match action {
            Action::Run(op, stream) => self.run(&mut state, op, stream),
            Action::Flush(lane, end) => {
                state.durable[lane] = end;
                Self::answer(&mut state);
            }
            Action::Crash => state.crashed = true,
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(SEEN, |_, s: &State| Self::deceived(s).is_none()),
            Property::sometimes("an acknowledged reader of what was deleted", |_, s: &State| {
                let deleted =
                    |txn: &Txn| txn.saw.is_some_and(|saw| s.txns[saw as usize].op == Op::Delete);
                s.crashed && s.txns.iter().any(|t| t.op == Op::Look && t.answered && deleted(t))
            }),
            Property::always(ORDERED, |m: &Absent, s| m.unordered(s).is_none()),
        ]
    }
}

impl Protocol for Absent {
    fn tell(&self, before: &State, action: &Action, after: &State) -> String {
        let mut text = match action {
            Action::Run(op, stream) => {
                let what = match op {
                    Op::Insert => "inserts k",
                    Op::Delete => "deletes k",
                    Op::Look if before.present => "looks up k and finds it",
                    Op::Look => "looks up k and finds nothing",
                    Op::Count => "counts the range of k, writes the count",
                };
                let txn = &after.txns[after.txns.len() - 1];
                let needs = show(txn.logged, STREAMS);
                let place = if op.has_record() {
                    format!("stream {} [{},{})", stream + 1, txn.end - 1, txn.end)
                } else {
                    "no record".into()
                };
                format!("T{} {what}: {place}, needs {needs}", after.txns.len())
            }
            Action::Flush(lane, end) => format!("stream {} is durable up to {end}", lane + 1),
            Action::Crash => {
                let live =
                    |n: &u8| after.txns[*n as usize].op.has_record() && Self::live(after, *n);
                let live = (0..after.txns.len() as u8).filter(live);
                format!("power fails; recovered: {}", names("T", live))
            }
        };
        let newly =
            |n: &usize| after.txns[*n].answered && !before.txns.get(*n).is_some_and(|t| t.answered);
        let newly: Vec<u8> = (0..after.txns.len()).filter(newly).map(|n| n as u8).collect();
        if !newly.is_empty() {
            text += &format!("; acknowledged: {}", names("T", newly));
        }
        text
    }

    fn verdict(&self, state: &State) -> String {
        if let Some((reader, saw)) = Self::deceived(state) {
            let (reader, saw) = (reader + 1, saw + 1);
            return format!(
                "T{reader} was acknowledged, and has seen the effect of T{saw}, which is lost"
            );
        }
        match self.unordered(state) {
            Some((before, after)) => format!(
                "T{} depends on T{}, but logs {}: replay may run it first",
                after + 1,
                before + 1,
                show(state.txns[after].logged, STREAMS)
            ),
            None => "nothing is wrong".into(),
        }
    }
}

/// The cases of this model.
pub fn cases() -> Vec<Case> {
    use Rules::{Mutation, Printed};
    fn run(txns: usize, absence: Absence, order: Order) -> Outcome {
        explore(Absent { txns, absence, order })
    }
    vec![
        Case::breaks(
            ("E8", Printed),
            "a deleted row loses its stamps, an inserted one has none: data records",
            ORDERED,
            || run(4, Absence::Nothing, Order::Writers),
        ),
        Case::breaks(
            ("E8", Printed),
            "a deleted row loses its stamps, an inserted one has none: commands that scan",
            ORDERED,
            || run(4, Absence::Nothing, Order::Everyone),
        ),
        Case::breaks(
            ("E8", Printed),
            "a deleted row loses its stamps, an inserted one has none: readers",
            SEEN,
            || run(4, Absence::Nothing, Order::Nobody),
        ),
        Case::breaks(
            ("E8", Mutation),
            "tombstones keep stamps, but readers of an absent key leave no read stamp",
            ORDERED,
            || run(4, Absence::Writers, Order::Everyone),
        ),
        Case::holds("E8", "tombstones and gaps keep stamps, and are stamped", 10_000, || {
            run(6, Absence::Everything, Order::Everyone)
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::cases;
    use crate::case::verify_item;

    #[test]
    fn absence_is_data() {
        verify_item(cases(), "E8");
    }
}
