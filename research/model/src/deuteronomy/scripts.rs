//! Models of parties with a script each: steps taken in sequence, with waits. All interleavings are
//! explored.

use crate::check::Protocol;
use stateright::{Model, Property};
use std::fmt::Debug;
use std::hash::Hash;

/// The item of docs/protocols.
pub(super) const ITEM: &str = "Deuteronomy";

/// A step of a script.
#[derive(Debug)]
pub(super) struct ScriptStep<S: 'static> {
    /// The action in a few words.
    pub does: &'static str,
    /// The state after the step; None while the party has to wait.
    pub act: fn(S) -> Option<S>,
}

/// A party and its script.
pub(super) type Script<S> = (&'static str, Vec<ScriptStep<S>>);

/// Parties that share a state of type `S`.
#[derive(Debug)]
pub(super) struct Scripts<S: 'static> {
    pub initial: S,
    pub scripts: Vec<Script<S>>,
    /// The promise, and whether a state keeps the promise.
    pub promise: (&'static str, fn(&S) -> bool),
    /// The fault in a state that breaks the promise.
    pub verdict: &'static str,
    /// A property of some state, without which the promise would mean nothing.
    pub reaches: (&'static str, fn(&S) -> bool),
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ScriptsState<S> {
    shared: S,
    /// By party, the next step of the script.
    next: Vec<u8>,
}

/// The bounds of the states of these models.
pub(super) trait Shared: Copy + Debug + Eq + Hash + Send + Sync + 'static {}

impl<S: Copy + Debug + Eq + Hash + Send + Sync + 'static> Shared for S {}

impl<S: Shared> Scripts<S> {
    fn step(&self, state: &ScriptsState<S>, at: usize) -> Option<&ScriptStep<S>> {
        self.scripts[at].1.get(state.next[at] as usize)
    }
}

impl<S: Shared> Model for Scripts<S> {
    type State = ScriptsState<S>;
    type Action = usize;

    fn init_states(&self) -> Vec<ScriptsState<S>> {
        vec![ScriptsState { shared: self.initial, next: vec![0; self.scripts.len()] }]
    }

    fn actions(&self, state: &ScriptsState<S>, actions: &mut Vec<usize>) {
        let is_enabled = |at: &usize| {
            self.step(state, *at).is_some_and(|step| (step.act)(state.shared).is_some())
        };
        actions.extend((0..self.scripts.len()).filter(is_enabled));
    }

    fn next_state(&self, state: &ScriptsState<S>, at: usize) -> Option<ScriptsState<S>> {
        let shared = (self.step(state, at)?.act)(state.shared)?;
        let mut next = state.next.clone();
        next[at] += 1;
        Some(ScriptsState { shared, next })
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(self.promise.0, |model: &Self, state: &ScriptsState<S>| {
                (model.promise.1)(&state.shared)
            }),
            Property::sometimes(self.reaches.0, |model: &Self, state: &ScriptsState<S>| {
                (model.reaches.1)(&state.shared)
            }),
        ]
    }
}

impl<S: Shared> Protocol for Scripts<S> {
    fn tell(&self, before: &ScriptsState<S>, at: &usize, _: &ScriptsState<S>) -> String {
        let does = self.step(before, *at).map_or("rests", |step| step.does);
        format!("{} {does}", self.scripts[*at].0)
    }

    fn verdict(&self, _: &ScriptsState<S>) -> String {
        self.verdict.to_string()
    }
}
