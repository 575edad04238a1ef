//! Every interleaving of two or three transactions at one or two locks. Each transaction is
//! attempted once, and looks again after each step of another. The checker finds a circle of
//! waiting transactions, as a deadlock.

use super::*;
use hyades_platform::sync::Arc;
use loom::sync::Notify;
use loom::thread;

/// Locks, each with a counter. A writer adds to the counter in two steps: an addition that does not
/// see the previous addition is lost.
struct Shared {
    locks: [WaitDieLock; 2],
    counts: [AtomicU64; 2],
    /// Rung for each transaction, by timestamp, after a step of another.
    bells: [Notify; MOST + 1],
}

/// The largest number of transactions.
const MOST: usize = 3;

impl Shared {
    fn request(timestamp: u64, mode: Mode) -> Request {
        Request { timestamp, mode, brief: false }
    }

    fn new() -> Self {
        Shared {
            locks: Default::default(),
            counts: [(); 2].map(|()| AtomicU64::new(0)),
            bells: [(); MOST + 1].map(|()| Notify::new()),
        }
    }

    fn tell_others(&self, timestamp: u64) {
        let others = (1..=MOST).filter(|other| *other as u64 != timestamp);
        others.for_each(|other| self.bells[other].notify());
    }

    /// Waits for a lock as long as the rule says so; returns whether the lock is taken.
    fn take(&self, timestamp: u64, at: usize, mode: Mode) -> bool {
        loop {
            match self.locks[at].look(Self::request(timestamp, mode), || false) {
                Look::Taken => {
                    self.tell_others(timestamp);
                    return true;
                }
                Look::Wait => self.bells[timestamp as usize].wait(),
                Look::Die => return false,
                Look::Gone => unreachable!("no lock ends here"),
            }
        }
    }

    /// Runs a transaction; returns whether the transaction has ended, and not died.
    fn run(&self, timestamp: u64, steps: &[(usize, Mode)]) -> bool {
        let mut held = [None; 2];
        let ends = steps.iter().all(|&(at, mode)| {
            let is_taken = self.take(timestamp, at, mode);
            if is_taken {
                held[at] = Some(mode);
            }
            is_taken
        });
        for (at, mode) in held.into_iter().enumerate() {
            let (Some(mode), lock, count) = (mode, &self.locks[at], &self.counts[at]) else {
                continue;
            };
            let before = count.load(Ordering::Relaxed);
            if mode == Mode::Read {
                assert_eq!(count.load(Ordering::Relaxed), before, "nobody writes beside a reader");
                lock.release_read();
            } else {
                count.store(before + u64::from(ends), Ordering::Relaxed);
                lock.release_write();
            }
        }
        self.tell_others(timestamp);
        ends
    }
}

/// Runs transactions, the oldest first in the list.
fn check(preemptions: usize, transactions: &'static [&'static [(usize, Mode)]]) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let shared = Arc::new(Shared::new());
        let run = |at: usize| {
            let shared = Arc::clone(&shared);
            move || shared.run(at as u64 + 1, transactions[at])
        };
        let last = transactions.len() - 1;
        let others: Vec<_> = (0..last).map(|at| thread::spawn(run(at))).collect();
        let youngest = run(last)();
        let mut ended: Vec<_> = others.into_iter().map(|other| other.join().unwrap()).collect();
        ended.push(youngest);
        assert!(ended[0], "the oldest does not die");
        for (at, lock) in shared.locks.iter().enumerate() {
            let writes = |steps: &[(usize, Mode)]| {
                steps.iter().any(|(lock, mode)| *lock == at && *mode != Mode::Read)
            };
            let writers =
                (0..=last).filter(|&number| ended[number] && writes(transactions[number]));
            assert_eq!(shared.counts[at].load(Ordering::Relaxed), writers.count() as u64);
            assert_eq!(lock.word.load(Ordering::Relaxed), 0, "nobody holds the lock");
            assert_eq!(lock.waiting.load(Ordering::Relaxed), 0, "nobody waits");
        }
    });
}

const UPGRADES: &[(usize, Mode)] = &[(0, Mode::Read), (0, Mode::Upgrade)];
const READS: &[(usize, Mode)] = &[(0, Mode::Read)];
const WRITES: &[(usize, Mode)] = &[(0, Mode::Write)];
const UP: &[(usize, Mode)] = &[(0, Mode::Write), (1, Mode::Write)];
const DOWN: &[(usize, Mode)] = &[(1, Mode::Write), (0, Mode::Write)];
const READS_UP: &[(usize, Mode)] = &[(0, Mode::Read), (1, Mode::Write)];
const READS_DOWN: &[(usize, Mode)] = &[(1, Mode::Read), (0, Mode::Write)];

#[test]
fn two_that_cross_end() {
    check(3, &[UP, DOWN]);
    check(3, &[DOWN, UP]);
    check(3, &[READS_UP, READS_DOWN]);
}

#[test]
fn two_that_upgrade_end() {
    check(3, &[UPGRADES, UPGRADES]);
}

#[test]
fn three_that_upgrade_end() {
    // Two preemptions take ten times as long as all other tests.
    check(1, &[UPGRADES, UPGRADES, UPGRADES]);
}

#[test]
fn readers_writers_and_upgrades_end() {
    check(2, &[READS, WRITES, UPGRADES]);
    check(2, &[UPGRADES, READS, WRITES]);
    check(2, &[WRITES, UPGRADES, READS]);
}

#[test]
fn three_around_two_locks_end() {
    check(2, &[UP, DOWN, READS]);
    check(2, &[READS_UP, READS_DOWN, UPGRADES]);
}
