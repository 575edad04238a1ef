//! No concurrency control, for replay: the order of the log keeps conflicting transactions apart.
//! If the log orders only writers, readers use row versions.

use super::earlier::{EarlierRow, EarlierVersions};
use super::optimistic::LockBit;
use super::state::TxnState;
use super::steps;
use super::{ConcurrencyControl, RecordLock, VisibleRow};
use crate::engine::Engine;
use crate::error::Abort;
use crate::logging::LoggingProtocol;
use crate::logging::versions::ListedVersions;
use crate::logging::write::{Pending, Write, final_writes};
use crate::storage::Stamp;
use crate::storage::gap::{Gap, GapChange};
use crate::storage::old_versions::{
    LateVersion, OldVersion, OldVersionWriter, OldVersions, Overwritten,
};
use crate::storage::partition::TouchedPartitions;
use crate::storage::record::{Record, word};
use crate::storage::row::apply_delta;
use crate::storage::table::TableData;
use crate::storage::tid::Tid;
use bumpalo::Bump;
use hyades_platform::reclaim::Guard;
use std::ops::Range;
use std::sync::atomic::Ordering;

pub(crate) struct Replaying;

impl<P: LoggingProtocol> ConcurrencyControl<P> for Replaying {
    type Row = P::RowStamp;
    /// The row versions read by a command and its view of them, in replays with several versions.
    type Txn<'s> = Option<EarlierVersions<'s>>;
    type Lock = WaitsForLock;
    const INSERTED_WORD: u64 = word::ABSENT;

    #[inline(always)]
    fn stamp(row: &P::RowStamp) -> &P::RowStamp {
        row
    }

    #[inline]
    fn read<'s, T>(
        &self,
        _: &Engine<P>,
        state: &mut TxnState<'s, Replaying, P>,
        _: u32,
        record: &'s Record<P::RowStamp>,
        mut copy: impl FnMut() -> T,
    ) -> Result<VisibleRow<'s, T>, Abort> {
        if let Some(versions) = state.control {
            return Ok(match versions.read(record, (state.arena, state.guard), copy) {
                EarlierRow::InPlace(Some(row)) => VisibleRow::There(row),
                EarlierRow::Older(OldVersion::Row(row)) => VisibleRow::Older(row),
                EarlierRow::InPlace(None) | EarlierRow::Older(OldVersion::Absent) => {
                    VisibleRow::Absent
                }
            });
        }
        let there = record.word.load(Ordering::Acquire) & word::ABSENT == 0;
        Ok(if there { VisibleRow::There(copy()) } else { VisibleRow::Absent })
    }

    #[inline]
    fn intend<'s>(
        &self,
        _: &Engine<P>,
        state: &mut TxnState<'s, Replaying, P>,
        _: u32,
        record: &'s Record<P::RowStamp>,
    ) -> Result<bool, Abort> {
        Ok(match state.control {
            Some(versions) => versions.is_there(record, (state.arena, state.guard)),
            None => record.word.load(Ordering::Acquire) & word::ABSENT == 0,
        })
    }

    fn read_base<'s>(
        state: &TxnState<'s, Replaying, P>,
        table: &TableData<P::RowStamp>,
        record: &'s Record<P::RowStamp>,
        to: &mut Vec<u8>,
    ) {
        match state.control {
            Some(versions) => {
                let row = versions.read_whole(table, record, state.arena, state.guard);
                to.extend_from_slice(row.unwrap_or_default());
            }
            None => table.read_row(record, to),
        }
    }

    /// Old logs may hold keys over the limit.
    fn exceeds_key_size(_: Abort) -> Result<(), Abort> {
        Ok(())
    }

    fn inserted<'s>(_: &mut TxnState<'s, Replaying, P>, _: u32, _: &'s Record<P::RowStamp>) {}
}

/// Replay of calls that were logged before their run: a call ends as it did then, with an abort if
/// the call was aborted. So replay repeats the checks for too long keys and for slots not stated.
pub(crate) struct ReplayingCalls;

