//! The public API: databases and sessions.

mod attempt;
#[cfg(feature = "replication")]
mod marks;
#[cfg(feature = "replication")]
mod member;
mod metrics;
mod open;
mod order;
mod post;
mod session;
mod snapshot;
#[cfg(feature = "replication")]
mod table_digests;
mod tables;

pub use attempt::Attempt;
#[cfg(feature = "replication")]
pub use marks::CutMarks;
pub use open::OpenTransaction;
pub use order::{InOrder, SessionOrder};
use session::Loan;
pub use session::Session;
pub use snapshot::Snapshot;
#[cfg(feature = "replication")]
pub use table_digests::TableDigest;

use crate::backup::{self, BackupReport};
use crate::checkpoint::CheckpointReport;
use crate::checkpoint::keeper::{CheckpointStats, Keeper};
use crate::config::{Builder, Concurrency};
use crate::erased::AnyEngine;
use crate::error::{Abort, Error};
use crate::pool::SessionPool;
use crate::posted::PostedCalls;
use crate::recovery::report::RecoveryReport;
use crate::tally::SessionCounts;
use crate::ticket::{CommitQueue, LogHandles, Ticket};
use crate::transaction::access::Transaction;
use crate::transaction::procedure::{ProcedureId, Procedures};
use hyades_platform::latency::LatencyHistogram;
use hyades_platform::reclaim::{self, SettleOnDrop};
use hyades_platform::{callback, clock, event};
use hyades_wal::Log;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// An open database, in memory and, with a log, durable. Transactions are serializable.
///
/// Clones are handles to the same database. The database is closed when the last handle and the
/// last [`Session`] are dropped.
///
/// ```
/// use hyades::{Abort, Column, Database, Schema, Type};
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path();
/// let mut builder = Database::builder();
/// let schema = Schema::new("accounts")
///     .column("id", Type::I64)
///     .column("balance", Type::I64)
///     .primary_key(&["id"]);
/// let balance: Column<i64> = schema.typed("balance")?;
/// let accounts = builder.table(schema);
/// let db = builder.open(dir)?;
///
/// // When this returns, the row is on disk.
/// db.transact(|tx| Ok(tx.insert(accounts, &[1i64.into(), 100i64.into()])?))?;
/// let rest = db.transact(|tx| {
///     let row = tx.get(accounts, 1i64)?.ok_or(Abort::User(0))?;
///     let rest = row.get(balance) - 30;
///     tx.update(accounts, 1i64, &[balance.set(rest)])?;
///     Ok(rest)
/// })?;
/// assert_eq!(rest, 70);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Database {
    shared: Arc<DatabaseInner>,
}

pub(crate) struct DatabaseInner {
    /// Takes checkpoints; `None` without a log.
    pub keeper: Option<Arc<Keeper>>,
    pub engine: Arc<dyn AnyEngine>,
    pub log: Option<Log>,
    /// Shared references to the log, for tickets.
    pub references: Option<Arc<LogHandles>>,
    pub closed: AtomicBool,
    pub procedures: Arc<Procedures>,
    /// Calls that wait for threads of the database.
    pub posted: Arc<PostedCalls>,
    pub concurrency: Concurrency,
    #[cfg_attr(not(feature = "research"), allow(dead_code))]
    pub data_only: bool,
    /// Each session keeps an order of its transactions.
    pub keeps_order: bool,
    /// Calls are logged before they run, and only calls are logged.
    pub logs_first: bool,
    pub report: RecoveryReport,
    /// Sessions for [`Database::transact`] and [`Database::call`].
    pub pool: SessionPool,
    /// The time from commit to acknowledgement, of the pool's sessions.
    pub acknowledged: LatencyHistogram,
    /// The last field: frees the objects that all other fields have retired.
    pub _settles: SettleOnDrop,
}

