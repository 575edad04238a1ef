//! Checkpoints: an item of docs/protocols.
//!
//! Transactions hold their rows locked and run in three steps: lock and read the epoch, reserve a
//! frame, install. A checkpoint runs concurrently: it publishes a cut, advances the epoch, scans
//! the rows one by one, switches the manifest, truncates the log. Each state is checked for a power
//! cut at that point: the result of recovery, for every possible end of the streams.

use crate::case::{Case, Rules};
use crate::check::{Outcome, Protocol, explore};
use crate::history::ROWS;
use crate::vector::{BOTTOM, LANES, Vector, covers, join, show};
use stateright::{Model, Property};

const STREAMS: usize = 2;
const ROW_NAMES: [&str; ROWS] = ["a", "b"];

/// The model.
#[derive(Debug, Clone)]
pub struct Checkpointing {
    /// Number of transactions.
    pub txns: usize,
    /// Whether records are commands, which must find the same values at replay as in the run, or
    /// row images.
    pub commands: bool,
    /// Whether the scan begins only when all transactions up to the cut are installed.
    pub waits_for_installs: bool,
    /// Whether the scan skips rows above the cut, because the side buffer has their before-images.
    pub cut: bool,
    /// Whether writers above the cut save before-images in the side buffer.
    pub side_buffer: bool,
    /// Whether the manifest is switched only once the log is durable up to the cut.
    pub waits_for_log: bool,
    /// Whether the log is truncated before the manifest is switched.
    pub truncates_first: bool,
    /// Whether replay skips the records up to the cut that are still in the log.
    pub skips: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum At {
    Locked,
    Reserved,
    Installed,
}

/// The accesses of a transaction, and its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Op {
    reads: Option<u8>,
    writes: u8,
    stream: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Txn {
    op: Op,
    at: At,
    epoch: u8,
    vector: Vector,
    read_from: Option<u8>,
}

impl Txn {
    fn touches(&self, row: u8) -> bool {
        self.op.reads == Some(row) || self.op.writes == row
    }

    fn end(&self) -> u8 {
        self.vector[self.op.stream as usize]
    }
}

/// The last writer of each row; a transaction's number is its version.
type Rows = [Option<u8>; ROWS];

/// The progress of the checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Stage {
    Idle,
    Published,
    Advanced,
    /// This many rows are scanned.
    Scanning(u8),
    Named,
    Truncated,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// In lock order.
    txns: Vec<Txn>,
    rows: Rows,
    stamps: [(Vector, Vector); ROWS],
    appended: Vector,
    durable: Vector,
    epoch: u8,
    stage: Stage,
    /// The ends of the streams at the publication of the cut, and after all installs up to the cut.
    from: Vector,
    up_to: Vector,
    image: Rows,
    side: [Option<Option<u8>>; ROWS],
    truncated: bool,
    named: bool,
}

/// A step of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// A transaction takes its locks and reads the epoch.
    Begin(Op),
    /// A transaction's next step.
    Next(u8),
    /// All frames of a stream become durable.
    Flush(usize),
    /// The checkpoint's next step.
    Checkpoint,
}

const RIGHT: &str = "recovery yields the effects of exactly the live transactions";
/// The epoch of the only cut.
const CUT: u8 = 1;

impl Checkpointing {
    /// The rules as built, for commands.
    pub fn ours() -> Checkpointing {
        Checkpointing {
            txns: 3,
            commands: true,
            waits_for_installs: true,
            cut: true,
            side_buffer: true,
            waits_for_log: true,
            truncates_first: false,
            skips: true,
        }
    }

