//! Garbage collection: removes tombstones and stale index entries once no transaction needs them.
//!
//! A deleted row stays in its index as a tombstone, because its version and stamps order later
//! accesses to the key. It can be removed once its version's epoch has passed: a row inserted under
//! the key then gets a higher version. The gap that the tombstone leaves inherits its stamps.
//! Waiting until the stamps are old enough to be dropped would not do: a scan that passes a
//! tombstone again and again keeps it fresh for ever. A stale index entry does not wait for its
//! epoch to pass. Both wait until no snapshot is open that holds an earlier version of the row. A
//! protocol without stamps of gaps is told the version ([`LoggingProtocol::removes`]).
//!
//! **Each item is recorded once.** A tombstone is recorded by the transaction that deleted the row:
//! a sweep that finds a version of a later epoch leaves it to the transaction that wrote that
//! version. An entry is recorded by the transaction that inserted it, if that did not commit, or by
//! the one whose commit changed the row it described. A transaction that finds an entry in place
//! and does not commit records nothing: the entry was valid, or recorded, or a transaction in
//! progress will record it; and a sweep that finds an entry in use keeps it recorded. So retries
//! record nothing twice.
//!
//! **The backlog is bounded.** After each attempt at a transaction its session checks twice as many
//! items as the attempt left, plus a few, plus a share of its backlog ([`looks`]). What an open
//! snapshot needs stays, and is not looked at until the snapshot is closed. Otherwise no item
//! blocks those behind it: a row that is locked or in use goes to the back, and rows are queued in
//! the order in which they were recorded, so that those whose epoch has passed come first. Let an
//! attempt leave `p` items, and let a check find the row locked in a fraction `f` of the cases. If
//! `f` is at most one half, entries do not accumulate. If it is more, their number `n` grows until
//! `n / 32 = p / (1 - f)`. Rows of the last two epochs come on top. What a transaction of a million
//! deletions leaves is freed in pieces, which shrink with the backlog.
//!
//! A session that ends, or returns to the pool, hands over its garbage ([`OrphanedGarbage`]). It is
//! freed by sessions that end, each in proportion to what it has left itself, so that the same
//! bound holds; by running sessions, from time to time; and by checkpoints, which free everything
//! they can.

mod orphaned;

pub(crate) use orphaned::OrphanedGarbage;

use crate::concurrency::ConcurrencyControl;
use crate::concurrency::state::TxnState;
use crate::engine::Engine;
use crate::logging::LoggingProtocol;
use crate::logging::write::Pending;
use crate::storage::gap::StampHooks;
use crate::storage::key::KeyBytes;
use crate::storage::record::{Record, word};
use crate::storage::table::Lookup;
use crate::storage::tid::Tid;
use crossbeam_epoch::Guard;
use hyades_index::Keyed;
use hyades_platform::epoch::EpochNumber;
use hyades_platform::mutation::{self, Mutation};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{Ordering, fence};

/// Primary key of a row that may be absent.
struct AbsentRow {
    table: u32,
    key: KeyBytes,
    /// At least the epoch of the version; [`REPLAYED`] if no other thread records the row.
    epoch: EpochNumber,
}

/// Replay does not wait for epochs.
const REPLAYED: EpochNumber = EpochNumber::ABOVE_ALL;

/// Key of an index entry that may no longer match its row.
struct StaleEntry {
    table: u32,
    index: u16,
    key: KeyBytes,
    /// At least the version that it does not match; [`Tid::NONE`] at a replay on one version.
    /// Readers of earlier states need it.
    since: Tid,
}

/// Garbage of a session, oldest first.
#[derive(Default)]
pub(crate) struct Garbage {
    entries: VecDeque<StaleEntry>,
    rows: VecDeque<AbsentRow>,
    /// Number of items after the last sweep.
    before: usize,
    /// Attempts until the next sweep, if the backlog is small.
    pause: u32,
    /// Sweeps that found the epoch of the first row not yet over.
    early: u32,
}

/// With a backlog of at most this, a sweep that removed nothing is not repeated at once.
const FEW: usize = 64;

