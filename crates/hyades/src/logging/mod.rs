//! Logging protocols: the metadata that they keep for rows and transactions, and the rule for when
//! a transaction is acknowledged.
//!
//! Hooks are called in one order, which the concurrency control enforces: *observe under
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

/// **The acknowledgement rule.** A transaction that needs these positions is acknowledged by a
/// running database, and belongs to the recovered state after a crash, iff each of them is at or
/// below the frontier.
///
/// At run time the frontier is what the device has confirmed; at recovery it is the end of each
/// stream's valid prefix, which is never less. A protocol that numbers its records needs
/// *watermarks* (`mark` in the code), which streams state in the log: at run time the durable ones,
/// at recovery those in the valid prefixes, which again are never less. [`hyades_wal::Frontier`]
/// has a slot (`lane` in the code) for each of these. The rule is monotone in the frontier, hence
/// *acknowledged implies recovered*.
#[inline]
pub(crate) fn admits(
    frontier: impl Fn(usize) -> Lsn,
    needs: impl IntoIterator<Item = (usize, Lsn)>,
) -> bool {
    needs.into_iter().all(|(lane, lsn)| lsn <= frontier(lane))
}

/// The hooks of a protocol into reading, writing and committing. The defaults do nothing: a
/// protocol without row stamps only has to state what its transactions need.
pub(crate) trait LoggingProtocol: Send + Sync + Sized + 'static {
    /// Whether readers stamp rows for data records too. If so, every transaction reserves its frame
    /// and calls `publish_read` before it validates, as commands always do.
    const TRACKS_READERS: bool = false;
    /// Whether a transaction writes a record to each stream whose rows it changed, with only these
    /// rows.
    const PARTITIONED: bool = false;
    /// Logging metadata of a row, or of a gap between rows.
    type RowStamp: Default + Send + Sync + 'static;
    /// Logging metadata of a transaction; kept by the session and reused.
    type TxnStamp: Send;

    /// Creates the stamp of a session.
    fn txn_stamp(&self) -> Self::TxnStamp;
    /// Takes a session's stamp back when the session ends.
    fn end_session(&self, txn: Self::TxnStamp) {
        drop(txn);
    }
    /// Called before a session appends to `stream`, while it holds no lock and no reservation.
    fn enter_stream(&self, writer: &mut Writer, stream: usize) {
        let _ = (writer, stream);
    }
    /// Called now and then by busy sessions, while they hold no lock and no reservation.
    fn housekeep(&self) {}
    /// Called when a transaction begins. `record` is the requested kind; a command that is too long
    /// is logged as data.
    fn begin(&self, txn: &mut Self::TxnStamp, record: RecordKind) {
        let _ = (txn, record);
    }
    /// Called before every operation except a blind write.
    fn learns(&self, txn: &mut Self::TxnStamp) {
        let _ = txn;
    }

    /// Prefetches the stamp of a row that the transaction will observe when it commits.
    fn prefetch(&self, row: &Self::RowStamp) {
        let _ = row;
    }
    /// Called for a row or gap that the transaction has read, while it is protected or before it is
    /// validated. For rows it is called at commit.
    fn observe_read(&self, row: &Self::RowStamp, txn: &mut Self::TxnStamp) {
        let _ = (row, txn);
    }
    /// Called for a row that the transaction overwrites, or a gap that it inserts into, under write
    /// protection. For rows it is called at commit.
    fn observe_write(&self, row: &Self::RowStamp, txn: &mut Self::TxnStamp) {
        let _ = (row, txn);
    }

    /// Called before rows of the table are overwritten, under their write protection and before
    /// `encode`.
    fn overwrites(&self, table: u32, txn: &mut Self::TxnStamp) {
        let _ = (table, txn);
    }

    /// Whether changed rows go into frames of their own, ahead of the record.
    fn row_frames(&self) -> RowFrames {
        RowFrames::None
    }
    /// How far replay of this transaction as a command would lag behind the rest of replay, in
    /// commands: a measure of how critical its path is.
    fn replay_lag(&self, txn: &Self::TxnStamp) -> u64 {
        let _ = txn;
        0
    }
    /// Appends the stamp as stored in a frame of `stream`. Fixes whether the transaction is logged
    /// as a command or as data.
    fn encode(&self, txn: &mut Self::TxnStamp, stream: usize, command: bool, out: &mut Vec<u8>) {
        let _ = (txn, stream, command, out);
    }
    /// As `encode` of a command, if the stamp is a single byte: returns that byte. If it returns
    /// `None`, or the caller does not use the byte, `encode` follows.
    #[inline(always)]
    fn encode_in_a_byte(&self, txn: &mut Self::TxnStamp, stream: usize) -> Option<u8> {
        let _ = (txn, stream);
        None
    }
    /// The stream that logs changes of this row. Only where records are partitioned.
    fn partition(&self, table: u32, key: &[u8]) -> usize {
        let _ = (table, key);
        0
    }
    /// Called before the transaction writes to this row, whose changes go to stream `partition`,
    /// under write protection and before `encode`. Only where records are partitioned.
    fn touch(&self, row: &Self::RowStamp, txn: &mut Self::TxnStamp, partition: usize) {
        let _ = (row, txn, partition);
    }
    /// Called when the transaction has its version, chosen while its write set is protected. Before
    /// `encode`.
    fn versioned(&self, txn: &mut Self::TxnStamp, tid: u64) {
        let _ = (txn, tid);
    }
    /// Called right before the frame in `stream` is reserved; `place` follows at once. A protocol
    /// that draws a number and a position in one step holds a latch of the stream from here to
    /// there; nothing in between allocates or waits.
    fn draw(&self, txn: &mut Self::TxnStamp, stream: usize) {
        let _ = (txn, stream);
    }
    /// The order point: the transaction's own frame is reserved, and ends at `end` in `stream`.
    fn place(&self, txn: &mut Self::TxnStamp, stream: usize, end: Lsn) {
        let _ = (txn, stream, end);
    }
    /// Called after `place`: may overwrite the bytes that `encode` appended, in the same length.
    fn patch(&self, txn: &mut Self::TxnStamp, stamp: &mut [u8]) {
        let _ = (txn, stamp);
    }

    /// Whether this reader has to stamp rows of the table. Called after `place`, and before
    /// validation or under a lock.
    fn needs_read_stamp(&self, table: u32, txn: &Self::TxnStamp) -> bool {
        let _ = (table, txn);
        true
    }
    /// Stamps a row or gap with this reader: a command, unless `TRACKS_READERS`. Called before
    /// validation or under a lock.
    fn publish_read(&self, row: &Self::RowStamp, txn: &mut Self::TxnStamp) {
        let _ = (row, txn);
    }
    /// Stamps a row with this writer, before its write protection ends.
    fn publish_write(&self, row: &Self::RowStamp, txn: &mut Self::TxnStamp) {
        let _ = (row, txn);
    }
    /// Raises the stamp `to` to at least `from`: a leaf was split or merged, a key was inserted
    /// into a gap, or a tombstone was removed and left a gap.
    fn inherit(&self, to: &Self::RowStamp, from: &Self::RowStamp, txn: &mut Self::TxnStamp) {
        let _ = (to, from, txn);
    }

    /// The row versions and the transaction's view of them, in replays that keep several versions.
    #[inline]
    fn versions<'t>(&'t self, txn: &'t Self::TxnStamp) -> Option<(&'t Versions, &'t View)> {
        let _ = txn;
        None
    }

    /// Adds to `needs`, which is empty, what must be durable before the transaction is
    /// acknowledged: its own frame, if any, and all that it depends on.
    fn needs(&self, txn: &mut Self::TxnStamp, own: Option<(usize, Lsn)>, needs: &mut Needs);
}

