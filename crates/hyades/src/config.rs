//! Declaration of a database before it is opened.

mod execution;

use crate::checkpoint::CheckpointSettings;
use crate::engine::snapshots::SnapshotSettings;
use crate::error::Abort;
use crate::logging::record::RecordKind;
use crate::logging::settings::LogSettings;
use crate::recovery::plan::Replay;
use crate::recovery::report::Progress;
use crate::retry::RetrySettings;
use crate::storage::origin::Origin;
use crate::storage::partition::{Partitions, SLOTS};
use crate::storage::schema::Schema;
use crate::transaction::access::{Table, Transaction};
use crate::transaction::procedure::{Procedure, ProcedureId};
use crate::typed::{TableRow, TypedTable};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Logging protocol: how transactions are logged, and how the log orders them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Protocol {
    /// No log: nothing survives a restart. The baseline for comparisons.
    None,
    /// One stream, replayed in its order.
    Serial,
    /// Parallel streams with LSN vectors (Xia et al., VLDB 2020), as corrected in
    /// docs/protocols.
    #[default]
    Taurus,
    /// Parallel streams with lists of predecessors: Taurus as in its first report (Yu et al.,
    /// 2016), as corrected in docs/protocols. A blind write ([`Transaction::overwrite`]) waits for
    /// no earlier writer of its row.
    Taurus2016,
    /// Parallel streams, acknowledged by epochs (Zheng, Tu, Kohler, Liskov, OSDI 2014). Data
    /// records only.
    SiloR,
    /// Parallel streams with a global sequence number (Wang, Johnson, PVLDB 2014). Data records
    /// only.
    Gsn,
    /// One stream, with before- and after-images row by row (Malviya et al., ICDE 2014, section
    /// IV). Data records only.
    Physiological,
    /// Parallel streams, each with the changes of one partition of the rows (Zhou et al., 2020).
    /// Data records only.
    Plover,
    /// Parallel streams with scalable sequence numbers (Zhou et al., 2019): transactions of blind
    /// writes only ([`Transaction::overwrite`]) wait for their own stream alone, all other
    /// transactions until every stream has passed their number. Data records only.
    Poplar,
    /// Parallel streams of commands logged before they run (Malviya et al., ICDE 2014, section
    /// III), as changed in docs/protocols. Closures only read, and procedures state their
    /// partitions ([`Builder::on`]). Under [`Concurrency::Partitioned`] alone.
    Arrival,
}

impl Protocol {
    /// Returns the protocol's name, as in manifests and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::None => "none",
            Protocol::Serial => "serial",
            Protocol::Taurus => "taurus",
            Protocol::Taurus2016 => "taurus-2016",
            Protocol::SiloR => "silo-r",
            Protocol::Gsn => "gsn",
            Protocol::Physiological => "physiological",
            Protocol::Plover => "plover",
            Protocol::Poplar => "poplar",
            Protocol::Arrival => "arrival",
        }
    }

    /// Returns the protocol with this name in a manifest.
    pub(crate) fn named(name: &str) -> Option<Protocol> {
        match name {
            "serial" => Some(Protocol::Serial),
            "taurus" => Some(Protocol::Taurus),
            "taurus-2016" => Some(Protocol::Taurus2016),
            "silo-r" => Some(Protocol::SiloR),
            "gsn" => Some(Protocol::Gsn),
            "physiological" => Some(Protocol::Physiological),
            "plover" => Some(Protocol::Plover),
            "poplar" => Some(Protocol::Poplar),
            "arrival" => Some(Protocol::Arrival),
            _ => None,
        }
    }
}

