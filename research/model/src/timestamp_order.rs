//! Reading and committing at one timestamp, drawn at the beginning: item "Timestamp order" of
//! docs/protocols.
//!
//! Transactions draw their timestamps, read rows, mark rows, and write the marked rows at commit.
//! Their steps interleave in every way, with the steps of a snapshot, which ends an epoch, and of
//! the removal of a row from its index. Row a is in the index; row b is not at first: a transaction
//! that looks for b finds the gap. The log is one stream. Four promises are checked: a transaction
//! has read the newest versions below its timestamp; a snapshot holds all commits up to its epoch;
//! and replay with one version of each row runs commands on the rows of the original run, and
//! yields the same rows.
//!
//! Left out: which versions are kept (see `versions`; here all are), and weak memory.

mod cases;
mod steps;
mod telling;

pub use cases::cases;

use stateright::{Model, Property};

/// The rows a and b. Row b is in a gap until b is inserted.
const ROWS: usize = 2;
const B: usize = 1;
/// The mark of the thread that removes b from its index.
const SWEEPER: u8 = 9;

/// An access of a transaction to a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum OrderedAccess {
    Read(u8),
    /// Marks the row, to be written at commit; b is inserted if b is not in its index.
    Mark(u8),
    /// Marks the row, reads the row, and does not write the row.
    Visit(u8),
    /// Marks the row, and the transaction fails.
    MarkAndFail(u8),
}

type Accesses = &'static [OrderedAccess];

/// A mistake in the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum OrderMistake {
    LookBeforeReadMark,
    OverwriteReadLater,
    VisitWithoutReadMark,
    GapWithoutReadMark,
    GapCheckedFirst,
    InsertWithoutInheriting,
    RemoveWithoutInheriting,
    InheritBeforeDead,
    CommitInClosedEpoch,
    AskBeforeEntering,
    OverwrittenIsNotLate,
    HeldIsNotLate,
}

/// The model.
#[derive(Debug, Clone)]
pub struct TimestampOrder {
    mistake: Option<OrderMistake>,
    /// Several sets of transactions to run.
    sets: Vec<Vec<Accesses>>,
    /// A snapshot is opened.
    has_snapshot: bool,
    /// b may be removed from its index.
    is_swept: bool,
}

/// The next step of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum OrderPhase {
    Begin,
    /// Looks up the row of the next access.
    LookUp,
    /// Raises the last reader of the row, or of the gap.
    MarkRead,
    /// Looks whether an earlier transaction has the row marked.
    Look,
    /// Reads the newest version that is not later.
    Take,
    /// Looks whether the gap is unchanged.
    CheckGap,
    /// Takes over the last reader of the gap that the row was inserted into.
    Inherit,
    /// Enters the current epoch, to commit.
    Enter,
    /// Asks whether the transaction's own epoch is closed.
    AskClosed,
    /// Raises the last readers of the marked rows that are not written.
    ProtectUnwritten,
    /// Compares the last readers of the rows to overwrite.
    CheckReaders,
    /// Decides whether the transaction logs a command.
    Decide,
    Place,
    /// A command with a place in the log decides whether the command is late.
    Confirm,
    Install,
    Unmark,
    Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum OrderDecision {
    Open,
    /// The transaction commits, if it has not committed yet.
    Valid,
    Failed,
}

/// The progress of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct OrderTxn {
    accesses: Accesses,
    /// The next access.
    at: u8,
    phase: OrderPhase,
    ts: u8,
    epoch: u8,
    /// The epoch entered to commit, or 0.
    entered: u8,
    /// By row, the version read.
    found: [Option<u8>; ROWS],
    /// The version of the gap in which b was not found.
    gap: Option<u8>,
    /// How often b had been removed from its index when b was found there.
    removals: u8,
    is_command: bool,
    decision: OrderDecision,
    /// The transaction's place in the log, or 0.
    place: u8,
}

/// A row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct OrderedRow {
    /// Whether the row is in its index.
    is_there: bool,
    /// The row was inserted, and has not inherited from its gap yet.
    is_locked: bool,
    is_dead: bool,
    /// The version in place: the timestamp of its writer.
    version: u8,
    /// All versions of the row: a bit for each timestamp.
    versions: u8,
    last_read: u8,
    /// The transaction that has marked the row, from 1, or 0.
    marked: u8,
}

