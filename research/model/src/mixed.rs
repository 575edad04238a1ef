//! Row images and commands in one log: an item of docs/protocols.
//!
//! Transactions run serially; each is logged as a command or as data. Then all records are
//! replayed, in every order that their vectors allow: commands read rows, data records install
//! rows. `judging` models losses.

use crate::case::{Case, Rules};
use crate::check::{Outcome, Protocol, explore};
use crate::history::ROWS;
use crate::vector::{BOTTOM, LANES, Vector, covers, join, show};
use stateright::{Model, Property};

const STREAMS: usize = 2;
const ROW_NAMES: [&str; ROWS] = ["a", "b"];

/// The model.
#[derive(Debug, Clone)]
pub struct Mixed {
    /// Number of transactions.
    pub txns: usize,
    /// Whether data records wait for their order vector.
    pub data_waits: bool,
    /// Whether commands raise the read stamps of rows.
    pub raised: bool,
    /// Whether data records fold read stamps.
    pub folded: bool,
}

/// The accesses of a transaction, and how the transaction is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Op {
    reads: Option<u8>,
    writes: u8,
    stream: u8,
    command: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Txn {
    op: Op,
    end: u8,
    /// The records to be replayed before the transaction's record.
    waits: Vector,
    read_from: Option<u8>,
    done: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Row {
    writer: Option<u8>,
    write_lv: Vector,
    read_lv: Vector,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    txns: Vec<Txn>,
    rows: [Row; ROWS],
    appended: Vector,
    replaying: bool,
    replayed: [Option<u8>; ROWS],
    /// A command that read another value than in the run: its number, and the value's writer.
    misled: Option<(u8, Option<u8>)>,
}

/// A step of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// A transaction runs.
    Run(Op),
    /// Replay begins.
    Reopen,
    /// A record is replayed.
    Replay(u8),
}

const SAME: &str = "a command reads the same at replay as when it ran";
const STATE: &str = "the replayed state is the state before the crash";
const ENDS: &str = "replay ends";

impl Mixed {
    /// The rules as built.
    pub fn ours(txns: usize) -> Mixed {
        Mixed { txns, data_waits: true, raised: true, folded: true }
    }

    fn run(&self, state: &mut State, op: Op) {
        let number = state.txns.len() as u8;
        let written = state.rows[op.writes as usize];
        let mut validity = written.write_lv;
        let mut order = written.write_lv;
        if op.command || self.folded {
            order = join(order, written.read_lv);
        }
        let mut read_from = None;
        if let Some(row) = op.reads {
            validity = join(validity, state.rows[row as usize].write_lv);
            read_from = state.rows[row as usize].writer;
        }
        if op.command {
            validity = join(validity, order);
        }
        let waits = match op.command {
            true => validity,
            false if self.data_waits => order,
            false => BOTTOM,
        };
        let lane = op.stream as usize;
        state.appended[lane] += 1;
        let end = state.appended[lane];
        validity[lane] = end;
        if let Some(row) = op.reads
            && op.command
            && self.raised
        {
            let stamp = &mut state.rows[row as usize].read_lv;
            *stamp = join(*stamp, validity);
        }
        let row = &mut state.rows[op.writes as usize];
        row.writer = Some(number);
        row.write_lv = join(row.write_lv, validity);
        state.txns.push(Txn { op, end, waits, read_from, done: false });
    }

    /// The position up to which each stream is replayed without a gap.
    fn resolved(state: &State) -> Vector {
        std::array::from_fn(|lane| {
            let open = state.txns.iter().filter(|t| t.op.stream as usize == lane && !t.done);
            open.map(|txn| txn.end - 1).min().unwrap_or(state.appended[lane])
        })
    }

    fn ready(state: &State) -> Vec<u8> {
        let resolved = Self::resolved(state);
        let ready = |n: &u8| {
            let txn = &state.txns[*n as usize];
            !txn.done && covers(resolved, txn.waits)
        };
        (0..state.txns.len() as u8).filter(ready).collect()
    }

    /// Replays a record. The record's write is installed only if newer than the row.
    fn replay(state: &mut State, number: u8) {
        let txn = &mut state.txns[number as usize];
        txn.done = true;
        if let Some(row) = txn.op.reads
            && txn.op.command
            && state.replayed[row as usize] != txn.read_from
        {
            state.misled = state.misled.or(Some((number, state.replayed[row as usize])));
        }
        let row = &mut state.replayed[txn.op.writes as usize];
        if *row < Some(number) {
            *row = Some(number);
        }
    }

    fn ended(state: &State) -> bool {
        state.replaying && state.txns.iter().all(|txn| txn.done)
    }