/// It is repeated after this many attempts.
const PAUSE: u32 = 8;

/// After this many sweeps that came too early the session advances the epoch, if it is old enough:
/// a session that deletes rarely does not depend on others for that.
const EARLY: u32 = 16;

/// Number of entries, and of rows, to check after an attempt that left `noted` items, with a
/// backlog of `waiting` items.
fn looks(noted: usize, waiting: usize) -> usize {
    if mutation::is(Mutation::SweepHeldUp) {
        return 8;
    }
    8 + 2 * noted + (waiting / 32).min(256)
}

/// How a transaction has ended that leaves garbage.
pub(crate) enum TransactionEnd<'e, P: LoggingProtocol> {
    Now(&'e Engine<P>),
    /// As a command, on rows of one version.
    Replayed,
    /// As a command, on rows of several versions, as this one of them.
    Version(Tid),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Swept {
    Done,
    NotYet,
}

impl Garbage {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.rows.is_empty()
    }

    /// Number of items in the backlog.
    pub fn len(&self) -> usize {
        self.entries.len() + self.rows.len()
    }

    /// Records a row that may be absent, at replay.
    pub fn add_row(&mut self, table: u32, key: KeyBytes) {
        self.rows.push_back(AbsentRow { table, key, epoch: REPLAYED });
    }

    /// Records a row that may be absent since this epoch, at a replay on several versions.
    pub fn add_row_of(&mut self, table: u32, key: KeyBytes, epoch: EpochNumber) {
        self.rows.push_back(AbsentRow { table, key, epoch });
    }

    /// Records an entry that may be stale since version `since`; [`Tid::NONE`] at a replay on one
    /// version.
    pub fn add_entry(&mut self, table: u32, index: u16, key: KeyBytes, since: Tid) {
        self.entries.push_back(StaleEntry { table, index, key, since });
    }

    /// Records the garbage of a transaction that has ended.
    pub fn collect_from<P: LoggingProtocol>(
        &mut self,
        ended: &TransactionEnd<'_, P>,
        state: &TxnState<'_, P>,
        committed: bool,
    ) {
        let undone = !committed || state.rolled_back;
        let since = || match ended {
            // The commit is over, so the version is not above the latest one.
            TransactionEnd::Now(engine) => engine.snapshots.latest(&engine.epoch),
            TransactionEnd::Replayed => Tid::NONE,
            TransactionEnd::Version(tid) => *tid,
        };
        for link in &state.links {
            link.entry.unpin();
            // After a partial rollback it is unknown which entries are in use, so all are recorded.
            if undone && (link.fresh || committed) {
                let key = KeyBytes::from_slice(link.entry.key());
                self.add_entry(link.table, link.index, key, since());
            }
        }
        if committed {
            for stale in &state.stale {
                let key = KeyBytes::from_slice(stale.key);
                self.add_entry(stale.table, stale.index, key, since());
            }
        }
        let now = || match ended {
            TransactionEnd::Now(engine) => engine.epoch.current(),
            TransactionEnd::Replayed => REPLAYED,
            TransactionEnd::Version(tid) => tid.epoch(),
        };
        if committed {
            for write in state.final_writes() {
                if matches!(write.pending, Pending::Delete) {
                    let key = KeyBytes::from_slice(write.record.key());
                    self.rows.push_back(AbsentRow { table: write.table, key, epoch: now() });
                }
            }
        }
        if undone {
            for (table, record) in &state.inserted {
                let key = KeyBytes::from_slice(record.key());
                self.rows.push_back(AbsentRow { table: *table, key, epoch: now() });
            }
        }
    }

    /// Removes, at a replay on several versions, what no record to come needs; the rest stays. No
    /// record is being replayed.
    pub fn sweep_needless<C: ConcurrencyControl<P>, P: LoggingProtocol>(
        &mut self,
        engine: &Engine<P>,
        stamp: &mut P::TxnStamp,
    ) {
        let guard = crossbeam_epoch::pin();
        // Threads have recorded the items, in no order. What is needed stays as it is.
        let oldest = oldest(engine);
        self.entries.retain(|entry| {
            entry.since > oldest
                || sweep_entry::<C, P>(engine, stamp, entry, &guard) == Swept::NotYet
        });
        let horizon = horizon(engine);
        self.rows.retain(|row| {
            !row.is_past(horizon) || sweep_row::<C, P>(engine, stamp, row, &guard) == Swept::NotYet
        });
    }

    /// Removes everything it can, at replay, where no other thread works on these items. Rows that
    /// have to wait for records still to come are passed to `keep`.
    pub fn sweep_all<C: ConcurrencyControl<P>, P: LoggingProtocol>(
        &mut self,
        engine: &Engine<P>,
        stamp: &mut P::TxnStamp,
        mut keep: impl FnMut(u32, KeyBytes),
    ) {
        let guard = crossbeam_epoch::pin();
        loop {
            let before = self.len();
            self.sweep_entries::<C, P>(engine, stamp, usize::MAX, &guard);
            self.sweep_rows::<C, P>(engine, stamp, usize::MAX, &guard);
            if self.is_empty() || self.len() == before {
                break;
            }
        }
        self.entries.clear();
        for row in self.rows.drain(..) {
            keep(row.table, row.key);
        }
    }

    /// Like [`Garbage::sweep_all`], but only for rows that are `ready`; the rest stays.
    pub fn sweep_ready<C: ConcurrencyControl<P>, P: LoggingProtocol>(
        &mut self,
        engine: &Engine<P>,
        stamp: &mut P::TxnStamp,
        ready: impl Fn(&Record<P::RowStamp>) -> bool,
    ) {
        let guard = crossbeam_epoch::pin();
        self.entries.retain(|entry| {
            let secondaries = &engine.tables[entry.table as usize].secondaries;
            let found = secondaries[entry.index as usize].tree.find(&entry.key, &guard);
            found.is_some_and(|found| {
                !ready(found.record())
                    || sweep_entry::<C, P>(engine, stamp, entry, &guard) == Swept::NotYet
            })
        });
        self.rows.retain(|row| match engine.tables[row.table as usize].find(&row.key, &guard) {
            Lookup::Missing(_) => false,
            Lookup::Found(record) => {
                !ready(record) || sweep_row::<C, P>(engine, stamp, row, &guard) == Swept::NotYet
            }
        });
    }

    /// Removes some of the garbage after an attempt. The session is between transactions.
    pub fn sweep<C: ConcurrencyControl<P>, P: LoggingProtocol>(
        &mut self,
        engine: &Engine<P>,
        stamp: &mut P::TxnStamp,
    ) {
        let waiting = self.len();
        if self.pause > 0 && (waiting <= FEW || mutation::is(Mutation::SweepHeldUp)) {
            self.pause -= 1;
            return;
        }
        self.pause = 0;
        let looks = looks(waiting.saturating_sub(self.before), waiting);
        let guard = crossbeam_epoch::pin();
        self.sweep_entries::<C, P>(engine, stamp, looks, &guard);
        if self.rows.front().is_some_and(|row| !row.is_past(horizon(engine))) {
            self.early += 1;
            if self.early.is_multiple_of(EARLY) {
                engine.epoch.advance_if_older_than(engine.epoch_interval);
            }
        } else {
            self.sweep_rows::<C, P>(engine, stamp, looks, &guard);
        }
        self.before = self.len();
        if self.before == waiting {
            self.pause = if mutation::is(Mutation::SweepHeldUp) { 32 * PAUSE } else { PAUSE };
        }
    }

    /// Removes some of the garbage of a session that runs no transactions: checks up to `most`
    /// entries, and up to `most` rows.
    pub fn sweep_up_to<C: ConcurrencyControl<P>, P: LoggingProtocol>(
        &mut self,
        engine: &Engine<P>,
        stamp: &mut P::TxnStamp,
        most: usize,
    ) {
        let guard = crossbeam_epoch::pin();
        self.sweep_entries::<C, P>(engine, stamp, most, &guard);
        self.sweep_rows::<C, P>(engine, stamp, most, &guard);
        (self.before, self.pause) = (self.len(), 0);
    }

    fn sweep_entries<C: ConcurrencyControl<P>, P: LoggingProtocol>(
        &mut self,
        engine: &Engine<P>,
        stamp: &mut P::TxnStamp,
        looks: usize,
        guard: &Guard,
    ) {
        let oldest = oldest(engine);
        for _ in 0..looks.min(self.entries.len()) {
            let is_ready = |entry: &mut StaleEntry| entry.since <= oldest;
            let Some(mut entry) = self.entries.pop_front_if(is_ready) else { break };
            if sweep_entry::<C, P>(engine, stamp, &entry, guard) == Swept::NotYet {
                entry.since = engine.snapshots.latest(&engine.epoch);
                self.entries.push_back(entry);
                if mutation::is(Mutation::SweepHeldUp) {
                    break;
                }
            }
        }
    }

    fn sweep_rows<C: ConcurrencyControl<P>, P: LoggingProtocol>(
        &mut self,
        engine: &Engine<P>,
        stamp: &mut P::TxnStamp,
        looks: usize,
        guard: &Guard,
    ) {
        let horizon = horizon(engine);
        for _ in 0..looks.min(self.rows.len()) {
            let Some(mut row) = self.rows.pop_front_if(|row| row.is_past(horizon)) else { break };
            if sweep_row::<C, P>(engine, stamp, &row, guard) == Swept::NotYet {
                // Locked, or referenced by an index entry. It is checked again in the next epoch.
                if row.epoch != REPLAYED {
                    row.epoch = engine.epoch.current();
                }
                self.rows.push_back(row);
            }
        }
    }

    /// Takes up to `most` entries, and up to `most` rows, that can be removed as far as epochs
    /// tell.
    fn take<P: LoggingProtocol>(&mut self, most: usize, engine: &Engine<P>) -> Garbage {
        let mut taken = Garbage::default();
        let (oldest, horizon) = (oldest(engine), horizon(engine));
        while taken.entries.len() < most
            && let Some(entry) = self.entries.pop_front_if(|entry| entry.since <= oldest)
        {
            taken.entries.push_back(entry);
        }
        while taken.rows.len() < most
            && let Some(row) = self.rows.pop_front_if(|row| row.is_past(horizon))
        {
            taken.rows.push_back(row);
        }
        taken
    }

    /// Bytes of the room that its items take, or have taken.
    pub fn room_bytes(&self) -> usize {
        let (entries, rows) = (self.entries.capacity(), self.rows.capacity());
        entries * size_of::<StaleEntry>() + rows * size_of::<AbsentRow>()
    }

    /// Frees this room, if no item is left and it is larger than `kept`. Returns whether it was.
    pub fn free_room(&mut self, kept: usize) -> bool {
        let is_free = self.is_empty() && self.room_bytes() > kept;
        if is_free {
            (self.entries, self.rows) = (VecDeque::new(), VecDeque::new());
        }
        is_free
    }

    /// Moves all items of `other` here.
    pub fn append(&mut self, other: &mut Garbage) {
        self.entries.append(&mut other.entries);
        self.rows.append(&mut other.rows);
        other.before = 0;
    }
}

