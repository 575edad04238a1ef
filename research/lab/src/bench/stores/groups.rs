//! Drives a store: workers draw groups of transactions, and share commits.
//!
//! Each worker draws as many transactions as it may have in flight. Reading transactions run at
//! once, together. Writing transactions are posted; the next worker to write runs all posted
//! transactions, of all workers, and makes them durable with one commit. So while a commit waits
//! for the device, workers read, and post transactions for the next commit.

use super::{GroupedStore, StoreView};
use crate::bench::deuteronomy::{Access, Drawer, KeyAccesses};
use crate::bench::driver::start_worker;
use crate::bench::measured::{Interval, Measured};
use crate::bench::settings::Settings;
use crate::bench::tally::{Started, Tally};
use hyades_cli::failure::Failure;
use hyades_platform::clock::monotonic_ns;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, MutexGuard};

/// Transactions, with when each was drawn.
#[derive(Default)]
struct TransactionGroup {
    accesses: Vec<Access>,
    /// Of each transaction the end of its accesses, and its begin in nanoseconds.
    transactions: Vec<(usize, u64)>,
}

impl TransactionGroup {
    fn clear(&mut self) {
        self.accesses.clear();
        self.transactions.clear();
    }

    fn push(&mut self, accesses: &[Access], at_ns: u64) {
        self.accesses.extend_from_slice(accesses);
        self.transactions.push((self.accesses.len(), at_ns));
    }

    /// Runs the transactions one after the other.
    fn run(
        &self,
        accesses: &KeyAccesses,
        value: &mut [u8],
        view: &mut StoreView<'_>,
    ) -> Result<(), Failure> {
        let mut from = 0;
        for (to, _) in &self.transactions {
            accesses.run(&self.accesses[from..*to], value, view)?;
            from = *to;
        }
        Ok(())
    }

    /// Counts the transactions as acknowledged now.
    fn count(&self, tally: &mut Tally, now: u64, begin: u64) {
        for (_, at_ns) in &self.transactions {
            tally.count(Started { at_ns: *at_ns, rolled_back: false }, now, begin);
        }
    }
}

/// Transactions that write.
struct PostedGroup {
    group: TransactionGroup,
    /// They are durable. Written and read under the lock of the writer, hence Relaxed.
    is_done: AtomicBool,
}

/// The store, and what is posted to it.
struct SharedStore<'s> {
    store: &'s dyn GroupedStore,
    accesses: KeyAccesses,
    posted: Mutex<Vec<Arc<PostedGroup>>>,
    /// Held by the worker that writes, with room for a value.
    writer: Mutex<Vec<u8>>,
    /// Why the first commit failed that did.
    failure: Mutex<Option<String>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

impl SharedStore<'_> {
    /// Makes a group durable, with all others that are posted, or finds that another worker has.
    /// Returns the group.
    fn write(&self, group: TransactionGroup) -> Result<TransactionGroup, Failure> {
        let own = Arc::new(PostedGroup { group, is_done: AtomicBool::new(false) });
        locked(&self.posted).push(Arc::clone(&own));
        let mut value = locked(&self.writer);
        if !own.is_done.load(Ordering::Relaxed) {
            let posted = std::mem::take(&mut *locked(&self.posted));
            if !posted.iter().any(|posted| Arc::ptr_eq(posted, &own)) {
                // The worker that has taken it has failed.
                return Err(Failure::Failed(locked(&self.failure).clone().unwrap_or_default()));
            }
            let written = self.store.write_all(&mut |view| {
                posted.iter().try_for_each(|p| p.group.run(&self.accesses, &mut value, view))
            });
            if let Err(Failure::Failed(why) | Failure::Usage(why)) = &written {
                locked(&self.failure).get_or_insert_with(|| why.clone());
            }
            written?;
            posted.iter().for_each(|posted| posted.is_done.store(true, Ordering::Relaxed));
        }
        // The worker that has run the transaction dropped it before leaving the writer.
        Ok(Arc::into_inner(own).expect("it is not posted any more").group)
    }
}

struct GroupWorker<'s> {
    shared: &'s SharedStore<'s>,
    drawer: Drawer,
    tally: Tally,
    interval: Interval,
    in_flight: usize,
    value: Vec<u8>,
}

impl GroupWorker<'_> {
    fn run(mut self) -> Result<Tally, Failure> {
        let mut reads = TransactionGroup::default();
        let mut writes = TransactionGroup::default();
        loop {
            reads.clear();
            writes.clear();
            for _ in 0..self.in_flight {
                let at_ns = monotonic_ns();
                self.drawer.draw();
                let drawn = self.drawer.drawn();
                let is_read = drawn.iter().all(|access| access.is_read());
                let group = if is_read { &mut reads } else { &mut writes };
                group.push(drawn, at_ns);
            }
            let (shared, value) = (self.shared, &mut self.value);
            if !reads.transactions.is_empty() {
                shared.store.read_all(&mut |view| reads.run(&shared.accesses, value, view))?;
                self.count(&reads);
            }
            if !writes.transactions.is_empty() {
                writes = shared.write(writes)?;
                self.count(&writes);
            }
            if monotonic_ns() >= self.interval.end {
                return Ok(self.tally);
            }
        }
    }

    fn count(&mut self, group: &TransactionGroup) {
        let (now, Interval { begin, end, .. }) = (monotonic_ns(), self.interval);
        if (begin..end).contains(&now) {
            group.count(&mut self.tally, now, begin);
        }
    }
}

