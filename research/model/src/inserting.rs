//! When an inserted row becomes visible: item E7 of docs/protocols.
//!
//! One transaction updates row a and inserts row b; another reads both, in either order. Both lock
//! the rows that they touch until their end, as in two-phase locking. The reader aborts if it meets
//! a lock; the writer waits.

use crate::case::{Case, Rules};
use crate::check::{Outcome, Protocol, explore};
use stateright::{Model, Property};

/// When the key of an inserted row is entered into the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Entry {
    /// After the locks are released (Taurus, section 3.4).
    AfterRelease,
    /// Before the insertion runs, locked and absent.
    BeforeInsert,
}

/// The model.
#[derive(Debug, Clone)]
pub struct Inserting {
    /// When the key is entered.
    pub entry: Entry,
}

/// The next step of the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Writer {
    LocksA,
    PutsB,
    Appends,
    Releases,
    Enters,
    Ended,
}

/// The reader's view of a row; `None` before the read.
type Seen = Option<bool>;

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    writer: Writer,
    /// Row a was updated.
    updated: bool,
    /// Row b is in the index; row b is visible.
    entered: bool,
    visible: bool,
    /// Whether the writer holds its locks on a and on b.
    locked: [bool; 2],
    /// The reader's findings: a updated, b present.
    seen: [Seen; 2],
    aborted: bool,
}

/// A step of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// The writer's next step.
    Write,
    /// The reader locks and reads row a, or row b.
    Read(usize),
}

const WHOLE: &str = "a reader sees all of a transaction's writes or none";

impl Inserting {
    fn after(&self, writer: Writer) -> Writer {
        match (writer, self.entry) {
            (Writer::LocksA, Entry::BeforeInsert) => Writer::PutsB,
            (Writer::LocksA, Entry::AfterRelease) | (Writer::PutsB, _) => Writer::Appends,
            (Writer::Appends, _) => Writer::Releases,
            (Writer::Releases, Entry::AfterRelease) => Writer::Enters,
            _ => Writer::Ended,
        }
    }
}

impl Model for Inserting {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            writer: Writer::LocksA,
            updated: false,
            entered: false,
            visible: false,
            locked: [false; 2],
            seen: [None; 2],
            aborted: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        // The writer waits for the reader's lock until the reader has ended.
        let reading = !state.aborted && state.seen.contains(&None);
        let held = |row: usize| state.seen[row].is_some() && reading;
        let waits =
            state.writer == Writer::LocksA && held(0) || state.writer == Writer::PutsB && held(1);
        if state.writer != Writer::Ended && !waits {
            actions.push(Action::Write);
        }
        if reading {
            actions.extend((0..2).filter(|row| state.seen[*row].is_none()).map(Action::Read));
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        match action {
            Action::Write => {
                match state.writer {
                    Writer::LocksA => state.locked[0] = true,
                    Writer::PutsB => (state.entered, state.locked[1]) = (true, true),
                    Writer::Releases => {
                        state.updated = true;
                        state.visible = state.entered;
                        state.locked = [false; 2];
                    }
                    Writer::Enters => (state.entered, state.visible) = (true, true),
                    Writer::Appends | Writer::Ended => {}
                }
                state.writer = self.after(state.writer);
            }
            Action::Read(row) if state.locked[row] => state.aborted = true,
            Action::Read(0) => state.seen[0] = Some(state.updated),
            Action::Read(_) => state.seen[1] = Some(state.visible),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(WHOLE, |_, s: &State| !matches!(s.seen, [Some(a), Some(b)] if a != b)),
            Property::sometimes("a reader sees all of it", |_, s: &State| {
                s.seen == [Some(true); 2]
            }),
            Property::sometimes("a reader sees none of it", |_, s: &State| {
                s.seen == [Some(false); 2]
            }),
        ]
    }
}

impl Protocol for Inserting {
    fn tell(&self, before: &State, action: &Action, after: &State) -> String {
        match action {
            Action::Write => match before.writer {
                Writer::LocksA => "T1 locks a, to update it".into(),
                Writer::PutsB => "T1 enters b into the index, locked and absent".into(),
                Writer::Appends => "T1 appends its record".into(),
                Writer::Releases => "T1 releases its locks".into(),
                Writer::Enters => "T1 enters b into the index".into(),
                Writer::Ended => "T1 has ended".into(),
            },
            Action::Read(_) if after.aborted => "T2 meets a lock and aborts".into(),
            Action::Read(0) if after.updated => "T2 reads a, updated".into(),
            Action::Read(0) => "T2 reads a, as it was".into(),
            Action::Read(_) if after.visible => "T2 reads b".into(),
            Action::Read(_) => "T2 looks up b and finds nothing".into(),
        }
    }

    fn verdict(&self, _: &State) -> String {
        "T2 has seen T1's update, but not its insertion".into()
    }
}

/// The cases of this model.
pub fn cases() -> Vec<Case> {
    fn run(entry: Entry) -> Outcome {
        explore(Inserting { entry })
    }
    vec![
        Case::breaks(
            ("E7", Rules::Printed),
            "the key is entered into the index after the locks are released",
            WHOLE,
            || run(Entry::AfterRelease),
        ),
        Case::holds("E7", "the key is entered before, locked and absent", 20, || {
            run(Entry::BeforeInsert)
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::cases;
    use crate::case::verify_item;

    #[test]
    fn a_transaction_is_seen_whole() {
        verify_item(cases(), "E7");
    }
}
