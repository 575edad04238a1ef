//! Taurus: parallel logging with LSN vectors (Xia, Yu, Pavlo, Devadas: "Taurus: Lightweight
//! Parallel Logging for In-Memory Database Management Systems", VLDB 2020), sections 3.2, 4.1 and
//! 4.3. Step numbers refer to algorithms 1, 5 and 6. docs/protocols/taurus.md explains departures
//! from the paper.
//!
//! Component i of a vector means: everything in stream i up to a position. A transaction gathers
//! two vectors: *validity*, the records that must be durable for the transaction to count: the
//! writers of all rows read or overwritten; and *order*, the records that must be replayed before
//! the transaction: writers and readers of all overwritten rows. A command logs the join of both,
//! and everything in the join must be durable, and replayed before the command. A data record logs
//! the vectors apart: the record counts by validity and, where commands are in the log, is replayed
//! after the order vector. In a log of data records alone there is no order vector, and no read
//! stamps.

pub(crate) mod anchoring;
pub(crate) mod lsn_vector_table;
mod unwritten;

use super::draft::{Draft, Reserved};
use super::lanes::clear;
use super::record::RecordKind;
use super::{
    HotRows, LoggingProtocol, Needs, RowRef, StampFormat, StampKind, StartContext, StartsOnLog,
    VectorStamp, is_met,
};
use crate::storage::Stamp;
use anchoring::Anchoring;
use hyades_platform::broken;
use hyades_platform::sync::Padded;
use hyades_wal::{Lane, Log, Lsn, Writer, compress, lsn_vector::join};
use lsn_vector_table::{FoldTarget, LsnVectorTable, Reference, Ring, RowObservation};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use unwritten::{UnwrittenTables, WriterFollows};

pub struct Taurus {
    log: Log,
    lanes: usize,
    /// Whether this incarnation of the log may have command records.
    commands: bool,
    /// Whether commands are replayed on one version of each row: then a reader has to precede later
    /// writers, and leaves a stamp.
    orders_readers: bool,
    table: LsnVectorTable,
    /// Not used where there may be no commands: then there are no read stamps.
    unwritten: UnwrittenTables,
    /// All replay work in the log, in ticks. Divided by the number of replay threads, the work
    /// estimates when replay reaches the next record; a record with predecessors that will be
    /// replayed much later is on the critical path. Added to and read by sessions; a hint, Relaxed.
    progress: Padded<AtomicU64>,
    replay_threads: u64,
    /// Whether a transaction has requested [`RecordKind::Adaptive`]: until then no replay times are
    /// kept. Set once, read by all sessions; Relaxed, as only hints depend on it.
    adaptive: AtomicBool,
    anchoring: Anchoring,
}

/// State of a session's transaction.
pub struct TaurusTxn {
    validity: Vec<u64>,
    /// Zero and unused if `joined`.
    order: Vec<u64>,
    /// Whether the transaction is to be a command, which only needs the join of both vectors:
    /// `validity` has the whole join.
    joined: bool,
    /// Whether some row was evicted, at least in part: both vectors are at least the eviction
    /// vector, which is joined late, or not at all where not needed (see `one_byte_stamp`).
    joins_eviction: bool,
    /// Whether both vectors are zero, apart from the eviction vector implied by `joins_eviction`.
    is_zero: bool,
    /// Whether the eviction vector covers all components of validity except the own component.
    single: bool,
    /// Whether the transaction was encoded as a command.
    command: bool,
    /// The own component, once the transaction has a position.
    lane: usize,
    distance: ReplayDistance,
    ring: Ring,
}

/// Estimated times, in ticks, at which replay is done with the rows of a transaction: see
/// [`Taurus::progress`].
#[derive(Default)]
struct ReplayDistance {
    /// Whether the times are kept.
    kept: bool,
    /// When replay reaches this transaction's record.
    now: u64,
    /// The value of [`Taurus::progress`] from which `now` was computed.
    progress: u64,
    /// When replay is done with the writers of the rows that this transaction reads.
    after_reads: u64,
    /// When replay is done with the readers and writers of the rows that this transaction
    /// overwrites.
    after_writes: u64,
    /// When replay is done with this transaction.
    replayed: u64,
    /// Work not yet added to [`Taurus::progress`].
    unreported: u64,
}

/// The replay time of a command, by definition.
const COMMAND_TICKS: u64 = 8;
/// The replay time of a data record, once all predecessors have been replayed.
const DATA_TICKS: u64 = 4;
/// Sessions report their work in portions of this many ticks.
const REPORT_TICKS: u64 = 64 * COMMAND_TICKS;

