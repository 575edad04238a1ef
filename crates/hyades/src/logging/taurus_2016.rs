//! Taurus of 2016: parallel logging with lists of predecessors (Yu, Zhu, Kaashoek, Pavlo, Devadas:
//! "Taurus: A Parallel Transaction Recovery Method Based on Fine-Granularity Dependency Tracking",
//! technical report), sections 4.1 to 4.3 and 5. Line numbers are those of algorithms 1 and 2. Where
//! we depart from the report, docs/protocols.md says why.
//!
//! A row remembers who wrote it last, by the place of that record in the log, and nobody who read it.
//! A transaction gathers these names: *RAW* predecessors, whose rows it read, and *WAW* predecessors,
//! whose rows it only overwrote. To be answered it needs all that its RAW predecessors need, and its
//! own frame: its *predecessor vector*. A lost WAW predecessor harms nobody. Here whoever is overwritten
//! counts as read: the log and the graph of recovery know WAW predecessors, and nothing leaves one.
//!
//! **The commit dependency table** is the hot-row table: it holds predecessor vectors by row instead
//! of by transaction, rows written by one transaction share an entry, and an entry may go once its
//! vector is durable, that is, once its transaction is committed (line 19).
//!
//! **What a last writer cannot name.** A gap between rows has no last writer: what a reader of "not
//! there" depends on are all the deleters whose tombstones left the gap. A gap remembers the join of
//! their predecessor vectors; who reads it takes that vector along, in the record beside the list.
//! A vector's lane says more than is true (everything in a stream up to there), never less.
//!
//! **What is left out of the list** (section 6.6 asks for it at the price of order; this loses little):
//! - A predecessor whose needs the stream's anchor covers: they were durable, so nothing hangs on its
//!   name, and the anchor says so in the log. That they are durable is not enough: rot could take what is
//!   last in another stream, and pass for a crash, if nothing vouches for it. Where commands may be in the
//!   log its name also orders replay and chooses versions: replay respects the anchor for every record as if
//!   all at or below it were named (`recovery/dataflow.rs`).
//! - What is cold is not known by its needs; the cold vector covers these, and is in the record's vector.
//! - In a log of data alone, lanes of its needs that lie in the record's own stream count as covered:
//!   where the record is found, what stands before it is too.
//! - WAW predecessors, in a log of data alone: rows carry versions, which order images anyway.
//! - All of them, if they are so many that they would not fit a frame: then the vector in the record
//!   says for every stream what they and their needs come to.

use super::anchoring::Anchoring;
use super::lsn_vector_table::{Into, LsnVectorTable, Reference, Ring, RowObservation};
use super::predecessors::{self, Id, Predecessor};
use super::record::RecordKind;
use super::{Ground, LoggingProtocol, Needs, StartsOnLog};
use hyades_platform::mutation::{self, Mutation};
use hyades_platform::sync::{AtomicU64, Ordering, fence};
use hyades_wal::{Log, Lsn, Writer, compress, lsn_vector::join};

pub(crate) struct Taurus2016 {
    log: Log,
    lanes: usize,
    /// Whether command records may stand in this incarnation of the log.
    commands: bool,
    /// A record lists no more predecessors than this.
    most_names: usize,
    table: LsnVectorTable,
    anchoring: Anchoring,
}

/// The longest that a name is in a record.
const MOST_NAME_BYTES: usize = 10;

/// Stands for the last writer's name while that and its needs change.
const BUSY: Id = u64::MAX;

/// What a row or a gap remembers.
#[derive(Default)]
pub(crate) struct LastWriter {
    /// The record that wrote the row last; 0 for a gap, for a row that stands where a gap was, and for
    /// one that nobody has written in this incarnation.
    writer: Name,
    /// Its predecessor vector; for a gap, that of all whose tombstones it took in.
    vector: Reference,
}

/// The name of a row's last writer, a sequence lock over what that writer needs. Written under the row's
/// write protection, read under its protection or before its version is looked at once more.
///
/// A reader that finds the name changing, or changed, leaves this predecessor out, and relies on the look
/// at the row's version that comes later to fail. That look does not fail by itself: the writer has locked
/// the row before it changes the name, but nothing else orders the reader's look behind the lock. So all
/// that a writer stores here is Release, and all that a reader loads is Acquire: whatever the reader has
/// found of this change, the lock happened before it, and its look comes behind both.
#[derive(Default)]
struct Name(AtomicU64);

impl Name {
    /// What is read of this writer comes after this.
    #[inline]
    fn get(&self) -> Id {
        self.0.load(Ordering::Acquire)
    }

    /// Whether what was read since [`Name::get`] returned this name belongs to it.
    #[inline]
    fn is_still(&self, name: Id) -> bool {
        // The loads of what was read come before the one below.
        fence(Ordering::Acquire);
        self.0.load(Ordering::Acquire) == name
    }

    /// What belongs to the name changes after this. The caller has locked the row.
    #[inline]
    fn change(&self) {
        self.0.store(BUSY, Ordering::Release);
        // Who finds something of the change finds that the name is not what it was.
        fence(Ordering::Release);
    }

