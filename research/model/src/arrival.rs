//! Calls logged before they run: item Arrival of docs/protocols.
//!
//! A call enters the queues of its partitions, joins their vectors, is logged in either of two
//! streams, and leaves its own vector behind, in one step. The call runs when it is the first in
//! all queues. A checkpoint may be taken meanwhile: its cut holds the calls arrived by then, and
//! its image the rows as left by the calls of the cut. Then the power goes, the durable records are
//! judged by the vectors, and replayed in any order allowed by the vectors, on the image if there
//! is one. A call aborts if it finds both partitions empty.

use crate::case::{Case, Rules};
use crate::check::{Outcome, Protocol, explore};
use crate::vector::{covers, join};
use stateright::{Model, Property};

const STREAMS: usize = 2;
const PARTITIONS: usize = 2;

/// A call: its partitions, all read and written, and whether the call may abort.
struct Call {
    holds: &'static [usize],
    may_abort: bool,
}

const CALLS: [Call; 4] = [
    Call { holds: &[0, 1], may_abort: true },
    Call { holds: &[0], may_abort: false },
    Call { holds: &[1], may_abort: false },
    Call { holds: &[0, 1], may_abort: false },
];
const COUNT: usize = CALLS.len();

/// A rule that may be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mistake {
    /// No rule is broken.
    None,
    /// A call is acknowledged when its own record is durable.
    OwnAlone,
    /// A call enters its queues some time after the call is logged.
    EnterLate,
    /// A call leaves its vector in the first partition only.
    HomeOnly,
    /// A checkpoint does not wait for calls of the cut that have not run.
    CutWithoutQueued,
}

/// The model.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// The broken rule.
    pub mistake: Mistake,
    /// Whether a checkpoint may be taken.
    pub checkpoints: bool,
}

type Vector = [u8; STREAMS];
/// For each partition the last writer of its row, counted from 1; 0 for none.
type Rows = [u8; PARTITIONS];

/// A call that has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Arrived {
    /// The vector of dependencies, without the call's own record.
    after: Vector,
    /// The call's record: the stream, and the record's end.
    record: (usize, u8),
    /// The rows read, once the call has run.
    read: Option<Rows>,
}

/// A checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Checkpoint {
    holds: [bool; COUNT],
    image: Rows,
    is_taken: bool,
}

/// Replay of the log left by the power cut.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Replay {
    rows: Rows,
    /// Calls replayed, or in the image.
    replayed: [bool; COUNT],
    /// A call with a different read at replay.
    differs: Option<usize>,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    rows: Rows,
    left: [Vector; PARTITIONS],
    queues: [Vec<u8>; PARTITIONS],
    calls: [Option<Arrived>; COUNT],
    reserved: Vector,
    durable: Vector,
    checkpoint: Option<Checkpoint>,
    replay: Option<Replay>,
}

/// A step of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// A call arrives, and is logged in this stream.
    Arrive(usize, usize),
    /// A call that had not entered its queues at arrival enters them.
    Enter(usize),
    /// A call runs.
    Run(usize),
    /// A stream writes and syncs its next record.
    Flush(usize),
    /// A checkpoint makes its cut.
    Cut,
    /// The checkpoint is complete.
    TakeCheckpoint,
    /// The power goes; the durable records are found again.
    PowerCut,
    /// A live call is replayed.
    Replay(usize),
}

const FOUND: &str = "an acknowledged call, and what it has read, is recovered";
const SAME: &str = "a call reads at replay what it has read before";
const ALL: &str = "replay ends with what all recovered calls have written";

/// Runs a call on rows. Returns whether it commits.
fn run(rows: &mut Rows, at: usize) -> bool {
    let Call { holds, may_abort } = CALLS[at];
    if may_abort && holds.iter().all(|&partition| rows[partition] == 0) {
        return false;
    }
    holds.iter().for_each(|&partition| rows[partition] = at as u8 + 1);
    true
}

impl State {
    fn is_live(&self, at: usize) -> bool {
        self.calls[at].is_some_and(|Arrived { after, record: (stream, end), .. }| {
            end <= self.durable[stream] && covers(self.durable, after)
        })
    }

    /// Whether a call is acknowledged.
    fn is_told(&self, at: usize, mistake: Mistake) -> bool {
        self.calls[at].is_some_and(|Arrived { after, record: (stream, end), read }| {
            let is_durable = end <= self.durable[stream];
            let all = covers(self.durable, after) || mistake == Mistake::OwnAlone;
            read.is_some() && is_durable && all
        })
    }

    /// Whether the call is in all of its queues, and the first in each.
    fn is_first(&self, at: usize) -> bool {
        let is_head = |&partition: &usize| self.queues[partition].first() == Some(&(at as u8));
        CALLS[at].holds.iter().all(is_head)
    }

    fn has_run(&self, at: usize) -> bool {
        self.calls[at].is_some_and(|call| call.read.is_some())
    }

