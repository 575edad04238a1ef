//! How far a buffer may be flushed: the item *flush point* of docs/protocols.
//!
//! Workers reserve and fill frames in one stream; a flusher determines the filled frames. Each
//! load, store and addition is a step. `crates/wal/src/order.rs` runs the same algorithm under
//! loom, with weak memory.

use crate::case::{Case, Rules};
use crate::check::{Outcome, Protocol, explore};
use stateright::{Model, Property};

const WORKERS: usize = 2;

/// The model.
#[derive(Debug, Clone)]
pub struct FlushPoint {
    /// Number of frames that each worker appends.
    pub frames: u8,
    /// Number of scans of the flusher, without scans after which a worker waits for room.
    pub looks: u8,
    /// Frames that the buffer holds.
    pub room: u8,
    /// Whether a worker states its own place before the wait for room.
    pub states_place: bool,
    /// Whether the flusher loads logLSN before the workers' slots.
    pub log_lsn_first: bool,
    /// Whether the flusher loads `filled` before `allocated`.
    pub filled_first: bool,
    /// Whether workers announce a reservation before making it.
    pub announced: bool,
    /// Whether `filled` is stored before the bytes are.
    pub hasty: bool,
}

/// The next step of a worker for its frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Work {
    /// Load logLSN.
    Load,
    /// Store the loaded value in `allocated`.
    Announce(u8),
    /// Add to logLSN.
    Reserve,
    /// Copy the frame at this position, or store `filled`.
    First(u8),
    /// The second of these two steps.
    Second(u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Worker {
    work: Work,
    left: u8,
    allocated: u8,
    filled: u8,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    log_lsn: u8,
    bytes: Vec<bool>,
    workers: [Worker; WORKERS],
    /// Loads done by the flusher in this scan.
    loads: u8,
    looks: u8,
    ready: u8,
    half: u8,
    flushed: u8,
    /// A position that was flushed unfilled.
    hole: Option<u8>,
}

/// A step of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// A worker's next step.
    Worker(usize),
    /// The flusher's next load; after the last it flushes.
    Flusher,
}

/// `allocated` of a worker that has not announced anything yet.
const NEVER: u8 = u8::MAX;
const FILLED: &str = "only filled frames are flushed";
const ROOM: &str = "a worker that waits for room gets it";
/// Loads per scan: logLSN, and two for each worker.
const LOADS: u8 = 1 + 2 * WORKERS as u8;

/// The next load of the flusher.
enum Load {
    LogLsn,
    Half(usize),
    OtherHalf(usize),
}

impl FlushPoint {
    /// The rules as built.
    pub fn ours() -> FlushPoint {
        FlushPoint {
            frames: 2,
            looks: 2,
            room: WORKERS as u8 * 2,
            states_place: true,
            log_lsn_first: true,
            filled_first: false,
            announced: true,
            hasty: false,
        }
    }

    fn load(&self, number: u8) -> Load {
        let slots = if self.log_lsn_first { number.checked_sub(1) } else { Some(number) };
        match slots {
            Some(n) if n < LOADS - 1 && n % 2 == 0 => Load::Half(n as usize / 2),
            Some(n) if n < LOADS - 1 => Load::OtherHalf(n as usize / 2),
            _ => Load::LogLsn,
        }
    }

    fn flusher(&self, state: &mut State) {
        if state.loads == 0 {
            state.ready = NEVER;
        }
        match self.load(state.loads) {
            Load::LogLsn => state.ready = state.ready.min(state.log_lsn),
            Load::Half(w) => {
                let Worker { allocated, filled, .. } = state.workers[w];
                state.half = if self.filled_first { filled } else { allocated };
            }
            Load::OtherHalf(w) => {
                let Worker { allocated, filled, .. } = state.workers[w];
                let (allocated, filled) =
                    if self.filled_first { (allocated, state.half) } else { (state.half, filled) };
                if allocated >= filled {
                    state.ready = state.ready.min(allocated);
                }
            }
        }
        state.loads += 1;
        if state.loads == LOADS {
            let unfilled = |at: &u8| !state.bytes[*at as usize];
            state.hole = state.hole.or((state.flushed..state.ready).find(unfilled));
            state.flushed = state.flushed.max(state.ready);
            (state.loads, state.half) = (0, 0);
            let waits = |worker: &Worker| worker.left > 0 && !self.can_go_on(state, worker);
            if !state.workers.iter().any(waits) {
                state.looks += 1;
            }
        }
    }

