//! Reading as of a timestamp, and committing at another: item "Hekaton" of docs/protocols.
//!
//! Sessions run transactions, which read rows as of a timestamp, mark one row, and write the marked
//! row. Transactions interleave step by step in every way. The log is one stream. Four promises are
//! checked: reads are as of the timestamp; versions that are read are kept; histories are serial by
//! timestamp, or obey snapshot isolation; and replay with one version of each row runs commands on
//! the rows of the original run. A kept version is dropped as early as the rules allow: early drops
//! are worst for readers.
//!
//! Left out: inserts and deletes of rows, epochs, and weak memory. A row is kept and overwritten in
//! one step; `snapshots` models reads of the row meanwhile.

mod cases;
mod steps;
mod telling;

pub use cases::cases;

use stateright::{Model, Property};

/// The rows a and b.
const ROWS: usize = 2;
const SLOTS: usize = 3;
/// The initial version, and the most further versions that are overwritten.
const VERSIONS: usize = 4;

/// An access to a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Access {
    Read(u8),
    /// Marks the row, to be written at commit.
    Mark(u8),
}

/// The accesses of a transaction, and its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct VersionsProgram {
    /// The slot of the session, which runs transactions in sequence.
    slot: u8,
    accesses: &'static [Access],
}

impl VersionsProgram {
    /// The row that the transaction writes.
    fn writes(&self) -> Option<u8> {
        self.accesses.iter().find_map(|access| match access {
            Access::Mark(row) => Some(*row),
            Access::Read(_) => None,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Isolation {
    Serializable,
    /// Rows read may be overwritten by the time of the commit.
    Snapshot,
}

/// The criterion for histories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum HeldAgainst {
    /// The serial order of the timestamps.
    SerialOrder,
    /// Snapshot isolation: of two overlapping transactions, one fails if both write a row.
    SnapshotIsolation,
}

/// A mistake in the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum VersionsMistake {
    ReadBeforeAnnouncing,
    DrawBeforeSaying,
    BoundAsTimestamp,
    OverlookReaders,
    /// Versions that only a transaction with an announced bound may want are dropped.
    OverlookBounds,
    OverlookPreparing,
    ValidateInPlaceOnly,
    VersionBeforeHolder,
    /// An overwritten row does not make its reader late.
    OverwrittenIsNotLate,
    /// A row held by another transaction does not make its reader late.
    HeldIsNotLate,
    OverwriteNewer,
    /// A transaction does not wait for the commits it depends on.
    ForgetDependencies,
    /// A transaction does not notice its end if it had announced a bound only.
    OverlookEndedBound,
}

/// The rules.
#[derive(Debug, Clone, Copy)]
struct VersionsRules {
    isolation: Isolation,
    held_against: HeldAgainst,
    /// Room for versions is short, once: transactions that want a version are ended.
    is_short: bool,
    /// Transactions read what others are about to commit, and depend on these commits.
    speculates: bool,
    mistake: Option<VersionsMistake>,
}

const OURS: VersionsRules = VersionsRules {
    isolation: Isolation::Serializable,
    held_against: HeldAgainst::SerialOrder,
    is_short: false,
    speculates: false,
    mistake: None,
};

/// The model.
#[derive(Debug, Clone)]
pub struct Versions {
    rules: VersionsRules,
    /// Several sets of transactions to run.
    sets: Vec<Vec<VersionsProgram>>,
}

/// The next step of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum VersionsPhase {
    /// Announces a bound: the clock.
    Announce,
    /// Reads the clock: the timestamp of the reads.
    ReadClock,
    /// Publishes the exact timestamp of the reads.
    SayExactly,
    /// Looks at the mark of the row of this access.
    Look(u8),
    /// Looks at the slot that has marked the row.
    Ask(u8),
    /// Reads the row, or a version that was kept.
    Take(u8),
    Mark(u8),
    /// Looks at the mark of a row read before its commit, and at the slot.
    AwaitCommit(u8),
    /// Looks at the version of the row.
    TakeOutcome(u8),
    /// Says that the transaction draws a timestamp.
    SayDrawing,
    Draw,
    /// Publishes the drawn timestamp.
    SayDrawn,
    /// Decides whether the transaction logs a command.
    Decide,
    /// Takes a place in the log.
    Place,
    /// Looks at the mark of a row read.
    Holder(u8),
    /// Looks at the slot that has marked the row.
    AskHolder(u8),
    /// Looks at the version of the row.
    Check(u8),
    FindReaders,
    /// Keeps the row if a reader wants the old version, and overwrites the row.
    Install,
    Unmark,
    /// Sets the transaction's slot to idle.
    Leave,
    Over,
}

/// The version of a row that a transaction has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum FoundVersion {
    Unread,
    InPlace(u8),
    Kept(u8),
    /// A version whose commit is under way, shown by its writer.
    Shown(u8),
    /// No version: the needed version was not kept.
    Nothing,
}

