//! The public face: a database, its sessions, and how they are opened and closed.

use crate::backup::{self, BackupReport};
use crate::checkpoint::CheckpointReport;
use crate::checkpoint::keeper::{CheckpointStats, Keeper};
use crate::concurrency::steps::Call;
use crate::config::Builder;
use crate::erased::{Answer, AnyEngine, AnySession, Verdict};
use crate::error::{Abort, Error};
use crate::logging::record::RecordKind;
use crate::pool::SessionPool;
use crate::recovery::report::RecoveryReport;
use crate::tally::SessionCounts;
use crate::ticket::{CommitQueue, References, Ticket, Tickets};
use crate::transaction::access::Transaction;
use crate::transaction::procedure::{Procedure, ProcedureId, append, decode_result};
use hyades_wal::Log;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An open database. Clones are handles to the same one; it closes when the last is dropped.
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
/// db.transact(|tx| tx.insert(accounts, &[1i64.into(), 100i64.into()]))??;
/// let rest = db.transact(|tx| {
///     let row = tx.get(accounts, 1i64)?.ok_or(Abort::User(0))?;
///     let rest = row.get(balance) - 30;
///     tx.update(accounts, 1i64, &[balance.set(rest)])?;
///     Ok::<_, Abort>(rest)
/// })??;
/// assert_eq!(rest, 70);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Database {
    shared: Arc<DatabaseInner>,
}

pub(crate) struct DatabaseInner {
    /// Takes checkpoints; None without a log.
    pub keeper: Option<Arc<Keeper>>,
    pub engine: Arc<dyn AnyEngine>,
    pub log: Option<Log>,
    /// The log, for tickets.
    pub references: Option<Arc<References>>,
    pub closed: AtomicBool,
    pub procedures: Vec<Procedure>,
    pub procedure_ids: Vec<u32>,
    pub record: RecordKind,
    pub data_only: bool,
    pub report: RecoveryReport,
    /// Sessions for [`Database::transact`] and [`Database::call`].
    pub pool: SessionPool,
    /// The newest version of each procedure.
    pub names: HashMap<String, ProcedureId>,
}

/// What a database has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Attempts at transactions, conflicts included.
    pub attempts: u64,
    /// Attempts that ended in a conflict and were run again.
    pub conflicts: u64,
    /// Rows that were deleted and index entries that describe no row any more, which are still in memory: how
    /// many there are now. A row waits until the epoch in which it was deleted is over
    /// ([`LogSettings::epoch`](crate::LogSettings::epoch)), and all wait for another transaction of the session
    /// that left them, or for its end. See [`Database::session`].
    pub garbage: u64,
    /// Bytes of frames made durable, without padding.
    pub log_bytes: u64,
    /// Bytes written to the log's devices.
    pub device_bytes: u64,
    /// Syncs of the log's devices.
    pub syncs: u64,
}

