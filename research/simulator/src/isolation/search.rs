//! Tries all serial orders: slow, but simple enough to be trusted.

use super::{End, Observed, Op, Order};
use std::collections::BTreeMap;
use std::rc::Rc;

#[derive(Clone, Default)]
struct SearchState {
    lists: BTreeMap<u64, Vec<u64>>,
    registers: BTreeMap<u64, u64>,
}

impl SearchState {
    /// Runs a transaction. Returns false if the transaction would read something else than before.
    fn run(&mut self, observed: &Observed) -> bool {
        let Some(next) = self.after(observed) else { return false };
        if !matches!(observed.end, End::Aborted(_)) {
            *self = next;
        }
        true
    }

    /// The state after a transaction, were the transaction to commit. `None` if the transaction
    /// would read something else than before.
    fn after(&self, observed: &Observed) -> Option<SearchState> {
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
                return None;
            }
        }
        Some(next)
    }

    /// Installs the writes of a transaction that has read `snapshot`. Returns false if another has
    /// written there since.
    fn install(&mut self, observed: &Observed, snapshot: &SearchState) -> bool {
        let after = snapshot.after(observed).expect("it has run");
        for op in &observed.ops {
            let is_first = match op {
                Op::Append { key, .. } => self.lists.get(key) == snapshot.lists.get(key),
                Op::Write { key, .. } => self.registers.get(key) == snapshot.registers.get(key),
                Op::List { .. } | Op::Scan { .. } => true,
            };
            if !is_first {
                return false;
            }
        }
        for op in &observed.ops {
            match op {
                Op::Append { key, .. } => drop(self.lists.insert(*key, after.lists[key].clone())),
                Op::Write { key, .. } => drop(self.registers.insert(*key, after.registers[key])),
                Op::List { .. } | Op::Scan { .. } => {}
            }
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

/// Where a transaction is in a search for a history of snapshots.
#[derive(Clone)]
enum Progress {
    ToBegin,
    /// The transaction has read this state, and has to commit.
    Begun(Rc<SearchState>),
    Done,
}

/// Whether snapshots explain the history: each transaction reads all commits before its start, and
/// of two writers at the same place one begins after the other has committed. The order agrees with
/// real time. Only for a few transactions.
pub fn has_order_of_snapshots(history: &[Observed]) -> bool {
    fn go(history: &[Observed], all: &mut Vec<Progress>, state: &SearchState) -> bool {
        let is_settled = |(at, progress): (usize, &Progress)| {
            history[at].end == End::Unknown || matches!(progress, Progress::Done)
        };
        if all.iter().enumerate().all(|(at, progress)| is_settled((at, progress))) {
            return true;
        }
        (0..all.len()).any(|at| {
            let mut next = state.clone();
            let to = match &all[at] {
                Progress::Done => return false,
                Progress::ToBegin => {
                    let is_late = |(other, progress): (usize, &Progress)| {
                        let told = answered_at(&history[other]);
                        let is_before = told.is_some_and(|told| told < history[at].invoked);
                        is_before && !matches!(progress, Progress::Done)
                    };
                    let has_to_wait =
                        all.iter().enumerate().any(|(n, progress)| is_late((n, progress)));
                    if has_to_wait || state.after(&history[at]).is_none() {
                        return false;
                    }
                    Progress::Begun(Rc::new(state.clone()))
                }
                Progress::Begun(_) if matches!(history[at].end, End::Aborted(_)) => Progress::Done,
                Progress::Begun(snapshot) => {
                    if !next.install(&history[at], snapshot) {
                        return false;
                    }
                    Progress::Done
                }
            };
            let from = std::mem::replace(&mut all[at], to);
            let found = go(history, all, &next);
            all[at] = from;
            found
        })
    }
    go(history, &mut vec![Progress::ToBegin; history.len()], &SearchState::default())
}

/// Whether a serial order explains the history. The order holds all transactions with a known end
/// and any of the rest, and agrees with `order`. Only for a few transactions.
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
