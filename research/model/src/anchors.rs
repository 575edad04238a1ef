//! Compressed vectors: the item *compression* of docs/protocols.
//!
//! Records of one stream depend on a second stream. A record leaves out a component covered by the
//! anchor in effect; a reader replaces the component by the component of the last anchor read. A
//! worker and the writer of anchors interleave; the beginning of the stream may be truncated.

use crate::case::{Case, Rules};
use crate::check::{Outcome, Protocol, explore};
use stateright::{Model, Property};

/// When a worker loads the anchor in effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Loading {
    /// Before the reservation of the frame.
    BeforeReserving,
    /// After the reservation of the frame.
    AfterReserving,
}

/// The model.
#[derive(Debug, Clone)]
pub struct Anchors {
    /// Number of records, and of anchors.
    pub frames: u8,
    /// When a worker loads the anchor.
    pub loading: Loading,
    /// Whether workers use an anchor before the anchor has its place.
    pub published_first: bool,
    /// Whether an anchor states the appended position instead of the durable position.
    pub of_appended: bool,
    /// Whether a segment's header repeats the anchor in effect.
    pub headers: bool,
}

/// A frame of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Frame {
    /// An anchor that covers the second stream up to this position.
    Anchor(u8),
    /// A record: the position needed, and the component stored; `None` until filled.
    Record { needs: u8, says: Option<Lane> },
}

/// A stored component of a compressed vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Lane {
    LeftOut,
    At(u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Worker {
    Idle,
    /// The worker has folded this dependency and loaded this anchor, which counts if loaded first.
    Folded(u8, u8),
    /// The worker has reserved the frame with this number.
    Reserved(u8),
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// The appended and the durable positions of the second stream.
    appended: u8,
    durable: u8,
    frames: Vec<Frame>,
    /// The anchor in effect for workers.
    published: u8,
    worker: Worker,
    /// The anchor between its two steps.
    anchoring: Option<u8>,
    /// Number of truncated frames, and the anchor in the header of the rest.
    truncated: usize,
    header: u8,
    left: (u8, u8),
}

/// A step of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// The second stream grows.
    Append,
    /// The second stream becomes durable.
    Harden,
    /// A worker folds a dependency on the end of the second stream.
    Fold,
    /// The worker reserves its frame.
    Reserve,
    /// The worker fills its frame.
    Fill,
    /// An anchor gets its place, or is published, whichever is first.
    Anchor,
    /// The second of the anchor's two steps.
    AnchorEnds,
    /// The stream is truncated: it begins with this frame.
    Truncate(usize),
}

const KEPT: &str = "a decoded record has all its dependencies";
const DURABLE: &str = "a decoded record has no further dependency that was not durable";

impl Anchors {
    /// The rules as built.
    pub fn ours() -> Anchors {
        Anchors {
            frames: 2,
            loading: Loading::BeforeReserving,
            published_first: false,
            of_appended: false,
            headers: true,
        }
    }

    fn fill(lane: u8, anchor: u8) -> Option<Lane> {
        Some(if lane <= anchor { Lane::LeftOut } else { Lane::At(lane) })
    }

    /// For each filled record: its frame, the position needed, and the position read back.
    fn read_back(state: &State) -> Vec<(usize, u8, u8)> {
        let mut anchor = state.header;
        let mut out = Vec::new();
        for (at, frame) in state.frames.iter().enumerate().skip(state.truncated) {
            match *frame {
                Frame::Anchor(vector) => anchor = anchor.max(vector),
                Frame::Record { needs, says: Some(Lane::LeftOut) } => out.push((at, needs, anchor)),
                Frame::Record { needs, says: Some(Lane::At(lane)) } => out.push((at, needs, lane)),
                Frame::Record { says: None, .. } => {}
            }
        }
        out
    }

    fn wrong(state: &State, wrong: impl Fn(u8, u8) -> bool) -> Option<(usize, u8, u8)> {
        Self::read_back(state).into_iter().find(|(_, needs, read)| wrong(*needs, *read))
    }
}

