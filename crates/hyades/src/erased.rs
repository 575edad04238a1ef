//! Type-erased engine and session: used by the public API, for any pair of concurrency control and
//! logging protocol.

use crate::checkpoint::keeper::Checkpointed;
use crate::concurrency::turns::TurnListener;
#[cfg(feature = "replication")]
use crate::engine::closed_epochs::{ClosedEpochs, CutMark};
use crate::engine::snapshots::{SnapshotState, Snapshots};
use crate::error::{Abort, Error};
use crate::logging::determinism::{Determinism, Drawn};
use crate::logging::draft::{ArrivedPlace, Call};
use crate::logging::record::RecordKind;
use crate::logging::{HotRows, Needs};
use crate::storage::row::Row;
use crate::storage::schema::Columns;
use crate::storage::table::WalkPosition;
use crate::storage::usage::TableStats;
use crate::tally::SessionCounts;
use crate::transaction::access::{Access, Table, Transaction};
use hyades_platform::active_epochs::EpochSlot;
use hyades_platform::epoch::{Epoch, EpochNumber};
use hyades_wal::Lsn;
use std::sync::Arc;

/// An engine of a supported pair.
pub(crate) trait AnyEngine: Checkpointed {
    fn session(&self) -> Result<Box<dyn AnySession>, Error>;
    fn digest(&self) -> u64;
    fn rows(&self) -> u64;
    /// Returns the contents of the tables, as counted by the writers.
    fn tables(&self) -> Vec<TableStats>;
    /// Returns the same counts, found by visiting every row.
    #[cfg(feature = "research")]
    fn recount(&self) -> Vec<TableStats>;
    /// Returns the counts of the protocol for recently used rows.
    fn hot_rows(&self) -> HotRows;
    /// Bytes of the sum indexes in memory.
    fn sum_index_bytes(&self) -> u64;
    /// Returns the counters of all sessions.
    fn counts(&self) -> SessionCounts;
    /// Opens a snapshot. [`AnyEngine::close_snapshot`] closes it.
    /// # Errors
    /// As of [`AnyEngine::check_outside`]; as of the log, if the log stops while the opening waits
    /// at the limit of epochs.
    fn open_snapshot(&self) -> Result<Arc<SnapshotState>, Error>;
    /// The epochs of the engine.
    fn epoch(&self) -> &Epoch;
    /// Refuses an operation that would wait for logged calls that have not run, on a thread that
    /// runs a transaction: the transaction may be one of the calls, or the calls may wait for it.
    ///
    /// # Errors
    /// [`Error::Misuse`]; `what` names the operation.
    fn check_outside(&self, what: &str) -> Result<(), Error>;
    /// Whether the calling thread runs a transaction of this engine. Never in a simulation, where
    /// one thread runs several at once.
    fn is_inside(&self) -> bool;
    fn close_snapshot(&self, snapshot: &Arc<SnapshotState>);
    fn snapshots(&self) -> &Snapshots;
    /// Ends an epoch for a cut mark, or looks again at the ended epoch; `None` while commits of the
    /// epoch are under way.
    #[cfg(feature = "replication")]
    fn close_epoch(&self, closing: &mut ClosedEpochs) -> Option<CutMark>;
    /// Makes a cut mark together with a snapshot of the mark's epoch. Waits for commits.
    #[cfg(feature = "replication")]
    fn mark_with_snapshot(&self) -> Result<(CutMark, Arc<SnapshotState>), Error>;
    /// Whether calls are logged before they run, and only calls are logged.
    fn logs_first(&self) -> bool;
    /// For an engine that logs calls first: sets the listener for the seat of each posted call that
    /// may run, and for 0 once no call may run any more.
    fn on_ready(&self, ready: Box<TurnListener>);
    /// For an engine that logs calls first: adds the seat of a posted call, with its epoch slot.
    fn add_seat(&self) -> Result<(u32, Arc<EpochSlot>), Error>;
    fn remove_seat(&self, seat: (u32, Arc<EpochSlot>));
    /// A posted call that has arrived may run once its turn has come.
    fn let_run(&self, seat: u32);
}

/// A call that was logged and has not run.
pub(crate) struct Arrived {
    /// The call's place in the queues.
    pub seat: u32,
    /// The epoch slot entered until the call has run; the slot of the session if `None`, as for all
    /// calls that are not posted.
    pub slot: Option<Arc<EpochSlot>>,
    /// The call's partitions, and the slots of these partitions that the call may access.
    pub set: u64,
    pub slots: u64,
    /// The number of the call's procedure in the log.
    pub procedure: u32,
    pub place: ArrivedPlace,
    pub determinism: Determinism,
    /// The number of the block of row ids stated in the call's record, if any.
    pub row_ids: Option<u64>,
    /// The positions for the frontier to reach before the call is acknowledged.
    pub needs: Needs,
}

impl Arrived {
    /// The seat of a posted call, and the call's epoch slot.
    pub fn posted_seat(self) -> (u32, Arc<EpochSlot>) {
        (self.seat, self.slot.expect("a posted call has a slot of its own"))
    }
}

