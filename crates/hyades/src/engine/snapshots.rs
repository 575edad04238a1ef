//! Snapshots: epochs as of which transactions read while others write, and what is kept for them.
//!
//! A snapshot is an epoch E. It holds the effects of the transactions with epochs up to E: a
//! consistent state, for the reason that [`super::cut`] gives. Opening takes these steps, in order:
//!
//! 1. Publish the snapshot; then check that the epoch is still E, else begin again. A transaction
//!    of a later epoch reads its epoch after that, so it knows of the snapshot when it installs:
//!    before it overwrites a row it keeps the version that the snapshot holds
//!    ([`OldVersions`]).
//! 2. Advance the epoch, and wait until every session has been seen idle or in a later epoch: then
//!    everything up to E is installed.
//! 3. Only now note how far the log has to be durable before a reader is acknowledged: commits of
//!    the snapshot took their places until then.
//!
//! Nothing else waits: writers never wait for a snapshot, and its readers neither wait nor fail.
//! A version is kept if some snapshot may hold it: it is not newer than the newest snapshot, and
//! the transaction that overwrites it is newer than the oldest. So a row has at most one version
//! for each snapshot that was opened since the oldest, however often it is overwritten.
//!
//! A snapshot of the present ends an epoch. Epochs are numbered with 34 bits, so their number is a
//! budget: see [`EPOCHS_AT_ONCE`]. A caller that wants a snapshot shares the newest one if nothing
//! was written since, or if it was opened after the call. For that the newest one stays open for a
//! moment when its last user has closed it, until something is written.

mod ending;
mod held;
mod settings;

use super::active::{ActiveTransactions, ReaderTimes};
use crate::logging::Needs;
use crate::storage::old_versions::{ByteRanges, OldVersionWriter, OldVersions, Overwritten};
use crate::storage::record::{Record, word};
use crate::storage::tid::Tid;
use held::{ChargedBytes, KeptBytes};
use hyades_platform::active_epochs::ActiveEpochs;
use hyades_platform::broken;
use hyades_platform::clock;
use hyades_platform::epoch::{Epoch, EpochNumber};
use hyades_platform::mutation::{self, Mutation};
use hyades_platform::reclaim::Guard;
use hyades_platform::sync::{
    AtomicBool, AtomicU64, Ordering, Padded, Unpoisoned, checker_fence, fence,
};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

pub use settings::SnapshotSettings;

/// No reader: no epoch is above this one.
const NONE: EpochNumber = EpochNumber::ABOVE_ALL;

/// Epochs that snapshots may end at any speed. Beyond that, one in a millisecond: then the numbers
/// of epochs last for half a year of nothing else.
const EPOCHS_AT_ONCE: u64 = 1 << 23;

/// A snapshot older than this is not shared, and not kept open without users.
const SHARED_FOR: Duration = Duration::from_millis(10);

/// A snapshot that is, or was, open.
#[derive(Debug)]
pub(crate) struct SnapshotState {
    /// The last epoch that it holds, and the last TID of that.
    pub epoch: EpochNumber,
    pub last: Tid,
    /// The number of this opening.
    generation: u64,
    opened_ns: u64,
    /// It was ended: what its readers find may be wrong, and is discarded. Set (SeqCst) before
    /// writers stop to keep versions for it.
    ended: AtomicBool,
    /// What the frontier has to reach before its readers are acknowledged.
    needs: OnceLock<Needs>,
}

impl SnapshotState {
    /// Whether it was ended. To be asked after a row was read, too.
    #[inline]
    pub fn has_ended(&self) -> bool {
        // What was read before was read before this.
        fence(Ordering::Acquire);
        self.ended.load(Ordering::SeqCst)
    }

    /// What its readers wait for.
    pub fn needs(&self) -> Needs {
        self.needs.get().cloned().unwrap_or_default()
    }
}

/// Whether it is longer ago than `age`.
fn is_older(opened_ns: u64, age: Duration) -> bool {
    let age = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
    clock::monotonic_ns().saturating_sub(opened_ns) >= age
}

struct OpenSnapshot {
    state: Arc<SnapshotState>,
    /// 0 if it is only kept to be shared.
    users: u32,
}

