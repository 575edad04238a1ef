//! Taurus of 2016: parallel logging with lists of predecessors (Yu, Zhu, Kaashoek, Pavlo, Devadas:
//! "Taurus: A Parallel Transaction Recovery Method Based on Fine-Granularity Dependency Tracking",
//! technical report), sections 4.1 to 4.3 and 5. Line numbers refer to algorithms 1 and 2.
//! docs/protocols/taurus-2016.md explains departures from the report.
//!
//! The stamp of a row has the row's last writer, identified by the position of the writer's record
//! in the log (the *id*), and no readers. A transaction gathers ids: *RAW* predecessors wrote rows
//! that the transaction read, and *WAW* predecessors wrote rows that the transaction only
//! overwrote. For its acknowledgement a transaction needs all needs of its RAW predecessors, and
//! its own frame: the *predecessor vector* (definition 1). It needs nothing of WAW predecessors: a
//! transaction may be acknowledged before its WAW predecessors, and survive them. Only `overwrite`
//! writes blindly, into tables without secondary indexes, and replaces the whole row. Every other
//! write learns whether the row exists, needs the row's index entries, or logs changed columns
//! alone, so its transaction has read the row.
//!
//! **The commit dependency table** is the LSN vector table. The table holds predecessor vectors by
//! row instead of by transaction, rows written by the same transaction share an entry, and an entry
//! may be dropped once the vector is durable, that is, once the transaction is committed (line 19).
//!
//! **Limits of an id.** A gap between rows has no last writer: a reader of an absent key depends on
//! all deleters whose tombstones left the gap. The stamp of a gap is the join of the deleters'
//! predecessor vectors; a reader of the gap adds the join to its record, beside the list. A vector
//! component claims more than is true (everything in a stream up to a position), never less. So a
//! new row counts as a read of its gap, also if written blindly.
//!
//! **Predecessors left out of the list** (section 6.6 asks for omissions at the price of order;
//! these omissions lose little):
//! - A predecessor with needs covered by the stream's anchor: the needs were durable, so nothing
//!   depends on the id, and the anchor states so in the log. Durability alone is not enough: rot
//!   could destroy the last frames of another stream, which looks like a crash if nothing in the
//!   log proves that the frames existed. Where commands may be in the log, the id also orders
//!   replay and selects versions: replay respects the anchor for every record as if all records at
//!   or below the anchor were listed (`recovery/dataflow.rs`).
//! - Evicted predecessors, in a log of data records alone: the needs are not known, but the
//!   eviction vector covers the needs, and is in the record's vector.
//! - In a log of data records alone, needs in the record's own stream count as covered: where the
//!   record is found, all earlier records of the stream are found too.
//! - All predecessors, if the list would not fit a frame: then the record's vector covers the
//!   predecessors and their needs in every stream.
//! - RAW predecessors, if lists are compressed: the report keeps the predecessor with the highest
//!   address in each log. The highest address alone does not tell whether the rest are live
//!   (docs/protocols/taurus-2016.md), so the vector has the needs of all RAW predecessors.
//!
//! In a log of data records alone every WAW predecessor is listed, whatever an anchor covers, also
//! a record that the transaction has read from: the recovery in three phases follows these names
//! and nothing else. The merged recovery orders images by row version, and does without.

use hyades::RecordKind;
use hyades::plug::predecessors::{Id, Predecessor};
use hyades::plug::vectors::{Anchoring, FoldTarget, LsnVectorTable, Ring, RowObservation};
use hyades::plug::{
    Draft, HotRows, LoggingProtocol, Needs, Reserved, RowRef, Stamp, StampFormat, StampKind,
    StartContext, StartsOnLog, VectorStamp, is_met, predecessors,
};
use hyades_platform::broken;
use hyades_platform::sync::Ordering;
use hyades_wal::{Lane, Log, Lsn, Writer, compress, lsn_vector::join};
use last_writer::{BUSY, LastWriter};

mod last_writer;

pub struct Taurus2016 {
    log: Log,
    lanes: usize,
    /// Whether this incarnation of the log may have command records.
    commands: bool,
    /// The most predecessors in the list of a record.
    max_predecessors: usize,
    /// Whether a record's vector stands for the RAW predecessors.
    compresses_lists: bool,
    table: LsnVectorTable,
    anchoring: Anchoring,
}

/// The longest encoding of an id in a record.
const MOST_NAME_BYTES: usize = 10;

