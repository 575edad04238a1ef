//! The order in which records are replayed, and whether replay ends: items E2, E5 and E6 of
//! docs/protocols.
//!
//! First a log is written, with some anchors; then the log is replayed up to some ends. One log
//! manager per stream decodes frames into a pool; workers take records out and run them. Records
//! are commands: all records that conflict with a command have to be replayed before it, in the
//! order of the run. Dead records are judged correctly here; `judging` models judgement.

mod cases;

pub use cases::cases;

use crate::check::Protocol;
use crate::history::{Frame, History, Op, Stamping};
use crate::vector::{BOTTOM, LANES, Vector, covers, show};
use stateright::{Model, Property};

/// The unit of a stream's component of the resolved vector (RLV).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Counted {
    /// Transactions that were enqueued (Taurus, algorithms 3 and 4).
    Transactions,
    /// Frames of every kind: anchors and dead records too.
    EveryFrame,
}

/// How a worker learns the resolved end of its pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Looking {
    /// In one atomic step with the rest.
    Atomically,
    /// The worker sees that the pool is empty, and then reads maxLSN.
    PoolThenMax,
    /// The worker reads maxLSN, and then looks at the pool.
    MaxThenPool,
}

/// The model.
#[derive(Debug, Clone)]
pub struct Replay {
    /// Number of streams.
    pub streams: usize,
    /// Number of transactions.
    pub txns: usize,
    /// Number of anchors.
    pub anchors: usize,
    /// Number of workers of each pool.
    pub workers: usize,
    /// The unit of the resolved vector.
    pub counted: Counted,
    /// Whether records being run hold back the resolved vector.
    pub in_flight: bool,
    /// How a worker learns which frames are resolved.
    pub looking: Looking,
    /// Whether maxLSN is raised before the record is in the pool.
    pub raised_first: bool,
    /// Whether idle workers update the resolved vector, too.
    pub looks_idle: bool,
    /// Whether the tails of streams may be lost.
    pub losses: bool,
    /// Whether the end of replay is checked.
    pub ends: bool,
}

/// The state of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum At {
    /// The worker may take a record.
    Idle,
    /// The worker is running this record.
    Running(u8),
    /// The worker has run a record, and updates the resolved vector next.
    Ran,
    /// The worker has read this maxLSN, and not yet read the pool.
    HasMax(u8),
    /// The worker has seen an empty pool, and not yet read maxLSN.
    SawEmpty,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    history: History,
    durable: Vector,
    /// The ends of the streams; `None` while the log is being written.
    ends: Option<Vector>,
    decoded: Vector,
    /// The log manager has done the first of its two steps for the last decoded frame.
    between: [bool; LANES],
    pools: [Vec<u8>; LANES],
    max_lsn: Vector,
    resolved: Vector,
    /// Workers, the first pool's first.
    workers: Vec<At>,
    done: Vec<bool>,
    /// A record that was taken too early, and a dependency of the record.
    early: Option<(u8, u8)>,
}

/// A step of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// A transaction runs.
    Run(Op),
    /// Everything becomes durable, and a stream gets an anchor with the durable positions.
    Anchor(usize),
    /// Power fails; replay begins, with these ends of the streams.
    Crash(Vector),
    /// The log manager of a stream decodes a frame.
    Decode(usize),
    /// The log manager takes its second step: enqueues the record, or raises maxLSN.
    Complete(usize),
    /// A worker takes a record.
    Take(usize, u8),
    /// A worker has run its record.
    Finish(usize),
    /// A worker updates the resolved vector: the first step.
    Look(usize),
    /// A worker updates the resolved vector: the second step.
    LookAgain(usize),
}

const ORDERED: &str = "a command is replayed after all earlier commands that it conflicts with";
const ENDS: &str = "replay ends";

impl Replay {
    /// The rules of `recovery/pools.rs`, with this many workers per pool.
    pub fn ours(workers: usize) -> Replay {
        Replay {
            streams: 2,
            txns: 3,
            anchors: 0,
            workers,
            counted: Counted::EveryFrame,
            in_flight: true,
            looking: Looking::MaxThenPool,
            raised_first: false,
            looks_idle: true,
            losses: true,
            ends: true,
        }
    }

