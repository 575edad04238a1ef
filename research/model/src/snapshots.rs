//! Snapshots: reads as of an epoch beside writers. The item *snapshots* of docs/protocols.
//!
//! Two writers overwrite both of two rows, again and again; two readers open snapshots, share them,
//! read both rows and close the snapshots; epochs also end by themselves. Steps interleave in every
//! way. A version is kept, behind the row, if a snapshot may hold the version. Links are never
//! removed, and may refer to reused memory. Memory is reused as early as the rules allow: early
//! reuse is worst for readers.
//!
//! Left out: inserts and deletes of rows, aborts, checkpoints, snapshots that are ended because
//! versions take too much memory, and waits of readers for the log. Both rows have one lock, and a
//! row is overwritten in one step; `reading` models the copy of a row meanwhile.

mod cases;
mod reading;
mod steps;
mod telling;

pub use cases::cases;

use stateright::{Model, Property};

/// How many transactions each writer runs.
const TRANSACTIONS: [u8; 2] = [2, 1];
/// How many snapshots each reader asks for.
const SNAPSHOTS: [u8; 2] = [1, 2];
/// How many epochs end by themselves.
const ENDS: u8 = 1;
/// The initial version and the versions of all transactions.
const VERSIONS: usize = 4;
/// An epoch above all others: no snapshot is open, or a slot is idle.
const ABOVE_ALL: u8 = u8::MAX;

/// A step of a transaction that overwrites both rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum WriterStep {
    /// Stores the current epoch in the writer's epoch slot.
    Enter,
    Lock,
    ReadEpoch,
    /// Checks whether a snapshot below the writer's epoch is open.
    Look,
    /// Sets the flag *overwritten* if the writer's epoch is above the newest snapshot.
    Mark,
    /// Keeps a row's version if a snapshot may hold the version, and overwrites the row.
    Install(u8),
    /// Unlocks the rows and leaves the slot.
    Leave,
}

/// A step of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ReaderStep {
    /// Notes how many snapshots were opened so far.
    Ask,
    /// Shares the newest open snapshot, or publishes a snapshot of the current epoch.
    Open,
    /// Clears the flag *overwritten*.
    Clear,
    /// Checks that the epoch is still the snapshot's, else publishes the snapshot again.
    Check,
    /// Ends the epoch, unless the epoch has ended.
    Advance,
    /// Waits until a writer's slot is idle or in a later epoch.
    Wait(u8),
    /// Reads a row.
    Read(u8),
    Close,
}

use ReaderStep::{Advance, Ask, Check, Clear, Close, Open, Read, Wait};
use WriterStep::{Enter, Install, Leave, Lock, Look, Mark, ReadEpoch};

/// A mistake other than a different order of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mistake {
    /// A version of the newest snapshot's own epoch is not kept.
    KeepsOnlyOlder,
    /// Closing a snapshot publishes that no snapshot is open.
    ForgetsOthers,
    /// Memory of no use to the newest snapshot is reused.
    ReusesBelowNewest,
    /// A snapshot is shared although a later one was opened.
    SharesAny,
}

/// The rules.
#[derive(Debug, Clone, Copy)]
struct Order {
    writer: &'static [WriterStep],
    reader: &'static [ReaderStep],
    mistake: Option<Mistake>,
}

const OURS: Order = Order {
    writer: &[Enter, Lock, ReadEpoch, Look, Mark, Install(0), Install(1), Leave],
    reader: &[Ask, Open, Clear, Check, Advance, Wait(0), Wait(1), Read(0), Read(1), Close],
    mistake: None,
};

/// The step at which a reader continues after a repeated publication: behind [`Open`].
const PUBLISHED: u8 = 2;

/// The model.
#[derive(Debug, Clone)]
pub struct Snapshots {
    order: Order,
}

/// A place for an overwritten version of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
enum Kept {
    #[default]
    None,
    /// The version, and the epoch in which the version was overwritten.
    Version { version: u8, end: u8 },
    /// The memory of a version was reused.
    Reused,
}

/// A row: its version, and the kept versions, oldest first. A version has the number of its
/// transaction. The row's link refers to the last kept version, and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Row {
    version: u8,
    kept: [Kept; VERSIONS - 1],
}

impl Row {
    fn links(&self) -> usize {
        self.kept.iter().take_while(|kept| **kept != Kept::None).count()
    }
}

/// A writer and its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Writer {
    next: u8,
    /// Transactions to run.
    left: u8,
    slot: u8,
    /// The number of the transaction, in lock order.
    number: u8,
    /// The transaction's epoch, or 0 if not read yet.
    epoch: u8,
    /// The writer has found a snapshot below its epoch.
    keeps: bool,
}

/// The next place for a reader to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    Row,
    /// The target of the row's link.
    BehindRow,
    /// The target of the link of this kept version.
    Behind(u8),
}

/// The wrong find of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Found {
    Version(u8),
    Nothing,
    Reused,
}

/// A reader and its snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Reader {
    next: u8,
    /// Snapshots to ask for.
    left: u8,
    /// The number of snapshots opened before the request.
    arrived: u8,
    /// The highest epoch of a version in place at the request.
    visible: u8,
    /// The epoch of the reader's snapshot, or 0.
    epoch: u8,
    /// The number of the reader's snapshot.
    number: u8,
    place: Place,
    wrong: Option<(u8, Found)>,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    epoch: u8,
    /// How many epochs have ended by themselves.
    ended: u8,
    rows: [Row; 2],
    locked: bool,
    /// The number of transactions that have locked the rows, and the epoch of each, or 0 if the
    /// transaction has not read the epoch. Number 0 wrote the initial rows.
    transactions: u8,
    epochs: [u8; VERSIONS],
    /// The lowest and the highest epoch of an open snapshot, as published.
    oldest: u8,
    newest: u8,
    /// Whether a row is newer than the newest snapshot.
    overwritten: bool,
    /// How many snapshots were opened.
    opened: u8,
    writers: [Writer; 2],
    readers: [Reader; 2],
}