impl Model for Anchors {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            appended: 0,
            durable: 0,
            frames: Vec::new(),
            published: 0,
            worker: Worker::Idle,
            anchoring: None,
            truncated: 0,
            header: 0,
            left: (self.frames, self.frames),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.appended < self.frames + 1 {
            actions.push(Action::Append);
        }
        if state.durable < state.appended {
            actions.push(Action::Harden);
        }
        match state.worker {
            Worker::Idle if state.left.0 > 0 => actions.push(Action::Fold),
            Worker::Idle => {}
            Worker::Folded(..) => actions.push(Action::Reserve),
            Worker::Reserved(_) => actions.push(Action::Fill),
        }
        match state.anchoring {
            Some(_) => actions.push(Action::AnchorEnds),
            None if state.left.1 > 0 => actions.push(Action::Anchor),
            None => {}
        }
        if state.truncated == 0 && state.worker == Worker::Idle && state.anchoring.is_none() {
            actions.extend((1..state.frames.len()).map(Action::Truncate));
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        match action {
            Action::Append => state.appended += 1,
            Action::Harden => state.durable = state.appended,
            Action::Fold => {
                state.worker = Worker::Folded(state.appended, state.published);
                state.left.0 -= 1;
            }
            Action::Reserve => {
                let Worker::Folded(needs, anchor) = state.worker else { return None };
                let early = self.loading == Loading::BeforeReserving;
                let says = if early { Self::fill(needs, anchor) } else { None };
                state.frames.push(Frame::Record { needs, says });
                let at = state.frames.len() as u8 - 1;
                state.worker = if early { Worker::Idle } else { Worker::Reserved(at) };
            }
            Action::Fill => {
                let Worker::Reserved(at) = state.worker else { return None };
                let published = state.published;
                if let Frame::Record { needs, says } = &mut state.frames[at as usize] {
                    *says = Self::fill(*needs, published);
                }
                state.worker = Worker::Idle;
            }
            Action::Anchor => {
                let vector = if self.of_appended { state.appended } else { state.durable };
                state.anchoring = Some(vector);
                state.left.1 -= 1;
                if self.published_first {
                    state.published = vector;
                } else {
                    state.frames.push(Frame::Anchor(vector));
                }
            }
            Action::AnchorEnds => {
                let vector = state.anchoring.take()?;
                if self.published_first {
                    state.frames.push(Frame::Anchor(vector));
                } else {
                    state.published = vector;
                }
            }
            Action::Truncate(at) => {
                let before = state.frames[..at].iter().filter_map(|frame| match frame {
                    Frame::Anchor(vector) => Some(*vector),
                    Frame::Record { .. } => None,
                });
                state.header = if self.headers { before.max().unwrap_or(0) } else { 0 };
                state.truncated = at;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(KEPT, |_, s: &State| {
                Self::wrong(s, |needs, read| read < needs).is_none()
            }),
            Property::always(DURABLE, |_, s: &State| {
                Self::wrong(s, |needs, read| read > needs && read > s.durable).is_none()
            }),
            Property::sometimes(
                "a lane left out reads back as more than it was",
                |_, s: &State| Self::wrong(s, |needs, read| read > needs).is_some(),
            ),
            Property::sometimes("a lane is left out behind a truncation", |_, s: &State| {
                s.truncated > 0
                    && Self::wrong(s, |needs, read| needs > 0 && read == s.header).is_some()
            }),
        ]
    }
}

impl Protocol for Anchors {
    fn tell(&self, before: &State, action: &Action, after: &State) -> String {
        let place = || format!("[{},{})", after.frames.len() - 1, after.frames.len());
        match action {
            Action::Append => format!("stream 2 is appended up to {}", after.appended),
            Action::Harden => format!("stream 2 is durable up to {}", after.durable),
            Action::Fold => {
                let loaded = match self.loading {
                    Loading::BeforeReserving => {
                        format!(", and loads the anchor {}", after.published)
                    }
                    Loading::AfterReserving => String::new(),
                };
                format!(
                    "T{} depends on stream 2 up to {}{loaded}",
                    3 - before.left.0,
                    after.appended
                )
            }
            Action::Reserve => match (before.worker, after.worker) {
                (Worker::Folded(needs, anchor), Worker::Idle) => {
                    let out = if needs <= anchor {
                        "leaves the component out"
                    } else {
                        "stores the component"
                    };
                    format!("its record gets stream 1 {}, and {out}", place())
                }
                _ => format!("its record gets stream 1 {}", place()),
            },
            Action::Fill => format!("it loads the anchor {}, and fills the frame", after.published),
            Action::Anchor if self.published_first => {
                format!("an anchor of {} is in effect", after.published)
            }
            Action::Anchor => {
                format!("an anchor of {} gets stream 1 {}", after.anchoring.unwrap_or(0), place())
            }
            Action::AnchorEnds if self.published_first => {
                format!("the anchor gets stream 1 {}", place())
            }
            Action::AnchorEnds => "the anchor is in effect".into(),
            Action::Truncate(at) => {
                format!(
                    "stream 1 is truncated below {at}; its header has the anchor {}",
                    after.header
                )
            }
        }
    }

    fn verdict(&self, state: &State) -> String {
        let durable = state.durable;
        let wrong = Self::wrong(state, |needs, read| read < needs)
            .or_else(|| Self::wrong(state, |needs, read| read > needs && read > durable));
        match wrong {
            Some((at, needs, read)) if read < needs => {
                format!("the record at {at} needs stream 2 up to {needs}, and is decoded as {read}")
            }
            Some((at, needs, read)) => format!(
                "the record at {at} needs {needs}, and reads back as {read}, \
                 which may be lost: dead"
            ),
            None => "nothing is wrong".into(),
        }
    }
}

/// The cases of this model.
pub fn cases() -> Vec<Case> {
    use Rules::{Mutation, Printed};
    fn run(model: Anchors) -> Outcome {
        explore(model)
    }
    vec![
        Case::breaks(
            ("Compression", Printed),
            "an anchor is stored only where it was appended, and the log is truncated",
            KEPT,
            || run(Anchors { headers: false, ..Anchors::ours() }),
        ),
        Case::breaks(
            ("Compression", Mutation),
            "a worker loads the anchor after it has reserved its frame",
            KEPT,
            || run(Anchors { loading: Loading::AfterReserving, ..Anchors::ours() }),
        ),
        Case::breaks(
            ("Compression", Mutation),
            "an anchor is in effect before its frame is reserved",
            KEPT,
            || run(Anchors { published_first: true, ..Anchors::ours() }),
        ),
        Case::breaks(
            ("Compression", Mutation),
            "an anchor states what is appended, durable or not",
            DURABLE,
            || run(Anchors { of_appended: true, ..Anchors::ours() }),
        ),
        Case::holds(
            "Compression",
            "reserve, then publish; load, then reserve; each segment repeats the anchor",
            10_000,
            || run(Anchors::ours()),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::cases;
    use crate::case::verify_item;

    #[test]
    fn no_dependency_is_lost_in_compression() {
        verify_item(cases(), "Compression");
    }
}
