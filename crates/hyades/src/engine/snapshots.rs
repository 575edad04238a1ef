//! Snapshots: epochs as of which transactions read beside writers, and the versions kept for them.
//!
//! A snapshot is an epoch E, and holds the effects of the transactions with epochs up to E: a
//! consistent state, for the reason in [`super::cut`]. Opening takes these steps, in order:
//!
//! 1. Publish the snapshot; then check that the epoch is still E, else begin again. A transaction
//!    of a later epoch reads its epoch afterwards, and so knows of the snapshot on installing:
//!    before overwriting a row the transaction keeps the snapshot's version ([`OldVersions`]).
//! 2. Advance the epoch, and wait until every session has been seen idle or in a later epoch:
//!    then everything up to E is installed.
//! 3. Only now note how far the log has to be durable before a reader is acknowledged: commits of
//!    the snapshot took their places until then.
//!
//! Nothing else waits: writers never wait for a snapshot, and its readers neither wait nor fail. A
//! version is kept if some snapshot may hold the version: the version is not newer than the newest
//! snapshot, and the overwriting transaction is newer than the oldest. So a row has at most one
//! version for each snapshot opened since the oldest, however often the row is overwritten.
//!
//! A snapshot of the present ends an epoch. Epochs are numbered with 34 bits, so their number is a
//! budget: see [`opening`]. A caller shares the newest snapshot if nothing was written
//! since, or if the snapshot was opened after the call. For sharing, the newest snapshot stays open
//! for a moment after its last user has closed it, until something is written.

mod ending;
mod held;
mod opening;
#[cfg(feature = "replication")]
mod served;
mod settings;

use super::active::{ActiveTransactions, ReaderTimes};
use crate::logging::Needs;
use crate::storage::old_versions::{ByteRanges, OldVersionWriter, OldVersions, Overwritten};
use crate::storage::record::{Record, word};
use crate::storage::tid::Tid;
use held::{ChargedBytes, KeptBytes};
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

/// No reader: above all epochs.
const NONE: EpochNumber = EpochNumber::ABOVE_ALL;

/// The age from which a snapshot is not shared, and not kept open without users.
const SHARED_FOR: Duration = Duration::from_millis(10);

/// A snapshot that is, or was, open.
#[derive(Debug)]
pub(crate) struct SnapshotState {
    /// The last epoch of the snapshot, and the last TID of the epoch.
    pub epoch: EpochNumber,
    pub last: Tid,
    /// The number of this opening.
    generation: u64,
    opened_ns: u64,
    /// The snapshot was ended: its readers may find wrong rows, which are discarded. Set (SeqCst)
    /// before writers stop keeping versions for the snapshot.
    ended: AtomicBool,
    /// The positions that the frontier has to reach before the snapshot's readers are acknowledged.
    needs: OnceLock<Needs>,
}

impl SnapshotState {
    /// Whether the snapshot was ended. To be called also after the read of a row.
    #[inline]
    pub fn has_ended(&self) -> bool {
        // Earlier reads come before the load.
        fence(Ordering::Acquire);
        self.ended.load(Ordering::SeqCst)
    }

    /// The positions for which the snapshot's readers wait.
    pub fn needs(&self) -> Needs {
        self.needs.get().cloned().unwrap_or_default()
    }
}

/// Whether the opening is at least `age` ago.
fn is_older(opened_ns: u64, age: Duration) -> bool {
    let age = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
    clock::monotonic_ns().saturating_sub(opened_ns) >= age
}

struct OpenSnapshot {
    state: Arc<SnapshotState>,
    /// 0 if the snapshot is only kept for sharing.
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
pub struct Snapshots {
    /// The lowest epoch as of which a snapshot or a checkpoint reads, or [`NONE`]. This field and
    /// the next two are written under the lock of `registry` and read by commits: SeqCst, to be in
    /// one order with the epoch.
    lowest: Padded<AtomicU64>,
    /// The lowest epoch of an open snapshot, or [`NONE`].
    oldest: AtomicU64,
    /// The highest epoch of an open snapshot, or 0.
    newest: AtomicU64,
    /// The highest epoch of any snapshot or cut so far, see [`Snapshots::closed`].
    closed: AtomicU64,
    /// The highest epoch of which everything is installed, see [`Snapshots::settled`].
    settled: AtomicU64,
    /// Whether anything was written after the newest snapshot. Set before the write is visible
    /// (SeqCst), cleared before an epoch ends for a new snapshot.
    overwritten: AtomicBool,
    /// The number of openings so far.
    generation: AtomicU64,
    /// Held by a thread opening a snapshot while it waits for commits, which never take the lock.
    opening: Mutex<()>,
    /// Held for moments.
    registry: Mutex<Registry>,
    versions: OldVersions,
    kept: KeptBytes,
    /// Transactions that read older versions as well, if the concurrency control has any.
    readers: Option<Arc<ActiveTransactions>>,
    settings: SnapshotSettings,
    /// The number of snapshots ended before their closing, and of transactions for which nothing is
    /// kept. Relaxed: a counter.
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
    /// transactions may commit in the epoch or before. Called by transactions whose epoch is older
    /// than the epoch of their commit; a snapshot or a checkpoint not counted yet waits for the
    /// commit.
    #[inline]
    pub fn closed(&self) -> EpochNumber {
        checker_fence();
        EpochNumber(self.closed.load(Ordering::SeqCst))
    }

