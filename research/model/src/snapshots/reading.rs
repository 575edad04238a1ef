//! Reads of a row during overwrites, without waits. One row of two words; a writer runs three
//! transactions that overwrite the row, one after the other; a reader whose snapshot holds version
//! 0 reads the row again and again. A writer may lock the row and leave it unchanged.

use crate::case::{Case, Rules};
use crate::check::{Outcome, Protocol, explore};
use stateright::{Model, Property};

/// How many transactions overwrite the row.
const VERSIONS: u8 = 3;

/// A step of a transaction that overwrites the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum WriterStep {
    /// Sets the lock bit of the row's version word.
    Lock,
    /// Keeps the version. Only the first transaction has to: no snapshot holds version 1, unless
    /// there is a later snapshot.
    Keep,
    /// Changes a word of the row.
    Change(u8),
    /// Stores the new version word, without the lock bit.
    Unlock,
}

/// A step of the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ReaderStep {
    /// Loads the version word.
    Load,
    /// Copies a word of the row.
    CopyWord(u8),
    /// Loads the version word again.
    LoadAgain,
    /// If the row was locked, takes the last kept version, if its version word is the first one
    /// loaded.
    Look,
    /// If the row was locked, loads the version word a third time: another transaction may have
    /// kept a later version before the reader looked.
    LoadAfterLook,
    /// Takes the copy, if the version word is unchanged, or begins again.
    Accept,
}

use ReaderStep::{Accept, CopyWord, Load, LoadAfterLook, LoadAgain, Look};
use WriterStep::{Change, Keep, Lock, Unlock};

/// The rules.
#[derive(Debug, Clone, Copy)]
struct Order {
    writer: &'static [WriterStep],
    reader: &'static [ReaderStep],
    /// Whether the reader takes the last kept version, whatever its version word.
    takes_any: bool,
}

const OURS: Order = Order {
    writer: &[Lock, Keep, Change(0), Change(1), Unlock],
    reader: &[Load, CopyWord(0), CopyWord(1), LoadAgain, Look, LoadAfterLook, Accept],
    takes_any: false,
};

/// The model.
#[derive(Debug, Clone)]
pub struct Reading {
    order: Order,
}

/// A version word. The versions of the transactions are newer than the snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Word {
    version: u8,
    locked: bool,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct State {
    word: Word,
    /// The version of each word of the row.
    row: [u8; 2],
    /// The kept versions, the last one last.
    kept: Vec<u8>,
    writer: u8,
    reader: u8,
    /// The word loaded and the copy made by the reader.
    seen: Word,
    copied: [u8; 2],
    again: Word,
    /// The version found by the reader; `None` before.
    found: Option<[u8; 2]>,
}

/// A step of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// The next step of the transaction.
    Write,
    /// The transaction does not keep the version.
    Skip,
    /// The transaction unlocks the unchanged row.
    Abort,
    /// The next step of the reader.
    Read,
}

/// The reader has found no version; no version has this number.
const NOTHING: u8 = u8::MAX;

const WHOLE: &str = "a reader finds the whole row, in the version that its snapshot holds";

impl Reading {
    fn writer_step(&self, state: &State) -> WriterStep {
        self.order.writer[state.writer as usize]
    }

    fn reader_step(&self, state: &State) -> ReaderStep {
        self.order.reader[state.reader as usize]
    }

    fn write(&self, state: &mut State) {
        let version = state.word.version;
        match self.writer_step(state) {
            Lock => state.word.locked = true,
            Keep => state.kept.push(version),
            Change(at) => state.row[at as usize] = version + 1,
            Unlock => state.word = Word { version: version + 1, locked: false },
        }
        state.writer = (state.writer + 1) % self.order.writer.len() as u8;
    }

    fn read(&self, state: &mut State) {
        let step = self.reader_step(state);
        let locked = state.seen.locked || state.again.locked;
        state.reader += 1;
        match step {
            Load => {
                (state.seen, state.found) = (state.word, None);
                if state.seen.version > 0 {
                    // Behind the link, version 0 is the last.
                    let first = state.kept.first().map_or(NOTHING, |version| *version);
                    self.find(state, [first; 2]);
                }
            }
            CopyWord(at) => state.copied[at as usize] = state.row[at as usize],
            LoadAgain => state.again = state.word,
            LoadAfterLook if locked => state.again = state.word,
            LoadAfterLook => {}
            Look => {
                let is_it = |version: &u8| *version == state.seen.version || self.order.takes_any;
                if let Some(version) = state.kept.last().copied().filter(is_it).filter(|_| locked) {
                    self.find(state, [version; 2]);
                }
            }
            Accept if state.again.version == state.seen.version => self.find(state, state.copied),
            Accept => self.begin(state),
        }
    }

