//! Declaration of a database before it is opened.

mod choices;
mod execution;

pub(crate) use choices::alternatives;
pub use choices::{Concurrency, Isolation, Protocol};

use crate::checkpoint::CheckpointSettings;
use crate::engine::snapshots::SnapshotSettings;
use crate::error::Abort;
use crate::logging::record::RecordKind;
use crate::logging::schemes::CONTROLS;
use crate::logging::settings::LogSettings;
use crate::recovery::plan::Replay;
use crate::recovery::report::Progress;
use crate::retry::RetrySettings;
use crate::storage::origin::Origin;
use crate::storage::partition::{Partitions, SLOTS};
use crate::storage::schema::Schema;
use crate::storage::sums::SUM_INDEX_BYTES;
use crate::transaction::access::{Table, Transaction};
use crate::transaction::procedure::{Procedure, ProcedureId};
use crate::typed::{TableRow, TypedTable};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Callback for the progress of recovery.
pub(crate) type Tell = dyn Fn(&Progress) + Send + Sync;

/// Declares a database and opens it, see [`crate::Database::builder`].
///
/// Declare the tables and procedures every time you open a directory. New tables, procedures and
/// versions of procedures may be added, and tables may be changed as [`Builder::table`] says.
///
/// ```
/// use hyades::{Concurrency, Database, Protocol, RecordKind, Schema, Transaction, Type};
/// # let temporary = tempfile::tempdir()?;
/// # let (dir, other) = (temporary.path().join("a"), temporary.path().join("b"));
/// let mut builder = Database::builder()
///     .protocol(Protocol::Taurus)
///     .concurrency(Concurrency::Silo)
///     .record(RecordKind::Adaptive)
///     .streams(8)
///     .log_dir(other) // a second directory, perhaps on another device
///     .on_progress(|progress| eprintln!("{} transactions", progress.records_done));
/// let schema = Schema::new("log").column("at_us", Type::I64).column("what", Type::Text);
/// let log = builder.table(schema);
/// builder.procedure("note", 1, move |tx: &Transaction<'_>, what: String| {
///     // Without a primary key a row gets a hidden id. The time is the same at replay.
///     tx.insert(log, &[tx.now_us().into(), what[..].into()])
/// });
/// let db = builder.open(dir)?;
/// let id: u64 = db.call("note", "began")?;
/// assert_eq!(db.streams(), 8);
/// # let _ = id;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct Builder {
    pub(crate) protocol: Protocol,
    pub(crate) concurrency: Option<Concurrency>,
    pub(crate) record: RecordKind,
    pub(crate) log: LogSettings,
    pub(crate) tables: Vec<Schema>,
    /// Names of tables to drop.
    pub(crate) dropped: Vec<String>,
    pub(crate) procedures: Vec<Procedure>,
    pub(crate) recovery_threads: usize,
    pub(crate) replay: Replay,
    pub(crate) progress: Option<Arc<Tell>>,
    pub(crate) checkpoints: CheckpointSettings,
    pub(crate) retries: RetrySettings,
    pub(crate) removed_limit: u64,
    pub(crate) isolation: Isolation,
    pub(crate) patience: u32,
    pub(crate) speculative_reads: bool,
    pub(crate) partitions: usize,
    pub(crate) snapshots: SnapshotSettings,
    pub(crate) posted_calls: usize,
    pub(crate) post_threads: Option<usize>,
    pub(crate) sites: Option<usize>,
    pub(crate) asynchronous: bool,
    pub(crate) session_order: bool,
    pub(crate) sum_index_bytes: usize,
    /// The origin of the returned handles.
    pub(crate) origin: Origin,
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            protocol: Protocol::default(),
            concurrency: None,
            record: RecordKind::Data,
            log: LogSettings::default(),
            tables: Vec::new(),
            dropped: Vec::new(),
            procedures: Vec::new(),
            recovery_threads: 0,
            replay: Replay::default(),
            progress: None,
            checkpoints: CheckpointSettings::default(),
            retries: RetrySettings::default(),
            removed_limit: 1 << 30,
            isolation: Isolation::default(),
            patience: 0,
            speculative_reads: false,
            partitions: SLOTS as usize,
            snapshots: SnapshotSettings::default(),
            posted_calls: 5000,
            post_threads: None,
            sites: None,
            asynchronous: false,
            session_order: false,
            sum_index_bytes: SUM_INDEX_BYTES,
            origin: Origin::draw(),
        }
    }
}

