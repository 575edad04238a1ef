//! No concurrency control, for replay: the order of the log keeps conflicting transactions apart.
//! If the log orders only writers, readers use row versions.

use super::earlier::{EarlierVersions, ReadAsOf, read_as_of};
use super::optimistic::LockBit;
use super::state::TxnState;
use super::steps;
use super::{ConcurrencyControl, RecordLock, VisibleRow};
use crate::engine::Engine;
use crate::error::Abort;
use crate::logging::LoggingProtocol;
use crate::logging::versions::{Versions, View};
use crate::logging::write::{Pending, final_writes};
use crate::storage::gap::{Gap, GapChange};
use crate::storage::old_versions::{OldVersion, OldVersionWriter, OldVersions, Overwritten};
use crate::storage::partition::TouchedPartitions;
use crate::storage::record::{Record, word};
use crate::storage::row::apply_delta;
use crate::storage::table::TableData;
use crate::storage::tid::Tid;
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
        engine: &Engine<P>,
        state: &mut TxnState<'s, Replaying, P>,
        table: u32,
        record: &'s Record<P::RowStamp>,
        mut copy: impl FnMut() -> T,
    ) -> Result<VisibleRow<'s, T>, Abort> {
        match state.control {
            Some(listed @ EarlierVersions::Listed(..)) => {
                let (table, scratch) =
                    (&engine.tables[table as usize], &mut state.workspace.scratch);
                let row = listed.read(table, record, state.arena, scratch, state.guard);
                return Ok(row.map_or(VisibleRow::Absent, VisibleRow::Whole));
            }
            Some(EarlierVersions::AsOf(versions, as_of)) => {
                let to = (state.arena, state.guard);
                return Ok(match read_as_of(versions, as_of, record, to, copy) {
                    ReadAsOf::InPlace(Some(row)) => VisibleRow::There(row),
                    ReadAsOf::Older(OldVersion::Row(row)) => VisibleRow::Older(row),
                    ReadAsOf::InPlace(None) | ReadAsOf::Older(OldVersion::Absent) => {
                        VisibleRow::Absent
                    }
                });
            }
            None => {}
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
        match state.control {
            Some(EarlierVersions::Listed(versions, view)) => {
                return Ok(versions.is_there(record, view));
            }
            Some(EarlierVersions::AsOf(versions, as_of)) => {
                let to = (state.arena, state.guard);
                let found = read_as_of(versions, as_of, record, to, || ());
                return Ok(match found {
                    ReadAsOf::InPlace(there) => there.is_some(),
                    ReadAsOf::Older(version) => version != OldVersion::Absent,
                });
            }
            None => {}
        }
        Ok(record.word.load(Ordering::Acquire) & word::ABSENT == 0)
    }

    fn read_base<'s>(
        state: &TxnState<'s, Replaying, P>,
        table: &TableData<P::RowStamp>,
        record: &'s Record<P::RowStamp>,
        to: &mut Vec<u8>,
    ) {
        match state.control {
            Some(versions) => {
                let scratch = &mut Vec::new();
                let row = versions.read(table, record, state.arena, scratch, state.guard);
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

impl RecordLock for WaitsForLock {
    const INSERTED: u32 = LockBit::INSERTED;

    fn try_lock<S>(record: &Record<S>) -> Option<u64> {
        lock(record)
    }

    fn unlock<S>(record: &Record<S>, version: u64, dead: bool) {
        LockBit::unlock(record, version, dead);
    }

    fn unmark_dead<S>(record: &Record<S>, version: u64) {
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
        Some(EarlierVersions::Listed(versions, view)) => {
            return install_versions(engine, state, tid, (versions, view));
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
        false => Err("needs more versions of rows than there can be at once"),
    }
}

/// Installs the writes of a replayed command beside older versions of their rows.
fn install_versions<P: LoggingProtocol>(
    engine: &Engine<P>,
    state: &mut TxnState<'_, Replaying, P>,
    tid: Tid,
    (versions, view): (&Versions, &View),
) -> Result<(), &'static str> {
    for write in final_writes(&state.writes) {
        let (table, record) = (&engine.tables[write.table as usize], write.record);
        // No record becomes dead while commands run.
        let mut row = RowLock::take(record).ok_or(CONFLICT)?;
        if tid > word::tid(row.version) {
            versions.supersede(table, record, row.version, (view.own, tid));
            let seen = (table, row.version);
            let there = write.install(
                seen,
                &state.workspace.usage,
                state.guard,
                &mut state.workspace.scratch,
            );
            let absent = if there { 0 } else { word::ABSENT };
            row.version = word::of(tid) | absent;
            continue;
        }
        drop(row);
        match write.pending {
            Pending::Put(row) => versions.insert_older_version(record, tid, view.own, Some(row)),
            Pending::Delete => versions.insert_older_version(record, tid, view.own, None),
            Pending::Delta(_, delta) => {
                let mut row = Vec::new();
                versions.read(table, record, view, &mut row);
                apply_delta(&table.layout, &mut row, delta).map_err(|_| CONFLICT)?;
                versions.insert_older_version(record, tid, view.own, Some(&row));
            }
        }
    }
    Ok(())
}
