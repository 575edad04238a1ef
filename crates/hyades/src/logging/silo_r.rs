//! Silo-R: value logging by epochs (Zheng, Tu, Kohler, Liskov: "Fast Databases with Fast Durability and
//! Recovery Through Multicore Parallelism", OSDI 2014, sections 4.1 to 4.3), the baseline of the Taurus
//! and Poplar papers.
//!
//! A transaction belongs to the epoch of its version, which it reads while it holds what it writes. A
//! stream *closes* an epoch when no record of it, or of an earlier one, can come any more: that is its
//! mark, stated in the log along with the records. The lowest mark of all streams is the durable
//! epoch D. A transaction is answered, and belongs to the recovered state, iff its epoch is not above
//! D. Rows remember nothing.
//!
//! Why that is right. Whoever read or overwrote what a transaction wrote has an epoch that is not lower
//! (both are read under write protection, so they are in the order of the conflict). So the
//! transactions up to D, all of whose records lie before the statements of their streams, are a set
//! that has all it depends on.
//!
//! Anti-dependencies are in the order of epochs but not within one, so replay cannot run commands: data
//! records only. Deltas of columns are sound: the version that a delta follows has an epoch that is not
//! higher, so it is live if the delta is.
//!
//! Where the paper is silent (docs/protocols.md, Silo-R): idle streams close epochs as well, when
//! somebody waits for it, and nobody otherwise; what a stream has closed counts once it is on disk; a
//! dead record is judged by the marks of its own incarnation for ever.

use super::{Ground, LoggingProtocol, Needs, NumberStamp, StartsOnLog};
use crate::logging::record::Tid;
use hyades_platform::active_epochs::ActiveEpochs;
use hyades_platform::epoch::Epoch;
use hyades_platform::mutation::{self, Mutation};
use hyades_wal::{Log, Lsn, Marks};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub(crate) struct SiloR {
    log: Log,
    epochs: Arc<Epochs>,
}

/// What the streams' flushers look at.
#[derive(Debug)]
struct Epochs {
    epoch: Arc<Epoch>,
    interval: Duration,
    /// Where sessions say that they commit, before they read their epoch.
    active: Arc<ActiveEpochs>,
    /// The highest epoch of any record. Raised by its writer before the record is reserved, and so before
    /// others see its rows; read by readers after they have read. Relaxed: who reads a row after its
    /// writer released it comes after that in everything (read-read coherence).
    written: AtomicU64,
}

impl LoggingProtocol for SiloR {
    type RowStamp = ();
    /// The epoch of the own record.
    type TxnStamp = u64;

    fn txn_stamp(&self) -> u64 {
        0
    }

    #[inline]
    fn versioned(&self, txn: &mut u64, tid: u64) {
        *txn = Tid(tid).epoch();
        if self.epochs.written.load(Ordering::Relaxed) < *txn {
            self.epochs.written.fetch_max(*txn, Ordering::Relaxed);
        }
    }

    /// A reader waits for the last epoch that anything was written in: it may have read that.
    fn needs(&self, txn: &mut u64, own: Option<(usize, Lsn)>, needs: &mut Needs) {
        if mutation::is(Mutation::AckBeforeOwnFrame) {
            return;
        }
        let epoch = match own {
            Some(_) => *txn,
            None => self.epochs.written.load(Ordering::Relaxed),
        };
        let frontier = self.log.frontier();
        let lane = match own {
            Some((stream, _)) if mutation::is(Mutation::OwnMarkOnly) => frontier.mark_lane(stream),
            _ => frontier.common_lane(),
        };
        needs.push((lane as u16, epoch));
    }
}

impl Marks for Epochs {
    /// The epochs that are closed. If somebody waits for the one of now, and it has lasted long enough, it
    /// ends.
    fn mark(&self, _: usize, wanted: u64, now: bool) -> u64 {
        if self.epoch.current() <= wanted {
            self.epoch.advance_if_older_than(if now { Duration::ZERO } else { self.interval });
        }
        if mutation::is(Mutation::CloseOpenEpochs) {
            return self.epoch.current();
        }
        self.active.lowest(&self.epoch).saturating_sub(1)
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
    const MARKS: bool = true;
    /// The paper's.
    const EPOCH: Duration = Duration::from_millis(40);

    fn start(ground: &Ground<'_>) -> Self {
        let epochs = Arc::new(Epochs {
            epoch: ground.epoch.clone(),
            interval: ground.epoch_interval,
            active: ground.active.clone(),
            written: AtomicU64::new(0),
        });
        ground.log.install_marks(epochs.clone());
        SiloR { log: ground.log.clone(), epochs }
    }
}

/// The version has the epoch: nothing else stands in the record.
pub(crate) fn read_stamp(tid: u64, _: &mut &[u8], needs: &mut [Lsn]) -> Option<NumberStamp> {
    let number = Tid(tid).epoch();
    *needs.last_mut()? = number;
    Some(NumberStamp { number, has_read: None, counts: true })
}