/// State of a session's transaction.
pub struct Taurus2016Txn {
    /// The predecessor vector.
    vector: Vec<u64>,
    /// The part of the vector that no id in the list accounts for.
    unnamed: Vec<u64>,
    found: Vec<Found>,
    /// The needs of each predecessor, concatenated.
    needs: Vec<u64>,
    /// The part of `found` that the record lists.
    list: Vec<Predecessor>,
    /// Whether something was evicted, at least in part: the flag stands for the eviction vector,
    /// which is joined late.
    joins_eviction: bool,
    /// Whether both vectors are zero.
    is_zero: bool,
    /// The number of commands that replay runs in sequence before the rows read by this transaction
    /// exist.
    depth: u64,
    /// Whether the transaction is logged as a command.
    command: bool,
    /// The transaction's id, once its record has a position.
    own: Id,
    scratch: Vec<u64>,
    ring: Ring,
}

/// A predecessor.
#[derive(Clone, Copy)]
struct Found {
    predecessor: Predecessor,
    /// The index in [`Taurus2016Txn::needs`] of the predecessor's needs, apart from evicted needs;
    /// unused if the row was only overwritten.
    needs: usize,
}

impl Taurus2016Txn {
    /// Replaces the chosen predecessors in the list by their highest position in each stream, and
    /// the needs of all that the transaction has read: a position alone does not say that a record
    /// below the position is live. Overwritten predecessors among the chosen must then be durable,
    /// too.
    fn state_in_vector(&mut self, chosen: impl Fn(&Predecessor) -> bool) {
        let (before, unnamed) = (self.list.len(), &mut self.unnamed);
        self.list.retain(|predecessor| {
            let is_chosen = chosen(predecessor);
            if is_chosen {
                let lane = predecessors::lane(predecessor.id);
                unnamed[lane] = unnamed[lane].max(predecessors::end(predecessor.id));
            }
            !is_chosen
        });
        if self.list.len() < before {
            join(&mut self.unnamed, &self.vector);
            self.is_zero = false;
        }
    }
}

impl Taurus2016 {
    /// Algorithm 1, with line 10 of algorithm 2: adds the row's last writer, and the writer's needs
    /// if the row was read.
    fn find(&self, row: &LastWriter, txn: &mut Taurus2016Txn, overwritten: bool) {
        let writer = row.writer.get();
        if writer == BUSY {
            // Only under optimistic control, where validation of the row's version will fail: see
            // `Name`.
            return;
        }
        if writer == 0 {
            let found =
                self.table.fold(&row.vector, FoldTarget::Write(&mut txn.unnamed), &mut txn.ring);
            self.note(found, txn);
            return;
        }
        let predecessor = Predecessor { id: writer, overwritten };
        if txn.found.last().is_some_and(|last| last.predecessor == predecessor) {
            return;
        }
        if overwritten {
            // The row is locked, so the writer stays.
            txn.found.push(Found { predecessor, needs: 0 });
            if self.commands {
                // Replay runs a command after the writer of a row that the command overwrites. The
                // writer's needs go to `scratch`, which has no content between two functions.
                let found = self.table.fold(
                    &row.vector,
                    FoldTarget::Write(&mut txn.scratch),
                    &mut txn.ring,
                );
                txn.depth = txn.depth.max(found.replayed.unwrap_or(0));
            }
            return;
        }
        let needs = txn.needs.len();
        txn.needs.resize(needs + self.lanes, 0);
        let found =
            self.table.fold(&row.vector, FoldTarget::Write(&mut txn.needs[needs..]), &mut txn.ring);
        if !row.writer.is_still(writer) {
            // The id of one writer and the needs of another: as above.
            txn.needs.truncate(needs);
            return;
        }
        self.note(found, txn);
        if found.warm {
            join(&mut txn.vector, &txn.needs[needs..]);
        }
        // An evicted predecessor is listed for replay order only.
        if found.warm || self.commands {
            txn.found.push(Found { predecessor, needs });
        }
    }

    fn note(&self, found: RowObservation, txn: &mut Taurus2016Txn) {
        txn.depth = txn.depth.max(found.replayed.unwrap_or(0));
        txn.joins_eviction |= found.joins_eviction;
        txn.is_zero &= !found.warm;
    }