/// The end of a call that was logged before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArrivedEnd {
    /// The call committed, or aborted.
    Done,
    /// The call has drawn values missing in its record, and was rolled back: to be logged anew.
    Lacks(Drawn),
}

/// How a transaction's body wants to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Commit,
    /// Undo the changes; the caller sees the outcome.
    Abandon,
}

/// The end of an attempt without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptEnd {
    /// The attempt committed, or the body abandoned it.
    Done,
    /// The attempt conflicted with another transaction; or a starving transaction runs alone.
    Conflict,
    /// The body has not run: the log, or a checkpoint, has no room for the possible writes.
    NoRoom,
}

/// The results of a transaction for the caller.
#[derive(Default)]
pub(crate) struct Answer {
    /// The positions for the frontier to reach before the transaction is acknowledged.
    pub needs: Needs,
    /// The transaction's epoch, and the stream and the end of the record, if there is a record.
    pub position: Option<(EpochNumber, usize, Lsn)>,
    /// Why a call that was logged before running has aborted, whatever the body has returned.
    pub refused: Option<Abort>,
    /// The draws stated by the record of such a call beside the arguments.
    pub draws: Drawn,
    /// Where the session keeps an order: the needs of the last transactions that may not be
    /// durable.
    pub order: Option<Needs>,
}

impl Answer {
    /// The transaction has ended, with its needs: the next transaction in the session's order
    /// follows it, and the transactions it has read from.
    #[inline]
    pub fn keep_order(&mut self) {
        if let Some(order) = &mut self.order {
            order.join(&self.needs);
        }
    }
}

/// An idle session keeps this many bytes of each buffer for the next transactions.
pub(crate) const KEPT_BYTES: usize = 32 << 10;

/// An open transaction of some engine. A drop rolls back.
pub(crate) trait AnyOpenTransaction {
    fn access(&self) -> &dyn Access;
    /// Ends the transaction.
    ///
    /// # Errors
    /// The transaction was rolled back, and has not been validated.
    fn end(self: Box<Self>, verdict: Verdict, answer: &mut Answer) -> Result<(), Abort>;
}

/// A session of some engine.
pub(crate) trait AnySession: Send {
    /// Runs `body` as a transaction until an attempt ends without a conflict.
    fn run(
        &mut self,
        call: Option<(Call<'_>, RecordKind)>,
        body: &mut dyn FnMut(&Transaction<'_>) -> Verdict,
        answer: &mut Answer,
    ) -> Result<(), Error>;
    /// Logs a call before running it, and lines the call up with the seat of a posted call. The
    /// call follows the transactions whose needs are in `order`.
    fn arrive(
        &mut self,
        call: Call<'_>,
        seat: (u32, &Arc<EpochSlot>),
        order: &mut Option<Needs>,
    ) -> Result<Arrived, Error>;
    /// Runs a posted call after its turn has come.
    fn run_arrived(
        &mut self,
        arrived: &mut Arrived,
        body: &mut dyn FnMut(&Transaction<'_>) -> Verdict,
        answer: &mut Answer,
    ) -> ArrivedEnd;
    /// Runs `body` at most once, without waiting.
    fn run_once(
        &mut self,
        body: &mut dyn FnMut(&Transaction<'_>) -> Verdict,
        answer: &mut Answer,
    ) -> Result<AttemptEnd, Error>;
    /// Begins a transaction that is ended by a call.
    ///
    /// # Errors
    /// As of [`AnySession::run`].
    fn begin(&mut self) -> Result<Box<dyn AnyOpenTransaction + '_>, Error>;
    /// Switches to the stream that is free first while the session's own is being written.
    fn leave_busy_stream(&mut self);
    /// Runs `body` once, as of a snapshot.
    ///
    /// # Errors
    /// [`Abort::SnapshotEnded`](crate::Abort::SnapshotEnded) if the snapshot was ended: the
    /// findings of the body may be wrong; [`Error::Poisoned`].
    fn read_snapshot(
        &mut self,
        snapshot: &SnapshotState,
        body: &mut dyn FnMut(&Transaction<'_>) -> Verdict,
    ) -> Result<(), Error>;
    /// Visits the next rows of a walk over a table, as of a snapshot.
    ///
    /// # Errors
    /// As of [`AnySession::read_snapshot`]: rows may be missing.
    fn walk_snapshot(
        &mut self,
        snapshot: &SnapshotState,
        source: (Table, Columns),
        at: &mut WalkPosition,
        visit: &mut dyn FnMut(&Row<'_>),
    ) -> Result<(), Error>;
    /// Called before the session may be idle for long: hands its garbage over to other sessions.
    fn hand_over_garbage(&mut self);
    /// Returns how many attempts ended in a conflict.
    fn conflicts(&self) -> u64;
    /// Whether ended transactions have left garbage that may be free by now.
    fn has_unused(&self) -> bool;
    /// Frees some of the garbage. Returns whether there was some to free.
    fn free_unused(&mut self) -> bool;
}
