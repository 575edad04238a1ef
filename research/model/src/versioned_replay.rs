//! Replay on several versions of rows: item "Versions at replay" of docs/protocols.
//!
//! Transactions read a row as of the clock at their beginning, mark a row, draw a timestamp,
//! validate, state a floor, take a place in one of two streams, and write the row. Then the process
//! ends, at any moment, perhaps after a checkpoint, and the log is replayed in every order allowed
//! by the vectors. Two promises are checked: a command finds the version of its original read, and
//! the versions of a row are replayed in their order.
//!
//! Every record with a place is durable: `judging` models durability. `versions` models how readers
//! and writers find each other: here each step of that search is atomic. Every record states a
//! floor. Versions are forgotten as early as the rules allow: early forgetting is worst for
//! commands.

mod cases;
mod telling;

pub use cases::cases;

use crate::vector::{BOTTOM, Vector, covers, join};
use stateright::{Model, Property};

const STREAMS: usize = 2;
/// The first timestamp of the second epoch.
const SECOND_EPOCH: u8 = 4;
/// Above all timestamps.
const ALL: u8 = u8::MAX;

/// The accesses of a transaction: perhaps a read of a row, and a write of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ReadAndWrite {
    reads: Option<u8>,
    writes: u8,
}

/// The version that a replayed command finds of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum FoundAtReplay {
    /// The newest version.
    Newest,
    /// The newest version up to the command's own timestamp.
    AsOfCommit,
    /// The newest version up to the timestamp of the command's reads.
    AsOfBeginning,
}

/// The timestamp up to which older versions are forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Forgetting {
    Never,
    /// Each version at the replay of the next version.
    AtOnce,
    /// Up to the lowest floor of the unfinished streams.
    BelowFloor,
}

/// A mistake in the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum VersionedReplayMistake {
    /// The floor is the clock, whatever commits.
    FloorIsClock,
    /// The common floor is the highest of all streams.
    HighestFloor,
    /// A command is replayed although its reads are as of another epoch than its own.
    StraddlingCommands,
    /// A command does not follow the writer of the version read.
    OverlookReads,
}

/// The rules.
#[derive(Debug, Clone, Copy)]
struct VersionedReplayRules {
    /// Transactions are valid although rows that they have read were overwritten.
    snapshot_isolation: bool,
    found: FoundAtReplay,
    forgetting: Forgetting,
    /// There may be a checkpoint of the first epoch.
    has_checkpoint: bool,
    mistake: Option<VersionedReplayMistake>,
}

const SERIALIZABLE: VersionedReplayRules = VersionedReplayRules {
    snapshot_isolation: false,
    found: FoundAtReplay::AsOfCommit,
    forgetting: Forgetting::BelowFloor,
    has_checkpoint: true,
    mistake: None,
};

const OF_SNAPSHOTS: VersionedReplayRules = VersionedReplayRules {
    snapshot_isolation: true,
    found: FoundAtReplay::AsOfBeginning,
    ..SERIALIZABLE
};

/// The model.
#[derive(Debug, Clone)]
pub struct VersionedReplay {
    rules: VersionedReplayRules,
    /// Several sets of transactions to run.
    sets: Vec<Vec<ReadAndWrite>>,
}

/// The next step of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum LoggedPhase {
    Begin,
    Read,
    Mark,
    Draw,
    Validate,
    StateFloor,
    Place,
    Write,
    Committed,
    Failed,
}

/// The progress of a transaction, and of its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct LoggedTxn {
    program: ReadAndWrite,
    phase: LoggedPhase,
    as_of: u8,
    /// The version read.
    found: u8,
    /// The transaction's timestamp, or 0.
    tid: u8,
    floor: u8,
    is_command: bool,
    stream: usize,
    /// The end of the record, or 0.
    end: u8,
    /// The records that the transaction follows.
    follows: Vector,
    is_replayed: bool,
    /// The version found at replay in place of the original one: a version, or none.
    finds_instead: Option<Option<u8>>,
    /// A later version of the row was replayed before.
    is_out_of_order: bool,
}

impl LoggedTxn {
    fn new(program: ReadAndWrite) -> Self {
        LoggedTxn {
            program,
            phase: LoggedPhase::Begin,
            as_of: 0,
            found: 0,
            tid: 0,
            floor: 0,
            is_command: true,
            stream: 0,
            end: 0,
            follows: BOTTOM,
            is_replayed: false,
            finds_instead: None,
            is_out_of_order: false,
        }
    }

