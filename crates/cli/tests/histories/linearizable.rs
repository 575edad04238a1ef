//! Whether a history of one object is linearizable (Herlihy and Wing, TOPLAS 1990): whether its
//! operations, each at some moment between its invocation and its response, give the actual
//! replies. The search is by Wing and Gong (JPDC 1993) with Lowe's memory of tried states
//! (Concurrency and Computation 2017).

use std::collections::HashSet;
use std::hash::Hash;

/// An operation on an object, as known to its client.
#[derive(Clone, Debug)]
pub struct Call<O, R> {
    /// The time of the request.
    pub invoked: u64,
    /// The time of the reply, and the reply; `None` if the effect of the operation is unknown.
    pub returned: Option<(u64, R)>,
    pub operation: O,
}

/// An object with known effects and replies of operations in sequence.
pub trait Sequential {
    type State: Clone + Eq + Hash;
    type Operation;
    type Reply: PartialEq;

    fn first() -> Self::State;

    fn step(state: &mut Self::State, operation: &Self::Operation) -> Self::Reply;
}

/// The operations that have taken effect, a bit each.
type Taken = Vec<u64>;

fn has(taken: &Taken, at: usize) -> bool {
    taken[at / 64] >> (at % 64) & 1 == 1
}

/// Whether the calls are linearizable.
pub fn is_linearizable<S: Sequential>(calls: &[Call<S::Operation, S::Reply>]) -> bool {
    let mut order: Vec<usize> = (0..calls.len()).collect();
    order.sort_by_key(|at| calls[*at].invoked);
    let known = calls.iter().filter(|call| call.returned.is_some()).count();
    let mut tried: HashSet<(Taken, S::State)> = HashSet::new();
    let mut stack = vec![(vec![0; calls.len().div_ceil(64)], S::first(), 0)];
    while let Some((taken, state, done)) = stack.pop() {
        if done == known {
            // Operations with an unknown outcome may never have taken effect.
            return true;
        }
        // The next operation was invoked before the return of any other remaining operation.
        let left = order.iter().copied().filter(|at| !has(&taken, *at));
        let returns = left.clone().filter_map(|at| calls[at].returned.as_ref()).map(|(at, _)| *at);
        let first_return = returns.min().expect("one that is known is left");
        for at in left.take_while(|at| calls[*at].invoked < first_return) {
            let call = &calls[at];
            let mut next = state.clone();
            let reply = S::step(&mut next, &call.operation);
            if call.returned.as_ref().is_some_and(|(_, returned)| *returned != reply) {
                continue;
            }
            let mut taken = taken.clone();
            taken[at / 64] |= 1 << (at % 64);
            if tried.insert((taken.clone(), next.clone())) {
                stack.push((taken, next, done + usize::from(call.returned.is_some())));
            }
        }
    }
    false
}
