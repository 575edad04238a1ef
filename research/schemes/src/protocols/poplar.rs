//! Poplar: numbers grow along reads-from and overwrites, and along no other dependency (Zhou, Guo,
//! Hu, Qian, Zhou, Zhou: "Guaranteeing Recoverability via Partially Constrained Transaction Logs",
//! 2019, sections 3 to 5).
//!
//! *Number* (SSN, algorithm 1). A transaction's number is above the numbers of all rows read or
//! overwritten, and above the last number of the record's stream. The number is drawn together with
//! the position, and is the transaction's TID: the version of the written rows, which optimistic
//! concurrency control validates (section 4.4). So rows and gaps need no stamp, and a record states
//! the number once. Numbers grow along every stream, from writer to reader and from writer to next
//! writer, but not from a reader to a later writer.
//!
//! *Marks* (DSN and CSN, algorithm 2; `marks` in the code). A stream states its number in the log;
//! the lowest stated and durable number of all streams is the common mark, the paper's CSN, and at
//! recovery the RSNe.
//!
//! *Rule* (section 4.3). A transaction with reads is acknowledged, and belongs to the recovered
//! state, iff its number is not above the common mark: then no transaction whose writes it saw has
//! a number above the mark. A transaction of blind writes only saw no writes: the transaction is
//! acknowledged once its own record is durable, and belongs to the recovered state wherever the
//! record is found. The record states whether the transaction has read, because recovery has to
//! know (section 5).
//!
//! *Removals.* The version of a deleted row is the version of the tombstone, and an index entry
//! that no longer matches its row leads to the version that ended the match. After the removal, a
//! transaction that finds neither still depends on the version. So the highest version of all
//! removals is kept, in one place for all gaps ([`LoggingProtocol::removes`]): transactions treat
//! the kept version as read. Tombstones are removed in a later epoch, when their version is below
//! all numbers to come, and mostly durable.
//!
//! Why replay may order by numbers. The recovered transactions are closed under reads-from, so
//! their writes are right; the open question is the order of the writers of a row, whose numbers
//! are drawn while the row is locked. If a writer in the middle is dead, the later writer either
//! made a blind write, which needs nothing below it, or has a higher number and has read, and is
//! dead as well. So deltas are sound: a transaction that changes some columns has read that the row
//! exists, and a delta follows a version with a lower number.
//!
//! Numbers are not a serial order: a reader may have a higher number than the overwriter of a row
//! version that the reader read. So there are no command records under this protocol.
//!
//! Departures from the paper (docs/protocols/poplar.md). The segment index is the log's own order
//! of reservations: a batch is the part of the log filled without a gap when the flusher starts, at
//! half a buffer or at the flusher's interval, and the stream's mark is the last number drawn by
//! then. RSNe is known before replay starts, from the last batch of each stream. An idle stream
//! raises its number through the same latch and states the number in the log. A transaction that
//! learns anything about rows has read: checking whether a row exists or a key is free, maintaining
//! an index and changing some columns are reads. The upper bits of a number are an epoch, for
//! checkpoints, whose cut takes the place of RSNs, and for snapshots.

use super::counters::Counters;
use hyades::RecordKind;
use hyades::plug::bytes::take;
use hyades::plug::{
    Draft, LoggingProtocol, Needs, NumberStamp, Reserved, Stamp, StampFormat, StartContext,
    StartsOnLog, Tid,
};
use hyades_platform::broken;
use hyades_wal::{Lane, LaneKind, Log, Lsn, NUMBERS_ARE_VERSIONS};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub struct Poplar {
    log: Log,
    counters: Arc<Counters>,
    /// Versions below `first` are of earlier incarnations, and durable.
    first: Tid,
    /// The highest version of all removals: see [`LoggingProtocol::removes`].
    removed: AtomicU64,
}

/// State of a session's transaction.
#[derive(Default)]
pub struct PoplarTxn {
    /// The highest version read, if the transaction has no record.
    seen: Tid,
    /// The transaction's own number.
    own: u64,
    /// Whether the transaction had any operation except blind writes, or follows records in other
    /// streams; known once the transaction has a record.
    has_read: bool,
    /// The streams with records that the transaction follows in the session's order, a bit for
    /// each.
    follows: u64,
    /// The highest number followed in the session's order, if the common mark has to reach a
    /// number.
    follows_number: u64,
}

impl Poplar {
    /// Returns the highest number followed in the session's order; `None` if all followed records
    /// are found wherever the transaction's own record, in `stream`, is found.
    fn follows(&self, txn: &PoplarTxn, stream: usize) -> Option<u64> {
        let others = txn.follows & !(1 << stream);
        if others == 0 && txn.follows_number == 0 {
            return None;
        }
        let streams = (0..self.log.streams()).filter(|other| others >> other & 1 == 1);
        // The records have numbers by now.
        let last = streams.map(|other| self.counters.last(other)).max();
        last.max(Some(txn.follows_number))
    }
}

impl LoggingProtocol for Poplar {
    type RowStamp = ();
    type TxnStamp = PoplarTxn;

    fn txn_stamp(&self) -> PoplarTxn {
        PoplarTxn::default()
    }

    fn begin(&self, txn: &mut PoplarTxn, _: RecordKind) {
        *txn = PoplarTxn::default();
    }