impl AbsentRow {
    /// Whether its epoch is below the [`horizon`]; always true at replay.
    fn is_past(&self, horizon: EpochNumber) -> bool {
        self.epoch == REPLAYED || self.epoch < horizon
    }
}

/// Entries that became stale with versions up to this one are not needed by any reader.
fn oldest<P: LoggingProtocol>(engine: &Engine<P>) -> Tid {
    if mutation::is(Mutation::UnlinkNeededEntries) {
        return Tid::ABOVE_ALL;
    }
    engine.snapshots.oldest_reader(&engine.epoch)
}

/// Rows deleted in epochs below this one can be removed: the epoch is over, so that a new row under
/// the key gets a higher version, and no snapshot holds an earlier version of the row.
fn horizon<P: LoggingProtocol>(engine: &Engine<P>) -> EpochNumber {
    // In this order: a snapshot that is opened later is not below `now`.
    let now = engine.epoch.current();
    let oldest = engine.snapshots.oldest_reader(&engine.epoch);
    // All versions of the epochs below this are not above the TID that is read as of.
    let lowest =
        if oldest == Tid::last_of(oldest.epoch()) { oldest.epoch().next() } else { oldest.epoch() };
    lowest.min(now)
}

/// Whether this version of a row is below the [`horizon`].
fn is_past<P: LoggingProtocol>(engine: &Engine<P>, version: u64) -> bool {
    word::tid(version).epoch() < horizon(engine)
}

