//! Reading a snapshot: as of an epoch, beside any writers, under every concurrency control. The
//! transaction writes nothing, never waits and has no conflicts: the whole snapshot is installed,
//! and writers keep the overwritten versions of the snapshot ([`crate::engine::snapshots`]).

use super::state::TxnState;
use super::{ConcurrencyControl, RecordLock, VisibleRow};
use crate::engine::Engine;
use crate::engine::snapshots::SnapshotState;
use crate::error::Abort;
use crate::logging::LoggingProtocol;
use crate::storage::Stamp;
use crate::storage::gap::Gap;
use crate::storage::record::{Record, word};
use std::marker::PhantomData;
use std::sync::atomic::{Ordering, fence};

/// `S`: the metadata of rows.
pub(crate) struct SnapshotReads<S>(pub PhantomData<fn() -> S>);

impl<S: Stamp, P: LoggingProtocol> ConcurrencyControl<P> for SnapshotReads<S> {
    type Row = S;
    /// The snapshot of the transaction.
    type Txn<'s> = Option<&'s SnapshotState>;
    type Lock = NeverLocked;
    // The transaction inserts nothing.
    const INSERTED_WORD: u64 = word::ABSENT;

    fn stamp(_: &S) -> &P::RowStamp {
        unreachable!("a reader of a snapshot observes no stamps");
    }

    /// The operation is refused, and not compiled. A transaction planned to read a snapshot runs
    /// again without a snapshot.
    fn in_present<'s, T>(
        state: &mut TxnState<'s, SnapshotReads<S>, P>,
        _: impl FnOnce(&mut TxnState<'s, SnapshotReads<S>, P>) -> Result<T, Abort>,
    ) -> Result<T, Abort> {
        state.is_writer = true;
        Err(Abort::ReadOnly)
    }

    #[inline(always)]
    fn beside_indexes<T>(look: impl FnOnce() -> T) -> Option<T> {
        Some(look())
    }

    #[inline(always)]
    fn own_write(_: &TxnState<'_, SnapshotReads<S>, P>, _: &Record<S>) -> Option<usize> {
        None
    }

    /// A row inserted later is absent as of the snapshot.
    #[inline(always)]
    fn saw_gap<'s>(
        &self,
        _: &Engine<P, S>,
        _: &mut TxnState<'s, SnapshotReads<S>, P>,
        _: Gap<'s, S>,
    ) -> Result<(), Abort> {
        Ok(())
    }

    /// A row in place that is unlocked, before and after the copy, is as the version word says. A
    /// locked row may be half-written, but only after its version was kept: so after the copy the
    /// read looks for the kept version, and takes the kept version if there is any.
    /// `research/model/src/snapshots/reading.rs` visits every interleaving.
    #[inline]
    fn read<'s, T>(
        &self,
        engine: &Engine<P, S>,
        state: &mut TxnState<'s, SnapshotReads<S>, P>,
        _: u32,
        record: &'s Record<S>,
        mut copy: impl FnMut() -> T,
    ) -> Result<VisibleRow<'s, T>, Abort> {
        let Some(snapshot) = state.control else { return Err(Abort::SnapshotEnded) };
        let (versions, arena, guard) = (engine.snapshots.versions(), state.arena, state.guard);
        let found = loop {
            // Before a link is followed: versions may be gone as soon as the snapshot has ended.
            if snapshot.has_ended() {
                return Err(Abort::SnapshotEnded);
            }
            let seen = record.word.load(Ordering::Acquire);
            if word::tid(seen).epoch() > snapshot.epoch {
                match versions.read(record, snapshot.last, arena, guard) {
                    Some((_, version)) => break version.into(),
                    None => continue,
                }
            }
            if seen & (word::ABSENT | word::DEAD) != 0 {
                // Dead: no snapshot holds the row; another row under the key is newer.
                break VisibleRow::Absent;
            }
            let copied = copy();
            // Orders the copy before the second look.
            fence(Ordering::Acquire);
            let mut now = record.word.load(Ordering::Relaxed);
            if (now | seen) & word::LOCKED != 0 {
                if let Some(kept) = versions.kept(record, seen, arena, guard) {
                    break kept.into();
                }
                // The version may have been kept, and a further version since: then the former is
                // no longer in place.
                fence(Ordering::Acquire);
                now = record.word.load(Ordering::Relaxed);
            }
            if now & !word::LOCKED == seen & !word::LOCKED {
                break VisibleRow::There(copied);
            }
        };
        // After its end nothing was kept for the snapshot: the row may be torn.
        if snapshot.has_ended() { Err(Abort::SnapshotEnded) } else { Ok(found) }
    }

    #[inline(always)]
    fn has_ended(state: &TxnState<'_, SnapshotReads<S>, P>) -> bool {
        state.control.is_none_or(SnapshotState::has_ended)
    }

    fn intend<'s>(
        &self,
        _: &Engine<P, S>,
        _: &mut TxnState<'s, SnapshotReads<S>, P>,
        _: u32,
        _: &'s Record<S>,
    ) -> Result<bool, Abort> {
        Err(Abort::ReadOnly)
    }

    fn inserted<'s>(_: &mut TxnState<'s, SnapshotReads<S>, P>, _: u32, _: &'s Record<S>) {
        unreachable!("a reader of a snapshot inserts nothing");
    }
}

/// A reader of a snapshot locks no row.
pub(crate) struct NeverLocked;

impl<S> RecordLock<S> for NeverLocked {
    const INSERTED: u32 = 0;

    fn try_lock(_: &Record<S>) -> Option<u64> {
        None
    }

    fn unlock(_: &Record<S>, _: u64, _: bool) {}

    fn unmark_dead(_: &Record<S>, _: u64) {}
}
