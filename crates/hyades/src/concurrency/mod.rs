//! Concurrency control: keeps transactions serializable, and decides when they get their position
//! in the log.
//!
//! The logging protocols rely on three invariants, which every file here has to keep:
//!
//! - **Observe under protection.** A row's stamp is read while the row is locked, or within the
//!   window that validation covers; where rows may be valid in the past, within that of the read.
//! - **Append before publish.** The transaction's frame is reserved, so that its LSN is known,
//!   before any row gets its stamp. A command is reserved before it validates: from then on every
//!   later writer of a row that it read either sees the raised read stamp or makes its validation
//!   fail (docs/protocols/taurus.md, E4), or finds that it is late, which no command may be; unless
//!   replay keeps several versions, on which late commands run.
//! - **Publish before release.** Rows get the stamp before their lock is released.
//!
//! The order of a commit: lock the write set; fold its stamps and those of the rows read; read the
//! epoch; [command: append, raise read stamps]; validate; [otherwise append]; fill; install;
//! publish; release.

pub(crate) mod earlier;
pub(crate) mod hekaton;
mod known;
mod locks;
pub(crate) mod no_wait;
mod optimistic;
pub(crate) mod partitioned;
pub(crate) mod replaying;
pub(crate) mod silo;
pub(crate) mod snapshot_reads;
pub(crate) mod state;
pub(crate) mod steps;
pub(crate) mod tictoc;
pub(crate) mod timestamp_order;
pub(crate) mod timestamps;

use crate::engine::Engine;
use crate::error::{Abort, Error};
use crate::logging::{LoggingProtocol, Needs, RowTimes};
use crate::storage::gap::Gap;
use crate::storage::old_versions::OldVersion;
use crate::storage::partition::TouchedPartitions;
use crate::storage::record::{Record, WRITER, word};
use crate::storage::table::TableData;
use crate::storage::tid::Tid;
use state::TxnState;
use steps::{Commit, Committed};

/// What a transaction sees of a row.
pub(crate) enum VisibleRow<'s, T> {
    /// The row in place: a copy of the wanted columns.
    There(T),
    /// An older version, all of it, with its key.
    Whole(&'s [u8]),
    /// An older version, all of it, as a record has it.
    Older(&'s [u8]),
    Absent,
}

impl<'s, T> From<OldVersion<'s>> for VisibleRow<'s, T> {
    fn from(version: OldVersion<'s>) -> Self {
        match version {
            OldVersion::Row(row) => VisibleRow::Older(row),
            OldVersion::Absent => VisibleRow::Absent,
        }
    }
}

/// A concurrency control: how a transaction reads, writes, validates and commits, under a protocol.
pub(crate) trait ConcurrencyControl<P: LoggingProtocol>:
    Send + Sync + Sized + 'static
{
    /// What it keeps of a running transaction, beside what all concurrency controls keep.
    type Txn<'s>: Default;
    /// Whether a row is locked by its lock word, and not by a bit of its version word.
    const USES_LOCK_WORD: bool = false;
    /// Initial version word of a record that a transaction inserts under a new key.
    const INSERTED_WORD: u64;
    /// Its initial lock word: where that is used, the record is locked.
    const INSERTED_LOCK: u32 = if Self::USES_LOCK_WORD { WRITER } else { 0 };
    /// Whether keys over the size limit are refused. False at replay, since old logs may hold them.
    const LIMITS_KEYS: bool = true;
    /// Whether transactions read a snapshot: they write nothing, and remember nothing of what they
    /// have read.
    const READS_SNAPSHOT: bool = false;
    /// Whether the transactions of a partition run one after the other. Then rows and gaps have no
    /// stamps, and gaps are not remembered.
    const TAKES_TURNS: bool = false;

    /// Called before an access, with the partitions that it touches, if transactions take turns.
    /// Returns once the transaction holds them.
    fn enter(
        _: &Engine<P>,
        _: &mut TxnState<'_, Self, P>,
        _: TouchedPartitions,
    ) -> Result<(), Abort> {
        Ok(())
    }

    /// Holds the partitions of these slots, which the transaction has stated that it will access.
    fn hold(_: &Engine<P>, _: &mut TxnState<'_, Self, P>, _slots: u64) -> Result<(), Abort> {
        Ok(())
    }

    /// Reads a row. `copy` copies the wanted columns of the row in place, and may be called more
    /// than once.
    fn read<'s, T>(
        engine: &Engine<P>,
        state: &mut TxnState<'s, Self, P>,
        table: u32,
        record: &'s Record<P::RowStamp>,
        copy: impl FnMut() -> T,
    ) -> Result<VisibleRow<'s, T>, Abort>;

    /// Prepares a write that depends on the row's content. Returns whether the row exists.
    fn intend<'s>(
        engine: &Engine<P>,
        state: &mut TxnState<'s, Self, P>,
        table: u32,
        record: &'s Record<P::RowStamp>,
    ) -> Result<bool, Abort>;

    /// Prepares a blind write: the transaction does not observe whether the row exists.
    fn intend_blindly<'s>(
        engine: &Engine<P>,
        state: &mut TxnState<'s, Self, P>,
        table: u32,
        record: &'s Record<P::RowStamp>,
    ) -> Result<(), Abort> {
        Self::intend(engine, state, table, record).map(drop)
    }

    /// Copies the row, of which the transaction has changed columns, as it was before that.
    fn read_base<'s>(
        _: &TxnState<'s, Self, P>,
        table: &TableData<P::RowStamp>,
        record: &'s Record<P::RowStamp>,
        to: &mut Vec<u8>,
    ) {
        table.read_row(record, to);
    }

    /// Called when the transaction is about to look whether a key of a unique index is free.
    fn checks_uniqueness(_: &mut TxnState<'_, Self, P>) {}

    /// Whether nothing is kept any more for a transaction that reads a snapshot.
    #[inline(always)]
    fn has_ended(_: &TxnState<'_, Self, P>) -> bool {
        false
    }

    /// What the transaction reads as of, if that is not the present.
    fn reads_as_of(_: &TxnState<'_, Self, P>) -> Tid {
        Tid::NONE
    }

    /// Called when the transaction has found that a gap has no key that it seeks, and has observed
    /// the gap's stamp.
    fn saw_gap<'s>(
        _: &Engine<P>,
        state: &mut TxnState<'s, Self, P>,
        gap: Gap<'s, P::RowStamp>,
    ) -> Result<(), Abort> {
        state.gaps.push(gap);
        Ok(())
    }

    /// Called after a record inserted by this transaction has inherited the stamp of its gap.
    fn inserted<'s>(state: &mut TxnState<'s, Self, P>, table: u32, record: &'s Record<P::RowStamp>);

    /// Whether everything the transaction has read is still current. An early check while the
    /// transaction runs, to stop bodies that work on inconsistent rows; commit validates anyway.
    fn is_current(_: &TxnState<'_, Self, P>) -> bool {
        true
    }

    /// Locks one record outside any transaction, if it is neither locked nor dead. Returns its
    /// version word.
    fn try_lock_record(record: &Record<P::RowStamp>) -> Option<u64> {
        if Self::USES_LOCK_WORD {
            locks::try_lock_record(record)
        } else {
            optimistic::try_lock_record(record)
        }
    }

    /// Ends [`ConcurrencyControl::try_lock_record`], and marks the record dead if `dead` is true.
    fn unlock_record(record: &Record<P::RowStamp>, version: u64, dead: bool) {
        if Self::USES_LOCK_WORD {
            locks::unlock_record(record, version, dead);
        } else {
            record.unlock(version | if dead { word::DEAD } else { 0 });
        }
    }

    /// Clears the dead mark. Only the thread that set it may call this.
    fn unmark_dead(record: &Record<P::RowStamp>, version: u64) {
        if Self::USES_LOCK_WORD {
            locks::unmark_dead(record, version);
        } else {
            record.unlock(version);
        }
    }
}

