//! Concurrency control: keeps transactions serializable, and decides when a transaction gets its
//! position in the log.
//!
//! Every file here has to keep three invariants for the logging protocols:
//!
//! - **Observe under protection.** A row's stamp is read while the row is locked, or within the
//!   window of validation; where rows may be valid in the past, within the window of the read.
//! - **Append before publish.** The transaction's frame is reserved, so that the LSN is known,
//!   before any row gets its stamp. A command is reserved before validation: from then on every
//!   later writer of a row in the command's read set either sees the raised read stamp, or makes
//!   the validation of the command fail (docs/protocols/taurus.md, E4), or makes the command late.
//!   No command may be late, unless replay keeps several versions, on which late commands run.
//! - **Publish before release.** Rows get the stamp before the release of their lock.
//!
//! The order of a commit: lock the write set; fold the stamps of the write set and of the rows
//! read; read the epoch; [command: append, raise read stamps]; validate; [otherwise append]; fill;
//! install; publish; release.

pub(crate) mod earlier;
pub(crate) mod hekaton;
mod known;
pub(crate) mod locks;
pub(crate) mod no_wait;
pub(crate) mod optimistic;
pub(crate) mod partitions;
pub(crate) mod replaying;
pub(crate) mod silo;
pub(crate) mod snapshot_reads;
pub(crate) mod state;
pub(crate) mod steps;
pub(crate) mod sums;
pub(crate) mod turns;

use crate::engine::Engine;
use crate::engine::active::ActiveTransactions;
use crate::error::{Abort, Error};
use crate::logging::draft::StatedVersions;
use crate::logging::{LoggingProtocol, Needs};
use crate::storage::Stamp;
use crate::storage::gap::{Gap, GapChange, GapLocks};
use crate::storage::old_versions::OldVersion;
use crate::storage::partition::TouchedPartitions;
use crate::storage::record::Record;
use crate::storage::table::TableData;
use crate::storage::tid::Tid;
use partitions::PartitionStamps;
use state::TxnState;
use std::sync::Arc;
use steps::{Commit, Committed};

/// A row as seen by a transaction.
pub enum VisibleRow<'s, T> {
    /// The row in place: a copy of the wanted columns.
    There(T),
    /// A whole older version, in the form of a record.
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

/// The replay of commands, if the log may hold any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandReplay {
    /// The log holds no commands.
    Never,
    /// On one version of each row, in the order of the records.
    InOrder,
    /// Vectors order the writers of a row, so that several versions of the row may be kept.
    MayKeepVersions,
}

/// The settings of a database that concern concurrency controls.
pub struct ControlSettings {
    /// The number of retries of two-phase locking for a lock, before an abort.
    pub patience: u32,
    /// The number of partitions, where transactions take turns.
    pub partitions: usize,
    /// Whether a transaction may wait for another transaction. Not where a thread runs several
    /// sessions inside each other.
    pub may_wait: bool,
    /// Transactions read a snapshot and need not be serializable.
    pub snapshot_isolation: bool,
    /// Transactions read what others are about to commit, and depend on these commits.
    pub speculates: bool,
    pub commands: CommandReplay,
}

/// The state of a session at the beginning of a transaction.
#[derive(Clone, Copy)]
pub struct Beginning {
    /// Whether the transaction may wait for its turn. Not if the transaction must not wait at all,
    /// or if the thread is in the middle of another transaction, for which further transactions may
    /// wait.
    pub may_wait: bool,
    /// The stream of the session had no backlog.
    pub was_idle: bool,
}

