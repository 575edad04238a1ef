//! Cut marks: item "Cut marks" of docs/protocols.
//!
//! A primary states marks (c, from, to), and a follower replays its streams in rounds, each up to a
//! mark. The model has the sessions that draw epochs and reserve positions, the steps of the thread
//! that makes marks, other threads that end epochs, and every choice of marks that a follower may
//! take or miss.
//!
//! A follower has no state of its own: a round is a function of the last mark taken, of the next
//! mark, and of the streams, which only grow. So each state is checked for every sequence of marks.
//! Left out: what records change (the frames of a round are in every stream up to `to`, and
//! replay from a cut is the matter of other models), more than two streams, and the ends of
//! incarnations, which the takeover has.

mod cases;
mod steps;
mod telling;

pub use cases::cases;

use stateright::{Model, Property};

/// The rules, as built or with a mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MarkRule {
    /// As built.
    Built,
    /// `to` is read without waiting for the sessions of the mark's epoch.
    ToEarly,
    /// `from` is noted after the epoch was advanced.
    FromLate,
    /// The epoch is not checked after `from` was noted.
    Unchecked,
    /// The epoch counts as closed only once `to` is about to be read.
    ClosedLate,
    /// A round applies records of later epochs.
    TakesLater,
    /// A round applies records of epochs that the round before had.
    SkipsNone,
    /// A round begins at `to` of the last mark.
    FromTo,
    /// A session reads the epoch before entering the slot.
    EpochFirst,
    /// A session reserves a part before it reads its epoch.
    PartFirst,
}

/// The model.
#[derive(Debug, Clone)]
pub struct Marks {
    /// The rules.
    pub rule: MarkRule,
    /// The number of sessions; session s writes to stream s mod 2.
    pub sessions: usize,
    /// The transactions of each session.
    pub transactions: u8,
    /// The marks.
    pub marks: usize,
    /// The last epoch that begins.
    pub epochs: u8,
    /// Whether transactions may draw their version when they begin.
    pub late: bool,
    /// Whether records may have a part ahead.
    pub parts: bool,
}

const STREAMS: usize = 2;
/// The most frames of a stream.
const MOST: usize = 8;

type Positions = [u8; STREAMS];

/// A frame: a record with its epoch, and the place of its part, or a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Frame {
    Part,
    Record { epoch: u8, part: Option<u8> },
}

/// How far a transaction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum At {
    Idle,
    /// The version was drawn at the beginning, in this epoch.
    Drawn(u8),
    /// In the slot, with the version drawn at the beginning if it was.
    Entered(Option<u8>),
    /// The epoch is read, and nothing is reserved.
    Versioned(u8),
    /// Another frame follows this part. Without an epoch the part came first.
    Parted(u8, Option<u8>),
    Reserved,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Session {
    at: At,
    /// The epoch in which the session entered its slot; `None`: idle.
    slot: Option<u8>,
    begun: u8,
}

/// How far the thread that makes marks is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Stage {
    Idle,
    /// The next stream whose position is noted.
    Notes(u8),
    Checks,
    Advances,
    /// The next slot.
    Waits(u8),
    Closes,
    /// The next stream whose end is read.
    Ends(u8),
}

/// A mark: the effects of all epochs up to `epoch` are below `to`, and of later ones above `from`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Mark {
    epoch: u8,
    from: Positions,
    to: Positions,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    epoch: u8,
    closed: u8,
    sessions: Vec<Session>,
    streams: [Vec<Frame>; STREAMS],
    stage: Stage,
    /// The mark under way.
    making: Mark,
    marks: Vec<Mark>,
}

/// A step of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Another thread ends the epoch.
    EndEpoch,
    /// A session's next step.
    Next(usize),
    /// A session draws the version of its transaction.
    Draw(usize),
    /// A session reserves a part, and then its record.
    Part(usize),
    /// The next step of the thread that makes marks.
    Mark,
}

const EXACT: &str =
    "after a round up to c the follower has the records of epochs up to c, each once and whole";

/// What rounds did with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The record of this stream and position, of this epoch, is missing after the round up to the
    /// second epoch, or too early.
    NotExact(usize, u8, u8, u8),
    Twice(usize, u8),
    WithoutPart(usize, u8),
}