    fn live(state: &State, number: u8) -> bool {
        let txn = &state.history.txns[number as usize];
        let ends = state.ends.unwrap_or(BOTTOM);
        covers(ends, txn.vector) && covers(ends, txn.logged)
    }

    /// Enqueues the last decoded frame of a stream, if the frame is a live record.
    fn enqueue(state: &mut State, lane: usize) {
        let frame = state.history.streams[lane][state.decoded[lane] as usize - 1];
        if let Frame::Record(number) = frame
            && Self::live(state, number)
        {
            state.pools[lane].push(number);
        }
    }

    /// Whether maxLSN is raised over the last decoded frame of a stream.
    fn counts(&self, state: &State, lane: usize) -> bool {
        let frame = state.history.streams[lane][state.decoded[lane] as usize - 1];
        let live = matches!(frame, Frame::Record(number) if Self::live(state, number));
        live || self.counted == Counted::EveryFrame
    }

    /// Raises maxLSN over the last decoded frame, if the frame counts.
    fn raise(&self, state: &mut State, lane: usize) {
        if self.counts(state, lane) {
            state.max_lsn[lane] = state.decoded[lane];
        }
    }

    /// The lowest start of the records that hold a stream's component back.
    fn head(&self, state: &State, lane: usize) -> Option<u8> {
        let start = |number: u8| state.history.txns[number as usize].vector[lane] - 1;
        let hands = state.workers.iter().enumerate().filter_map(|(worker, at)| match at {
            At::Running(number) if worker / self.workers == lane => Some(start(*number)),
            _ => None,
        });
        let pool = state.pools[lane].iter().map(|number| start(*number));
        if self.in_flight { pool.chain(hands).min() } else { pool.min() }
    }

    fn resolve(state: &mut State, lane: usize, to: u8) {
        state.resolved[lane] = state.resolved[lane].max(to);
    }

    /// The first step of a worker that has run a record or is idle.
    fn look(&self, state: &mut State, worker: usize) {
        let lane = worker / self.workers;
        state.workers[worker] = match self.looking {
            Looking::MaxThenPool => At::HasMax(state.max_lsn[lane]),
            Looking::PoolThenMax if self.head(state, lane).is_none() => At::SawEmpty,
            _ => {
                let to = self.head(state, lane).unwrap_or(state.max_lsn[lane]);
                Self::resolve(state, lane, to);
                At::Idle
            }
        };
    }

    fn look_again(&self, state: &mut State, worker: usize) {
        let lane = worker / self.workers;
        let to = match state.workers[worker] {
            At::HasMax(max) => self.head(state, lane).unwrap_or(max),
            _ => state.max_lsn[lane],
        };
        Self::resolve(state, lane, to);
        state.workers[worker] = At::Idle;
    }

    fn may_take(&self, state: &State, lane: usize) -> Vec<u8> {
        let ready = |n: &&u8| covers(state.resolved, state.history.txns[**n as usize].logged);
        state.pools[lane].iter().filter(ready).copied().collect()
    }

    fn take(&self, state: &mut State, worker: usize, number: u8) {
        state.pools[worker / self.workers].retain(|other| *other != number);
        state.workers[worker] = At::Running(number);
        let op = state.history.txns[number as usize].op;
        let missing = (0..number).find(|&before| {
            !state.done[before as usize]
                && Self::live(state, before)
                && op.conflicts(&state.history.txns[before as usize].op)
        });
        state.early = state.early.or(missing.map(|before| (number, before)));
    }

