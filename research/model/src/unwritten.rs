//! Readers of an unwritten table leave no read stamps on its rows: the item *unwritten tables* of
//! docs/protocols.
//!
//! Transactions read or overwrite one row of the table, and commit in steps that interleave in
//! every way, with each other and with housekeeping. The property that replay relies on is checked:
//! a writer of a row has the positions of the row's readers in its vector. Dependencies between
//! writers are left to the model of E4.

use crate::case::{Case, Rules};
use crate::check::{Outcome, Protocol, explore};
use crate::vector::{BOTTOM, LANES, Vector, join, show};
use stateright::{Model, Property};

const ROWS: usize = 2;
const ROW_NAMES: [char; ROWS] = ['a', 'b'];
const STREAMS: u8 = 2;
/// How often the table may become unwritten again.
const QUIET: u8 = 2;

/// A step of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Step {
    /// Reads a row.
    Read,
    /// Reserves a frame in the transaction's stream.
    Reserve,
    /// Sets the bit that says that readers of the stream leave no read stamps.
    SetBit,
    /// A reader checks the table's phase, and stamps the row unless the table is unwritten.
    Look,
    /// Checks whether the row is unchanged and unlocked.
    Validate,
    /// Locks the row to overwrite.
    Lock,
    /// A writer checks the table's phase until its dependencies are known.
    Follow,
    /// Folds the read stamps of the row.
    Fold,
    /// Installs the row and unlocks it.
    Install,
}

use Step::{Fold, Follow, Install, Lock, Look, Read, Reserve, SetBit, Validate};

/// The rules: the steps of readers and writers, and when the floor is taken.
#[derive(Debug, Clone, Copy)]
struct Order {
    reader: &'static [Step],
    writer: &'static [Step],
    /// Whether the floor is taken after the table was marked as changing.
    marks_first: bool,
}

const OURS: Order = Order {
    reader: &[Read, Reserve, SetBit, Look, Validate],
    writer: &[Lock, Follow, Fold, Reserve, Install],
    marks_first: true,
};

/// The phase of the table, see `logging/taurus/unwritten.rs` in the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Phase {
    Unwritten,
    Changing,
    Floor,
    Written,
}

/// The access of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Program {
    writes: bool,
    row: u8,
    stream: u8,
}

/// The model.
#[derive(Debug, Clone)]
pub struct Unwritten {
    txns: usize,
    order: Order,
}

/// The progress of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Txn {
    program: Program,
    next: u8,
    /// The version read, or installed.
    version: u8,
    vector: Vector,
    end: u8,
    /// The transaction left no read stamp.
    spared: bool,
    /// Set during a change of the table's phase: the positions read for the floor.
    floor: Option<Vector>,
    aborted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Row {
    version: u8,
    locked: bool,
    marks: Vector,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    txns: Vec<Txn>,
    rows: [Row; ROWS],
    appended: Vector,
    phase: Phase,
    bits: [bool; LANES],
    floor: Vector,
    eviction: Vector,
    quiet: u8,
}

/// The next step of a transaction, or of housekeeping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// The next step of a transaction.
    Next(u8),
    /// The eviction vector covers the floor.
    Cool,
    /// The table was not written for a while.
    Quiet,
}

const CAUGHT: &str = "a writer's vector has the positions of the readers of its row";

impl Unwritten {
    fn step(&self, txn: &Txn) -> Option<Step> {
        let steps = if txn.program.writes { self.order.writer } else { self.order.reader };
        if txn.aborted { None } else { steps.get(txn.next as usize).copied() }
    }

    fn committed(&self, txn: &Txn) -> bool {
        !txn.aborted && self.step(txn).is_none()
    }

    /// A reader, and a writer that overwrote the row read without having the reader's position.
    fn missed(&self, state: &State) -> Option<(usize, usize)> {
        let committed = |writes: bool| {
            let all = state.txns.iter().enumerate();
            all.filter(move |(_, txn)| txn.program.writes == writes && self.committed(txn))
        };
        committed(false)
            .flat_map(|reader| committed(true).map(move |writer| (reader, writer)))
            .find(|((_, reader), (_, writer))| {
                reader.program.row == writer.program.row
                    && reader.version < writer.version
                    && writer.vector[reader.program.stream as usize] < reader.end
            })
            .map(|((reader, _), (writer, _))| (reader, writer))
    }