impl Marks {
    /// Applies the rounds of the marks chosen by the bits of a mask, and returns the first fault.
    fn follow(&self, state: &State, chosen: u32) -> Option<Fault> {
        let mut times = [[0u8; MOST]; STREAMS];
        let mut last = Mark::default();
        let taken = (0..state.marks.len()).filter(|mark| chosen >> mark & 1 == 1);
        for mark in taken.map(|mark| state.marks[mark]) {
            for (stream, frames) in state.streams.iter().enumerate() {
                let fault = self.round(&last, &mark, (stream, frames), &mut times[stream]);
                if fault.is_some() {
                    return fault;
                }
            }
            last = mark;
        }
        None
    }

    /// A round over one stream.
    fn round(
        &self,
        last: &Mark,
        mark: &Mark,
        (stream, frames): (usize, &[Frame]),
        times: &mut [u8],
    ) -> Option<Fault> {
        let from = match self.rule {
            MarkRule::FromTo => last.to[stream],
            _ => last.from[stream],
        };
        for (place, frame) in (0..).zip(frames) {
            let Frame::Record { epoch, part } = *frame else { continue };
            let is_read = (from..mark.to[stream]).contains(&place);
            let skips = epoch <= last.epoch && self.rule != MarkRule::SkipsNone;
            let is_later = epoch > mark.epoch && self.rule != MarkRule::TakesLater;
            if is_read && !skips && !is_later {
                times[usize::from(place)] += 1;
                if part.is_some_and(|part| part < from) {
                    return Some(Fault::WithoutPart(stream, place));
                }
            }
            let has = times[usize::from(place)];
            if has > 1 {
                return Some(Fault::Twice(stream, place));
            }
            if (has == 1) != (epoch <= mark.epoch) {
                return Some(Fault::NotExact(stream, place, epoch, mark.epoch));
            }
        }
        None
    }

    /// The first fault of any sequence of rounds. A sequence that goes on to the last mark is
    /// checked after each round.
    fn fault(&self, state: &State) -> Option<Fault> {
        let last = state.marks.len().checked_sub(1)?;
        (0..1 << last).find_map(|chosen| self.follow(state, chosen | 1 << last))
    }
}

impl State {
    /// Whether a mark holds a record that lies behind `from`, and leaves out one below `to`.
    fn overlaps(&self) -> bool {
        let is_mixed = |mark: &Mark| {
            let within = |stream: usize| {
                let range = usize::from(mark.from[stream])..usize::from(mark.to[stream]);
                self.streams[stream][range].iter().filter_map(|frame| match frame {
                    Frame::Record { epoch, .. } => Some(*epoch),
                    Frame::Part => None,
                })
            };
            let all = || (0..STREAMS).flat_map(within);
            all().any(|epoch| epoch <= mark.epoch) && all().any(|epoch| epoch > mark.epoch)
        };
        self.marks.iter().any(is_mixed)
    }
}

impl Model for Marks {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            epoch: 1,
            closed: 0,
            sessions: vec![Session { at: At::Idle, slot: None, begun: 0 }; self.sessions],
            streams: Default::default(),
            stage: Stage::Idle,
            making: Mark::default(),
            marks: Vec::new(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Step>) {
        if state.epoch < self.epochs {
            actions.push(Step::EndEpoch);
        }
        for session in 0..self.sessions {
            self.steps_of(state, session, actions);
        }
        if self.may_mark(state) {
            actions.push(Step::Mark);
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        self.take(&mut next, step);
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(EXACT, |m: &Marks, s: &State| m.fault(s).is_none()),
            Property::sometimes("all marks are made", |m: &Marks, s: &State| {
                s.marks.len() == m.marks
            }),
            Property::sometimes(
                "a mark's epoch and a later one have records in the same range",
                |_: &Marks, s: &State| s.overlaps(),
            ),
        ];
        if self.late {
            properties.push(Property::sometimes(
                "a transaction drew its version two epochs ago, and may still commit",
                |_, s: &State| {
                    let is_old = |session: &Session| match (session.at, session.slot) {
                        (At::Versioned(epoch), Some(entered)) => epoch + 2 <= entered,
                        _ => false,
                    };
                    s.sessions.iter().any(is_old)
                },
            ));
        }
        properties
    }
}