struct Registry {
    /// By ascending epoch.
    open: VecDeque<OpenSnapshot>,
    /// The active cut of a checkpoint, or [`NONE`].
    cut: EpochNumber,
    began_ns: u64,
    /// Epochs that snapshots have ended.
    epochs: u64,
    charged: ChargedBytes,
}

/// The snapshots of a database, see the module.
pub(crate) struct Snapshots {
    /// The lowest epoch as of which a snapshot or a checkpoint reads, or [`NONE`]. This and the
    /// next two are written under the lock of `registry` and read by commits: SeqCst, to be in one
    /// order with the epoch.
    lowest: Padded<AtomicU64>,
    /// The lowest epoch of an open snapshot, or [`NONE`].
    oldest: AtomicU64,
    /// The highest epoch of an open snapshot, or 0.
    newest: AtomicU64,
    /// The highest epoch of any snapshot or cut so far, see [`Snapshots::closed`].
    closed: AtomicU64,
    /// The highest epoch of which everything is installed, see [`Snapshots::settled`].
    settled: AtomicU64,
    /// Whether anything was written that is newer than the newest snapshot. Set before that is
    /// visible (SeqCst), cleared before an epoch ends for a new snapshot.
    overwritten: AtomicBool,
    /// The number of openings so far.
    generation: AtomicU64,
    /// Held by the thread that opens a snapshot, while it waits for commits. These never take it.
    opening: Mutex<()>,
    /// Held for moments.
    registry: Mutex<Registry>,
    versions: OldVersions,
    kept: KeptBytes,
    /// Transactions that read older versions as well, if the concurrency control has such.
    readers: Option<Arc<ActiveTransactions>>,
    settings: SnapshotSettings,
    /// Snapshots ended before they were closed, and transactions for which nothing is kept.
    /// Relaxed: a counter.
    ended: AtomicU64,
}

impl Default for Snapshots {
    fn default() -> Self {
        Snapshots::new(SnapshotSettings::default(), None)
    }
}

impl Snapshots {
    /// `readers`: transactions that read older versions as well.
    pub fn new(settings: SnapshotSettings, readers: Option<Arc<ActiveTransactions>>) -> Self {
        Snapshots {
            lowest: Padded(AtomicU64::new(NONE.0)),
            oldest: AtomicU64::new(NONE.0),
            newest: AtomicU64::new(0),
            closed: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            overwritten: AtomicBool::new(false),
            generation: AtomicU64::new(0),
            opening: Mutex::default(),
            registry: Mutex::new(Registry {
                open: VecDeque::new(),
                cut: NONE,
                began_ns: clock::monotonic_ns(),
                epochs: 0,
                charged: ChargedBytes::new(),
            }),
            versions: OldVersions::default(),
            kept: KeptBytes::default(),
            readers,
            settings,
            ended: AtomicU64::new(0),
        }
    }

    /// The last epoch that a snapshot or a checkpoint holds, or has held: whole, so that no more
    /// transactions may commit in it or before. Asked by transactions whose epoch is older than
    /// that of their commit; what this does not count yet waits for that commit.
    #[inline]
    pub fn closed(&self) -> EpochNumber {
        checker_fence();
        EpochNumber(self.closed.load(Ordering::SeqCst))
    }

    /// No transaction of this epoch, or an earlier one, gets a position in the log any more: one
    /// that still runs there is refused.
    pub fn settled(&self) -> EpochNumber {
        EpochNumber(self.settled.load(Ordering::SeqCst))
    }

    /// Called when all commits of a closed epoch have been waited for.
    pub fn settle(&self, epoch: EpochNumber) {
        self.settled.fetch_max(epoch.0, Ordering::SeqCst);
    }

    /// No transaction of the concurrency control, now or later, reads as of a lower TID than this.
    fn lowest_reader(&self, epoch: &Epoch) -> Tid {
        self.readers.as_ref().map_or(Tid::ABOVE_ALL, |readers| readers.lowest(epoch))
    }

