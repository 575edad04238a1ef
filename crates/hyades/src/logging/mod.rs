//! Logging protocols: their metadata of rows and transactions, and the rule for when a transaction
//! is acknowledged.
//!
//! The concurrency control enforces the order of the hooks: *observe under protection; append
//! before publish; publish before release.*
//!
//! A transaction is **pre-committed** once its writes are installed and its locks released,
//! **hardened** once its own frame is durable, and **acknowledged** once [`admits`] holds for the
//! transaction.

pub(crate) mod determinism;
pub(crate) mod draft;
pub(crate) mod lanes;
pub(crate) mod none;
pub(crate) mod outcomes;
pub(crate) mod partitioned;
pub(crate) mod predecessors;
pub(crate) mod record;
pub(crate) mod row_frame;
pub(crate) mod row_frames;
pub(crate) mod schemes;
pub(crate) mod serial;
pub(crate) mod settings;
pub(crate) mod stamp_readers;
pub(crate) mod taurus;
pub(crate) mod unstamped;
pub(crate) mod versions;
pub(crate) mod write;

use crate::storage::Stamp;
use crate::storage::record::Record;
use crate::storage::tid::Tid;
use draft::{ArrivedPlace, Draft, Reserved};
use hyades_platform::active_epochs::ActiveEpochs;
use hyades_platform::epoch::Epoch;
use hyades_wal::{Log, Lsn, Writer};
pub(crate) use hyades_wal::{Needs, admits, is_met};
use outcomes::StatedSum;
use predecessors::Predecessor;
use record::RecordKind;
use row_frame::RowFrames;
use settings::{EPOCH, LogSettings};
use std::sync::Arc;
use std::time::Duration;

/// A protocol's data about recently used rows, kept beside the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HotRows {
    /// The most rows that had a place at once.
    pub slots: u64,
    /// Memory of the places in bytes.
    pub bytes: u64,
}

/// A row, or a gap between rows, together with the stamp.
pub struct RowRef<'r, S> {
    pub stamp: &'r S,
    /// The table of a row; `None` for a gap.
    pub table: Option<u32>,
    /// The key of a row; empty for a gap.
    pub key: &'r [u8],
}

// Not derived: a derived `Clone` would require a stamp that can be copied.
impl<S> Clone for RowRef<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for RowRef<'_, S> {}

impl<'r, S> RowRef<'r, S> {
    #[inline(always)]
    pub fn row(table: u32, record: &'r Record<S>) -> Self {
        RowRef { stamp: &record.stamp, table: Some(table), key: record.key() }
    }

    #[inline(always)]
    pub fn gap(stamp: &'r S) -> Self {
        RowRef { stamp, table: None, key: &[] }
    }

    /// Returns the same row or gap, with a part of its stamp as the stamp.
    #[inline(always)]
    pub fn with_stamp<T>(self, stamp: &'r T) -> RowRef<'r, T> {
        RowRef { stamp, table: self.table, key: self.key }
    }
}

/// The hooks of a protocol into reading, writing and committing. The defaults do nothing: a
/// protocol without row stamps only has to state the needs of its transactions.
pub trait LoggingProtocol: Send + Sync + Sized + 'static {
    /// Whether readers stamp rows for data records too. If so, every transaction reserves its frame
    /// and calls `publish_read` before validation, as commands always do.
    const TRACKS_READERS: bool = false;
    /// Whether a transaction writes a record to each stream of its changed rows, with only the rows
    /// of the stream.
    const PARTITIONED: bool = false;
    /// Whether blind writes matter: then `observe_read` is called for every row that was read, also
    /// for an overwritten row. Otherwise an overwritten row counts as read.
    const TELLS_BLIND_WRITES: bool = false;
    /// Whether calls are logged before execution, and nothing else is logged: see [`Self::arrive`].
    const LOGS_FIRST: bool = false;
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
    /// Called before a session appends to `stream`, while the session holds no lock and no
    /// reservation.
    fn enter_stream(&self, writer: &mut Writer, stream: usize) {
        let _ = (writer, stream);
    }
    /// Called now and then by busy sessions that hold no lock and no reservation.
    fn housekeep(&self) {}
    /// Called when a transaction begins. `record` is the requested kind; an overlong command is
    /// logged as data.
    fn begin(&self, txn: &mut Self::TxnStamp, record: RecordKind) {
        let _ = (txn, record);
    }
    /// Prefetches the stamp of a row that the transaction will observe at commit.
    fn prefetch(&self, row: &Self::RowStamp) {
        let _ = row;
    }
    /// Called for a row or gap that the transaction has read, during its protection or before its
    /// validation. The call for a row is at the read or at commit; an overwritten row gets no call,
    /// unless `TELLS_BLIND_WRITES`.
    fn observe_read(&self, row: &Self::RowStamp, txn: &mut Self::TxnStamp) {
        let _ = (row, txn);
    }
    /// Called for a row that the transaction overwrites, or a gap that receives an insert, under
    /// write protection. The call for a row is at commit, before `append`.
    fn observe_write(&self, row: &Self::RowStamp, txn: &mut Self::TxnStamp) {
        let _ = (row, txn);
    }

