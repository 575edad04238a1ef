//! Logging protocols: what rows and transactions remember, and when a transaction may be answered.
//!
//! The three hooks keep one discipline, which the concurrency control enforces: *observe under
//! protection; append before publish; publish before release.*
//!
//! A transaction is **pre-committed** once its writes are installed and its locks released,
//! **hardened** once its own frame is durable, and **acknowledged** once [`admits`] holds for it.

pub(crate) mod anchoring;
pub(crate) mod counters;
pub(crate) mod gsn;
pub(crate) mod lanes;
pub(crate) mod lsn_vector_table;
pub(crate) mod needs;
pub(crate) mod none;
pub(crate) mod physiological;
pub(crate) mod plover;
pub(crate) mod poplar;
pub(crate) mod predecessors;
pub(crate) mod record;
pub(crate) mod row_frame;
pub(crate) mod serial;
pub(crate) mod settings;
pub(crate) mod silo_r;
pub(crate) mod stamp_readers;
pub(crate) mod taurus;
pub(crate) mod taurus_2016;
pub(crate) mod unstamped;
pub(crate) mod unwritten;
pub(crate) mod versions;

use hyades_platform::active_epochs::ActiveEpochs;
use hyades_platform::epoch::Epoch;
use hyades_wal::{Log, Lsn, Writer};
pub(crate) use needs::Needs;
use record::RecordKind;
use row_frame::RowFrames;
use settings::{EPOCH, LogSettings};
use std::sync::Arc;
use std::time::Duration;
use versions::{Versions, View};

/// **The rule.** A transaction that needs these positions is acknowledged by a running database,
/// and is part of the recovered state of a crashed one, iff the frontier has reached them all.
///
/// At run time the frontier is what the device has confirmed; at recovery it is the end of each
/// stream's valid prefix, which is never less. A protocol that numbers its records needs *marks*, which
/// streams state in the log: at run time those that are durable, at recovery those that stand in the
/// valid prefixes, which again are never less ([`hyades_wal::Frontier`] has the lanes). The rule is monotone in the frontier, hence
/// *acknowledged implies recovered*.
#[inline]
pub(crate) fn admits(
    frontier: impl Fn(usize) -> Lsn,
    needs: impl IntoIterator<Item = (usize, Lsn)>,
) -> bool {
    needs.into_iter().all(|(lane, lsn)| lsn <= frontier(lane))
}