    /// Whether the transaction has marked a row.
    fn has_marked(&self, row: u8) -> bool {
        use LoggedPhase as P;
        let has_mark =
            matches!(self.phase, P::Draw | P::Validate | P::StateFloor | P::Place | P::Write);
        has_mark && self.program.writes == row
    }

    /// Whether the transaction has a timestamp, and no place yet.
    fn commits(&self) -> bool {
        use LoggedPhase as P;
        matches!(self.phase, P::Validate | P::StateFloor | P::Place)
    }

    fn straddles(&self) -> bool {
        self.as_of < SECOND_EPOCH && self.tid >= SECOND_EPOCH
    }

    /// The record's vector, with the record's own position.
    fn vector(&self) -> Vector {
        let mut own = BOTTOM;
        own[self.stream] = self.end;
        join(self.follows, own)
    }
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct VersionedReplayState {
    clock: u8,
    txns: Vec<LoggedTxn>,
    /// Replay has begun.
    replays: bool,
    /// Replay has begun with a checkpoint of the first epoch.
    from_checkpoint: bool,
}

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VersionedReplayAction {
    /// The next step of a transaction.
    Next(u8),
    /// A transaction takes a place in a stream.
    Place(u8, usize),
    /// The second epoch begins.
    NextEpoch,
    /// The process ends, and replay begins.
    Crash,
    /// The process ends after a checkpoint of the first epoch, and replay begins.
    CrashAfterCheckpoint,
    /// The record of a transaction is replayed.
    Replay(u8),
}

const CAUGHT: &str = "a command finds at replay the version that it has read";
const IN_ORDER: &str = "the versions of a row are replayed in their order";

impl VersionedReplayState {
    /// The transaction that has written the newest version of a row up to a timestamp.
    fn newest(&self, row: u8, up_to: u8) -> Option<&LoggedTxn> {
        let has_written = |txn: &&LoggedTxn| match self.replays {
            true => txn.is_replayed,
            false => txn.phase == LoggedPhase::Committed,
        };
        let of_row = self.txns.iter().filter(has_written).filter(|it| it.program.writes == row);
        of_row.filter(|txn| txn.tid <= up_to).max_by_key(|txn| txn.tid)
    }

    fn newest_tid(&self, row: u8, up_to: u8) -> u8 {
        self.newest(row, up_to).map_or(0, |txn| txn.tid)
    }

    /// The records of a stream, in stream order.
    fn records(&self, stream: usize) -> Vec<&LoggedTxn> {
        let in_stream = |txn: &&LoggedTxn| txn.end > 0 && txn.stream == stream;
        let mut records: Vec<_> = self.txns.iter().filter(in_stream).collect();
        records.sort_by_key(|txn| txn.end);
        records
    }

    /// The position up to which each stream is replayed.
    fn resolved(&self) -> Vector {
        let mut resolved = BOTTOM;
        for (stream, to) in resolved.iter_mut().enumerate().take(STREAMS) {
            let replayed = self.records(stream).iter().take_while(|it| it.is_replayed).count();
            *to = replayed as u8;
        }
        resolved
    }

    /// The timestamp up to which versions with a successor are forgotten.
    fn forgotten_up_to(&self, rules: &VersionedReplayRules) -> u8 {
        match rules.forgetting {
            Forgetting::Never => return 0,
            Forgetting::AtOnce => return ALL,
            Forgetting::BelowFloor => {}
        }
        let resolved = self.resolved();
        let floors = (0..STREAMS).filter_map(|stream| {
            let records = self.records(stream);
            let done = usize::from(resolved[stream]);
            // With the floor of the next record.
            let reached = records.iter().take(done + 1).map(|txn| txn.floor).max();
            (done < records.len()).then_some(reached.unwrap_or(0))
        });
        match rules.mistake {
            Some(VersionedReplayMistake::HighestFloor) => floors.max().unwrap_or(ALL),
            _ => floors.min().unwrap_or(ALL),
        }
    }

    /// Returns the version found by a command at replay of its read. `None`: the version was
    /// forgotten, or the checkpoint lacks the version.
    fn finds(&self, rules: &VersionedReplayRules, txn: &LoggedTxn, row: u8) -> Option<u8> {
        let up_to = match rules.found {
            FoundAtReplay::Newest => ALL,
            FoundAtReplay::AsOfCommit => txn.tid,
            FoundAtReplay::AsOfBeginning => txn.as_of,
        };
        let found = self.newest_tid(row, up_to);
        let kept_from = self.newest_tid(row, self.forgotten_up_to(rules));
        let image = match self.from_checkpoint {
            true => self.newest_tid(row, SECOND_EPOCH - 1),
            false => 0,
        };
        (found >= kept_from.max(image)).then_some(found)
    }

