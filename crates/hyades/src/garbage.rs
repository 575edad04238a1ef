//! Garbage collection: removes tombstones and stale index entries once no transaction needs them.
//!
//! A deleted row stays in its index as a tombstone, because its version and stamps order later
//! accesses to the key. The tombstone can be removed once the epoch of its version has passed: a
//! row inserted under the key then gets a higher version. The gap left by the tombstone inherits
//! the stamps. Waiting until the stamps are old enough to be dropped would not do: a scan that
//! passes a tombstone again and again keeps the tombstone fresh for ever. A stale index entry does
//! not wait for its epoch to pass. Both wait until no transaction reads the state before. A
//! protocol without stamps of gaps is told the version ([`LoggingProtocol::removes`]).
//!
//! **Snapshots hold nothing in place.** An item held by an open snapshot leaves its index all the
//! same, and is kept beside the index ([`crate::storage::kept`]); to readers of the present the
//! item is removed. Only a row of a hash table, which no scan passes, stays in place. The older
//! versions behind a row tell whether a snapshot holds the row, or needs an entry: a row inserted
//! after the newest snapshot has no older versions, and is removed. A held item is freed once no
//! snapshot is open below the version that ended the item.
//!
//! **Each item is recorded once.** A tombstone is recorded by the transaction that deleted the row:
//! a sweep that finds a version of a later epoch leaves the row to the writer of the version. An
//! entry is recorded by the transaction that inserted the entry, if not committed, or by the
//! transaction whose commit changed the described row. A transaction that finds an entry in place
//! and does not commit records nothing: the entry was valid, or recorded, or a transaction in
//! progress will record the entry; and a sweep that finds an entry in use keeps the entry recorded.
//! So retries record nothing twice.
//!
//! **The backlog is bounded.** After each attempt at a transaction its session checks twice as many
//! items as the attempt left, plus a few, plus a share of its backlog ([`looks`]). Items held by an
//! open snapshot are not looked at until the snapshot is closed. Otherwise no item blocks the items
//! behind: a locked or used row goes to the back, and rows are queued in the order of their
//! recording, so that rows of passed epochs come first. Let an attempt leave `p` items, and let a
//! check find the row locked in a fraction `f` of the cases. If `f` is at most one half, entries do
//! not accumulate. If `f` is more, the number `n` of entries grows until `n / 32 = p / (1 - f)`.
//! Rows of the last two epochs come on top. The items of a transaction of a million deletions are
//! freed in pieces, which shrink with the backlog.
//!
//! A session that ends, or returns to the pool, hands over its garbage ([`OrphanedGarbage`]).
//! Ending sessions free the garbage handed over, each in proportion to its own, so that the same
//! bound holds; running sessions free some from time to time; and checkpoints free everything they
//! can.

mod held;
mod orphaned;
mod sweeping;

pub(crate) use orphaned::OrphanedGarbage;

use crate::concurrency::ConcurrencyControl;
use crate::concurrency::state::TxnState;
use crate::engine::Engine;
use crate::logging::LoggingProtocol;
use crate::logging::write::Pending;
use crate::storage::Stamp;
use crate::storage::key::KeyBytes;
use crate::storage::record::Record;
use crate::storage::secondary::IndexEntry;
use crate::storage::table::{Lookup, TableData};
use crate::storage::tid::Tid;
use held::HeldGarbage;
use hyades_index::Keyed;
use hyades_platform::broken;
use hyades_platform::epoch::EpochNumber;
use hyades_platform::reclaim::pin;
use std::collections::VecDeque;
use sweeping::{Swept, horizon, oldest, sweep_entry, sweep_row};

/// Primary key of a row that may be absent.
struct AbsentRow {
    table: u32,
    key: KeyBytes,
    /// At least the epoch of the version; [`REPLAYED`] if no other thread records the row.
    epoch: EpochNumber,
}

/// Replay does not wait for epochs.
const REPLAYED: EpochNumber = EpochNumber::ABOVE_ALL;

