//! The cut: the transactions of a checkpoint, and how the checkpoint gets their rows while later
//! transactions run.
//!
//! A cut is an epoch E. The checkpoint holds the effects of the transactions with epochs up to E.
//! The state contains all dependencies of its transactions, anti-dependencies included: a
//! transaction reads its epoch while its write set is locked and before validation of the reads, so
//! a transaction that overwrites a row read has an epoch that is not lower (Silo, SOSP 2013,
//! section 4.9: epochs are serialization points). Where a transaction may commit although its reads
//! were overwritten, the concurrency control refuses the commit in a later epoch than the epoch of
//! its beginning.
//!
//! Steps, in order:
//!
//! 1. Publish the cut and note the position of every stream; then check that the epoch is still E.
//!    A transaction of a later epoch reads its epoch afterwards: the transaction sees the cut, and
//!    its frames are behind the positions.
//! 2. Advance the epoch. Every session enters its epoch slot before reading the transaction's
//!    epoch. So once each slot has been seen idle or in a later epoch, everything up to E is
//!    installed.
//! 3. Scan the rows, one after the other. Rows of a later version are skipped: their writers saw
//!    the cut, and saved the earlier version in the side buffer before installing. The side
//!    buffer's content at the end of the scan belongs to the checkpoint as well.
//!
//! In a log of data records alone the cut may be *fuzzy*: step 3 takes each row, whole, in the
//! state at its read, and nothing is saved. Replay still skips the records up to the cut, and
//! applies later records by version, so changes already in the image are ignored. A fuzzy image
//! holds changes of transactions after the cut, and counts only once everything reserved in the log
//! by the end of the scan is durable.
//!
//! The side buffer is the cost of a checkpoint in memory:
//! [`crate::CheckpointSettings::buffer_bytes`], plus the rows overwritten by one transaction of
//! each session, since sessions wait for the buffer to drain only before they begin a transaction;
//! plus the rows overwritten by posted calls logged before; plus the rows overwritten during step
//! 2, in which no session waits for room.

use super::snapshots::Snapshots;
use crate::logging::record::{Change, push_change, push_tid};
use crate::storage::Stamp;
use crate::storage::record::{Record, word};
use crate::storage::table::TableData;
use crate::storage::tid::Tid;
use hyades_platform::active_epochs::{ActiveEpochs, EpochSlot};
use hyades_platform::broken;
use hyades_platform::epoch::{Epoch, EpochNumber};
use hyades_platform::event;
use hyades_platform::sync::{AtomicBool, AtomicU64, Ordering, Padded, Unpoisoned};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// No cut is active: above all epochs.
const NONE: EpochNumber = EpochNumber::ABOVE_ALL;

/// Approximate size of a block of rows, in bytes.
pub(crate) const BLOCK_BYTES: usize = 256 << 10;

const SHARDS: usize = 16;

/// Rows in the format of a checkpoint, one after the other.
#[derive(Default)]
pub(crate) struct RowBlock {
    pub bytes: Vec<u8>,
    pub rows: u32,
}

impl RowBlock {
    /// Appends a row with its version.
    pub fn push<S: Stamp>(&mut self, table: &TableData<S>, key: &[u8], tid: Tid, row: &[u8]) {
        push_tid(&mut self.bytes, tid);
        let fixed = table.key_bytes.is_some();
        push_change(&mut self.bytes, table.log_id, table.keyless, fixed, key, Change::Put(row));
        self.rows += 1;
    }
}

#[derive(Default)]
struct SavedShard {
    /// The cut for which the rows were saved.
    cut: EpochNumber,
    blocks: Vec<RowBlock>,
}

/// A commit in progress, until this is dropped.
pub(crate) struct Entered<'s> {
    slot: &'s EpochSlot,
    cut: &'s Cut,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.cut.leave(self.slot);
    }
}

/// Coordinates commits with checkpoints, see the module.
pub(crate) struct Cut {
    /// The active cut, or [`NONE`]. Written by the checkpoint, read by commits that overwrite while
    /// an earlier state is read; SeqCst, to be in one order with the epoch.
    epoch: AtomicU64,
    /// The checkpointing thread sleeps until something is committed. Written by the checkpointing
    /// thread and by the threads that wake it; SeqCst, since the checkpointing thread checks the
    /// log after setting the flag.
    asleep: AtomicBool,
    /// The active cut is fuzzy: nothing is saved. Written before `epoch`, by the checkpoint; read
    /// by commits that have seen the cut (SeqCst).
    fuzzy: AtomicBool,
    sleep_lock: Mutex<()>,
    woken: Condvar,
    active: Arc<ActiveEpochs>,
    shards: Box<[Padded<Mutex<SavedShard>>]>,
    /// Bytes in the shards. Changed under their locks, read by sessions that check whether to wait:
    /// Relaxed.
    held: Padded<AtomicU64>,
    limit: AtomicU64,
}