impl ReplayDistance {
    /// Returns when replay is done with the last users of a row that is not evicted. A transaction
    /// that left a single position waits for no other, so replay is about done with it; but a
    /// follower does wait.
    #[inline]
    fn finish_tick(&self, row: &RowObservation) -> u64 {
        row.replayed.unwrap_or(self.now + 1)
    }

    /// Called when the transaction gets a record. Returns whether replay of the record waits for
    /// others.
    fn place(&mut self, command: bool) -> bool {
        let (after, ticks) = match command {
            true => (self.after_writes.max(self.after_reads), COMMAND_TICKS),
            // Replay of a data record does not depend on the rows read.
            false => (self.after_writes, DATA_TICKS),
        };
        self.replayed = self.now.max(after) + ticks;
        self.unreported += ticks;
        after > self.now
    }
}

impl Taurus {
    #[inline]
    fn update_distance(&self, distance: &mut ReplayDistance, record: RecordKind) {
        if !self.adaptive.load(Ordering::Relaxed) {
            if record != RecordKind::Adaptive {
                return;
            }
            self.adaptive.store(true, Ordering::Relaxed);
        }
        distance.kept = true;
        if distance.unreported >= REPORT_TICKS {
            self.progress.fetch_add(std::mem::take(&mut distance.unreported), Ordering::Relaxed);
        }
        let progress = self.progress.load(Ordering::Relaxed);
        if progress != distance.progress {
            distance.progress = progress;
            distance.now = progress / self.replay_threads;
        }
        (distance.after_reads, distance.after_writes) = (0, 0);
    }

    /// The tables of the write set are about to be written: the transaction follows readers that
    /// left no stamps.
    #[inline(always)]
    fn follow_tables<M: Stamp>(&self, draft: &Draft<'_, '_, M>, txn: &mut TaurusTxn) {
        let mut last = None;
        for write in draft.final_writes() {
            if last != Some(write.table) {
                last = Some(write.table);
                let reserved = |stream| self.log.next_lsn(stream);
                let order = if txn.joined { &mut txn.validity } else { &mut txn.order };
                match self.unwritten.overwrite(write.table, order, reserved) {
                    WriterFollows::Vector => txn.is_zero = false,
                    WriterFollows::EvictionVector => txn.joins_eviction = true,
                }
            }
        }
    }

    /// Appends a record that is put together in memory.
    #[inline(never)]
    fn append_composed<'w, M: Stamp>(
        &self,
        txn: &mut TaurusTxn,
        draft: Draft<'_, 'w, M>,
    ) -> Reserved<'w> {
        let (stream, command) = (draft.stream, draft.command.is_some());
        let record = draft.compose(|out| self.encode(txn, stream, command, out));
        let reserved = record.reserve();
        self.place(txn, stream, reserved.end());
        reserved
    }

    /// Algorithm 1, line 8, with algorithm 5, Compress: components at or below the stream's anchor
    /// are left out. The anchor is loaded before the frame is reserved.
    #[inline(always)]
    fn encode(&self, txn: &mut TaurusTxn, stream: usize, command: bool, out: &mut Vec<u8>) {
        txn.command = command;
        let only_evicted = txn.is_zero;
        if txn.joined && !command {
            // A command that was too long is logged as data. Unneeded dependencies are not wrong.
            txn.order.copy_from_slice(&txn.validity);
            txn.joined = false;
        } else if command && !txn.joined {
            join(&mut txn.validity, &txn.order);
        }
        if std::mem::take(&mut txn.joins_eviction) {
            self.table.join_eviction(&mut txn.validity);
            // A command's order is in `validity` by now.
            if self.orders_readers && !command {
                self.table.join_eviction(&mut txn.order);
            }
            txn.is_zero = false;
        }
        txn.single = only_evicted || self.table.is_single(&txn.validity, stream);
        let anchors = self.log.anchors(stream);
        let load = |lsn: &AtomicU64| lsn.load(Ordering::Acquire);
        compress::encode(out, &txn.validity, anchors, load);
        if self.orders_readers && !command {
            compress::encode(out, &txn.order, anchors, load);
        }
    }

    /// Returns the stamp of a command, if a single byte. `encode` may follow all the same.
    ///
    /// If all dependencies are evicted rows, the anchor covers the dependencies, and the vector is
    /// an empty mask. The eviction vector is not joined in memory either: it is durable, and a
    /// transaction that follows the command's position is replayed after the command, and so after
    /// the command's dependencies.
    #[inline(always)]
    fn one_byte_stamp(&self, txn: &mut TaurusTxn, stream: usize) -> Option<u8> {
        if !(txn.joined && txn.is_zero) {
            return None;
        }
        if txn.joins_eviction {
            // Acquire: the anchor is reserved before the record.
            let anchor = self.log.anchors(stream).iter().map(|lsn| lsn.load(Ordering::Acquire));
            if !self.table.is_eviction_below(anchor) {
                return None;
            }
        }
        (txn.command, txn.single) = (true, true);
        Some(0)
    }

    /// Algorithm 1, line 11: in memory the transaction's own LSN is added to the vector.
    #[inline(always)]
    fn place(&self, txn: &mut TaurusTxn, stream: usize, end: Lsn) {
        debug_assert!(txn.validity[stream] < end, "nothing depends on what is not yet reserved");
        txn.validity[stream] = end;
        txn.lane = stream;
        txn.is_zero = false;
        let in_chain = txn.distance.kept && txn.distance.place(txn.command);
        // If replay of the record waits for others, the written rows need a slot, which has the
        // replay time.
        let single = txn.single && !in_chain && self.table.take_single(&mut txn.ring, stream, end);
        if !single && txn.joins_eviction {
            self.table.join_eviction(&mut txn.validity);
        }
    }
}

