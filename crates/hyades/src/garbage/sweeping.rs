//! The removal of a tombstone, or of a stale index entry.

use super::{AbsentRow, StaleEntry};
use crate::concurrency::{ConcurrencyControl, RecordLock, inherit};
use crate::engine::Engine;
use crate::logging::LoggingProtocol;
use crate::storage::Stamp;
use crate::storage::gap::StampHooks;
use crate::storage::record::word;
use crate::storage::secondary::{EntryUnlinked, IndexEntry};
use crate::storage::table::{Lookup, TableData};
use crate::storage::tid::Tid;
use hyades_platform::broken;
use hyades_platform::epoch::EpochNumber;
use hyades_platform::reclaim::Guard;
use std::cell::RefCell;
use std::sync::atomic::{Ordering, fence};

/// The outcome of a sweep of an item.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Swept {
    /// Nothing is left to be done: the item is removed, in use, or recorded otherwise.
    Done,
    /// The item is in place, and is to be looked at again.
    NotYet,
    /// A snapshot holds the item until no snapshot is open below version `end`. The item has left
    /// its index, and `bytes` are kept beside the index; or, in a hash table, the item is in place,
    /// and `bytes` is 0.
    Held { end: Tid, bytes: u64 },
}

/// Returns the highest version up to which stale entries can leave their index: no transaction
/// needs the entries.
pub(super) fn oldest<P: LoggingProtocol, S: Stamp>(engine: &Engine<P, S>) -> Tid {
    engine.snapshots.oldest_transaction(&engine.epoch)
}

/// Returns the epoch below which deleted rows can leave their index: the epoch of the deletion is
/// over, so that a new row under the key gets a higher version, and no transaction reads an earlier
/// version of the row.
pub(super) fn horizon<P: LoggingProtocol, S: Stamp>(engine: &Engine<P, S>) -> EpochNumber {
    // In this order: a transaction that begins later, or a snapshot opened later, is not below
    // `now`.
    let now = engine.epoch.current();
    let oldest = engine.snapshots.oldest_transaction(&engine.epoch);
    // All versions of the epochs below `lowest` are not above `oldest`.
    let lowest =
        if oldest == Tid::last_of(oldest.epoch()) { oldest.epoch().next() } else { oldest.epoch() };
    lowest.min(now)
}

/// Whether this version of a row is below the [`horizon`].
fn is_past<P: LoggingProtocol, S: Stamp>(engine: &Engine<P, S>, version: u64) -> bool {
    word::tid(version).epoch() < horizon(engine)
}

/// Removes a tombstone, or moves it out of the index if a snapshot holds the row.
pub(super) fn sweep_row<C: ConcurrencyControl<P>, P: LoggingProtocol>(
    engine: &Engine<P, C::Row>,
    stamp: &mut P::TxnStamp,
    row: &AbsentRow,
    guard: &Guard,
) -> Swept {
    let stamp = RefCell::new(stamp);
    let raise = |to: &C::Row, from: &C::Row| {
        inherit::<C, P>(&engine.protocol, to, from, *stamp.borrow_mut());
    };
    let table = &engine.tables[row.table as usize];
    let Lookup::Found(record) = table.find(&row.key, guard) else { return Swept::Done };
    let seen = record.word.load(Ordering::Acquire);
    if seen & word::ABSENT == 0 || seen & word::DEAD != 0 {
        return Swept::Done;
    }
    if word::tid(seen).epoch() > row.epoch {
        // The transaction that deleted the row again has recorded the row.
        return Swept::Done;
    }
    if record.entries.load(Ordering::Acquire) != 0 || !is_past(engine, seen) {
        return Swept::NotYet;
    }
    let Some(version) = C::Lock::try_lock(record) else { return Swept::NotYet };
    let gone = version & word::ABSENT != 0
        && version & word::DEAD == 0
        && record.entries.load(Ordering::Acquire) == 0
        && is_past(engine, version);
    if !gone {
        C::Lock::unlock(record, version, false);
        return Swept::NotYet;
    }
    // After `is_past`: the row's epoch is over, so a snapshot opened later does not hold the row.
    let (end, open) = (word::tid(version), engine.snapshots.span());
    let versions = engine.snapshots.versions();
    let is_held = end > open.0 && versions.any_wanted(record, open, guard, |_| true);
    if is_held && !table.is_ordered() {
        C::Lock::unlock(record, version, false);
        return Swept::Held { end, bytes: 0 };
    }
    // Marked dead before the unlinking: a thread that still holds a reference fails and looks the
    // key up again. A transaction that links an entry to the record counts the entry first and then
    // checks whether the record is dead.
    C::Lock::unlock(record, version, true);
    fence(Ordering::SeqCst);
    if record.entries.load(Ordering::SeqCst) != 0 {
        C::Lock::unmark_dead(record, version);
        return Swept::NotYet;
    }
    let leave = |gap: &C::Row| raise(gap, &record.stamp);
    engine.protocol.removes(end);
    if is_held {
        let bytes = table.move_to_kept(record, &StampHooks(raise, C::GAP_LOCKS), &leave, guard);
        return Swept::Held { end, bytes };
    }
    table.unlink(record, &StampHooks(raise, C::GAP_LOCKS), &leave, guard);
    Swept::Done
}