impl FoundVersion {
    fn version(self) -> Option<u8> {
        match self {
            FoundVersion::InPlace(version)
            | FoundVersion::Kept(version)
            | FoundVersion::Shown(version) => Some(version),
            FoundVersion::Unread | FoundVersion::Nothing => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Decision {
    Open,
    /// The transaction commits, if it has not committed yet.
    Valid,
    Failed,
}

/// The progress of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct VersionsTxn {
    program: VersionsProgram,
    phase: VersionsPhase,
    bound: u8,
    as_of: u8,
    /// The timestamp of the commit, or 0.
    tid: u8,
    found: [FoundVersion; ROWS],
    /// The slot found in a mark, to be looked at next.
    owner: u8,
    is_command: bool,
    is_late: bool,
    decision: Decision,
    /// The transaction's place in the log, or 0.
    place: u8,
    /// A reader was found that wants the version to be overwritten.
    keeps: bool,
}

/// The timestamp of reads in a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum SlotReads {
    Idle,
    Bound(u8),
    AsOf(u8),
}

/// The timestamp of a commit in a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum SlotCommits {
    No,
    Draws,
    At(u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ActiveSlot {
    reads: SlotReads,
    commits: SlotCommits,
    /// The value of `reads` when the transaction that had set `reads` was ended, or idle.
    ended: SlotReads,
}

/// A row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct MarkedRow {
    /// The version in place: the timestamp of its writer.
    version: u8,
    /// The slot that has marked the row.
    marked: Option<u8>,
    /// By version, the timestamp that has ended the version, or 0 if the version is not kept.
    ends: [u8; VERSIONS],
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct VersionsState {
    clock: u8,
    slots: [ActiveSlot; SLOTS],
    rows: [MarkedRow; ROWS],
    txns: Vec<VersionsTxn>,
    /// The number of places taken in the log.
    appended: u8,
    /// Room has been short.
    was_short: bool,
}

/// A step of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VersionsAction {
    /// The next step.
    Next(u8),
    /// Decides to log data, although it may log a command.
    LogData(u8),
    /// Finds no room to keep the old version, and ends the transactions that may want the version.
    EndReaders(u8),
}

const KEPT: &str = "a version that is read is there";
const AS_OF: &str = "a transaction reads the newest versions as of its timestamp";
const COMMITTED: &str = "what commits has read what has committed";
const SERIAL: &str = "what commits at a timestamp has read the newest versions below it";
const FIRST_WINS: &str = "what commits has overwritten the versions that it could read";
const CAUGHT: &str = "replay runs a command on the rows that it has read";
const SAME_END: &str = "replay leaves the rows as they were";

impl VersionsTxn {
    fn new(program: VersionsProgram, phase: VersionsPhase) -> Self {
        VersionsTxn {
            program,
            phase,
            bound: 0,
            as_of: 0,
            tid: 0,
            found: [FoundVersion::Unread; ROWS],
            owner: 0,
            is_command: false,
            is_late: false,
            decision: Decision::Open,
            place: 0,
            keeps: false,
        }
    }

    /// The rows that the transaction has read.
    fn read(&self) -> impl Iterator<Item = (usize, FoundVersion)> {
        let rows = self.found.into_iter().enumerate();
        rows.filter(|(_, found)| *found != FoundVersion::Unread)
    }