impl<P: LoggingProtocol> ConcurrencyControl<P> for ReplayingCalls {
    type Row = P::RowStamp;
    type Txn<'s> = ();
    type Lock = WaitsForLock;
    const INSERTED_WORD: u64 = word::ABSENT;

    #[inline(always)]
    fn stamp(row: &P::RowStamp) -> &P::RowStamp {
        row
    }

    fn enter(
        &self,
        state: &mut TxnState<'_, ReplayingCalls, P>,
        touched: impl FnOnce() -> TouchedPartitions,
    ) -> Result<(), Abort> {
        let stated = state.call.stated_slots.unwrap_or(u64::MAX);
        touched().check_stated(stated).or_else(|abort| state.refuse(abort))
    }

    fn hold(&self, state: &mut TxnState<'_, ReplayingCalls, P>, slots: u64) -> Result<(), Abort> {
        let is_stated = slots & !state.call.stated_slots.unwrap_or(u64::MAX) == 0;
        if is_stated { Ok(()) } else { state.refuse(Abort::OutsidePartitions) }
    }

    #[inline]
    fn read<'s, T>(
        &self,
        _: &Engine<P>,
        _: &mut TxnState<'s, ReplayingCalls, P>,
        _: u32,
        record: &'s Record<P::RowStamp>,
        mut copy: impl FnMut() -> T,
    ) -> Result<VisibleRow<'s, T>, Abort> {
        let there = record.word.load(Ordering::Acquire) & word::ABSENT == 0;
        Ok(if there { VisibleRow::There(copy()) } else { VisibleRow::Absent })
    }

    #[inline]
    fn intend<'s>(
        &self,
        _: &Engine<P>,
        _: &mut TxnState<'s, ReplayingCalls, P>,
        _: u32,
        record: &'s Record<P::RowStamp>,
    ) -> Result<bool, Abort> {
        Ok(record.word.load(Ordering::Acquire) & word::ABSENT == 0)
    }

    fn saw_gap<'s>(
        &self,
        _: &Engine<P>,
        _: &mut TxnState<'s, Self, P>,
        _: Gap<'s, P::RowStamp>,
    ) -> Result<(), Abort> {
        Ok(())
    }

    /// Gaps have no stamps, and are not remembered: during the turn no other transaction inserts.
    fn entered_gap<'s>(
        _: &Engine<P>,
        _: &mut TxnState<'s, Self, P>,
        _: Result<GapChange<'s, P::RowStamp>, Gap<'s, P::RowStamp>>,
        _: Option<&Record<P::RowStamp>>,
    ) {
    }

    fn inserted<'s>(_: &mut TxnState<'s, ReplayingCalls, P>, _: u32, _: &'s Record<P::RowStamp>) {}
}

/// Replay waits for the lock of a row.
pub(crate) struct WaitsForLock;

impl<S> RecordLock<S> for WaitsForLock {
    const INSERTED: u32 = <LockBit as RecordLock<S>>::INSERTED;

    fn try_lock(record: &Record<S>) -> Option<u64> {
        lock(record)
    }

    fn unlock(record: &Record<S>, version: u64, dead: bool) {
        LockBit::unlock(record, version, dead);
    }

    fn unmark_dead(record: &Record<S>, version: u64) {
        LockBit::unmark_dead(record, version);
    }
}