/// Concurrency control: how transactions are kept serializable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Concurrency {
    /// Two-phase locking that aborts instead of waiting.
    NoWait,
    /// Optimistic: transactions are validated at commit (Tu et al., SOSP 2013).
    #[default]
    Silo,
    /// Optimistic, with timestamps: a transaction may commit although its reads were overwritten
    /// meanwhile, as of a time before the overwriting (Yu et al., SIGMOD 2016). Histories are
    /// serializable and agree with the order of each [`Session`](crate::Session), but within an
    /// epoch not always with real time between sessions; calls of a [`Database`](crate::Database)
    /// take any free session. Runs under the protocols of [`Concurrency::runs_under`].
    TicToc,
    /// Multi-version: a transaction reads as of its beginning, beside any writers, and of two
    /// writers of a row the first wins (Larson et al., PVLDB 5(4), 2011, the optimistic scheme). A
    /// transaction without writes conflicts only where a writer is held up in its commit, or if
    /// older versions take more memory than [`Builder::snapshots`] allows. See [`Isolation`]. While
    /// a transaction is open, rows deleted since its beginning stay in memory. Runs under the
    /// protocols of [`Concurrency::runs_under`].
    Hekaton,
    /// Multi-version timestamp order, as in Deuteronomy (Levandoski et al., CIDR 2015): a
    /// transaction gets its place in the serial order at its beginning, reads as of the place, and
    /// conflicts if a later transaction has read or written a row before the transaction writes the
    /// row. Nothing is validated at commit. A transaction with writes also conflicts if a
    /// checkpoint or a snapshot is begun during its run, even by itself. Older versions and deleted
    /// rows are kept as under [`Concurrency::Hekaton`]. Runs under the protocols of
    /// [`Concurrency::runs_under`].
    TimestampOrder,
    /// The transactions of a partition run one after the other, from beginning to end (Kallman et
    /// al., PVLDB 1(2), 2008): nothing is validated, and transactions lock only rows that the
    /// removal of garbage may change: rows inserted or found absent, and rows of tables with
    /// secondary indexes on writing. Tables declare their partitions ([`Schema::partition_by`],
    /// [`Schema::replicated`]), procedures and transactions may state theirs ([`Builder::on`],
    /// [`Transaction::hold`]). While a transaction runs, transactions that need one of its
    /// partitions wait, without a bound: a body that waits for a thread in need of one of the
    /// body's partitions waits for ever. Inside a transaction of another database, and in
    /// [`Session::attempt`](crate::Session::attempt), a transaction conflicts instead of waiting. A
    /// transaction that reads all partitions and writes nothing reads a snapshot. Runs under the
    /// protocols of [`Concurrency::runs_under`].
    Partitioned,
}

/// The protection of transactions with writes, see [`Builder::isolation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Isolation {
    /// Full: there is an order in which the transactions could have run one at a time.
    #[default]
    Serializable,
    /// A transaction reads as of its beginning, and the rows that it writes have not been
    /// overwritten since. The transaction may commit although its reads were overwritten meanwhile:
    /// two transactions that read the same rows and each write a different row of them may both
    /// commit (write skew), which breaks a rule over several rows. Primary keys and unique indexes
    /// stay unique. Under [`Concurrency::Hekaton`].
    Snapshot,
}

impl Concurrency {
    /// Returns the name of the concurrency control, as in manifests and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Concurrency::NoWait => "no-wait",
            Concurrency::Silo => "silo",
            Concurrency::TicToc => "tictoc",
            Concurrency::Hekaton => "hekaton",
            Concurrency::TimestampOrder => "timestamp-order",
            Concurrency::Partitioned => "partitioned",
        }
    }

    /// Whether the transactions of a partition run one after the other.
    pub(crate) fn has_partitions(self) -> bool {
        self == Concurrency::Partitioned
    }

    /// Returns the concurrency control with this name.
    pub(crate) fn named(name: &str) -> Option<Concurrency> {
        Concurrency::all().find(|control| control.name() == name)
    }
}

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
    pub(crate) partitions: usize,
    pub(crate) snapshots: SnapshotSettings,
    pub(crate) posted_calls: usize,
    pub(crate) post_threads: Option<usize>,
    pub(crate) sites: Option<usize>,
    pub(crate) asynchronous: bool,
    pub(crate) session_order: bool,
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
            partitions: SLOTS as usize,
            snapshots: SnapshotSettings::default(),
            posted_calls: 5000,
            post_threads: None,
            sites: None,
            asynchronous: false,
            session_order: false,
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
    /// [`Builder::patience`], [`Concurrency::Partitioned`] for [`Protocol::Arrival`] and with
    /// [`Builder::sites`], and otherwise [`Concurrency::Silo`].
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
        let by_partitions = self.protocol == Protocol::Arrival || self.sites.is_some();
        let chosen = || match (self.isolation, self.patience) {
            (Isolation::Snapshot, _) => Concurrency::Hekaton,
            (Isolation::Serializable, 1..) => Concurrency::NoWait,
            (Isolation::Serializable, 0) if by_partitions => Concurrency::Partitioned,
            (Isolation::Serializable, 0) => Concurrency::default(),
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
    /// [`Session::call_recorded`](crate::Session::call_recorded) overrides both.
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
    /// `A` is the type of the arguments, or a tuple of the first arguments. Only
    /// [`Concurrency::Partitioned`] calls `partitions`, before the body runs, and not when commands
    /// are replayed.
    ///
    /// ```
    /// use hyades::{Column, Concurrency, Database, Partitions, Schema, Transaction, Type};
    /// # let dir = tempfile::tempdir()?;
    /// # let dir = dir.path();
    /// const STOCK: Column<i64> = Column::at(2);
    /// let mut builder = Database::builder().concurrency(Concurrency::Partitioned);
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
