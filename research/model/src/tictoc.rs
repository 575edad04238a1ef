//! TicToc with command records and epochs: item "TicToc" of docs/protocols.
//!
//! Transactions read rows, look up a missing key, and write one row or insert the key. They commit
//! in steps that interleave in every way, at timestamps as in the paper. Some transactions commit
//! late: although rows read were overwritten. Three promises are checked: the histories are
//! serializable; the log has the orders that replay relies on; and a cut between epochs is a prefix
//! of the serial order. Left out: weak memory (loom, in `timestamps.rs` of the schemes), removal of
//! tombstones, and splits of leaves.

mod cases;
mod telling;

pub use cases::cases;

use crate::vector::{BOTTOM, LANES, Vector, join};
use stateright::{Model, Property};

/// The rows a, b and c, and the row under the key k, at first missing.
const ROWS: usize = 4;
const K: u8 = 3;

/// Rules that can be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TicTocRules {
    /// A late transaction logs data.
    late_logs_data: bool,
    /// A transaction is late as well if another transaction holds a row read.
    held_is_late: bool,
    /// A command marks all rows read, not only rows whose `rts` it raises.
    marks_all: bool,
    /// A transaction is late only in the epoch of its beginning.
    same_epoch: bool,
    /// Gaps have timestamps.
    gaps_have_timestamps: bool,
}

const OURS: TicTocRules = TicTocRules {
    late_logs_data: true,
    held_is_late: true,
    marks_all: true,
    same_epoch: true,
    gaps_have_timestamps: true,
};

/// The accesses of a transaction: reads of up to two rows, then one write. Reading K looks the key
/// up, and writing K inserts the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct TicTocProgram {
    reads: [Option<u8>; 2],
    writes: Option<u8>,
    stream: u8,
}

/// The model.
#[derive(Debug, Clone)]
pub struct TicToc {
    rules: TicTocRules,
    /// The programs that run at once, several sets of programs.
    sets: Vec<Vec<TicTocProgram>>,
    /// How often the epoch ends, at most.
    epochs: u8,
}

/// A version, as read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct SeenVersion {
    version: u8,
    /// The last timestamp at which the version is valid.
    until: u8,
    epoch: u8,
    /// Read as the absence of a key without a row.
    is_gap: bool,
}

/// The next step of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Phase {
    /// About to read its first or second row.
    Read(u8),
    /// About to find a place for the row to insert.
    Place,
    /// About to lock the row to write and to fold the row's stamps.
    Lock,
    /// About to reserve a frame, as a command, and to mark the rows read.
    Reserve,
    Validate,
    /// Valid, about to install and release.
    Install,
    Committed,
    Aborted,
}

/// The progress of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct TicTocTxn {
    program: TicTocProgram,
    phase: Phase,
    seen: [SeenVersion; 2],
    began: u8,
    at_least: u8,
    ts: u8,
    epoch: u8,
    /// Whether the transaction logs data because of lateness.
    is_data: bool,
    /// Whether the transaction was valid only in the past.
    was_late: bool,
    vector: Vector,
    /// The vector without the transaction's own position.
    logged: Vector,
    end: u8,
    installed: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct TimedRow {
    version: u8,
    epoch: u8,
    wts: u8,
    rts: u8,
    locked: Option<u8>,
    write_lv: Vector,
    read_lv: Vector,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TicTocState {
    txns: Vec<TicTocTxn>,
    rows: [TimedRow; ROWS],
    /// Whether the key k has a row, perhaps without a version yet.
    placed: bool,
    gap_wts: u8,
    gap_rts: u8,
    gap_read_lv: Vector,
    epoch: u8,
    appended: Vector,
}

/// A step of a transaction, or of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TicTocAction {
    /// The next step of a transaction.
    Next(u8),
    /// The epoch ends.
    EndEpoch,
}

const SERIAL: &str = "what has committed has a serial order";
const CAUGHT: &str = "replay runs a command on the rows that it has read";
const PREFIX: &str = "no transaction precedes one of an earlier epoch";

impl TicTocTxn {
    fn new(program: TicTocProgram) -> Self {
        TicTocTxn {
            program,
            phase: Phase::Read(0),
            seen: Default::default(),
            began: 0,
            at_least: 0,
            ts: 0,
            epoch: 0,
            is_data: false,
            was_late: false,
            vector: BOTTOM,
            logged: BOTTOM,
            end: 0,
            installed: 0,
        }
        .at_next_read(0)
    }