impl Default for Cut {
    fn default() -> Self {
        Cut {
            epoch: AtomicU64::new(NONE.0),
            asleep: AtomicBool::new(false),
            fuzzy: AtomicBool::new(false),
            sleep_lock: Mutex::default(),
            woken: Condvar::new(),
            active: Arc::default(),
            shards: (0..SHARDS).map(|_| Padded::default()).collect(),
            held: Padded::default(),
            limit: AtomicU64::new(u64::MAX),
        }
    }
}

impl Cut {
    /// Creates the state over the epoch slots of all sessions; the slots have other readers as
    /// well.
    pub fn new(active: Arc<ActiveEpochs>) -> Cut {
        Cut { active, ..Cut::default() }
    }

    /// The epoch slots of all sessions.
    pub fn active(&self) -> &ActiveEpochs {
        &self.active
    }

    /// Adds a slot for a new session.
    pub fn add_slot(&self) -> Arc<EpochSlot> {
        self.active.add()
    }

    /// Removes the slot of a session that ends.
    pub fn remove_slot(&self, slot: &Arc<EpochSlot>) {
        self.active.remove(slot);
    }

    /// Begins a commit, for which a cut waits. To be called before the read of the commit's epoch.
    #[inline]
    pub fn enter<'s>(&'s self, slot: &'s EpochSlot, epoch: &Epoch) -> Entered<'s> {
        slot.enter(epoch);
        Entered { slot, cut: self }
    }