    /// The reader begins again.
    fn begin(&self, state: &mut State) {
        let none = Word::default();
        (state.reader, state.seen, state.again, state.copied) = (0, none, none, [0; 2]);
    }

    fn find(&self, state: &mut State, found: [u8; 2]) {
        self.begin(state);
        state.found = Some(found);
    }
}

impl Model for Reading {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.word.version < VERSIONS {
            actions.push(Action::Write);
            let step = self.writer_step(state);
            if step == Keep && state.word.version > 0 {
                actions.push(Action::Skip);
            }
            if step == self.order.writer[1] {
                actions.push(Action::Abort);
            }
        }
        actions.push(Action::Read);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        match action {
            Action::Write => self.write(&mut state),
            Action::Skip => state.writer += 1,
            Action::Abort => (state.writer, state.word.locked) = (0, false),
            Action::Read => self.read(&mut state),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(WHOLE, |_, s: &State| s.found.is_none_or(|found| found == [0; 2])),
            Property::sometimes("a row is copied while it changes", |_, s: &State| {
                s.copied[0] != s.copied[1]
            }),
            Property::sometimes("a locked row is copied as it was", |m, s: &State| {
                let locked = s.seen.locked && s.again.locked;
                locked && s.kept.is_empty() && m.reader_step(s) == Accept
            }),
            Property::sometimes("the row that was copied has changed since", |m, s: &State| {
                s.again.version > s.seen.version && m.reader_step(s) == Accept
            }),
            Property::sometimes("two versions are kept", |_, s: &State| s.kept.len() == 2),
        ]
    }
}

fn show(word: Word) -> String {
    format!("{}{}", word.version, if word.locked { ", locked" } else { "" })
}

impl Protocol for Reading {
    fn tell(&self, before: &State, action: &Action, after: &State) -> String {
        let number = before.word.version + 1;
        match action {
            Action::Skip => return format!("T{number} does not keep version {}", number - 1),
            Action::Abort => return format!("T{number} unlocks the row as it was"),
            Action::Write => {
                return match self.writer_step(before) {
                    Lock => format!("T{number} locks the row"),
                    Keep => format!("T{number} keeps version {}", number - 1),
                    Change(at) => format!("T{number} changes word {at}"),
                    Unlock => format!("T{number} unlocks the row, version {number}"),
                };
            }
            Action::Read => {}
        }
        match self.reader_step(before) {
            Load if after.found.is_some() => "R finds the row too new, and follows its link".into(),
            Load => format!("R loads the version word: {}", show(after.seen)),
            CopyWord(at) => format!("R copies word {at} of version {}", after.copied[at as usize]),
            LoadAgain => format!("R loads the version word again: {}", show(after.again)),
            Look if after.found.is_some() => "R takes the version that was kept".into(),
            Look => "R finds no version kept that it could take".into(),
            LoadAfterLook => format!("R loads the version word after that: {}", show(after.again)),
            Accept if after.found.is_some() => "R takes its copy".into(),
            Accept => "R begins again".into(),
        }
    }

    fn verdict(&self, state: &State) -> String {
        match state.found {
            Some([first, second]) if first != second => {
                format!("R has word 0 of version {first} and word 1 of version {second}")
            }
            Some([NOTHING, _]) => "R has found no version".into(),
            Some([version, _]) if version > 0 => format!("R has found version {version}, not 0"),
            _ => "nothing is wrong".into(),
        }
    }
}

/// The cases of this model.
pub fn cases(item: &'static str) -> Vec<Case> {
    fn run(order: Order) -> Outcome {
        explore(Reading { order })
    }
    let mistake = |rule, explore| Case::breaks((item, Rules::Mutation), rule, WHOLE, explore);
    vec![
        mistake("the copy of a locked row is taken, whatever was kept", || {
            run(Order { reader: &[Load, CopyWord(0), CopyWord(1), LoadAgain, Accept], ..OURS })
        }),
        mistake("a version is kept after the first word of its row has changed", || {
            run(Order { writer: &[Lock, Change(0), Keep, Change(1), Unlock], ..OURS })
        }),
        mistake("a reader looks for what was kept before it copies the row", || {
            run(Order {
                reader: &[Load, Look, CopyWord(0), CopyWord(1), LoadAgain, Accept],
                ..OURS
            })
        }),
        mistake("a version is taken that was kept last, whichever it is", || {
            run(Order { takes_any: true, ..OURS })
        }),
        mistake("the version word is not loaded again after the look", || {
            run(Order {
                reader: &[Load, CopyWord(0), CopyWord(1), LoadAgain, Look, Accept],
                ..OURS
            })
        }),
        Case::holds(
            item,
            "lock, keep, change, unlock; load, copy, load, look, load, accept",
            500,
            || run(OURS),
        ),
    ]
}
