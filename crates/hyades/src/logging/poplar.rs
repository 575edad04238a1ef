//! Poplar: numbers that follow reads-from and overwrites, and no other dependency (Zhou,
//! Guo, Hu, Qian, Zhou, Zhou: "Guaranteeing Recoverability via Partially Constrained Transaction Logs",
//! 2019, sections 3 to 5).
//!
//! *Number* (SSN, algorithm 1). A transaction's number is above those of all rows that it read or
//! overwrote and above the last one of the stream that its record goes to; rows that it wrote take it,
//! rows that it only read do not. It is drawn together with the place. So numbers grow along every
//! stream, from writer to reader and from writer to next writer, but not from a reader to a later writer.
//!
//! *Marks* (DSN and CSN, algorithm 2). A stream states its number in the log; the lowest stated and
//! durable number of all streams is the common mark, the paper's CSN, and at recovery its RSNe.
//!
//! *Rule* (section 4.3). A transaction that has learnt anything of the rows is answered, and belongs to the
//! recovered state, iff its number is not above the common mark: then so is the number of everyone whose
//! writes it saw. One that has only put rows down, whatever was there before, saw nobody's writes: it is
//! answered once its own record is durable, and belongs to the recovered state wherever it is found.
//! Which of the two it is stands in the record, because recovery has to know (section 5).
//!
//! Why replay may go by versions. The recovered transactions are closed under reads-from, so what they wrote
//! is right; left is the order of the writers of one row. The version of a record (TID) and its number are
//! both drawn while the row is held, above what the row had: for the writers of one row the two are the
//! same order, and either may decide which image is the last. Replay takes the version, as under every
//! protocol, because it also tells incarnations apart. If a writer in the middle is dead, the later one
//! either put a whole row over it, which needs nothing below it, or has a number above and has learnt
//! something: then it is dead as well. That is why deltas are sound: who changes some columns has
//! learnt that the row was there, and the version that its delta follows has a lower number.
//!
//! Numbers are no serial order: a reader may have a higher one than the writer that overwrote what it read.
//! So there are no command records under this protocol.
//!
//! Where this departs from the paper (docs/protocols.md, Poplar). Its segment index is the log's own
//! order of reservations: a batch is what is filled without a gap when the flusher comes, at half a buffer or
//! at its interval. An idle stream raises its number through the same latch and states so in the log. A
//! transaction that learns anything is one that reads, whatever it wrote: to be told whether a row was
//! there, to check that a key is free, to keep an index, to change some columns are reads. Numbers
//! begin anew in each incarnation. A checkpoint's cut, by epochs, takes the place of RSNs.

use super::counters::Counters;
use super::record::RecordKind;
use super::{Ground, LoggingProtocol, Needs, NumberStamp, StartsOnLog};
use crate::storage::row::take;
use hyades_platform::mutation::{self, Mutation};
use hyades_wal::{Log, Lsn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) struct Poplar {
    log: Log,
    counters: Arc<Counters>,
}

/// What a session's transaction has gathered.
#[derive(Default)]
pub(crate) struct PoplarTxn {
    /// The highest number of what it read or will overwrite.
    seen: u64,
    /// Its own.
    own: u64,
    /// Whether it has learnt anything of the rows.
    has_read: bool,
}

/// Raises the number of a row, or of the gap that it leaves: that of its last writer. Written by whoever
/// has the row's write protection (a gap's by whoever changes it); only ever raised. Release, read with
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

    #[inline]
    fn learns(&self, txn: &mut PoplarTxn) {
        txn.has_read = true;
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

    /// Room for the number, which is not known yet.
    fn encode(&self, _: &mut PoplarTxn, _: usize, _: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(&[0; 8]);
    }

    /// Lines 6 to 12: number and place in one step.
    #[inline]
    fn draw(&self, txn: &mut PoplarTxn, stream: usize) {
        txn.own = self.counters.lock(stream).max(txn.seen) + 1;
    }

    #[inline]
    fn place(&self, txn: &mut PoplarTxn, stream: usize, _: Lsn) {
        self.counters.unlock(stream, txn.own);
    }

    fn patch(&self, txn: &mut PoplarTxn, stamp: &mut [u8]) {
        stamp.copy_from_slice(&(txn.own << 1 | u64::from(txn.has_read)).to_le_bytes());
    }

    /// Lines 13 to 15.
    #[inline]
    fn publish_write(&self, row: &AtomicU64, txn: &mut PoplarTxn) {
        raise(row, txn.own);
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
                return needs.push((stream as u16, end));
            }
            Some(_) => txn.own,
            // Line 17: it has no record, and waits for what it read.
            None if txn.has_read => txn.seen,
            None => 0,
        };
        if number == 0 {
            return;
        }
        needs.push((self.log.frontier().common_lane() as u16, number));
    }
}

impl StartsOnLog for Poplar {
    const NAME: &'static str = "poplar";
    const VECTORS: bool = false;
    const MARKS: bool = true;

    fn start(ground: &Ground<'_>) -> Self {
        let counters = Arc::new(Counters::new(ground.log.streams()));
        ground.log.install_marks(counters.clone());
        Poplar { log: ground.log.clone(), counters }
    }
}

/// The number << 1, plus 1 if the transaction has read: 8 bytes. A record that has not read needs nothing but
/// to stand in the valid prefix.
pub(crate) fn read_stamp(_: u64, stamp: &mut &[u8], needs: &mut [Lsn]) -> Option<NumberStamp> {
    let both = u64::from_le_bytes(take(stamp, 8)?.try_into().ok()?);
    let (number, has_read) = (both >> 1, both & 1 == 1);
    *needs.last_mut()? = if has_read { number } else { 0 };
    Some(NumberStamp { number, has_read: Some(has_read), counts: true })
}
