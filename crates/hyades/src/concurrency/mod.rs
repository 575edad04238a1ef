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
pub(crate) mod locks;
pub(crate) mod no_wait;
pub(crate) mod optimistic;
pub(crate) mod partitioned;
pub(crate) mod partitions;
pub(crate) mod replaying;
pub(crate) mod silo;
pub(crate) mod snapshot_reads;
pub(crate) mod state;
pub(crate) mod steps;
pub(crate) mod tictoc;
pub(crate) mod timestamp_order;
pub(crate) mod timestamps;
pub(crate) mod turns;

use crate::engine::Engine;
use crate::engine::active::ActiveTransactions;
use crate::error::{Abort, Error};
use crate::logging::draft::StatedVersions;
use crate::logging::{LoggingProtocol, Needs};
use crate::storage::Stamp;
use crate::storage::gap::{Gap, GapChange};
use crate::storage::old_versions::OldVersion;
use crate::storage::partition::TouchedPartitions;
use crate::storage::record::Record;
use crate::storage::table::TableData;
use crate::storage::tid::Tid;
use partitions::PartitionStamps;
use state::TxnState;
use std::sync::Arc;
use steps::{Commit, Committed};

/// What a transaction sees of a row.
pub enum VisibleRow<'s, T> {
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

/// How commands are replayed, if the log may hold any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandReplay {
    /// The log holds none.
    Never,
    /// On one version of each row, in the order of the records.
    InOrder,
    /// Vectors order the writers of a row, so that several versions of the row may be kept.
    MayKeepVersions,
}

/// The settings of a database that concern concurrency controls.
pub struct ControlSettings {
    /// How often two-phase locking looks again for a lock before it aborts.
    pub patience: u32,
    /// The number of partitions, where transactions take turns.
    pub partitions: usize,
    /// Whether a transaction may wait for another one. Not where one thread runs several sessions
    /// inside each other.
    pub may_wait: bool,
    /// Transactions read a snapshot and need not be serializable.
    pub snapshot_isolation: bool,
    pub commands: CommandReplay,
}

/// What a session knows when it begins a transaction.
#[derive(Clone, Copy)]
pub struct Beginning {
    /// Whether the transaction may wait for its turn. Not if it must not wait at all, or if its
    /// thread is in the middle of another transaction, for which others may wait.
    pub may_wait: bool,
    /// The stream of the session had no backlog.
    pub was_idle: bool,
}

