//! Silo-R, with acknowledgement by epoch: an item of docs/protocols.
//!
//! A transaction belongs to an epoch and is acknowledged once the durable epoch has reached it. The
//! durable epoch is the lowest of the epochs that the streams have closed. After a power cut, the
//! records up to the durable epoch found on disk count; then the log continues, with later epochs,
//! until the next power cut.

use crate::case::{Case, Rules};
use crate::check::{Outcome, Protocol, explore};
use crate::vector::names;
use stateright::{Model, Property};

const STREAMS: usize = 2;

/// The model.
#[derive(Debug, Clone)]
pub struct SiloR {
    /// Number of transactions, over both incarnations.
    pub txns: usize,
    /// Whether a stream without records takes part in the minimum.
    pub idle_counts: bool,
    /// Whether a stream's closed epoch must be on disk before it counts.
    pub figure_durable: bool,
    /// Whether the log continues above every epoch found on disk, not only above the durable epoch.
    pub above_all: bool,
    /// Whether the epochs in between, whose records do not count, are recorded.
    pub remembered: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Txn {
    stream: u8,
    epoch: u8,
    durable: bool,
    answered: bool,
    /// Found not to count after the power cut.
    dead: bool,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    txns: Vec<Txn>,
    epoch: u8,
    /// The last epoch that each stream has closed: in memory, and on disk.
    counted: [u8; STREAMS],
    on_disk: [u8; STREAMS],
    crashed: bool,
    /// Epochs above the first number and below the second do not count.
    gap: (u8, u8),
}

/// A step of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// A transaction runs in the current epoch, on this stream.
    Run(u8),
    /// The epoch ends.
    Advance,
    /// A stream's records become durable; the stream closes all epochs before the current one.
    Flush(usize),
    /// The last epoch that a stream has closed is written to disk.
    WriteDown(usize),
    /// Power fails, and the log is opened again.
    Crash,
}

const ANSWERED: &str = "an acknowledged transaction is recovered";
const DEAD: &str = "a dead record stays dead";
const ENDS: &str = "when everything is durable and closed, every transaction is acknowledged";
/// The last epoch of the model.
const LAST: u8 = 4;

impl SiloR {
    /// The corrected rules.
    pub fn mended(txns: usize) -> SiloR {
        SiloR { txns, idle_counts: true, figure_durable: true, above_all: true, remembered: true }
    }

    fn used(state: &State, lane: usize) -> bool {
        state.txns.iter().any(|txn| txn.stream as usize == lane)
    }

    /// The lowest of the epochs stated by the streams.
    fn durable_epoch(&self, state: &State, says: [u8; STREAMS]) -> u8 {
        let takes_part = |lane: &usize| self.idle_counts || Self::used(state, *lane);
        (0..STREAMS).filter(takes_part).map(|lane| says[lane]).min().unwrap_or(0)
    }

    fn answer(&self, state: &mut State) {
        let says = if self.figure_durable { state.on_disk } else { state.counted };
        let durable = self.durable_epoch(state, says);
        for txn in state.txns.iter_mut().filter(|txn| !txn.dead) {
            txn.answered |= txn.epoch <= durable;
        }
    }

    /// Whether a power cut now would leave the transaction in the recovered state.
    fn live(state: &State, txn: &Txn) -> bool {
        let counts = txn.epoch <= state.gap.0 || txn.epoch >= state.gap.1;
        txn.durable && counts && txn.epoch <= state.on_disk.into_iter().min().unwrap_or(0)
    }

    fn crash(&self, state: &mut State) {
        let fates: Vec<bool> = state.txns.iter().map(|txn| Self::live(state, txn)).collect();
        for (txn, live) in state.txns.iter_mut().zip(fates) {
            txn.dead = !live;
        }
        let durable = state.on_disk.into_iter().min().unwrap_or(0);
        let found = state.txns.iter().filter(|txn| txn.durable).map(|txn| txn.epoch);
        let highest = found.chain(state.on_disk).max().unwrap_or(0);
        state.epoch = if self.above_all { highest } else { durable } + 1;
        state.counted = state.on_disk;
        state.crashed = true;
        if self.remembered {
            state.gap = (durable, state.epoch);
        }
    }

    fn lost(state: &State) -> Option<usize> {
        state.txns.iter().position(|txn| txn.answered && !Self::live(state, txn))
    }

    fn risen(state: &State) -> Option<usize> {
        state.txns.iter().position(|txn| txn.dead && txn.durable && Self::live(state, txn))
    }

    fn unanswered(&self, state: &State) -> Option<usize> {
        let closed = |lane: usize| state.on_disk[lane] + 1 == state.epoch;
        let all = state.epoch == LAST && (0..STREAMS).all(closed);
        let waits = |txn: &Txn| !txn.dead && !txn.answered && txn.epoch < state.epoch;
        let waiting = state.txns.iter().position(waits);
        if all { waiting } else { None }
    }
}

