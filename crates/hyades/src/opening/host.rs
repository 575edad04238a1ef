//! An opened database for its handles: sessions, snapshots and checkpoints of some engine.

use super::pairs::RunsUnder;
use crate::checkpoint::keeper::Checkpointed;
use crate::checkpoint::{self, CheckpointReport, CheckpointSettings};
use crate::concurrency::turns::TurnListener;
use crate::digest;
#[cfg(feature = "replication")]
use crate::engine::closed_epochs::{self, ClosedEpochs, CutMark, Epochs};
use crate::engine::cut::Cut;
use crate::engine::snapshots::{SnapshotState, Snapshots};
use crate::erased::{AnyEngine, AnySession};
use crate::error::Error;
use crate::logging::{HotRows, LoggingProtocol};
use crate::retry::{OnThisThread, check_may_wait};
use crate::session::EngineSession;
use crate::session::shared::Sessions;
use crate::storage::usage::{TableStats, Usage};
use crate::tally::SessionCounts;
use hyades_platform::active_epochs::EpochSlot;
use hyades_platform::broken;
use hyades_platform::epoch::Epoch;
use hyades_wal::{Checkpoint, Log};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub(super) struct Host<C: RunsUnder<P>, P: LoggingProtocol> {
    pub shared: Arc<Sessions<C, P>>,
    pub log: Option<Log>,
    pub hot_rows: fn(&P) -> HotRows,
}

impl<C: RunsUnder<P>, P: LoggingProtocol> Host<C, P> {
    /// Called before an epoch is closed, for a snapshot or a checkpoint: a starving transaction,
    /// running alone, gets a few attempts first, if the close is a conflict for the transaction.
    /// Inside a transaction there is no wait: the caller may be the starving one.
    fn let_one_that_starves_end(&self) {
        if !self.is_inside() && !broken!(CloseEpochsOfStarving) {
            self.shared.control.before_epoch_closes(|| self.shared.gate.pass());
        }
    }
}

#[cfg(feature = "replication")]
impl<C: RunsUnder<P>, P: LoggingProtocol> Host<C, P> {
    fn epochs(&self) -> Epochs<'_> {
        let engine = &self.shared.engine;
        let (epoch, snapshots) = (&*engine.epoch, &engine.snapshots);
        Epochs { epoch, snapshots, active: engine.cut.active() }
    }
}

impl<C: RunsUnder<P>, P: LoggingProtocol> AnyEngine for Host<C, P> {
    fn session(&self) -> Result<Box<dyn AnySession>, Error> {
        let session = EngineSession::<C, P>::new(self.shared.clone(), self.log.clone())?;
        Ok(Box::new(session))
    }

    fn digest(&self) -> u64 {
        digest::digest(&self.shared.engine.tables)
    }

    fn rows(&self) -> u64 {
        digest::rows(&self.shared.engine.tables)
    }

    fn tables(&self) -> Vec<TableStats> {
        let tables = &self.shared.engine.tables;
        let mut sums: Vec<Usage> = tables.iter().map(|table| table.replayed.get()).collect();
        self.shared.tallies.add_usage(&mut sums);
        digest::described(tables, &sums)
    }

    #[cfg(feature = "research")]
    fn recount(&self) -> Vec<TableStats> {
        let tables = &self.shared.engine.tables;
        digest::described(tables, &digest::usage(tables))
    }

    fn hot_rows(&self) -> HotRows {
        (self.hot_rows)(&self.shared.engine.protocol)
    }

    fn sum_index_bytes(&self) -> u64 {
        let tables = self.shared.engine.tables.iter();
        // All tables share a budget.
        let sums = tables.filter_map(|table| table.sums.as_ref()).next();
        sums.map_or(0, |sums| sums.budget().bytes() as u64)
    }

    fn open_snapshot(&self) -> Result<Arc<SnapshotState>, Error> {
        self.check_outside("a snapshot was opened")?;
        self.let_one_that_starves_end();
        self.shared.engine.open_snapshot(self.log.as_ref())
    }

    fn epoch(&self) -> &Epoch {
        &self.shared.engine.epoch
    }

    fn is_inside(&self) -> bool {
        OnThisThread::runs(Arc::as_ptr(&self.shared).addr())
    }

    fn check_outside(&self, what: &str) -> Result<(), Error> {
        check_may_wait(what)?;
        if !P::LOGS_FIRST || !self.is_inside() {
            return Ok(());
        }
        Err(Error::Misuse(format!(
            "{what} inside a transaction of the same database, whose calls are logged before they \
             run: it would wait for calls that wait for this transaction"
        )))
    }

    fn close_snapshot(&self, snapshot: &Arc<SnapshotState>) {
        let engine = &self.shared.engine;
        engine.snapshots.close(snapshot, &engine.epoch);
    }

    fn snapshots(&self) -> &Snapshots {
        &self.shared.engine.snapshots
    }

    #[cfg(feature = "replication")]
    fn close_epoch(&self, closing: &mut ClosedEpochs) -> Option<CutMark> {
        let log = self.log.as_ref()?;
        let positions = || (0..log.streams()).map(|stream| log.next_lsn(stream)).collect();
        closing.tick(self.epochs(), log.incarnation(), positions)
    }

    #[cfg(feature = "replication")]
    fn mark_with_snapshot(&self) -> Result<(CutMark, Arc<SnapshotState>), Error> {
        self.check_outside("a cut mark was made")?;
        let Some(log) = &self.log else { return Err(Error::Misuse("there is no log".into())) };
        let positions = || (0..log.streams()).map(|stream| log.next_lsn(stream)).collect();
        let marked = closed_epochs::mark_with_snapshot(self.epochs(), log.incarnation(), positions);
        marked.ok_or_else(|| Error::Misuse("no mark can be made at the limit of epochs".into()))
    }

    fn logs_first(&self) -> bool {
        P::LOGS_FIRST
    }

    fn on_ready(&self, ready: Box<TurnListener>) {
        self.shared.partitions().turns.on_ready(ready);
    }

    fn add_seat(&self) -> Result<(u32, Arc<EpochSlot>), Error> {
        let engine = &self.shared.engine;
        Ok((self.shared.partitions().turns.add()?, engine.cut.add_slot()))
    }

    fn remove_seat(&self, (seat, slot): (u32, Arc<EpochSlot>)) {
        let engine = &self.shared.engine;
        self.shared.partitions().turns.remove(seat);
        engine.cut.remove_slot(&slot);
    }

    fn let_run(&self, seat: u32) {
        self.shared.partitions().turns.let_run(seat);
    }

    fn counts(&self) -> SessionCounts {
        let mut counts = self.shared.tallies.sum();
        counts.garbage += self.shared.orphaned.len() as u64;
        counts
    }
}

impl<C: RunsUnder<P>, P: LoggingProtocol> Checkpointed for Host<C, P> {
    fn cut(&self) -> &Cut {
        &self.shared.engine.cut
    }

    fn checkpoint(
        &self,
        log: &Log,
        settings: &CheckpointSettings,
        stop: &AtomicBool,
    ) -> Result<(Checkpoint, CheckpointReport), Error> {
        self.let_one_that_starves_end();
        let written = checkpoint::write(&self.shared.engine, log, settings, stop);
        // The epoch of the cut has ended, so tombstones that waited for the end can go.
        self.shared.engine.snapshots.tidy(&self.shared.engine.epoch);
        self.shared.orphaned.sweep_all::<C, P>(&self.shared.engine);
        written
    }
}
