//! Threads in the queues of partitions.

use super::*;
use std::sync::Barrier;

const PARTITIONS: usize = 5;

/// Threads with random sets of partitions: in each partition one thread at a time, and all threads
/// get their turn.
#[test]
fn one_at_a_time_and_everyone_in_the_end() {
    let queues = TurnQueues::<()>::new(PARTITIONS, true);
    let counts: Vec<Padded<AtomicU64>> = (0..PARTITIONS).map(|_| Padded::default()).collect();
    let start = Barrier::new(4);
    let entered: Vec<u64> = std::thread::scope(|scope| {
        let thread = |at: u64| {
            let (queues, counts, start) = (&queues, &counts, &start);
            move || {
                let (seat, mut rng) = (queues.add().unwrap(), fastrand::Rng::with_seed(at));
                let mut entered = 0;
                start.wait();
                for _ in 0..1500 {
                    let set = rng.u64(1..1 << PARTITIONS) & rng.u64(1..1 << PARTITIONS);
                    assert!(queues.enter(seat, set));
                    let _ = queues.try_enter(seat, rng.u64(0..1 << PARTITIONS));
                    for at in members(queues.held(seat)) {
                        // Not an addition: a simultaneous addition by another thread would be lost.
                        let count = counts[at].load(Ordering::Relaxed);
                        counts[at].store(count + 1, Ordering::Relaxed);
                        entered += 1;
                    }
                    queues.leave(seat);
                }
                queues.remove(seat);
                entered
            }
        };
        let threads: Vec<_> = (0..4).map(|at| scope.spawn(thread(at))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let counted: u64 = counts.iter().map(|count| count.load(Ordering::Relaxed)).sum();
    assert_eq!(counted, entered.iter().sum::<u64>());
}

#[test]
fn what_is_held_is_not_waited_for_where_no_one_waits() {
    let queues = TurnQueues::<()>::new(3, false);
    let (one, other) = (queues.add().unwrap(), queues.add().unwrap());
    assert!(queues.enter(one, 0b011));
    assert!(!queues.enter(other, 0b110));
    assert_eq!(queues.held(other), 0);
    assert!(queues.enter(other, 0b100));
    assert!(!queues.try_enter(one, 0b111));
    queues.leave(other);
    assert!(queues.try_enter(one, 0b111));
    assert_eq!(queues.held(one), 0b111);
    queues.leave(one);
    assert!(queues.enter(other, 0b111));
}

/// A posted call is announced once, when it is first in all of its queues and may run.
#[test]
fn a_posted_call_may_run_when_it_lacks_nothing() {
    let queues = TurnQueues::<()>::new(3, true);
    let told = std::sync::Arc::new(Mutex::new(Vec::new()));
    let list = told.clone();
    queues.on_ready(Box::new(move |number| list.lock().unwrap().push(number)));
    let seats: Vec<u32> = (0..4).map(|_| queues.add().unwrap()).collect();
    assert!(queues.enter(seats[0], 0b011));
    for (seat, set) in [(seats[1], 0b110), (seats[2], 0b100), (seats[3], 0b001)] {
        queues.line_up_posted(seat, set);
    }
    queues.let_run(seats[1]);
    queues.let_run(seats[2]);
    assert!(told.lock().unwrap().is_empty());
    queues.leave(seats[0]);
    assert_eq!(*told.lock().unwrap(), [seats[1]]);
    queues.let_run(seats[3]);
    assert_eq!(*told.lock().unwrap(), [seats[1], seats[3]]);
    queues.take_turn(seats[1], 0b110);
    queues.leave(seats[1]);
    assert_eq!(*told.lock().unwrap(), [seats[1], seats[3], seats[2]]);
    queues.take_turn(seats[2], 0b100);
    queues.leave(seats[2]);
    queues.stop();
    assert_eq!(told.lock().unwrap().last(), Some(&0));
}

#[test]
fn waiting_ends_when_the_queues_stop() {
    let queues = TurnQueues::<()>::new(1, true);
    let (one, other) = (queues.add().unwrap(), queues.add().unwrap());
    assert!(queues.enter(one, 1));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| queues.enter(other, 1));
        std::thread::sleep(Duration::from_millis(5));
        queues.stop();
        assert!(!waiting.join().unwrap());
    });
    assert!(!queues.enter(other, 1));
    assert!(!queues.try_enter(other, 1));
}