/// A protocol that writes a log.
pub(crate) trait StartsOnLog: LoggingProtocol {
    /// Its name in the manifest.
    const NAME: &'static str;
    /// Whether its records carry vectors.
    const VECTORS: bool;
    /// Whether its records also carry lists of predecessors.
    const PREDECESSORS: bool = false;
    /// Whether its records have numbers, and its streams state watermarks.
    const MARKS: bool = false;
    /// The length of an epoch, unless [`LogSettings::epoch`] is set.
    const EPOCH: Duration = EPOCH;
    /// Whether changed rows go into frames of their own under these settings.
    fn rows(settings: &LogSettings) -> RowFrames {
        let _ = settings;
        RowFrames::None
    }
    /// Starts the protocol on a log that has just begun an incarnation.
    fn start(context: &StartContext<'_>) -> Self;
}

/// What a protocol needs to start.
pub(crate) struct StartContext<'g> {
    pub log: &'g Log,
    pub settings: &'g LogSettings,
    /// Whether the log will hold data records only.
    pub data_only: bool,
    pub epoch: &'g Arc<Epoch>,
    pub epoch_interval: Duration,
    /// Where sessions announce the epoch in which they commit.
    pub active: &'g Arc<ActiveEpochs>,
    /// The number of tables.
    pub tables: usize,
}

/// The stamp of a record that has a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NumberStamp {
    pub number: u64,
    /// Where only transactions that have read need the common watermark: whether this one has.
    pub has_read: Option<bool>,
    /// Whether this record is the one counted for its transaction: exactly one of several is.
    pub counts: bool,
}

/// Reads what `encode` and `patch` wrote in a record of version `tid`, and stores what the record
/// needs in `needs`, by frontier slot. `needs` is zeroed and as long as the frontier; its last slot
/// is the common watermark (the lowest of all streams). `None` if the stamp is malformed.
pub(crate) type StampReader =
    fn(tid: u64, stamp: &mut &[u8], needs: &mut [Lsn]) -> Option<NumberStamp>;
