//! Transactions that wait for their acknowledgement.

use crate::shared::Time;
use hyades_wal::Lane;

/// A transaction that waits for its acknowledgement.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// The value that the transaction's slot of the frontier has to reach first.
    pub until: u64,
    /// All needs of the transaction, if there is more than one.
    pub needs: Option<Box<[(Lane, u64)]>>,
    pub started: Time,
    pub worker: usize,
}

/// The transactions that wait at a slot, in order of arrival. A flush covers most transactions, so
/// that a pass over all of them costs less than an order by need.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: Vec<Waiting>,
    /// The least `until` of the queue.
    least: Option<u64>,
}

impl Queue {
    pub(crate) fn push(&mut self, waiting: Waiting) {
        let least = self.least.unwrap_or(u64::MAX);
        self.least = Some(least.min(waiting.until));
        self.waiting.push(waiting);
    }

    /// Moves the transactions with a met need to `met`, in their order.
    pub(crate) fn take_up_to(&mut self, reached: u64, met: &mut Vec<Waiting>) {
        if self.least.is_none_or(|least| least > reached) {
            return;
        }
        met.extend(self.waiting.extract_if(.., |waiting| waiting.until <= reached));
        self.least = self.waiting.iter().map(|waiting| waiting.until).min();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_met_leaves_in_the_order_of_arrival() {
        let mut queue = Queue::default();
        for (worker, until) in [5, 3, 9, 5].into_iter().enumerate() {
            queue.push(Waiting { until, needs: None, started: 0, worker });
        }
        let mut take = |reached| {
            let mut met = Vec::new();
            queue.take_up_to(reached, &mut met);
            met.iter().map(|waiting| waiting.worker).collect::<Vec<_>>()
        };
        assert_eq!((take(2), take(5), take(8)), (vec![], vec![0, 1, 3], vec![]));
        assert_eq!((take(9), take(u64::MAX)), (vec![2], vec![]));
    }
}