    fn replay_actions(&self, state: &State, ends: Vector, actions: &mut Vec<Action>) {
        for (lane, end) in ends.into_iter().enumerate().take(self.streams) {
            if state.between[lane] {
                actions.push(Action::Complete(lane));
            } else if state.decoded[lane] < end {
                actions.push(Action::Decode(lane));
            }
        }
        for (worker, at) in state.workers.iter().enumerate() {
            let lane = worker / self.workers;
            match at {
                At::Idle => {
                    let ready = self.may_take(state, lane);
                    actions.extend(ready.into_iter().map(|n| Action::Take(worker, n)));
                    if self.looks_idle && state.resolved[lane] < ends[lane] {
                        actions.push(Action::Look(worker));
                    }
                }
                At::Running(_) => actions.push(Action::Finish(worker)),
                At::Ran => actions.push(Action::Look(worker)),
                At::HasMax(_) | At::SawEmpty => actions.push(Action::LookAgain(worker)),
            }
        }
    }

    /// A live record that is never replayed: no remaining step could make the record ready.
    fn hangs(&self, state: &State) -> Option<u8> {
        let ends = state.ends?;
        let left = (0..state.done.len() as u8)
            .find(|n| Self::live(state, *n) && !state.done[*n as usize])?;
        let lanes = || 0..self.streams;
        let decoded = lanes().all(|l| state.decoded[l] == ends[l] && !state.between[l]);
        let idle = state.workers.iter().all(|at| *at == At::Idle);
        let takes = lanes().any(|lane| !self.may_take(state, lane).is_empty());
        let learns = self.looks_idle
            && lanes().any(|lane| {
                self.head(state, lane).unwrap_or(state.max_lsn[lane]) > state.resolved[lane]
            });
        (decoded && idle && !takes && !learns).then_some(left)
    }
}

