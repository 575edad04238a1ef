//! Partitioned execution with a vector for each partition: item Partitions of docs/protocols.
//!
//! Transactions run one at a time on the partitions held. A partition has one row. A writing
//! transaction joins the vectors of its partitions, logs the join in either of two streams, and
//! leaves its own vector behind. Then the power goes, the durable records are judged by the
//! vectors, and replayed in any order allowed by the vectors, row by row. The transactions are
//! short enough to run in one step: each transaction holds all its turns meanwhile.

use crate::case::{Case, Rules};
use crate::check::{Outcome, Protocol, explore};
use crate::vector::{covers, join};
use stateright::{Model, Property};

const STREAMS: usize = 2;
const PARTITIONS: usize = 2;

/// A transaction: the partitions held and read, and the partitions written.
struct Transaction {
    holds: &'static [usize],
    writes: &'static [usize],
}

/// The first writes both partitions, the second reads both and writes the second partition, the
/// third writes the first partition, and the fourth reads the second.
const TRANSACTIONS: [Transaction; 4] = [
    Transaction { holds: &[0, 1], writes: &[0, 1] },
    Transaction { holds: &[0, 1], writes: &[1] },
    Transaction { holds: &[0], writes: &[0] },
    Transaction { holds: &[1], writes: &[] },
];
const COUNT: usize = TRANSACTIONS.len();

/// A rule that may be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mistake {
    /// No rule is broken.
    None,
    /// A transaction leaves its vector in the first partition only.
    HomeOnly,
    /// A transaction leaves its vector in written partitions only.
    WrittenOnly,
    /// A read-only transaction is acknowledged at once.
    ReadersAtOnce,
}

/// The model.
#[derive(Debug, Clone)]
pub struct Partitions {
    /// The broken rule.
    pub mistake: Mistake,
}

type Vector = [u8; STREAMS];
/// For each partition the last writer of its row, counted from 1; 0 for none.
type Rows = [u8; PARTITIONS];

/// A transaction that has run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Ran {
    /// The vector of dependencies, without the transaction's own record.
    after: Vector,
    /// The transaction's record: the stream, and the record's end.
    record: Option<(usize, u8)>,
    read: Rows,
}

/// Replay of the log left by the power cut.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Replay {
    rows: Rows,
    replayed: [bool; COUNT],
    /// A command with a different read at replay.
    differs: Option<usize>,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    rows: Rows,
    left: [Vector; PARTITIONS],
    ran: [Option<Ran>; COUNT],
    reserved: Vector,
    durable: Vector,
    replay: Option<Replay>,
}

/// A step of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// A transaction runs, and is logged in this stream if the transaction writes.
    Run(usize, usize),
    /// A stream writes and syncs its next record.
    Flush(usize),
    /// The power goes; the durable records are found again.
    PowerCut,
    /// A live command is replayed.
    Replay(usize),
}

const FOUND: &str = "what an acknowledged or recovered transaction has read is recovered";
const SAME: &str = "a command reads at replay what it has read before";

impl State {
    fn is_live(&self, at: usize) -> bool {
        let Some(Ran { after, record: Some((stream, end)), .. }) = self.ran[at] else {
            return false;
        };
        end <= self.durable[stream] && covers(self.durable, after)
    }

    /// Whether a read-only transaction is acknowledged.
    fn is_told(&self, at: usize, mistake: Mistake) -> bool {
        self.ran[at].is_some_and(|ran| {
            ran.record.is_none()
                && (covers(self.durable, ran.after) || mistake == Mistake::ReadersAtOnce)
        })
    }

    /// The position up to which each stream is resolved at replay: dead records count.
    fn resolved(&self, replay: &Replay) -> Vector {
        let is_resolved = |stream: usize, end: u8| {
            let wrote = |at: usize| self.ran[at].and_then(|ran| ran.record) == Some((stream, end));
            (0..COUNT).any(|at| wrote(at) && (replay.replayed[at] || !self.is_live(at)))
        };
        std::array::from_fn(|stream| {
            (1..=self.durable[stream]).take_while(|end| is_resolved(stream, *end)).count() as u8
        })
    }

    /// The first transaction that depends on a lost transaction.
    fn stands_on_lost(&self, mistake: Mistake) -> Option<usize> {
        (0..COUNT).find(|&at| {
            let counts = self.is_live(at) || self.is_told(at, mistake);
            let read = self.ran[at].map_or([0; PARTITIONS], |ran| ran.read);
            let writers = TRANSACTIONS[at].holds.iter().map(|&partition| read[partition]);
            counts
                && writers
                    .into_iter()
                    .any(|writer| writer > 0 && !self.is_live(writer as usize - 1))
        })
    }
}

impl Partitions {
    fn run(&self, state: &mut State, at: usize, stream: usize) {
        let Transaction { holds, writes } = TRANSACTIONS[at];
        let after = holds.iter().fold([0; STREAMS], |all, &p| join(all, state.left[p]));
        let mut ran = Ran { after, record: None, read: state.rows };
        if !writes.is_empty() {
            state.reserved[stream] += 1;
            ran.record = Some((stream, state.reserved[stream]));
            let mut own = after;
            own[stream] = state.reserved[stream];
            for &partition in holds {
                let leaves = match self.mistake {
                    Mistake::HomeOnly => partition == holds[0],
                    Mistake::WrittenOnly => writes.contains(&partition),
                    Mistake::None | Mistake::ReadersAtOnce => true,
                };
                if leaves {
                    state.left[partition] = own;
                }
            }
            writes.iter().for_each(|&partition| state.rows[partition] = at as u8 + 1);
        }
        state.ran[at] = Some(ran);
    }

