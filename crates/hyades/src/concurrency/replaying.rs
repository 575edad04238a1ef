//! No concurrency control, for replay: the order of the log keeps conflicting transactions apart.
//! Where it orders only writers, readers use row versions.

use super::state::TxnState;
use super::steps;
use super::{ConcurrencyControl, VisibleRow};
use crate::engine::Engine;
use crate::error::Abort;
use crate::logging::LoggingProtocol;
use crate::logging::write::{Pending, final_writes};
use crate::storage::record::{Record, word};
use crate::storage::row::apply_delta;
use crate::storage::tid::Tid;
use std::sync::atomic::Ordering;

pub(crate) struct Replaying;

impl<P: LoggingProtocol> ConcurrencyControl<P> for Replaying {
    const INSERTED_WORD: u64 = word::ABSENT;
    const INSERTED_LOCK: u32 = 0;
    const LIMITS_KEYS: bool = false;
    const READS_VERSIONS: bool = true;

    #[inline]
    fn read<'s, T>(
        _: &Engine<P>,
        _: &mut TxnState<'s, P>,
        _: u32,
        record: &'s Record<P::RowStamp>,
        mut copy: impl FnMut() -> T,
    ) -> Result<VisibleRow<'s, T>, Abort> {
        let there = record.word.load(Ordering::Acquire) & word::ABSENT == 0;
        Ok(if there { VisibleRow::There(copy()) } else { VisibleRow::Absent })
    }

    #[inline]
    fn intend<'s>(
        _: &Engine<P>,
        state: &mut TxnState<'s, P>,
        _: u32,
        record: &'s Record<P::RowStamp>,
    ) -> Result<bool, Abort> {
        if let Some((versions, view)) = state.versions {
            return Ok(versions.is_there(record, view));
        }
        Ok(record.word.load(Ordering::Acquire) & word::ABSENT == 0)
    }

    fn inserted<'s>(_: &mut TxnState<'s, P>, _: u32, _: &'s Record<P::RowStamp>) {}

    fn try_lock_record(record: &Record<P::RowStamp>) -> Option<u64> {
        lock(record)
    }
}

/// Waits while another thread holds the lock: replay holds locks briefly, and never takes a second
/// one. Returns `None` only if the record is dead.
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

/// A row's lock. Dropping it stores `version` and unlocks, even if the holder panics: threads that
/// wait for the lock check nothing else, so they learn of the panic only once they have it.
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

/// Installs the writes of a replayed command: as version `tid` of their rows.
pub(crate) fn install<P: LoggingProtocol>(
    engine: &Engine<P>,
    state: &mut TxnState<'_, P>,
    tid: Tid,
) -> Result<(), Abort> {
    if state.versions.is_some() {
        return install_versions(engine, state, tid);
    }
    steps::install(engine, state, tid, steps::already_locked, |record, version| {
        record.word.store(version, Ordering::Release)
    });
    Ok(())
}

/// Installs the writes of a replayed command beside older versions of their rows.
fn install_versions<P: LoggingProtocol>(
    engine: &Engine<P>,
    state: &mut TxnState<'_, P>,
    tid: Tid,
) -> Result<(), Abort> {
    let (versions, view) = state.versions.expect("the caller has asked");
    for write in final_writes(&state.writes) {
        let (layout, record) = (&engine.tables[write.table as usize].layout, write.record);
        // No record becomes dead while commands run.
        let mut row = RowLock::take(record).ok_or(Abort::Conflict)?;
        if tid > word::tid(row.version) {
            versions.supersede(record, row.version, view.own);
            let there = write.install(layout, state.guard, state.scratch);
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
                versions.read(record, view, &mut row);
                apply_delta(layout, &mut row, delta)?;
                versions.insert_older_version(record, tid, view.own, Some(&row));
            }
        }
    }
    Ok(())
}