    /// Goes on to the next row to read, or to the step after the reads.
    fn at_next_read(mut self, from: usize) -> Self {
        let next = (from..2).find(|at| self.program.reads[*at].is_some());
        self.phase = match (next, self.program.writes) {
            (Some(at), _) => Phase::Read(at as u8),
            (None, Some(K)) => Phase::Place,
            (None, Some(_)) => Phase::Lock,
            (None, None) => Phase::Validate,
        };
        self
    }

    /// The rows read, with the version seen, except the row that the transaction overwrites.
    fn only_read(&self) -> impl Iterator<Item = (u8, SeenVersion)> + '_ {
        let pairs = self.program.reads.iter().zip(self.seen);
        let pairs = pairs.filter_map(|(row, seen)| row.map(|row| (row, seen)));
        pairs.filter(|(row, _)| self.program.writes != Some(*row))
    }

    fn has_seen(&self, row: u8) -> Option<u8> {
        let at = self.program.reads.iter().position(|read| *read == Some(row))?;
        Some(self.seen[at].version)
    }
}

impl TicToc {
    fn abort(state: &mut TicTocState, number: u8) {
        let txn = &mut state.txns[number as usize];
        txn.phase = Phase::Aborted;
        for row in &mut state.rows {
            if row.locked == Some(number) {
                row.locked = None;
            }
        }
    }

    fn read(state: &mut TicTocState, number: u8, at: usize) {
        let epoch = state.epoch;
        let txn = &mut state.txns[number as usize];
        let row_at = txn.program.reads[at].expect("there is one to read");
        if row_at == K && !state.placed {
            txn.seen[at] = SeenVersion { is_gap: true, ..SeenVersion::default() };
            txn.at_least = txn.at_least.max(state.gap_wts);
            *txn = txn.at_next_read(at + 1);
            return;
        }
        let row = state.rows[row_at as usize];
        if txn.began == 0 {
            txn.began = epoch;
        }
        txn.seen[at] =
            SeenVersion { version: row.version, until: row.rts, epoch: row.epoch, is_gap: false };
        txn.at_least = txn.at_least.max(row.wts);
        txn.vector = join(txn.vector, row.write_lv);
        *txn = txn.at_next_read(at + 1);
    }

    /// Links the row of k. The row inherits the stamps of the gap.
    fn place(&self, state: &mut TicTocState, number: u8) {
        if !state.placed {
            state.placed = true;
            let row = &mut state.rows[K as usize];
            row.read_lv = state.gap_read_lv;
            if self.rules.gaps_have_timestamps {
                (row.wts, row.rts) = (state.gap_wts, state.gap_rts);
            }
        }
        state.txns[number as usize].phase = Phase::Lock;
    }

    fn lock(state: &mut TicTocState, number: u8) {
        let program = state.txns[number as usize].program;
        let row = &mut state.rows[program.writes.expect("it writes") as usize];
        if row.locked.is_some() || (program.writes == Some(K) && row.version > 0) {
            return Self::abort(state, number);
        }
        row.locked = Some(number);
        let txn = &mut state.txns[number as usize];
        txn.vector = join(txn.vector, join(row.write_lv, row.read_lv));
        txn.at_least = txn.at_least.max(row.rts + 1);
        txn.ts = txn.at_least;
        txn.epoch = state.epoch;
        txn.phase = Phase::Reserve;
    }

    /// Whether a row has another version than the version read, or another transaction holds the
    /// row.
    fn is_late_for(&self, state: &TicTocState, number: u8, row: u8, seen: &SeenVersion) -> bool {
        let now = &state.rows[row as usize];
        let is_held = now.locked.is_some_and(|holder| holder != number);
        now.version != seen.version || (is_held && self.rules.held_is_late)
    }

    fn reserve(&self, state: &mut TicTocState, number: u8) {
        let txn = state.txns[number as usize];
        let lane = txn.program.stream as usize;
        // A transaction that is late by now does not try to be a command.
        let is_late = txn
            .only_read()
            .any(|(row, seen)| !seen.is_gap && self.is_late_for(state, number, row, &seen));
        state.appended[lane] += 1;
        let end = state.appended[lane];
        let own = &mut state.txns[number as usize];
        (own.logged, own.end) = (own.vector, end);
        own.vector[lane] = end;
        own.is_data = is_late && self.rules.late_logs_data;
        own.phase = Phase::Validate;
        let vector = own.vector;
        if own.is_data {
            return;
        }
        for (row, seen) in txn.only_read() {
            if seen.is_gap {
                state.gap_read_lv = join(state.gap_read_lv, vector);
            } else if self.rules.marks_all || seen.until < txn.ts {
                let row = &mut state.rows[row as usize];
                row.read_lv = join(row.read_lv, vector);
            }
        }
    }