    fn is_held_below(&self, number: usize, row: u8, tid: u8) -> bool {
        let mut others = self.txns.iter().enumerate().filter(|(other, _)| *other != number);
        others.any(|(_, it)| it.has_marked(row) && it.tid > 0 && it.tid <= tid)
    }

    /// Whether all transactions with timestamps of the first epoch are over, and no transaction can
    /// still draw such a timestamp.
    fn may_have_checkpoint(&self) -> bool {
        let is_over = |txn: &LoggedTxn| {
            txn.tid == 0
                || txn.tid >= SECOND_EPOCH
                || matches!(txn.phase, LoggedPhase::Committed | LoggedPhase::Failed)
        };
        self.clock >= SECOND_EPOCH && self.txns.iter().all(is_over)
    }

    fn crash(&mut self, from_checkpoint: bool) {
        self.replays = true;
        self.from_checkpoint = from_checkpoint;
        for txn in &mut self.txns {
            txn.is_replayed = from_checkpoint && txn.end > 0 && txn.tid < SECOND_EPOCH;
        }
    }

    fn is_replayed(&self) -> bool {
        self.replays && self.txns.iter().all(|txn| txn.end == 0 || txn.is_replayed)
    }
}

impl VersionedReplay {
    /// The next step of a transaction, except the step that takes a place.
    fn step(&self, state: &mut VersionedReplayState, number: usize) {
        let mut txn = state.txns[number];
        let ReadAndWrite { reads, writes } = txn.program;
        let mistake = self.rules.mistake;
        txn.phase = match txn.phase {
            LoggedPhase::Begin => {
                txn.as_of = state.clock;
                LoggedPhase::Read
            }
            LoggedPhase::Read => {
                txn.found = reads.map_or(0, |row| state.newest_tid(row, txn.as_of));
                LoggedPhase::Mark
            }
            LoggedPhase::Mark => {
                let is_held = state.txns.iter().any(|other| other.has_marked(writes));
                match is_held || state.newest_tid(writes, ALL) > txn.as_of {
                    true => LoggedPhase::Failed,
                    false => LoggedPhase::Draw,
                }
            }
            LoggedPhase::Draw => {
                state.clock += 1;
                txn.tid = state.clock;
                let may_straddle = mistake == Some(VersionedReplayMistake::StraddlingCommands);
                txn.is_command = !self.rules.snapshot_isolation || !txn.straddles() || may_straddle;
                LoggedPhase::Validate
            }
            LoggedPhase::Validate => {
                let is_valid = self.rules.snapshot_isolation
                    || reads.filter(|row| *row != writes).is_none_or(|row| {
                        !state.is_held_below(number, row, txn.tid)
                            && state.newest_tid(row, txn.tid) == txn.found
                    });
                if is_valid { LoggedPhase::StateFloor } else { LoggedPhase::Failed }
            }
            LoggedPhase::StateFloor => {
                txn.floor = self.floor(state);
                LoggedPhase::Place
            }
            LoggedPhase::Write => LoggedPhase::Committed,
            LoggedPhase::Place | LoggedPhase::Committed | LoggedPhase::Failed => {
                unreachable!("it is not this step's")
            }
        };
        state.txns[number] = txn;
    }

    /// The floor of a record: no record placed later reads below the floor at replay.
    fn floor(&self, state: &VersionedReplayState) -> u8 {
        let of_epoch = if state.clock >= SECOND_EPOCH { SECOND_EPOCH } else { 0 };
        let above = if self.rules.snapshot_isolation { of_epoch } else { state.clock };
        if self.rules.mistake == Some(VersionedReplayMistake::FloorIsClock) {
            return state.clock;
        }
        let reads = |txn: &LoggedTxn| match self.rules.snapshot_isolation {
            true => txn.as_of,
            false => txn.tid,
        };
        state.txns.iter().filter(|txn| txn.commits()).map(reads).fold(above, u8::min)
    }

