//! Runs the checker on a model.

use stateright::{Checker, Expectation, HasDiscoveries, Model, Property};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A model that can describe its steps.
pub trait Protocol: Model {
    /// Describes a step in a few words.
    fn tell(&self, before: &Self::State, action: &Self::Action, after: &Self::State) -> String;

    /// Describes the fault in a state that breaks a promise.
    fn verdict(&self, state: &Self::State) -> String;
}

/// A shortest path to a state that breaks a promise.
#[derive(Debug, Clone)]
pub struct Violation {
    /// The name of the promise.
    pub promise: &'static str,
    /// The steps, in words.
    pub steps: Vec<String>,
    /// The fault after the last step.
    pub verdict: String,
}

/// The result of a check.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Number of distinct states visited: all reachable ones, if nothing was violated.
    pub states: usize,
    /// The length of the longest path followed.
    pub depth: usize,
    /// The first promise found broken.
    pub violation: Option<Violation>,
    /// `Sometimes` properties that were not reached; a good model without violation has none.
    pub unreached: Vec<&'static str>,
    /// The promises checked.
    pub promises: Vec<&'static str>,
}

/// Searches a model for the first broken promise. All properties become one: the checker keeps the
/// last violation found before its end, and `kept` reports only the first violation.
struct Hunt<M: Model> {
    model: M,
    properties: Vec<Property<M>>,
    /// Bit i: property i held in some state. Relaxed: only the one checking thread accesses the
    /// bits, and the caller reads the bits after the end of the checking thread.
    seen: AtomicU64,
    broken: OnceLock<&'static str>,
}

impl<M: Model> Hunt<M> {
    /// False for the first state that breaks a promise, and true for all later states.
    fn kept(&self, state: &M::State) -> bool {
        for (bit, property) in self.properties.iter().enumerate() {
            match property.expectation {
                Expectation::Always if !(property.condition)(&self.model, state) => {
                    return self.broken.set(property.name).is_err();
                }
                Expectation::Sometimes if self.seen.load(Ordering::Relaxed) >> bit & 1 == 0 => {
                    let here = u64::from((property.condition)(&self.model, state));
                    self.seen.fetch_or(here << bit, Ordering::Relaxed);
                }
                _ => {}
            }
        }
        true
    }
}

impl<M: Model> Model for Hunt<M> {
    type State = M::State;
    type Action = M::Action;

    fn init_states(&self) -> Vec<M::State> {
        self.model.init_states()
    }

    fn actions(&self, state: &M::State, actions: &mut Vec<M::Action>) {
        self.model.actions(state, actions);
    }

    fn next_state(&self, state: &M::State, action: M::Action) -> Option<M::State> {
        self.model.next_state(state, action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("every promise", |hunt: &Self, state| hunt.kept(state))]
    }
}

/// Explores a model, breadth first, until a promise is broken or every state was visited.
///
/// `Always` properties are the promises. `Sometimes` properties are states that must be reachable,
/// so that promises do not hold only because nothing happens.
pub fn explore<M>(model: M) -> Outcome
where
    M: Protocol + Send + Sync + 'static,
    M::State: Clone + PartialEq + Hash + Debug + Send + Sync,
    M::Action: Clone + PartialEq + Debug,
{
    let properties = model.properties();
    assert!(properties.len() <= 64, "one bit for each property");
    let (seen, broken) = (AtomicU64::new(0), OnceLock::new());
    // One thread, so that the violation found is the nearest, and always the same.
    let checker = Hunt { model, properties, seen, broken }
        .checker()
        .threads(1)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let hunt = checker.model();
    let violation = checker.discovery("every promise").map(|path| {
        let path = path.into_vec();
        let pairs = path.iter().zip(path.iter().skip(1));
        let steps = pairs
            .filter_map(|((before, action), (after, _))| {
                action.as_ref().map(|action| hunt.model.tell(before, action, after))
            })
            .collect();
        let (last, _) = path.last().expect("a path has a state");
        let promise = hunt.broken.get().copied().unwrap_or("a promise without a name");
        Violation { promise, steps, verdict: hunt.model.verdict(last) }
    });
    let seen = hunt.seen.load(Ordering::Relaxed);
    let named = |wanted: Expectation| {
        let properties = hunt.properties.iter().enumerate();
        properties.filter(move |(_, p)| p.expectation == wanted).map(|(bit, p)| (bit, p.name))
    };
    Outcome {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        violation,
        unreached: named(Expectation::Sometimes)
            .filter(|(bit, _)| seen >> bit & 1 == 0)
            .map(|(_, name)| name)
            .collect(),
        promises: named(Expectation::Always).map(|(_, name)| name).collect(),
    }
}