    /// The position up to which each stream is resolved at replay: dead records count.
    fn resolved(&self, replay: &Replay) -> Vector {
        let is_resolved = |stream: usize, end: u8| {
            let wrote = |at: usize| self.calls[at].map(|call| call.record) == Some((stream, end));
            (0..COUNT).any(|at| wrote(at) && (replay.replayed[at] || !self.is_live(at)))
        };
        std::array::from_fn(|stream| {
            (1..=self.durable[stream]).take_while(|end| is_resolved(stream, *end)).count() as u8
        })
    }

    /// The first acknowledged call that is lost or has read a lost write.
    fn lost(&self, mistake: Mistake) -> Option<usize> {
        (0..COUNT).find(|&at| {
            let read = self.calls[at].and_then(|call| call.read).unwrap_or_default();
            let mut writers = CALLS[at].holds.iter().map(|&partition| read[partition]);
            let is_lost = writers.any(|by| by > 0 && !self.is_live(by as usize - 1));
            self.is_told(at, mistake) && (is_lost || !self.is_live(at))
        })
    }

    /// Whether replay has ended with other rows than the run. Only where all calls have run and are
    /// live: then the right rows are known.
    fn ends_wrong(&self) -> bool {
        let Some(replay) = &self.replay else { return false };
        let arrived = || (0..COUNT).filter(|&at| self.calls[at].is_some());
        let all = arrived().all(|at| self.has_run(at) && self.is_live(at) && replay.replayed[at]);
        all && replay.rows != self.rows
    }
}

impl Arrival {
    fn arrive(&self, state: &mut State, at: usize, stream: usize) {
        let holds = CALLS[at].holds;
        let after = holds.iter().fold([0; STREAMS], |all, &p| join(all, state.left[p]));
        state.reserved[stream] += 1;
        let record = (stream, state.reserved[stream]);
        state.calls[at] = Some(Arrived { after, record, read: None });
        let mut own = after;
        own[stream] = record.1;
        for (nth, &partition) in holds.iter().enumerate() {
            if nth == 0 || self.mistake != Mistake::HomeOnly {
                state.left[partition] = own;
            }
        }
        if self.mistake != Mistake::EnterLate {
            enter(state, at);
        }
    }

    fn run(state: &mut State, at: usize) {
        let read = state.rows;
        if let Some(call) = &mut state.calls[at] {
            call.read = Some(read);
        }
        run(&mut state.rows, at);
        let rows = state.rows;
        for &partition in CALLS[at].holds {
            state.queues[partition].retain(|call| *call != at as u8);
            if let Some(checkpoint) = &mut state.checkpoint
                && checkpoint.holds[at]
                && !checkpoint.is_taken
            {
                checkpoint.image[partition] = rows[partition];
            }
        }
    }

    fn replay(&self, state: &State, at: usize) -> Option<Replay> {
        let mut replay = state.replay.clone()?;
        let read = state.calls[at]?.read;
        let is_same =
            |&partition: &usize| read.is_none_or(|read| replay.rows[partition] == read[partition]);
        if !CALLS[at].holds.iter().all(is_same) {
            replay.differs = Some(at);
        }
        run(&mut replay.rows, at);
        replay.replayed[at] = true;
        Some(replay)
    }

    /// Whether a checkpoint may end: its calls have run and are durable.
    fn is_complete(&self, state: &State, checkpoint: &Checkpoint) -> bool {
        let may = |at: usize| {
            let waits = self.mistake != Mistake::CutWithoutQueued;
            state.is_live(at) && (state.has_run(at) || !waits)
        };
        !checkpoint.is_taken && (0..COUNT).all(|at| !checkpoint.holds[at] || may(at))
    }
}

fn enter(state: &mut State, at: usize) {
    CALLS[at].holds.iter().for_each(|&partition| state.queues[partition].push(at as u8));
}