    fn replay(state: &State, at: usize) -> Option<Replay> {
        let mut replay = state.replay.clone()?;
        let ran = state.ran[at]?;
        let is_same = |&partition: &usize| replay.rows[partition] == ran.read[partition];
        if !TRANSACTIONS[at].holds.iter().all(is_same) {
            replay.differs = Some(at);
        }
        for &partition in TRANSACTIONS[at].writes {
            replay.rows[partition] = at as u8 + 1;
        }
        replay.replayed[at] = true;
        Some(replay)
    }
}

impl Model for Partitions {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            rows: [0; PARTITIONS],
            left: [[0; STREAMS]; PARTITIONS],
            ran: [None; COUNT],
            reserved: [0; STREAMS],
            durable: [0; STREAMS],
            replay: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if let Some(replay) = &state.replay {
            let resolved = state.resolved(replay);
            actions.extend((0..COUNT).map(Action::Replay).filter(|action| {
                let Action::Replay(at) = *action else { return false };
                let after = state.ran[at].map(|ran| ran.after);
                let is_next = after.is_some_and(|after| covers(resolved, after));
                state.is_live(at) && !replay.replayed[at] && is_next
            }));
            return;
        }
        for (at, ran) in state.ran.iter().enumerate() {
            let streams = if TRANSACTIONS[at].writes.is_empty() { 1 } else { STREAMS };
            if ran.is_none() {
                actions.extend((0..streams).map(|stream| Action::Run(at, stream)));
            }
        }
        let has_more = |stream: &usize| state.durable[*stream] < state.reserved[*stream];
        actions.extend((0..STREAMS).filter(has_more).map(Action::Flush));
        actions.push(Action::PowerCut);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Run(at, stream) => self.run(&mut next, at, stream),
            Action::Flush(stream) => next.durable[stream] += 1,
            Action::PowerCut => {
                let (rows, replayed) = ([0; PARTITIONS], [false; COUNT]);
                next.replay = Some(Replay { rows, replayed, differs: None });
            }
            Action::Replay(at) => next.replay = Some(Self::replay(state, at)?),
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(FOUND, |model: &Self, state: &State| {
                state.replay.is_none() || state.stands_on_lost(model.mistake).is_none()
            }),
            Property::always(SAME, |_, state: &State| {
                state.replay.as_ref().is_none_or(|replay| replay.differs.is_none())
            }),
            Property::sometimes("all that write are replayed", |_, state: &State| {
                let replay = state.replay.as_ref();
                replay.is_some_and(|replay| replay.replayed[..COUNT - 1] == [true; 3])
            }),
            Property::sometimes("a durable record is dead", |_, state: &State| {
                let is_dead = |at: usize| match state.ran[at].and_then(|ran| ran.record) {
                    Some((stream, end)) => end <= state.durable[stream] && !state.is_live(at),
                    None => false,
                };
                state.replay.is_some() && (0..COUNT).any(is_dead)
            }),
        ]
    }
}

impl Protocol for Partitions {
    fn tell(&self, _: &State, action: &Action, after: &State) -> String {
        match *action {
            Action::Run(at, stream) => {
                let Transaction { holds, writes } = TRANSACTIONS[at];
                let name = at + 1;
                if writes.is_empty() {
                    return format!("T{name} reads partitions {holds:?}");
                }
                let record = format!("logged in stream {stream}");
                format!("T{name} reads partitions {holds:?}, writes {writes:?}, {record}")
            }
            Action::Flush(stream) => {
                format!("stream {stream} is durable up to {}", after.durable[stream])
            }
            Action::PowerCut => "the power goes".into(),
            Action::Replay(at) => format!("T{} is replayed", at + 1),
        }
    }

    fn verdict(&self, state: &State) -> String {
        if let Some(at) = state.replay.as_ref().and_then(|replay| replay.differs) {
            return format!("T{} reads what was written after it", at + 1);
        }
        match state.stands_on_lost(self.mistake) {
            Some(at) => format!("T{} has read what is lost", at + 1),
            None => "all is well".into(),
        }
    }
}

/// The cases of this model.
pub fn cases() -> Vec<Case> {
    fn run(mistake: Mistake) -> Outcome {
        explore(Partitions { mistake })
    }
    let mistake = ("Partitions", Rules::Mutation);
    vec![
        Case::breaks(
            mistake,
            "a transaction leaves its vector in the first of its partitions only",
            FOUND,
            || run(Mistake::HomeOnly),
        ),
        Case::breaks(
            mistake,
            "a transaction leaves no vector in partitions that it has only read",
            SAME,
            || run(Mistake::WrittenOnly),
        ),
        Case::breaks(mistake, "one that only reads is acknowledged at once", FOUND, || {
            run(Mistake::ReadersAtOnce)
        }),
        Case::holds("Partitions", "all partitions held get the vector", 5000, || {
            run(Mistake::None)
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::cases;
    use crate::case::verify_item;

    #[test]
    fn partitions_stand_for_their_rows() {
        verify_item(cases(), "Partitions");
    }
}