    /// Lists the predecessors of `found` that the record has to list, see the module.
    fn compress(&self, txn: &mut Taurus2016Txn, stream: usize, anchor: impl Fn(usize) -> Lsn) {
        let own_stream = if self.commands { usize::MAX } else { stream };
        let covers = |lane: usize, lsn: Lsn| {
            lsn <= anchor(lane)
                || (broken!(LeaveOutUnanchored) && is_met(self.log.frontier().durable(lane), lsn))
        };
        txn.found.sort_unstable_by_key(|found| found.predecessor);
        txn.list.clear();
        // The same id may have been found twice, and as RAW, which sorts first, and WAW.
        for same in txn.found.chunk_by(|a, b| a.predecessor.id == b.predecessor.id) {
            let predecessor = same[0].predecessor;
            let lacks = |found: &Found| {
                if found.predecessor.overwritten {
                    return false;
                }
                let needs = &txn.needs[found.needs..][..self.lanes];
                let lacks = |(lane, lsn): (usize, &Lsn)| !covers(lane, *lsn) && lane != own_stream;
                needs.iter().enumerate().any(lacks)
            };
            let place = predecessors::end(predecessor.id);
            let orders = self.commands && place > anchor(predecessors::lane(predecessor.id));
            if orders || same.iter().any(lacks) {
                txn.list.push(predecessor);
            }
            // Images are ordered by what they overwrite alone; nothing else follows an anchor.
            let last = same[same.len() - 1].predecessor;
            if !self.commands && last.overwritten && txn.list.last() != Some(&last) {
                txn.list.push(last);
            }
        }
    }

    /// Algorithm 2, line 4. The anchor is loaded before the frame is reserved.
    fn encode(&self, txn: &mut Taurus2016Txn, stream: usize, out: &mut Vec<u8>) {
        if std::mem::take(&mut txn.joins_eviction) {
            self.table.join_eviction(&mut txn.unnamed);
            txn.is_zero = false;
        }
        // Acquire: pairs with the Release of the session that appended the anchor, so that all
        // reservations before the anchor are, to this thread, before the steps below. Loaded once:
        // an id may only be left out if the anchor that compresses the vector covers the id.
        let mut anchor = std::mem::take(&mut txn.scratch);
        for (lane, published) in anchor.iter_mut().zip(self.log.anchors(stream)) {
            *lane = published.load(Ordering::Acquire);
        }
        self.compress(txn, stream, |lane| anchor[lane]);
        if self.compresses_lists {
            txn.state_in_vector(|predecessor| !predecessor.overwritten);
        }
        let is_too_long = txn.list.len() > self.max_predecessors;
        if is_too_long {
            txn.state_in_vector(|_| true);
        }
        if !self.commands && !is_too_long {
            // Where the record is found, all earlier records in the stream are found, too. In place
            // of a list the vector orders images, also in the own stream.
            anchor[stream] = Lsn::MAX;
        }
        compress::encode(out, &txn.unnamed, &anchor, |lsn| *lsn);
        txn.scratch = anchor;
        predecessors::encode(&txn.list, self.lanes, out);
    }

    /// Algorithm 2, lines 5 to 12.
    #[inline]
    fn place(&self, txn: &mut Taurus2016Txn, stream: usize, end: Lsn) {
        join(&mut txn.vector, &txn.unnamed);
        debug_assert!(txn.vector[stream] < end, "nothing depends on what is not yet reserved");
        txn.vector[stream] = end;
        txn.is_zero = false;
        txn.own = predecessors::id(stream, end);
        txn.depth = if txn.command { txn.depth + 1 } else { 0 };
    }
}

impl LoggingProtocol for Taurus2016 {
    const TELLS_BLIND_WRITES: bool = true;
    type RowStamp = LastWriter;
    type TxnStamp = Taurus2016Txn;

    fn txn_stamp(&self) -> Taurus2016Txn {
        Taurus2016Txn {
            vector: vec![0; self.lanes],
            unnamed: vec![0; self.lanes],
            found: Vec::new(),
            list: Vec::new(),
            needs: Vec::new(),
            joins_eviction: false,
            is_zero: true,
            depth: 0,
            command: false,
            own: 0,
            scratch: vec![0; self.lanes],
            ring: self.table.ring(),
        }
    }

    #[inline]
    fn enter_stream(&self, writer: &mut Writer, stream: usize) {
        self.anchoring.enter_stream(writer, stream);
    }

    fn housekeep(&self) {
        self.anchoring.housekeep(&self.table, |_| {});
    }

    #[inline]
    fn begin(&self, txn: &mut Taurus2016Txn, _: RecordKind) {
        if !txn.is_zero {
            txn.vector.fill(0);
            txn.unnamed.fill(0);
            txn.is_zero = true;
        }
        txn.found.clear();
        txn.needs.clear();
        txn.joins_eviction = false;
        txn.depth = 0;
        txn.command = false;
        self.table.begin(&mut txn.ring);
    }

    /// Adds the needs of the previous transaction in the session's order, as a vector: the list
    /// would have only the id of that transaction, and order replay.
    fn follow(&self, txn: &mut Taurus2016Txn, order: &Needs) {
        order.iter().for_each(|(lane, lsn)| {
            let own = &mut txn.unnamed[lane.index()];
            *own = lsn.max(*own);
        });
        txn.is_zero = false;
    }