impl Model for Arrival {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            rows: [0; PARTITIONS],
            left: [[0; STREAMS]; PARTITIONS],
            queues: Default::default(),
            calls: [None; COUNT],
            reserved: [0; STREAMS],
            durable: [0; STREAMS],
            checkpoint: None,
            replay: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if let Some(replay) = &state.replay {
            let resolved = state.resolved(replay);
            let is_next = |at: &usize| {
                let after = state.calls[*at].map(|call| call.after);
                let comes = after.is_some_and(|after| covers(resolved, after));
                state.is_live(*at) && !replay.replayed[*at] && comes
            };
            actions.extend((0..COUNT).filter(is_next).map(Action::Replay));
            return;
        }
        for at in 0..COUNT {
            let is_queued = state.queues.iter().any(|queue| queue.contains(&(at as u8)));
            match state.calls[at] {
                None => actions.extend((0..STREAMS).map(|stream| Action::Arrive(at, stream))),
                Some(Arrived { read: None, .. }) if !is_queued => actions.push(Action::Enter(at)),
                Some(Arrived { read: None, .. }) if state.is_first(at) => {
                    actions.push(Action::Run(at));
                }
                Some(_) => {}
            }
        }
        let has_more = |stream: &usize| state.durable[*stream] < state.reserved[*stream];
        actions.extend((0..STREAMS).filter(has_more).map(Action::Flush));
        match &state.checkpoint {
            None if self.checkpoints => actions.push(Action::Cut),
            Some(checkpoint) if self.is_complete(state, checkpoint) => {
                actions.push(Action::TakeCheckpoint);
            }
            _ => {}
        }
        actions.push(Action::PowerCut);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Arrive(at, stream) => self.arrive(&mut next, at, stream),
            Action::Enter(at) => enter(&mut next, at),
            Action::Run(at) => Self::run(&mut next, at),
            Action::Flush(stream) => next.durable[stream] += 1,
            Action::Cut => {
                let holds = std::array::from_fn(|at| state.calls[at].is_some());
                next.checkpoint = Some(Checkpoint { holds, image: state.rows, is_taken: false });
            }
            Action::TakeCheckpoint => next.checkpoint.as_mut()?.is_taken = true,
            Action::PowerCut => {
                let taken = state.checkpoint.as_ref().filter(|checkpoint| checkpoint.is_taken);
                let (rows, replayed) = match taken {
                    Some(Checkpoint { image, holds, .. }) => (*image, *holds),
                    None => ([0; PARTITIONS], [false; COUNT]),
                };
                next.replay = Some(Replay { rows, replayed, differs: None });
            }
            Action::Replay(at) => next.replay = Some(self.replay(state, at)?),
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(FOUND, |model: &Self, state: &State| {
                state.replay.is_none() || state.lost(model.mistake).is_none()
            }),
            Property::always(SAME, |_, state: &State| {
                state.replay.as_ref().is_none_or(|replay| replay.differs.is_none())
            }),
            Property::always(ALL, |_, state: &State| !state.ends_wrong()),
            Property::sometimes("all calls are replayed", |_, state: &State| {
                state.replay.as_ref().is_some_and(|replay| replay.replayed == [true; COUNT])
            }),
            Property::sometimes("a call that has not run is replayed", |_, state: &State| {
                let is_replayed =
                    |at: usize| state.replay.as_ref().is_some_and(|replay| replay.replayed[at]);
                (0..COUNT).any(|at| is_replayed(at) && !state.has_run(at))
            }),
            Property::sometimes("a durable record is dead", |_, state: &State| {
                let is_dead = |at: usize| {
                    let record = state.calls[at].map(|call| call.record);
                    record.is_some_and(|(stream, end)| end <= state.durable[stream])
                        && !state.is_live(at)
                };
                state.replay.is_some() && (0..COUNT).any(is_dead)
            }),
        ]
    }
}

impl Protocol for Arrival {
    fn tell(&self, before: &State, action: &Action, after: &State) -> String {
        match *action {
            Action::Arrive(at, stream) => {
                let holds = CALLS[at].holds;
                format!("T{} for partitions {holds:?} arrives, logged in stream {stream}", at + 1)
            }
            Action::Enter(at) => format!("T{} enters its queues", at + 1),
            Action::Run(at) if before.rows == after.rows => format!("T{} runs, and aborts", at + 1),
            Action::Run(at) => format!("T{} runs", at + 1),
            Action::Flush(stream) => {
                format!("stream {stream} is durable up to {}", after.durable[stream])
            }
            Action::Cut => "a checkpoint makes its cut".into(),
            Action::TakeCheckpoint => "the checkpoint is complete".into(),
            Action::PowerCut => "the power goes".into(),
            Action::Replay(at) => format!("T{} is replayed", at + 1),
        }
    }

    fn verdict(&self, state: &State) -> String {
        if let Some(at) = state.replay.as_ref().and_then(|replay| replay.differs) {
            return format!("T{} reads something else than before", at + 1);
        }
        match state.lost(self.mistake) {
            Some(at) => {
                format!("T{} was acknowledged, and stands on what is lost", at + 1)
            }
            None if state.ends_wrong() => "a call is not recovered".into(),
            None => "all is well".into(),
        }
    }
}

/// The cases of this model.
pub fn cases() -> Vec<Case> {
    fn explored(mistake: Mistake, checkpoints: bool) -> Outcome {
        explore(Arrival { mistake, checkpoints })
    }
    let (printed, mistake) = (("Arrival", Rules::Printed), ("Arrival", Rules::Mutation));
    vec![
        Case::breaks(
            printed,
            "a call is acknowledged when its own record is durable",
            FOUND,
            || explored(Mistake::OwnAlone, false),
        ),
        Case::breaks(mistake, "a call enters its queues after it is logged", FOUND, || {
            explored(Mistake::EnterLate, false)
        }),
        Case::breaks(
            mistake,
            "a call leaves its vector in the first of its partitions only",
            FOUND,
            || explored(Mistake::HomeOnly, false),
        ),
        Case::breaks(mistake, "a checkpoint does not wait for queued calls", ALL, || {
            explored(Mistake::CutWithoutQueued, true)
        }),
        Case::holds("Arrival", "as built", 70_000, || explored(Mistake::None, false)),
        Case::holds("Arrival", "as built, with a checkpoint", 600_000, || {
            explored(Mistake::None, true)
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::cases;
    use crate::case::verify_item;

    #[test]
    fn calls_are_recovered_as_they_have_run() {
        verify_item(cases(), "Arrival");
    }
}
