//! Deleted rows that leave their index while held by snapshots: the item *Kept rows* of
//! docs/protocols.
//!
//! Transactions insert and delete one key, again and again; a sweep takes the key's tombstones out
//! of the index, and keeps beside the index the tombstones held by a snapshot; two readers open
//! snapshots, look for the key and close the snapshots. Kept records are freed as early as the
//! rules allow: early freeing is worst for readers.
//!
//! Left out: how a snapshot is opened and older versions of a row are kept, which `snapshots`
//! models: here each is one step. Scans, which look for the keys in turn: for each key a scan looks
//! into the index first.

use crate::case::{Case, Rules};
use crate::check::{Outcome, Protocol, explore};
use stateright::{Model, Property};

/// How often the key is inserted.
const INSERTIONS: usize = 3;
/// The last epoch.
const LAST_EPOCH: u8 = 5;
/// How many snapshots each reader opens.
const SNAPSHOTS: [u8; 2] = [1, 2];
/// The end of a row that is there.
const THERE: u8 = u8::MAX;

/// The mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptMistake {
    /// A record leaves the index before it is kept.
    LeavesFirst,
    /// A reader looks at kept records first, and into the index afterwards.
    LooksAtKeptFirst,
    /// Only the index is looked into.
    IndexOnly,
    /// A record is kept if a snapshot holds the row that was there last.
    LastRowOnly,
    /// Only the last record of a key is kept.
    OneOfKey,
    /// A kept record is freed once the newest snapshot does not need the record.
    FreesForNewest,
}

/// The model.
#[derive(Debug, Clone)]
pub struct KeptRows {
    mistake: Option<KeptMistake>,
}

/// A row, from an insertion of the key to its deletion, in epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Lifetime {
    /// The row's number, counted from 1.
    number: u8,
    begin: u8,
    end: u8,
    /// Deleted while a snapshot held the row: the version is kept behind the record.
    has_version: bool,
}

impl Lifetime {
    fn is_in(&self, epoch: u8) -> bool {
        self.begin <= epoch && epoch < self.end
    }
}

/// A record: the rows held by the record, in order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct HeldRecord {
    rows: Vec<Lifetime>,
    is_indexed: bool,
    is_kept: bool,
}

impl HeldRecord {
    fn last(&self) -> &Lifetime {
        self.rows.last().expect("a record has held a row")
    }

    /// The row that a reader of a snapshot finds in the record.
    fn as_of(&self, epoch: u8) -> Option<u8> {
        let is_found = |row: &&Lifetime| row.is_in(epoch) && (row.end == THERE || row.has_version);
        self.rows.iter().find(is_found).map(|row| row.number)
    }
}

/// The steps of a sweep after marking a record dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum SweepStep {
    Keep,
    Leave,
}

/// How far a reader is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ReaderAt {
    Idle,
    First,
    Second,
    /// The row found.
    Found(Option<u8>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct SnapshotReader {
    left: u8,
    epoch: u8,
    at: ReaderAt,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    epoch: u8,
    insertions: u8,
    records: Vec<HeldRecord>,
    /// The remaining steps of a sweep of the record in the index.
    sweep: Vec<SweepStep>,
    readers: [SnapshotReader; 2],
}

/// A step of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// A transaction inserts the key.
    Insert,
    /// A transaction deletes the key.
    Delete,
    /// The epoch ends.
    End,
    /// The next step of a sweep.
    Sweep,
    /// The next step of a reader.
    Read(usize),
}

const AS_OPENED: &str = "a snapshot finds the row that was there when it was opened";
const ONCE: &str = "a snapshot finds a key in one record at most";

impl State {
    fn open(&self) -> impl Iterator<Item = &SnapshotReader> {
        self.readers.iter().filter(|reader| reader.at != ReaderAt::Idle)
    }

    fn oldest(&self) -> u8 {
        self.open().map(|reader| reader.epoch).min().unwrap_or(THERE)
    }

    fn newest(&self) -> u8 {
        self.open().map(|reader| reader.epoch).max().unwrap_or(0)
    }

    fn indexed(&self) -> Option<usize> {
        self.records.iter().position(|record| record.is_indexed)
    }

    /// How many records are kept.
    fn kept(&self) -> usize {
        self.records.iter().filter(|record| record.is_kept).count()
    }

    /// The row that was there as of an ended epoch.
    fn truth(&self, epoch: u8) -> Option<u8> {
        let mut rows = self.records.iter().flat_map(|record| &record.rows);
        rows.find(|row| row.is_in(epoch)).map(|row| row.number)
    }

    /// A reader that has found a wrong row, with the row found.
    fn wrong(&self) -> Option<(&SnapshotReader, Option<u8>)> {
        self.readers.iter().find_map(|reader| match reader.at {
            ReaderAt::Found(found) if found != self.truth(reader.epoch) => Some((reader, found)),
            _ => None,
        })
    }

