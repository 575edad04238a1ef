//! A session of a follower: each transaction reads the served state, and writes nothing.

use super::host::Following;
use crate::concurrency::snapshot_reads::SnapshotReads;
use crate::concurrency::state::{RowIds, TxnState, Workspace};
use crate::engine::RowIdBlock;
use crate::engine::snapshots::SnapshotState;
use crate::erased::{
    Answer, AnyOpenTransaction, AnySession, Arrived, ArrivedEnd, AttemptEnd, KEPT_BYTES, Verdict,
};
use crate::error::{Abort, Error};
use crate::logging::Needs;
use crate::logging::determinism::Determinism;
use crate::logging::draft::Call;
use crate::logging::record::RecordKind;
use crate::logging::unstamped::Unstamped;
use crate::retry::check_may_wait;
use crate::storage::Stamp;
use crate::storage::gathered::GatheredRows;
use crate::storage::row::Row;
use crate::storage::schema::Columns;
use crate::storage::table::WalkPosition;
use crate::storage::usage::UsageCells;
use crate::transaction::access::{Table, Transaction};
use crate::transaction::running::Running;
use bumpalo::Bump;
use hyades_platform::active_epochs::EpochSlot;
use hyades_platform::reclaim;
use std::any::Any;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// See the module.
pub(super) struct ReadingSession<S: Stamp> {
    following: Arc<Following<S>>,
    arena: Bump,
    workspace: Workspace,
    row_ids: RowIdBlock,
    /// Rows of a walk.
    gathered: GatheredRows,
}

/// A snapshot for a single transaction.
struct OpenForOne<'f, S: Stamp> {
    following: &'f Following<S>,
    snapshot: Arc<SnapshotState>,
}

impl<S: Stamp> Drop for OpenForOne<'_, S> {
    fn drop(&mut self) {
        self.following.close(&self.snapshot);
    }
}

impl<S: Stamp> ReadingSession<S> {
    pub fn new(following: Arc<Following<S>>) -> Self {
        let tables = following.replay.engine.tables.len();
        ReadingSession {
            following,
            arena: Bump::new(),
            workspace: Workspace::new(Arc::new(UsageCells::new(tables))),
            row_ids: RowIdBlock::default(),
            gathered: GatheredRows::default(),
        }
    }

    /// Runs a body as of a snapshot. Returns the body's verdict, or panic, and whether the body has
    /// tried to write.
    fn read(
        &mut self,
        snapshot: &SnapshotState,
        body: &mut dyn FnMut(&Transaction<'_>) -> Verdict,
    ) -> (Result<Verdict, Box<dyn Any + Send>>, bool) {
        self.as_of(snapshot, |running| {
            let verdict = catch_unwind(AssertUnwindSafe(|| body(&Transaction(running))));
            (verdict, running.state().is_writer)
        })
    }

    /// Begins a transaction that reads a snapshot, for `run`.
    fn as_of<R>(
        &mut self,
        snapshot: &SnapshotState,
        run: impl FnOnce(&mut Running<'_, SnapshotReads<S>, Unstamped<S>>) -> R,
    ) -> R {
        let (guard, stamp) = (reclaim::pin_endable(), &mut ());
        let reads = SnapshotReads(PhantomData);
        let state = TxnState::new(
            &self.arena,
            &guard,
            stamp,
            Some(snapshot),
            &mut self.workspace,
            RowIds::Fresh(&mut self.row_ids),
            Determinism::default(),
        );
        let result = run(&mut Running::new(&self.following.replay.engine, &reads, state));
        self.arena.reset();
        result
    }

    /// Runs a body once as of the served state.
    fn read_served(
        &mut self,
        body: &mut dyn FnMut(&Transaction<'_>) -> Verdict,
        answer: &mut Answer,
    ) -> Result<(), Error> {
        check_may_wait("a transaction was begun")?;
        let following = Arc::clone(&self.following);
        let open = OpenForOne { following: &following, snapshot: following.open()? };
        let (verdict, wrote) = self.read(&open.snapshot, body);
        let verdict = verdict.unwrap_or_else(|panic| resume_unwind(panic));
        if open.snapshot.has_ended() {
            return Err(Error::Aborted(Abort::SnapshotEnded));
        }
        if wrote && verdict == Verdict::Commit {
            return Err(Error::Aborted(Abort::ReadOnly));
        }
        answer.position = None;
        answer.keep_order();
        Ok(())
    }
}

impl<S: Stamp> AnySession for ReadingSession<S> {
    fn run(
        &mut self,
        _: Option<(Call<'_>, RecordKind)>,
        body: &mut dyn FnMut(&Transaction<'_>) -> Verdict,
        answer: &mut Answer,
    ) -> Result<(), Error> {
        self.read_served(body, answer)
    }

    fn arrive(
        &mut self,
        _: Call<'_>,
        _: (u32, &Arc<EpochSlot>),
        _: &mut Option<Needs>,
    ) -> Result<Arrived, Error> {
        Err(Error::Aborted(Abort::ReadOnly))
    }

    fn run_arrived(
        &mut self,
        _: &mut Arrived,
        _: &mut dyn FnMut(&Transaction<'_>) -> Verdict,
        _: &mut Answer,
    ) -> ArrivedEnd {
        unreachable!("no call arrives at a follower");
    }

    fn run_once(
        &mut self,
        body: &mut dyn FnMut(&Transaction<'_>) -> Verdict,
        answer: &mut Answer,
    ) -> Result<AttemptEnd, Error> {
        self.read_served(body, answer).map(|()| AttemptEnd::Done)
    }

    fn begin(&mut self) -> Result<Box<dyn AnyOpenTransaction + '_>, Error> {
        Err(Error::Misuse(
            "a follower has no transactions that are ended by a call: read in a closure, or in a \
             snapshot"
                .to_string(),
        ))
    }

    fn leave_busy_stream(&mut self) {}

    fn read_snapshot(
        &mut self,
        snapshot: &SnapshotState,
        body: &mut dyn FnMut(&Transaction<'_>) -> Verdict,
    ) -> Result<(), Error> {
        let (verdict, _) = self.read(snapshot, body);
        if snapshot.has_ended() {
            return Err(Error::Aborted(Abort::SnapshotEnded));
        }
        match verdict {
            Ok(_) => Ok(()),
            Err(panic) => resume_unwind(panic),
        }
    }

    fn walk_snapshot(
        &mut self,
        snapshot: &SnapshotState,
        (table, columns): (Table, Columns),
        at: &mut WalkPosition,
        visit: &mut dyn FnMut(&Row<'_>),
    ) -> Result<(), Error> {
        let mut gathered = std::mem::take(&mut self.gathered);
        self.as_of(snapshot, |running| running.walk(table, columns, at, &mut gathered))?;
        let tables = &self.following.replay.engine.tables;
        if let Some(data) = tables.get(table.number() as usize) {
            gathered.visit(data.layout_read(columns), visit);
        }
        self.gathered = gathered;
        Ok(())
    }

    fn hand_over_garbage(&mut self) {}

    fn conflicts(&self) -> u64 {
        0
    }

    fn has_unused(&self) -> bool {
        self.arena.allocated_bytes() > KEPT_BYTES || self.workspace.room_bytes() > KEPT_BYTES
    }

    fn free_unused(&mut self) -> bool {
        let has_unused = self.has_unused();
        if has_unused {
            self.arena = Bump::new();
            self.workspace.free_room();
        }
        reclaim::settle();
        has_unused
    }
}
