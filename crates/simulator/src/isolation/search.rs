//! Tries all serial orders: slow, but simple enough to be trusted.

use super::{End, Observed, Op, Order};
use std::collections::BTreeMap;

#[derive(Clone, Default)]
struct SearchState {
    lists: BTreeMap<u64, Vec<u64>>,
    registers: BTreeMap<u64, u64>,
}

impl SearchState {
    /// Runs a transaction. Returns false if it would read something else than it did.
    fn run(&mut self, observed: &Observed) -> bool {
        let mut next = self.clone();
        for op in &observed.ops {
            let agrees = match op {
                Op::Append { key, value } => {
                    next.lists.entry(*key).or_default().push(*value);
                    true
                }
                Op::List { key, saw } => {
                    next.lists.get(key).is_none_or(Vec::is_empty) && saw.is_empty()
                        || next.lists.get(key) == Some(saw)
                }
                Op::Write { key, value, over } => next.registers.insert(*key, *value) == *over,
                Op::Scan { from, to, saw } => {
                    next.registers.range(from..=to).map(|(k, v)| (*k, *v)).eq(saw.iter().copied())
                }
            };
            if !agrees {
                return false;
            }
        }
        if !matches!(observed.end, End::Aborted(_)) {
            *self = next;
        }
        true
    }
}

fn answered_at(observed: &Observed) -> Option<u64> {
    match observed.end {
        End::Acknowledged(at) | End::Aborted(at) => Some(at),
        End::Unknown => None,
    }
}

/// Whether a serial order explains the history. The order holds all transactions with a known end
/// and any of the others, and agrees with `order`. Only for a few transactions.
pub fn has_serial_order(history: &[Observed], order: Order) -> bool {
    fn go(history: &[Observed], order: Order, left: &mut Vec<usize>, state: &SearchState) -> bool {
        if left.iter().all(|&at| history[at].end == End::Unknown) {
            return true;
        }
        for n in 0..left.len() {
            let at = left[n];
            let is_late = |other: &usize| {
                let (other, this) = (&history[*other], &history[at]);
                let is_before = answered_at(other).is_some_and(|told| told < this.invoked);
                is_before && order.separates(other, this)
            };
            if left.iter().any(is_late) {
                continue;
            }
            let mut next = state.clone();
            if !next.run(&history[at]) {
                continue;
            }
            left.remove(n);
            if go(history, order, left, &next) {
                return true;
            }
            left.insert(n, at);
        }
        false
    }
    go(history, order, &mut (0..history.len()).collect(), &SearchState::default())
}