/// Waits while another thread holds the lock: replay holds locks briefly, and never takes a second
/// lock. Returns `None` only if the record is dead.
fn lock<S>(record: &Record<S>) -> Option<u64> {
    let mut looks = 0u32;
    loop {
        let version = record.word.load(Ordering::Acquire);
        if version & word::DEAD != 0 {
            return None;
        }
        if version & word::LOCKED == 0 && record.try_lock(version) {
            return Some(version);
        }
        looks += 1;
        if looks.is_multiple_of(64) {
            // The holder may have been descheduled.
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

/// A row's lock. The drop stores `version` and unlocks, even if the holder panics: threads waiting
/// for the lock check nothing else, so they learn of the panic only once they have the lock.
pub(crate) struct RowLock<'r, S> {
    record: &'r Record<S>,
    /// The version word to store at release.
    pub version: u64,
}

impl<'r, S> RowLock<'r, S> {
    /// Waits for the row's lock. Returns `None` only if the record is dead.
    #[inline]
    pub fn take(record: &'r Record<S>) -> Option<Self> {
        let version = lock(record)?;
        Some(RowLock { record, version })
    }
}

impl<S> Drop for RowLock<'_, S> {
    #[inline]
    fn drop(&mut self) {
        self.record.unlock(self.version);
    }
}

/// Why a command cannot be replayed.
const CONFLICT: &str = "had a conflict, which cannot occur at replay";

/// Installs the writes of a replayed command as version `tid` of the rows.
///
/// # Errors
/// The fault, as a predicate of the procedure.
pub(crate) fn install<P: LoggingProtocol>(
    engine: &Engine<P>,
    state: &mut TxnState<'_, Replaying, P>,
    tid: Tid,
) -> Result<(), &'static str> {
    match state.control {
        Some(EarlierVersions::Listed(listed)) => {
            return install_versions(engine, state, tid, listed);
        }
        Some(EarlierVersions::AsOf(versions, as_of)) => {
            return install_over_versions(engine, state, tid, (versions, as_of));
        }
        None => install_in_place(engine, state, tid),
    }
    Ok(())
}

/// Installs the writes of a replayed command or call, on rows of one version.
pub(crate) fn install_in_place<C: ConcurrencyControl<P>, P: LoggingProtocol>(
    engine: &Engine<P, C::Row>,
    state: &mut TxnState<'_, C, P>,
    tid: Tid,
) {
    // Of a follower the state before may be read meanwhile. No other thread writes the row.
    let is_read = engine.snapshots.are_below(tid);
    let lock = |record: &Record<C::Row>| {
        if is_read {
            record.lock_in_turn();
        }
    };
    steps::install(engine, state, tid, lock, |record, version| {
        record.word.store(version, Ordering::Release)
    });
}

/// Installs the writes of a replayed command, and keeps the overwritten versions while a record to
/// come may read them. All earlier writers of the rows were replayed before.
fn install_over_versions<P: LoggingProtocol>(
    engine: &Engine<P>,
    state: &mut TxnState<'_, Replaying, P>,
    tid: Tid,
    (versions, as_of): (&OldVersions, Tid),
) -> Result<(), &'static str> {
    for write in final_writes(&state.writes) {
        let (table, record) = (&engine.tables[write.table as usize], write.record);
        // No record becomes dead while commands run.
        let mut row = RowLock::take(record).ok_or(CONFLICT)?;
        // The first writer wins: no writer has come between the read timestamp and the TID of the
        // command.
        if word::tid(row.version) > as_of || word::tid(row.version) == tid {
            return Err("wrote a row of which there is a later version than it could read");
        }
        let changed = write.changed_bytes(table);
        let (seen, writer) = (row.version, &mut state.workspace.old_versions);
        keep_for_records(versions, (record, seen), tid, changed.as_deref(), (writer, state.guard))?;
        let there = write.install(
            (table, seen),
            &state.workspace.usage,
            state.guard,
            &mut state.workspace.scratch,
        );
        row.version = word::of(tid) | if there { 0 } else { word::ABSENT };
    }
    Ok(())
}

/// Keeps a version that transaction `tid` overwrites, if a record to come may read it. The caller
/// has the row's lock.
pub(crate) fn keep_for_records<S>(
    versions: &OldVersions,
    (record, seen): (&Record<S>, u64),
    end: Tid,
    changed: Option<&[Range<usize>]>,
    (writer, guard): (&mut OldVersionWriter, &Guard),
) -> Result<(), &'static str> {
    let lowest = versions.floor();
    if end <= lowest || word::tid(seen) == Tid::NONE {
        return Ok(());
    }
    let overwritten = Overwritten { record, seen, end, lowest };
    match versions.keep(writer, &overwritten, changed, guard) {
        true => Ok(()),
        false => Err(TOO_MANY),
    }
}