impl Model for SiloR {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            txns: Vec::new(),
            epoch: 1,
            counted: [0; STREAMS],
            on_disk: [0; STREAMS],
            crashed: false,
            gap: (0, 0),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.txns.len() < self.txns {
            let streams = if state.txns.is_empty() { 1 } else { STREAMS as u8 };
            actions.extend((0..streams).map(Action::Run));
        }
        if state.epoch < LAST {
            actions.push(Action::Advance);
        }
        for lane in 0..STREAMS {
            let mut own = state.txns.iter().filter(|txn| txn.stream as usize == lane && !txn.dead);
            if state.counted[lane] + 1 < state.epoch || own.any(|txn| !txn.durable) {
                actions.push(Action::Flush(lane));
            }
            if state.on_disk[lane] < state.counted[lane] {
                actions.push(Action::WriteDown(lane));
            }
        }
        if !state.crashed {
            actions.push(Action::Crash);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        match action {
            Action::Run(stream) => {
                let epoch = state.epoch;
                let txn = Txn { stream, epoch, durable: false, answered: false, dead: false };
                state.txns.push(txn);
                self.answer(&mut state);
            }
            Action::Advance => state.epoch += 1,
            Action::Flush(lane) => {
                for txn in state.txns.iter_mut().filter(|txn| txn.stream as usize == lane) {
                    txn.durable |= !txn.dead;
                }
                state.counted[lane] = state.epoch - 1;
                self.answer(&mut state);
            }
            Action::WriteDown(lane) => {
                state.on_disk[lane] = state.counted[lane];
                self.answer(&mut state);
            }
            Action::Crash => self.crash(&mut state),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ANSWERED, |_, s: &State| Self::lost(s).is_none()),
            Property::always(DEAD, |_, s: &State| Self::risen(s).is_none()),
            Property::always(ENDS, |m: &SiloR, s| m.unanswered(s).is_none()),
            Property::sometimes("a durable record is dead, and the log goes on", |_, s: &State| {
                s.txns.iter().any(|txn| txn.dead && txn.durable)
                    && s.txns.iter().any(|txn| !txn.dead && txn.answered)
            }),
        ]
    }
}

impl Protocol for SiloR {
    fn tell(&self, before: &State, action: &Action, after: &State) -> String {
        let mut text = match action {
            Action::Run(stream) => {
                format!("T{} in epoch {}, stream {}", after.txns.len(), after.epoch, stream + 1)
            }
            Action::Advance => format!("epoch {} begins", after.epoch),
            Action::Flush(lane) => {
                format!(
                    "stream {} is durable, and closes epochs up to {}",
                    lane + 1,
                    after.counted[*lane]
                )
            }
            Action::WriteDown(lane) => {
                format!("stream {}'s mark {} is on disk", lane + 1, after.on_disk[*lane])
            }
            Action::Crash => {
                let live = |n: &u8| !after.txns[*n as usize].dead;
                let live = names("T", (0..after.txns.len() as u8).filter(live));
                format!(
                    "power fails; recovered: {live}; the log continues in epoch {}",
                    after.epoch
                )
            }
        };
        let was = |n: &u8| before.txns.get(*n as usize).is_some_and(|txn| txn.answered);
        let newly = |n: &u8| after.txns[*n as usize].answered && !was(n);
        let newly: Vec<u8> = (0..after.txns.len() as u8).filter(newly).collect();
        if !newly.is_empty() {
            text += &format!("; acknowledged: {}", names("T", newly));
        }
        text
    }

    fn verdict(&self, state: &State) -> String {
        if let Some(number) = Self::lost(state) {
            return format!("if power fails now, T{} was acknowledged and is lost", number + 1);
        }
        match (Self::risen(state), self.unanswered(state)) {
            (Some(number), _) => format!("T{} was dead, and would be live now", number + 1),
            (None, Some(number)) => format!("T{} is not acknowledged", number + 1),
            (None, None) => "nothing is wrong".into(),
        }
    }
}

/// The cases of this model.
pub fn cases() -> Vec<Case> {
    use Rules::{Mended, Mutation};
    fn run(model: SiloR) -> Outcome {
        explore(model)
    }
    vec![
        Case::breaks(
            ("Silo-R", Mutation),
            "only streams with records take part in the minimum",
            ANSWERED,
            || run(SiloR { idle_counts: false, ..SiloR::mended(3) }),
        ),
        Case::breaks(
            ("Silo-R", Mutation),
            "a stream's closed epoch counts before it is on disk",
            ANSWERED,
            || run(SiloR { figure_durable: false, ..SiloR::mended(3) }),
        ),
        Case::breaks(
            ("Silo-R", Mutation),
            "the log continues right above the durable epoch",
            DEAD,
            || run(SiloR { above_all: false, ..SiloR::mended(3) }),
        ),
        Case::breaks(
            ("Silo-R", Mutation),
            "the log continues above every epoch found, but dead epochs are not recorded",
            DEAD,
            || run(SiloR { remembered: false, ..SiloR::mended(3) }),
        ),
        Case::mended(
            ("Silo-R", Mended),
            "all streams close epochs, on disk; restart above all found; dead epochs stay dead",
            1_000,
            || run(SiloR::mended(3)),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::cases;
    use crate::case::verify_item;

    #[test]
    fn an_epoch_is_durable_when_all_streams_have_closed_it() {
        verify_item(cases(), "Silo-R");
    }
}