/// What a protocol adds to reading, writing and committing. Hooks that are not given do nothing: a
/// protocol whose rows remember nothing has only to say what its transactions need.
pub(crate) trait LoggingProtocol: Send + Sync + Sized + 'static {
    /// Whether rows remember those who read them before data records as well: then every transaction is
    /// reserved, and `publish_read` called, before it validates, as commands always are.
    const TRACKS_READERS: bool = false;
    /// Whether a transaction has a record in each stream whose rows it wrote, with these rows alone.
    const PARTITIONED: bool = false;
    /// What a row, or a gap between rows, remembers.
    type RowStamp: Default + Send + Sync + 'static;
    /// What a transaction accumulates; kept by the session and used again.
    type TxnStamp: Send;

    /// A session's stamp.
    fn txn_stamp(&self) -> Self::TxnStamp;
    /// Takes a session's stamp back when the session ends.
    fn end_session(&self, txn: Self::TxnStamp) {
        drop(txn);
    }
    /// A session is about to append to this stream; it holds nothing.
    fn enter_stream(&self, writer: &mut Writer, stream: usize) {
        let _ = (writer, stream);
    }
    /// Called now and then by busy sessions, which hold nothing then.
    fn keep_house(&self) {}
    /// A transaction begins, which is to be logged in this way, if nothing is in the way of it.
    fn begin(&self, txn: &mut Self::TxnStamp, record: RecordKind) {
        let _ = (txn, record);
    }
    /// The transaction is about to be told something about rows: by every operation but one that puts a row
    /// down whatever was there, and says nothing.
    fn learns(&self, txn: &mut Self::TxnStamp) {
        let _ = txn;
    }

    /// The transaction has come to a row, whose stamp it will observe when it commits.
    fn prefetch(&self, row: &Self::RowStamp) {
        let _ = row;
    }
    /// The transaction has read this row or gap, which is protected or will be validated. Of a row it is
    /// told when it commits.
    fn observe_read(&self, row: &Self::RowStamp, txn: &mut Self::TxnStamp) {
        let _ = (row, txn);
    }
    /// The transaction overwrites this row or fills this gap; it holds the write protection. Of a row it is
    /// told when it commits.
    fn observe_write(&self, row: &Self::RowStamp, txn: &mut Self::TxnStamp) {
        let _ = (row, txn);
    }

    /// The transaction is about to overwrite rows of the table; it holds their write protection. Before
    /// `encode`.
    fn overwrites(&self, table: u32, txn: &mut Self::TxnStamp) {
        let _ = (table, txn);
    }

    /// Whether changed rows go into frames of their own, ahead of the record.
    fn row_frames(&self) -> RowFrames {
        RowFrames::None
    }
    /// How far replay of this transaction as a command would come behind the replay of everything else,
    /// in commands: how much it is on the critical path.
    fn lag(&self, txn: &Self::TxnStamp) -> u64 {
        let _ = txn;
        0
    }
    /// Appends the stamp as it stands in a frame of `stream`. From here on the transaction is logged
    /// as a command, or as data.
    fn encode(&self, txn: &mut Self::TxnStamp, stream: usize, command: bool, out: &mut Vec<u8>) {
        let _ = (txn, stream, command, out);
    }
    /// As `encode` of a command, where its stamp is a single byte: this one. If it is not, or the byte is not used,
    /// `encode` follows.
    #[inline(always)]
    fn encode_in_a_byte(&self, txn: &mut Self::TxnStamp, stream: usize) -> Option<u8> {
        let _ = (txn, stream);
        None
    }
    /// Where records are partitioned: the stream that this row's changes go to.
    fn partition(&self, table: u32, key: &[u8]) -> usize {
        let _ = (table, key);
        0
    }
    /// Where records are partitioned: the transaction is about to write to this row, whose changes go to
    /// stream `partition`. It holds the write protection. Before `encode`.
    fn touch(&self, row: &Self::RowStamp, txn: &mut Self::TxnStamp, partition: usize) {
        let _ = (row, txn, partition);
    }
    /// The transaction has its version, chosen while its write set is protected. Before `encode`.
    fn versioned(&self, txn: &mut Self::TxnStamp, tid: u64) {
        let _ = (txn, tid);
    }
    /// The frame is about to be reserved in `stream`, and `place` follows at once. A protocol that draws
    /// a number and a place in one step holds a latch of the stream from here to there; nothing in
    /// between allocates, or waits.
    fn draw(&self, txn: &mut Self::TxnStamp, stream: usize) {
        let _ = (txn, stream);
    }
    /// The order point: the transaction's own frame ends at `end` in `stream`.
    fn place(&self, txn: &mut Self::TxnStamp, stream: usize, end: Lsn) {
        let _ = (txn, stream, end);
    }
    /// After `place`: what `encode` had put into the payload may be written anew, in the same length.
    fn patch(&self, txn: &mut Self::TxnStamp, stamp: &mut [u8]) {
        let _ = (txn, stamp);
    }

    /// Whether rows of the table have to remember this reader: after `place`, before validation, or under
    /// a lock.
    fn has_to_remember(&self, table: u32, txn: &Self::TxnStamp) -> bool {
        let _ = (table, txn);
        true
    }
    /// The row or gap remembers this reader, a command unless all readers are remembered. Before
    /// validation, or under a lock.
    fn publish_read(&self, row: &Self::RowStamp, txn: &mut Self::TxnStamp) {
        let _ = (row, txn);
    }
    /// The row remembers this writer. Before its write protection ends.
    fn publish_write(&self, row: &Self::RowStamp, txn: &mut Self::TxnStamp) {
        let _ = (row, txn);
    }
    /// `to` must be at least what `from` is: a leaf was split or merged, a key was put into a gap, a
    /// tombstone left one.
    fn inherit(&self, to: &Self::RowStamp, from: &Self::RowStamp, txn: &mut Self::TxnStamp) {
        let _ = (to, from, txn);
    }

    /// Where rows have several versions, and which of them the transaction sees: some replays.
    #[inline]
    fn versions<'t>(&'t self, txn: &'t Self::TxnStamp) -> Option<(&'t Versions, &'t View)> {
        let _ = txn;
        None
    }

    /// Puts into `needs`, which is empty, what must be durable before the transaction is answered: its own
    /// frame, if it has one, and all that it depends on.
    fn needs(&self, txn: &mut Self::TxnStamp, own: Option<(usize, Lsn)>, needs: &mut Needs);
}

/// A protocol that has a log to start on.
pub(crate) trait StartsOnLog: LoggingProtocol {
    /// Its name in the manifest.
    const NAME: &'static str;
    /// Whether its records carry vectors.
    const VECTORS: bool;
    /// Whether they carry lists of predecessors beside these.
    const PREDECESSORS: bool = false;
    /// Whether its records have numbers, and its streams state marks.
    const MARKS: bool = false;
    /// How long an epoch is unless [`LogSettings::epoch`] says otherwise.
    const EPOCH: Duration = EPOCH;
    /// Whether changed rows go into frames of their own under these settings.
    fn rows(settings: &LogSettings) -> RowFrames {
        let _ = settings;
        RowFrames::None
    }
    /// Starts on a log that has just begun an incarnation.
    fn start(ground: &Ground<'_>) -> Self;
}

/// What a protocol starts on.
pub(crate) struct Ground<'g> {
    pub log: &'g Log,
    pub settings: &'g LogSettings,
    /// The log will hold no commands.
    pub data_only: bool,
    pub epoch: &'g Arc<Epoch>,
    pub epoch_interval: Duration,
    /// Where sessions say in which epoch they commit.
    pub active: &'g Arc<ActiveEpochs>,
    /// How many tables there are.
    pub tables: usize,
}

/// What a record says of itself where records have numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NumberStamp {
    pub number: u64,
    /// Where only transactions that have read need the common mark: whether this one has.
    pub has_read: Option<bool>,
    /// Whether it is the record by which the transaction is counted: of several, one is.
    pub counts: bool,
}

/// Reads what a protocol's `encode` and `patch` wrote in a record of version `tid`, and puts down what
/// the record needs by lane: `needs` is zero, and has a lane for each of the frontier's; the last is
/// the common mark. None if it cannot be read.
pub(crate) type StampReader =
    fn(tid: u64, stamp: &mut &[u8], needs: &mut [Lsn]) -> Option<NumberStamp>;