    /// Ends a commit, or a call that had entered when logged, before its run: a cut waits for
    /// such calls, and nothing truncates the log behind them.
    pub fn leave(&self, slot: &EpochSlot) {
        slot.leave();
        // SeqCst, after the SeqCst addition that reserved the frame: either the load sees the
        // checkpointing thread asleep, or the checkpointing thread sees the frame.
        if self.asleep.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Whether [`Cut::wait_for_room`] would return at once.
    pub fn has_room(&self) -> bool {
        self.epoch.load(Ordering::SeqCst) == NONE.0
            || self.held.load(Ordering::Relaxed) <= self.limit.load(Ordering::Relaxed)
    }

    /// Waits while the side buffer is over its limit, until the checkpoint has written the buffer
    /// out or `stopped` returns true. To be called before a transaction, while nothing is locked.
    /// Returns at once while a cut waits for transactions, see [`Cut::begin`].
    #[inline]
    pub fn wait_for_room(&self, stopped: impl Fn() -> bool) {
        let mut rounds = 0u64;
        while self.epoch.load(Ordering::SeqCst) != NONE.0
            && self.held.load(Ordering::Relaxed) > self.limit.load(Ordering::Relaxed)
            && !stopped()
        {
            if rounds == 0 {
                event!(DEBUG, "session waits for room in the checkpoint's buffer");
            }
            rounds += 1;
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Returns the active cut if transaction `tid` is after the cut. [`Snapshots::are_below`] is
    /// called first.
    pub fn before(&self, tid: Tid) -> Option<EpochNumber> {
        let cut = EpochNumber(self.epoch.load(Ordering::SeqCst));
        (tid.epoch() > cut).then_some(cut)
    }

    /// Whether the active cut is before transaction `tid`, and not before epoch `from`: then the
    /// positions of the cut may be behind what was written for `tid` in epoch `from`, and the log
    /// may be truncated there while the record of `tid` stays. The caller has an epoch slot since
    /// `from` or earlier, so that such a cut has not ended.
    pub fn divides(&self, from: EpochNumber, tid: Tid) -> bool {
        self.before(tid).is_some_and(|cut| cut >= from)
    }

    /// Saves a row before a transaction after the cut overwrites it, unless the row is not in the
    /// cut or the cut is fuzzy. The caller has set the row's lock bit; `seen` is the row's version
    /// word.
    pub fn save<S: Stamp>(
        &self,
        table: &TableData<S>,
        (record, seen): (&Record<S>, u64),
        cut: EpochNumber,
    ) {
        let tid = word::tid(seen);
        if seen & word::ABSENT != 0
            || tid.epoch() > cut
            || self.fuzzy.load(Ordering::SeqCst)
            || broken!(NoCopyOnWrite)
        {
            return;
        }
        let mut row = Vec::with_capacity(record.row_len());
        table.read_row(record, &mut row);
        let at = (std::ptr::from_ref(record) as usize >> 6) % SHARDS;
        let mut shard = self.shards[at].lock().unpoisoned();
        if shard.cut != cut {
            if shard.cut > cut {
                // The shard serves a later checkpoint: the checkpoint of this cut has ended.
                return;
            }
            self.empty(&mut shard);
            shard.cut = cut;
        }
        if shard.blocks.last().is_none_or(|block| block.bytes.len() >= BLOCK_BYTES) {
            shard.blocks.push(RowBlock::default());
        }
        let block = shard.blocks.last_mut().expect("there is one");
        let before = block.bytes.len();
        block.push(table, record.key(), tid, &row);
        self.held.fetch_add((block.bytes.len() - before) as u64, Ordering::Relaxed);
    }

    fn empty(&self, shard: &mut SavedShard) -> Vec<RowBlock> {
        let blocks = std::mem::take(&mut shard.blocks);
        let bytes: usize = blocks.iter().map(|b| b.bytes.len()).sum();
        let held = self.held.fetch_sub(bytes as u64, Ordering::Relaxed);
        debug_assert!(held >= bytes as u64, "what a shard holds was counted");
        blocks
    }

    /// Bytes saved and not yet taken.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Takes the rows saved for the cut, and drops the rows saved for any other cut.
    pub fn take(&self, cut: EpochNumber) -> Vec<RowBlock> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock().unpoisoned();
            let for_it = shard.cut == cut;
            let blocks = self.empty(&mut shard);
            if for_it {
                all.extend(blocks);
            }
        }
        all
    }

    /// Makes a cut (steps 1 and 2). `note` notes the streams' positions and may be called again.
    /// Returns the cut once everything in the cut is installed. [`Cut::end`] ends the cut. Waits
    /// before step 1 while no epoch may end; `None`, without a cut, if `stopped` returns true
    /// meanwhile.
    pub fn begin(
        &self,
        (epoch, snapshots): (&Epoch, &Snapshots),
        limit: u64,
        fuzzy: bool,
        stopped: impl Fn() -> bool,
        mut note: impl FnMut(),
    ) -> Option<EpochNumber> {
        let active = self.epoch.load(Ordering::SeqCst);
        debug_assert_eq!(active, NONE.0, "a cut begins after the last one has ended");
        self.fuzzy.store(fuzzy, Ordering::SeqCst);
        // No limit until the commits of the cut are installed: a commit may be a call that was
        // logged before its run, and the thread that is to run the call may be about to wait for
        // room.
        self.limit.store(u64::MAX, Ordering::Relaxed);
        let cut = loop {
            // A cut closes its epoch, so the epoch has to end.
            let cut = epoch.wait_until_may_end(&stopped)?;
            self.epoch.store(cut.0, Ordering::SeqCst);
            snapshots.set_cut(cut);
            note();
            if epoch.current() == cut {
                break cut;
            }
            // Nothing is saved while the next try waits.
            self.end(snapshots);
        };
        epoch.end(cut);
        if !broken!(NoWaitForCommits) {
            self.active.wait_for_all_of(cut);
            snapshots.settle(cut);
        }
        self.limit.store(limit, Ordering::Relaxed);
        Some(cut)
    }

    /// Makes a cut of a state that is whole: everything up to `cut` is installed, and nothing later
    /// will be installed before the call returns. [`Cut::end`] ends the cut.
    #[cfg(feature = "replication")]
    pub fn begin_at(&self, cut: EpochNumber, snapshots: &Snapshots, limit: u64) {
        self.fuzzy.store(false, Ordering::SeqCst);
        self.limit.store(limit, Ordering::Relaxed);
        self.epoch.store(cut.0, Ordering::SeqCst);
        snapshots.set_cut(cut);
    }

    /// Whether a cut is active.
    #[cfg(feature = "replication")]
    pub fn is_active(&self) -> bool {
        self.epoch.load(Ordering::SeqCst) != NONE.0
    }

    /// Ends the cut: nothing is saved any more.
    pub fn end(&self, snapshots: &Snapshots) {
        self.epoch.store(NONE.0, Ordering::SeqCst);
        snapshots.set_cut(NONE);
        for shard in &self.shards {
            drop(self.empty(&mut shard.lock().unpoisoned()));
        }
    }

    /// Sleeps for at most `time` or, without `time`, until something is committed. Does not sleep
    /// if `busy` returns true, which is called after `asleep` has been set.
    pub fn sleep(&self, time: Option<Duration>, busy: impl Fn() -> bool) {
        let lock = self.sleep_lock.lock().unpoisoned();
        if time.is_none() {
            self.asleep.store(true, Ordering::SeqCst);
        }
        if !busy() {
            match time {
                Some(time) => drop(self.woken.wait_timeout(lock, time)),
                None => drop(self.woken.wait(lock)),
            }
        }
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// Wakes the thread that takes checkpoints.
    #[cold]
    pub fn wake(&self) {
        let _lock = self.sleep_lock.lock().unpoisoned();
        self.asleep.store(false, Ordering::SeqCst);
        self.woken.notify_all();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A cut waits for a transaction, and no session for room meanwhile; then the limit holds.
    #[test]
    fn there_is_room_while_a_cut_waits() {
        let (cut, epoch, snapshots) =
            (Cut::default(), Epoch::new(EpochNumber(5)), Snapshots::default());
        let slot = cut.add_slot();
        slot.enter(&epoch);
        cut.held.store(11, Ordering::Relaxed);
        std::thread::scope(|scope| {
            let begin = || cut.begin((&epoch, &snapshots), 10, false, || false, || ());
            let begun = scope.spawn(begin);
            while epoch.current() == EpochNumber(5) {
                std::thread::yield_now();
            }
            assert!(cut.has_room());
            cut.wait_for_room(|| false);
            cut.leave(&slot);
            assert_eq!(begun.join().unwrap(), Some(EpochNumber(5)));
        });
        assert!(!cut.has_room());
        cut.held.store(10, Ordering::Relaxed);
        assert!(cut.has_room());
        cut.end(&snapshots);
        assert!(cut.has_room());
    }

    /// At the limit of epochs no cut begins, and no epoch is closed, until the limit is raised.
    #[test]
    fn a_cut_waits_at_the_limit() {
        let epoch = Epoch::new(EpochNumber(5)).limited_to(EpochNumber(5));
        let (cut, snapshots) = (Cut::default(), Snapshots::default());
        let readers = (&epoch, &snapshots);
        assert_eq!(cut.begin(readers, 10, false, || true, || panic!("no cut begins")), None);
        assert_eq!(snapshots.closed(), EpochNumber(0));
        let noted = AtomicU64::new(0);
        let note = || _ = noted.fetch_add(1, Ordering::Relaxed);
        std::thread::scope(|scope| {
            let begun = scope.spawn(|| cut.begin(readers, 10, false, || false, note));
            std::thread::sleep(Duration::from_millis(30));
            assert!(!begun.is_finished() && snapshots.closed() == EpochNumber(0));
            epoch.raise_limit(EpochNumber(6));
            assert_eq!(begun.join().unwrap(), Some(EpochNumber(5)));
        });
        assert!(noted.load(Ordering::Relaxed) > 0);
        assert_eq!((epoch.current(), snapshots.closed()), (EpochNumber(6), EpochNumber(5)));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::thread;

    /// Two sessions commit while a cut is made. A transaction of the cut is installed once the cut
    /// is made; a later transaction sees the cut before installing, and its frame is behind the
    /// noted positions.
    #[test]
    fn a_transaction_is_in_the_cut_or_knows_of_it() {
        struct Shared {
            cut: Cut,
            snapshots: Snapshots,
            epoch: Epoch,
            /// The end of the log, and the installed writes of each session.
            log: AtomicU64,
            installed: [AtomicU64; 2],
        }
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let shared = Arc::new(Shared {
                cut: Cut::default(),
                snapshots: Snapshots::default(),
                epoch: Epoch::new(EpochNumber(5)),
                log: AtomicU64::new(0),
                installed: [AtomicU64::new(0), AtomicU64::new(0)],
            });
            let session = |at: usize| {
                let (shared, slot) = (Arc::clone(&shared), shared.cut.add_slot());
                thread::spawn(move || {
                    let entered = shared.cut.enter(&slot, &shared.epoch);
                    let epoch = shared.epoch.current();
                    let place = shared.log.fetch_add(1, Ordering::SeqCst);
                    let tid = Tid::new(epoch, 0);
                    let below = shared.snapshots.are_below(tid);
                    let knows = below.then(|| shared.cut.before(tid)).flatten();
                    // Relaxed: the slot has to make the store visible.
                    shared.installed[at].store(1, Ordering::Relaxed);
                    drop(entered);
                    (epoch, place, knows)
                })
            };
            let sessions = [session(0), session(1)];
            let mut noted = 0;
            let readers = (&shared.epoch, &shared.snapshots);
            let note = || noted = shared.log.load(Ordering::SeqCst);
            let cut = shared.cut.begin(readers, u64::MAX, false, || false, note).unwrap();
            let seen = [0, 1].map(|at: usize| shared.installed[at].load(Ordering::Relaxed) == 1);
            for (session, seen) in sessions.into_iter().zip(seen) {
                let (epoch, place, knows) = session.join().unwrap();
                if epoch <= cut {
                    assert!(seen, "it is of the cut, and is not installed");
                } else {
                    assert_eq!(knows, Some(cut), "it comes after the cut, and does not know");
                    assert!(
                        place >= noted,
                        "it comes after the cut, and lies before the positions"
                    );
                }
            }
        });
    }
}