/// A concurrency control that commits transactions: all but replay, which installs what the log
/// says.
pub(crate) trait Commits<P: LoggingProtocol>: ConcurrencyControl<P> {
    /// Whether sessions have slots that state what their transactions read as of.
    const HAS_SLOTS: bool = false;
    /// Whether transactions have their timestamps from the beginning. One that writes conflicts if
    /// a snapshot or a checkpoint is begun while it runs.
    const DRAWS_AT_BEGIN: bool = false;
    /// What rows keep under a protocol whose rows have timestamps.
    const TIMES: RowTimes = RowTimes::Intervals;

    /// Adds what a session needs; returns its number, 0 if it needs nothing.
    fn add_session(engine: &Engine<P>) -> Result<u32, Error> {
        if Self::HAS_SLOTS { engine.snapshots.active.add() } else { Ok(0) }
    }

    /// Removes the session with this number.
    fn remove_session(engine: &Engine<P>, number: u32) {
        if Self::HAS_SLOTS {
            engine.snapshots.active.remove(number);
        }
    }

    /// Whether a transaction that has met a conflict, and written nothing, needs most of all rows
    /// that there are: then it reads a snapshot.
    fn reads_many(_: &Engine<P>, _: &TxnState<'_, Self, P>) -> bool {
        false
    }

    /// Forgets what a session's attempts have found out: its transaction has ended otherwise.
    fn forget_attempts(_: &Engine<P>, _session: u32) {}

    /// Called before a transaction begins, while it holds and pins nothing: waits for what the
    /// session's last attempt has found out that it needs. False if that is not to be had: then
    /// nothing is held, and the transaction has met a conflict.
    #[inline(always)]
    fn await_turns(_: &Engine<P>, _session: u32, _may_wait: bool) -> bool {
        true
    }

    /// A thread has panicked while it held what it will never release: ends all waiting for it.
    fn stop(_: &Engine<P>) {}

    /// Returns an error once it was stopped. Asked where there is no log, which would say so.
    fn check_stopped(_: &Engine<P>) -> Result<(), Error> {
        Ok(())
    }

    /// Begins a transaction, in its session's slot if there are any. `may_wait`: whether it may
    /// wait for its turn. Not if it must not wait at all, or if its thread is in the middle of
    /// another transaction, for which others may wait.
    #[inline(always)]
    fn begin(_: &Engine<P>, _: &mut TxnState<'_, Self, P>, _slot: u32, _may_wait: bool) {}

    /// Installs what a call has written that was logged before it runs.
    fn install_arrived(_: &Engine<P>, _: &mut TxnState<'_, Self, P>, _: Tid) {
        unreachable!("only transactions that take turns are logged before they run");
    }

    /// Releases rows that such a call has locked; it keeps its turn.
    fn release_rows(_: &mut TxnState<'_, Self, P>) {}

    /// Commits the transaction, in the order of the scheme's paper.
    fn commit<'s>(
        engine: &Engine<P>,
        state: &mut TxnState<'s, Self, P>,
        commit: Commit<'_>,
    ) -> Result<Committed, Abort>;

    /// Ends a transaction whose abort the caller will see. Validates it like a read-only one, and
    /// returns what the frontier has to reach before the caller is answered.
    fn abandon<'s>(engine: &Engine<P>, state: &mut TxnState<'s, Self, P>) -> Result<Needs, Abort>;

    /// Releases what the transaction holds, after it has committed or failed.
    fn release(engine: &Engine<P>, state: &mut TxnState<'_, Self, P>);
}