    /// In how many records a snapshot finds the key.
    fn finds(&self, epoch: u8) -> usize {
        let there = self.records.iter().filter(|record| record.is_indexed || record.is_kept);
        there.filter(|record| record.as_of(epoch).is_some()).count()
    }
}

impl KeptRows {
    fn errs(&self, mistake: KeptMistake) -> bool {
        self.mistake == Some(mistake)
    }

    /// Marks the record in the index dead. Decides now whether to keep the record.
    fn begin_sweep(&self, state: &mut State, at: usize) {
        let oldest = state.oldest();
        let record = &state.records[at];
        let is_wanted = |row: &Lifetime| row.has_version && row.end > oldest;
        let is_held = match self.errs(KeptMistake::LastRowOnly) {
            true => is_wanted(record.last()),
            false => record.rows.iter().any(is_wanted),
        };
        state.sweep = match (is_held, self.errs(KeptMistake::LeavesFirst)) {
            (false, _) => vec![SweepStep::Leave],
            (true, false) => vec![SweepStep::Keep, SweepStep::Leave],
            (true, true) => vec![SweepStep::Leave, SweepStep::Keep],
        };
        // The last step comes first, to be popped last.
        state.sweep.reverse();
    }

    fn sweep(&self, state: &mut State) {
        let last = state.records.len() - 1;
        match state.sweep.pop() {
            None => self.begin_sweep(state, last),
            Some(SweepStep::Leave) => state.records[last].is_indexed = false,
            Some(SweepStep::Keep) => {
                if self.errs(KeptMistake::OneOfKey) {
                    state.records.iter_mut().for_each(|record| record.is_kept = false);
                }
                state.records[last].is_kept = true;
            }
        }
    }

    fn insert(state: &mut State) {
        state.insertions += 1;
        let row = Lifetime {
            number: state.insertions,
            begin: state.epoch,
            end: THERE,
            has_version: false,
        };
        match state.indexed() {
            Some(at) => state.records[at].rows.push(row),
            None => {
                state.records.push(HeldRecord { rows: vec![row], is_indexed: true, is_kept: false })
            }
        }
    }

    fn delete(state: &mut State) {
        let (oldest, newest, epoch) = (state.oldest(), state.newest(), state.epoch);
        let at = state.indexed().expect("the row is there");
        let row = state.records[at].rows.last_mut().expect("the row is there");
        row.end = epoch;
        row.has_version = row.begin <= newest && epoch > oldest;
    }

    fn read(&self, state: &mut State, at: usize) {
        let reader = state.readers[at];
        let kept_first = self.errs(KeptMistake::LooksAtKeptFirst);
        let looks_at_kept = (reader.at == ReaderAt::Second) != kept_first;
        let look = || {
            let is_there = |record: &&HeldRecord| {
                if looks_at_kept { record.is_kept } else { record.is_indexed }
            };
            state.records.iter().filter(is_there).find_map(|record| record.as_of(reader.epoch))
        };
        let next = &mut state.readers[at];
        match reader.at {
            ReaderAt::Idle => {
                let (left, epoch) = (reader.left - 1, state.epoch);
                *next = SnapshotReader { left, epoch, at: ReaderAt::First };
                state.epoch += 1;
            }
            ReaderAt::First => {
                let found = look();
                let is_over = found.is_some() || self.errs(KeptMistake::IndexOnly);
                let at_next = if is_over { ReaderAt::Found(found) } else { ReaderAt::Second };
                state.readers[at].at = at_next;
            }
            ReaderAt::Second => {
                let found = look();
                state.readers[at].at = ReaderAt::Found(found);
            }
            ReaderAt::Found(_) => next.at = ReaderAt::Idle,
        }
    }

    /// Frees the kept records that no snapshot needs.
    fn free(&self, state: &mut State) {
        let oldest = match self.errs(KeptMistake::FreesForNewest) {
            true if state.open().count() > 0 => state.newest(),
            _ => state.oldest(),
        };
        for record in state.records.iter_mut().filter(|record| !record.is_indexed) {
            record.is_kept &= record.last().end > oldest;
        }
    }
}

