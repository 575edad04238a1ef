//! The table of rows with LSN vectors of their own: the item *hot-row table* of docs/protocols.
//!
//! One row, with exact stamps beside the table for comparison. A row without an entry has the
//! *eviction vector*, which follows the durable position at a distance. One component is enough:
//! components are independent.

use crate::case::{Case, Rules};
use crate::check::{Outcome, Protocol, explore};
use stateright::{Model, Property};

/// The distance of the eviction vector from the durable position (delta).
const DISTANCE: u8 = 1;

/// The model.
#[derive(Debug, Clone)]
pub struct HotRows {
    /// The highest position to reserve.
    pub limit: u8,
    /// Whether an entry is evicted only if the eviction vector covers the read stamp, too.
    pub both: bool,
    /// Whether the eviction vector is loaded before the entry is looked up.
    pub eviction_first: bool,
    /// Whether a row that gets an entry again begins with empty stamps.
    pub begins_empty: bool,
    /// Whether the entry created by a reader lacks the row's write stamp.
    pub forgets: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Stamps {
    write: u8,
    read: u8,
}

/// The progress of a transaction that folds the row's stamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Folding {
    No,
    /// The transaction has loaded this eviction vector, and not looked up the entry. The exact
    /// stamps of that moment.
    HasEviction(u8, Stamps),
    /// The transaction has found no entry, and not loaded the eviction vector. The exact stamps of
    /// that moment.
    NoEntry(Stamps),
    /// The transaction has folded the first stamps; the exact stamps were the second.
    Folded(Stamps, Stamps),
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// The end of the last reservation, and the durable position.
    appended: u8,
    durable: u8,
    eviction: u8,
    entry: Option<Stamps>,
    /// The exact stamps of the row.
    truth: Stamps,
    folding: Folding,
}

/// A step of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// A transaction writes the row, and stamps the row with the transaction's new position.
    Write,
    /// A transaction reads the row, and stamps it.
    Read,
    /// A transaction that does not touch the row appends its record.
    Elsewhere,
    /// Everything becomes durable.
    Harden,
    /// The eviction vector is raised.
    RaiseEviction,
    /// The row's entry is evicted.
    Evict,
    /// A transaction that folds the row's stamps does its first or second step.
    Fold,
}

const KEPT: &str = "a row's vectors are never below its exact stamps";
const DURABLE: &str = "an evicted row adds no dependency that is not durable";

impl HotRows {
    /// The rules as built.
    pub fn ours() -> HotRows {
        HotRows { limit: 5, both: true, eviction_first: false, begins_empty: false, forgets: false }
    }

    fn evictable(&self, state: &State) -> bool {
        state.entry.is_some_and(|entry| {
            entry.write <= state.eviction && (entry.read <= state.eviction || !self.both)
        })
    }

    /// Returns the entry of the row; creates a missing entry.
    fn entry<'a>(&self, state: &'a mut State, reader: bool) -> &'a mut Stamps {
        let eviction = if self.begins_empty { 0 } else { state.eviction };
        let write = if reader && self.forgets { 0 } else { eviction };
        state.entry.get_or_insert(Stamps { write, read: eviction })
    }

    fn fold(&self, state: &mut State) {
        let eviction = |eviction| Stamps { write: eviction, read: eviction };
        state.folding = match state.folding {
            Folding::No | Folding::Folded(..) if self.eviction_first => {
                Folding::HasEviction(state.eviction, state.truth)
            }
            Folding::No | Folding::Folded(..) => match state.entry {
                Some(entry) => Folding::Folded(entry, state.truth),
                None => Folding::NoEntry(state.truth),
            },
            Folding::HasEviction(loaded, truth) => {
                Folding::Folded(state.entry.unwrap_or(eviction(loaded)), truth)
            }
            Folding::NoEntry(truth) => Folding::Folded(eviction(state.eviction), truth),
        };
    }

    fn lost(state: &State) -> Option<(Stamps, Stamps)> {
        match state.folding {
            Folding::Folded(folded, truth)
                if folded.write < truth.write || folded.read.max(folded.write) < truth.read =>
            {
                Some((folded, truth))
            }
            _ => None,
        }
    }
}