    fn differs(state: &State) -> Option<usize> {
        (0..ROWS).find(|row| Self::ended(state) && state.replayed[*row] != state.rows[*row].writer)
    }
}

impl Model for Mixed {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            txns: Vec::new(),
            rows: Default::default(),
            appended: [0; LANES],
            replaying: false,
            replayed: [None; ROWS],
            misled: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.replaying {
            return actions.extend(Self::ready(state).into_iter().map(Action::Replay));
        }
        actions.push(Action::Reopen);
        if state.txns.len() < self.txns {
            let streams = if state.txns.is_empty() { 1 } else { STREAMS as u8 };
            for reads in [None, Some(0), Some(1)] {
                for writes in 0..ROWS as u8 {
                    for stream in 0..streams {
                        let op = |command| Action::Run(Op { reads, writes, stream, command });
                        actions.extend([true, false].map(op));
                    }
                }
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        match action {
            Action::Run(op) => self.run(&mut state, op),
            Action::Reopen => state.replaying = true,
            Action::Replay(number) => Self::replay(&mut state, number),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(SAME, |_, s: &State| s.misled.is_none()),
            Property::always(STATE, |_, s: &State| Self::differs(s).is_none()),
            Property::always(ENDS, |_, s: &State| {
                !s.replaying || Self::ended(s) || !Self::ready(s).is_empty()
            }),
            Property::sometimes(
                "a data record is replayed before one that it depends on",
                |_, s: &State| {
                    let numbers = 0..s.txns.len();
                    numbers.into_iter().any(|n| {
                        let txn = &s.txns[n];
                        txn.done
                            && !txn.op.command
                            && txn.read_from.is_some_and(|f| !s.txns[f as usize].done)
                    })
                },
            ),
            Property::sometimes("all of a mixture is replayed", |m: &Mixed, s: &State| {
                let commands = s.txns.iter().filter(|txn| txn.op.command).count();
                Self::ended(s) && s.txns.len() == m.txns && commands > 0 && commands < m.txns
            }),
        ]
    }
}

impl Protocol for Mixed {
    fn tell(&self, _: &State, action: &Action, after: &State) -> String {
        match action {
            Action::Run(op) => {
                let txn = &after.txns[after.txns.len() - 1];
                let row = |row: u8| ROW_NAMES[row as usize];
                let read = op.reads.map_or(String::new(), |read| format!("reads {}, ", row(read)));
                format!(
                    "T{} {read}writes {}, as {}: stream {} [{},{}), waits for {}",
                    after.txns.len(),
                    row(op.writes),
                    if op.command { "a command" } else { "data" },
                    op.stream + 1,
                    txn.end - 1,
                    txn.end,
                    show(txn.waits, STREAMS)
                )
            }
            Action::Reopen => "power fails, everything was durable; replay begins".into(),
            Action::Replay(number) => format!("T{} is replayed", number + 1),
        }
    }

    fn verdict(&self, state: &State) -> String {
        let name = |writer: Option<u8>| {
            writer.map_or("the initial value".into(), |n| format!("T{}'s value", n + 1))
        };
        if let Some((number, found)) = state.misled {
            let wanted = state.txns[number as usize].read_from;
            return format!(
                "T{} reads {} at replay, but read {} when it ran",
                number + 1,
                name(found),
                name(wanted)
            );
        }
        match Self::differs(state) {
            Some(row) => format!(
                "{} has {}, and should have {}",
                ROW_NAMES[row],
                name(state.replayed[row]),
                name(state.rows[row].writer)
            ),
            None => "records are left, and none of them can be replayed".into(),
        }
    }
}

/// The cases of this model.
pub fn cases() -> Vec<Case> {
    use Rules::Mutation;
    fn run(model: Mixed) -> Outcome {
        explore(model)
    }
    vec![
        Case::breaks(
            ("Data and commands", Mutation),
            "row images are applied by version and wait for nothing",
            SAME,
            || run(Mixed { data_waits: false, ..Mixed::ours(3) }),
        ),
        Case::breaks(
            ("Data and commands", Mutation),
            "commands leave no read stamps",
            SAME,
            || run(Mixed { raised: false, ..Mixed::ours(3) }),
        ),
        Case::breaks(
            ("Data and commands", Mutation),
            "a writer that is logged as data folds no read stamps",
            SAME,
            || run(Mixed { folded: false, ..Mixed::ours(3) }),
        ),
        Case::holds(
            "Data and commands",
            "validity decides what is live, order decides when",
            100_000,
            || run(Mixed::ours(4)),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::cases;
    use crate::case::verify_item;

    #[test]
    fn a_command_finds_what_it_found() {
        verify_item(cases(), "Data and commands");
    }
}