    /// Whether a snapshot or a checkpoint reads as of an epoch before the one of transaction `tid`,
    /// which is about to install its writes.
    #[inline]
    pub fn are_below(&self, tid: Tid) -> bool {
        let slow = [Mutation::NoWaitForCommits, Mutation::SnapshotWithoutWait];
        if slow.into_iter().any(mutation::is) && tid.sequence().is_multiple_of(4) {
            // Makes it likely that a cut or a snapshot falls between reading a transaction's epoch
            // and installing.
            std::thread::sleep(Duration::from_micros(300));
        }
        checker_fence();
        let below = tid.epoch().0 > self.lowest.load(Ordering::SeqCst);
        // A reader that sees a write of a row also sees that its snapshot has ended, if that is why
        // no version was kept for it.
        fence(Ordering::Release);
        below
    }

    /// The lowest epoch of an open snapshot; above all epochs if there is none. What was replaced
    /// or deleted later is still needed. A snapshot opened from now on is not lower than an epoch
    /// that was current before this call.
    #[inline]
    pub fn oldest(&self) -> EpochNumber {
        EpochNumber(self.oldest.load(Ordering::SeqCst))
    }

    /// The older versions of rows.
    pub fn versions(&self) -> &OldVersions {
        &self.versions
    }

    /// The number of snapshots that are in use.
    pub fn open_now(&self) -> u64 {
        let registry = self.registry.lock().unpoisoned();
        registry.open.iter().filter(|open| open.users > 0).count() as u64
    }

    /// How many snapshots were ended before they were closed, and transactions with them.
    pub fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    /// Stores what commits read.
    fn publish(&self, registry: &Registry) {
        let epoch = |open: Option<&OpenSnapshot>| open.map(|open| open.state.epoch);
        let (oldest, newest) = (epoch(registry.open.front()), epoch(registry.open.back()));
        let oldest = oldest.unwrap_or(NONE);
        let cut = Some(registry.cut).filter(|cut| *cut != NONE);
        let closed = newest.max(cut).unwrap_or_default();
        self.closed.fetch_max(closed.0, Ordering::SeqCst);
        self.newest.store(newest.unwrap_or_default().0, Ordering::SeqCst);
        self.oldest.store(oldest.0, Ordering::SeqCst);
        self.lowest.store(oldest.min(registry.cut).0, Ordering::SeqCst);
        self.kept.publish(&registry.charged, oldest);
    }

    /// Sets or ends ([`NONE`]) the active cut of a checkpoint.
    pub fn set_cut(&self, cut: EpochNumber) {
        let mut registry = self.registry.lock().unpoisoned();
        registry.cut = cut;
        self.publish(&registry);
    }

    /// Opens a snapshot of the present. `note` says what its readers have to wait for, and is
    /// called when everything that the snapshot holds is installed. [`Snapshots::close`] closes it.
    pub fn open(
        &self,
        epoch: &Epoch,
        active: &ActiveEpochs,
        note: impl FnOnce() -> Needs,
    ) -> Arc<SnapshotState> {
        let arrived = self.generation.load(Ordering::SeqCst);
        let _opening = self.opening.lock().unpoisoned();
        if let Some(open) = self.share(arrived) {
            return open;
        }
        self.wait_for_an_epoch();
        let state = self.begin(epoch);
        while epoch.current() <= state.epoch {
            epoch.advance();
        }
        if !broken!(SnapshotWithoutWait) {
            active.wait_for_all_of(state.epoch);
            self.settle(state.epoch);
        }
        state.needs.set(note()).expect("it is noted once");
        state
    }

    /// An open snapshot for a caller that came when `arrived` snapshots had been opened.
    fn share(&self, arrived: u64) -> Option<Arc<SnapshotState>> {
        let mut registry = self.registry.lock().unpoisoned();
        let newest = registry.open.back_mut()?;
        let (generation, opened_ns) = (newest.state.generation, newest.state.opened_ns);
        if is_older(opened_ns, SHARED_FOR) {
            return None;
        }
        let is_last = generation == self.generation.load(Ordering::SeqCst);
        let is_current = is_last && !self.overwritten.load(Ordering::SeqCst);
        (generation > arrived || is_current).then(|| {
            newest.users += 1;
            newest.state.clone()
        })
    }

