//! The public face: a database, its sessions, and how they are opened and closed.

use crate::concurrency::steps::Call;
use crate::concurrency::{ConcurrencyControl, no_wait::NoWait, silo::Silo};
use crate::config::{Builder, Concurrency, LogSettings, Protocol};
use crate::digest;
use crate::engine::Engine;
use crate::error::{Abort, Error};
use crate::logging::LoggingProtocol;
use crate::logging::supported::RunsUnder;
use crate::logging::{lsn_vector_table, none::NoLog, serial::Serial, taurus::Taurus};
use crate::recovery::catalogue::Catalogue;
use crate::recovery::{Plan, RecoveryReport, recover};
use crate::session::{self, AnySession, Verdict};
use crate::storage::table::Table;
use crate::ticket::{CommitQueue, Ticket};
use crate::transaction::access::Transaction;
use crate::transaction::procedure::{Procedure, ProcedureId, Record, decode_result};
use hyades_platform::clock;
use hyades_platform::device::FileDevice;
use hyades_platform::epoch::Epoch;
use hyades_wal::{IncarnationSettings, Log, LogOptions, Recovering};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

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
    shared: Arc<Shared>,
}

/// An engine of some sound pair.
trait AnyEngine: Send + Sync {
    fn session(&self) -> Result<Box<dyn AnySession>, Error>;
    fn digest(&self) -> u64;
    fn rows(&self) -> u64;
}

struct Host<C, P: LoggingProtocol> {
    engine: Arc<Engine<P>>,
    log: Option<Log>,
    concurrency: PhantomData<fn() -> C>,
}

impl<C: RunsUnder<P>, P: LoggingProtocol> AnyEngine for Host<C, P> {
    fn session(&self) -> Result<Box<dyn AnySession>, Error> {
        let session = session::Session::<C, P>::new(self.engine.clone(), self.log.clone())?;
        Ok(Box::new(session))
    }

    fn digest(&self) -> u64 {
        digest::digest(&self.engine.tables)
    }

    fn rows(&self) -> u64 {
        digest::rows(&self.engine.tables)
    }
}

struct Shared {
    engine: Box<dyn AnyEngine>,
    log: Option<Log>,
    closed: AtomicBool,
    procedures: Vec<Procedure>,
    procedure_ids: Vec<u32>,
    record: Record,
    data_only: bool,
    report: RecoveryReport,
    /// Sessions for [`Database::transact`] and [`Database::call`].
    idle: Mutex<Vec<Box<dyn AnySession>>>,
    /// Counters of sessions that have ended.
    ended: Mutex<Stats>,
}