    /// Recovers from streams with these ends. Fails if a command reads another value than in the
    /// run.
    fn recover(&self, state: &State, ends: Vector) -> Result<Rows, String> {
        let mut rows = if state.named { state.image } else { [None; ROWS] };
        for (number, txn) in state.txns.iter().enumerate() {
            let lane = txn.op.stream as usize;
            let there = txn.at != At::Locked
                && txn.end() <= ends[lane]
                && !(state.truncated && txn.end() <= state.from[lane]);
            let skipped = state.named && self.skips && txn.epoch <= CUT;
            if !there || skipped || !covers(ends, txn.vector) {
                continue;
            }
            let number = number as u8;
            let row = &mut rows[txn.op.writes as usize];
            if !self.commands {
                *row = (*row).max(Some(number));
                continue;
            }
            if let Some(read) = txn.op.reads
                && rows[read as usize] != txn.read_from
            {
                let found = rows[read as usize];
                return Err(format!(
                    "T{}, replayed, reads {} with {}, not {}",
                    number + 1,
                    ROW_NAMES[read as usize],
                    name(found),
                    name(txn.read_from)
                ));
            }
            rows[txn.op.writes as usize] = Some(number);
        }
        Ok(rows)
    }

    fn expected(state: &State, ends: Vector) -> Rows {
        let mut rows = [None; ROWS];
        for (number, txn) in state.txns.iter().enumerate() {
            if txn.at != At::Locked && covers(ends, txn.vector) {
                rows[txn.op.writes as usize] = Some(number as u8);
            }
        }
        rows
    }

    /// Describes a power cut with a wrong recovered state, if there is one.
    fn wrong(&self, state: &State) -> Option<String> {
        let lanes = |lane: usize| state.durable[lane]..=state.appended[lane];
        let all = lanes(0).flat_map(|first| lanes(1).map(move |second| [first, second, 0]));
        for ends in all {
            let cut = format!("if power fails with streams up to {}", show(ends, STREAMS));
            let expected = Self::expected(state, ends);
            match self.recover(state, ends) {
                Err(fault) => return Some(format!("{cut}: {fault}")),
                Ok(rows) => {
                    if let Some(row) = (0..ROWS).find(|row| rows[*row] != expected[*row]) {
                        return Some(format!(
                            "{cut}: {} is recovered with {}, not {}",
                            ROW_NAMES[row],
                            name(rows[row]),
                            name(expected[row])
                        ));
                    }
                }
            }
        }
        None
    }

    fn begin(state: &mut State, op: Op) {
        let mut vector = BOTTOM;
        for (row, writes) in [(op.reads, false), (Some(op.writes), true)] {
            let Some(row) = row else { continue };
            let (write, read) = state.stamps[row as usize];
            vector = join(vector, write);
            if writes {
                vector = join(vector, read);
            }
        }
        let read_from = op.reads.and_then(|row| state.rows[row as usize]);
        state.txns.push(Txn { op, at: At::Locked, epoch: state.epoch, vector, read_from });
    }

    fn next(&self, state: &mut State, number: u8) {
        let txn = state.txns[number as usize];
        let lane = txn.op.stream as usize;
        if txn.at == At::Locked {
            state.appended[lane] += 1;
            state.txns[number as usize].vector[lane] = state.appended[lane];
            state.txns[number as usize].at = At::Reserved;
            return;
        }
        let row = txn.op.writes as usize;
        let cutting = !matches!(state.stage, Stage::Idle | Stage::Named | Stage::Truncated);
        let old = state.rows[row];
        let below = old.is_none_or(|old| state.txns[old as usize].epoch <= CUT);
        if self.side_buffer && cutting && txn.epoch > CUT && below {
            state.side[row] = Some(old);
        }
        state.rows[row] = Some(number);
        state.stamps[row].0 = join(state.stamps[row].0, txn.vector);
        if let Some(read) = txn.op.reads {
            let stamp = &mut state.stamps[read as usize].1;
            *stamp = join(*stamp, txn.vector);
        }
        state.txns[number as usize].at = At::Installed;
    }