impl Database {
    /// Begins the description of a database.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn over(shared: DatabaseInner) -> Database {
        Database { shared: Arc::new(shared) }
    }

    /// A session for the calling thread: faster than going through the database, because it keeps its
    /// working memory and its place in the log.
    ///
    /// After each transaction it clears away some of the deleted rows and stale index entries that it has left.
    /// What is still there when it ends is cleared away by other sessions as they run or end, by the next
    /// [`Database::transact`] or [`Database::call`], and by the next checkpoint; [`Stats::garbage`] says how much
    /// there is.
    ///
    /// # Errors
    /// More sessions than the log has places for (256).
    pub fn session(&self) -> Result<Session, Error> {
        Ok(self.around(self.shared.engine.session()?, false))
    }

    fn pooled(&self) -> Result<Session, Error> {
        let inner = self.shared.pool.take(|| self.shared.engine.session())?;
        Ok(self.around(inner, true))
    }

    fn around(&self, inner: Box<dyn AnySession>, pooled: bool) -> Session {
        Session {
            inner: Some(inner),
            tickets: Tickets::new(self.shared.references.clone(), pooled),
            shared: self.shared.clone(),
            arguments: Vec::new(),
            result: Vec::new(),
            answer: Answer::default(),
            pooled,
        }
    }

    /// Runs a closure as a transaction and returns when it is acknowledged: on disk, with everything
    /// it depends on. It is run again as long as it conflicts with others, so it must have no other
    /// effects. Its changes are logged as data.
    ///
    /// If it returns an error its changes are taken back, and the error is the inner result: a
    /// decision that the caller sees, so it too is returned only when what it was based on is on disk.
    ///
    /// # Errors
    /// Outer: the log failed, before the transaction or with an unknown outcome; or the program's own
    /// sessions take all 256 places in the log (where other calls of this kind take them, it waits).
    pub fn transact<T, E: From<Abort>>(
        &self,
        body: impl FnMut(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<Result<T, E>, Error> {
        let (result, ticket) = self.pooled()?.submit(body)?;
        ticket.wait()?;
        Ok(result)
    }

    /// Runs a registered procedure and returns its result when it is acknowledged.
    ///
    /// # Errors
    /// Outer: there is no such procedure, the result is of another type, or the log failed; or as for
    /// [`Database::transact`].
    pub fn call<A: Serialize + ?Sized, R: DeserializeOwned>(
        &self,
        name: &str,
        arguments: &A,
    ) -> Result<Result<R, Abort>, Error> {
        let procedure = self.prepare(name)?;
        let mut session = self.pooled()?;
        let (result, ticket) = session.call(procedure, arguments)?;
        ticket.wait()?;
        match result {
            Ok(()) => Ok(Ok(session.result()?)),
            Err(abort) => Ok(Err(abort)),
        }
    }

    /// Looks a procedure up by name: the registered one with the highest version.
    ///
    /// # Errors
    /// There is none.
    pub fn prepare(&self, name: &str) -> Result<ProcedureId, Error> {
        self.shared.names.get(name).copied().ok_or_else(|| {
            Error::Misuse(format!(
                "there is no procedure {name:?}: register it with the builder before opening"
            ))
        })
    }

    /// What opening found and did.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.shared.report
    }

    /// A digest of all rows and secondary index entries, whatever the order in which they came. Only
    /// meaningful while no transaction runs.
    pub fn digest(&self) -> u64 {
        self.shared.engine.digest()
    }

    /// How many rows there are in all tables. It visits each of them; only meaningful while no
    /// transaction runs.
    pub fn rows(&self) -> u64 {
        self.shared.engine.rows()
    }

    /// The number of log streams; 0 without a log.
    pub fn streams(&self) -> usize {
        self.shared.log.as_ref().map_or(0, Log::streams)
    }

    /// What the database has done since it was opened.
    pub fn stats(&self) -> Stats {
        let SessionCounts { attempts, conflicts, garbage } = self.shared.engine.counts();
        let mut stats = Stats { attempts, conflicts, garbage, ..Stats::default() };
        if let Some(log) = &self.shared.log {
            for stream in 0..log.streams() {
                let of = log.stats(stream);
                stats.log_bytes += of.frame_bytes;
                stats.device_bytes += of.device_bytes;
                stats.syncs += of.syncs;
            }
        }
        stats
    }

    /// Takes a checkpoint now, while transactions go on: an image of all rows, from which recovery will begin.
    /// Log that it covers is given up.
    ///
    /// ```
    /// # use hyades::{Database, Schema, Type};
    /// # let dir = tempfile::tempdir()?;
    /// # let mut builder = Database::builder();
    /// # let words = builder.table(Schema::new("words").column("w", Type::Text).primary_key(&["w"]));
    /// # let db = builder.open(dir.path())?;
    /// db.transact(|tx| tx.insert(words, &["durable".into()]))??;
    /// let report = db.checkpoint()?;
    /// assert_eq!(report.rows, 1);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// There is no log; a file could not be written; the log has failed. The last checkpoint, and the log
    /// since then, are untouched.
    pub fn checkpoint(&self) -> Result<CheckpointReport, Error> {
        match &self.shared.keeper {
            Some(keeper) => keeper.take(),
            None => Err(Error::Misuse("without a log there are no checkpoints".to_string())),
        }
    }

    /// Copies the database to a new directory while transactions go on: its checkpoint and its log, as far as
    /// they are durable when this is called. Whatever was acknowledged before is in it. The copy, read back and
    /// checked before this returns, opens like the database itself, and [`Builder::restore`] can take it back to
    /// any moment since its checkpoint. Checkpoints, and the giving up of log, wait until the copy is made.
    ///
    /// ```
    /// # use hyades::{Database, Schema, Type};
    /// # let temporary = tempfile::tempdir()?;
    /// # let (dir, copy) = (temporary.path().join("a"), temporary.path().join("b"));
    /// # let mut builder = Database::builder();
    /// # let words = builder.table(Schema::new("words").column("w", Type::Text).primary_key(&["w"]));
    /// # let db = builder.open(dir)?;
    /// db.transact(|tx| tx.insert(words, &["durable".into()]))??;
    /// let report = db.backup(&copy)?;
    /// assert!(report.files > 0);
    /// # let mut builder = Database::builder();
    /// # builder.table(Schema::new("words").column("w", Type::Text).primary_key(&["w"]));
    /// assert_eq!(builder.open(&copy)?.rows(), 1);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// There is no log, or it has failed; the directory is not empty; a file could not be copied or is damaged.
    /// The database is untouched, and what was made of the copy cannot be opened.
    pub fn backup(&self, dir: impl AsRef<Path>) -> Result<BackupReport, Error> {
        match &self.shared.log {
            Some(log) => backup::running(log, dir.as_ref()),
            None => Err(Error::Misuse("without a log there is nothing to back up".to_string())),
        }
    }

    /// How checkpoints go, and how long replay would take now.
    pub fn checkpoints(&self) -> CheckpointStats {
        self.shared.keeper.as_ref().map(|keeper| keeper.stats()).unwrap_or_default()
    }

    /// The log under the database, for tools; `None` without one.
    pub fn log(&self) -> Option<&Log> {
        self.shared.log.as_ref()
    }

    /// A queue for many transactions in flight.
    pub fn commit_queue<T>(&self) -> CommitQueue<T> {
        CommitQueue::new(self.shared.references.clone())
    }

    /// Makes everything durable and closes the log in good order. Other handles and sessions are of no
    /// use afterwards.
    ///
    /// # Errors
    /// The log failed.
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
        let on_its_own_thread = log.as_ref().is_some_and(Log::is_on_its_own_thread);
        let close = move || {
            if let Some(keeper) = keeper {
                keeper.stop();
            }
            match log {
                Some(log) => Ok(log.close()?),
                None => Ok(()),
            }
        };
        if on_its_own_thread {
            // A waker has dropped the last handle, or closes it: that thread would wait for itself.
            let thread = std::thread::Builder::new().name("close".into());
            let _ = thread.spawn(close);
            return Err(Error::Misuse(
                "a database cannot be closed by a waker, which runs on a thread of its log: another thread \
                 closes it now"
                    .to_string(),
            ));
        }
        close()
    }
}