    fn validate(&self, state: &mut TicTocState, number: u8) {
        let txn = state.txns[number as usize];
        let is_reader = txn.program.writes.is_none();
        let ts = if is_reader { txn.at_least } else { txn.ts };
        let mut late = false;
        let mut newest = 0;
        for (row, seen) in txn.only_read() {
            newest = newest.max(seen.epoch);
            if seen.is_gap {
                state.gap_rts = state.gap_rts.max(ts);
                newest = state.epoch;
                // A row placed by the transaction itself is its own.
                if state.placed {
                    return Self::abort(state, number);
                }
                continue;
            }
            let now = state.rows[row as usize];
            let is_held = now.locked.is_some_and(|holder| holder != number);
            let is_changed = now.version != seen.version;
            if (is_changed || is_held) && seen.until < ts {
                return Self::abort(state, number);
            }
            late |= self.is_late_for(state, number, row, &seen);
            let row = &mut state.rows[row as usize];
            if !is_changed && !is_held {
                row.rts = row.rts.max(ts);
            }
        }
        for (row, seen) in txn.program.reads.iter().zip(txn.seen) {
            let overwritten = row.is_some() && *row == txn.program.writes;
            if overwritten
                && !seen.is_gap
                && state.rows[row.unwrap_or(0) as usize].version != seen.version
            {
                return Self::abort(state, number);
            }
        }
        let epoch = if is_reader { newest } else { txn.epoch };
        if late && self.rules.same_epoch && epoch > txn.began {
            return Self::abort(state, number);
        }
        if late && !is_reader && !txn.is_data && self.rules.late_logs_data {
            // The transaction's frame as a command is void.
            return Self::abort(state, number);
        }
        let own = &mut state.txns[number as usize];
        own.ts = ts;
        own.was_late = late;
        own.phase = if is_reader { Phase::Committed } else { Phase::Install };
    }

    fn install(state: &mut TicTocState, number: u8) {
        let txn = &mut state.txns[number as usize];
        let row = &mut state.rows[txn.program.writes.expect("it writes") as usize];
        row.version += 1;
        row.epoch = txn.epoch;
        (row.wts, row.rts) = (txn.ts, txn.ts);
        row.locked = None;
        row.write_lv = join(row.write_lv, txn.vector);
        txn.installed = row.version;
        txn.phase = Phase::Committed;
    }

    /// Whether `before` precedes `after` by a conflict.
    fn precedes(before: &TicTocTxn, after: &TicTocTxn) -> bool {
        let (b, a) = (&before.program, &after.program);
        let raw =
            b.writes.and_then(|row| after.has_seen(row)).is_some_and(|v| before.installed <= v);
        let waw = b.writes.is_some() && b.writes == a.writes && before.installed < after.installed;
        let war =
            a.writes.and_then(|row| before.has_seen(row)).is_some_and(|v| v < after.installed);
        raw || waw || war
    }

    /// Pairs of committed transactions. The first precedes the second by a conflict.
    fn conflicts(state: &TicTocState) -> Vec<(usize, usize)> {
        let done = |at: &usize| state.txns[*at].phase == Phase::Committed;
        let all: Vec<usize> = (0..state.txns.len()).filter(done).collect();
        let pairs = all.iter().flat_map(|b| all.iter().map(move |a| (*b, *a)));
        pairs.filter(|(b, a)| b != a && Self::precedes(&state.txns[*b], &state.txns[*a])).collect()
    }

    /// For each transaction, the transactions that it precedes by a chain of conflicts.
    fn reach(state: &TicTocState) -> Vec<u32> {
        let mut reach = vec![0u32; state.txns.len()];
        for (b, a) in Self::conflicts(state) {
            reach[b] |= 1 << a;
        }
        for _ in 0..reach.len() {
            for at in 0..reach.len() {
                let beyond = (0..reach.len()).filter(|to| reach[at] >> to & 1 == 1);
                reach[at] |= beyond.fold(0, |set, to| set | reach[to]);
            }
        }
        reach
    }

    /// A transaction that precedes itself.
    fn circle(state: &TicTocState) -> Option<usize> {
        Self::reach(state)
            .iter()
            .enumerate()
            .find(|(at, set)| *set >> at & 1 == 1)
            .map(|(at, _)| at)
    }