fn sweep_row<C: ConcurrencyControl<P>, P: LoggingProtocol>(
    engine: &Engine<P>,
    stamp: &mut P::TxnStamp,
    row: &AbsentRow,
    guard: &Guard,
) -> Swept {
    let stamp = RefCell::new(stamp);
    let inherit = |to: &P::RowStamp, from: &P::RowStamp| {
        engine.protocol.inherit(to, from, *stamp.borrow_mut());
    };
    let table = &engine.tables[row.table as usize];
    let Lookup::Found(record) = table.find(&row.key, guard) else { return Swept::Done };
    let seen = record.word.load(Ordering::Acquire);
    if seen & word::ABSENT == 0 || seen & word::DEAD != 0 {
        return Swept::Done;
    }
    if word::tid(seen).epoch() > row.epoch {
        // The transaction that deleted it again has recorded it.
        return Swept::Done;
    }
    if record.entries.load(Ordering::Acquire) != 0 || !is_past(engine, seen) {
        return Swept::NotYet;
    }
    let Some(version) = C::try_lock_record(record) else { return Swept::NotYet };
    let gone = version & word::ABSENT != 0
        && version & word::DEAD == 0
        && record.entries.load(Ordering::Acquire) == 0
        && is_past(engine, version);
    if !gone {
        C::unlock_record(record, version, false);
        return Swept::NotYet;
    }
    // Marked dead before it is unlinked: a thread that still holds a reference fails and looks the
    // key up again. A transaction that links an entry to the record counts the entry first and then
    // checks whether the record is dead.
    C::unlock_record(record, version, true);
    fence(Ordering::SeqCst);
    if record.entries.load(Ordering::SeqCst) != 0 {
        C::unmark_dead(record, version);
        return Swept::NotYet;
    }
    let leave = |gap: &P::RowStamp| inherit(gap, &record.stamp);
    engine.protocol.removes(word::tid(version));
    table.unlink(record, &StampHooks(inherit), &leave, guard);
    Swept::Done
}