impl Drop for DatabaseInner {
    fn drop(&mut self) {
        // Whoever wants to know calls `close`; a failed log has told everyone who waited.
        let _ = self.close();
    }
}

/// A thread's way into the database; see [`Database::session`].
pub struct Session {
    inner: Option<Box<dyn AnySession>>,
    tickets: Tickets,
    shared: Arc<DatabaseInner>,
    arguments: Vec<u8>,
    result: Vec<u8>,
    answer: Answer,
    pooled: bool,
}

fn some(inner: &mut Option<Box<dyn AnySession>>) -> &mut dyn AnySession {
    inner.as_deref_mut().expect("it is taken only when the session is dropped")
}

impl Session {
    /// Runs a closure as [`Database::transact`] does, but does not wait: the result is pre-committed,
    /// and the ticket tells when it is acknowledged.
    ///
    /// What the closure returned before the ticket says so may be lost in a crash, while a later transaction
    /// that read nothing of it is acknowledged and stays: the log knows what transactions read and wrote, and not
    /// what the program made of a result. So wait for the ticket before a result decides what another
    /// transaction writes, or read it again in that transaction. This holds for every protocol whose
    /// streams are independent of each other (docs/protocols.md), not for one stream.
    ///
    /// # Errors
    /// The log has failed.
    pub fn submit<T, E: From<Abort>>(
        &mut self,
        mut body: impl FnMut(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<(Result<T, E>, Ticket), Error> {
        let mut result = None;
        let Session { inner, answer, .. } = self;
        let mut body = |tx: &Transaction<'_>| {
            let value = body(tx);
            let verdict = if value.is_ok() { Verdict::Commit } else { Verdict::Abandon };
            result = Some(value);
            verdict
        };
        some(inner).run(None, &mut body, answer)?;
        Ok((result.expect("the body ran"), self.tickets.issue(answer)))
    }

    /// Runs a procedure without waiting; [`Session::result`] has what it returned.
    ///
    /// ```
    /// use hyades::{Abort, Column, Database, Schema, Transaction, Type};
    /// # let dir = tempfile::tempdir()?;
    /// # let dir = dir.path();
    /// let mut builder = Database::builder();
    /// let schema = Schema::new("stock").column("item", Type::I64).column("count", Type::I64);
    /// let stock = builder.table(schema.primary_key(&["item"]));
    /// let add = builder.procedure("add", 1, move |tx: &Transaction<'_>, (item, n): (i64, i64)| {
    ///     let count = tx.get(stock, item)?.map_or(0, |row| row.get(Column::<i64>::at(1))) + n;
    ///     if count < 0 {
    ///         return Err(Abort::User(count));
    ///     }
    ///     tx.upsert(stock, &[item.into(), count.into()])?;
    ///     Ok(count)
    /// });
    /// let db = builder.open(dir)?;
    /// let mut session = db.session()?;
    /// let (outcome, ticket) = session.call(add, &(7i64, 5i64))?;
    /// assert_eq!(outcome, Ok(()));
    /// assert_eq!(session.result::<i64>()?, 5);
    /// ticket.wait()?; // only now it is on disk
    /// let (outcome, ticket) = session.call(add, &(7i64, -9i64))?;
    /// assert_eq!(outcome, Err(Abort::User(-4)));
    /// ticket.wait()?; // what the refusal was based on is on disk as well
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The log has failed.
    #[inline]
    pub fn call<A: Serialize + ?Sized>(
        &mut self,
        procedure: ProcedureId,
        arguments: &A,
    ) -> Result<(Result<(), Abort>, Ticket), Error> {
        self.call_as(procedure, arguments, None)
    }

    /// As [`Session::call`], logged in the given way.
    ///
    /// # Errors
    /// The log has failed, or was opened for data records only.
    pub fn call_recorded<A: Serialize + ?Sized>(
        &mut self,
        procedure: ProcedureId,
        arguments: &A,
        record: RecordKind,
    ) -> Result<(Result<(), Abort>, Ticket), Error> {
        if self.shared.data_only && record != RecordKind::Data {
            return Err(Error::Misuse(
                "the log was opened for data records only: open it with Builder::record(RecordKind::Adaptive) \
                 or register a procedure as a command to mix them"
                    .to_string(),
            ));
        }
        self.call_as(procedure, arguments, Some(record))
    }

    fn call_as<A: Serialize + ?Sized>(
        &mut self,
        procedure: ProcedureId,
        arguments: &A,
        record: Option<RecordKind>,
    ) -> Result<(Result<(), Abort>, Ticket), Error> {
        let Session { inner, shared, arguments: bytes, result: value, answer, .. } = self;
        bytes.clear();
        append(arguments, bytes)
            .map_err(|error| Error::Misuse(format!("the arguments cannot be encoded: {error}")))?;
        let at = procedure.0 as usize;
        let Some(called) = shared.procedures.get(at) else {
            return Err(Error::Misuse("the procedure belongs to another database".to_string()));
        };
        let kind = record.or(called.record).unwrap_or(shared.record);
        let call = Call { log_id: shared.procedure_ids[at], arguments: bytes };
        let mut outcome = Ok(());
        let mut body = |tx: &Transaction<'_>| {
            value.clear();
            outcome = (called.body)(tx, bytes, value);
            if outcome.is_ok() { Verdict::Commit } else { Verdict::Abandon }
        };
        some(inner).run(Some((call, kind)), &mut body, answer)?;
        Ok((outcome, self.tickets.issue(answer)))
    }

    /// What the last procedure returned.
    ///
    /// # Errors
    /// It returned something of another type.
    pub fn result<R: DeserializeOwned>(&self) -> Result<R, Error> {
        decode_result(&self.result)
    }

    /// How many attempts ended in a conflict and were run again.
    pub fn conflicts(&self) -> u64 {
        self.inner.as_ref().map_or(0, |inner| inner.conflicts())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let Some(mut inner) = self.inner.take() else { return };
        if self.pooled && !self.shared.closed.load(Ordering::Acquire) {
            inner.rest();
            return self.shared.pool.give_back(Some(inner));
        }
        drop(inner);
        if self.pooled {
            self.shared.pool.give_back(None);
        }
    }
}
