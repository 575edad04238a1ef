//! The lease of answers, as the frontier asks for it.

use super::Frontier;
use hyades_platform::broken;
use std::task::Waker;

impl Frontier {
    /// Whether transactions that only read are acknowledged by a lease.
    #[inline]
    pub fn has_lease(&self) -> bool {
        self.lease.is_some()
    }

    /// **The check of the lease**: whether a transaction that has only read may be acknowledged
    /// now. To be called after the read. Always true without a lease.
    #[inline]
    pub fn may_answer(&self) -> bool {
        self.lease.as_ref().is_none_or(|lease| lease.may_answer() || broken!(AnswerUnchecked))
    }

    /// Parks a waker until the lease is extended or ended, or the log stops; wakes at once if there
    /// is nothing to wait for. Check again after waking. Returns the waker's key.
    pub(crate) fn park_to_answer(&self, waker: Waker) -> u64 {
        let Some(lease) = &self.lease else {
            waker.wake();
            return 0;
        };
        // Announce, then check: see the module of the lease.
        let key = lease.park(waker);
        if self.may_answer() || self.poison.is_set() {
            lease.wake();
        }
        key
    }

    /// Withdraws a waker parked by [`park_to_answer`](Self::park_to_answer), if not woken yet.
    pub(crate) fn withdraw_answer(&self, key: u64) {
        self.lease.iter().for_each(|lease| lease.withdraw(key));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::error::StopKind;
    use crate::lease::AnswerLease;
    use hyades_platform::clock;
    use hyades_platform::sync::{self, AtomicBool, Ordering};
    use std::sync::Arc;
    use std::task::Wake;

    struct Flag(AtomicBool);
    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    /// The time in the tests. All threads of a model run on one thread of the system.
    const NOW: u64 = 5;

    fn bounded() -> loom::model::Builder {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model
    }

    /// A frontier with a lease that has run out.
    fn leased() -> (sync::Arc<Frontier>, Arc<AnswerLease>) {
        clock::simulate(Some(NOW));
        let lease = Arc::new(AnswerLease::new());
        let mut frontier = Frontier::new(&[0]);
        frontier.lease = Some(Arc::clone(&lease));
        (sync::Arc::new(frontier), lease)
    }

    /// A parked waker is woken by the extension, whichever is first, and when the log stops.
    #[test]
    fn a_waiter_is_never_forgotten_by_an_extension() {
        for stops in [false, true] {
            bounded().check(move || {
                let (frontier, lease) = leased();
                let flag = Arc::new(Flag(AtomicBool::new(false)));
                let other = sync::Arc::clone(&frontier);
                let thread = loom::thread::spawn(move || match stops {
                    true => other.stop_as(StopKind::Demoted { by: 2 }, "a test"),
                    false => lease.extend(NOW + 1),
                });
                frontier.park_to_answer(Waker::from(Arc::clone(&flag)));
                thread.join().unwrap();
                assert!(flag.0.load(Ordering::SeqCst), "it sleeps for ever");
                assert_eq!(frontier.wakers(), (0, 0));
                assert_eq!(frontier.may_answer(), !stops);
            });
        }
    }

    /// A sleeper goes on sleeping after an extension that comes too late, and not after the next
    /// extension. A sleeper without a wake-up would spin for ever, which loom reports.
    #[test]
    fn a_sleeper_is_woken_by_each_extension() {
        bounded().check(|| {
            let (frontier, lease) = leased();
            let thread = loom::thread::spawn(move || {
                lease.extend(NOW - 1);
                lease.extend(NOW + 1);
            });
            assert!(frontier.wait_any_or_to_answer(&[], true).is_ok());
            assert!(frontier.may_answer());
            thread.join().unwrap();
            assert_eq!(frontier.wakers(), (0, 0));
        });
    }

    /// Of two threads, one raises the position that a writer waits for, the other ends the lease
    /// that a reader waits for, and stops the log.
    #[test]
    fn the_stop_of_the_log_wakes_those_who_wait_for_an_answer() {
        bounded().check(|| {
            let (frontier, lease) = leased();
            let other = sync::Arc::clone(&frontier);
            let thread = loom::thread::spawn(move || {
                lease.end();
                other.stop_as(StopKind::Demoted { by: 7 }, "a test");
            });
            let stopped = frontier.wait_any_or_to_answer(&[], true).unwrap_err();
            assert_eq!(stopped.kind, StopKind::Demoted { by: 7 });
            thread.join().unwrap();
        });
    }
}
