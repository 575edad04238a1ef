//! Logging protocols: the metadata that they keep for rows and transactions, and the rule for when
//! a transaction is acknowledged.
//!
//! Hooks are called in one order, which the concurrency control enforces: *observe under
//! protection; append before publish; publish before release.*
//!
//! A transaction is **pre-committed** once its writes are installed and its locks released,
//! **hardened** once its own frame is durable, and **acknowledged** once [`admits`] holds for it.

pub(crate) mod arrival;
pub(crate) mod counters;
pub(crate) mod determinism;
pub(crate) mod draft;
pub(crate) mod gsn;
pub(crate) mod lanes;
pub(crate) mod none;
pub(crate) mod outcomes;
pub(crate) mod partitioned;
pub(crate) mod physiological;
pub(crate) mod plover;
pub(crate) mod poplar;
pub(crate) mod predecessors;
pub(crate) mod record;
pub(crate) mod row_frame;
pub(crate) mod row_frames;
pub(crate) mod serial;
pub(crate) mod settings;
pub(crate) mod silo_r;
pub(crate) mod stamp_readers;
pub(crate) mod taurus;
pub(crate) mod taurus_2016;
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

/// What a protocol keeps of recently used rows, beside the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HotRows {
    /// The most rows that had a place at once.
    pub slots: u64,
    /// Memory of these places in bytes.
    pub bytes: u64,
}

/// A row, or a gap between rows, of which a protocol knows the stamp.
pub struct RowRef<'r, S> {
    pub stamp: &'r S,
    /// The table of a row; `None` for a gap.
    pub table: Option<u32>,
    /// The key of a row; empty for a gap.
    pub key: &'r [u8],
}

// Not derived: that would ask for a stamp that can be copied.
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

    /// The same row or gap, with a stamp that is part of its stamp.
    #[inline(always)]
    pub fn with_stamp<T>(self, stamp: &'r T) -> RowRef<'r, T> {
        RowRef { stamp, table: self.table, key: self.key }
    }
}

/// The hooks of a protocol into reading, writing and committing. The defaults do nothing: a
/// protocol without row stamps only has to state what its transactions need.
pub trait LoggingProtocol: Send + Sync + Sized + 'static {
    /// Whether readers stamp rows for data records too. If so, every transaction reserves its frame
    /// and calls `publish_read` before it validates, as commands always do.
    const TRACKS_READERS: bool = false;
    /// Whether a transaction writes a record to each stream whose rows it changed, with only these
    /// rows.
    const PARTITIONED: bool = false;
    /// Whether blind writes matter: then `observe_read` is called for every row that was read, also
    /// if it is overwritten. Otherwise an overwritten row counts as read.
    const TELLS_BLIND_WRITES: bool = false;
    /// Whether calls are logged before they run, and nothing else is: see [`Self::arrive`].
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
    /// Prefetches the stamp of a row that the transaction will observe when it commits.
    fn prefetch(&self, row: &Self::RowStamp) {
        let _ = row;
    }
    /// Called for a row or gap that the transaction has read, while it is protected or before it is
    /// validated. For rows it is called when they are read, or at commit; not for a row that the
    /// transaction overwrites, unless `TELLS_BLIND_WRITES`.
    fn observe_read(&self, row: &Self::RowStamp, txn: &mut Self::TxnStamp) {
        let _ = (row, txn);
    }
    /// Called for a row that the transaction overwrites, or a gap that it inserts into, under write
    /// protection. For rows it is called at commit, before `append`.
    fn observe_write(&self, row: &Self::RowStamp, txn: &mut Self::TxnStamp) {
        let _ = (row, txn);
    }

    /// How far replay of this transaction as a command would lag behind the rest of replay, in
    /// commands: a measure of how critical its path is.
    fn replay_lag(&self, txn: &Self::TxnStamp) -> u64 {
        let _ = txn;
        0
    }
    /// Called before `append` or `arrive`, for a transaction with an earlier one in its session's
    /// order that is not durable: the frontier may not admit it before it has reached `order`,
    /// which is what that one needs.
    fn follow(&self, txn: &mut Self::TxnStamp, order: &Needs);
    /// The order point: logs the transaction, which has its version, chosen while its write set is
    /// protected. Reserves its frame; the caller fills it. A protocol that draws a number and a
    /// position in one step holds a latch of the stream meanwhile; between the two nothing
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

    /// Logs a call that will access the partitions in `set`, before it runs: calls `enter`, which
    /// enters the queues of these partitions, and then `draft` with the call's version, so that no
    /// other call of one of them arrives in between. `None` if `enter` has returned false: nothing
    /// is logged then.
    fn arrive<'d, 'w: 'd, M: Stamp>(
        &self,
        txn: &mut Self::TxnStamp,
        set: u64,
        epoch: &Epoch,
        enter: impl FnOnce() -> bool,
        draft: impl FnOnce(Tid) -> Draft<'d, 'w, M>,
    ) -> Option<ArrivedPlace> {
        let _ = (txn, set, epoch, enter, draft);
        unreachable!("calls are logged when they commit")
    }
    /// Where calls are logged before they run: called for the partitions that a transaction holds
    /// which is not a call.
    fn observe_partitions(&self, set: u64, txn: &mut Self::TxnStamp) {
        let _ = (set, txn);
    }

    /// Stamps a row or gap with this reader: a command, unless `TRACKS_READERS`. Called after
    /// `append`, and before validation or under a lock.
    fn publish_read(&self, row: RowRef<'_, Self::RowStamp>, txn: &mut Self::TxnStamp) {
        let _ = (row, txn);
    }
    /// Stamps a row with this writer, before its write protection ends.
    fn publish_write(&self, row: RowRef<'_, Self::RowStamp>, txn: &mut Self::TxnStamp) {
        let _ = (row, txn);
    }
    /// Raises the stamp `to` to at least `from`: a leaf was split or merged, a key was inserted
    /// into a gap, or a tombstone was removed and left a gap.
    fn inherit(&self, to: &Self::RowStamp, from: &Self::RowStamp, txn: &mut Self::TxnStamp) {
        let _ = (to, from, txn);
    }

    /// Called for a transaction that gets no record, before `needs`: the highest version of the
    /// rows that it has read, [`Tid::NONE`] if there is none.
    fn observe_versions(&self, highest: Tid, txn: &mut Self::TxnStamp) {
        let _ = (highest, txn);
    }
    /// Called before the tombstone of a row that was deleted by this version is removed, or an
    /// index entry that this version of its row does not match. Transactions that find nothing
    /// there depend on the version: for protocols that do not keep that in stamps of gaps.
    fn removes(&self, version: Tid) {
        let _ = version;
    }

    /// Adds to `needs`, which is empty, what must be durable before the transaction is
    /// acknowledged: its own frame, if any, and all that it depends on.
    fn needs(&self, txn: &mut Self::TxnStamp, own: Option<(usize, Lsn)>, needs: &mut Needs);
}

