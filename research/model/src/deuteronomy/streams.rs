//! The waits of an acknowledgement, and the content allowed in the data component, over two
//! streams: item "Deuteronomy" of docs/protocols.
//!
//! U logs in stream 1. T reads U's write and logs in stream 2. R reads T's write. Streams are
//! flushed at any time, R is answered when its rule says so, the proxy applies what its rule says,
//! and the power fails. Promises: the versions that an answered reader has read are there after the
//! power cut, and the data component holds nothing else.

use super::scripts::ITEM;
use crate::case::{Case, Rules};
use crate::check::{Outcome, Protocol, explore};
use stateright::{Model, Property};

/// The rules of waiting.
#[derive(Debug, Clone, Copy)]
struct WaitRules {
    /// A reader waits for the records that it has read from, not for their dependencies.
    direct: bool,
    /// The proxy applies a durable record, whatever its dependencies.
    applies_own: bool,
}

const WAITS: WaitRules = WaitRules { direct: false, applies_own: false };

/// The model.
#[derive(Debug, Clone)]
pub struct DependentStreams {
    rules: WaitRules,
}

/// A state of the model. U's record is in stream 0, T's in stream 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct StreamsState {
    committed: [bool; 2],
    durable: [bool; 2],
    has_read: bool,
    answered: bool,
    applied: [bool; 2],
    power_failed: bool,
}

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamsAction {
    /// U or T commits.
    Commit(u8),
    /// A stream becomes durable.
    Flush(u8),
    /// R reads.
    Read,
    /// R is answered.
    Answer,
    /// The data component gets the write of U or T.
    Apply(u8),
    /// The power fails.
    PowerCut,
}

use StreamsAction::{Answer, Apply, Commit, Flush, PowerCut, Read};

const THERE: &str = "what an answered reader has read is there after a power cut";
const NOTHING_ELSE: &str = "the data component holds nothing that a power cut takes back";

impl StreamsState {
    /// Whether U's or T's record survives a power cut now.
    fn lives(&self, at: usize) -> bool {
        self.durable[at] && (at == 0 || self.durable[0])
    }
}

impl Model for DependentStreams {
    type State = StreamsState;
    type Action = StreamsAction;

    fn init_states(&self) -> Vec<StreamsState> {
        vec![StreamsState::default()]
    }

    fn actions(&self, state: &StreamsState, actions: &mut Vec<StreamsAction>) {
        if state.power_failed {
            return;
        }
        actions.push(PowerCut);
        for at in 0..2 {
            // T reads U's version, so U commits first.
            if !state.committed[at] && (at == 0 || state.committed[0]) {
                actions.push(Commit(at as u8));
            }
            if state.committed[at] && !state.durable[at] {
                actions.push(Flush(at as u8));
            }
            let admitted = if self.rules.applies_own { state.durable[at] } else { state.lives(at) };
            if admitted && !state.applied[at] {
                actions.push(Apply(at as u8));
            }
        }
        if state.committed[1] && !state.has_read {
            actions.push(Read);
        }
        let admitted = if self.rules.direct { state.durable[1] } else { state.lives(1) };
        if state.has_read && !state.answered && admitted {
            actions.push(Answer);
        }
    }

    fn next_state(&self, state: &StreamsState, action: StreamsAction) -> Option<StreamsState> {
        let mut next = *state;
        match action {
            Commit(at) => next.committed[at as usize] = true,
            Flush(at) => next.durable[at as usize] = true,
            Read => next.has_read = true,
            Answer => next.answered = true,
            Apply(at) => next.applied[at as usize] = true,
            PowerCut => next.power_failed = true,
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(THERE, |_, state: &StreamsState| {
                !(state.power_failed && state.answered) || state.lives(1)
            }),
            Property::always(NOTHING_ELSE, |_, state: &StreamsState| {
                !state.power_failed || (0..2).all(|at| !state.applied[at] || state.lives(at))
            }),
            Property::sometimes("R is answered", |_, state: &StreamsState| state.answered),
        ]
    }
}

impl Protocol for DependentStreams {
    fn tell(&self, _: &StreamsState, action: &StreamsAction, _: &StreamsState) -> String {
        let name = |at: u8| if at == 0 { "U" } else { "T" };
        match *action {
            Commit(0) => "U commits; its record is in stream 1".to_string(),
            Commit(_) => "T reads what U has written and commits; its record is in stream 2".into(),
            Flush(at) => format!("stream {} is durable", at + 1),
            Read => "R reads what T has written".to_string(),
            Answer => "R is answered".to_string(),
            Apply(at) => format!("the data component gets what {} has written", name(at)),
            PowerCut => "the power fails".to_string(),
        }
    }

    fn verdict(&self, _: &StreamsState) -> String {
        "U is lost, and T with it".to_string()
    }
}

fn run(rules: WaitRules) -> Outcome {
    explore(DependentStreams { rules })
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::breaks(
            (ITEM, Rules::Printed),
            "a reader waits for the latest record that it has read from",
            THERE,
            || run(WaitRules { direct: true, ..WAITS }),
        ),
        Case::breaks(
            (ITEM, Rules::Mutation),
            "the proxy applies a record before what it depends on is durable",
            NOTHING_ELSE,
            || run(WaitRules { applies_own: true, ..WAITS }),
        ),
        Case::holds(ITEM, "what is read is admitted with all that it depends on", 20, || {
            run(WAITS)
        }),
    ]
}