impl LoggingProtocol for Taurus {
    type RowStamp = Reference;
    type TxnStamp = TaurusTxn;

    fn txn_stamp(&self) -> TaurusTxn {
        TaurusTxn {
            validity: vec![0; self.lanes],
            order: vec![0; self.lanes],
            joined: false,
            joins_eviction: false,
            is_zero: true,
            single: false,
            command: false,
            lane: 0,
            distance: ReplayDistance::default(),
            ring: self.table.ring(),
        }
    }

    #[inline]
    fn enter_stream(&self, writer: &mut Writer, stream: usize) {
        self.anchoring.enter_stream(writer, stream);
    }

    /// Algorithm 5, FlushPLV; the eviction vector follows delta bytes behind.
    fn housekeep(&self) {
        self.anchoring.housekeep(&self.table, |eviction| self.unwritten.housekeep(eviction));
    }

    #[inline(always)]
    fn begin(&self, txn: &mut TaurusTxn, record: RecordKind) {
        if !txn.is_zero {
            clear(&mut txn.validity);
            if !txn.joined {
                clear(&mut txn.order);
            }
            txn.is_zero = true;
        }
        txn.joined = record == RecordKind::Command;
        txn.joins_eviction = false;
        txn.single = false;
        txn.command = false;
        if self.commands {
            self.update_distance(&mut txn.distance, record);
        }
        self.table.begin(&mut txn.ring);
    }

    /// Adds the followed records, which must be durable for the transaction to count. They need not
    /// be replayed before a data record: rows give the order.
    fn follow(&self, txn: &mut TaurusTxn, order: &Needs) {
        order.iter().for_each(|(lane, lsn)| {
            let own = &mut txn.validity[lane.index()];
            *own = lsn.max(*own);
        });
        txn.is_zero = false;
    }

    #[inline]
    fn prefetch(&self, row: &Reference) {
        self.table.prefetch(row);
    }

    /// Algorithm 1, line 3.
    #[inline(always)]
    fn observe_read(&self, row: &Reference, txn: &mut TaurusTxn) {
        let row = self.table.fold(row, FoldTarget::Write(&mut txn.validity), &mut txn.ring);
        txn.joins_eviction |= row.joins_eviction;
        if row.warm {
            txn.is_zero = false;
            if txn.distance.kept {
                txn.distance.after_reads =
                    txn.distance.after_reads.max(txn.distance.finish_tick(&row));
            }
        }
    }

    /// Algorithm 1, lines 3 to 5.
    #[inline(always)]
    fn observe_write(&self, row: &Reference, txn: &mut TaurusTxn) {
        let into = if !self.orders_readers || broken!(SkipReadFold) {
            FoldTarget::Write(&mut txn.validity)
        } else if txn.joined {
            FoldTarget::Both(&mut txn.validity)
        } else {
            FoldTarget::Apart(&mut txn.validity, &mut txn.order)
        };
        let row = self.table.fold(row, into, &mut txn.ring);
        txn.joins_eviction |= row.joins_eviction;
        if row.warm {
            txn.is_zero = false;
            if txn.distance.kept {
                txn.distance.after_writes =
                    txn.distance.after_writes.max(txn.distance.finish_tick(&row));
            }
        }
    }

    fn replay_lag(&self, txn: &TaurusTxn) -> u64 {
        let ReplayDistance { now, after_reads, after_writes, .. } = txn.distance;
        after_reads.max(after_writes).saturating_sub(now) / COMMAND_TICKS
    }

    /// Algorithm 1, lines 8 to 11.
    #[inline(always)]
    fn append<'w, M: Stamp>(&self, txn: &mut TaurusTxn, draft: Draft<'_, 'w, M>) -> Reserved<'w> {
        if self.orders_readers {
            self.follow_tables(&draft, txn);
        }
        if draft.is_short_command()
            && let Some(stamp) = self.one_byte_stamp(txn, draft.stream)
            && let Some(record) = draft.short_record(stamp)
        {
            let stream = draft.stream;
            let reserved = draft.reserve_short(record);
            self.place(txn, stream, reserved.end());
            return reserved;
        }
        self.append_composed(txn, draft)
    }