/// Key of an index entry that may no longer match the row.
struct StaleEntry {
    table: u32,
    index: u16,
    key: KeyBytes,
    /// At least the version that the entry does not match; [`Tid::NONE`] at a replay on one
    /// version. Readers of earlier states need the entry.
    since: Tid,
}

/// Garbage of a session, oldest first.
#[derive(Default)]
pub(crate) struct Garbage {
    entries: VecDeque<StaleEntry>,
    rows: VecDeque<AbsentRow>,
    /// Garbage held by snapshots.
    held: HeldGarbage,
    /// Number of entries and rows after the last sweep.
    before: usize,
    /// Attempts until the next sweep, if the backlog is small.
    pause: u32,
    /// Sweeps before the epoch of the first row was over.
    early: u32,
}

/// The largest backlog with which a sweep that removed nothing is not repeated at once.
const FEW: usize = 64;

/// The number of attempts until the next sweep after a sweep that removed nothing.
const PAUSE: u32 = 8;

/// The number of premature sweeps after which the session advances the epoch, if old enough: a
/// session with rare deletions does not depend on the advances of other sessions.
const EARLY: u32 = 16;

/// Number of entries, and of rows, to check after an attempt that left `noted` items, with a
/// backlog of `waiting` items.
fn looks(noted: usize, waiting: usize) -> usize {
    if broken!(SweepHeldUp) {
        return 8;
    }
    8 + 2 * noted + (waiting / 32).min(256)
}

/// The end of a transaction that leaves garbage.
pub(crate) enum TransactionEnd<'e, P: LoggingProtocol, S: Stamp> {
    Now(&'e Engine<P, S>),
    /// As a command, on rows of one version.
    Replayed,
    /// As a command, on rows of several versions, with this version.
    Version(Tid),
}

