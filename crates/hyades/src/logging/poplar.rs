//! Poplar: numbers that grow along reads-from and overwrites, and no other dependency (Zhou, Guo,
//! Hu, Qian, Zhou, Zhou: "Guaranteeing Recoverability via Partially Constrained Transaction Logs",
//! 2019, sections 3 to 5).
//!
//! *Number* (SSN, algorithm 1). A transaction's number is above those of all rows that it read or
//! overwrote and above the last one of the stream that its record goes to. Rows that it wrote take
//! the number, rows that it only read do not. It is drawn together with the position. So numbers
//! grow along every stream, from writer to reader and from writer to next writer, but not from a
//! reader to a later writer.
//!
//! *Watermarks* (DSN and CSN, algorithm 2; `marks` in the code). A stream states its number in the
//! log; the lowest stated and durable number of all streams is the common watermark, the paper's
//! CSN, and at recovery its RSNe.
//!
//! *Rule* (section 4.3). A transaction that has read is acknowledged, and belongs to the recovered
//! state, iff its number is not above the common watermark: then neither are the numbers of all
//! transactions whose writes it saw. A transaction of blind writes only saw no writes: it is
//! acknowledged once its own record is durable, and belongs to the recovered state wherever it is
//! found. The record states which of the two it is, because recovery has to know (section 5).
//!
//! Why replay may order by versions. The recovered transactions are closed under reads-from, so
//! what they wrote is right; what remains is the order of the writers of one row. The version of a
//! record (TID) and its number are both drawn while the row is locked, above what the row had: for
//! the writers of one row both give the same order, and either may decide which image is the last.
//! Replay uses the version, as under every protocol, because it also distinguishes incarnations. If
//! a writer in the middle is dead, the later one either made a blind write, which needs nothing
//! below it, or has a higher number and has read: then it is dead as well. That is why deltas are
//! sound: a transaction that changes some columns has read that the row exists, and the version
//! that its delta follows has a lower number.
//!
//! Numbers are not a serial order: a reader may have a higher one than the writer that overwrote
//! what it read. So there are no command records under this protocol.
//!
//! Departures from the paper (docs/protocols.md, Poplar). Its segment index is the log's own order
//! of reservations: a batch is what is filled without a gap when the flusher starts, at half a
//! buffer or at its interval. An idle stream raises its number through the same latch and states so
//! in the log. A transaction that learns anything about rows has read: checking whether a row
//! exists or a key is free, maintaining an index and changing some columns are reads. Numbers start
//! anew in each incarnation. A checkpoint's cut, by epochs, takes the place of RSNs.

use super::counters::Counters;
use super::draft::{Draft, Reserved};
use super::record::RecordKind;
use super::{LoggingProtocol, Needs, NumberStamp, RowRef, StartContext, StartsOnLog};
use crate::storage::Stamp;
use crate::storage::row::take;
use crate::storage::tid::Tid;
use hyades_platform::mutation::{self, Mutation};
use hyades_wal::{Lane, Log, Lsn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) struct Poplar {
    log: Log,
    counters: Arc<Counters>,
}

/// State of a session's transaction.
#[derive(Default)]
pub(crate) struct PoplarTxn {
    /// The highest number of the rows that it read or will overwrite.
    seen: u64,
    /// The transaction's own number.
    own: u64,
    /// Whether it had any operation except blind writes; known once it has its record.
    has_read: bool,
}

/// Raises the number of a row, or of the gap that it leaves, to that of its last writer. Called
/// under the row's write protection (a gap's by the thread that changes it). Release; read with
/// Acquire by readers within the window that validation covers, or under the lock.
fn raise(row: &AtomicU64, number: u64) {
    if row.load(Ordering::Relaxed) < number {
        row.fetch_max(number, Ordering::AcqRel);
    }
}

impl LoggingProtocol for Poplar {
    type RowStamp = AtomicU64;
    type TxnStamp = PoplarTxn;

    fn txn_stamp(&self) -> PoplarTxn {
        PoplarTxn::default()
    }

    fn begin(&self, txn: &mut PoplarTxn, _: RecordKind) {
        *txn = PoplarTxn::default();
    }

    /// Algorithm 1, lines 1 to 4.
    #[inline]
    fn observe_read(&self, row: &AtomicU64, txn: &mut PoplarTxn) {
        txn.seen = txn.seen.max(row.load(Ordering::Acquire));
    }

    #[inline]
    fn observe_write(&self, row: &AtomicU64, txn: &mut PoplarTxn) {
        txn.seen = txn.seen.max(row.load(Ordering::Acquire));
    }

    /// Lines 6 to 12: number and position in one step.
    fn append<'w, M: Stamp>(&self, txn: &mut PoplarTxn, draft: Draft<'_, 'w, M>) -> Reserved<'w> {
        let stream = draft.stream;
        txn.has_read = draft.has_read;
        // Room for the number, which is not known yet.
        let record = draft.compose(|out| out.extend_from_slice(&[0; 8]));
        txn.own = self.counters.lock(stream).max(txn.seen) + 1;
        let mut reserved = record.reserve();
        self.counters.unlock(stream, txn.own);
        let stamp = txn.own << 1 | u64::from(txn.has_read);
        reserved.patch(|room| room.copy_from_slice(&stamp.to_le_bytes()));
        reserved
    }

    /// Lines 13 to 15.
    #[inline]
    fn publish_write(&self, row: RowRef<'_, AtomicU64>, txn: &mut PoplarTxn) {
        raise(row.stamp, txn.own);
    }

    fn inherit(&self, to: &AtomicU64, from: &AtomicU64, _: &mut PoplarTxn) {
        raise(to, from.load(Ordering::Acquire));
    }

    /// The commit queues of section 4.3: Qww waits for its own stream, Qwr for all.
    fn needs(&self, txn: &mut PoplarTxn, own: Option<(usize, Lsn)>, needs: &mut Needs) {
        if mutation::is(Mutation::AckBeforeOwnFrame) {
            return;
        }
        let number = match own {
            Some((stream, end)) if !txn.has_read => {
                return needs.push((Lane::position(stream), end));
            }
            Some(_) => txn.own,
            // Line 17: it has no record, and waits for what it read.
            None => txn.seen,
        };
        if number == 0 {
            return;
        }
        needs.push((self.log.frontier().common_lane(), number));
    }
}

impl StartsOnLog for Poplar {
    const NAME: &'static str = "poplar";
    const VECTORS: bool = false;
    const MARKS: bool = true;

    fn start(context: &StartContext<'_>) -> Self {
        let counters = Arc::new(Counters::new(context.log.streams()));
        context.log.install_marks(counters.clone());
        Poplar { log: context.log.clone(), counters }
    }
}

/// Reads a stamp: the number << 1, plus 1 if the transaction has read: 8 bytes. A record that has
/// not read only needs to be in the valid prefix.
pub(crate) fn read_stamp(_: Tid, stamp: &mut &[u8], needs: &mut [Lsn]) -> Option<NumberStamp> {
    let both = u64::from_le_bytes(take(stamp, 8)?.try_into().ok()?);
    let (number, has_read) = (both >> 1, both & 1 == 1);
    *needs.last_mut()? = if has_read { number } else { 0 };
    Some(NumberStamp { number, has_read: Some(has_read), counts: true, written: None })
}