    /// Whether a worker's frame at this position has no room yet.
    fn lacks_room(&self, flushed: u8, start: u8) -> bool {
        start + 1 > flushed + self.room
    }

    fn must_state(&self, flushed: u8, worker: &Worker, start: u8) -> bool {
        let lacks_room = self.lacks_room(flushed, start);
        self.states_place && lacks_room && worker.allocated != start
    }

    /// Whether the worker can take its next step.
    fn can_go_on(&self, state: &State, worker: &Worker) -> bool {
        match worker.work {
            _ if worker.left == 0 => false,
            Work::First(start) => {
                !self.lacks_room(state.flushed, start)
                    || self.must_state(state.flushed, worker, start)
            }
            _ => true,
        }
    }

    /// Whether workers wait for room, and no scan will ever flush anything.
    fn is_stuck(&self, state: &State) -> bool {
        let waits = state.workers.iter().any(|worker| worker.left > 0);
        let unfilled = |worker: &&Worker| worker.allocated >= worker.filled;
        let held = state.workers.iter().filter(unfilled).map(|worker| worker.allocated).min();
        waits
            && !state.workers.iter().any(|worker| self.can_go_on(state, worker))
            && held.unwrap_or(NEVER).min(state.log_lsn) <= state.flushed
    }

    fn worker(&self, state: &mut State, number: usize) {
        let worker = &mut state.workers[number];
        worker.work = match worker.work {
            Work::Load if self.announced => Work::Announce(state.log_lsn),
            Work::Load => Work::Reserve,
            Work::Announce(seen) => {
                worker.allocated = seen;
                Work::Reserve
            }
            Work::Reserve => {
                state.log_lsn += 1;
                Work::First(state.log_lsn - 1)
            }
            Work::First(start) if self.must_state(state.flushed, worker, start) => {
                worker.allocated = start;
                Work::First(start)
            }
            Work::First(start) | Work::Second(start) => {
                let first = matches!(worker.work, Work::First(_));
                if first == self.hasty {
                    worker.filled = start + 1;
                } else {
                    state.bytes[start as usize] = true;
                }
                if first {
                    Work::Second(start)
                } else {
                    worker.left -= 1;
                    Work::Load
                }
            }
        };
    }
}

