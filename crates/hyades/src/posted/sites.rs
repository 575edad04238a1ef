//! Sites: threads that own the partitions, and alone run the partitions' calls, as in H-Store
//! (Kallman et al., PVLDB 1(2), 2008) and in VoltDB (Malviya et al., ICDE 2014, section II).
//!
//! Partition `p` of a database with `n` sites belongs to site `p % n`. Each site has a queue of
//! calls, and runs the calls in sequence. A call with partitions of several sites stands in the
//! queue of each: all these sites stop when they reach the call, the site with the lowest number
//! runs the call once all have stopped, and then all go on. Such a call enters its queues while all
//! of them are locked, so any two calls have the same order in all common queues, no circle of
//! sites waits, and each call has its turn.
//!
//! Transactions that are no calls, and accesses of a call beside its stated partitions, are kept
//! apart by the turns of the partitions ([`crate::concurrency::turns`]), which a site takes like
//! every other thread. Nearly always a site finds its own partitions free.

use super::PostedJob;
use crate::storage::partition::members;
use hyades_platform::event::Event;
use hyades_platform::sync::{AtomicBool, AtomicU32, Ordering, Padded, Unpoisoned};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// How often a thread looks before sleep: for about the time of a short call.
const LOOKS: u32 = if cfg!(loom) { 0 } else { 1_000 };

/// A sleeper looks again after this time at the latest.
const NAP: Duration = Duration::from_millis(10);

/// An entry in the queue of a site.
pub(super) enum SiteJob {
    /// A call for the site to run; if there are other sites, once they have stopped.
    Run(PostedJob, Option<Arc<Standstill>>),
    /// The site stops while another site runs a call.
    Stop(Arc<Standstill>),
}

/// The sites of a call, which stop until the call has run.
pub(super) struct Standstill {
    /// The sites that have not stopped, except the site that runs the call. SeqCst, this and the
    /// next field: of a sleeper and its waker one sees the act of the other.
    missing: AtomicU32,
    has_run: AtomicBool,
    moved: Event,
}

impl Standstill {
    fn new(sites: u32) -> Arc<Standstill> {
        Arc::new(Standstill {
            missing: AtomicU32::new(sites - 1),
            has_run: AtomicBool::new(false),
            moved: Event::new(),
        })
    }

    fn wait_until(&self, is_so: impl Fn() -> bool) {
        for _ in 0..LOOKS {
            if is_so() {
                return;
            }
            std::hint::spin_loop();
        }
        loop {
            let moved = self.moved.listen();
            if is_so() {
                return;
            }
            moved.wait(Some(NAP));
        }
    }

    /// Stops the calling site until the call has run.
    pub fn stop(&self) {
        if self.missing.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.moved.notify_ordered();
        }
        self.wait_until(|| self.has_run.load(Ordering::SeqCst));
    }

    /// Waits until all other sites have stopped. The sites go on when the result is dropped.
    pub fn begin(&self) -> AllStopped<'_> {
        self.wait_until(|| self.missing.load(Ordering::SeqCst) == 0);
        AllStopped(self)
    }
}

/// All sites of a call stand still until the drop.
pub(super) struct AllStopped<'s>(&'s Standstill);

impl Drop for AllStopped<'_> {
    fn drop(&mut self) {
        self.0.has_run.store(true, Ordering::SeqCst);
        self.0.moved.notify_ordered();
    }
}

#[derive(Default)]
struct SiteState {
    jobs: VecDeque<SiteJob>,
    /// The site's thread sleeps until notified.
    asleep: bool,
    /// No call will come any more.
    over: bool,
}

#[derive(Default)]
struct SiteQueue {
    state: Mutex<SiteState>,
    moved: Condvar,
    /// Whether something may be in the queue. A hint for the site's thread, which spins on the
    /// flag: Relaxed.
    filled: AtomicBool,
}

impl SiteQueue {
    fn state(&self) -> MutexGuard<'_, SiteState> {
        self.state.lock().unpoisoned()
    }

    fn push(&self, state: &mut SiteState, job: SiteJob) {
        state.jobs.push_back(job);
        self.filled.store(true, Ordering::Relaxed);
        if std::mem::take(&mut state.asleep) {
            self.moved.notify_one();
        }
    }
}

/// The queues of all sites of a database.
pub(super) struct Sites {
    queues: Box<[Padded<SiteQueue>]>,
    partitions: u32,
}

impl Sites {
    pub fn new(sites: usize, partitions: usize) -> Sites {
        Sites {
            queues: (0..sites).map(|_| Padded::default()).collect(),
            partitions: partitions as u32,
        }
    }