    /// It has changed.
    #[inline]
    fn set(&self, name: Id) {
        self.0.store(name, Ordering::Release);
    }
}

/// What a session's transaction has gathered.
pub(crate) struct Taurus2016Txn {
    /// The predecessor vector.
    vector: Vec<u64>,
    /// Its part that no name in the list stands for.
    unnamed: Vec<u64>,
    found: Vec<Found>,
    /// What each predecessor needs, one after the other.
    needs: Vec<u64>,
    /// What remains of `found` in the record.
    list: Vec<Predecessor>,
    /// Something was cold, all or in part: it stands for the cold vector, which is joined late.
    cold: bool,
    /// Both vectors are all zero.
    untouched: bool,
    /// How many commands, one after the other, are replayed before what this one reads is there.
    depth: u64,
    /// Whether it was encoded as a command.
    command: bool,
    /// Its name, once it has a place.
    own: Id,
    scratch: Vec<u64>,
    ring: Ring,
}

/// A predecessor.
#[derive(Clone, Copy)]
struct Found {
    predecessor: Predecessor,
    /// Where in [`Taurus2016Txn::needs`] that is what it needs, beside what is cold.
    needs: usize,
}

impl Taurus2016 {
    /// Algorithm 1, with line 10 of algorithm 2: who wrote the row, and what that transaction needs.
    fn find(&self, row: &LastWriter, txn: &mut Taurus2016Txn, overwritten: bool) {
        let writer = row.writer.get();
        if writer == BUSY {
            // Under optimistic control, and the row's version will say so: see `Name`.
            return;
        }
        if writer == 0 {
            let found = self.table.fold(&row.vector, Into::Write(&mut txn.unnamed), &mut txn.ring);
            self.take_in(found, txn);
            return;
        }
        let predecessor = Predecessor { id: writer, overwritten };
        if txn.found.last().is_some_and(|last| last.predecessor == predecessor) {
            return;
        }
        let needs = txn.needs.len();
        txn.needs.resize(needs + self.lanes, 0);
        let found =
            self.table.fold(&row.vector, Into::Write(&mut txn.needs[needs..]), &mut txn.ring);
        if !row.writer.is_still(writer) {
            // The name of one and the needs of another: as above.
            txn.needs.truncate(needs);
            return;
        }
        self.take_in(found, txn);
        if found.warm && !overwritten {
            join(&mut txn.vector, &txn.needs[needs..]);
        }
        // A cold one is named for the sake of order alone.
        if found.warm || self.commands {
            txn.found.push(Found { predecessor, needs });
        }
    }

    fn take_in(&self, found: RowObservation, txn: &mut Taurus2016Txn) {
        txn.depth = txn.depth.max(found.replayed.unwrap_or(0));
        txn.cold |= found.cold;
        txn.untouched &= !found.warm;
    }

    /// Leaves out of what was found all that the record need not say, see the module.
    fn compress(&self, txn: &mut Taurus2016Txn, stream: usize, anchor: impl Fn(usize) -> Lsn) {
        let own_stream = if self.commands { usize::MAX } else { stream };
        txn.found.sort_unstable_by_key(|found| found.predecessor);
        txn.list.clear();
        // The same name may have been found twice, and as RAW, which stands first, and WAW.
        for same in txn.found.chunk_by(|a, b| a.predecessor.id == b.predecessor.id) {
            let predecessor = same[0].predecessor;
            let lacks = |found: &Found| {
                let needs = &txn.needs[found.needs..][..self.lanes];
                let lacks = |(lane, lsn): (usize, &Lsn)| *lsn > anchor(lane) && lane != own_stream;
                !found.predecessor.overwritten && needs.iter().enumerate().any(lacks)
            };
            let place = predecessors::end(predecessor.id);
            let orders = self.commands && place > anchor(predecessors::lane(predecessor.id));
            if orders || same.iter().any(lacks) {
                txn.list.push(predecessor);
            }
        }
    }
}

impl LoggingProtocol for Taurus2016 {
    type RowStamp = LastWriter;
    type TxnStamp = Taurus2016Txn;

