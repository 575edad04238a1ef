//! Every interleaving of a few transactions in a few queues.

use super::*;
use hyades_platform::sync::{Arc, Mutex};
use loom::thread;

/// Queues of two partitions, each with a counter. The first in a queue adds to the counter in two
/// steps: an addition that does not see the previous addition is lost.
struct Shared {
    queues: TurnQueues<()>,
    counts: [AtomicU64; 2],
    /// Posted calls that may run, each announced once.
    ready: Arc<Mutex<Vec<u32>>>,
}

impl Shared {
    fn new(sleeps: bool) -> Arc<Shared> {
        let queues = TurnQueues { sleeps, ..TurnQueues::<()>::new(2, true) };
        let ready = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&ready);
        queues.on_ready(Box::new(move |number| told.lock().unwrap().push(number)));
        Arc::new(Shared { queues, counts: [AtomicU64::new(0), AtomicU64::new(0)], ready })
    }

    fn counted(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Posts a call, and runs the calls that may run: its own, another thread's, or none.
    fn post(&self, number: u32, sets: &[u64]) -> u64 {
        self.queues.line_up_posted(number, sets[number as usize - 1]);
        self.queues.let_run(number);
        self.run_ready(sets)
    }

    /// Runs posted calls until none may run. `sets` are the sets of the seats, by number.
    fn run_ready(&self, sets: &[u64]) -> u64 {
        let mut counted = 0;
        loop {
            let next = self.ready.lock().unwrap().pop();
            let Some(number) = next else { return counted };
            self.queues.take_turn(number, sets[number as usize - 1]);
            counted += self.count(number);
            self.queues.leave(number);
        }
    }

    /// Adds to the counters of the partitions held by the seat; returns their number.
    fn count(&self, number: u32) -> u64 {
        let held = self.queues.held(number);
        for at in members(held) {
            let count = self.counts[at].load(Ordering::Relaxed);
            self.counts[at].store(count + 1, Ordering::Relaxed);
        }
        held.count_ones().into()
    }
}

fn model(preemptions: usize) -> loom::model::Builder {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    // Waiting threads poll.
    model.max_branches = 20_000;
    model
}

/// Runs a transaction for each set, the last on this thread. Each transaction tries to take `more`.
fn run(preemptions: usize, sets: &'static [u64], more: u64, sleeps: bool) {
    model(preemptions).check(move || {
        let shared = Shared::new(sleeps);
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
        assert_eq!(shared.counted(), counted, "one at a time in each partition");
    });
}

/// Posts a call for each set, the last on this thread. Each thread runs all calls that may run.
fn posted(preemptions: usize, sets: &'static [u64]) {
    model(preemptions).check(move || {
        let shared = Shared::new(false);
        let numbers: Vec<u32> = sets.iter().map(|_| shared.queues.add().unwrap()).collect();
        let post = |number: u32| {
            let shared = Arc::clone(&shared);
            move || shared.post(number, sets)
        };
        let (last, others) = numbers.split_last().unwrap();
        let threads: Vec<_> = others.iter().map(|&number| thread::spawn(post(number))).collect();
        let mut counted = post(*last)();
        counted += threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>();
        let all = sets.iter().map(|set| u64::from(set.count_ones())).sum::<u64>();
        assert_eq!([counted, shared.counted()], [all; 2], "each runs once, one at a time");
    });
}

#[test]
fn two_in_both_queues() {
    run(3, &[0b11, 0b11], 0, false);
}

#[test]
fn one_in_both_beside_one_in_each() {
    run(1, &[0b01, 0b10, 0b11], 0, false);
}

#[test]
fn two_in_both_behind_one() {
    run(1, &[0b11, 0b11, 0b01], 0, false);
}

#[test]
fn more_is_taken_where_it_is_free() {
    run(3, &[0b01, 0b11], 0b11, false);
}

/// A sleeping session is woken by the session ahead.
#[test]
fn a_sleeper_is_woken() {
    run(3, &[0b01, 0b01], 0, true);
}

#[test]
fn sleepers_in_both_queues_are_woken() {
    run(2, &[0b11, 0b11], 0, true);
}

#[test]
fn two_posted_calls_in_one_queue() {
    posted(3, &[0b01, 0b01]);
}

#[test]
fn two_posted_calls_in_both_queues() {
    posted(2, &[0b11, 0b11]);
}

#[test]
fn a_posted_call_in_both_behind_one_in_each() {
    posted(1, &[0b01, 0b10, 0b11]);
}

/// A session works where two calls are posted: the first call is announced when the session leaves,
/// or when the call is released; and the seat of the call is used again while the session's thread
/// may still look at the seat.
#[test]
fn a_seat_that_has_run_is_used_again() {
    const SETS: &[u64] = &[0b01, 0b01];
    model(3).check(|| {
        let shared = Shared::new(false);
        let (session, seat) = (shared.queues.add().unwrap(), shared.queues.add().unwrap());
        assert!(shared.queues.enter(session, 0b01));
        let poster = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let mut counted = poster.post(seat, SETS);
            // The own call has run, here or there: the seat is free.
            if counted > 0 {
                counted += poster.post(seat, SETS);
            }
            counted
        });
        let mut counted = shared.count(session);
        shared.queues.leave(session);
        counted += shared.run_ready(SETS);
        counted += thread.join().unwrap();
        counted += shared.run_ready(SETS);
        assert_eq!(shared.counted(), counted, "each runs once, one at a time");
    });
}