    /// The timestamp of the commit, if the transaction writes this row.
    fn commit_to(&self, row: usize) -> Option<u8> {
        let writes = self.program.writes() == Some(row as u8);
        (writes && self.decision == Decision::Valid).then_some(self.tid)
    }
}

/// A transaction that has read a version of a row, the row, and a later version.
type Missed = (usize, usize, u8);

impl VersionsState {
    /// A transaction and a row of which the transaction has found no version.
    fn lost(&self) -> Option<(usize, usize)> {
        let find = |txn: &VersionsTxn| txn.read().find(|(_, it)| *it == FoundVersion::Nothing);
        let rows = self.txns.iter().map(|txn| find(txn).map(|(row, _)| row));
        rows.enumerate().find_map(|(number, row)| row.map(|row| (number, row)))
    }

    /// A transaction that has not read the newest version up to its `limit`, if `limit` gives a
    /// timestamp.
    fn missed(&self, limit: impl Fn(&VersionsTxn) -> Option<u8>) -> Option<Missed> {
        let is_missed = |number: usize, row: usize, limit: u8| {
            let version = self.txns[number].found[row].version()?;
            let others = self.txns.iter().enumerate().filter(|(other, _)| *other != number);
            let mut later = others.filter_map(|(_, other)| other.commit_to(row));
            later.find(|tid| (version + 1..=limit).contains(tid))
        };
        self.txns.iter().enumerate().find_map(|(number, txn)| {
            let limit = limit(txn)?;
            (0..ROWS).find_map(|row| Some((number, row, is_missed(number, row, limit)?)))
        })
    }

    fn missed_as_of(&self) -> Option<Missed> {
        self.missed(|txn| Some(txn.as_of))
    }

    fn missed_at_commit(&self) -> Option<Missed> {
        self.missed(|txn| (txn.tid > 0 && txn.decision == Decision::Valid).then(|| txn.tid - 1))
    }

    /// A transaction that has overwritten a version too new for its reads, and the version.
    fn overlapped(&self) -> Option<(usize, u8)> {
        self.txns.iter().enumerate().find_map(|(number, txn)| {
            let row = usize::from(txn.program.writes()?);
            let tid = txn.commit_to(row)?;
            let mut others = self.txns.iter().filter_map(|other| other.commit_to(row));
            others.find(|other| (txn.as_of + 1..tid).contains(other)).map(|other| (number, other))
        })
    }

    /// A transaction that has committed, and has read a row whose writer has not.
    fn dirty(&self) -> Option<(usize, usize)> {
        let committed = |row: usize, tid: u8| {
            tid == 0 || self.txns.iter().any(|txn| txn.commit_to(row) == Some(tid))
        };
        self.txns.iter().enumerate().find_map(|(number, txn)| {
            let dirty = |(row, it): &(usize, FoundVersion)| {
                it.version().is_some_and(|version| !committed(*row, version))
            };
            let valid = txn.decision == Decision::Valid;
            Some((number, txn.read().find(|it| valid && dirty(it))?.0))
        })
    }

    /// Replays the log with one version of each row. Returns the rows, and a command that misses a
    /// version read in the original run: its number, the row, and the version found instead.
    fn replay(&self) -> ([u8; ROWS], Option<Missed>) {
        let mut rows = [0; ROWS];
        for place in 1..=self.appended {
            let at = self.txns.iter().position(|txn| txn.place == place);
            let number = at.expect("every place is of a transaction");
            let txn = &self.txns[number];
            if txn.decision != Decision::Valid {
                continue;
            }
            let differs = |(row, it): &(usize, FoundVersion)| it.version() != Some(rows[*row]);
            if let Some((row, _)) = txn.read().find(|it| txn.is_command && differs(it)) {
                return (rows, Some((number, row, rows[row])));
            }
            let row = usize::from(txn.program.writes().expect("what is logged writes"));
            rows[row] = rows[row].max(txn.tid);
        }
        (rows, None)
    }

    fn are_over(&self) -> bool {
        self.txns.iter().all(|txn| txn.phase == VersionsPhase::Over)
    }

    /// Whether replay yields other rows than the rows in place.
    fn ends_otherwise(&self) -> bool {
        self.are_over() && self.replay().0 != self.rows.map(|row| row.version)
    }
}

impl Model for Versions {
    type State = VersionsState;
    type Action = VersionsAction;