impl Model for HotRows {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            appended: 0,
            durable: 0,
            eviction: 0,
            entry: None,
            truth: Stamps::default(),
            folding: Folding::No,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        // A transaction that folds has locked the row, or will validate it.
        let held = matches!(state.folding, Folding::HasEviction(..) | Folding::NoEntry(_));
        if state.appended < self.limit && !held {
            actions.extend([Action::Write, Action::Read]);
        }
        if state.appended < self.limit {
            actions.push(Action::Elsewhere);
        }
        if state.durable < state.appended {
            actions.push(Action::Harden);
        }
        if state.eviction + DISTANCE < state.durable {
            actions.push(Action::RaiseEviction);
        }
        if self.evictable(state) {
            actions.push(Action::Evict);
        }
        actions.push(Action::Fold);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        match action {
            Action::Write => {
                state.appended += 1;
                let own = state.appended;
                self.entry(&mut state, false).write = own;
                state.truth.write = own;
            }
            Action::Read => {
                state.appended += 1;
                let own = state.appended;
                self.entry(&mut state, true).read = own;
                state.truth.read = own;
            }
            Action::Elsewhere => state.appended += 1,
            Action::Harden => state.durable = state.appended,
            Action::RaiseEviction => state.eviction = state.durable - DISTANCE,
            Action::Evict => state.entry = None,
            Action::Fold => self.fold(&mut state),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(KEPT, |_, s: &State| Self::lost(s).is_none()),
            Property::always(DURABLE, |_, s: &State| s.eviction <= s.durable),
            Property::sometimes("an evicted row stands for more than it had", |_, s: &State| {
                matches!(
                    s.folding,
                    Folding::Folded(f, truth) if f.write > truth.write
                )
            }),
            Property::sometimes("a row has left the table and comes back", |_, s: &State| {
                s.entry.is_some_and(|entry| entry.read > 0 && entry.read == s.eviction)
            }),
        ]
    }
}

impl Protocol for HotRows {
    fn tell(&self, before: &State, action: &Action, after: &State) -> String {
        match action {
            Action::Write => format!("a transaction at {} writes the row", after.appended),
            Action::Read => format!("a transaction at {} reads the row", after.appended),
            Action::Elsewhere => format!("a transaction at {} touches other rows", after.appended),
            Action::Harden => format!("everything up to {} is durable", after.durable),
            Action::RaiseEviction => format!("the eviction vector is {}", after.eviction),
            Action::Evict => "the row's entry is evicted".into(),
            Action::Fold => match (before.folding, after.folding) {
                (_, Folding::HasEviction(eviction, _)) => {
                    format!("T loads the eviction vector {eviction}")
                }
                (_, Folding::NoEntry(_)) => "T finds no entry".into(),
                (Folding::HasEviction(..), Folding::Folded(..)) if before.entry.is_none() => {
                    "T finds no entry, and folds what it has loaded".into()
                }
                (Folding::NoEntry(_), _) => {
                    format!("T loads the eviction vector {}", before.eviction)
                }
                _ => "T folds the row's entry".into(),
            },
        }
    }

    fn verdict(&self, state: &State) -> String {
        match Self::lost(state) {
            Some((folded, truth)) => format!(
                "T has folded write {}, read {}; the row had write {}, read {}",
                folded.write, folded.read, truth.write, truth.read
            ),
            None => "nothing is wrong".into(),
        }
    }
}

/// The cases of this model.
pub fn cases() -> Vec<Case> {
    use Rules::{Mutation, Printed};
    fn run(model: HotRows) -> Outcome {
        explore(model)
    }
    vec![
        Case::breaks(
            ("Hot-row table", Printed),
            "PLV - delta is read before the lock table",
            KEPT,
            || run(HotRows { eviction_first: true, ..HotRows::ours() }),
        ),
        Case::breaks(
            ("Hot-row table", Mutation),
            "an entry is evicted when its write stamp is covered",
            KEPT,
            || run(HotRows { both: false, ..HotRows::ours() }),
        ),
        Case::breaks(
            ("Hot-row table", Mutation),
            "a row that re-enters the table begins with empty stamps",
            KEPT,
            || run(HotRows { begins_empty: true, ..HotRows::ours() }),
        ),
        Case::breaks(
            ("Hot-row table", Mutation),
            "a reader's new entry lacks the write stamp",
            KEPT,
            || run(HotRows { forgets: true, ..HotRows::ours() }),
        ),
        Case::holds(
            "Hot-row table",
            "both stamps are covered; the eviction vector is loaded last",
            1_000,
            || run(HotRows::ours()),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::cases;
    use crate::case::verify_item;

    #[test]
    fn a_row_never_stands_for_less_than_it_had() {
        verify_item(cases(), "Hot-row table");
    }
}