impl Model for Replay {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            history: History::default(),
            durable: BOTTOM,
            ends: None,
            decoded: BOTTOM,
            between: [false; LANES],
            pools: Default::default(),
            max_lsn: BOTTOM,
            resolved: BOTTOM,
            workers: vec![At::Idle; self.workers * self.streams],
            done: Vec::new(),
            early: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if let Some(ends) = state.ends {
            return self.replay_actions(state, ends, actions);
        }
        if state.history.txns.len() < self.txns {
            let ops = state.history.ops(self.streams, false);
            actions.extend(ops.into_iter().map(Action::Run));
        }
        let frames: usize = state.history.streams.iter().map(Vec::len).sum();
        if frames - state.history.txns.len() < self.anchors {
            actions.extend((0..self.streams).map(Action::Anchor));
        }
        let appended = state.history.appended();
        if !self.losses {
            return actions.push(Action::Crash(appended));
        }
        for first in state.durable[0]..=appended[0] {
            for second in state.durable[1]..=appended[1] {
                actions.push(Action::Crash([first, second, 0]));
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        match action {
            Action::Run(op) => {
                state.history.commit(op, Stamping::BeforeRelease);
                state.done.push(false);
            }
            Action::Anchor(lane) => {
                state.durable = state.history.appended();
                state.history.anchor(lane, state.durable);
            }
            Action::Crash(ends) => state.ends = Some(ends),
            Action::Decode(lane) => {
                state.decoded[lane] += 1;
                // A frame that is neither enqueued nor counted has no second step.
                state.between[lane] = self.counts(&state, lane);
                if self.raised_first {
                    self.raise(&mut state, lane);
                } else {
                    Self::enqueue(&mut state, lane);
                }
            }
            Action::Complete(lane) => {
                state.between[lane] = false;
                if self.raised_first {
                    Self::enqueue(&mut state, lane);
                } else {
                    self.raise(&mut state, lane);
                }
            }
            Action::Take(worker, number) => self.take(&mut state, worker, number),
            Action::Finish(worker) => {
                let At::Running(number) = state.workers[worker] else { return None };
                state.done[number as usize] = true;
                state.workers[worker] = At::Ran;
            }
            Action::Look(worker) => self.look(&mut state, worker),
            Action::LookAgain(worker) => self.look_again(&mut state, worker),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(ORDERED, |_, s: &State| s.early.is_none()),
            Property::sometimes("all that was written is replayed", |m: &Replay, s: &State| {
                s.done.len() == m.txns && s.done.iter().all(|done| *done)
            }),
            Property::sometimes("two records are run at once", |_, s: &State| {
                s.workers.iter().filter(|at| matches!(at, At::Running(_))).count() > 1
            }),
        ];
        if self.ends {
            properties.push(Property::always(ENDS, |m: &Replay, s| m.hangs(s).is_none()));
        }
        if self.losses {
            properties.push(Property::sometimes(
                "a record behind a dead one is replayed",
                |_, s: &State| {
                    s.history.streams.iter().any(|stream| {
                        let mut dead = false;
                        stream.iter().any(|frame| match *frame {
                            Frame::Record(n) if s.done[n as usize] => dead,
                            Frame::Record(n) => {
                                let txn = &s.history.txns[n as usize];
                                let lane = txn.op.stream as usize;
                                let there = |ends: Vector| txn.vector[lane] <= ends[lane];
                                dead |= s.ends.is_some_and(there) && !Self::live(s, n);
                                false
                            }
                            Frame::Anchor => false,
                        })
                    })
                },
            ));
        }
        properties
    }
}

impl Protocol for Replay {
    fn tell(&self, before: &State, action: &Action, after: &State) -> String {
        let pool = |worker: usize| worker / self.workers + 1;
        let who = |worker: usize| {
            let number = (b'A' + (worker % self.workers) as u8) as char;
            format!("worker {}{number}", pool(worker))
        };
        let resolved = || {
            let rlv = show(after.resolved, self.streams);
            if before.resolved == after.resolved {
                String::new()
            } else {
                format!("; RLV is {rlv}")
            }
        };
        match action {
            Action::Run(_) => after.history.tell_last(self.streams),
            Action::Anchor(lane) => format!(
                "stream {} [{},{}): an anchor of {}",
                lane + 1,
                after.durable[*lane],
                after.durable[*lane] + 1,
                show(after.durable, self.streams)
            ),
            Action::Crash(ends) => {
                format!("power fails; replay of streams that end at {}", show(*ends, self.streams))
            }
            Action::Decode(lane) if self.raised_first => {
                format!("log manager {} raises maxLSN to {}", lane + 1, after.max_lsn[*lane])
            }
            Action::Decode(lane) => match after.pools[*lane].last() {
                Some(number) if before.pools[*lane] != after.pools[*lane] => {
                    format!("log manager {} enqueues T{}", lane + 1, number + 1)
                }
                _ => format!("log manager {} skips a frame", lane + 1),
            },
            Action::Complete(lane) if before.max_lsn != after.max_lsn => {
                format!("log manager {} raises maxLSN to {}", lane + 1, after.max_lsn[*lane])
            }
            Action::Complete(lane) => format!("log manager {} continues", lane + 1),
            Action::Take(worker, number) => format!("{} dequeues T{}", who(*worker), number + 1),
            Action::Finish(worker) => match before.workers[*worker] {
                At::Running(number) => format!("{} has replayed T{}", who(*worker), number + 1),
                _ => format!("{} has replayed nothing", who(*worker)),
            },
            Action::Look(worker) => match after.workers[*worker] {
                At::SawEmpty => {
                    format!("{} sees that pool {} is empty", who(*worker), pool(*worker))
                }
                At::HasMax(max) => format!("{} reads maxLSN {max}", who(*worker)),
                _ => format!("{} checks pool {}{}", who(*worker), pool(*worker), resolved()),
            },
            Action::LookAgain(worker) => match before.workers[*worker] {
                At::HasMax(_) => {
                    format!("{} checks pool {}{}", who(*worker), pool(*worker), resolved())
                }
                _ => format!(
                    "{} reads maxLSN {}{}",
                    who(*worker),
                    after.max_lsn[*worker / self.workers],
                    resolved()
                ),
            },
        }
    }

    fn verdict(&self, state: &State) -> String {
        if let Some((taken, missing)) = state.early {
            let (taken, missing) = (taken + 1, missing + 1);
            return format!("T{taken} is replayed before T{missing}, on which it depends");
        }
        match self.hangs(state) {
            Some(left) => format!(
                "T{} is never replayed: it needs {}, and RLV stays at {}",
                left + 1,
                show(state.history.txns[left as usize].logged, self.streams),
                show(state.resolved, self.streams)
            ),
            None => "nothing is wrong".into(),
        }
    }
}
