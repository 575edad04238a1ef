//! Common parts of the optimistic concurrency controls: rows are read without locks, and the lock
//! bit of the version word locks the write set at commit.

use super::state::TxnState;
use super::{ConcurrencyControl, RecordLock};
use crate::engine::Engine;
use crate::error::Abort;
use crate::logging::LoggingProtocol;
use crate::logging::write::Write;
use crate::storage::record::{Record, word};
use hyades_platform::phase::{self, Phase};
use std::sync::atomic::Ordering;

/// Attempts at a row that stays locked, or keeps changing, before a conflict.
pub const PATIENCE: u32 = 64;

/// Reads the version word of a row. Spins while the row is locked, at most [`PATIENCE`] times.
#[inline]
pub fn stable_word<S>(record: &Record<S>) -> Result<u64, Abort> {
    for _ in 0..PATIENCE {
        let seen = record.word.load(Ordering::Acquire);
        if seen & word::DEAD != 0 {
            return Err(Abort::Conflict);
        }
        if seen & word::LOCKED == 0 {
            return Ok(seen);
        }
        std::hint::spin_loop();
    }
    Err(Abort::Conflict)
}

/// A row is locked by a bit of its version word.
pub struct LockBit;

impl<S> RecordLock<S> for LockBit {
    const INSERTED: u32 = 0;

    fn try_lock(record: &Record<S>) -> Option<u64> {
        let version = record.word.load(Ordering::Acquire);
        (version & (word::LOCKED | word::DEAD) == 0 && record.try_lock(version)).then_some(version)
    }

    fn unlock(record: &Record<S>, version: u64, dead: bool) {
        record.unlock(version | if dead { word::DEAD } else { 0 });
    }

    fn unmark_dead(record: &Record<S>, version: u64) {
        record.unlock(version);
    }
}

/// Locks the write set and folds the stamps of the overwritten rows (docs/protocols/taurus.md, E4,
/// i). Waits for each row only for a while, so that no two transactions wait for each other for
/// ever.
#[inline(always)]
pub fn lock<C: ConcurrencyControl<P>, P: LoggingProtocol>(
    engine: &Engine<P, C::Row>,
    state: &mut TxnState<'_, C, P>,
) -> Result<(), Abort> {
    for at in 0..state.writes.len() {
        let write = &mut state.writes[at];
        if write.superseded {
            continue;
        }
        match stable_word(write.record) {
            Ok(version) if write.record.try_lock(version) => {
                write.base = word::tid(version);
                state.max_tid = state.max_tid.max(write.base);
                C::observe_write(&write.record.stamp, &mut state.control);
                let _measured = phase::enter(Phase::Tracking);
                engine.protocol.observe_write(C::stamp(&write.record.stamp), state.stamp);
            }
            _ => {
                unlock(&state.writes[..at]);
                return Err(Abort::Conflict);
            }
        }
    }
    Ok(())
}

/// Unlocks a write set that is not installed.
pub fn unlock<S>(writes: &[Write<'_, S>]) {
    for write in writes.iter().filter(|write| !write.superseded) {
        write.record.word.fetch_and(!word::LOCKED, Ordering::Release);
    }
}