/// A protocol that writes a log.
pub trait StartsOnLog: LoggingProtocol {
    /// Its name in the manifest.
    const NAME: &'static str;
    /// Whether its records carry vectors.
    const VECTORS: bool;
    /// How recovery reads the stamps of its records.
    const STAMPS: StampFormat = StampFormat::Empty;
    /// Whether its records also carry lists of predecessors.
    const PREDECESSORS: bool = false;
    /// If its records have numbers, and its streams state marks: the value of the setting
    /// [`hyades_wal::MARKS`].
    const MARKS: Option<&'static str> = None;
    /// The length of an epoch, unless [`LogSettings::epoch`] is set.
    const EPOCH: Duration = EPOCH;
    /// Whether changed rows go into frames of their own under these settings.
    fn rows(settings: &LogSettings) -> RowFrames {
        let _ = settings;
        RowFrames::None
    }
    /// What it keeps of recently used rows, for the metrics.
    fn hot_rows(&self) -> HotRows {
        HotRows::default()
    }
    /// Starts the protocol on a log that has just begun an incarnation.
    fn start(context: &StartContext<'_>) -> Self;
}

/// What a protocol needs to start.
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

/// The stamp of a record that has a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberStamp {
    pub number: u64,
    /// Where only transactions that have read need the common mark: whether this one has.
    pub has_read: Option<bool>,
    /// Whether this record is the one counted for its transaction: exactly one of several is.
    pub counts: bool,
    /// Where a transaction may have several records: the streams that have one.
    pub written: Option<u64>,
}

/// How recovery reads the stamps of a protocol's records. Each protocol's file has the reader
/// beside what writes them.
#[derive(Clone, Copy, Debug)]
pub enum StampFormat {
    /// Records have no stamps.
    Empty,
    Number {
        read: NumberReader,
        /// Reads the TID, where the stamp states it and the head does not.
        version: Option<VersionReader>,
    },
    Vectors {
        read: VectorReader,
        /// Leaves `stamp` behind the stamp; `None` where only `read` can tell its end.
        skip: Option<StampSkipper>,
    },
}

/// Reads the stamp of a record of version `tid`, and stores what the record needs in `needs`, by
/// frontier slot. `needs` is zeroed and as long as the frontier; its last slot is the common
/// mark (the lowest of all streams). `None` if the stamp is malformed.
pub type NumberReader = fn(tid: Tid, stamp: &mut &[u8], needs: &mut [Lsn]) -> Option<NumberStamp>;

/// Reads the TID of a record whose stamp, and what follows, is given.
pub type VersionReader = fn(stamp: &[u8]) -> Option<Tid>;

/// Reads the stamp of a record. The error says what is malformed.
pub type VectorReader =
    fn(kind: StampKind, stamp: &mut &[u8], out: VectorStamp<'_>) -> Result<(), &'static str>;

/// Leaves `stamp` behind a record's stamp; `None` if that is malformed.
pub type StampSkipper = fn(kind: StampKind, stamp: &mut &[u8]) -> Option<()>;

/// What decides which vectors a stamp has.
#[derive(Clone, Copy, Debug)]
pub struct StampKind {
    pub command: bool,
    /// Whether readers leave no stamps: the log may hold data records only, or replay keeps several
    /// versions of rows.
    pub unordered_readers: bool,
}

/// Where the vectors of a stamp go, by stream.
pub struct VectorStamp<'o> {
    /// The anchor in effect: components at or below it are left out of the stamp.
    pub anchor: &'o [Lsn],
    /// What the record needs to be live.
    pub validity: &'o mut [Lsn],
    /// What it must be replayed after.
    pub order: &'o mut [Lsn],
    pub predecessors: &'o mut Vec<Predecessor>,
    /// The slots of partitions that a call may access, where it was logged before it ran.
    pub slots: &'o mut Option<u64>,
    /// Outcomes of calls that were logged before they ran.
    pub outcomes: &'o mut Vec<StatedSum>,
}