    /// Two logged transactions in an order that replay needs and does not learn.
    fn missed(state: &TicTocState) -> Option<(usize, usize)> {
        Self::conflicts(state).into_iter().find(|(b, a)| {
            let (before, after) = (&state.txns[*b], &state.txns[*a]);
            if before.end == 0 || after.end == 0 {
                return false;
            }
            // A data record need not be replayed after the writers of its inputs, and needs no
            // version at replay; versions order the writers of a row.
            let reads = !before.is_data && Self::reads_before(before, after);
            let is_needed = reads || (!after.is_data && !Self::reads_before(before, after));
            is_needed && after.logged[before.program.stream as usize] < before.end
        })
    }

    /// Whether `before` has read the version that `after` replaced, and nothing else relates the
    /// two.
    fn reads_before(before: &TicTocTxn, after: &TicTocTxn) -> bool {
        let (b, a) = (&before.program, &after.program);
        let raw =
            b.writes.and_then(|row| after.has_seen(row)).is_some_and(|v| before.installed <= v);
        !(raw || b.writes.is_some() && b.writes == a.writes)
    }

    /// A transaction that precedes a transaction of an earlier epoch. Both are in the log.
    fn no_prefix(state: &TicTocState) -> Option<(usize, usize)> {
        let reach = Self::reach(state);
        let logged: Vec<usize> =
            (0..reach.len()).filter(|at| state.txns[*at].installed > 0).collect();
        let pairs = logged.iter().flat_map(|b| logged.iter().map(move |a| (*b, *a)));
        let later = |(b, a): &(usize, usize)| {
            reach[*b] >> a & 1 == 1 && state.txns[*b].epoch > state.txns[*a].epoch
        };
        let mut found = pairs.filter(later);
        found.next()
    }
}

impl Model for TicToc {
    type State = TicTocState;
    type Action = TicTocAction;

    fn init_states(&self) -> Vec<TicTocState> {
        // Versions that are valid for a while: otherwise lateness takes more transactions.
        let row = |rts| TimedRow { epoch: 1, rts, ..TimedRow::default() };
        let state = |set: &Vec<TicTocProgram>| TicTocState {
            txns: set.iter().copied().map(TicTocTxn::new).collect(),
            rows: [row(3), row(0), row(0), TimedRow::default()],
            placed: false,
            gap_wts: 0,
            gap_rts: 0,
            gap_read_lv: BOTTOM,
            epoch: 1,
            appended: [0; LANES],
        };
        self.sets.iter().rev().map(state).collect()
    }

    fn actions(&self, state: &TicTocState, actions: &mut Vec<TicTocAction>) {
        for (number, txn) in state.txns.iter().enumerate() {
            let is_locked = |at: u8| {
                let row = txn.program.reads[at as usize].expect("there is one to read");
                (row != K || state.placed) && state.rows[row as usize].locked.is_some()
            };
            let waits = match txn.phase {
                Phase::Read(at) => is_locked(at),
                Phase::Committed | Phase::Aborted => true,
                _ => false,
            };
            if !waits {
                actions.push(TicTocAction::Next(number as u8));
            }
        }
        if state.epoch <= self.epochs {
            actions.push(TicTocAction::EndEpoch);
        }
    }

    fn next_state(&self, state: &TicTocState, action: TicTocAction) -> Option<TicTocState> {
        let mut state = state.clone();
        match action {
            TicTocAction::EndEpoch => state.epoch += 1,
            TicTocAction::Next(number) => match state.txns[number as usize].phase {
                Phase::Read(at) => Self::read(&mut state, number, at as usize),
                Phase::Place => self.place(&mut state, number),
                Phase::Lock => Self::lock(&mut state, number),
                Phase::Reserve => self.reserve(&mut state, number),
                Phase::Validate => self.validate(&mut state, number),
                Phase::Install => Self::install(&mut state, number),
                Phase::Committed | Phase::Aborted => return None,
            },
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(SERIAL, |_, s| TicToc::circle(s).is_none()),
            Property::always(CAUGHT, |_, s| TicToc::missed(s).is_none()),
            Property::always(PREFIX, |_, s| TicToc::no_prefix(s).is_none()),
            Property::sometimes("a transaction commits late", |_, s: &TicTocState| {
                s.txns.iter().any(|txn| txn.phase == Phase::Committed && txn.was_late)
            }),
            Property::sometimes("all commit", |_, s: &TicTocState| {
                s.txns.iter().all(|txn| txn.phase == Phase::Committed)
            }),
        ]
    }
}