/// A concurrency control: how a transaction reads, writes, validates and commits, under a protocol.
/// The value is the control's state shared by the transactions of a database.
pub trait ConcurrencyControl<P: LoggingProtocol>: Send + Sync + Sized + 'static {
    /// The metadata of rows and gaps: the stamp of the protocol, and the control's own part.
    type Row: Stamp;
    /// The control's own part of a running transaction, beside the part of all concurrency
    /// controls.
    type Txn<'s>;
    /// The lock of a record outside transactions.
    type Lock: RecordLock<Self::Row>;
    /// Initial version word of a record that a transaction inserts under a new key.
    const INSERTED_WORD: u64;
    /// Whether transactions read sums from the sum index, and keep the index up to date: commits
    /// take the steps of `sums`.
    const SUMS: bool = false;
    /// What becomes of a gap's lock when leaves are split and merged, where transactions lock the
    /// gaps that they see ([`ConcurrencyControl::lock_gap`]) and do not validate them.
    const GAP_LOCKS: Option<GapLocks<Self::Row>> = None;

    /// The protocol's stamp in a row or gap.
    fn stamp(row: &Self::Row) -> &P::RowStamp;

    /// Called with the protocol's hook of the same name, for the control's part of a row.
    #[inline(always)]
    fn observe_read(_: &Self::Row, _: &mut Self::Txn<'_>) {}

    /// Called with the protocol's hook of the same name, for the control's part of a row.
    #[inline(always)]
    fn observe_write(_: &Self::Row, _: &mut Self::Txn<'_>) {}

    /// Called with the protocol's hook of the same name, for the control's part of a row.
    #[inline(always)]
    fn inherit(_to: &Self::Row, _from: &Self::Row) {}

    /// Called before an access: takes turns in the touched partitions, and returns once the
    /// transaction holds them.
    #[inline(always)]
    fn enter(
        &self,
        _: &mut TxnState<'_, Self, P>,
        _: impl FnOnce() -> TouchedPartitions,
    ) -> Result<(), Abort> {
        Ok(())
    }

    /// Holds the partitions of the slots that the transaction has stated for its accesses.
    fn hold(&self, _: &mut TxnState<'_, Self, P>, _slots: u64) -> Result<(), Abort> {
        Ok(())
    }

    /// Holds the partitions stated by the procedure for its calls.
    #[inline(always)]
    fn hold_stated(
        &self,
        _: &mut TxnState<'_, Self, P>,
        _slots: impl FnOnce() -> Result<u64, Abort>,
    ) -> Result<(), Abort> {
        Ok(())
    }

    /// Runs an operation of the present: a write, or a question for the version of a row.
    #[inline(always)]
    fn in_present<'s, T>(
        state: &mut TxnState<'s, Self, P>,
        run: impl FnOnce(&mut TxnState<'s, Self, P>) -> Result<T, Abort>,
    ) -> Result<T, Abort> {
        run(state)
    }

    /// Looks for rows that have left the indexes, for a reader of such rows. `None` for any other
    /// transaction.
    #[inline(always)]
    fn beside_indexes<T>(_look: impl FnOnce() -> T) -> Option<T> {
        None
    }

    /// The index in `writes` of the transaction's last write to the row.
    #[inline(always)]
    fn own_write(state: &TxnState<'_, Self, P>, record: &Record<Self::Row>) -> Option<usize> {
        state.own_write(record)
    }

    /// Called for a key over the size limit, with the reason in `abort`. Refuses the key.
    fn exceeds_key_size(abort: Abort) -> Result<(), Abort> {
        Err(abort)
    }

    /// Reads a row. `copy` copies the wanted columns of the row in place, and may be called more
    /// than once.
    fn read<'s, T>(
        &self,
        engine: &Engine<P, Self::Row>,
        state: &mut TxnState<'s, Self, P>,
        table: u32,
        record: &'s Record<Self::Row>,
        copy: impl FnMut() -> T,
    ) -> Result<VisibleRow<'s, T>, Abort>;

    /// Prepares a write that depends on the row's content. Returns whether the row exists.
    fn intend<'s>(
        &self,
        engine: &Engine<P, Self::Row>,
        state: &mut TxnState<'s, Self, P>,
        table: u32,
        record: &'s Record<Self::Row>,
    ) -> Result<bool, Abort>;

    /// Prepares a blind write: the transaction does not observe whether the row exists.
    fn intend_blindly<'s>(
        &self,
        engine: &Engine<P, Self::Row>,
        state: &mut TxnState<'s, Self, P>,
        table: u32,
        record: &'s Record<Self::Row>,
    ) -> Result<(), Abort> {
        self.intend(engine, state, table, record).map(drop)
    }

    /// Copies a row whose columns the transaction has changed, in the state before the change.
    fn read_base<'s>(
        _: &TxnState<'s, Self, P>,
        table: &TableData<Self::Row>,
        record: &'s Record<Self::Row>,
        to: &mut Vec<u8>,
    ) {
        table.read_row(record, to);
    }

    /// Called before the transaction looks whether a key of a unique index is free.
    fn checks_uniqueness(_: &mut TxnState<'_, Self, P>) {}

    /// Whether versions are no longer kept for a transaction reading a snapshot.
    #[inline(always)]
    fn has_ended(_: &TxnState<'_, Self, P>) -> bool {
        false
    }

    /// The statements in a transaction's record for a replay with several versions of rows: the
    /// timestamp of a command's reads, and the floor, if `states_floor`.
    #[inline(always)]
    fn stated_versions(
        &self,
        _: &Engine<P, Self::Row>,
        _: &TxnState<'_, Self, P>,
        _states_floor: bool,
        _command: bool,
    ) -> StatedVersions {
        StatedVersions::default()
    }

    /// Locks a gap that the transaction has observed: for reading until the end, or, if `inserts`,
    /// for writing until [`ConcurrencyControl::entered_gap`]. False if the gap has changed since
    /// the observation: the transaction looks again.
    #[inline(always)]
    fn lock_gap<'s>(
        &self,
        _: &mut TxnState<'s, Self, P>,
        _: &Gap<'s, Self::Row>,
        _inserts: bool,
    ) -> Result<bool, Abort> {
        Ok(true)
    }

    /// Called when the transaction has found no sought key in a gap: observes and remembers the
    /// gap.
    #[inline(always)]
    fn saw_gap<'s>(
        &self,
        engine: &Engine<P, Self::Row>,
        state: &mut TxnState<'s, Self, P>,
        gap: Gap<'s, Self::Row>,
    ) -> Result<(), Abort> {
        state.observe_read(&engine.protocol, gap.stamp());
        state.gaps.push(gap);
        Ok(())
    }

    /// Called when the transaction has inserted a key into a gap, for `record` or for an index
    /// entry: the record inherits the stamp of the gap, the transaction observes the stamp, and the
    /// gaps seen by the transaction are updated. With an `Err` the entry was there already, and its
    /// gap is observed.
    #[inline(always)]
    fn entered_gap<'s>(
        engine: &Engine<P, Self::Row>,
        state: &mut TxnState<'s, Self, P>,
        change: Result<GapChange<'s, Self::Row>, Gap<'s, Self::Row>>,
        record: Option<&Record<Self::Row>>,
    ) {
        match change {
            Ok(change) => {
                let (protocol, holder) = (&engine.protocol, change.holder.stamp());
                if let Some(record) = record {
                    inherit::<Self, P>(protocol, &record.stamp, holder, state.stamp);
                }
                state.observe_write(protocol, holder);
                change.update_observations(&mut state.gaps, &mut state.gap_places);
            }
            Err(gap) => state.observe_write(&engine.protocol, gap.stamp()),
        }
    }

    /// Called after a record inserted by this transaction has inherited the stamp of its gap.
    fn inserted<'s>(state: &mut TxnState<'s, Self, P>, table: u32, record: &'s Record<Self::Row>);

    /// Whether all rows and gaps read by the transaction are still current. An early check while
    /// the transaction runs, to stop bodies working on inconsistent rows; commit validates anyway.
    fn is_current(_: &TxnState<'_, Self, P>) -> bool {
        true
    }
}

