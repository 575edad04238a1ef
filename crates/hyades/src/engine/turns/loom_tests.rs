//! Every interleaving of a few transactions in a few queues.

use super::*;
use hyades_platform::sync::Arc;
use loom::thread;

/// Queues of two partitions, each with a counter that the first in its queue adds to, in two steps:
/// an addition that does not see the one before is lost.
struct Shared {
    queues: TurnQueues,
    counts: [AtomicU64; 2],
}

impl Shared {
    /// Adds to the counters of what the seat holds; returns how many these are.
    fn count(&self, number: u32) -> u64 {
        let held = self.queues.held(number);
        for at in partitions_of(held) {
            let count = self.counts[at].load(Ordering::Relaxed);
            self.counts[at].store(count + 1, Ordering::Relaxed);
        }
        held.count_ones().into()
    }
}

/// Runs a transaction for each set, the last one on this thread. Each tries to take `more`.
fn run(preemptions: usize, sets: &'static [u64], more: u64) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    // Those that wait look again and again.
    model.max_branches = 20_000;
    model.check(move || {
        let shared = Arc::new(Shared {
            queues: TurnQueues::new(2, true),
            counts: [AtomicU64::new(0), AtomicU64::new(0)],
        });
        let transaction = |set: u64| {
            let shared = Arc::clone(&shared);
            let number = shared.queues.add().unwrap();
            move || {
                assert!(shared.queues.enter(number, set));
                if more != 0 {
                    let _ = shared.queues.try_enter(number, more);
                }
                let counted = shared.count(number);
                shared.queues.leave(number);
                counted
            }
        };
        let (last, others) = sets.split_last().unwrap();
        let threads: Vec<_> = others.iter().map(|&set| thread::spawn(transaction(set))).collect();
        let mut counted = transaction(*last)();
        counted += threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>();
        let counts = shared.counts.iter().map(|count| count.load(Ordering::Relaxed));
        assert_eq!(counts.sum::<u64>(), counted, "one at a time in each partition");
    });
}

#[test]
fn two_in_both_queues() {
    run(3, &[0b11, 0b11], 0);
}

#[test]
fn one_in_both_beside_one_in_each() {
    run(2, &[0b01, 0b10, 0b11], 0);
}

#[test]
fn two_in_both_behind_one() {
    run(2, &[0b11, 0b11, 0b01], 0);
}

#[test]
fn more_is_taken_where_it_is_free() {
    run(3, &[0b01, 0b11], 0b11);
}