fn sweep_entry<C: ConcurrencyControl<P>, P: LoggingProtocol>(
    engine: &Engine<P>,
    stamp: &mut P::TxnStamp,
    stale: &StaleEntry,
    guard: &Guard,
) -> Swept {
    let stamp = RefCell::new(stamp);
    let inherit = |to: &P::RowStamp, from: &P::RowStamp| {
        engine.protocol.inherit(to, from, *stamp.borrow_mut());
    };
    let table = &engine.tables[stale.table as usize];
    let at = stale.index as usize;
    let Some(entry) = table.secondaries[at].tree.find(&stale.key, guard) else {
        return Swept::Done;
    };
    let record = entry.record();
    let Some(version) = C::try_lock_record(record) else { return Swept::NotYet };
    let mut row = Vec::new();
    let there = version & word::ABSENT == 0;
    if there {
        table.read_row(record, &mut row);
    }
    let true_entry = there && table.secondary_key(at, &row, record.key()) == stale.key;
    // A snapshot may hold an earlier version, which the entry matches.
    let is_needed = word::tid(version) > oldest(engine);
    let leave = |gap: &P::RowStamp| inherit(gap, &record.stamp);
    if !true_entry && !is_needed {
        engine.protocol.removes(word::tid(version));
    }
    let done = true_entry
        || !is_needed && table.unlink_entry(at, entry, &StampHooks(inherit), &leave, guard);
    C::unlock_record(record, version, false);
    if done { Swept::Done } else { Swept::NotYet }
}