    fn txn_stamp(&self) -> Taurus2016Txn {
        Taurus2016Txn {
            vector: vec![0; self.lanes],
            unnamed: vec![0; self.lanes],
            found: Vec::new(),
            list: Vec::new(),
            needs: Vec::new(),
            cold: false,
            untouched: true,
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

    fn keep_house(&self) {
        self.anchoring.keep_house(&self.table, |_| {});
    }

    #[inline]
    fn begin(&self, txn: &mut Taurus2016Txn, _: RecordKind) {
        if !txn.untouched {
            txn.vector.fill(0);
            txn.unnamed.fill(0);
            txn.untouched = true;
        }
        txn.found.clear();
        txn.needs.clear();
        txn.cold = false;
        txn.depth = 0;
        txn.command = false;
        self.table.begin(&mut txn.ring);
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

    /// Algorithm 1, lines 4 and 5. Who learns whether the row was there, or logs only what changed of it, has
    /// read it (docs/protocols.md), so the predecessor is a RAW one; who does neither is taken for one who does.
    #[inline]
    fn observe_write(&self, row: &LastWriter, txn: &mut Taurus2016Txn) {
        self.find(row, txn, false);
    }

    fn lag(&self, txn: &Taurus2016Txn) -> u64 {
        txn.depth
    }

    /// Algorithm 2, line 4. The anchor is loaded before the frame is reserved.
    fn encode(&self, txn: &mut Taurus2016Txn, stream: usize, command: bool, out: &mut Vec<u8>) {
        if std::mem::take(&mut txn.cold) {
            self.table.join_cold(&mut txn.unnamed);
            txn.untouched = false;
        }
        txn.command = command;
        // Acquire: pairs with the Release of who appended the anchor, so that all that was reserved
        // before it was reserved, to this thread, before what comes now. Loaded once: a name may only be
        // left out below what the vector, with the same anchor, will say of its lane.
        let mut anchor = std::mem::take(&mut txn.scratch);
        for (lane, published) in anchor.iter_mut().zip(self.log.anchors(stream)) {
            *lane = published.load(Ordering::Acquire);
        }
        self.compress(txn, stream, |lane| anchor[lane]);
        if txn.list.len() > self.most_names {
            for predecessor in txn.list.drain(..) {
                let lane = predecessors::lane(predecessor.id);
                txn.unnamed[lane] = txn.unnamed[lane].max(predecessors::end(predecessor.id));
            }
            join(&mut txn.unnamed, &txn.vector);
            txn.untouched = false;
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
        txn.untouched = false;
        txn.own = predecessors::id(stream, end);
        txn.depth = if txn.command { txn.depth + 1 } else { 0 };
    }

    /// Algorithm 2, lines 1 to 3 and 13: only now the name is known.
    #[inline]
    fn publish_write(&self, row: &LastWriter, txn: &mut Taurus2016Txn) {
        row.writer.change();
        self.table.set_write(&row.vector, &txn.vector, txn.depth, &mut txn.ring);
        row.writer.set(txn.own);
    }

    /// Only gaps inherit, and rows that stand where a gap was and that nobody has written.
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
        if !txn.untouched {
            let frontier = self.log.frontier();
            for (lane, &lsn) in txn.vector.iter().enumerate() {
                if mutation::is(Mutation::AckBeforeOwnFrame) && own == Some((lane, lsn)) {
                    continue;
                }
                if lsn > 0 && lsn > frontier.durable(lane) {
                    needs.push((lane as u16, lsn));
                }
            }
        }
        debug_assert!(own.is_none_or(|(stream, end)| txn.vector[stream] == end));
    }
}

impl StartsOnLog for Taurus2016 {
    const NAME: &'static str = "taurus-2016";
    const VECTORS: bool = true;
    const PREDECESSORS: bool = true;

    /// After recovery all stamps are bottom: an incarnation is a barrier, and everything in earlier ones
    /// precedes everything to come.
    fn start(ground: &Ground<'_>) -> Self {
        let &Ground { log, settings, data_only, .. } = ground;
        Taurus2016 {
            log: log.clone(),
            lanes: log.streams(),
            commands: !data_only,
            // Half of a frame: the rest of it is for what else stands in a record's head.
            most_names: log.max_payload() / 2 / MOST_NAME_BYTES,
            table: LsnVectorTable::on(log, settings.hot_rows_bytes),
            anchoring: Anchoring::new(log, settings),
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use std::sync::Arc;

    /// A row of one version, whose writer 1 needs 10.
    struct Row {
        /// Even while it is not locked.
        word: AtomicU64,
        writer: Name,
        needs: AtomicU64,
    }

    /// As an optimistic writer commits.
    fn overwrite(row: &Row) {
        row.word.compare_exchange(0, 1, Ordering::SeqCst, Ordering::Relaxed).unwrap();
        row.writer.change();
        row.needs.store(20, Ordering::Relaxed);
        row.writer.set(2);
        row.word.store(2, Ordering::Release);
    }

    /// As an optimistic reader commits: the version that it read, and whom it names.
    fn read(row: &Row) -> Option<(u64, Option<(Id, u64)>)> {
        let seen = row.word.load(Ordering::Acquire);
        let name = row.writer.get();
        let needs = row.needs.load(Ordering::Relaxed);
        let found = (name != BUSY && row.writer.is_still(name)).then_some((name, needs));
        let is_valid = seen % 2 == 0 && row.word.load(Ordering::SeqCst) == seen;
        is_valid.then_some((seen, found))
    }

    #[test]
    fn a_valid_reader_names_the_writer_of_what_it_read() {
        loom::model(|| {
            let (word, needs) = (AtomicU64::new(0), AtomicU64::new(10));
            let row = Arc::new(Row { word, writer: Name::default(), needs });
            row.writer.set(1);
            let other = Arc::clone(&row);
            let writer = loom::thread::spawn(move || overwrite(&other));
            match read(&row) {
                None => {}
                Some((0, found)) => assert_eq!(found, Some((1, 10))),
                Some((_, found)) => assert_eq!(found, Some((2, 20))),
            }
            writer.join().unwrap();
        });
    }
}