    /// Returns the lag of this transaction, if replayed as a command, behind the rest of replay, in
    /// commands: a measure of how critical its path is.
    fn replay_lag(&self, txn: &Self::TxnStamp) -> u64 {
        let _ = txn;
        0
    }
    /// Called before `append` or `arrive` if an earlier transaction in the session's order is not
    /// durable: the frontier may not admit `txn` before the frontier has reached `order`, the needs
    /// of the earlier transaction.
    fn follow(&self, txn: &mut Self::TxnStamp, order: &Needs);
    /// The order point: logs the transaction, which has a version, chosen while the write set is
    /// protected. Reserves the frame; the caller fills the frame. A protocol that draws a number
    /// and a position in one step holds a latch of the stream meanwhile; between the two nothing
    /// allocates or waits. Called only where there is a log.
    #[inline]
    fn append<'w, M: Stamp>(
        &self,
        txn: &mut Self::TxnStamp,
        draft: Draft<'_, 'w, M>,
    ) -> Reserved<'w> {
        let _ = txn;
        draft.compose(|_| ()).reserve()
    }

    /// Logs a call to the partitions in `set` before execution: draws the call's version, calls
    /// `enter`, which enters the queues of the partitions, and then `draft`, so that no other call
    /// to one of the partitions arrives in between. Neither waits for the log. Returns `None`, and
    /// logs nothing, if `enter` has returned false.
    fn arrive<'d, 'w: 'd, M: Stamp>(
        &self,
        txn: &mut Self::TxnStamp,
        set: u64,
        epoch: &Epoch,
        enter: impl FnOnce(Tid) -> bool,
        draft: impl FnOnce(Tid) -> Draft<'d, 'w, M>,
    ) -> Option<ArrivedPlace> {
        let _ = (txn, set, epoch, enter, draft);
        unreachable!("calls are logged when they commit")
    }
    /// Called for the partitions held by a transaction that is not a call, where calls are logged
    /// before execution.
    fn observe_partitions(&self, set: u64, txn: &mut Self::TxnStamp) {
        let _ = (set, txn);
    }

    /// Stamps a row or gap with the reader: a command, unless `TRACKS_READERS`. Called after
    /// `append`, and before validation or under a lock.
    fn publish_read(&self, row: RowRef<'_, Self::RowStamp>, txn: &mut Self::TxnStamp) {
        let _ = (row, txn);
    }
    /// Stamps a row with the writer, before the row's write protection ends.
    fn publish_write(&self, row: RowRef<'_, Self::RowStamp>, txn: &mut Self::TxnStamp) {
        let _ = (row, txn);
    }
    /// Raises the stamp `to` to at least `from`: a leaf was split or merged, a key was inserted
    /// into a gap, or a tombstone was removed and left a gap.
    fn inherit(&self, to: &Self::RowStamp, from: &Self::RowStamp, txn: &mut Self::TxnStamp) {
        let _ = (to, from, txn);
    }

    /// Called before `needs` for a transaction without a record: `highest` is the highest version
    /// of the rows read, [`Tid::NONE`] if there is none.
    fn observe_versions(&self, highest: Tid, txn: &mut Self::TxnStamp) {
        let _ = (highest, txn);
    }
    /// Called before the removal of the tombstone of a row that was deleted by `version`, or of an
    /// index entry that does not match `version` of its row. Transactions that find nothing there
    /// depend on `version`: for protocols that do not keep the dependency in stamps of gaps.
    fn removes(&self, version: Tid) {
        let _ = version;
    }

    /// Adds to the empty `needs` everything that must be durable before the acknowledgement of the
    /// transaction: its own frame, if any, and all its dependencies.
    fn needs(&self, txn: &mut Self::TxnStamp, own: Option<(usize, Lsn)>, needs: &mut Needs);
}