/// The gap around b.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct OrderedGap {
    version: u8,
    last_read: u8,
}

/// The next step of the snapshot, and of the removal of b.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Background {
    /// Closes the epoch; marks b.
    First,
    /// Begins the next epoch; says that b is dead.
    Second,
    /// Waits for the commits of its epoch, and reads; hands the last reader of b to the gap.
    Third,
    /// Takes b out of its index.
    Fourth,
    Done,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OrderState {
    clock: u8,
    epoch: u8,
    /// How often b was removed from its index.
    removals: u8,
    /// The last epoch that is closed.
    closed: u8,
    /// By timestamp, the epoch in which the timestamp was drawn.
    epochs: [u8; 5],
    rows: [OrderedRow; ROWS],
    gap: OrderedGap,
    txns: Vec<OrderTxn>,
    /// The number of places taken in the log.
    appended: u8,
    snapshot: Background,
    /// The versions that the snapshot has read.
    snapshot_read: Option<[u8; ROWS]>,
    sweeper: Background,
}

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OrderAction {
    /// The next step of a transaction.
    Next(u8),
    /// A transaction logs data, although it may log a command.
    LogData(u8),
    /// The next step of the snapshot.
    Snapshot,
    /// The next step of the removal.
    Sweep,
}

const AS_OF: &str = "a transaction has read the newest versions below its timestamp";
const PREFIX: &str = "a snapshot holds all that commits up to its epoch";
const CAUGHT: &str = "replay runs a command on the rows that it has read";
const SAME_END: &str = "replay leaves the rows as they were";

impl OrderTxn {
    fn writes(&self, row: usize) -> bool {
        self.accesses.contains(&OrderedAccess::Mark(row as u8))
    }

    fn writes_any(&self) -> bool {
        (0..ROWS).any(|row| self.writes(row))
    }

    fn commits_to(&self, row: usize) -> bool {
        self.decision == OrderDecision::Valid && self.writes(row)
    }
}

impl OrderState {
    /// A transaction that has read a version of a row, the row, and a later version committed below
    /// the reader's timestamp.
    fn missed(&self) -> Option<(usize, usize, u8)> {
        self.txns.iter().enumerate().find_map(|(number, txn)| {
            (0..ROWS).find_map(|row| {
                let found = txn.found[row]?;
                let mut others = self.txns.iter().filter(|other| other.commits_to(row));
                let missed = others.find(|other| (found + 1..txn.ts).contains(&other.ts))?;
                (txn.decision != OrderDecision::Failed).then_some((number, row, missed.ts))
            })
        })
    }

    /// A row of which the snapshot lacks a version of its epoch, and the version.
    fn unseen(&self) -> Option<(usize, u8)> {
        let read = self.snapshot_read?;
        (0..ROWS).find_map(|row| {
            let mut commits = self.txns.iter().filter(|txn| txn.commits_to(row));
            // The snapshot has closed the first epoch.
            let unseen = commits.find(|txn| txn.epoch <= 1 && txn.ts > read[row])?;
            Some((row, unseen.ts))
        })
    }

    /// Replays the log with one version of each row. Returns the rows, and a command that misses a
    /// version read in the original run: its number, the row, and the version found instead.
    fn replay(&self) -> ([u8; ROWS], Option<(usize, usize, u8)>) {
        let mut rows = [0; ROWS];
        for place in 1..=self.appended {
            let at = self.txns.iter().position(|txn| txn.place == place);
            let number = at.expect("every place is of a transaction");
            let txn = &self.txns[number];
            if txn.decision != OrderDecision::Valid {
                continue;
            }
            let differs = |row: &usize| txn.found[*row].is_some_and(|found| found != rows[*row]);
            if let Some(row) = (0..ROWS).find(|row| txn.is_command && differs(row)) {
                return (rows, Some((number, row, rows[row])));
            }
            for row in (0..ROWS).filter(|row| txn.writes(*row)) {
                rows[row] = rows[row].max(txn.ts);
            }
        }
        (rows, None)
    }

