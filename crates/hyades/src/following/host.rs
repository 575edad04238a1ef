//! The tables of a follower, for the handles of a database that only reads.

use super::reading::ReadingSession;
use super::serving::Serving;
use crate::checkpoint::keeper::Checkpointed;
use crate::checkpoint::{CheckpointReport, CheckpointSettings};
use crate::concurrency::turns::TurnListener;
use crate::digest;
use crate::engine::closed_epochs::{ClosedEpochs, CutMark};
use crate::engine::cut::Cut;
use crate::engine::snapshots::{SnapshotState, Snapshots};
use crate::erased::{AnyEngine, AnySession};
use crate::error::Error;
use crate::logging::HotRows;
use crate::recovery::replay::ReplayContext;
use crate::retry::check_may_wait;
use crate::storage::Stamp;
use crate::storage::table::TableData;
use crate::storage::usage::{TableStats, Usage};
use crate::tally::SessionCounts;
use hyades_platform::active_epochs::EpochSlot;
use hyades_platform::epoch::Epoch;
use hyades_wal::{Checkpoint, Log};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The tables of a follower, shared by its rounds and its readers.
pub(crate) struct Following<S: Stamp> {
    pub replay: ReplayContext<S>,
    pub serving: Serving,
    /// Whether an image is being written. Set and cleared with the image: SeqCst.
    pub imaging: AtomicBool,
}

impl<S: Stamp> Following<S> {
    /// Opens a snapshot of the served state.
    pub fn open(&self) -> Result<Arc<SnapshotState>, Error> {
        self.serving.open(&self.replay.engine.snapshots)
    }

    pub fn close(&self, snapshot: &Arc<SnapshotState>) {
        let engine = &self.replay.engine;
        engine.snapshots.close(snapshot, &engine.epoch);
    }
}

/// The handle of a follower's tables.
pub(crate) struct FollowerHost<S: Stamp>(pub Arc<Following<S>>);

impl<S: Stamp> FollowerHost<S> {
    /// The tables; none once the follower has stopped, since the tables may hold several states.
    fn served_tables(&self) -> &[TableData<S>] {
        match self.0.serving.has_stopped() {
            true => &[],
            false => &self.0.replay.engine.tables,
        }
    }
}

/// The error of an operation that needs a log of one's own.
fn only_read() -> Error {
    Error::Misuse("a follower is only read: write, and take checkpoints, at its primary".into())
}

impl<S: Stamp> AnyEngine for FollowerHost<S> {
    fn session(&self) -> Result<Box<dyn AnySession>, Error> {
        Ok(Box::new(ReadingSession::new(self.0.clone())))
    }

    fn digest(&self) -> u64 {
        digest::digest(self.served_tables())
    }

    fn rows(&self) -> u64 {
        digest::rows(self.served_tables())
    }

    fn tables(&self) -> Vec<TableStats> {
        let tables = self.served_tables();
        let sums: Vec<Usage> = tables.iter().map(|table| table.replayed.get()).collect();
        digest::described(tables, &sums)
    }

    #[cfg(feature = "research")]
    fn recount(&self) -> Vec<TableStats> {
        let tables = self.served_tables();
        digest::described(tables, &digest::usage(tables))
    }

    fn hot_rows(&self) -> HotRows {
        HotRows::default()
    }

    fn sum_index_bytes(&self) -> u64 {
        0
    }

    fn counts(&self) -> SessionCounts {
        SessionCounts::default()
    }

    fn open_snapshot(&self) -> Result<Arc<SnapshotState>, Error> {
        self.check_outside("a snapshot was opened")?;
        self.0.open()
    }

    fn epoch(&self) -> &Epoch {
        &self.0.replay.engine.epoch
    }

    fn check_outside(&self, what: &str) -> Result<(), Error> {
        check_may_wait(what)
    }

    fn is_inside(&self) -> bool {
        false
    }

    fn close_snapshot(&self, snapshot: &Arc<SnapshotState>) {
        self.0.close(snapshot);
    }

    fn snapshots(&self) -> &Snapshots {
        &self.0.replay.engine.snapshots
    }

    fn close_epoch(&self, _: &mut ClosedEpochs) -> Option<CutMark> {
        None
    }

    fn mark_with_snapshot(&self) -> Result<(CutMark, Arc<SnapshotState>), Error> {
        Err(only_read())
    }

    fn logs_first(&self) -> bool {
        false
    }

    fn on_ready(&self, _: Box<TurnListener>) {}

    fn add_seat(&self) -> Result<(u32, Arc<EpochSlot>), Error> {
        Err(only_read())
    }

    fn remove_seat(&self, _: (u32, Arc<EpochSlot>)) {}

    fn let_run(&self, _: u32) {}
}

impl<S: Stamp> Checkpointed for FollowerHost<S> {
    fn cut(&self) -> &Cut {
        &self.0.replay.engine.cut
    }

    fn checkpoint(
        &self,
        _: &Log,
        _: &CheckpointSettings,
        _: &AtomicBool,
    ) -> Result<(Checkpoint, CheckpointReport), Error> {
        Err(only_read())
    }
}