/// Removes an index entry that does not match its row, or moves the entry out of the index if a
/// snapshot needs the entry.
pub(super) fn sweep_entry<C: ConcurrencyControl<P>, P: LoggingProtocol>(
    engine: &Engine<P, C::Row>,
    stamp: &mut P::TxnStamp,
    stale: &StaleEntry,
    guard: &Guard,
) -> Swept {
    let stamp = RefCell::new(stamp);
    let raise = |to: &C::Row, from: &C::Row| {
        inherit::<C, P>(&engine.protocol, to, from, *stamp.borrow_mut());
    };
    let table = &engine.tables[stale.table as usize];
    let at = stale.index as usize;
    let Some(entry) = table.secondaries[at].tree.find(&stale.key, guard) else {
        return Swept::Done;
    };
    let record = entry.record();
    let Some(version) = C::Lock::try_lock(record) else { return Swept::NotYet };
    let mut row = Vec::new();
    let there = version & word::ABSENT == 0;
    if there {
        table.read_row(record, &mut row);
    }
    let is_true = there && table.secondary_key(at, &row, record.key()) == stale.key;
    let end = word::tid(version);
    let swept = if is_true {
        Swept::Done
    } else if end > oldest(engine) {
        // A transaction may read an earlier version, which the entry matches.
        Swept::NotYet
    } else {
        engine.protocol.removes(end);
        let leave = |gap: &C::Row| raise(gap, &record.stamp);
        let ended_by = is_needed(engine, table, at, entry, end, guard).then_some(end);
        match table.unlink_entry(
            at,
            entry,
            ended_by,
            &StampHooks(raise, C::GAP_LOCKS),
            &leave,
            guard,
        ) {
            EntryUnlinked::Pinned => Swept::NotYet,
            EntryUnlinked::Gone => Swept::Done,
            EntryUnlinked::Kept(bytes) => Swept::Held { end, bytes },
        }
    };
    C::Lock::unlock(record, version, false);
    swept
}

/// Whether a snapshot needs an entry, which does not match version `end` of its row: the entry
/// matches an older version held by the snapshot, and is not kept for all snapshots already.
fn is_needed<P: LoggingProtocol, S: Stamp>(
    engine: &Engine<P, S>,
    table: &TableData<S>,
    index: usize,
    entry: &IndexEntry<S>,
    end: Tid,
    guard: &Guard,
) -> bool {
    let open = engine.snapshots.span();
    if end <= open.0 || broken!(UnlinkNeededEntries) {
        return false;
    }
    let versions = engine.snapshots.versions();
    table.matches_older(index, entry, (versions, open), guard)
        && !table.has_kept_entry(index, entry, open.1, guard)
}
