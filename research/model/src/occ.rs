//! Optimistic concurrency control with command records: item E4 of docs/protocols.
//!
//! Transactions read one row, write one row, and commit in steps that interleave in every way. The
//! property that replay relies on is checked: a transaction that follows another by a conflict has
//! the earlier transaction's position in its vector. Memory is sequentially consistent, but without
//! a fence the loads of validation may be done before the raise of the read stamp.

use crate::case::{Case, Rules};
use crate::check::{Outcome, Protocol, explore};
use crate::vector::{BOTTOM, LANES, Vector, covers, join, show};
use stateright::{Model, Property};

const ROWS: usize = 3;
const ROW_NAMES: [char; ROWS] = ['a', 'b', 'c'];

/// A step of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Step {
    /// Reads a row, with its version and write stamp.
    Read,
    /// Reads a row, with its version only.
    Look,
    /// Locks the row to write.
    Lock,
    /// Folds the stamps of the row to write.
    Fold,
    /// Folds the write stamp of the row read.
    Observe,
    /// Reserves the frame in the transaction's stream.
    Reserve,
    /// Raises the read stamp of the row read.
    Raise,
    /// Checks whether the row read is unchanged and unlocked.
    Validate,
    /// Installs, stamps and unlocks the row written.
    Install,
}

use Step::{Fold, Install, Lock, Look, Observe, Raise, Read, Reserve, Validate};

/// Taurus, algorithm 6.
const PRINTED: &[Step] = &[Read, Lock, Raise, Validate, Reserve, Install];
const FOLDED_ONLY: &[Step] = &[Read, Lock, Fold, Raise, Validate, Reserve, Install];
const RAISED_ONLY: &[Step] = &[Read, Lock, Reserve, Raise, Validate, Install];
const RAISED_LATE: &[Step] = &[Read, Lock, Fold, Reserve, Validate, Raise, Install];
const OBSERVED_LATE: &[Step] = &[Look, Lock, Fold, Reserve, Raise, Validate, Observe, Install];
const OURS: &[Step] = &[Look, Lock, Fold, Observe, Reserve, Raise, Validate, Install];

/// When there is a fence between the raise of read stamps and validation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fence {
    /// Always.
    Always,
    /// Only if a stamp was raised, not if it was high enough already.
    IfRaised,
    /// Nowhere.
    Never,
}

/// The accesses of a transaction, and its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Program {
    reads: Option<u8>,
    writes: u8,
    stream: u8,
}

/// The model.
#[derive(Debug, Clone)]
pub struct Occ {
    txns: usize,
    steps: &'static [Step],
    fence: Fence,
}

/// The progress of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Txn {
    program: Program,
    /// The next step.
    next: u8,
    seen: u8,
    installed: u8,
    vector: Vector,
    /// The vector without the transaction's own position.
    logged: Vector,
    end: u8,
    /// The result of an early validation.
    early: Option<bool>,
    aborted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Row {
    version: u8,
    locked: Option<u8>,
    write_lv: Vector,
    read_lv: Vector,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    txns: Vec<Txn>,
    rows: [Row; ROWS],
    appended: Vector,
}

/// The next step of a transaction, or an early validation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// The next step.
    Next(u8),
    /// The loads of validation, done before the raise.
    Early(u8),
}

const CAUGHT: &str = "a vector has the position of each conflicting predecessor";

impl Occ {
    fn step(&self, txn: &Txn) -> Option<Step> {
        if txn.aborted { None } else { self.steps.get(txn.next as usize).copied() }
    }

    fn unchanged(state: &State, number: u8) -> bool {
        let txn = &state.txns[number as usize];
        txn.program.reads.is_none_or(|row| {
            let row = &state.rows[row as usize];
            row.version == txn.seen && row.locked.is_none_or(|holder| holder == number)
        })
    }

    fn abort(state: &mut State, number: u8) {
        state.txns[number as usize].aborted = true;
        for row in &mut state.rows {
            if row.locked == Some(number) {
                row.locked = None;
            }
        }
    }

    fn committed(&self, txn: &Txn) -> bool {
        !txn.aborted && txn.next as usize == self.steps.len()
    }

    /// Whether `before` precedes `after` by a conflict.
    fn precedes(before: &Txn, after: &Txn) -> bool {
        let (b, a) = (&before.program, &after.program);
        let raw = a.reads == Some(b.writes) && before.installed <= after.seen;
        let waw = a.writes == b.writes && before.installed < after.installed;
        let war = b.reads == Some(a.writes) && before.seen < after.installed;
        raw || waw || war
    }