impl Model for KeptRows {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            epoch: 1,
            insertions: 0,
            records: Vec::new(),
            sweep: Vec::new(),
            readers: SNAPSHOTS.map(|left| SnapshotReader { left, epoch: 0, at: ReaderAt::Idle }),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let indexed = state.indexed().map(|at| state.records[at].last());
        let is_there = indexed.is_some_and(|row| row.end == THERE);
        // A dead record is neither written nor swept again.
        if state.sweep.is_empty() {
            if is_there {
                actions.push(Action::Delete);
            } else if usize::from(state.insertions) < INSERTIONS {
                actions.push(Action::Insert);
            }
            if indexed.is_some_and(|row| row.end < state.epoch) {
                actions.push(Action::Sweep);
            }
        } else {
            actions.push(Action::Sweep);
        }
        if state.epoch < LAST_EPOCH {
            actions.push(Action::End);
        }
        for (at, reader) in state.readers.iter().enumerate() {
            let opens = reader.left > 0 && state.epoch < LAST_EPOCH;
            if reader.at != ReaderAt::Idle || opens {
                actions.push(Action::Read(at));
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        match action {
            Action::Insert => Self::insert(&mut state),
            Action::Delete => Self::delete(&mut state),
            Action::End => state.epoch += 1,
            Action::Sweep => self.sweep(&mut state),
            Action::Read(at) => self.read(&mut state, at),
        }
        self.free(&mut state);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(AS_OPENED, |_, s: &State| s.wrong().is_none()),
            Property::always(ONCE, |_, s: &State| s.open().all(|it| s.finds(it.epoch) <= 1)),
            Property::sometimes("several records of the key are kept", |_, s: &State| s.kept() > 1),
            Property::sometimes(
                "a snapshot finds what is kept beside a later row",
                |_, s: &State| {
                    let found = |it: &SnapshotReader| matches!(it.at, ReaderAt::Found(Some(_)));
                    s.kept() > 0 && s.indexed().is_some() && s.readers.iter().any(found)
                },
            ),
            Property::sometimes("a row leaves that no open snapshot holds", |_, s: &State| {
                let has_left = s.records.iter().any(|it| !it.is_indexed && !it.is_kept);
                has_left && s.open().count() > 0
            }),
            Property::sometimes("a record has held several rows, and is kept", |_, s: &State| {
                s.records.iter().any(|it| it.is_kept && it.rows.len() > 1)
            }),
        ]
    }
}

impl Protocol for KeptRows {
    fn tell(&self, before: &State, action: &Action, after: &State) -> String {
        match *action {
            Action::Insert => {
                format!("row {} is inserted, in epoch {}", after.insertions, after.epoch)
            }
            Action::Delete => {
                format!("row {} is deleted, in epoch {}", after.insertions, after.epoch)
            }
            Action::End => format!("the epoch is {}", after.epoch),
            Action::Sweep => match before.sweep.last() {
                None if after.sweep.len() == 1 => {
                    "the sweep marks the record dead, which no snapshot holds".into()
                }
                None => "the sweep marks the record dead, which a snapshot holds".into(),
                Some(SweepStep::Keep) => "the record is kept".into(),
                Some(SweepStep::Leave) => "the record leaves the index".into(),
            },
            Action::Read(at) => {
                let (reader, now) = (at + 1, after.readers[at]);
                match (before.readers[at].at, now.at) {
                    (ReaderAt::Idle, _) => {
                        format!("R{reader} opens a snapshot of epoch {}", now.epoch)
                    }
                    (ReaderAt::Found(_), _) => format!("R{reader} closes its snapshot"),
                    (_, ReaderAt::Found(Some(row))) => format!("R{reader} finds row {row}"),
                    (look, _) => {
                        let is_first = look == ReaderAt::First;
                        let looks_at_kept = is_first == self.errs(KeptMistake::LooksAtKeptFirst);
                        let place =
                            if looks_at_kept { "among what is kept" } else { "in the index" };
                        format!("R{reader} finds nothing {place}")
                    }
                }
            }
        }
    }

    fn verdict(&self, state: &State) -> String {
        let named = |row: Option<u8>| row.map_or("no row".into(), |row| format!("row {row}"));
        match state.wrong() {
            Some((reader, found)) => format!(
                "a snapshot of epoch {} has found {}, not {}",
                reader.epoch,
                named(found),
                named(state.truth(reader.epoch))
            ),
            None => "a snapshot finds the key in two records".into(),
        }
    }
}

/// The cases of this model.
pub fn cases() -> Vec<Case> {
    const ITEM: &str = "Kept rows";
    fn run(mistake: Option<KeptMistake>) -> Outcome {
        explore(KeptRows { mistake })
    }
    fn breaks(rule: &'static str, explore: fn() -> Outcome) -> Case {
        Case::breaks((ITEM, Rules::Mutation), rule, AS_OPENED, explore)
    }
    vec![
        breaks("a record leaves the index before it is kept", || {
            run(Some(KeptMistake::LeavesFirst))
        }),
        breaks("a reader looks at what is kept first, and into the index afterwards", || {
            run(Some(KeptMistake::LooksAtKeptFirst))
        }),
        breaks("a reader looks into the index only", || run(Some(KeptMistake::IndexOnly))),
        breaks("a record is kept if a snapshot holds the row that was there last", || {
            run(Some(KeptMistake::LastRowOnly))
        }),
        breaks("of a key one record is kept, the last one", || run(Some(KeptMistake::OneOfKey))),
        breaks("what is kept is freed once the newest snapshot does not need it", || {
            run(Some(KeptMistake::FreesForNewest))
        }),
        Case::holds(
            ITEM,
            "a record is kept, then leaves; the index is looked into first",
            10_000,
            || run(None),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::cases;
    use crate::case::verify_item;

    #[test]
    fn a_snapshot_finds_each_row_that_it_holds() {
        verify_item(cases(), "Kept rows");
    }
}