/// Counters of a database since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Attempts at transactions: the sum of `commits`, `conflicts`, `failures` and `panics`.
    pub attempts: u64,
    /// Attempts that committed, read-only attempts included.
    pub commits: u64,
    /// Attempts that ended in a conflict.
    pub conflicts: u64,
    /// Attempts that the closure or procedure ended with an error.
    pub failures: u64,
    /// Attempts that ended with a panic of the closure or procedure.
    pub panics: u64,
    /// Transactions that ended with [`Error::Starved`]; each of their attempts is in `conflicts`.
    pub starved: u64,
    /// Deleted rows, and index entries that no longer match a row, still in memory. A deleted row
    /// is kept until its epoch is over ([`LogSettings::epoch`](crate::LogSettings::epoch)), and
    /// both are kept while an open snapshot holds them. Both are freed after later transactions of
    /// the session that left them, by its [`Session::free_unused`], or after the session has ended.
    /// See [`Database::session`].
    pub garbage: u64,
    /// Bytes of removed rows, index entries, and overwritten blocks of rows, not freed yet, since a
    /// transaction that began earlier may be reading them. Of all databases of the process, but for
    /// 64 KiB of each thread. A few MB, unless a transaction runs for long ([`Stats::oldest_pin`]).
    pub removed_bytes: u64,
    /// How long the longest-running transaction keeps rows removed by others in memory. Of all
    /// databases of the process. A transaction is seen when this field is read, so the time counts
    /// from the previous reading.
    pub oldest_pin: Duration,
    /// Snapshots that are open now.
    pub snapshots: u64,
    /// Older versions of rows in memory, which open snapshots need.
    pub old_versions: u64,
    /// Bytes of the older versions, and of deleted rows and index entries that open snapshots hold
    /// beside the indexes. When all snapshots are closed, up to 64 KiB of versions remain for each
    /// session; the deleted rows are freed like other [`Stats::garbage`].
    pub snapshot_bytes: u64,
    /// Bytes of the [sums](crate::Schema::sum) in memory, see [`Builder::sum_index_bytes`].
    pub sum_index_bytes: u64,
    /// Snapshots that were ended before being closed, and transactions under
    /// [`Concurrency::Hekaton`](crate::Concurrency::Hekaton) that were ended with them, see
    /// [`SnapshotSettings`](crate::SnapshotSettings).
    pub snapshots_ended: u64,
    /// Bytes of frames made durable, without padding.
    pub log_bytes: u64,
    /// Bytes written to the log's devices.
    pub device_bytes: u64,
    /// Syncs (fsync) of the log's devices.
    pub syncs: u64,
}