    /// Two committed transactions that conflict; the second's vector lacks the first's position.
    fn missed(&self, state: &State) -> Option<(usize, usize)> {
        let numbers = 0..state.txns.len();
        let pairs = numbers.clone().flat_map(|b| numbers.clone().map(move |a| (b, a)));
        pairs.filter(|(b, a)| b != a).find(|(b, a)| {
            let (before, after) = (&state.txns[*b], &state.txns[*a]);
            let lane = before.program.stream as usize;
            self.committed(before)
                && self.committed(after)
                && Self::precedes(before, after)
                && after.logged[lane] < before.end
        })
    }

    fn run(state: &mut State, number: u8, step: Step) {
        let at = number as usize;
        let program = state.txns[at].program;
        let lane = program.stream as usize;
        match step {
            Read | Look | Observe => {
                if let Some(row) = program.reads {
                    let row = state.rows[row as usize];
                    if step != Observe {
                        state.txns[at].seen = row.version;
                    }
                    if step != Look {
                        state.txns[at].vector = join(state.txns[at].vector, row.write_lv);
                    }
                }
            }
            Lock => {
                let row = &mut state.rows[program.writes as usize];
                if row.locked.is_some() {
                    return Self::abort(state, number);
                }
                row.locked = Some(number);
            }
            Fold => {
                let row = state.rows[program.writes as usize];
                let stamps = join(row.write_lv, row.read_lv);
                state.txns[at].vector = join(state.txns[at].vector, stamps);
            }
            Reserve => {
                state.appended[lane] += 1;
                let txn = &mut state.txns[at];
                txn.logged = txn.vector;
                txn.end = state.appended[lane];
                txn.vector[lane] = txn.end;
            }
            Raise => {
                if let Some(row) = program.reads {
                    let row = &mut state.rows[row as usize];
                    row.read_lv = join(row.read_lv, state.txns[at].vector);
                }
            }
            Validate => {
                let unchanged = Self::unchanged(state, number);
                if !state.txns[at].early.take().unwrap_or(unchanged) {
                    return Self::abort(state, number);
                }
            }
            Install => {
                let row = &mut state.rows[program.writes as usize];
                row.version += 1;
                row.locked = None;
                row.write_lv = join(row.write_lv, state.txns[at].vector);
                state.txns[at].installed = row.version;
            }
        }
        state.txns[at].next += 1;
    }

    fn next(&self, state: &mut State, number: u8) {
        let txn = state.txns[number as usize];
        let Some(step) = self.step(&txn) else { return };
        if step == Raise && txn.early.is_some() && self.fence == Fence::IfRaised {
            let row = txn.program.reads.map_or(BOTTOM, |row| state.rows[row as usize].read_lv);
            if !covers(row, txn.vector) {
                // The stamp is raised, so there is a fence, and the loads are done again.
                state.txns[number as usize].early = None;
            }
        }
        Self::run(state, number, step);
    }
}

impl Model for Occ {
    type State = State;
    type Action = Action;