    /// Whether the checkpoint may take its next step.
    fn may_go_on(&self, state: &State) -> bool {
        let installed = |txn: &Txn| txn.at == At::Installed || txn.epoch > CUT;
        match state.stage {
            Stage::Advanced if self.waits_for_installs => state.txns.iter().all(installed),
            Stage::Scanning(rows) if rows as usize == ROWS && !self.truncates_first => {
                !self.waits_for_log || covers(state.durable, state.up_to)
            }
            Stage::Truncated => !state.named,
            Stage::Named => !state.truncated,
            _ => true,
        }
    }

    fn checkpoint(&self, state: &mut State) {
        state.stage = match state.stage {
            Stage::Idle => {
                state.from = state.appended;
                Stage::Published
            }
            Stage::Published => {
                state.epoch += 1;
                Stage::Advanced
            }
            Stage::Advanced => {
                state.up_to = state.appended;
                Stage::Scanning(0)
            }
            Stage::Scanning(row) if (row as usize) < ROWS => {
                let found = state.rows[row as usize];
                let above = found.is_some_and(|writer| state.txns[writer as usize].epoch > CUT);
                if !(self.cut && above) {
                    state.image[row as usize] = found;
                }
                Stage::Scanning(row + 1)
            }
            Stage::Scanning(_) if self.truncates_first => {
                state.truncated = true;
                Stage::Truncated
            }
            Stage::Scanning(_) | Stage::Truncated => {
                for row in 0..ROWS {
                    if let Some(old) = state.side[row] {
                        state.image[row] = old;
                    }
                }
                state.named = true;
                Stage::Named
            }
            Stage::Named => {
                state.truncated = true;
                Stage::Truncated
            }
        };
    }
}

fn name(writer: Option<u8>) -> String {
    writer.map_or("its initial value".into(), |number| format!("T{}'s value", number + 1))
}

impl Model for Checkpointing {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            txns: Vec::new(),
            rows: [None; ROWS],
            stamps: [(BOTTOM, BOTTOM); ROWS],
            appended: [0; LANES],
            durable: [0; LANES],
            epoch: CUT,
            stage: Stage::Idle,
            from: BOTTOM,
            up_to: BOTTOM,
            image: [None; ROWS],
            side: [None; ROWS],
            truncated: false,
            named: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let open = |txn: &&Txn| txn.at != At::Installed;
        if state.txns.len() < self.txns {
            // By symmetry, the first transaction uses the first stream only.
            let streams = if state.txns.is_empty() { 1 } else { STREAMS as u8 };
            let free = |row: u8| !state.txns.iter().filter(open).any(|txn| txn.touches(row));
            for writes in (0..ROWS as u8).filter(|row| free(*row)) {
                for reads in [None, Some(0), Some(1)] {
                    if reads.is_none_or(free) {
                        let op = |stream| Action::Begin(Op { reads, writes, stream });
                        actions.extend((0..streams).map(op));
                    }
                }
            }
        }
        let steps = state.txns.iter().enumerate().filter(|(_, txn)| txn.at != At::Installed);
        actions.extend(steps.map(|(number, _)| Action::Next(number as u8)));
        let behind = (0..STREAMS).filter(|lane| state.durable[*lane] < state.appended[*lane]);
        actions.extend(behind.map(Action::Flush));
        if self.may_go_on(state) {
            actions.push(Action::Checkpoint);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        match action {
            Action::Begin(op) => Self::begin(&mut state, op),
            Action::Next(number) => self.next(&mut state, number),
            Action::Flush(lane) => state.durable[lane] = state.appended[lane],
            Action::Checkpoint => self.checkpoint(&mut state),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(RIGHT, |m: &Checkpointing, s| m.wrong(s).is_none()),
            Property::sometimes(
                "a checkpoint serves, and the log below it is gone",
                |_, s: &State| {
                    s.named && s.truncated && s.image != [None; ROWS] && s.from != BOTTOM
                },
            ),
            Property::sometimes(
                "a row is in the image from the side buffer",
                |m: &Checkpointing, s: &State| {
                    !m.side_buffer
                        || s.named
                            && (0..ROWS).any(|r| {
                                s.side[r].is_some_and(|old| old.is_some() && s.rows[r] != old)
                            })
                },
            ),
            Property::sometimes(
                "a record above the cut is replayed on the image",
                |_, s: &State| {
                    s.named
                        && s.txns
                            .iter()
                            .any(|t| t.epoch > CUT && covers(s.durable, t.vector) && t.end() > 0)
                },
            ),
        ]
    }
}