impl Garbage {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.rows.is_empty() && self.held.items.is_empty()
    }

    /// Number of items, including the items held by snapshots.
    pub fn len(&self) -> usize {
        self.backlog() + self.held.items.len()
    }

    /// Number of items that no snapshot holds, as far as is known.
    fn backlog(&self) -> usize {
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
    pub fn collect_from<C: ConcurrencyControl<P>, P: LoggingProtocol>(
        &mut self,
        ended: &TransactionEnd<'_, P, C::Row>,
        state: &TxnState<'_, C, P>,
        committed: bool,
    ) {
        let undone = !committed || state.rolled_back;
        let since = || match ended {
            // The commit is over, so the version is not above the latest TID.
            TransactionEnd::Now(engine) => engine.snapshots.latest(&engine.epoch),
            TransactionEnd::Replayed => Tid::NONE,
            TransactionEnd::Version(tid) => *tid,
        };
        for link in &state.index_changes.links {
            link.entry.unpin();
            // After a partial rollback the entries in use are unknown, so all entries are recorded.
            if undone && (link.fresh || committed) {
                let key = KeyBytes::from_slice(link.entry.key());
                self.add_entry(link.table, link.index, key, since());
            }
        }
        if committed {
            for stale in &state.index_changes.stale {
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
            for (table, record) in &state.index_changes.inserted {
                let key = KeyBytes::from_slice(record.key());
                self.rows.push_back(AbsentRow { table: *table, key, epoch: now() });
            }
        }
    }

    /// Removes, at a replay on several versions, the items that no record to come needs; the rest
    /// stays. No record is being replayed.
    pub fn sweep_needless<C: ConcurrencyControl<P>, P: LoggingProtocol>(
        &mut self,
        engine: &Engine<P, C::Row>,
        stamp: &mut P::TxnStamp,
    ) {
        let mut guard = pin();
        // Threads have recorded the items, in no order. Needed items stay as they are.
        let oldest = oldest(engine);
        self.entries.retain(|entry| {
            guard.refresh();
            entry.since > oldest
                || sweep_entry::<C, P>(engine, stamp, entry, &guard) == Swept::NotYet
        });
        let horizon = horizon(engine);
        self.rows.retain(|row| {
            guard.refresh();
            !row.is_past(horizon) || sweep_row::<C, P>(engine, stamp, row, &guard) == Swept::NotYet
        });
    }

    /// Removes everything possible, at replay, where no other thread works on these items. Rows
    /// that have to wait for records still to come are passed to `keep`.
    pub fn sweep_all<C: ConcurrencyControl<P>, P: LoggingProtocol>(
        &mut self,
        engine: &Engine<P, C::Row>,
        stamp: &mut P::TxnStamp,
        mut keep: impl FnMut(u32, KeyBytes),
    ) {
        loop {
            let before = self.len();
            self.sweep_entries::<C, P>(engine, stamp, usize::MAX);
            self.sweep_rows::<C, P>(engine, stamp, usize::MAX);
            if self.is_empty() || self.len() == before {
                break;
            }
        }
        self.entries.clear();
        for row in self.rows.drain(..) {
            keep(row.table, row.key);
        }
    }

    /// Removes, at a replay on several versions of rows, the garbage of a transaction whose
    /// versions, or later versions, are seen by all records to come. No record is being replayed.
    /// `is_single`: whether a row has one version. `matches_kept`: whether an entry of an index
    /// matches an older version of its row.
    ///
    /// Another transaction has written a row with several versions later, and has recorded the row
    /// if it deleted the row. The transaction that overwrites a version records the entries that
    /// match the version. So neither item is examined again.
    pub fn sweep_seen<C: ConcurrencyControl<P>, P: LoggingProtocol>(
        &mut self,
        engine: &Engine<P, C::Row>,
        stamp: &mut P::TxnStamp,
        is_single: impl Fn(&Record<C::Row>) -> bool,
        mut matches_kept: impl FnMut(&TableData<C::Row>, usize, &IndexEntry<C::Row>) -> bool,
    ) {
        let mut guard = pin();
        self.entries.retain(|entry| {
            guard.refresh();
            let table = &engine.tables[entry.table as usize];
            let index = entry.index as usize;
            let found = table.secondaries[index].tree.find(&entry.key, &guard);
            found.is_some_and(|found| {
                !matches_kept(table, index, found)
                    && sweep_entry::<C, P>(engine, stamp, entry, &guard) == Swept::NotYet
            })
        });
        self.rows.retain(|row| {
            guard.refresh();
            match engine.tables[row.table as usize].find(&row.key, &guard) {
                Lookup::Missing(_) => false,
                Lookup::Found(record) => {
                    is_single(record)
                        && sweep_row::<C, P>(engine, stamp, row, &guard) == Swept::NotYet
                }
            }
        });
        // Many transactions leave a few items each.
        self.entries.shrink_to_fit();
        self.rows.shrink_to_fit();
    }

    /// Removes some of the garbage after an attempt. The session is between transactions.
    pub fn sweep<C: ConcurrencyControl<P>, P: LoggingProtocol>(
        &mut self,
        engine: &Engine<P, C::Row>,
        stamp: &mut P::TxnStamp,
    ) {
        let (waiting, held) = (self.backlog(), self.held.items.len());
        if self.pause > 0 && (waiting <= FEW || broken!(SweepHeldUp)) {
            self.pause -= 1;
            return;
        }
        self.pause = 0;
        self.free_held::<C, P>(engine, stamp, self::looks(0, held));
        let looks = looks(waiting.saturating_sub(self.before), waiting);
        self.sweep_entries::<C, P>(engine, stamp, looks);
        if self.rows.front().is_some_and(|row| !row.is_past(horizon(engine))) {
            self.early += 1;
            if self.early.is_multiple_of(EARLY) {
                engine.epoch.advance_if_older_than(engine.epoch_interval);
            }
        } else {
            self.sweep_rows::<C, P>(engine, stamp, looks);
        }
        self.before = self.backlog();
        if self.before == waiting && self.held.items.len() == held {
            self.pause = if broken!(SweepHeldUp) { 32 * PAUSE } else { PAUSE };
        }
    }

    /// Removes some of the garbage of a session that runs no transactions: checks up to `most`
    /// entries, and up to `most` rows.
    pub fn sweep_up_to<C: ConcurrencyControl<P>, P: LoggingProtocol>(
        &mut self,
        engine: &Engine<P, C::Row>,
        stamp: &mut P::TxnStamp,
        most: usize,
    ) {
        self.free_held::<C, P>(engine, stamp, most);
        self.sweep_entries::<C, P>(engine, stamp, most);
        self.sweep_rows::<C, P>(engine, stamp, most);
        (self.before, self.pause) = (self.backlog(), 0);
    }

    fn sweep_entries<C: ConcurrencyControl<P>, P: LoggingProtocol>(
        &mut self,
        engine: &Engine<P, C::Row>,
        stamp: &mut P::TxnStamp,
        looks: usize,
    ) {
        let (oldest, mut guard) = (oldest(engine), pin());
        for _ in 0..looks.min(self.entries.len()) {
            guard.refresh();
            let is_ready = |entry: &mut StaleEntry| entry.since <= oldest;
            let Some(mut entry) = self.entries.pop_front_if(is_ready) else { break };
            match sweep_entry::<C, P>(engine, stamp, &entry, &guard) {
                Swept::Done => {}
                Swept::Held { end, bytes } => self.held.add_entry(entry, end, bytes, engine),
                Swept::NotYet => {
                    entry.since = engine.snapshots.latest(&engine.epoch);
                    self.entries.push_back(entry);
                    if broken!(SweepHeldUp) {
                        break;
                    }
                }
            }
        }
    }

    fn sweep_rows<C: ConcurrencyControl<P>, P: LoggingProtocol>(
        &mut self,
        engine: &Engine<P, C::Row>,
        stamp: &mut P::TxnStamp,
        looks: usize,
    ) {
        let (horizon, mut guard) = (horizon(engine), pin());
        for _ in 0..looks.min(self.rows.len()) {
            guard.refresh();
            let Some(row) = self.rows.pop_front_if(|row| row.is_past(horizon)) else { break };
            let swept = sweep_row::<C, P>(engine, stamp, &row, &guard);
            self.end_sweep_of(row, swept, engine);
        }
    }

    /// Queues a swept row for the next check, if any.
    fn end_sweep_of<P: LoggingProtocol, S: Stamp>(
        &mut self,
        mut row: AbsentRow,
        swept: Swept,
        engine: &Engine<P, S>,
    ) {
        match swept {
            Swept::Done => {}
            Swept::Held { end, bytes } => self.held.add_row(row, end, bytes, engine),
            Swept::NotYet => {
                // Locked, or referenced by an index entry. The row is checked again in the next
                // epoch.
                if row.epoch != REPLAYED {
                    row.epoch = engine.epoch.current();
                }
                self.rows.push_back(row);
            }
        }
    }

    /// Takes up to `most` entries, and up to `most` rows, that can be removed as far as epochs
    /// tell.
    fn take<P: LoggingProtocol, S: Stamp>(
        &mut self,
        most: usize,
        engine: &Engine<P, S>,
    ) -> Garbage {
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
        self.held.take(most, &mut taken.held, engine);
        taken
    }

    /// Bytes of the room that the items take, or have taken.
    pub fn room_bytes(&self) -> usize {
        let (entries, rows) = (self.entries.capacity(), self.rows.capacity());
        entries * size_of::<StaleEntry>() + rows * size_of::<AbsentRow>() + self.held.room_bytes()
    }

    /// Frees the room, if no item is left and the room is larger than `kept`. Returns whether it
    /// did.
    pub fn free_room(&mut self, kept: usize) -> bool {
        let is_free = self.is_empty() && self.room_bytes() > kept;
        if is_free {
            (self.entries, self.rows) = (VecDeque::new(), VecDeque::new());
            self.held.items = VecDeque::new();
        }
        is_free
    }

    /// Moves all items of `other` here.
    pub fn append(&mut self, other: &mut Garbage) {
        self.entries.append(&mut other.entries);
        self.rows.append(&mut other.rows);
        self.held.append(&mut other.held);
        other.before = 0;
    }
}

impl AbsentRow {
    /// Whether the row's epoch is below the [`horizon`]; always true at replay.
    fn is_past(&self, horizon: EpochNumber) -> bool {
        self.epoch == REPLAYED || self.epoch < horizon
    }
}