/// A protocol that writes a log.
pub trait StartsOnLog: LoggingProtocol {
    /// The protocol's name in the manifest.
    const NAME: &'static str;
    /// Whether records carry vectors.
    const VECTORS: bool;
    /// How recovery reads the stamps of the records.
    const STAMPS: StampFormat = StampFormat::Empty;
    /// Whether records also carry lists of predecessors.
    const PREDECESSORS: bool = false;
    /// The value of the setting [`hyades_wal::MARKS`], if records have numbers and streams state
    /// marks.
    const MARKS: Option<&'static str> = None;
    /// The length of an epoch, unless [`LogSettings::epoch`] is set.
    const EPOCH: Duration = EPOCH;
    /// Whether changed rows go into separate frames under `settings`.
    fn rows(settings: &LogSettings) -> RowFrames {
        let _ = settings;
        RowFrames::None
    }
    /// Returns the protocol's data about recently used rows, for the metrics.
    fn hot_rows(&self) -> HotRows {
        HotRows::default()
    }
    /// Starts the protocol on a log that has just begun an incarnation.
    fn start(context: &StartContext<'_>) -> Self;
}

/// The context for the start of a protocol.
pub struct StartContext<'g> {
    pub log: &'g Log,
    pub settings: &'g LogSettings,
    /// Whether the log will hold data records only.
    pub data_only: bool,
    /// Whether commands are replayed on several versions of rows: then no reader needs to precede
    /// later writers at replay, and readers leave no stamps.
    pub replays_versions: bool,
    pub epoch: &'g Arc<Epoch>,
    pub epoch_interval: Duration,
    /// Where sessions announce the epoch in which they commit.
    pub active: &'g Arc<ActiveEpochs>,
    /// The number of tables.
    pub tables: usize,
    /// The number of partitions, where transactions take turns.
    pub partitions: usize,
}

/// The stamp of a record with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberStamp {
    pub number: u64,
    /// Whether the transaction has read, where only transactions with reads need the common mark.
    pub has_read: Option<bool>,
    /// Whether this record counts for its transaction: exactly one of several records does.
    pub counts: bool,
    /// The streams with a record of the transaction, where a transaction may have several records.
    pub written: Option<u64>,
}

/// How recovery reads the stamps of a protocol's records. Each protocol's file has the reader
/// beside the writer of stamps.
#[derive(Clone, Copy, Debug)]
pub enum StampFormat {
    /// Records have no stamps.
    Empty,
    Number {
        read: NumberReader,
        /// Reads the TID, where the stamp states the TID and the head does not.
        version: Option<VersionReader>,
    },
    Vectors {
        read: VectorReader,
        /// Advances `stamp` past the stamp; `None` where only `read` can tell the end.
        skip: Option<StampSkipper>,
    },
}

/// Reads the stamp of a record of version `tid`, and stores the record's needs in `needs`, by
/// frontier slot. `needs` is zeroed and as long as the frontier; the last slot is the common mark
/// (the lowest of all streams). `None` if the stamp is malformed.
pub type NumberReader = fn(tid: Tid, stamp: &mut &[u8], needs: &mut [Lsn]) -> Option<NumberStamp>;

/// Reads the TID of a record, from the stamp and the bytes after the stamp.
pub type VersionReader = fn(stamp: &[u8]) -> Option<Tid>;

/// Reads the stamp of a record. The error names the malformed part.
pub type VectorReader =
    fn(kind: StampKind, stamp: &mut &[u8], out: VectorStamp<'_>) -> Result<(), &'static str>;

/// Advances `stamp` past a record's stamp; `None` if the stamp is malformed.
pub type StampSkipper = fn(kind: StampKind, stamp: &mut &[u8]) -> Option<()>;

/// The properties that decide the vectors of a record's stamp.
#[derive(Clone, Copy, Debug)]
pub struct StampKind {
    pub command: bool,
    /// Whether readers leave no stamps: the log may hold data records only, or replay keeps several
    /// versions of rows.
    pub unordered_readers: bool,
}

/// Where the vectors of a stamp go, by stream.
pub struct VectorStamp<'o> {
    /// The anchor in effect: components at or below the anchor are left out of the stamp.
    pub anchor: &'o [Lsn],
    /// The positions that the record needs to be live.
    pub validity: &'o mut [Lsn],
    /// The positions after which the record must be replayed.
    pub order: &'o mut [Lsn],
    pub predecessors: &'o mut Vec<Predecessor>,
    /// The slots of partitions that a call may access, if the call was logged before execution.
    pub slots: &'o mut Option<u64>,
    /// Outcomes of calls that were logged before execution.
    pub outcomes: &'o mut Vec<StatedSum>,
}