    fn are_over(&self) -> bool {
        self.txns.iter().all(|txn| txn.phase == OrderPhase::Over)
    }

    /// Whether replay yields other rows than the rows in place.
    fn ends_otherwise(&self) -> bool {
        self.are_over() && self.replay().0 != self.rows.map(|row| row.version)
    }
}

impl Model for TimestampOrder {
    type State = OrderState;
    type Action = OrderAction;

    fn init_states(&self) -> Vec<OrderState> {
        let txn = |accesses: &Accesses| OrderTxn {
            accesses,
            at: 0,
            phase: OrderPhase::Begin,
            ts: 0,
            epoch: 0,
            entered: 0,
            found: [None; ROWS],
            gap: None,
            removals: 0,
            is_command: false,
            decision: OrderDecision::Open,
            place: 0,
        };
        let begin = |runs: bool| if runs { Background::First } else { Background::Done };
        let in_index = OrderedRow { is_there: true, versions: 1, ..OrderedRow::default() };
        let state = |set: &Vec<Accesses>| OrderState {
            clock: 0,
            epoch: 1,
            removals: 0,
            closed: 0,
            epochs: [0; 5],
            rows: [in_index, OrderedRow { versions: 1, ..OrderedRow::default() }],
            gap: OrderedGap::default(),
            txns: set.iter().map(txn).collect(),
            appended: 0,
            snapshot: begin(self.has_snapshot),
            snapshot_read: None,
            sweeper: begin(self.is_swept),
        };
        self.sets.iter().map(state).collect()
    }

    fn actions(&self, state: &OrderState, actions: &mut Vec<OrderAction>) {
        for (number, txn) in state.txns.iter().enumerate() {
            if state.waits(number) {
                continue;
            }
            actions.push(OrderAction::Next(number as u8));
            if txn.phase == OrderPhase::Decide && !self.is_late(state, number) {
                actions.push(OrderAction::LogData(number as u8));
            }
        }
        if state.snapshot_may_go_on() {
            actions.push(OrderAction::Snapshot);
        }
        if state.sweeper_may_go_on() {
            actions.push(OrderAction::Sweep);
        }
    }

    fn next_state(&self, state: &OrderState, action: OrderAction) -> Option<OrderState> {
        let mut state = state.clone();
        match action {
            OrderAction::Next(number) => self.step(&mut state, number.into()),
            OrderAction::LogData(number) => {
                state.txns[usize::from(number)].phase = OrderPhase::Place;
            }
            OrderAction::Snapshot => state.go_on_with_snapshot(),
            OrderAction::Sweep => self.go_on_with_sweeping(&mut state),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(AS_OF, |_, s: &OrderState| s.missed().is_none()),
            Property::always(PREFIX, |_, s: &OrderState| s.unseen().is_none()),
            Property::always(CAUGHT, |_, s: &OrderState| s.replay().1.is_none()),
            Property::always(SAME_END, |_, s: &OrderState| !s.ends_otherwise()),
            Property::sometimes("all commit", |_, s: &OrderState| {
                s.are_over() && s.txns.iter().all(|txn| txn.decision == OrderDecision::Valid)
            }),
            Property::sometimes("one is behind a later one in the log", |_, s: &OrderState| {
                let before = |a: &OrderTxn| {
                    let is_later = |b: &OrderTxn| b.ts > a.ts && (1..a.place).contains(&b.place);
                    s.txns.iter().any(is_later)
                };
                s.txns.iter().any(|txn| txn.decision == OrderDecision::Valid && before(txn))
            }),
            Property::sometimes("a transaction fails", |_, s: &OrderState| {
                s.txns.iter().any(|txn| txn.decision == OrderDecision::Failed)
            }),
        ];
        if self.has_snapshot {
            properties.push(Property::sometimes("a snapshot is read", |_, s: &OrderState| {
                s.snapshot_read.is_some()
            }));
        }
        if self.is_swept {
            properties.push(Property::sometimes("a row is removed", |_, s: &OrderState| {
                s.sweeper == Background::Done
            }));
        }
        properties
    }
}