impl Database {
    /// Starts the declaration of a database, with default settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn from_inner(shared: DatabaseInner) -> Database {
        Database { shared: Arc::new(shared) }
    }

    /// Creates a session for the calling thread. A session is faster than [`Database::transact`]
    /// and [`Database::call`], since it keeps its buffers and its slot in the log.
    ///
    /// After each transaction the session frees some of the deleted rows and stale index entries it
    /// has left. The rest at the end of the session is freed by other sessions as they run or end,
    /// by later calls of [`Database::transact`] and [`Database::call`], and by the next checkpoint.
    /// A long idle session frees the rest with [`Session::free_unused`]. [`Stats::garbage`] counts
    /// the rest.
    ///
    /// # Errors
    /// [`Error::Log`] if the log has no free slot: there are 256 slots, one for each session.
    pub fn session(&self) -> Result<Session, Error> {
        Ok(Session::new(self.shared.engine.session()?, self.shared.clone(), Loan::None))
    }

    fn pooled(&self, loan: Loan) -> Result<Session, Error> {
        let is_short = loan == Loan::Transaction;
        let inner = self.shared.pool.take(is_short, || self.shared.engine.session())?;
        Ok(Session::new(inner, self.shared.clone(), loan))
    }

    /// Waits for a transaction, and measures the time.
    fn acknowledge(&self, ticket: Ticket) -> Result<(), Error> {
        if !ticket.needs_something() {
            return Ok(());
        }
        let began = clock::monotonic_ns();
        ticket.wait()?;
        self.shared.acknowledged.record(clock::monotonic_ns() - began);
        Ok(())
    }

    /// Runs a closure as a transaction and returns once it is acknowledged: its record, and every
    /// record it depends on, is on disk. The changes are logged as data.
    ///
    /// After a conflict the closure runs again, so the closure must have no effects outside the
    /// transaction.
    ///
    /// If the closure returns an error, its changes are rolled back and the error is the result.
    /// The error, too, is returned only once everything it was based on is on disk.
    ///
    /// ```
    /// # use hyades::{Database, Error, Table};
    /// # let dir = tempfile::tempdir()?;
    /// # #[derive(Table)]
    /// # struct Account { #[key] id: i64, balance: i64 }
    /// # let mut builder = Database::builder();
    /// # let accounts = builder.table_of::<Account>();
    /// # let db = builder.open(dir.path())?;
    /// # db.transact(|tx| Ok(accounts.insert(tx, &Account { id: 1, balance: 5 })?))?;
    /// let withdraw = |amount: i64| {
    ///     db.transact(|tx| {
    ///         let balance = accounts.require(tx, 1)?.balance;
    ///         if balance < amount {
    ///             return Err(Error::user("not enough money"));
    ///         }
    ///         accounts.update(tx, 1, &[Account::BALANCE.set(balance - amount)])?;
    ///         Ok(balance - amount)
    ///     })
    /// };
    /// assert_eq!(withdraw(3)?, 2);
    /// assert_eq!(withdraw(3).unwrap_err().to_string(), "not enough money");
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The closure's error; [`Error::Poisoned`] if the log failed before the transaction;
    /// [`Error::OutcomeUnknown`] if the log failed before the transaction was acknowledged;
    /// [`Error::Starved`] if all attempts ended in a conflict ([`Builder::retries`]);
    /// [`Error::Misuse`] inside another transaction of this database; [`Error::Log`] if the
    /// program's own sessions occupy all 256 slots of the log (if other calls of this kind occupy
    /// some, the call waits).
    ///
    /// # Panics
    /// If the closure panics. Its changes are rolled back first.
    pub fn transact<T>(
        &self,
        body: impl FnMut(&Transaction<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.try_transact(body)?
    }

    /// Like [`Database::transact`], with an error of any type, kept apart from the errors of the
    /// database: the inner result is the closure's.
    pub fn try_transact<T, E: From<Abort>>(
        &self,
        body: impl FnMut(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<Result<T, E>, Error> {
        let (result, ticket) = self.pooled(Loan::Transaction)?.try_submit(body)?;
        self.acknowledge(ticket)?;
        Ok(result)
    }

    /// Calls a registered procedure, in its newest version, and returns its result once the
    /// transaction is acknowledged. Retries, isolation and durability are as for
    /// [`Database::transact`].
    ///
    /// # Errors
    /// [`Error::Aborted`] if the procedure aborted; [`Error::Misuse`] if there is no such
    /// procedure, the arguments cannot be encoded or the result is not an `R`; otherwise as for
    /// [`Database::transact`].
    pub fn call<A: Serialize + ?Sized, R: DeserializeOwned>(
        &self,
        name: &str,
        arguments: &A,
    ) -> Result<R, Error> {
        let procedure = self.prepare(name)?;
        let mut session = self.pooled(Loan::Transaction)?;
        let (result, ticket) = session.call(procedure, arguments)?;
        self.acknowledge(ticket)?;
        result?;
        session.result()
    }

    /// Returns the procedure of this name with the highest version.
    ///
    /// # Errors
    /// [`Error::Misuse`] if no such procedure is registered.
    pub fn prepare(&self, name: &str) -> Result<ProcedureId, Error> {
        self.shared.procedures.names.get(name).copied().ok_or_else(|| {
            Error::Misuse(format!(
                "there is no procedure {name:?}: register it with the builder before opening"
            ))
        })
    }

    /// Returns the findings and actions of the opening.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.shared.report
    }

    /// Returns a digest of all rows and secondary index entries, independent of their order. Reads
    /// every row. Only meaningful while no transaction runs.
    pub fn digest(&self) -> u64 {
        self.shared.engine.digest()
    }

    /// Counts the rows of all tables by visiting every row. Only meaningful while no transaction
    /// runs.
    pub fn rows(&self) -> u64 {
        self.shared.engine.rows()
    }

    /// Returns the number of log streams; 0 without a log.
    pub fn streams(&self) -> usize {
        self.shared.log.as_ref().map_or(0, Log::streams)
    }

    /// Returns the concurrency control, whether set or chosen: see [`Builder::concurrency`].
    pub fn concurrency(&self) -> Concurrency {
        self.shared.concurrency
    }

    /// Returns counters since the database was opened.
    pub fn stats(&self) -> Stats {
        let counts = self.shared.engine.counts();
        let SessionCounts { attempts, conflicts, failures, panics, starved, garbage } = counts;
        let commits = attempts.saturating_sub(conflicts + failures + panics);
        let mut stats =
            Stats { attempts, commits, conflicts, failures, panics, ..Stats::default() };
        (stats.starved, stats.garbage) = (starved, garbage);
        (stats.removed_bytes, stats.oldest_pin) = (reclaim::waiting_bytes(), reclaim::oldest_pin());
        let snapshots = self.shared.engine.snapshots();
        stats.snapshots = snapshots.open_now();
        (stats.old_versions, stats.snapshot_bytes) =
            (snapshots.versions().count(), snapshots.bytes());
        stats.snapshots_ended = snapshots.ended();
        stats.sum_index_bytes = self.shared.engine.sum_index_bytes();
        if let Some(log) = &self.shared.log {
            for stream in 0..log.streams() {
                let counters = log.stats(stream);
                stats.log_bytes += counters.frame_bytes;
                stats.device_bytes += counters.device_bytes;
                stats.syncs += counters.syncs;
            }
        }
        stats
    }

    /// Returns [`Stats::removed_bytes`] alone, at next to no cost.
    pub fn removed_bytes(&self) -> u64 {
        reclaim::waiting_bytes()
    }

    /// Takes a checkpoint now, while transactions run: an image of all rows, from which recovery
    /// will begin. The part of the log covered by the checkpoint is truncated.
    ///
    /// ```
    /// # use hyades::{Database, Schema, Type};
    /// # let dir = tempfile::tempdir()?;
    /// # let mut builder = Database::builder();
    /// # let schema = Schema::new("words").column("w", Type::Text).primary_key(&["w"]);
    /// # let words = builder.table(schema);
    /// # let db = builder.open(dir.path())?;
    /// db.transact(|tx| Ok(tx.insert(words, &["durable".into()])?))?;
    /// let report = db.checkpoint()?;
    /// assert_eq!(report.rows, 1);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Misuse`] without a log, or inside a transaction of this database where calls are
    /// logged before they run; a file could not be written; the log has
    /// failed. The last checkpoint, and the log since then, remain.
    pub fn checkpoint(&self) -> Result<CheckpointReport, Error> {
        match &self.shared.keeper {
            Some(keeper) => {
                self.shared.engine.check_outside("a checkpoint was begun")?;
                keeper.take()
            }
            None => Err(Error::Misuse("without a log there are no checkpoints".to_string())),
        }
    }

    /// Copies the database to a new directory while transactions run. The copy holds the checkpoint
    /// and the log as far as they are durable at the time of the call, hence every transaction
    /// acknowledged before. The copy is read back and checked before the function returns. The copy
    /// opens like the original, and [`Builder::restore`] can restore from the copy any moment since
    /// the copy's checkpoint. Checkpoints and the truncation of the log wait until the copy is
    /// complete.
    ///
    /// ```
    /// # use hyades::{Database, Schema, Type};
    /// # let temporary = tempfile::tempdir()?;
    /// # let (dir, copy) = (temporary.path().join("a"), temporary.path().join("b"));
    /// # let mut builder = Database::builder();
    /// # let schema = Schema::new("words").column("w", Type::Text).primary_key(&["w"]);
    /// # let words = builder.table(schema);
    /// # let db = builder.open(dir)?;
    /// db.transact(|tx| Ok(tx.insert(words, &["durable".into()])?))?;
    /// let report = db.backup(&copy)?;
    /// assert!(report.files > 0);
    /// # let mut builder = Database::builder();
    /// # builder.table(Schema::new("words").column("w", Type::Text).primary_key(&["w"]));
    /// assert_eq!(builder.open(&copy)?.rows(), 1);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// There is no log, or it has failed; `dir` is not empty; a file could not be copied or is
    /// damaged. The database is not affected, and an incomplete copy cannot be opened.
    pub fn backup(&self, dir: impl AsRef<Path>) -> Result<BackupReport, Error> {
        match &self.shared.log {
            Some(log) => backup::running(log, dir.as_ref()),
            None => Err(Error::Misuse("without a log there is nothing to back up".to_string())),
        }
    }

    /// Returns the state of checkpoints, and how long a replay would take now.
    pub fn checkpoints(&self) -> CheckpointStats {
        self.shared.keeper.as_ref().map(|keeper| keeper.stats()).unwrap_or_default()
    }

    /// Returns the log, for tools; `None` without a log.
    pub fn log(&self) -> Option<&Log> {
        self.shared.log.as_ref()
    }

    /// Creates a queue for many transactions in flight.
    pub fn commit_queue<T>(&self) -> CommitQueue<T> {
        CommitQueue::new(self.shared.references.clone())
    }

    /// Runs the [posted](Database::post) calls, makes everything durable and closes the log. Other
    /// handles and sessions cannot be used any more.
    ///
    /// # Errors
    /// [`Error::Log`] if the log failed; [`Error::Misuse`] on a thread of the database, as in a
    /// waker, and inside one of its transactions (another thread then closes the database).
    pub fn close(self) -> Result<(), Error> {
        self.shared.close()
    }
}

impl DatabaseInner {
    fn close(&self) -> Result<(), Error> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.pool.clear();
        let (keeper, log) = (self.keeper.clone(), self.log.clone());
        let posted = self.posted.clone();
        let on_its_own_thread =
            log.as_ref().is_some_and(Log::is_flusher_thread) || posted.is_own_thread();
        // Posted calls may wait for the transaction inside which the database is closed, and cannot
        // be run inside the transaction.
        let on_its_own_thread =
            on_its_own_thread || self.engine.is_inside() || callback::is_on_database_thread();
        let close = move || {
            // A checkpoint, and calls, may wait for the log: not until a flush interval ends.
            log.iter().for_each(Log::stop_collecting);
            // Before the log: posted calls need the log.
            posted.close();
            if let Some(keeper) = keeper {
                keeper.stop();
            }
            let closed = log.map_or(Ok(()), Log::close);
            event!(INFO, "database closed", in_good_order = closed.is_ok());
            Ok(closed?)
        };
        if on_its_own_thread {
            // A waker drops the last handle or closes the database: the current thread would wait
            // for itself.
            let thread = std::thread::Builder::new().name("close".into());
            let _ = thread.spawn(close);
            return Err(Error::Misuse(
                "a database cannot be closed by a waker, or inside a posted call, which run on \
                 threads of its own, nor inside one of its transactions, for which posted calls \
                 may wait: another thread closes it now"
                    .to_string(),
            ));
        }
        close()
    }
}

impl Drop for DatabaseInner {
    fn drop(&mut self) {
        // Errors are ignored: `close` reports them, and a failed log has failed all waiting
        // tickets.
        let _ = self.close();
    }
}