    /// Whether a row was overwritten whose reader left a read stamp, or left none if `spared` is
    /// set.
    fn is_overwritten(&self, state: &State, spared: bool) -> bool {
        let readers = state.txns.iter().filter(|txn| !txn.program.writes && self.committed(txn));
        readers
            .filter(|reader| reader.spared == spared)
            .any(|reader| reader.version < state.rows[reader.program.row as usize].version)
    }

    /// A writer checks the table's phase. Returns true when the writer's dependencies are known.
    fn follow(&self, state: &mut State, at: usize) -> bool {
        let spared = |appended: Vector, bits: [bool; LANES]| {
            std::array::from_fn(|lane| if bits[lane] { appended[lane] } else { 0 })
        };
        match (state.phase, state.txns[at].floor) {
            (Phase::Written, _) => {
                state.txns[at].vector = join(state.txns[at].vector, state.eviction);
                return true;
            }
            (Phase::Floor, _) => {
                state.txns[at].vector = join(state.txns[at].vector, state.floor);
                return true;
            }
            (Phase::Unwritten, None) if !self.order.marks_first => {
                state.txns[at].floor = Some(spared(state.appended, state.bits));
            }
            (Phase::Unwritten, floor) => {
                state.phase = Phase::Changing;
                state.txns[at].floor = Some(floor.unwrap_or(BOTTOM));
            }
            (Phase::Changing, floor) => {
                let early = floor.expect("only the writer that changes the phase gets here");
                let late = spared(state.appended, state.bits);
                let floor = if self.order.marks_first { late } else { early };
                state.floor = join(state.floor, floor);
                state.phase = Phase::Floor;
                state.txns[at].floor = None;
            }
        }
        false
    }

    fn next(&self, state: &mut State, at: usize) {
        let Some(step) = self.step(&state.txns[at]) else { return };
        let Program { row, stream, .. } = state.txns[at].program;
        let (row, lane) = (row as usize, stream as usize);
        match step {
            Read => state.txns[at].version = state.rows[row].version,
            Reserve => {
                state.appended[lane] += 1;
                state.txns[at].end = state.appended[lane];
            }
            SetBit => state.bits[lane] = true,
            Look if state.phase == Phase::Unwritten => state.txns[at].spared = true,
            Look => {
                let marks = &mut state.rows[row].marks;
                marks[lane] = marks[lane].max(state.txns[at].end);
            }
            Validate => {
                let unchanged = state.rows[row].version == state.txns[at].version;
                state.txns[at].aborted = !unchanged || state.rows[row].locked;
            }
            Lock if state.rows[row].locked => state.txns[at].aborted = true,
            Lock => state.rows[row].locked = true,
            Follow => {
                if !self.follow(state, at) {
                    return;
                }
            }
            Fold => state.txns[at].vector = join(state.txns[at].vector, state.rows[row].marks),
            Install => {
                let row = &mut state.rows[row];
                (row.version, row.locked) = (row.version + 1, false);
                state.txns[at].version = row.version;
            }
        }
        state.txns[at].next += 1;
    }
}

impl Model for Unwritten {
    type State = State;
    type Action = Action;