impl Protocol for Checkpointing {
    fn tell(&self, before: &State, action: &Action, after: &State) -> String {
        match action {
            Action::Begin(op) => {
                let row = |row: u8| ROW_NAMES[row as usize];
                let what = match op.reads {
                    Some(read) => format!("reads {} and writes {}", row(read), row(op.writes)),
                    None => format!("writes {}", row(op.writes)),
                };
                format!("T{} {what}, in epoch {}", after.txns.len(), after.epoch)
            }
            Action::Next(number) => {
                let txn = &after.txns[*number as usize];
                if txn.at == At::Reserved {
                    let (start, end) = (txn.end() - 1, txn.end());
                    format!("T{} gets stream {} [{start},{end})", number + 1, txn.op.stream + 1)
                } else {
                    format!("T{} installs {}", number + 1, ROW_NAMES[txn.op.writes as usize])
                }
            }
            Action::Flush(lane) => {
                format!("stream {} is durable up to {}", lane + 1, after.durable[*lane])
            }
            Action::Checkpoint => match before.stage {
                Stage::Idle => {
                    format!("a cut of epoch {CUT}, streams at {}", show(after.from, STREAMS))
                }
                Stage::Published => format!("the epoch is {}", after.epoch),
                Stage::Advanced => "the scan begins".into(),
                Stage::Scanning(row) if (row as usize) < ROWS => {
                    format!("{} is scanned", ROW_NAMES[row as usize])
                }
                _ if after.named && !before.named => "the manifest names the checkpoint".into(),
                _ => format!("the log is truncated below {}", show(after.from, STREAMS)),
            },
        }
    }

    fn verdict(&self, state: &State) -> String {
        self.wrong(state).unwrap_or_else(|| "nothing is wrong".into())
    }
}

/// The cases of this model.
pub fn cases() -> Vec<Case> {
    use Rules::Mutation;
    fn run(model: Checkpointing) -> Outcome {
        explore(model)
    }
    let breaks = |rule, explore| Case::breaks(("Checkpoints", Mutation), rule, RIGHT, explore);
    vec![
        breaks("the log is truncated before the manifest is switched", || {
            run(Checkpointing { truncates_first: true, ..Checkpointing::ours() })
        }),
        breaks("the scan begins before everything up to the cut is installed", || {
            run(Checkpointing { waits_for_installs: false, ..Checkpointing::ours() })
        }),
        breaks("a checkpoint is valid as soon as it is written", || {
            run(Checkpointing { waits_for_log: false, ..Checkpointing::ours() })
        }),
        breaks("commands are replayed on a fuzzy image", || {
            run(Checkpointing { cut: false, side_buffer: false, ..Checkpointing::ours() })
        }),
        breaks("rows above the cut are skipped, and their before-images are not saved", || {
            run(Checkpointing { side_buffer: false, ..Checkpointing::ours() })
        }),
        breaks("commands up to the cut are replayed again", || {
            run(Checkpointing { skips: false, ..Checkpointing::ours() })
        }),
        Case::holds(
            "Checkpoints",
            "an epoch cut, commands",
            100_000,
            || run(Checkpointing::ours()),
        ),
        Case::holds("Checkpoints", "an epoch cut, row images", 10_000, || {
            run(Checkpointing { commands: false, txns: 2, ..Checkpointing::ours() })
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::cases;
    use crate::case::verify_item;

    #[test]
    fn a_checkpoint_is_the_state_at_its_cut() {
        verify_item(cases(), "Checkpoints");
    }
}