/// A step of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// The next step of a writer.
    Write(u8),
    /// The next step of a reader.
    Read(u8),
    /// The epoch ends by itself.
    End,
}

const AS_LEFT: &str = "a snapshot finds each row as the last transaction up to its epoch left it";
const NOT_REUSED: &str = "no link into reused memory is followed";
const RECENT: &str = "a snapshot holds all that was visible when its reader asked";

impl State {
    /// The last transaction with an epoch up to the given epoch.
    fn last_up_to(&self, epoch: u8) -> u8 {
        let is_in = |number: &u8| {
            let own = self.epochs[*number as usize];
            *number == 0 || (own != 0 && own <= epoch)
        };
        (0..=self.transactions).rev().find(is_in).expect("number 0 always is")
    }

    fn epoch_of(&self, row: &Row) -> u8 {
        self.epochs[row.version as usize]
    }

    /// The readers of open snapshots.
    fn open(&self) -> impl Iterator<Item = &Reader> {
        self.readers.iter().filter(|reader| reader.epoch != 0)
    }

    /// The wrong finds of readers, each behind the version that the reader should have found.
    fn wrong(&self) -> impl Iterator<Item = (u8, Found)> {
        self.readers.iter().filter_map(|reader| reader.wrong)
    }

    fn publish(&mut self) {
        self.oldest = self.open().map(|reader| reader.epoch).min().unwrap_or(ABOVE_ALL);
        self.newest = self.open().map(|reader| reader.epoch).max().unwrap_or(0);
    }
}

const IDLE_WRITER: Writer =
    Writer { next: 0, left: 0, slot: ABOVE_ALL, number: 0, epoch: 0, keeps: false };

const IDLE_READER: Reader = Reader {
    next: 0,
    left: 0,
    arrived: 0,
    visible: 0,
    epoch: 0,
    number: 0,
    place: Place::Row,
    wrong: None,
};

impl Model for Snapshots {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            epoch: 1,
            ended: 0,
            rows: Default::default(),
            locked: false,
            transactions: 0,
            epochs: [0; VERSIONS],
            oldest: ABOVE_ALL,
            newest: 0,
            overwritten: false,
            opened: 0,
            writers: TRANSACTIONS.map(|left| Writer { left, ..IDLE_WRITER }),
            readers: SNAPSHOTS.map(|left| Reader { left, ..IDLE_READER }),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (at, writer) in state.writers.iter().enumerate() {
            match self.writer_step(writer) {
                None => {}
                Some(Lock) if state.locked => {}
                Some(_) => actions.push(Action::Write(at as u8)),
            }
        }
        for (at, reader) in state.readers.iter().enumerate() {
            let waits = match self.reader_step(reader) {
                None => true,
                Some(Open) => state.readers.iter().any(|other| self.is_opening(other)),
                Some(Wait(writer)) => state.writers[writer as usize].slot <= reader.epoch,
                Some(_) => false,
            };
            if !waits {
                actions.push(Action::Read(at as u8));
            }
        }
        if state.ended < ENDS {
            actions.push(Action::End);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        match action {
            Action::Write(at) => self.write(&mut state, at.into()),
            Action::Read(at) => self.read(&mut state, at.into()),
            Action::End => {
                state.epoch += 1;
                state.ended += 1;
            }
        }
        self.reuse(&mut state);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(AS_LEFT, |_, s: &State| {
                s.wrong().all(|(_, found)| found == Found::Reused)
            }),
            Property::always(NOT_REUSED, |_, s: &State| {
                s.wrong().all(|(_, found)| found != Found::Reused)
            }),
            Property::always(RECENT, |_, s: &State| s.open().all(|it| it.visible <= it.epoch)),
            Property::sometimes("a reader shares what was open when it asked", |m, s| {
                m.may_share(s, |reader, number| number <= reader.arrived)
            }),
            Property::sometimes(
                "a reader shares what was opened since it asked",
                |m, s: &State| {
                    s.overwritten && m.may_share(s, |reader, number| number > reader.arrived)
                },
            ),
            Property::sometimes("two snapshots are read at once", |m, s: &State| {
                let read = |it: &Reader| it.next >= m.position(Read(0));
                s.readers.iter().all(read) && s.readers[0].number != s.readers[1].number
            }),
            Property::sometimes(
                "an epoch ends while a snapshot of it is opened",
                |m, s: &State| {
                    let checks = |it: &Reader| m.reader_step(it) == Some(Check);
                    s.readers.iter().any(|it| checks(it) && it.epoch != s.epoch)
                },
            ),
            Property::sometimes("a reader passes a version that is kept", |_, s: &State| {
                s.readers.iter().any(|it| matches!(it.place, Place::Behind(1..)))
            }),
            Property::sometimes("a link dangles while a snapshot is open", |_, s: &State| {
                s.open().count() > 0 && s.rows.iter().any(|row| row.kept.contains(&Kept::Reused))
            }),
        ]
    }
}