    /// The highest epoch without further positions in the log: no transaction of the epoch, or an
    /// earlier epoch, gets a position any more, and a transaction still running there is refused.
    pub fn settled(&self) -> EpochNumber {
        EpochNumber(self.settled.load(Ordering::SeqCst))
    }

    /// Called after all commits of a closed epoch have ended.
    pub fn settle(&self, epoch: EpochNumber) {
        self.settled.fetch_max(epoch.0, Ordering::SeqCst);
    }

    /// Returns a lower bound of the read timestamps of the concurrency control's transactions, now
    /// and later.
    fn lowest_reader(&self, epoch: &Epoch) -> Tid {
        self.readers.as_ref().map_or(Tid::ABOVE_ALL, |readers| readers.lowest(epoch))
    }

    /// Whether a snapshot or a checkpoint reads as of an epoch before the epoch of transaction
    /// `tid`, which is about to install its writes.
    #[inline]
    pub fn are_below(&self, tid: Tid) -> bool {
        let slow = [Mutation::NoWaitForCommits, Mutation::SnapshotWithoutWait];
        if slow.into_iter().any(mutation::is) && tid.sequence().is_multiple_of(4) {
            // Makes a cut or a snapshot likely between the read of the epoch and the installing.
            std::thread::sleep(Duration::from_micros(300));
        }
        checker_fence();
        let below = tid.epoch().0 > self.lowest.load(Ordering::SeqCst);
        // A reader that sees a write of a row also sees the end of its snapshot, if no version was
        // kept because of the end.
        fence(Ordering::Release);
        below
    }

    /// The lowest epoch of an open snapshot; above all epochs if there is none. Rows replaced or
    /// deleted later are still needed. A snapshot opened from now on is not lower than an epoch
    /// that was current before this call.
    #[inline]
    pub fn oldest(&self) -> EpochNumber {
        EpochNumber(self.oldest.load(Ordering::SeqCst))
    }

    /// The older versions of rows.
    pub fn versions(&self) -> &OldVersions {
        &self.versions
    }

    /// The number of snapshots in use.
    pub fn open_now(&self) -> u64 {
        let registry = self.registry.lock().unpoisoned();
        registry.open.iter().filter(|open| open.users > 0).count() as u64
    }

    /// The number of snapshots ended before their closing, and of ended transactions.
    pub fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    /// Stores the fields that commits read.
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

    /// Closes a snapshot, for one of its users.
    pub fn close(&self, state: &Arc<SnapshotState>, epoch: &Epoch) {
        let mut registry = self.registry.lock().unpoisoned();
        // An ended snapshot is gone already.
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
        // Under the lock no snapshot is opened, and a later snapshot is not below this epoch.
        let lowest = Tid::last_of(oldest.unwrap_or_else(|| epoch.current()));
        let lowest = lowest.min(self.lowest_reader(epoch));
        self.versions.free_up_to(lowest, &hyades_platform::reclaim::pin());
    }

    /// Frees versions that no snapshot needs, ends the snapshots that are too old, and closes those
    /// without users once one of them has been idle for a while. Called now and then.
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
    /// hold the version, or any of `readers` may read the version. The caller has set the row's
    /// lock bit; `seen` is the version word. `changed` returns the bytes to be changed, if known: a
    /// transaction reads few versions, and the whole row is kept for snapshots only.
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

    /// Frees the versions kept by a session, as far as no snapshot holds them.
    pub fn end_writer(&self, writer: &mut OldVersionWriter, epoch: &Epoch) {
        if self.versions.end_writer(writer) {
            self.free(&self.registry.lock().unpoisoned(), epoch);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use hyades_platform::active_epochs::ActiveEpochs;
    use loom::thread;

    /// Two sessions commit while a snapshot is opened. A transaction of the snapshot is installed
    /// once the snapshot is open, and its place in the log is noted; a later transaction knows of
    /// the snapshot before installing.
    #[test]
    fn a_transaction_is_in_the_snapshot_or_knows_of_it() {
        struct Shared {
            snapshots: Snapshots,
            active: ActiveEpochs,
            epoch: Epoch,
            /// The end of the log, and the installed writes of each session.
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
                    // Relaxed: the slot has to make the store visible.
                    shared.installed[at].store(1, Ordering::Relaxed);
                    slot.leave();
                    (epoch, place, knows)
                })
            };
            let sessions = [session(0), session(1)];
            let mut noted = 0;
            let note = || {
                noted = shared.log.load(Ordering::SeqCst);
                Needs::default()
            };
            let state =
                shared.snapshots.open((&shared.epoch, &shared.active), || false, note).unwrap();
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