/// Installs the writes of a replayed command beside older versions of their rows.
fn install_versions<P: LoggingProtocol>(
    engine: &Engine<P>,
    state: &mut TxnState<'_, Replaying, P>,
    tid: Tid,
    listed: ListedVersions<'_>,
) -> Result<(), &'static str> {
    for write in final_writes(&state.writes) {
        let (table, record) = (&engine.tables[write.table as usize], write.record);
        // No record becomes dead while commands run.
        let mut row = RowLock::take(record).ok_or(CONFLICT)?;
        if tid <= word::tid(row.version) {
            drop(row);
            let how = (&mut state.workspace.old_versions, state.arena, state.guard);
            insert_late_version((table, write), tid, listed, how)?;
            continue;
        }
        // A version that is not an image has the index entries of its successor.
        let is_indexed =
            matches!(write.pending, Pending::Delta(set, _) if set & table.indexed != 0);
        let changed = if is_indexed { None } else { write.changed_bytes(table) };
        let how = (changed.as_deref(), state.guard);
        keep_listed(
            listed.versions,
            (record, row.version),
            tid,
            &mut state.workspace.old_versions,
            how,
        )?;
        let there = write.install(
            (table, row.version),
            &state.workspace.usage,
            state.guard,
            &mut state.workspace.scratch,
        );
        row.version = word::of(tid) | if there { 0 } else { word::ABSENT };
    }
    Ok(())
}

/// The fault of a replay with more row versions than memory is numbered for.
pub(crate) const TOO_MANY: &str = "needs more versions of rows than there can be at once";

/// Keeps a version that transaction `tid` overwrites, at a replay along lists of predecessors. The
/// caller has the row's lock.
pub(crate) fn keep_listed<S>(
    versions: &OldVersions,
    (record, seen): (&Record<S>, u64),
    tid: Tid,
    writer: &mut OldVersionWriter,
    (changed, guard): (Option<&[Range<usize>]>, &Guard),
) -> Result<(), &'static str> {
    // Chunks are freed only once no record to come reads their versions.
    let overwritten = Overwritten { record, seen, end: tid, lowest: Tid::NONE };
    if versions.keep(writer, &overwritten, changed, guard) { Ok(()) } else { Err(TOO_MANY) }
}

/// Keeps a write of a replayed command of which the row has a newer version already: a blind write
/// that did not wait, because a version between the two was lost.
#[cold]
fn insert_late_version<'s, S: Stamp>(
    (table, write): (&TableData<S>, &Write<'s, S>),
    tid: Tid,
    listed: ListedVersions<'s>,
    (writer, arena, guard): (&mut OldVersionWriter, &'s Bump, &Guard),
) -> Result<(), &'static str> {
    let record = write.record;
    let mut changed = Vec::new();
    let row = match write.pending {
        Pending::Put(row) => Some(row),
        Pending::Delete => None,
        Pending::Delta(_, delta) => {
            let versions = EarlierVersions::Listed(listed);
            let base = versions.read_whole(table, record, arena, guard);
            changed.extend_from_slice(base.unwrap_or_default());
            apply_delta(&table.layout, &mut changed, delta).map_err(|_| CONFLICT)?;
            Some(&changed[..])
        }
    };
    let row = row.map(|row| table.record_bytes(row));
    let late = LateVersion { tid, row: row.as_deref() };
    let lock = RowLock::take(record).ok_or(CONFLICT)?;
    let place = (record, lock.version);
    if listed.versions.insert(writer, place, &late, guard) { Ok(()) } else { Err(TOO_MANY) }
}