    /// Every multiset of programs: the numbering of transactions does not matter.
    fn init_states(&self) -> Vec<State> {
        let mut programs = Vec::new();
        for (writes, row) in [(false, 0), (true, 0), (true, 1)] {
            programs.extend((0..STREAMS).map(|stream| Program { writes, row, stream }));
        }
        let mut sets: Vec<Vec<Program>> = vec![Vec::new()];
        for _ in 0..self.txns {
            let longer = |set: &Vec<Program>| {
                let from = programs.iter().filter(|p| set.last().is_none_or(|last| *p >= last));
                from.map(|p| set.iter().copied().chain([*p]).collect::<Vec<_>>())
                    .collect::<Vec<_>>()
            };
            sets = sets.iter().flat_map(longer).collect();
        }
        let begin = |program| Txn {
            program,
            next: 0,
            version: 0,
            vector: BOTTOM,
            end: 0,
            spared: false,
            floor: None,
            aborted: false,
        };
        let state = |set: Vec<Program>| State {
            txns: set.into_iter().map(begin).collect(),
            rows: Default::default(),
            appended: BOTTOM,
            phase: Phase::Unwritten,
            bits: [false; LANES],
            floor: BOTTOM,
            eviction: BOTTOM,
            quiet: 0,
        };
        sets.into_iter().map(state).collect()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (number, txn) in state.txns.iter().enumerate() {
            let waits = match self.step(txn) {
                None => true,
                Some(Read) => state.rows[txn.program.row as usize].locked,
                Some(Follow) => state.phase == Phase::Changing && txn.floor.is_none(),
                Some(_) => false,
            };
            if !waits {
                actions.push(Action::Next(number as u8));
            }
        }
        match state.phase {
            Phase::Floor => actions.push(Action::Cool),
            Phase::Written if state.quiet < QUIET => actions.push(Action::Quiet),
            _ => {}
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        match action {
            Action::Next(number) => self.next(&mut state, number.into()),
            Action::Cool => {
                state.eviction = join(state.eviction, state.floor);
                state.phase = Phase::Written;
            }
            Action::Quiet => {
                state.phase = Phase::Unwritten;
                state.quiet += 1;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(CAUGHT, |m: &Unwritten, s| m.missed(s).is_none()),
            Property::sometimes("a row is overwritten whose reader left a mark", |m, s| {
                m.is_overwritten(s, false)
            }),
            Property::sometimes(
                "a row is overwritten whose reader left none, in a table that was written before",
                |m, s: &State| s.quiet > 0 && m.is_overwritten(s, true),
            ),
        ]
    }
}

impl Protocol for Unwritten {
    fn tell(&self, before: &State, action: &Action, after: &State) -> String {
        let number = match *action {
            Action::Cool => {
                return format!("the eviction vector covers the floor {}", show(after.eviction, 2));
            }
            Action::Quiet => return "the table has had no writer for a while".into(),
            Action::Next(number) => number as usize,
        };
        let (was, is) = (&before.txns[number], &after.txns[number]);
        let (who, row) = (format!("T{}", number + 1), ROW_NAMES[was.program.row as usize]);
        let stream = was.program.stream + 1;
        if is.aborted {
            return format!("{who} aborts");
        }
        match self.step(was) {
            Some(Read) => format!("{who} reads {row}"),
            Some(Reserve) => format!("{who} gets stream {stream} [{},{})", is.end - 1, is.end),
            Some(SetBit) => format!("{who} sets the bit of stream {stream}"),
            Some(Look) if is.spared => format!("{who} finds the table unwritten"),
            Some(Look) => format!("{who} stamps {row}"),
            Some(Validate) => format!("{who} is valid"),
            Some(Lock) => format!("{who} locks {row}"),
            Some(Follow) if is.next > was.next => {
                format!("{who} checks the table; its vector is {}", show(is.vector, 2))
            }
            Some(Follow) if before.phase == Phase::Changing => {
                format!("{who} gives the table the floor {}", show(after.floor, 2))
            }
            Some(Follow) if before.phase != after.phase => {
                format!("{who} marks the table as changing")
            }
            Some(Follow) => format!("{who} reads the reserved ends of the streams"),
            Some(Fold) => format!("{who} folds the read stamps of {row}"),
            Some(Install) => format!("{who} installs {row} and releases it"),
            None => format!("{who} has ended"),
        }
    }

    fn verdict(&self, state: &State) -> String {
        match self.missed(state) {
            Some((reader, writer)) => format!(
                "T{} overwrites what T{} read, but has {}: replay may run it first",
                writer + 1,
                reader + 1,
                show(state.txns[writer].vector, 2)
            ),
            None => "nothing is wrong".into(),
        }
    }
}

/// The cases of this model.
pub fn cases() -> Vec<Case> {
    const ITEM: &str = "Unwritten tables";
    fn run(order: Order) -> Outcome {
        explore(Unwritten { txns: 3, order })
    }
    let mistake = |rule, explore| Case::breaks((ITEM, Rules::Mutation), rule, CAUGHT, explore);
    vec![
        mistake("a reader checks the table before it reserves its frame", || {
            run(Order { reader: &[Read, SetBit, Look, Reserve, Validate], ..OURS })
        }),
        mistake("a reader checks the table after it validates", || {
            run(Order { reader: &[Read, Reserve, Validate, SetBit, Look], ..OURS })
        }),
        mistake("a reader sets its stream's bit after the check", || {
            run(Order { reader: &[Read, Reserve, Look, SetBit, Validate], ..OURS })
        }),
        mistake("a writer checks the table before it locks the row", || {
            run(Order { writer: &[Follow, Lock, Fold, Reserve, Install], ..OURS })
        }),
        mistake("the floor is read before the table is marked as changing", || {
            run(Order { marks_first: false, ..OURS })
        }),
        Case::holds(ITEM, "reserve, set bit, check, validate; lock, check, floor", 100_000, || {
            run(OURS)
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::cases;
    use crate::case::verify_item;

    #[test]
    fn who_left_no_mark_is_followed() {
        verify_item(cases(), "Unwritten tables");
    }
}
