//! GSN: distributed logging with a global sequence number (Wang, Johnson: "Scalable Logging through
//! Emerging Non-Volatile Memory", PVLDB 7(10), 2014, section 4); NVM-D in the Poplar paper.
//!
//! A transaction's number is above the numbers of all rows read or written, and above the last
//! number of the record's stream. The rows written take the number, and so do the rows read. So
//! numbers grow along every dependency, anti-dependencies included, and along every stream. A
//! transaction is acknowledged, and belongs to the recovered state, iff its number is not above the
//! common mark, the lowest of all streams: each stream has stated that all its records up to the
//! mark are durable. The rule is the paper's passive group commit: only the answer waits for other
//! streams, not the record's own stream.
//!
//! Column deltas are sound: the version that a delta follows has a lower number, so the version is
//! live if the delta is. Commands would need a replay order; there are data records only.
//!
//! Departures from the paper. In the paper each worker flushes its own stream, in non-volatile
//! memory. Here streams have their own flushers, which suit devices with latency better, and a
//! worker may change its stream. An idle stream skips numbers that a transaction waits for, and
//! states so in the log (docs/protocols/marks.md). A transaction without writes stamps no rows: it
//! waits for the rows read, and nothing waits for it. Numbers start anew in each incarnation, since
//! rows keep no stamps of the previous incarnation.

use super::counters::Counters;
use hyades::RecordKind;
use hyades::plug::bytes::take;
use hyades::plug::{
    Draft, LoggingProtocol, Needs, NumberStamp, Reserved, RowRef, Stamp, StampFormat, StartContext,
    StartsOnLog, Tid,
};
use hyades_platform::broken;
use hyades_wal::{Log, Lsn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub struct Gsn {
    log: Log,
    counters: Arc<Counters>,
}

/// State of a session's transaction.
#[derive(Default)]
pub struct GsnTxn {
    /// The highest number of the rows read or to be overwritten.
    seen: u64,
    /// The transaction's own number.
    own: u64,
}

/// Raises a row's number: the number of the last writer or of a later reader. Called under the
/// row's protection, or before validation proves that the row was unchanged. SeqCst, as is the
/// row's lock (E4).
fn raise(row: &AtomicU64, number: u64) {
    if row.load(Ordering::SeqCst) < number {
        row.fetch_max(number, Ordering::SeqCst);
    }
}

impl LoggingProtocol for Gsn {
    const TRACKS_READERS: bool = true;
    type RowStamp = AtomicU64;
    type TxnStamp = GsnTxn;

    fn txn_stamp(&self) -> GsnTxn {
        GsnTxn::default()
    }

    fn begin(&self, txn: &mut GsnTxn, _: RecordKind) {
        *txn = GsnTxn::default();
    }

    /// Raises the transaction's number above all followed numbers.
    fn follow(&self, txn: &mut GsnTxn, order: &Needs) {
        let numbers = order.iter().map(|(_, number)| number);
        txn.seen = txn.seen.max(numbers.max().unwrap_or(0));
    }

    #[inline]
    fn observe_read(&self, row: &AtomicU64, txn: &mut GsnTxn) {
        if broken!(ForgetReadNumbers) {
            return;
        }
        txn.seen = txn.seen.max(row.load(Ordering::Acquire));
    }

    #[inline]
    fn observe_write(&self, row: &AtomicU64, txn: &mut GsnTxn) {
        // SeqCst: the row's lock precedes the load, and a reader's raise precedes the reader's
        // validation (E4).
        txn.seen = txn.seen.max(row.load(Ordering::SeqCst));
    }

    /// Draws a number, also above the stream's last number, in one step with the position.
    fn append<'w, M: Stamp>(&self, txn: &mut GsnTxn, draft: Draft<'_, 'w, M>) -> Reserved<'w> {
        let stream = draft.stream;
        // Room for the number, which is not known yet.
        let record = draft.compose(|out| out.extend_from_slice(&[0; 8]));
        txn.own = self.counters.lock(stream).max(txn.seen) + 1;
        let mut reserved = record.reserve();
        self.counters.unlock(stream, txn.own);
        reserved.patch(|room| room.copy_from_slice(&txn.own.to_le_bytes()));
        reserved
    }

    #[inline]
    fn publish_read(&self, row: RowRef<'_, AtomicU64>, txn: &mut GsnTxn) {
        raise(row.stamp, txn.own);
    }

    #[inline]
    fn publish_write(&self, row: RowRef<'_, AtomicU64>, txn: &mut GsnTxn) {
        raise(row.stamp, txn.own);
    }

    fn inherit(&self, to: &AtomicU64, from: &AtomicU64, _: &mut GsnTxn) {
        raise(to, from.load(Ordering::Acquire));
    }

    fn needs(&self, txn: &mut GsnTxn, own: Option<(usize, Lsn)>, needs: &mut Needs) {
        let number = if own.is_some() { txn.own } else { txn.seen };
        if broken!(AckBeforeOwnFrame) || number == 0 {
            return;
        }
        let frontier = self.log.frontier();
        let lane = match own {
            Some((stream, _)) if broken!(OwnMarkOnly) => frontier.mark_lane(stream),
            _ => frontier.common_lane(),
        };
        needs.push((lane, number));
    }
}

impl StartsOnLog for Gsn {
    const NAME: &'static str = "gsn";
    const VECTORS: bool = false;
    const STAMPS: StampFormat = StampFormat::Number { read: read_stamp, version: None };
    const MARKS: Option<&'static str> = Some(hyades_wal::SEPARATE_NUMBERS);

    fn start(context: &StartContext<'_>) -> Self {
        let counters = Arc::new(Counters::new(context.log.streams()));
        context.log.install_marks(counters.clone());
        Gsn { log: context.log.clone(), counters }
    }
}

/// Reads a stamp: the number, 8 bytes.
pub fn read_stamp(_: Tid, stamp: &mut &[u8], needs: &mut [Lsn]) -> Option<NumberStamp> {
    let number = u64::from_le_bytes(take(stamp, 8)?.try_into().ok()?);
    *needs.last_mut()? = number;
    Some(NumberStamp { number, has_read: None, counts: true, written: None })
}