/// What a database has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Attempts at transactions by sessions that have ended, conflicts included.
    pub attempts: u64,
    /// Attempts that ended in a conflict and were run again, by sessions that have ended.
    pub conflicts: u64,
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

    pub(crate) fn open(builder: Builder) -> Result<Database, Error> {
        let started_ns = clock::monotonic_ns();
        check(&builder)?;
        let concurrency = builder.concurrency;
        let opening = Opening { builder, started_ns };
        match (opening.builder.protocol, concurrency) {
            (Protocol::None, Concurrency::NoWait) => opening.without_log::<NoWait>(),
            (Protocol::None, Concurrency::Silo) => opening.without_log::<Silo>(),
            (Protocol::Serial, Concurrency::NoWait) => opening.with_log::<NoWait, Serial, ()>(),
            (Protocol::Serial, Concurrency::Silo) => opening.with_log::<Silo, Serial, ()>(),
            (Protocol::Taurus, Concurrency::NoWait) => {
                opening.with_log::<NoWait, Taurus, lsn_vector_table::Reference>()
            }
            (Protocol::Taurus, Concurrency::Silo) => {
                opening.with_log::<Silo, Taurus, lsn_vector_table::Reference>()
            }
        }
    }

    /// A session for the calling thread: faster than going through the database, because it keeps its
    /// working memory and its place in the log.
    ///
    /// # Errors
    /// More sessions than the log has places for (256).
    pub fn session(&self) -> Result<Session, Error> {
        let inner = self.shared.engine.session()?;
        Ok(Session {
            inner: Some(inner),
            log: self.shared.log.clone().map(Arc::new),
            shared: self.shared.clone(),
            arguments: Vec::new(),
            result: Vec::new(),
            pooled: false,
        })
    }

    fn pooled(&self) -> Result<Session, Error> {
        let idle = self.shared.idle.lock().expect("no holder panics").pop();
        let mut session = match idle {
            Some(inner) => Session {
                inner: Some(inner),
                log: self.shared.log.clone().map(Arc::new),
                shared: self.shared.clone(),
                arguments: Vec::new(),
                result: Vec::new(),
                pooled: true,
            },
            None => self.session()?,
        };
        session.pooled = true;
        Ok(session)
    }

    /// Runs a closure as a transaction and returns when it is acknowledged: on disk, with everything
    /// it depends on. It is run again as long as it conflicts with others, so it must have no other
    /// effects. Its changes are logged as data.
    ///
    /// If it returns an error its changes are taken back, and the error is the inner result: a
    /// decision that the caller sees, so it too is returned only when what it was based on is on disk.
    ///
    /// # Errors
    /// Outer: the log failed, before the transaction or with an unknown outcome.
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
    /// Outer: there is no such procedure, the result is of another type, or the log failed.
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
        let procedures = self.shared.procedures.iter().enumerate();
        procedures
            .filter(|(_, p)| p.name == name)
            .max_by_key(|(_, p)| p.version)
            .map(|(at, _)| ProcedureId(at as u32))
            .ok_or_else(|| {
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
        let mut stats = *self.shared.ended.lock().expect("no holder panics");
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

    /// The log under the database, for tools; `None` without one.
    pub fn log(&self) -> Option<&Log> {
        self.shared.log.as_ref()
    }

    /// A queue for many transactions in flight.
    pub fn commit_queue<T>(&self) -> CommitQueue<T> {
        CommitQueue::new(self.shared.log.clone())
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

impl Shared {
    fn close(&self) -> Result<(), Error> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.idle.lock().expect("no holder panics").clear();
        match &self.log {
            Some(log) => Ok(log.clone().close()?),
            None => Ok(()),
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Whoever wants to know calls `close`; a failed log has told everyone who waited.
        let _ = self.close();
    }
}

/// A thread's way into the database; see [`Database::session`].
pub struct Session {
    inner: Option<Box<dyn AnySession>>,
    /// For tickets.
    log: Option<Arc<Log>>,
    shared: Arc<Shared>,
    arguments: Vec<u8>,
    result: Vec<u8>,
    pooled: bool,
}

impl Session {
    fn inner(&mut self) -> &mut dyn AnySession {
        self.inner.as_deref_mut().expect("it is taken only when the session is dropped")
    }

    /// Runs a closure as [`Database::transact`] does, but does not wait: the result is pre-committed,
    /// and the ticket tells when it is acknowledged.
    ///
    /// # Errors
    /// The log has failed.
    pub fn submit<T, E: From<Abort>>(
        &mut self,
        mut body: impl FnMut(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<(Result<T, E>, Ticket), Error> {
        let mut result = None;
        let needs = self.inner().run(None, &mut |tx| {
            let value = body(tx);
            let verdict = if value.is_ok() { Verdict::Commit } else { Verdict::Abandon };
            result = Some(value);
            verdict
        })?;
        let ticket = Ticket::new(self.log.clone(), needs);
        Ok((result.expect("the body ran"), ticket))
    }

    /// Runs a procedure without waiting; [`Session::result`] has what it returned.
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
        record: Record,
    ) -> Result<(Result<(), Abort>, Ticket), Error> {
        if self.shared.data_only && record != Record::Data {
            return Err(Error::Misuse(
                "the log was opened for data records only: open it with Builder::record(Record::Adaptive) \
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
        record: Option<Record>,
    ) -> Result<(Result<(), Abort>, Ticket), Error> {
        let mut bytes = std::mem::take(&mut self.arguments);
        bytes.clear();
        let bytes = postcard::to_extend(arguments, bytes)
            .map_err(|error| Error::Misuse(format!("the arguments cannot be encoded: {error}")))?;
        let shared = &*self.shared;
        let inner =
            self.inner.as_deref_mut().expect("it is taken only when the session is dropped");
        let at = procedure.0 as usize;
        let Some(called) = shared.procedures.get(at) else {
            return Err(Error::Misuse("the procedure belongs to another database".to_string()));
        };
        let kind = record.or(called.record).unwrap_or(shared.record);
        let call = Call { log_id: shared.procedure_ids[at], arguments: &bytes };
        let mut value = std::mem::take(&mut self.result);
        let mut outcome = Ok(());
        let needs = inner.run(Some((call, kind)), &mut |tx| {
            value.clear();
            outcome = (called.body)(tx, &bytes, &mut value);
            if outcome.is_ok() { Verdict::Commit } else { Verdict::Abandon }
        });
        self.result = value;
        self.arguments = bytes;
        Ok((outcome, Ticket::new(self.log.clone(), needs?)))
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
        self.inner.as_ref().map_or(0, |inner| inner.counters().conflicts)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let Some(inner) = self.inner.take() else { return };
        if self.pooled && !self.shared.closed.load(Ordering::Acquire) {
            self.shared.idle.lock().expect("no holder panics").push(inner);
            return;
        }
        let counters = inner.counters();
        let mut ended = self.shared.ended.lock().expect("no holder panics");
        ended.attempts += counters.attempts;
        ended.conflicts += counters.conflicts;
    }
}

fn check(builder: &Builder) -> Result<(), Error> {
    if let Some(fault) = builder.tables.iter().find_map(|s| s.fault.clone()) {
        return Err(Error::Misuse(fault));
    }
    for (at, schema) in builder.tables.iter().enumerate() {
        if builder.tables[..at].iter().any(|s| s.name == schema.name) {
            return Err(Error::Misuse(format!("table {:?} is declared twice", schema.name)));
        }
    }
    for (at, procedure) in builder.procedures.iter().enumerate() {
        let same = |p: &Procedure| p.name == procedure.name && p.version == procedure.version;
        if builder.procedures[..at].iter().any(same) {
            return Err(Error::Misuse(format!(
                "procedure {:?} version {} is registered twice",
                procedure.name, procedure.version
            )));
        }
    }
    if builder.protocol == Protocol::Serial && builder.log.streams != 1 {
        return Err(Error::Misuse(format!(
            "serial logging has one stream, not {}: set streams to 1",
            builder.log.streams
        )));
    }
    Ok(())
}

/// A protocol that can be started on a log.
trait StartOn: LoggingProtocol {
    const NAME: &'static str;
    const VECTORS: bool;
    fn start(log: &Log, settings: &LogSettings, data_only: bool) -> Self;
}

impl StartOn for Serial {
    const NAME: &'static str = "serial";
    const VECTORS: bool = false;
    fn start(log: &Log, _: &LogSettings, _: bool) -> Self {
        Serial { log: log.clone() }
    }
}

impl StartOn for Taurus {
    const NAME: &'static str = "taurus";
    const VECTORS: bool = true;
    fn start(log: &Log, settings: &LogSettings, data_only: bool) -> Self {
        let interval = settings.anchor_interval_bytes;
        Taurus::new(log.clone(), !data_only, settings.delta_bytes, interval)
    }
}

struct Opening {
    builder: Builder,
    started_ns: u64,
}

impl Opening {
    fn without_log<C: RunsUnder<NoLog> + ConcurrencyControl>(self) -> Result<Database, Error> {
        let catalogue = Catalogue::join(&[], &self.builder.tables, &self.builder.procedures)?;
        let tables = self.tables::<()>(&catalogue);
        let epoch = Arc::new(Epoch::new(1));
        let row_ids = Arc::new(AtomicU64::new(1));
        let engine = Arc::new(Engine::new(tables, NoLog, epoch, row_ids));
        let host = Host::<C, NoLog> { engine, log: None, concurrency: PhantomData };
        Ok(self.finish(Box::new(host), None, &catalogue, true, RecoveryReport::default()))
    }

    fn tables<S: Default + Send + Sync + 'static>(
        &self,
        catalogue: &Catalogue,
    ) -> Arc<Vec<Table<S>>> {
        let schemas = self.builder.tables.iter().enumerate();
        let table = |(at, schema)| Table::new(schema, at as u32, catalogue.table_ids[at]);
        Arc::new(schemas.map(table).collect())
    }

    fn log_options(&self) -> LogOptions {
        let settings = &self.builder.log;
        let mut options = LogOptions::new(settings.dirs.clone(), settings.streams);
        options.buffer_bytes = settings.buffer_bytes;
        options.segment_bytes = settings.segment_bytes;
        options.flush_interval = settings.flush_interval;
        if let Some(fill) = settings.flush_fill_bytes {
            options.flush_fill_bytes = fill;
        }
        options.device = settings.device.clone().unwrap_or_else(FileDevice::shared);
        // The protocol anchors streams as it comes to them; the flusher's own are a fallback.
        options.anchor_interval_bytes = settings.anchor_interval_bytes * 4;
        options
    }

    fn with_log<C, P, S>(self) -> Result<Database, Error>
    where
        C: RunsUnder<P> + ConcurrencyControl,
        P: StartOn + LoggingProtocol<RowStamp = S>,
        S: Default + Send + Sync + 'static,
    {
        let builder = &self.builder;
        let recovering = hyades_wal::open(self.log_options())?;
        let stored = &recovering.manifest().catalogue;
        let catalogue = Arc::new(Catalogue::join(stored, &builder.tables, &builder.procedures)?);
        let tables = self.tables::<S>(&catalogue);
        let row_ids = Arc::new(AtomicU64::new(1));
        let threads = match builder.recovery_threads {
            0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
            n => n,
        };
        let plan = Plan {
            threads,
            kind: builder.replay,
            progress: builder.progress.as_deref(),
            started_ns: self.started_ns,
        };
        let recovered =
            recover(&recovering, tables.clone(), catalogue.clone(), row_ids.clone(), &plan)?;
        let verdict = recovering.verdict(&recovered.ends)?;
        let first_epoch = recovered.max_epoch.max(recovering.manifest().epoch_floor) + 1;
        let data_only = self.is_data_only();
        let log = self.begin::<P>(recovering, &catalogue, &verdict, first_epoch, data_only)?;
        let protocol = P::start(&log, &builder.log, data_only);
        let epoch = Arc::new(Epoch::new(first_epoch));
        let engine = Arc::new(Engine::new(tables, protocol, epoch, row_ids));
        let host = Host::<C, P> { engine, log: Some(log.clone()), concurrency: PhantomData };
        Ok(self.finish(Box::new(host), Some(log), &catalogue, data_only, recovered.report))
    }

    /// Whether no command can come: then replay may go by versions alone.
    fn is_data_only(&self) -> bool {
        let data = |record: Option<Record>| record.is_none_or(|r| r == Record::Data);
        self.builder.record == Record::Data
            && self.builder.procedures.iter().all(|p| data(p.record))
    }

    fn begin<P: StartOn>(
        &self,
        recovering: Recovering,
        catalogue: &Catalogue,
        verdict: &hyades_wal::Verdict,
        first_epoch: u64,
        data_only: bool,
    ) -> Result<Log, Error> {
        let vectors = if P::VECTORS { "yes" } else { "no" };
        let concurrency = match self.builder.concurrency {
            Concurrency::NoWait => "no-wait",
            Concurrency::Silo => "silo",
        };
        let settings = [("vectors", vectors), ("concurrency", concurrency)];
        let settings = IncarnationSettings {
            catalogue: catalogue.to_bytes(),
            data_only,
            protocol: P::NAME.to_string(),
            settings: settings.map(|(k, v)| (k.to_string(), v.to_string())).into(),
        };
        Ok(recovering.start(settings, verdict, first_epoch)?)
    }

    fn finish(
        self,
        engine: Box<dyn AnyEngine>,
        log: Option<Log>,
        catalogue: &Catalogue,
        data_only: bool,
        mut report: RecoveryReport,
    ) -> Database {
        report.seconds = (clock::monotonic_ns() - self.started_ns) as f64 / 1e9;
        let shared = Shared {
            engine,
            log,
            closed: AtomicBool::new(false),
            procedures: self.builder.procedures,
            procedure_ids: catalogue.procedure_ids.clone(),
            record: self.builder.record,
            data_only,
            report,
            idle: Mutex::new(Vec::new()),
            ended: Mutex::new(Stats::default()),
        };
        Database { shared: Arc::new(shared) }
    }
}