    /// Algorithm 1, line 14; algorithm 6, lines 9 to 11, but with the own LSN (E4).
    #[inline]
    fn publish_read(&self, row: RowRef<'_, Reference>, txn: &mut TaurusTxn) {
        if row.table.is_none_or(|table| self.unwritten.needs_read_stamp(table, txn.lane)) {
            self.table.raise_read(row.stamp, &txn.validity, txn.distance.replayed, &mut txn.ring);
        }
    }

    /// Algorithm 1, line 16; algorithm 6, line 16.
    #[inline]
    fn publish_write(&self, row: RowRef<'_, Reference>, txn: &mut TaurusTxn) {
        self.table.set_write(row.stamp, &txn.validity, txn.distance.replayed, &mut txn.ring);
    }

    fn inherit(&self, to: &Reference, from: &Reference, txn: &mut TaurusTxn) {
        self.table.inherit(to, from, &mut txn.ring);
    }

    fn end_session(&self, txn: TaurusTxn) {
        self.table.give_back(txn.ring);
    }

    /// Algorithm 1, line 18, without the order within the stream (E1). The eviction vector is
    /// durable, so evicted rows add nothing.
    #[inline(always)]
    fn needs(&self, txn: &mut TaurusTxn, own: Option<(usize, Lsn)>, needs: &mut Needs) {
        if let (Some((stream, end)), true) = (own, txn.single) {
            // Evicted positions are durable.
            if !broken!(AckBeforeOwnFrame) {
                needs.push((Lane::position(stream), end));
            }
        } else if !txn.is_zero {
            let frontier = self.log.frontier();
            for (lane, &lsn) in txn.validity.iter().enumerate() {
                // Zero is durable, and not looked up.
                if lsn != 0 && own != Some((lane, lsn)) && !is_met(frontier.durable(lane), lsn) {
                    needs.push((Lane::position(lane), lsn));
                }
            }
            // Last, and so checked first: a session's records become durable in order.
            if let Some((stream, end)) = own
                && !broken!(AckBeforeOwnFrame)
            {
                needs.push((Lane::position(stream), end));
            }
        }
        debug_assert!(own.is_none_or(|(stream, end)| txn.validity[stream] == end));
    }
}

impl StartsOnLog for Taurus {
    const NAME: &'static str = "taurus";
    const VECTORS: bool = true;
    const STAMPS: StampFormat = StampFormat::Vectors { read: read_stamp, skip: Some(skip_stamp) };

    fn hot_rows(&self) -> HotRows {
        self.table.hot_rows()
    }

    /// After recovery all stamps are zero: an incarnation is a barrier, and everything in earlier
    /// incarnations precedes everything in this incarnation.
    fn start(context: &StartContext<'_>) -> Self {
        let &StartContext { log, settings, data_only, replays_versions, tables, .. } = context;
        let lanes = log.streams();
        Taurus {
            log: log.clone(),
            lanes,
            commands: !data_only,
            orders_readers: !data_only && !replays_versions,
            table: LsnVectorTable::on(log, settings.hot_rows_bytes),
            unwritten: UnwrittenTables::new(tables, lanes),
            progress: Padded(AtomicU64::new(0)),
            adaptive: AtomicBool::new(false),
            replay_threads: std::thread::available_parallelism().map_or(1, |n| n.get() as u64),
            anchoring: Anchoring::new(log, settings),
        }
    }
}

/// Reads a stamp: the validity vector and, of a data record in a log that may hold commands, the
/// order vector. Otherwise the validity vector is the order vector, too.
pub(crate) fn read_stamp(
    kind: StampKind,
    stamp: &mut &[u8],
    out: VectorStamp<'_>,
) -> Result<(), &'static str> {
    let mut read = |vector: &mut [Lsn]| {
        let used = compress::decode(stamp, out.anchor, vector)?;
        *stamp = &stamp[used..];
        Ok(())
    };
    read(out.validity)?;
    if has_order(kind) {
        return read(out.order);
    }
    out.order.copy_from_slice(out.validity);
    Ok(())
}

/// Advances `stamp` past the stamp, as [`read_stamp`] does. `None` if the stamp is malformed.
pub(crate) fn skip_stamp(kind: StampKind, stamp: &mut &[u8]) -> Option<()> {
    for _ in 0..1 + usize::from(has_order(kind)) {
        *stamp = compress::skip(stamp)?;
    }
    Some(())
}

/// Returns whether a stamp has an order vector.
fn has_order(kind: StampKind) -> bool {
    !kind.command && !kind.unordered_readers
}