    /// Returns the sites of the slots; the first site for a call without slots.
    pub fn of_slots(&self, slots: u64) -> u64 {
        let (count, partitions) = (self.queues.len(), self.partitions as usize);
        let all = u64::MAX >> (64 - count);
        if slots == u64::MAX {
            return all;
        }
        let sites = members(slots).fold(0, |set, slot| set | 1 << (slot % partitions % count));
        if sites == 0 { 1 } else { sites }
    }

    /// Enters a call into the queues of its sites.
    pub fn push(&self, sites: u64, job: PostedJob) {
        debug_assert!(sites != 0 && sites >> (self.queues.len() - 1) <= 1, "these sites exist");
        let first = sites.trailing_zeros() as usize;
        if sites.is_power_of_two() {
            let queue = &self.queues[first];
            return queue.push(&mut queue.state(), SiteJob::Run(job, None));
        }
        let standstill = Standstill::new(sites.count_ones());
        let mut locked: Vec<_> =
            members(sites).map(|at| (&*self.queues[at], self.queues[at].state())).collect();
        let mut job = Some(job);
        for (queue, state) in &mut locked {
            let with = standstill.clone();
            queue.push(
                state,
                match job.take() {
                    Some(job) => SiteJob::Run(job, Some(with)),
                    None => SiteJob::Stop(with),
                },
            );
        }
    }

    /// Moves all entries in the queue of a site to the empty `batch`. Waits for an entry, after
    /// `idle`; false if no entry will come.
    pub fn take(&self, site: usize, batch: &mut VecDeque<SiteJob>, idle: impl FnOnce()) -> bool {
        let queue = &*self.queues[site];
        for _ in 0..LOOKS {
            if queue.filled.load(Ordering::Relaxed) {
                break;
            }
            std::hint::spin_loop();
        }
        let mut state = queue.state();
        if state.jobs.is_empty() && !state.over {
            drop(state);
            idle();
            state = queue.state();
        }
        while state.jobs.is_empty() && !state.over {
            state.asleep = true;
            state = queue.moved.wait(state).unpoisoned();
        }
        state.asleep = false;
        std::mem::swap(&mut state.jobs, batch);
        queue.filled.store(false, Ordering::Relaxed);
        !batch.is_empty()
    }

    /// Lets the threads end: no call will come any more.
    pub fn end(&self) {
        for queue in &self.queues {
            queue.state().over = true;
            queue.moved.notify_all();
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use hyades_platform::sync::AtomicU64;
    use loom::thread;

    /// The site that runs the call sees the stores of the stopped site from before the stop; the
    /// stopped site sees the stores of the call, and goes on. (Of three sites two wait at a time:
    /// loom, under which waiting sites look again, never ends.)
    #[test]
    fn one_stops_for_another() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(4);
        model.max_branches = 20_000;
        model.check(|| {
            let standstill = Standstill::new(2);
            // Relaxed: the standstill has to order the accesses.
            let done = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
            let (stops, left) = (standstill.clone(), done.clone());
            let site = thread::spawn(move || {
                left[1].store(1, Ordering::Relaxed);
                stops.stop();
                assert_eq!(left[0].load(Ordering::Relaxed), 1, "the call has run");
                left[1].store(2, Ordering::Relaxed);
            });
            let all = standstill.begin();
            assert_eq!(done[1].load(Ordering::Relaxed), 1, "it stands still");
            done[0].store(1, Ordering::Relaxed);
            drop(all);
            site.join().unwrap();
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn slots_belong_to_sites() {
        let sites = Sites::new(3, 8);
        assert_eq!(sites.of_slots(0), 0b1);
        assert_eq!(sites.of_slots(u64::MAX), 0b111);
        // Slot 13 is in partition 5.
        assert_eq!(sites.of_slots(1 << 13), 0b100);
        assert_eq!(sites.of_slots(1 << 13 | 1 << 7), 0b110);
        let one = Sites::new(1, 1);
        assert_eq!((one.of_slots(1 << 63), one.of_slots(u64::MAX)), (1, 1));
        let most = Sites::new(64, 64);
        assert_eq!((most.of_slots(1 << 63), most.of_slots(u64::MAX)), (1 << 63, u64::MAX));
    }

    #[test]
    fn all_stand_still_while_one_runs() {
        let standstill = Standstill::new(3);
        let stopped = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    stopped.fetch_add(1, Ordering::SeqCst);
                    standstill.stop();
                    stopped.fetch_sub(1, Ordering::SeqCst);
                });
            }
            let all = standstill.begin();
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(stopped.load(Ordering::SeqCst), 2);
            drop(all);
        });
        assert_eq!(stopped.load(Ordering::SeqCst), 0);
    }
}