/// A concurrency control: how a transaction reads, writes, validates and commits, under a protocol.
/// The value is the state that the transactions of a database share for it.
pub trait ConcurrencyControl<P: LoggingProtocol>: Send + Sync + Sized + 'static {
    /// What rows and gaps keep: the stamp of the protocol, and what the control keeps beside it.
    type Row: Stamp;
    /// What it keeps of a running transaction, beside what all concurrency controls keep.
    type Txn<'s>;
    /// How one record is locked outside transactions.
    type Lock: RecordLock;
    /// Initial version word of a record that a transaction inserts under a new key.
    const INSERTED_WORD: u64;

    /// The protocol's stamp in a row or gap.
    fn stamp(row: &Self::Row) -> &P::RowStamp;

    /// Called with the protocol's hook of the same name, for what the control keeps in rows.
    #[inline(always)]
    fn observe_read(_: &Self::Row, _: &mut Self::Txn<'_>) {}

    /// Called with the protocol's hook of the same name, for what the control keeps in rows.
    #[inline(always)]
    fn observe_write(_: &Self::Row, _: &mut Self::Txn<'_>) {}

    /// Called with the protocol's hook of the same name, for what the control keeps in rows.
    #[inline(always)]
    fn inherit(_to: &Self::Row, _from: &Self::Row) {}

    /// Called before an access: takes turns in the partitions that it touches, and returns once the
    /// transaction holds these.
    #[inline(always)]
    fn enter(
        &self,
        _: &mut TxnState<'_, Self, P>,
        _: impl FnOnce() -> TouchedPartitions,
    ) -> Result<(), Abort> {
        Ok(())
    }

    /// Holds the partitions of these slots, which the transaction has stated that it will access.
    fn hold(&self, _: &mut TxnState<'_, Self, P>, _slots: u64) -> Result<(), Abort> {
        Ok(())
    }

    /// Holds the partitions that the procedure states of its calls.
    #[inline(always)]
    fn hold_stated(
        &self,
        _: &mut TxnState<'_, Self, P>,
        _slots: impl FnOnce() -> Result<u64, Abort>,
    ) -> Result<(), Abort> {
        Ok(())
    }

    /// Runs an operation that is of the present: a write, or a question for the version of a row.
    #[inline(always)]
    fn in_present<'s, T>(
        state: &mut TxnState<'s, Self, P>,
        run: impl FnOnce(&mut TxnState<'s, Self, P>) -> Result<T, Abort>,
    ) -> Result<T, Abort> {
        run(state)
    }

    /// Looks where rows are kept that have left the indexes, for a transaction that reads them
    /// there. `None` if it does not.
    #[inline(always)]
    fn beside_indexes<T>(_look: impl FnOnce() -> T) -> Option<T> {
        None
    }

    /// The index in `writes` of what the transaction has written to this row last.
    #[inline(always)]
    fn own_write(state: &TxnState<'_, Self, P>, record: &Record<Self::Row>) -> Option<usize> {
        state.own_write(record)
    }

    /// Called for a key over the limit of its size, which `abort` says. Refuses it.
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

    /// Copies the row, of which the transaction has changed columns, as it was before that.
    fn read_base<'s>(
        _: &TxnState<'s, Self, P>,
        table: &TableData<Self::Row>,
        record: &'s Record<Self::Row>,
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

    /// What the record of a transaction states for a replay that keeps several versions of rows: as
    /// of what a command has read, and the floor, if `states_floor`.
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

    /// Called when the transaction has found that a gap has no key that it seeks: observes the gap,
    /// and remembers the gap.
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

    /// Called when the transaction has inserted a key into a gap, that of `record` or of an index
    /// entry: the record inherits the stamp of the gap, the transaction observes it, and the gaps
    /// that the transaction saw are updated. Or a gap is observed whose entry was there already.
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

    /// Whether everything the transaction has read is still current. An early check while the
    /// transaction runs, to stop bodies that work on inconsistent rows; commit validates anyway.
    fn is_current(_: &TxnState<'_, Self, P>) -> bool {
        true
    }
}

/// Raises what row or gap `to` keeps to at least what `from` keeps: the hook of the protocol and of
/// the concurrency control.
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

/// How one record is locked outside transactions: for garbage collection.
pub trait RecordLock {
    /// Initial lock word of a record that a transaction inserts under a new key.
    const INSERTED: u32;
    /// Locks a record, if it is neither locked nor dead. Returns its version word.
    fn try_lock<S>(record: &Record<S>) -> Option<u64>;
    /// Unlocks it, and marks it dead if `dead` is true.
    fn unlock<S>(record: &Record<S>, version: u64, dead: bool);
    /// Clears the dead mark. Only the thread that set it may call this.
    fn unmark_dead<S>(record: &Record<S>, version: u64);
}

/// A concurrency control that commits transactions: all but replay, which installs what the log
/// says.
pub trait Commits<P: LoggingProtocol>: ConcurrencyControl<P> {
    /// What it keeps of a session between its transactions.
    type Session: Send;

    /// Its state in a database that is being opened.
    fn new(settings: &ControlSettings) -> Self;

    /// Its transactions that read older versions of rows, which are kept for them.
    fn readers(&self) -> Option<&Arc<ActiveTransactions>> {
        None
    }

    /// Whether commands are replayed on several versions of rows, as of the timestamps that they
    /// read.
    fn replays_versions(&self) -> bool {
        false
    }

    /// Adds a session.
    fn add_session(&self) -> Result<Self::Session, Error>;

    /// Removes a session.
    fn remove_session(&self, _: &mut Self::Session) {}

    /// Whether a transaction that has met a conflict, and written nothing, needs most of all rows
    /// that there are: then it reads a snapshot.
    fn reads_many(&self, _: &TxnState<'_, Self, P>) -> bool {
        false
    }

    /// Forgets what a session's attempts have found out: its transaction has ended otherwise.
    fn forget_attempts(&self, _: &Self::Session) {}

    /// Called before a transaction begins, while it holds and pins nothing: waits for what the
    /// session's last attempt has found out that it needs. False if that is not to be had: then
    /// nothing is held, and the transaction has met a conflict.
    #[inline(always)]
    fn await_turns(&self, _: &Self::Session, _may_wait: bool) -> bool {
        true
    }

    /// A thread has panicked while it held what it will never release: ends all waiting for it.
    fn stop(&self) {}

    /// Returns an error once it was stopped. Asked where there is no log, which would say so.
    fn check_stopped(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Called before an epoch is closed, for a snapshot or a checkpoint, where that may be waited
    /// for: `let_end` lets a transaction that runs alone, because it starves, make a few attempts.
    fn before_epoch_closes(&self, _let_end: impl FnOnce()) {}

    /// Begins a transaction of a session.
    fn begin<'s>(
        &self,
        engine: &Engine<P, Self::Row>,
        session: &'s mut Self::Session,
        beginning: Beginning,
    ) -> Self::Txn<'s>;

    /// The partitions whose transactions take turns. Calls are logged before they run only where
    /// there are some.
    #[inline(always)]
    fn partitions(&self) -> Option<&PartitionStamps<P::RowStamp>> {
        None
    }

    /// The seat of a session in the queues of partitions.
    fn seat(_: &Self::Session) -> u32 {
        unreachable!("only transactions that take turns have seats");
    }

    /// Begins a call that was logged before it runs, and has its turn.
    fn begin_arrived(&self, _seat: u32) -> Self::Txn<'_> {
        unreachable!("only transactions that take turns are logged before they run");
    }

    /// Installs what such a call has written.
    fn install_arrived(&self, _: &Engine<P, Self::Row>, _: &mut TxnState<'_, Self, P>, _: Tid) {
        unreachable!("only transactions that take turns are logged before they run");
    }

    /// Releases rows that such a call has locked; it keeps its turn.
    fn release_rows(_: &mut TxnState<'_, Self, P>) {}

    /// Commits the transaction, in the order of the scheme's paper.
    fn commit<'s>(
        &self,
        engine: &Engine<P, Self::Row>,
        state: &mut TxnState<'s, Self, P>,
        commit: Commit<'_>,
    ) -> Result<Committed, Abort>;

    /// Ends a transaction whose abort the caller will see. Validates it like a read-only one, and
    /// returns what the frontier has to reach before the caller is answered.
    fn abandon<'s>(
        &self,
        engine: &Engine<P, Self::Row>,
        state: &mut TxnState<'s, Self, P>,
    ) -> Result<Needs, Abort>;

    /// Releases what the transaction holds, after it has committed or failed.
    fn release(&self, state: &mut TxnState<'_, Self, P>);
}