/// Runs the workload and returns when all transactions are acknowledged.
///
/// # Errors
/// Those of the store.
pub fn drive(
    accesses: &KeyAccesses,
    store: &dyn GroupedStore,
    settings: &Settings,
) -> Result<Measured, Failure> {
    let drive = settings.drive(false);
    let shared = SharedStore {
        store,
        accesses: *accesses,
        posted: Mutex::default(),
        writer: Mutex::new(vec![0; accesses.value_bytes]),
        failure: Mutex::default(),
    };
    let barrier = Barrier::new(drive.workers + 1);
    // Stored once, before the barrier that all threads wait at, hence Relaxed.
    let start = AtomicU64::new(0);
    let next = Arc::new(AtomicU64::new(accesses.rows));
    let work = |number: usize| -> Result<Tally, Failure> {
        let drawer = Drawer::new(*accesses, drive.worker_seed(number), Arc::clone(&next));
        barrier.wait();
        let worker = GroupWorker {
            shared: &shared,
            drawer,
            tally: Tally::new(false),
            interval: Interval::new(start.load(Ordering::Relaxed), &drive),
            in_flight: drive.in_flight,
            value: vec![0; accesses.value_bytes],
        };
        worker.run()
    };
    std::thread::scope(|scope| {
        let work = &work;
        let start_one = |number| start_worker(scope, number, move || work(number));
        let workers: Vec<_> = (0..drive.workers).map(start_one).collect();
        start.store(monotonic_ns(), Ordering::Relaxed);
        barrier.wait();
        let interval = Interval::new(start.load(Ordering::Relaxed), &drive);
        let bar = interval.bar();
        interval.sleep_until(&bar, interval.end);
        interval.finish(&bar);
        let mut all = Tally::new(false);
        for worker in workers {
            let joined = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            all.add(&joined?);
        }
        Ok(all.measured(drive.seconds, (0, 0)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::stores::StoreBody;
    use crate::bench::stores::hash_map::MapStore;

    /// A map that counts commits.
    struct Commits(MapStore, AtomicU64);

    impl GroupedStore for Commits {
        fn read_all(&self, body: &mut StoreBody<'_>) -> Result<(), Failure> {
            self.0.read_all(body)
        }

        fn write_all(&self, body: &mut StoreBody<'_>) -> Result<(), Failure> {
            self.1.fetch_add(1, Ordering::Relaxed);
            // A device: others post meanwhile.
            std::thread::sleep(std::time::Duration::from_millis(5));
            self.0.write_all(body)
        }
    }

    const ACCESSES: KeyAccesses = KeyAccesses {
        rows: 100,
        theta: 0.0,
        accesses: 1,
        write_share: 1.0,
        scan_length: None,
        standard: None,
        value_bytes: 8,
    };

    #[test]
    fn those_that_wait_share_a_commit_and_every_group_is_written() {
        let store = Commits(MapStore::new(), AtomicU64::new(0));
        let (posted, writer) = (Mutex::default(), Mutex::new(vec![0; 8]));
        let failure = Mutex::default();
        let shared = SharedStore { store: &store, accesses: ACCESSES, posted, writer, failure };
        let begin = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (shared, begin) = (&shared, &begin);
                scope.spawn(move || {
                    begin.wait();
                    for turn in 0..4 {
                        let mut group = TransactionGroup::default();
                        group.push(&[Access::Write(thread * 4 + turn, 1)], 0);
                        shared.write(group).unwrap();
                    }
                });
            }
        });
        store
            .read_all(&mut |view| {
                for row in 0..32 {
                    assert!(view.read(&ACCESSES.key(row))?, "{row}");
                }
                Ok(())
            })
            .unwrap();
        let commits = store.1.load(Ordering::Relaxed);
        assert!((4..32).contains(&commits), "{commits} commits of 32 groups by 8 threads");
    }

    /// A store that cannot write.
    struct FullStore;

    impl GroupedStore for FullStore {
        fn read_all(&self, _: &mut StoreBody<'_>) -> Result<(), Failure> {
            Ok(())
        }

        fn write_all(&self, _: &mut StoreBody<'_>) -> Result<(), Failure> {
            Err(Failure::Failed("the disk is full".to_string()))
        }
    }

    #[test]
    fn all_that_share_a_commit_say_why_it_failed() {
        let (posted, writer) = (Mutex::default(), Mutex::new(vec![0; 8]));
        let failure = Mutex::default();
        let shared = SharedStore { store: &FullStore, accesses: ACCESSES, posted, writer, failure };
        let shared = &shared;
        std::thread::scope(|scope| {
            let held = locked(&shared.writer);
            let write = move || shared.write(TransactionGroup::default());
            let threads = [scope.spawn(write), scope.spawn(write)];
            while locked(&shared.posted).len() < threads.len() {
                std::thread::yield_now();
            }
            drop(held);
            for thread in threads {
                match thread.join().unwrap() {
                    Err(Failure::Failed(why)) => assert_eq!(why, "the disk is full"),
                    _ => panic!("it was written"),
                }
            }
        });
    }
}