    fn follow(&self, txn: &mut PoplarTxn, order: &Needs) {
        for (lane, number) in order.iter() {
            match lane.kind(self.log.streams()) {
                LaneKind::Position(stream) => txn.follows |= 1 << stream,
                LaneKind::Mark(_) | LaneKind::Common => {
                    txn.follows_number = txn.follows_number.max(number);
                }
            }
        }
    }

    /// Algorithm 1. Lines 1 to 4: the draft's TID is above all versions read or to be overwritten;
    /// the number is also above removed versions. Lines 6 to 12: number and position in one step.
    fn append<'w, M: Stamp>(
        &self,
        txn: &mut PoplarTxn,
        mut draft: Draft<'_, 'w, M>,
    ) -> Reserved<'w> {
        let (stream, lowest, epoch) = (draft.stream, draft.tid, draft.epoch);
        let follows = self.follows(txn, stream);
        txn.has_read = draft.has_read || follows.is_some();
        if !draft.states_epoch {
            // The stamp states the TID. Beside the beginning of an epoch stands the epoch.
            draft.tid = Tid::NONE;
        }
        // Room for the number, which is not known yet.
        let record = draft.compose(|out| out.extend_from_slice(&[0; 8]));
        if txn.has_read && broken!(LateVersions) {
            std::thread::sleep(std::time::Duration::from_millis(4));
        }
        let lowest = lowest.bits().max(follows.unwrap_or(0) + 1);
        let lowest = lowest.max(self.removed.load(Ordering::Acquire) + 1);
        txn.own = (self.counters.lock(stream) + 1).max(lowest);
        let tid = Tid::from_bits(txn.own);
        // Before the position: a cut of an earlier epoch notes positions below the reservation.
        let is_reached = tid.reach(epoch);
        debug_assert!(is_reached, "a log of numbered records has no limit of epochs");
        let mut reserved = record.reserve();
        self.counters.unlock(stream, txn.own);
        let stamp = txn.own << 1 | u64::from(txn.has_read);
        reserved.patch(|room| room.copy_from_slice(&stamp.to_le_bytes()));
        reserved.with_version(tid)
    }

    /// Line 17.
    #[inline]
    fn observe_versions(&self, highest: Tid, txn: &mut PoplarTxn) {
        txn.seen = highest.max(Tid::from_bits(self.removed.load(Ordering::Acquire)));
    }

    /// Release, before the removed object is unlinked; a transaction that does not find the object
    /// loads `removed` afterwards, Acquire.
    fn removes(&self, version: Tid) {
        if !broken!(ForgetRemoved) {
            self.removed.fetch_max(version.bits(), Ordering::AcqRel);
        }
    }

    /// The commit queues of section 4.3: Qww waits for its own stream, Qwr for all.
    fn needs(&self, txn: &mut PoplarTxn, own: Option<(usize, Lsn)>, needs: &mut Needs) {
        if broken!(AckBeforeOwnFrame) {
            return;
        }
        let number = match own {
            Some((stream, end)) if !txn.has_read => {
                return needs.push((Lane::position(stream), end));
            }
            Some(_) => txn.own,
            // Without a record, the transaction waits for the versions read.
            None if txn.seen < self.first => return,
            None => txn.seen.bits(),
        };
        needs.push((self.log.frontier().common_lane(), number));
    }
}

impl StartsOnLog for Poplar {
    const NAME: &'static str = "poplar";
    const VECTORS: bool = false;
    const STAMPS: StampFormat = StampFormat::Number { read: read_stamp, version: Some(version) };
    const MARKS: Option<&'static str> = Some(NUMBERS_ARE_VERSIONS);

    fn start(context: &StartContext<'_>) -> Self {
        let counters = Arc::new(Counters::new(context.log.streams()));
        context.log.install_marks(counters.clone());
        let first = Tid::new(context.epoch.current(), 0);
        let removed = AtomicU64::new(0);
        Poplar { log: context.log.clone(), counters, first, removed }
    }
}

/// Reads a stamp: the number << 1, plus 1 if the transaction has read: 8 bytes. The record of a
/// transaction without reads only needs to be in the valid prefix.
pub fn read_stamp(_: Tid, stamp: &mut &[u8], needs: &mut [Lsn]) -> Option<NumberStamp> {
    let both = u64::from_le_bytes(take(stamp, 8)?.try_into().ok()?);
    let (number, has_read) = (both >> 1, both & 1 == 1);
    *needs.last_mut()? = if has_read { number } else { 0 };
    Some(NumberStamp { number, has_read: Some(has_read), counts: true, written: None })
}

/// Returns the TID in a stamp: the number.
pub fn version(stamp: &[u8]) -> Option<Tid> {
    let both = u64::from_le_bytes(*stamp.first_chunk()?);
    Some(Tid::from_bits(both >> 1)).filter(|tid| tid.bits() >> Tid::BITS == 0)
}

/// The format of stamps for the value of [`hyades_wal::MARKS`]: numbers beside versions are not
/// written any more.
pub fn stamps(marks: Option<&str>) -> StampFormat {
    if marks == Some(NUMBERS_ARE_VERSIONS) {
        return Poplar::STAMPS;
    }
    StampFormat::Number { read: read_stamp, version: None }
}
