//! The order in which transactions enter the queues of their partitions: item Turns of
//! docs/protocols.
//!
//! Each partition has a queue. A transaction enters the queues of its partitions in ascending
//! order, and leaves all when first in each. A transaction is *placed* once no queue is left to
//! enter.

use crate::case::{Case, Rules};
use crate::check::{Outcome, Protocol, explore};
use stateright::{Model, Property};

/// How long a transaction waits for its predecessor in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Following {
    /// Until the predecessor is placed or gone, in each queue.
    EachQueue,
    /// As `EachQueue`, but without a wait in the last queue.
    AllButLast,
    /// Not at all.
    Never,
}

/// The model: the queues of each transaction.
#[derive(Debug, Clone)]
pub struct Turns {
    /// The rule.
    pub following: Following,
    /// For each transaction the partitions, ascending.
    pub transactions: &'static [&'static [usize]],
}

/// The progress of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Progress {
    /// The transaction stands in this many queues, and may enter the next queue.
    In(usize),
    /// The transaction stands in this many queues, and waits until this predecessor is placed or
    /// gone.
    Follows(usize, usize),
    Placed,
    Gone,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    queues: Vec<Vec<usize>>,
    progress: Vec<Progress>,
}

/// A step of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// A transaction enters its next queue.
    Enter(usize),
    /// The transaction finds its predecessor placed, or gone.
    GoOn(usize),
    /// The transaction runs, and leaves all queues.
    Run(usize),
}

const NO_CIRCLE: &str = "transactions do not wait for each other in a circle";

impl Turns {
    fn is_first(&self, state: &State, transaction: usize) -> bool {
        let queues = self.transactions[transaction];
        queues.iter().all(|&queue| state.queues[queue].first() == Some(&transaction))
    }

    /// The progress of a transaction that stands in `entered` queues, and has nothing to wait for.
    fn after(&self, transaction: usize, entered: usize) -> Progress {
        if entered == self.transactions[transaction].len() {
            Progress::Placed
        } else {
            Progress::In(entered)
        }
    }
}

impl Model for Turns {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let queues = self.transactions.iter().flat_map(|queues| queues.iter()).max();
        let count = queues.map_or(0, |last| last + 1);
        let progress = vec![Progress::In(0); self.transactions.len()];
        vec![State { queues: vec![Vec::new(); count], progress }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (transaction, progress) in state.progress.iter().enumerate() {
            match *progress {
                Progress::In(_) => actions.push(Action::Enter(transaction)),
                Progress::Follows(_, ahead) => {
                    if matches!(state.progress[ahead], Progress::Placed | Progress::Gone) {
                        actions.push(Action::GoOn(transaction));
                    }
                }
                Progress::Placed if self.is_first(state, transaction) => {
                    actions.push(Action::Run(transaction));
                }
                Progress::Placed | Progress::Gone => {}
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Enter(at) => {
                let Progress::In(entered) = state.progress[at] else { return None };
                let queue = &mut next.queues[self.transactions[at][entered]];
                let ahead = queue.last().copied();
                queue.push(at);
                let is_last = entered + 1 == self.transactions[at].len();
                let waits = match self.following {
                    Following::EachQueue => true,
                    Following::AllButLast => !is_last,
                    Following::Never => false,
                };
                next.progress[at] = match ahead.filter(|_| waits) {
                    Some(ahead) => Progress::Follows(entered + 1, ahead),
                    None => self.after(at, entered + 1),
                };
            }
            Action::GoOn(at) => {
                let Progress::Follows(entered, _) = state.progress[at] else { return None };
                next.progress[at] = self.after(at, entered);
            }
            Action::Run(at) => {
                next.queues.iter_mut().for_each(|queue| queue.retain(|&other| other != at));
                next.progress[at] = Progress::Gone;
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NO_CIRCLE, |model: &Self, state: &State| {
                let mut actions = Vec::new();
                model.actions(state, &mut actions);
                !actions.is_empty() || state.progress.iter().all(|p| *p == Progress::Gone)
            }),
            Property::sometimes("all have run", |_, state: &State| {
                state.progress.iter().all(|progress| *progress == Progress::Gone)
            }),
            Property::sometimes("one is behind another in every queue", |_, state: &State| {
                state.queues.iter().all(|queue| queue.len() > 1)
            }),
        ]
    }
}

impl Protocol for Turns {
    fn tell(&self, before: &State, action: &Action, _: &State) -> String {
        match *action {
            Action::Enter(at) => {
                let Progress::In(entered) = before.progress[at] else { return String::new() };
                let queue = self.transactions[at][entered];
                match before.queues[queue].last() {
                    Some(ahead) => {
                        format!("T{} enters queue {queue}, behind T{}", at + 1, ahead + 1)
                    }
                    None => format!("T{} enters queue {queue}", at + 1),
                }
            }
            Action::GoOn(at) => format!("T{} goes on: its predecessor is placed", at + 1),
            Action::Run(at) => format!("T{} runs, and leaves", at + 1),
        }
    }

    fn verdict(&self, state: &State) -> String {
        let queue = |queue: &Vec<usize>| {
            let names: Vec<String> = queue.iter().map(|at| format!("T{}", at + 1)).collect();
            names.join(", ")
        };
        let queues: Vec<String> = state.queues.iter().map(queue).collect();
        format!("nothing can happen; the queues are: {}", queues.join("; "))
    }
}

/// The cases of this model.
pub fn cases() -> Vec<Case> {
    const TWO: &[&[usize]] = &[&[0, 1], &[0, 1]];
    const BETWEEN: &[&[usize]] = &[&[0, 1], &[0], &[0, 1]];
    const MANY: &[&[usize]] = &[&[0, 1], &[0], &[0, 1, 2], &[1, 2], &[0, 2]];
    fn run(following: Following, transactions: &'static [&'static [usize]]) -> Outcome {
        explore(Turns { following, transactions })
    }
    let mistake = ("Turns", Rules::Mutation);
    vec![
        Case::breaks(mistake, "a transaction does not wait as it enters", NO_CIRCLE, || {
            run(Following::Never, TWO)
        }),
        Case::breaks(
            mistake,
            "a transaction counts as placed though its predecessor in its last queue is not",
            NO_CIRCLE,
            || run(Following::AllButLast, BETWEEN),
        ),
        Case::holds(
            "Turns",
            "it waits in each queue for its predecessor to be placed",
            1000,
            || run(Following::EachQueue, MANY),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::cases;
    use crate::case::verify_item;

    #[test]
    fn queues_agree() {
        verify_item(cases(), "Turns");
    }
}
