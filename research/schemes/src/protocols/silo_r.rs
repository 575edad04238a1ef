//! Silo-R: value logging by epochs (Zheng, Tu, Kohler, Liskov: "Fast Databases with Fast Durability
//! and Recovery Through Multicore Parallelism", OSDI 2014, sections 4.1 to 4.3), the baseline of
//! the Taurus and Poplar papers.
//!
//! A transaction belongs to the epoch of its version, and reads the epoch while it holds its write
//! locks. A stream *closes* an epoch when no record of that or an earlier epoch can follow: the
//! epoch is the stream's mark, stated in the log along with the records. The lowest mark of all
//! streams is the durable epoch D. A transaction is acknowledged, and belongs to the recovered
//! state, iff its epoch is not above D. Rows have no stamps.
//!
//! Why marks are correct. A transaction that read or overwrote a row of an earlier writer has an
//! epoch not below the writer's epoch (both are read under write protection, and so are in the
//! order of the conflict). So the transactions up to D, whose records all precede the statements of
//! their streams, are closed under dependencies.
//!
//! Anti-dependencies follow the order of epochs but not within an epoch, so replay cannot run
//! commands: data records only. Column deltas are sound: the version that a delta follows has no
//! higher epoch, so the version is live if the delta is.
//!
//! Where the paper is silent (docs/protocols/silo-r.md): idle streams close epochs as well, but
//! only for a waiting transaction; a closed epoch counts once the statement is on disk; a dead
//! record is judged by the marks of its own incarnation for ever.

use hyades::plug::{
    Draft, LoggingProtocol, Needs, NumberStamp, Reserved, Stamp, StampFormat, StartContext,
    StartsOnLog, Tid,
};
use hyades_platform::active_epochs::ActiveEpochs;
use hyades_platform::broken;
use hyades_platform::epoch::{Epoch, EpochNumber};
use hyades_wal::{Log, Lsn, Marks};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub struct SiloR {
    log: Log,
    epochs: Arc<Epochs>,
}

/// State shared with the streams' flushers.
#[derive(Debug)]
struct Epochs {
    epoch: Arc<Epoch>,
    interval: Duration,
    /// Where sessions announce a commit, before they read their epoch.
    active: Arc<ActiveEpochs>,
    /// The highest epoch of any record. Raised by the writer before the record is reserved, and so
    /// before the rows are visible; loaded by readers after their reads. Relaxed: a reader of a row
    /// released by its writer comes after the writer in everything (read-read coherence).
    written: AtomicU64,
}

impl LoggingProtocol for SiloR {
    type RowStamp = ();
    /// The epoch of the transaction's record.
    type TxnStamp = EpochNumber;

    fn txn_stamp(&self) -> EpochNumber {
        EpochNumber::default()
    }

    /// The epoch is read later, and so is not lower; an epoch is recovered as a whole.
    fn follow(&self, _: &mut EpochNumber, _: &Needs) {}

    /// The record has no stamp: the version states the epoch.
    fn append<'w, M: Stamp>(&self, txn: &mut EpochNumber, draft: Draft<'_, 'w, M>) -> Reserved<'w> {
        *txn = draft.tid.epoch();
        if self.epochs.written.load(Ordering::Relaxed) < txn.0 {
            self.epochs.written.fetch_max(txn.0, Ordering::Relaxed);
        }
        draft.compose(|_| ()).reserve()
    }

    /// A reader waits for the last epoch with a write: the reader may have read from that epoch.
    fn needs(&self, txn: &mut EpochNumber, own: Option<(usize, Lsn)>, needs: &mut Needs) {
        if broken!(AckBeforeOwnFrame) {
            return;
        }
        let epoch = match own {
            Some(_) => txn.0,
            None => self.epochs.written.load(Ordering::Relaxed),
        };
        let frontier = self.log.frontier();
        let lane = match own {
            Some((stream, _)) if broken!(OwnMarkOnly) => frontier.mark_lane(stream),
            _ => frontier.common_lane(),
        };
        needs.push((lane, epoch));
    }
}

impl Marks for Epochs {
    /// Returns the last closed epoch. If a transaction waits for the current epoch, and the current
    /// epoch has lasted long enough, the epoch ends.
    fn mark(&self, _: usize, wanted: u64, now: bool) -> u64 {
        if self.epoch.current().0 <= wanted {
            self.epoch.advance_if_older_than(if now { Duration::ZERO } else { self.interval });
        }
        if broken!(CloseOpenEpochs) {
            return self.epoch.current().0;
        }
        self.active.lowest(&self.epoch).previous().0
    }

    fn highest(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    fn pause(&self) -> Duration {
        self.epoch.rest(self.interval).max(Duration::from_micros(50))
    }
}

impl StartsOnLog for SiloR {
    const NAME: &'static str = "silo-r";
    const VECTORS: bool = false;
    const STAMPS: StampFormat = StampFormat::Number { read: read_stamp, version: None };
    const MARKS: Option<&'static str> = Some(hyades_wal::SEPARATE_NUMBERS);
    /// The paper's length.
    const EPOCH: Duration = Duration::from_millis(40);

    fn start(context: &StartContext<'_>) -> Self {
        let epochs = Arc::new(Epochs {
            epoch: context.epoch.clone(),
            interval: context.epoch_interval,
            active: context.active.clone(),
            written: AtomicU64::new(0),
        });
        context.log.install_marks(epochs.clone());
        SiloR { log: context.log.clone(), epochs }
    }
}

/// Reads the epoch from the version: the record has no stamp.
pub fn read_stamp(tid: Tid, _: &mut &[u8], needs: &mut [Lsn]) -> Option<NumberStamp> {
    let number = tid.epoch().0;
    *needs.last_mut()? = number;
    Some(NumberStamp { number, has_read: None, counts: true, written: None })
}