impl Model for FlushPoint {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let worker = Worker { work: Work::Load, left: self.frames, allocated: NEVER, filled: 0 };
        vec![State {
            log_lsn: 0,
            bytes: vec![false; WORKERS * self.frames as usize],
            workers: [worker; WORKERS],
            loads: 0,
            looks: 0,
            ready: NEVER,
            half: 0,
            flushed: 0,
            hole: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let busy = (0..WORKERS).filter(|w| self.can_go_on(state, &state.workers[*w]));
        actions.extend(busy.map(Action::Worker));
        if state.looks < self.looks {
            actions.push(Action::Flusher);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        match action {
            Action::Worker(number) => self.worker(&mut state, number),
            Action::Flusher => self.flusher(&mut state),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(FILLED, |_, s: &State| s.hole.is_none()),
            Property::always(ROOM, |m: &FlushPoint, s: &State| !m.is_stuck(s)),
            Property::sometimes("everything is flushed", |m: &FlushPoint, s: &State| {
                s.flushed as usize == WORKERS * m.frames as usize
            }),
            Property::sometimes("a frame in work holds back a filled one", |_, s: &State| {
                s.loads == 0
                    && s.looks > 0
                    && s.bytes[s.flushed as usize % s.bytes.len()..].contains(&true)
            }),
        ]
    }
}

impl Protocol for FlushPoint {
    fn tell(&self, before: &State, action: &Action, after: &State) -> String {
        match action {
            Action::Worker(number) => {
                let who = format!("worker {}", number + 1);
                match before.workers[*number].work {
                    Work::Load => format!("{who} loads logLSN {}", before.log_lsn),
                    Work::Announce(seen) => format!("{who} stores allocated = {seen}"),
                    Work::Reserve => {
                        format!("{who} reserves [{},{})", before.log_lsn, after.log_lsn)
                    }
                    Work::First(start)
                        if self.must_state(before.flushed, &before.workers[*number], start) =>
                    {
                        format!("{who} has no room, and stores allocated = {start}")
                    }
                    Work::First(start) | Work::Second(start) if before.bytes != after.bytes => {
                        format!("{who} fills [{start},{})", start + 1)
                    }
                    Work::First(start) | Work::Second(start) => {
                        format!("{who} stores filled = {}", start + 1)
                    }
                }
            }
            Action::Flusher => {
                let mut text = match self.load(before.loads) {
                    Load::LogLsn => format!("the flusher loads logLSN {}", before.log_lsn),
                    Load::Half(w) | Load::OtherHalf(w) => {
                        let slot = before.workers[w];
                        let first = matches!(self.load(before.loads), Load::Half(_));
                        let what = if first == self.filled_first {
                            format!("filled {}", slot.filled)
                        } else if slot.allocated == NEVER {
                            "allocated, which is infinite".into()
                        } else {
                            format!("allocated {}", slot.allocated)
                        };
                        format!("the flusher loads worker {}'s {what}", w + 1)
                    }
                };
                if after.looks > before.looks {
                    text += &format!("; it flushes up to {}", after.flushed);
                }
                text
            }
        }
    }

    fn verdict(&self, state: &State) -> String {
        let Some(hole) = state.hole else {
            return format!(
                "all wait for room, and nothing behind {} is flushed any more",
                state.flushed
            );
        };
        format!("[{hole},{}) is flushed, but was not filled", hole + 1)
    }
}

/// The cases of this model.
pub fn cases() -> Vec<Case> {
    use Rules::Mutation;
    fn run(model: FlushPoint) -> Outcome {
        explore(model)
    }
    vec![
        Case::breaks(("Flush point", Mutation), "logLSN is loaded last", FILLED, || {
            run(FlushPoint { log_lsn_first: false, ..FlushPoint::ours() })
        }),
        Case::breaks(
            ("Flush point", Mutation),
            "a frame is reserved without storing allocated",
            FILLED,
            || run(FlushPoint { announced: false, ..FlushPoint::ours() }),
        ),
        Case::breaks(
            ("Flush point", Mutation),
            "filled is stored before the bytes",
            FILLED,
            || run(FlushPoint { hasty: true, ..FlushPoint::ours() }),
        ),
        Case::breaks(
            ("Flush point", Mutation),
            "a worker waits for room with the place that it stored before it reserved",
            ROOM,
            || run(FlushPoint { room: 2, states_place: false, ..FlushPoint::ours() }),
        ),
        Case::holds("Flush point", "a buffer that is smaller than all frames", 10_000, || {
            run(FlushPoint { room: 2, ..FlushPoint::ours() })
        }),
        Case::holds("Flush point", "logLSN first, then allocated before filled", 10_000, || {
            run(FlushPoint::ours())
        }),
        Case::holds("Flush point", "logLSN first, then filled before allocated", 10_000, || {
            run(FlushPoint { filled_first: true, ..FlushPoint::ours() })
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::cases;
    use crate::case::verify_item;

    #[test]
    fn what_is_flushed_is_filled() {
        verify_item(cases(), "Flush point");
    }
}