    /// Every multiset of programs: the numbering of transactions does not matter.
    fn init_states(&self) -> Vec<State> {
        let mut programs = Vec::new();
        for reads in [None, Some(0), Some(1)] {
            for writes in 0..ROWS as u8 {
                programs.extend([0, 1].map(|stream| Program { reads, writes, stream }));
            }
        }
        let mut sets: Vec<Vec<Program>> = vec![Vec::new()];
        for _ in 0..self.txns {
            sets = sets
                .iter()
                .flat_map(|set| {
                    let from = programs.iter().filter(|p| set.last().is_none_or(|last| *p >= last));
                    from.map(|p| set.iter().copied().chain([*p]).collect::<Vec<_>>())
                })
                .collect();
        }
        let begin = |program| Txn {
            program,
            next: 0,
            seen: 0,
            installed: 0,
            vector: BOTTOM,
            logged: BOTTOM,
            end: 0,
            early: None,
            aborted: false,
        };
        let state = |set: Vec<Program>| State {
            txns: set.into_iter().map(begin).collect(),
            rows: Default::default(),
            appended: [0; LANES],
        };
        // The checker begins with the last set.
        sets.into_iter().rev().map(state).collect()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (number, txn) in state.txns.iter().enumerate() {
            let Some(step) = self.step(txn) else { continue };
            let number = number as u8;
            let read = txn.program.reads.map(|row| state.rows[row as usize]);
            if matches!(step, Read | Look) && read.is_some_and(|row| row.locked.is_some()) {
                continue;
            }
            actions.push(Action::Next(number));
            if step == Raise && self.fence != Fence::Always && txn.early.is_none() && read.is_some()
            {
                actions.push(Action::Early(number));
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        match action {
            Action::Next(number) => self.next(&mut state, number),
            Action::Early(number) => {
                state.txns[number as usize].early = Some(Self::unchanged(&state, number));
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(CAUGHT, |m: &Occ, s| m.missed(s).is_none()),
            Property::sometimes(
                "all commit, and the last overwrites what another read",
                |m: &Occ, s: &State| {
                    s.txns.iter().all(|txn| m.committed(txn))
                        && s.txns.iter().any(|b| {
                            s.txns.iter().any(|a| {
                                b.program.reads == Some(a.program.writes) && b.seen < a.installed
                            })
                        })
                },
            ),
            Property::sometimes("a validation fails and leaves a void frame", |_, s: &State| {
                s.txns.iter().any(|txn| txn.aborted && txn.end > 0)
            }),
        ]
    }
}

impl Protocol for Occ {
    fn tell(&self, before: &State, action: &Action, after: &State) -> String {
        let (Action::Next(number) | Action::Early(number)) = *action;
        let (was, is) = (&before.txns[number as usize], &after.txns[number as usize]);
        let name = |row: u8| ROW_NAMES[row as usize];
        let who = format!("T{}", number + 1);
        let read = was.program.reads.map_or('-', name);
        let written = name(was.program.writes);
        let vector = show(is.vector, 2);
        if matches!(action, Action::Early(_)) {
            return format!("{who} validates early: {read} is {}", state_of(is.early));
        }
        if is.aborted {
            return format!("{who} aborts");
        }
        match self.step(was) {
            Some(Read | Look) if was.program.reads.is_none() => format!("{who} begins"),
            Some(Look) => format!("{who} reads {read}"),
            Some(Observe) if was.program.reads.is_none() => {
                format!("{who} has no read row to fold")
            }
            Some(Observe) => format!("{who} folds the stamp of {read}; its vector is {vector}"),
            Some(Read) => format!("{who} reads {read}; its vector is {vector}"),
            Some(Lock) => format!("{who} locks {written}"),
            Some(Fold) => format!("{who} folds the stamps of {written}; its vector is {vector}"),
            Some(Reserve) => format!(
                "{who} gets stream {} [{},{}); it logs {}",
                was.program.stream + 1,
                is.end - 1,
                is.end,
                show(is.logged, 2)
            ),
            Some(Raise) if was.program.reads.is_none() => {
                format!("{who} has no read stamp to raise")
            }
            Some(Raise) => {
                let row = was.program.reads.unwrap_or(0) as usize;
                format!(
                    "{who} raises the read stamp of {read} to {}",
                    show(after.rows[row].read_lv, 2)
                )
            }
            Some(Validate) => format!("{who} is valid"),
            Some(Install) => format!("{who} installs {written}, stamps and releases it"),
            None => format!("{who} has ended"),
        }
    }

    fn verdict(&self, state: &State) -> String {
        match self.missed(state) {
            Some((before, after)) => format!(
                "T{} depends on T{}, but logs {}: replay may run it first",
                after + 1,
                before + 1,
                show(state.txns[after].logged, 2)
            ),
            None => "nothing is wrong".into(),
        }
    }
}

fn state_of(unchanged: Option<bool>) -> &'static str {
    if unchanged == Some(true) { "unchanged" } else { "changed" }
}

/// The cases of this model.
pub fn cases() -> Vec<Case> {
    use Rules::{Mutation, Printed};
    fn run(txns: usize, steps: &'static [Step], fence: Fence) -> Outcome {
        explore(Occ { txns, steps, fence })
    }
    vec![
        Case::breaks(("E4", Printed), "algorithm 6", CAUGHT, || run(2, PRINTED, Fence::Always)),
        Case::breaks(
            ("E4", Mutation),
            "the write set is folded, but read stamps are raised before the LSN is known",
            CAUGHT,
            || run(2, FOLDED_ONLY, Fence::Always),
        ),
        Case::breaks(
            ("E4", Mutation),
            "read stamps are raised with the LSN, but the write set is not folded",
            CAUGHT,
            || run(2, RAISED_ONLY, Fence::Always),
        ),
        Case::breaks(("E4", Mutation), "read stamps are raised after validation", CAUGHT, || {
            run(2, RAISED_LATE, Fence::Always)
        }),
        Case::breaks(("E4", Mutation), "no fence before validation", CAUGHT, || {
            run(2, OURS, Fence::Never)
        }),
        Case::breaks(
            ("E4", Mutation),
            "no fence where the read stamp is high enough already",
            CAUGHT,
            || run(3, OURS, Fence::IfRaised),
        ),
        Case::breaks(
            ("E4", Mutation),
            "read rows are folded after the frame is reserved",
            CAUGHT,
            || run(2, OBSERVED_LATE, Fence::Always),
        ),
        Case::holds("E4", "lock, fold, reserve, raise, fence, validate, install", 100_000, || {
            run(3, OURS, Fence::Always)
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::cases;
    use crate::case::verify_item;

    #[test]
    fn every_conflict_is_in_a_vector() {
        verify_item(cases(), "E4");
    }
}