    #[inline]
    fn prefetch(&self, row: &LastWriter) {
        self.table.prefetch(&row.vector);
    }

    /// Algorithm 1, lines 2 and 3.
    #[inline]
    fn observe_read(&self, row: &LastWriter, txn: &mut Taurus2016Txn) {
        self.find(row, txn, false);
    }

    /// Algorithm 1, lines 4 and 5. A row that the transaction has read as well is observed as read,
    /// too: then the predecessor is RAW.
    #[inline]
    fn observe_write(&self, row: &LastWriter, txn: &mut Taurus2016Txn) {
        self.find(row, txn, true);
    }

    fn replay_lag(&self, txn: &Taurus2016Txn) -> u64 {
        txn.depth
    }

    /// Algorithm 2, lines 4 to 12.
    fn append<'w, M: Stamp>(
        &self,
        txn: &mut Taurus2016Txn,
        draft: Draft<'_, 'w, M>,
    ) -> Reserved<'w> {
        let stream = draft.stream;
        txn.command = draft.command.is_some();
        let record = draft.compose(|out| self.encode(txn, stream, out));
        let reserved = record.reserve();
        self.place(txn, stream, reserved.end());
        reserved
    }

    /// Algorithm 2, lines 1 to 3 and 13: the id is not known earlier. A blind writer's vector need
    /// not cover the previous writer: later readers of the row need nothing of earlier writers.
    #[inline]
    fn publish_write(&self, row: RowRef<'_, LastWriter>, txn: &mut Taurus2016Txn) {
        row.stamp.writer.change();
        self.table.set_write(&row.stamp.vector, &txn.vector, txn.depth, &mut txn.ring);
        row.stamp.writer.set(txn.own);
    }

    /// Only gaps inherit, and unwritten new rows that were gaps.
    fn inherit(&self, to: &LastWriter, from: &LastWriter, txn: &mut Taurus2016Txn) {
        debug_assert_eq!(to.writer.get(), 0, "a row inherits nothing");
        self.table.inherit(&to.vector, &from.vector, &mut txn.ring);
    }

    fn end_session(&self, txn: Taurus2016Txn) {
        self.table.give_back(txn.ring);
    }

    /// Algorithm 2, line 16, without the order of the queue.
    fn needs(&self, txn: &mut Taurus2016Txn, own: Option<(usize, Lsn)>, needs: &mut Needs) {
        join(&mut txn.vector, &txn.unnamed);
        if !txn.is_zero {
            let frontier = self.log.frontier();
            for (lane, &lsn) in txn.vector.iter().enumerate() {
                if broken!(AckBeforeOwnFrame) && own == Some((lane, lsn)) {
                    continue;
                }
                if lsn > 0 && !is_met(frontier.durable(lane), lsn) {
                    needs.push((Lane::position(lane), lsn));
                }
            }
        }
        debug_assert!(own.is_none_or(|(stream, end)| txn.vector[stream] == end));
    }
}

impl StartsOnLog for Taurus2016 {
    const NAME: &'static str = "taurus-2016";
    const VECTORS: bool = true;
    const STAMPS: StampFormat = StampFormat::Vectors { read: read_stamp, skip: None };
    const PREDECESSORS: bool = true;

    fn hot_rows(&self) -> HotRows {
        self.table.hot_rows()
    }

    /// After recovery all stamps are zero: an incarnation is a barrier, and everything in earlier
    /// incarnations precedes everything in this incarnation.
    fn start(context: &StartContext<'_>) -> Self {
        let &StartContext { log, settings, data_only, .. } = context;
        Taurus2016 {
            log: log.clone(),
            lanes: log.streams(),
            commands: !data_only,
            // Half of a frame: the rest is for the other parts of a record's head.
            max_predecessors: log.max_payload() / 2 / MOST_NAME_BYTES,
            compresses_lists: settings.research.compresses_lists,
            table: LsnVectorTable::on(log, settings.hot_rows_bytes),
            anchoring: Anchoring::new(log, settings),
        }
    }
}

/// Reads a stamp: the vector, then the list of predecessors.
pub fn read_stamp(
    _: StampKind,
    stamp: &mut &[u8],
    out: VectorStamp<'_>,
) -> Result<(), &'static str> {
    let used = compress::decode(stamp, out.anchor, out.validity)?;
    *stamp = &stamp[used..];
    out.order.copy_from_slice(out.validity);
    predecessors::decode(stamp, out.validity.len(), out.predecessors)
        .ok_or("its list of predecessors")
}