    fn place(&self, state: &mut VersionedReplayState, number: usize, stream: usize) {
        let mut txn = state.txns[number];
        let vector = |version: Option<&LoggedTxn>| version.map_or(BOTTOM, LoggedTxn::vector);
        txn.follows = vector(state.newest(txn.program.writes, ALL));
        if self.rules.mistake != Some(VersionedReplayMistake::OverlookReads)
            && let Some(row) = txn.program.reads
        {
            txn.follows = join(txn.follows, vector(state.newest(row, txn.found)));
        }
        txn.stream = stream;
        txn.end = state.records(stream).len() as u8 + 1;
        txn.phase = LoggedPhase::Write;
        state.txns[number] = txn;
    }

    fn replay(&self, state: &mut VersionedReplayState, number: usize) {
        let mut txn = state.txns[number];
        if txn.is_command
            && let Some(row) = txn.program.reads
        {
            let found = state.finds(&self.rules, &txn, row);
            txn.finds_instead = (found != Some(txn.found)).then_some(found);
        }
        txn.is_out_of_order = state.newest_tid(txn.program.writes, ALL) > txn.tid;
        txn.is_replayed = true;
        state.txns[number] = txn;
    }
}

impl Model for VersionedReplay {
    type State = VersionedReplayState;
    type Action = VersionedReplayAction;

    fn init_states(&self) -> Vec<VersionedReplayState> {
        let state = |set: &Vec<ReadAndWrite>| VersionedReplayState {
            clock: 0,
            txns: set.iter().map(|program| LoggedTxn::new(*program)).collect(),
            replays: false,
            from_checkpoint: false,
        };
        self.sets.iter().map(state).collect()
    }

    fn actions(&self, state: &VersionedReplayState, actions: &mut Vec<VersionedReplayAction>) {
        use VersionedReplayAction as Action;
        let resolved = state.resolved();
        for (number, txn) in state.txns.iter().enumerate() {
            let named = number as u8;
            if state.replays {
                let may_run = txn.end > 0 && !txn.is_replayed && covers(resolved, txn.follows);
                actions.extend(may_run.then_some(Action::Replay(named)));
                continue;
            }
            match txn.phase {
                LoggedPhase::Committed | LoggedPhase::Failed => {}
                LoggedPhase::Place => {
                    actions.extend((0..STREAMS).map(|stream| Action::Place(named, stream)));
                }
                LoggedPhase::Read
                    if txn
                        .program
                        .reads
                        .is_some_and(|row| state.is_held_below(number, row, txn.as_of)) => {}
                _ => actions.push(Action::Next(named)),
            }
        }
        if state.replays {
            return;
        }
        actions.push(Action::Crash);
        if self.rules.has_checkpoint {
            actions.extend((state.clock < SECOND_EPOCH).then_some(Action::NextEpoch));
            actions.extend(state.may_have_checkpoint().then_some(Action::CrashAfterCheckpoint));
        }
    }

    fn next_state(
        &self,
        state: &VersionedReplayState,
        action: VersionedReplayAction,
    ) -> Option<VersionedReplayState> {
        use VersionedReplayAction as Action;
        let mut state = state.clone();
        match action {
            Action::Next(number) => self.step(&mut state, number.into()),
            Action::Place(number, stream) => self.place(&mut state, number.into(), stream),
            Action::NextEpoch => state.clock = SECOND_EPOCH,
            Action::Crash => state.crash(false),
            Action::CrashAfterCheckpoint => state.crash(true),
            Action::Replay(number) => self.replay(&mut state, number.into()),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        type State = VersionedReplayState;
        let mut properties = vec![
            Property::always(CAUGHT, |_, s: &State| {
                s.txns.iter().all(|txn| txn.finds_instead.is_none())
            }),
            Property::always(IN_ORDER, |_, s: &State| {
                s.txns.iter().all(|txn| !txn.is_out_of_order)
            }),
            Property::sometimes("all commit, and are replayed", |_, s: &State| {
                s.is_replayed() && s.txns.iter().all(|txn| txn.phase == LoggedPhase::Committed)
            }),
            Property::sometimes("a command finds an older version", |_, s: &State| {
                s.txns.iter().any(|txn| {
                    let row = txn.program.reads;
                    txn.is_replayed && row.is_some_and(|row| s.newest_tid(row, ALL) > txn.tid)
                })
            }),
        ];
        if self.rules.forgetting == Forgetting::BelowFloor {
            let name = "a version is forgotten before the end";
            properties.push(Property::sometimes(name, |model: &Self, s: &State| {
                let floor = s.forgotten_up_to(&model.rules);
                let is_below = |txn: &LoggedTxn| txn.is_replayed && txn.tid <= floor;
                s.replays && !s.is_replayed() && s.txns.iter().any(is_below)
            }));
        }
        properties
    }
}
