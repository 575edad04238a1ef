//! Type-erased engine and session: what the public API uses, for any pair of concurrency control
//! and logging protocol.

use crate::checkpoint::keeper::Checkpointed;
use crate::concurrency::turns::TurnListener;
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
use crate::transaction::access::{Table, Transaction};
use hyades_platform::active_epochs::EpochSlot;
use hyades_platform::epoch::EpochNumber;
use hyades_wal::Lsn;
use std::sync::Arc;

/// An engine of a supported pair.
pub(crate) trait AnyEngine: Checkpointed {
    fn session(&self) -> Result<Box<dyn AnySession>, Error>;
    fn digest(&self) -> u64;
    fn rows(&self) -> u64;
    /// What the tables hold, as their writers have counted it.
    fn tables(&self) -> Vec<TableStats>;
    /// The same, counted by visiting every row.
    #[cfg(feature = "research")]
    fn recount(&self) -> Vec<TableStats>;
    /// Returns what its protocol keeps of recently used rows.
    fn hot_rows(&self) -> HotRows;
    /// Returns the counters of all its sessions.
    fn counts(&self) -> SessionCounts;
    /// Opens a snapshot. [`AnyEngine::close_snapshot`] closes it.
    /// # Errors
    /// As of [`AnyEngine::check_outside`].
    fn open_snapshot(&self) -> Result<Arc<SnapshotState>, Error>;
    /// Refuses what would wait for calls that are logged and have not run, on a thread that runs a
    /// transaction: it may be one of them, or they may wait for it.
    ///
    /// # Errors
    /// [`Error::Misuse`]; `what` names what was begun.
    fn check_outside(&self, what: &str) -> Result<(), Error>;
    /// Whether the calling thread runs a transaction of this engine. Never in a simulation, where
    /// one thread runs several at once.
    fn is_inside(&self) -> bool;
    fn close_snapshot(&self, snapshot: &Arc<SnapshotState>);
    fn snapshots(&self) -> &Snapshots;
    /// Whether calls are logged before they run, and nothing else is.
    fn logs_first(&self) -> bool;
    /// Where they are: sets what is told the seat of each posted call that may run, and 0 once none
    /// may any more.
    fn on_ready(&self, ready: Box<TurnListener>);
    /// Where they are: adds the seat of a posted call, with its epoch slot.
    fn add_seat(&self) -> Result<(u32, Arc<EpochSlot>), Error>;
    fn remove_seat(&self, seat: (u32, Arc<EpochSlot>));
    /// A posted call that has arrived may run once its turn has come.
    fn let_run(&self, seat: u32);
}

/// A call that is logged and has not run.
pub(crate) struct Arrived {
    /// Its place in the queues.
    pub seat: u32,
    /// The epoch slot in which it is entered until it has run; that of its session if `None`, as
    /// for all calls that are not posted.
    pub slot: Option<Arc<EpochSlot>>,
    /// Its partitions, and the slots of these that it may access.
    pub set: u64,
    pub slots: u64,
    /// The number of its procedure in the log.
    pub procedure: u32,
    pub place: ArrivedPlace,
    pub determinism: Determinism,
    /// The number of the block of row ids that its record states, if any.
    pub row_ids: Option<u64>,
    /// What the frontier has to reach before it is acknowledged.
    pub needs: Needs,
}

impl Arrived {
    /// The seat of a posted call, and its epoch slot.
    pub fn posted_seat(self) -> (u32, Arc<EpochSlot>) {
        (self.seat, self.slot.expect("a posted call has a slot of its own"))
    }
}

/// How a call has ended that was logged before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArrivedEnd {
    /// It committed, or aborted.
    Done,
    /// It has drawn what its record does not state, and was rolled back: it has to be logged anew.
    Lacks(Drawn),
}

/// How a transaction's body wants to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Commit,
    /// Undo the changes; the caller sees the outcome.
    Abandon,
}

/// How an attempt that does not wait has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptEnd {
    /// It committed, or the body abandoned it.
    Done,
    /// It conflicted with another transaction; or one that starves runs alone.
    Conflict,
    /// The body has not run: the log, or a checkpoint, has no room for what it might write.
    NoRoom,
}

/// What a transaction leaves to its caller.
#[derive(Default)]
pub(crate) struct Answer {
    /// What the frontier has to reach before the transaction is acknowledged.
    pub needs: Needs,
    /// The transaction's epoch, and the stream and the end of its record, if it has one.
    pub position: Option<(EpochNumber, usize, Lsn)>,
    /// Why a call that was logged before it ran has aborted, whatever its body has returned.
    pub refused: Option<Abort>,
    /// What the record of such a call states beside its arguments.
    pub draws: Drawn,
    /// Where the session keeps an order: what its last transactions need that may not be durable.
    pub order: Option<Needs>,
}

impl Answer {
    /// The transaction has ended, with what it needs: the next one in the session's order follows
    /// it, and what it has read.
    #[inline]
    pub fn keep_order(&mut self) {
        if let Some(order) = &mut self.order {
            order.join(&self.needs);
        }
    }
}

/// An idle session keeps this many bytes of each buffer for what it runs next.
pub(crate) const KEPT_BYTES: usize = 32 << 10;

/// A session of some engine.
pub(crate) trait AnySession: Send {
    /// Runs `body` as a transaction until an attempt ends without a conflict.
    fn run(
        &mut self,
        call: Option<(Call<'_>, RecordKind)>,
        body: &mut dyn FnMut(&Transaction<'_>) -> Verdict,
        answer: &mut Answer,
    ) -> Result<(), Error>;
    /// Logs a call before it runs, and lines it up with the seat of a posted one. It follows what
    /// needs `order`.
    fn arrive(
        &mut self,
        call: Call<'_>,
        seat: (u32, &Arc<EpochSlot>),
        order: &mut Option<Needs>,
    ) -> Result<Arrived, Error>;
    /// Runs a posted call whose turn has come.
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
    /// Goes on to a stream that is idle while the session's own is being written.
    fn leave_busy_stream(&mut self);
    /// Runs `body` once, as of a snapshot.
    ///
    /// # Errors
    /// [`Abort::SnapshotEnded`](crate::Abort::SnapshotEnded) if it was ended: what the body has
    /// found may be wrong; [`Error::Poisoned`].
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
    /// Whether ended transactions have left something that may be free by now.
    fn has_unused(&self) -> bool;
    /// Frees some of it. Returns whether there was some to free.
    fn free_unused(&mut self) -> bool;
}