    fn init_states(&self) -> Vec<VersionsState> {
        let idle =
            ActiveSlot { reads: SlotReads::Idle, commits: SlotCommits::No, ended: SlotReads::Idle };
        let first = self.first_phase();
        let state = |set: &Vec<VersionsProgram>| VersionsState {
            clock: 0,
            slots: [idle; SLOTS],
            rows: Default::default(),
            txns: set.iter().map(|program| VersionsTxn::new(*program, first)).collect(),
            appended: 0,
            was_short: !self.rules.is_short,
        };
        self.sets.iter().map(state).collect()
    }

    fn actions(&self, state: &VersionsState, actions: &mut Vec<VersionsAction>) {
        for (number, txn) in state.txns.iter().enumerate() {
            let before = &state.txns[..number];
            let mut session = before.iter().filter(|it| it.program.slot == txn.program.slot);
            let waits = session.any(|it| it.phase != VersionsPhase::Over);
            if waits || txn.phase == VersionsPhase::Over {
                continue;
            }
            actions.push(VersionsAction::Next(number as u8));
            if txn.phase == VersionsPhase::Decide && !self.is_late(state, txn) {
                actions.push(VersionsAction::LogData(number as u8));
            }
            if txn.phase == VersionsPhase::Install && txn.keeps && !state.was_short {
                actions.push(VersionsAction::EndReaders(number as u8));
            }
        }
    }

    fn next_state(&self, state: &VersionsState, action: VersionsAction) -> Option<VersionsState> {
        let mut state = state.clone();
        match action {
            VersionsAction::Next(number) => self.step(&mut state, number.into()),
            VersionsAction::LogData(number) => self.log_data(&mut state, number.into()),
            VersionsAction::EndReaders(number) => state.end_readers(number.into()),
        }
        self.drop_versions(&mut state);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let history = match self.rules.held_against {
            HeldAgainst::SerialOrder => {
                Property::always(SERIAL, |_, s: &VersionsState| s.missed_at_commit().is_none())
            }
            HeldAgainst::SnapshotIsolation => {
                Property::always(FIRST_WINS, |_, s: &VersionsState| s.overlapped().is_none())
            }
        };
        let mut properties = vec![
            Property::always(KEPT, |_, s: &VersionsState| s.lost().is_none()),
            Property::always(AS_OF, |_, s: &VersionsState| s.missed_as_of().is_none()),
            Property::always(COMMITTED, |_, s: &VersionsState| s.dirty().is_none()),
            history,
            Property::always(CAUGHT, |_, s: &VersionsState| s.replay().1.is_none()),
            Property::always(SAME_END, |_, s: &VersionsState| !s.ends_otherwise()),
            Property::sometimes("all commit", |_, s: &VersionsState| {
                s.are_over() && s.txns.iter().all(|txn| txn.decision == Decision::Valid)
            }),
            Property::sometimes("a transaction commits late", |_, s: &VersionsState| {
                s.txns.iter().any(|txn| txn.is_late && txn.decision == Decision::Valid)
            }),
            Property::sometimes(
                "a command has become late, and is void",
                |_, s: &VersionsState| {
                    s.txns.iter().any(|txn| {
                        txn.is_command && txn.is_late && txn.decision == Decision::Failed
                    })
                },
            ),
            Property::sometimes("a version that was kept is read", |_, s: &VersionsState| {
                let is_kept = |it: FoundVersion| matches!(it, FoundVersion::Kept(_));
                s.txns.iter().any(|txn| txn.found.into_iter().any(is_kept))
            }),
        ];
        if self.rules.speculates {
            let name = "a transaction fails with a commit it depends on";
            properties.push(Property::sometimes(name, |_, s: &VersionsState| {
                let shown = |it: FoundVersion| matches!(it, FoundVersion::Shown(_));
                let fails = |txn: &VersionsTxn| txn.decision == Decision::Failed;
                s.txns.iter().any(|txn| fails(txn) && txn.found.into_iter().any(shown))
            }));
        }
        if self.rules.is_short {
            let name = "a transaction that only reads is ended";
            properties.push(Property::sometimes(name, |_, s: &VersionsState| {
                let fails = |txn: &VersionsTxn| txn.decision == Decision::Failed;
                s.txns.iter().any(|txn| fails(txn) && txn.program.writes().is_none())
            }));
        }
        properties
    }
}