impl Builder {
    /// Sets the logging protocol. Default: [`Protocol::Taurus`].
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = protocol;
        self
    }

    /// Sets the concurrency control. The default is chosen when the database is opened:
    /// [`Concurrency::Hekaton`] for [`Isolation::Snapshot`], [`Concurrency::NoWait`] with
    /// [`Builder::patience`], and otherwise [`Concurrency::Silo`], or what the protocol, or
    /// [`Builder::sites`], needs.
    pub fn concurrency(mut self, concurrency: Concurrency) -> Self {
        self.concurrency = Some(concurrency);
        self
    }

    /// Sets how calls of procedures are logged, unless the procedure or the call says otherwise.
    /// Default: [`RecordKind::Data`]. Closures are always logged as data.
    pub fn record(mut self, record: RecordKind) -> Self {
        self.record = record;
        self
    }

    /// Sets the number of log streams, 1 to 64. Default: 4.
    pub fn streams(mut self, streams: usize) -> Self {
        self.log.streams = streams;
        self
    }

    /// Adds a log directory beside the directory given to [`Builder::open`]. Streams are placed in
    /// all directories in turn. All directories belong to the database: give them at each opening.
    pub fn log_dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.log.dirs.push(dir.as_ref().to_path_buf());
        self
    }

    /// Changes any settings of the log, see [`LogSettings`] for units, ranges and defaults.
    pub fn log_settings(mut self, change: impl FnOnce(&mut LogSettings)) -> Self {
        change(&mut self.log);
        self
    }

    /// Sets the number of recovery threads, at most 1,024. Default: 0, which means all cores.
    pub fn recovery_threads(mut self, threads: usize) -> Self {
        self.recovery_threads = threads;
        self
    }

    /// Sets how replay orders the records of a log that needs ordering (feature `research`).
    #[cfg(feature = "research")]
    pub fn replay(mut self, replay: Replay) -> Self {
        self.replay = replay;
        self
    }

    /// Sets whether a transaction under [`Concurrency::Hekaton`] reads rows that another
    /// transaction is about to commit, as in the paper (feature `research`). The transaction then
    /// depends on the commit: at its own end it waits for the outcome, and conflicts if the commit
    /// failed. Until then the transaction may have read what never was. Each commit copies the rows
    /// it writes. Default: false, a transaction waits at the read. Other concurrency controls have
    /// no speculative reads.
    #[cfg(feature = "research")]
    pub fn speculative_reads(mut self, speculates: bool) -> Self {
        self.speculative_reads = speculates;
        self
    }

    /// Sets a callback that is called a few times a second during recovery.
    pub fn on_progress(mut self, tell: impl Fn(&Progress) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(tell));
        self
    }

    /// Takes a checkpoint at this interval, 1 ms to a year, if anything was committed. Off by
    /// default.
    pub fn checkpoint_interval(mut self, interval: Duration) -> Self {
        self.checkpoints.interval = Some(interval);
        self
    }

    /// Takes checkpoints often enough that replaying the log, after loading the checkpoint's image,
    /// takes at most `bound`, 1 ms to a year. The estimate is based on the speed of the last
    /// replay. If the bound cannot be kept, [`crate::Database::checkpoints`] reports by how much
    /// and why. Off by default.
    pub fn max_recovery(mut self, bound: Duration) -> Self {
        self.checkpoints.max_recovery = Some(bound);
        self
    }

    /// Sets the share of all processors' time that writing a checkpoint may take, above 0 and at
    /// most 1. Default: 0.1.
    pub fn checkpoint_share(mut self, share: f64) -> Self {
        self.checkpoints.share = share;
        self
    }

    /// Changes any settings of checkpoints, see [`CheckpointSettings`].
    pub fn checkpoint_settings(mut self, change: impl FnOnce(&mut CheckpointSettings)) -> Self {
        change(&mut self.checkpoints);
        self
    }

    /// Sets how often and for how long a transaction is retried after conflicts. Default: as often
    /// as needed within 30 s; see [`RetrySettings`].
    pub fn retries(mut self, change: impl FnOnce(&mut RetrySettings)) -> Self {
        change(&mut self.retries);
        self
    }

    /// The concurrency control that was set, or is chosen by the other settings.
    pub(crate) fn control(&self) -> Concurrency {
        let by_partitions =
            self.sites.and_then(|_| CONTROLS.find(|control| control.has_partitions));
        let own_choice = match self.protocol {
            Protocol::Plugged(protocol) => protocol.control,
            Protocol::None | Protocol::Serial | Protocol::Taurus => None,
        };
        let own_choice = own_choice.or(by_partitions).map(Concurrency::Plugged);
        let chosen = || match (self.isolation, self.patience) {
            (Isolation::Snapshot, _) => Concurrency::Hekaton,
            (Isolation::Serializable, 1..) => Concurrency::NoWait,
            (Isolation::Serializable, 0) => own_choice.unwrap_or_default(),
        };
        self.concurrency.unwrap_or_else(chosen)
    }

    /// Sets how many times a transaction under [`Concurrency::NoWait`] retries a lock held by
    /// another transaction before a conflict. A retry takes some nanoseconds; from time to time
    /// the thread yields. Default: 0, as the name says. Worth some hundreds where many transactions
    /// write the same few rows after long work. Other concurrency controls have no use for
    /// patience. Transactions that wait for each other's locks end with their patience, and may
    /// meet again: keep [`RetrySettings::alone_after`].
    pub fn patience(mut self, looks: u32) -> Self {
        self.patience = looks;
        self
    }

    /// Sets the isolation of transactions. Default: [`Isolation::Serializable`], the only isolation
    /// of concurrency controls other than [`Concurrency::Hekaton`].
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// Sets how much memory older versions and deleted rows may take that snapshots, or readers
    /// under `Hekaton`, still need, and how old a snapshot may become. Default: 1 GiB, and any age;
    /// see [`SnapshotSettings`].
    pub fn snapshots(mut self, change: impl FnOnce(&mut SnapshotSettings)) -> Self {
        change(&mut self.snapshots);
        self
    }

    /// Declares a table. If the directory already has the table, its rows are kept, and the
    /// declaration may differ in:
    ///
    /// - new columns: [nullable](Schema::nullable) columns, or columns with a
    ///   [default](Schema::column_with_default), which existing rows get;
    /// - the order of the columns, which are matched by name;
    /// - secondary indexes that are new, or not declared any more.
    ///
    /// [`Builder::open`] then changes the table before it returns, which takes a checkpoint; see
    /// "Changing the schema" in docs/guide.md. Any other difference is an error of `open`.
    ///
    /// The handle is for the database opened by this builder.
    pub fn table(&mut self, schema: Schema) -> Table {
        self.tables.push(schema);
        Table::declared(self.tables.len() as u32 - 1, self.origin)
    }

    /// Declares the table described by the struct `R`. If the directory already has the table, the
    /// description may differ as [`Builder::table`] says: for example, the struct may have a new
    /// field that is an `Option` or has a default.
    pub fn table_of<R: TableRow>(&mut self) -> TypedTable<R> {
        TypedTable::of(self.table(R::schema()))
    }

    /// Drops a table and its rows when the database is opened. Has no effect if the directory has
    /// no such table, so the call may stay in the program.
    pub fn drop_table(&mut self, name: &str) {
        self.dropped.push(name.to_string());
    }

    /// Registers a procedure.
    ///
    /// The body must be deterministic: it takes time and randomness from its transaction alone,
    /// since replay may run the body again. The body passes on a conflict of an operation (with
    /// `?`), and may run several times for one transaction: after a conflict, and at recovery to
    /// find the rows to prefetch. Change `version` whenever the behaviour of the body changes.
    pub fn procedure<A, R, F>(&mut self, name: &str, version: u32, body: F) -> ProcedureId
    where
        A: DeserializeOwned,
        R: Serialize,
        F: Fn(&Transaction<'_>, A) -> Result<R, Abort> + Send + Sync + 'static,
    {
        self.add(Procedure::new(name, version, None, body))
    }

    /// Registers a procedure with its own record kind, which [`Builder::record`] does not change.
    pub fn procedure_recorded<A, R, F>(
        &mut self,
        name: &str,
        version: u32,
        record: RecordKind,
        body: F,
    ) -> ProcedureId
    where
        A: DeserializeOwned,
        R: Serialize,
        F: Fn(&Transaction<'_>, A) -> Result<R, Abort> + Send + Sync + 'static,
    {
        self.add(Procedure::new(name, version, Some(record), body))
    }

    /// Sets which partitions a procedure accesses, given the arguments; see [`Transaction::hold`].
    /// `A` is the type of the arguments, or a tuple of the first arguments. `partitions` is called
    /// before the body runs, where transactions take turns (`partitioned` in the crate
    /// `hyades-schemes`), and not when commands are replayed.
    ///
    /// ```
    /// use hyades::{Column, Database, Partitions, Schema, Transaction, Type};
    /// # let dir = tempfile::tempdir()?;
    /// # let dir = dir.path();
    /// const STOCK: Column<i64> = Column::at(2);
    /// let mut builder = Database::builder().concurrency(hyades_schemes::PARTITIONED);
    /// let schema = Schema::new("stock")
    ///     .column("shop", Type::I64)
    ///     .column("item", Type::I64)
    ///     .column("count", Type::I64)
    ///     .primary_key(&["shop", "item"])
    ///     .partition_by("shop");
    /// let stock = builder.table(schema);
    /// type Send = (i64, i64, i64);
    /// let send = builder.procedure("send", 1, move |tx: &Transaction<'_>, (from, to, n): Send| {
    ///     for (shop, n) in [(from, -n), (to, n)] {
    ///         let count = tx.get(stock, (shop, 5i64))?.map_or(0, |row| row.get(STOCK));
    ///         tx.upsert(stock, &[shop.into(), 5i64.into(), (count + n).into()])?;
    ///     }
    ///     Ok(())
    /// });
    /// builder.on(send, |(from, to): (i64, i64)| Partitions::of(from).with(to));
    /// let db = builder.open(dir)?;
    /// let mut session = db.session()?;
    /// session.call(send, &(1i64, 2i64, 10i64))?.1.wait()?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// If the procedure was not registered with this builder.
    pub fn on<A, F>(&mut self, procedure: ProcedureId, partitions: F)
    where
        A: DeserializeOwned,
        F: Fn(A) -> Partitions + Send + Sync + 'static,
    {
        assert!(procedure.origin == self.origin, "the procedure is another builder's");
        self.procedures[procedure.number as usize].state_partitions(partitions);
    }

    fn add(&mut self, procedure: Procedure) -> ProcedureId {
        self.procedures.push(procedure);
        ProcedureId { number: self.procedures.len() as u32 - 1, origin: self.origin }
    }
}