/// Raises the metadata of row or gap `to` to at least the metadata of `from`: the hook of the
/// protocol and of the concurrency control.
#[inline(always)]
pub(crate) fn inherit<C: ConcurrencyControl<P>, P: LoggingProtocol>(
    protocol: &P,
    to: &C::Row,
    from: &C::Row,
    txn: &mut P::TxnStamp,
) {
    C::inherit(to, from);
    protocol.inherit(C::stamp(to), C::stamp(from), txn);
}

/// The lock of a record outside transactions: for garbage collection.
pub trait RecordLock<S> {
    /// Initial lock word of a record that a transaction inserts under a new key.
    const INSERTED: u32;
    /// Locks a record that is neither locked nor dead. Returns the version word.
    fn try_lock(record: &Record<S>) -> Option<u64>;
    /// Unlocks the record, and marks the record dead if `dead` is true.
    fn unlock(record: &Record<S>, version: u64, dead: bool);
    /// Clears the dead mark. To be called only by the thread that set the mark.
    fn unmark_dead(record: &Record<S>, version: u64);
}

/// A concurrency control that commits transactions: all but replay, which installs the content of
/// the log.
pub trait Commits<P: LoggingProtocol>: ConcurrencyControl<P> {
    /// The control's state of a session between transactions.
    type Session: Send;