    /// Waits, if snapshots have ended epochs too fast.
    fn wait_for_an_epoch(&self) {
        loop {
            let mut registry = self.registry.lock().unpoisoned();
            let passed_ns = clock::monotonic_ns().saturating_sub(registry.began_ns);
            let passed_ms = passed_ns / 1_000_000;
            if registry.epochs < EPOCHS_AT_ONCE + passed_ms {
                registry.epochs += 1;
                return;
            }
            drop(registry);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Step 1.
    fn begin(&self, epoch: &Epoch) -> Arc<SnapshotState> {
        let mut registry = self.registry.lock().unpoisoned();
        registry.open.retain(|open| open.users > 0);
        let generation = self.generation.fetch_add(1, Ordering::SeqCst) + 1;
        let opened_ns = clock::monotonic_ns();
        loop {
            let now = epoch.current();
            let newest = registry.open.back();
            debug_assert!(newest.is_none_or(|open| open.state.epoch < now), "each ends an epoch");
            let state = Arc::new(SnapshotState {
                epoch: now,
                last: Tid::last_of(now),
                generation,
                opened_ns,
                ended: AtomicBool::new(false),
                needs: OnceLock::new(),
            });
            registry.open.push_back(OpenSnapshot { state: state.clone(), users: 1 });
            self.publish(&registry);
            self.overwritten.store(false, Ordering::SeqCst);
            if epoch.current() == now {
                return state;
            }
            registry.open.pop_back();
        }
    }

    /// Closes a snapshot, for one of its users.
    pub fn close(&self, state: &Arc<SnapshotState>, epoch: &Epoch) {
        let mut registry = self.registry.lock().unpoisoned();
        // One that was ended is gone already.
        let found = registry.open.binary_search_by_key(&state.epoch, |open| open.state.epoch);
        let Ok(at) = found else { return };
        registry.open[at].users -= 1;
        let is_last = state.generation == self.generation.load(Ordering::SeqCst);
        let may_be_shared = is_last && !self.overwritten.load(Ordering::SeqCst);
        if registry.open[at].users == 0 && !may_be_shared {
            registry.open.remove(at);
            self.publish(&registry);
            self.free(&registry, epoch);
        }
    }

    /// Removes the snapshots without users.
    fn remove_unused(&self, registry: &mut Registry, epoch: &Epoch) {
        registry.open.retain(|open| open.users > 0);
        self.publish(registry);
        self.free(registry, epoch);
    }

    /// Frees the versions that no snapshot holds.
    fn free(&self, registry: &Registry, epoch: &Epoch) {
        let oldest = registry.open.front().map(|open| open.state.epoch);
        // Under the lock no snapshot is opened, and one opened later is not below this epoch.
        let lowest = Tid::last_of(oldest.unwrap_or_else(|| epoch.current()));
        let lowest = lowest.min(self.lowest_reader(epoch));
        self.versions.free_up_to(lowest, &hyades_platform::reclaim::pin());
    }

    /// Ends the snapshots that are too old, and closes the newest if it has had no users for a
    /// while. Called now and then.
    pub fn tidy(&self, epoch: &Epoch) {
        if self.versions.full_bytes() > 0 {
            self.free(&self.registry.lock().unpoisoned(), epoch);
        }
        if self.oldest() == NONE {
            return;
        }
        if let Some(age) = self.settings.age {
            self.end_oldest(epoch, |state| is_older(state.opened_ns, age));
        }
        let mut registry = self.registry.lock().unpoisoned();
        let is_idle =
            |open: &OpenSnapshot| open.users == 0 && is_older(open.state.opened_ns, SHARED_FOR);
        if registry.open.iter().any(is_idle) {
            self.remove_unused(&mut registry, epoch);
        }
    }

    /// Keeps the version of a row that transaction `tid` is about to overwrite, if a snapshot may
    /// hold it, or one of `readers` may read it. The caller has set the row's lock bit; `seen` is
    /// its version word. `changed` tells which bytes will change, if that is known: a transaction
    /// reads few versions, and the whole row is kept for snapshots only.
    pub fn keep<S>(
        &self,
        writer: &mut OldVersionWriter,
        (record, seen): (&Record<S>, u64),
        (tid, readers): (Tid, &ReaderTimes),
        changed: impl FnOnce() -> Option<ByteRanges>,
        (epoch, guard): (&Epoch, &Guard),
    ) {
        let newest = EpochNumber(self.newest.load(Ordering::SeqCst));
        if tid.epoch() > newest
            && !self.overwritten.load(Ordering::SeqCst)
            && !self.overwritten.swap(true, Ordering::SeqCst)
        {
            self.remove_unused(&mut self.registry.lock().unpoisoned(), epoch);
        }
        let oldest = self.oldest();
        let base = word::tid(seen);
        // A row that never existed has no version to keep.
        let in_snapshot = base.epoch() <= newest && tid.epoch() > oldest;
        if base == Tid::NONE || broken!(ForgetOverwritten) {
            return;
        }
        let lowest = Tid::last_of(oldest).min(readers.lowest());
        let overwritten = Overwritten { record, seen, end: tid, lowest };
        let kept = if in_snapshot || readers.want(base) {
            let changed = if in_snapshot { None } else { changed() };
            self.versions.keep(writer, &overwritten, changed.as_deref(), guard)
        } else if broken!(LeavePartsBehind) {
            true
        } else {
            self.versions.detach(writer, &overwritten, guard)
        };
        if !kept {
            self.end_oldest(epoch, |state| state.epoch < tid.epoch());
            while self.end_oldest_transaction(tid) {}
        } else if self.hold_too_much() {
            self.end_readers(tid, epoch);
        }
    }

    /// Frees what a session has kept, as far as no snapshot holds it.
    pub fn end_writer(&self, writer: &mut OldVersionWriter, epoch: &Epoch) {
        if self.versions.end_writer(writer) {
            self.free(&self.registry.lock().unpoisoned(), epoch);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::thread;

    /// Two sessions commit while a snapshot is opened. A transaction of the snapshot is installed
    /// once it is open, and its place in the log is noted; a later one knows of the snapshot before
    /// it installs.
    #[test]
    fn a_transaction_is_in_the_snapshot_or_knows_of_it() {
        struct Shared {
            snapshots: Snapshots,
            active: ActiveEpochs,
            epoch: Epoch,
            /// The end of the log, and what each session has installed.
            log: AtomicU64,
            installed: [AtomicU64; 2],
        }
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let shared = Arc::new(Shared {
                snapshots: Snapshots::default(),
                active: ActiveEpochs::default(),
                epoch: Epoch::new(EpochNumber(5)),
                log: AtomicU64::new(0),
                installed: [AtomicU64::new(0), AtomicU64::new(0)],
            });
            let session = |at: usize| {
                let (shared, slot) = (Arc::clone(&shared), shared.active.add());
                thread::spawn(move || {
                    slot.enter(&shared.epoch);
                    let epoch = shared.epoch.current();
                    let place = shared.log.fetch_add(1, Ordering::SeqCst);
                    let knows = shared.snapshots.are_below(Tid::new(epoch, 0));
                    // Relaxed: the slot has to make it visible.
                    shared.installed[at].store(1, Ordering::Relaxed);
                    slot.leave();
                    (epoch, place, knows)
                })
            };
            let sessions = [session(0), session(1)];
            let mut noted = 0;
            let state = shared.snapshots.open(&shared.epoch, &shared.active, || {
                noted = shared.log.load(Ordering::SeqCst);
                Needs::default()
            });
            let seen = [0, 1].map(|at: usize| shared.installed[at].load(Ordering::Relaxed) == 1);
            for (session, seen) in sessions.into_iter().zip(seen) {
                let (epoch, place, knows) = session.join().unwrap();
                if epoch <= state.epoch {
                    assert!(seen, "the snapshot holds it, and it is not installed");
                    assert!(place < noted, "the snapshot holds it, and does not wait for it");
                } else {
                    assert!(knows, "it comes after the snapshot, and does not know");
                }
            }
        });
    }
}