    /// Returns the control's state for a database that is being opened.
    fn new(settings: &ControlSettings) -> Self;

    /// The transactions that read older versions of rows; the versions are kept for them.
    fn readers(&self) -> Option<&Arc<ActiveTransactions>> {
        None
    }

    /// Whether commands are replayed on several versions of rows, as of the timestamps of their
    /// reads.
    fn replays_versions(&self) -> bool {
        false
    }

    /// Adds a session.
    fn add_session(&self) -> Result<Self::Session, Error>;

    /// Removes a session.
    fn remove_session(&self, _: &mut Self::Session) {}

    /// Whether a transaction with a conflict and without writes needs most of all rows: such a
    /// transaction then reads a snapshot.
    fn reads_many(&self, _: &TxnState<'_, Self, P>) -> bool {
        false
    }

    /// Forgets the findings of a session's attempts: the transaction has ended otherwise.
    fn forget_attempts(&self, _: &Self::Session) {}

    /// Called before a transaction begins, while nothing is held or pinned: waits for the
    /// partitions that the session's last attempt was found to need. False if the partitions are
    /// not to be had: then nothing is held, and the transaction has met a conflict.
    #[inline(always)]
    fn await_turns(&self, _: &Self::Session, _may_wait: bool) -> bool {
        true
    }

    /// Ends all waiting: a thread has panicked, and will never release its partitions.
    fn stop(&self) {}

    /// Returns an error once the control was stopped. Called where there is no log to report the
    /// error.
    fn check_stopped(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Called before an epoch is closed for a snapshot or a checkpoint, where waiting is allowed:
    /// `let_end` lets a starving transaction, which runs alone, make a few attempts.
    fn before_epoch_closes(&self, _let_end: impl FnOnce()) {}

    /// Begins a transaction of a session.
    fn begin<'s>(
        &self,
        engine: &Engine<P, Self::Row>,
        session: &'s mut Self::Session,
        beginning: Beginning,
    ) -> Self::Txn<'s>;

    /// The partitions whose transactions take turns. Calls are logged before they run only where
    /// there are partitions.
    #[inline(always)]
    fn partitions(&self) -> Option<&PartitionStamps<P::RowStamp>> {
        None
    }

    /// The seat of a session in the queues of partitions.
    fn seat(_: &Self::Session) -> u32 {
        unreachable!("only transactions that take turns have seats");
    }

    /// Begins a call logged before its run, when the turn has come.
    fn begin_arrived(&self, _seat: u32) -> Self::Txn<'_> {
        unreachable!("only transactions that take turns are logged before they run");
    }

    /// Installs the writes of a call logged before the run.
    fn install_arrived(&self, _: &Engine<P, Self::Row>, _: &mut TxnState<'_, Self, P>, _: Tid) {
        unreachable!("only transactions that take turns are logged before they run");
    }

    /// Releases the rows locked by a call logged before the run; the call keeps its turn.
    fn release_rows(_: &mut TxnState<'_, Self, P>) {}

    /// Commits the transaction, in the order of the scheme's paper.
    fn commit<'s>(
        &self,
        engine: &Engine<P, Self::Row>,
        state: &mut TxnState<'s, Self, P>,
        commit: Commit<'_>,
    ) -> Result<Committed, Abort>;

    /// Ends a transaction whose abort the caller will see. Validates the transaction like a
    /// read-only transaction, and returns the positions that the frontier has to reach before the
    /// caller's answer.
    fn abandon<'s>(
        &self,
        engine: &Engine<P, Self::Row>,
        state: &mut TxnState<'s, Self, P>,
    ) -> Result<Needs, Abort>;

    /// Releases everything held by the transaction, after commit or failure.
    fn release(&self, state: &mut TxnState<'_, Self, P>);
}
