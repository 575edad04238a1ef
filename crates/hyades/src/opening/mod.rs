//! Opens a database: from the builder's description, through recovery, to a running database.

mod epoch_limit;
#[cfg(feature = "replication")]
pub(crate) mod follower;
mod host;
mod incarnation;
mod log_options;
pub(crate) mod pairs;

use crate::checkpoint::{self, keeper::Keeper};
use crate::concurrency::{CommandReplay, Commits, ControlSettings};
use crate::config::{Builder, Isolation};
use crate::database::{Database, DatabaseInner};
use crate::engine::Engine;
use crate::engine::cut::Cut;
use crate::engine::snapshots::Snapshots;
use crate::erased::AnyEngine;
use crate::error::Error;
use crate::logging::record::RecordKind;
use crate::logging::{HotRows, LoggingProtocol, StartContext, StartsOnLog};
use crate::origin;
use crate::pool::SessionPool;
use crate::posted::PostedCalls;
use crate::ranges;
use crate::recovery::catalogue::Catalogue;
use crate::recovery::plan::Plan;
use crate::recovery::recover;
use crate::recovery::report::RecoveryReport;
use crate::recovery::schema_change::settle_indexes;
use crate::session::shared::Sessions;
use crate::storage::Stamp;
use crate::storage::hash_index::HashSecret;
use crate::storage::partition;
use crate::storage::schema::Schema;
use crate::storage::sums::SumBudget;
use crate::storage::table::TableData;
use crate::ticket::LogHandles;
use crate::transaction::procedure::Procedures;
use host::Host;
use hyades_platform::active_epochs::ActiveEpochs;
use hyades_platform::broken;
use hyades_platform::epoch::{Epoch, EpochNumber, MAX_EPOCH};
use hyades_platform::latency::LatencyHistogram;
use hyades_platform::reclaim::SettleOnDrop;
use hyades_platform::{clock, event, span};
use hyades_wal::{Error as LogError, IncarnationSettings, Log, Recovering, Unfinished, Verdict};
use log_options::log_options;
use pairs::RunsUnder;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Minimum amount of replayed log, in bytes, for a measurement of replay speed.
const MEASURABLE_BYTES: u64 = 8 << 20;

impl Builder {
    /// Opens the database in `dir` and recovers the contents of its log, or creates a new log. If
    /// the declared tables differ from the tables on disk, the tables are changed, see
    /// [`Builder::table`].
    ///
    /// # Errors
    /// Invalid settings or schemas, a directory in use by another process, a log that is corrupt,
    /// incomplete or does not match the declarations: nothing on disk is changed then. If the
    /// checkpoint for a change of the schema fails, the database has its old schema and all its
    /// rows.
    pub fn open(mut self, dir: impl AsRef<Path>) -> Result<Database, Error> {
        let (shown, protocol) = (dir.as_ref().display(), self.protocol.name());
        let _span = span!(INFO, "open", dir = shown.to_string(), protocol = protocol);
        self.log.dirs.insert(0, dir.as_ref().to_path_buf());
        let started_ns = clock::monotonic_ns();
        check(&self)?;
        let pair = (self.protocol, self.control());
        pairs::open(
            pair,
            Opening { builder: self, control: pair.1.name(), started_ns, source: None },
        )
    }
}

/// The source of the restored state, if not the place of the new log.
pub struct RestoreSource<'s> {
    pub from: Recovering,
    pub until: EpochNumber,
    pub salvage: bool,
    pub to: &'s Unfinished,
}

/// Opens the described database in a new place, with the state of `source`.
pub(crate) fn open_from(builder: Builder, source: RestoreSource<'_>) -> Result<Database, Error> {
    let started_ns = clock::monotonic_ns();
    check(&builder)?;
    let pair = (builder.protocol, builder.control());
    let control = pair.1.name();
    pairs::open(pair, Opening { builder, control, started_ns, source: Some(source) })
}

fn check(builder: &Builder) -> Result<(), Error> {
    if let Some(fault) = builder.tables.iter().find_map(|s| s.fault.clone()) {
        return Err(Error::Misuse(fault));
    }
    let mut names = HashSet::new();
    if let Some(twice) = builder.tables.iter().find(|schema| !names.insert(&schema.name)) {
        return Err(Error::Misuse(format!("table {:?} is declared twice", twice.name)));
    }
    if let Some(both) = builder.dropped.iter().find(|name| names.contains(name)) {
        return Err(Error::Misuse(format!("table {both:?} is declared, and to be dropped")));
    }
    let mut names = HashSet::new();
    let mut procedures = builder.procedures.iter();
    if let Some(twice) = procedures.find(|p| !names.insert((&*p.name, p.version))) {
        return Err(Error::Misuse(format!(
            "procedure {:?} version {} is registered twice",
            twice.name, twice.version
        )));
    }
    builder.retries.check()?;
    if let Some(fault) = builder.snapshots.fault() {
        return Err(Error::Misuse(fault));
    }
    ranges::check(builder)?;
    let pair = (builder.protocol, builder.control());
    pairs::register(pair);
    pairs::check(pair)?;
    pairs::check_isolation(builder.control(), builder.isolation)?;
    let records = builder.procedures.iter().filter_map(|procedure| procedure.record);
    std::iter::once(builder.record)
        .chain(records)
        .try_for_each(|record| pairs::check_record(pair, record))?;
    #[cfg(feature = "replication")]
    if builder.log.remote.is_some() || builder.log.epoch_limit.is_some() {
        pairs::check_followed(pair, !is_data_only(builder))?;
    }
    pairs::check_streams(builder.protocol, builder.log.streams)
}

/// Whether no command can be logged: then replay may go by row versions alone.
fn is_data_only(builder: &Builder) -> bool {
    let data = |record: Option<RecordKind>| record.is_none_or(|r| r == RecordKind::Data);
    builder.record == RecordKind::Data && builder.procedures.iter().all(|p| data(p.record))
}

/// The first epoch of a database.
const FIRST_EPOCH: EpochNumber = EpochNumber(1);

/// Returns the first epoch of a run, if the log has reached the epoch `reached`.
fn epoch_above(reached: EpochNumber) -> Result<EpochNumber, Error> {
    if broken!(RestartEpochs) {
        return Ok(FIRST_EPOCH);
    }
    if reached >= MAX_EPOCH {
        return Err(Error::Mismatch(format!(
            "the log has reached epoch {reached}, the highest that a row version can hold: copy \
             its rows to a new database"
        )));
    }
    Ok(reached.next())
}

/// A log, and tables that hold everything in the log.
struct ReplayedLog<S: Stamp> {
    log: Recovering,
    verdict: Verdict,
    tables: Arc<Vec<TableData<S>>>,
    row_ids: Arc<AtomicU64>,
    catalogue: Arc<Catalogue>,
    /// All epochs up to here are used.
    reached: EpochNumber,
    /// Whether a change of the schema comes into force with a checkpoint.
    changes_log: bool,
    report: RecoveryReport,
}

/// A database being opened.
pub struct Opening<'s> {
    builder: Builder,
    /// The name of the concurrency control.
    control: &'static str,
    started_ns: u64,
    source: Option<RestoreSource<'s>>,
}

impl Opening<'_> {
    /// Opens without a log.
    pub fn without_log<C, P>(self, protocol: P) -> Result<Database, Error>
    where
        C: RunsUnder<P>,
        P: LoggingProtocol,
    {
        let catalogue = self.catalogue(&[])?;
        let tables = self.tables::<C::Row>(&catalogue);
        let epoch = Arc::new(Epoch::new(FIRST_EPOCH));
        let row_ids = Arc::new(AtomicU64::new(1));
        let mut engine = Engine::new(tables, protocol, epoch, row_ids);
        let control = C::new(&self.control_settings(CommandReplay::Never));
        self.configure(&mut engine, &control);
        let Builder { retries, removed_limit, .. } = self.builder;
        let shared = Arc::new(Sessions::new(engine, control, retries, removed_limit));
        let hot_rows = |_: &P| HotRows::default();
        let host = Host::<C, P> { shared, log: None, hot_rows };
        Ok(self.finish(Arc::new(host), None, &catalogue, true, RecoveryReport::default()))
    }

    /// Applies the settings independent of a log.
    fn configure<C, P>(&self, engine: &mut Engine<P, C::Row>, control: &C)
    where
        C: Commits<P>,
        P: LoggingProtocol,
    {
        engine.snapshots = Snapshots::new(self.builder.snapshots, control.readers().cloned());
        engine.epoch_interval = self.builder.log.epoch.unwrap_or(engine.epoch_interval);
    }

    fn control_settings(&self, commands: CommandReplay) -> ControlSettings {
        ControlSettings {
            patience: self.builder.patience,
            partitions: self.builder.partitions,
            // In simulations one thread runs transactions of several sessions inside each other.
            may_wait: !self.builder.log.research.stepped,
            snapshot_isolation: self.builder.isolation == Isolation::Snapshot,
            speculates: self.builder.speculative_reads,
            commands,
        }
    }

    /// Returns the kind of replay for commands in the log of a protocol.
    fn command_replay<P: StartsOnLog>(&self) -> CommandReplay {
        match is_data_only(&self.builder) {
            true => CommandReplay::Never,
            false if P::VECTORS && !P::PREDECESSORS => CommandReplay::MayKeepVersions,
            false => CommandReplay::InOrder,
        }
    }

    fn catalogue(&self, stored: &[u8]) -> Result<Catalogue, Error> {
        self.catalogue_with(stored, HashSecret::fresh)
    }

    /// Matches a catalogue to the declarations. `secret` gives the secret of the hashes of keys, if
    /// the catalogue has none.
    fn catalogue_with(
        &self,
        stored: &[u8],
        secret: impl FnOnce() -> HashSecret,
    ) -> Result<Catalogue, Error> {
        let Builder { tables, procedures, dropped, .. } = &self.builder;
        // A simulation is the same in each run, and the order of walks depends on hashes.
        let is_simulated = self.builder.log.research.stepped;
        let secret = (!is_simulated).then(secret);
        Catalogue::join(stored, tables, procedures, dropped, secret)
    }

    /// Returns empty tables, with the indexes for replaying the log.
    fn tables<S: Stamp>(&self, catalogue: &Catalogue) -> Arc<Vec<TableData<S>>> {
        let sum_budget = Arc::<SumBudget>::default();
        sum_budget.set_limit(self.builder.sum_index_bytes);
        let schemas = self.builder.tables.iter().enumerate();
        let table = |(at, schema): (usize, &Schema)| {
            let replayed = catalogue.replay_schema(at, schema);
            let schema = replayed.as_ref().unwrap_or(schema);
            TableData::new(schema, at as u32, catalogue.table_ids[at], catalogue.secret)
                .declared_by(self.builder.origin)
                .with_sum_budget(&sum_budget)
        };
        Arc::new(schemas.map(table).collect())
    }

    /// Finds the log, or prepares for a new one.
    fn open_log(&self) -> Result<Recovering, Error> {
        let mut recovering = hyades_wal::open(log_options(&self.builder))?;
        self.fit_streams(&mut recovering)?;
        Ok(recovering)
    }

    fn fit_streams(&self, recovering: &mut Recovering) -> Result<(), Error> {
        let settings = &self.builder.log;
        match settings.probe_streams {
            // A maximum of one stream means one, for any earlier number in the log: the protocol
            // may have no more.
            Some(least) if settings.streams > 1 => Ok(recovering.fit_streams(least)?),
            _ => Ok(()),
        }
    }

    /// Recovers the log's contents and opens the database on it.
    pub fn with_log<C, P>(mut self) -> Result<Database, Error>
    where
        C: RunsUnder<P>,
        P: StartsOnLog,
    {
        let source = self.source.take();
        let (until, salvage) =
            source.as_ref().map_or((EpochNumber::ABOVE_ALL, false), |s| (s.until, s.salvage));
        let (mut recovering, to) = match source {
            Some(source) => (source.from, Some(source.to)),
            None => (self.open_log()?, None),
        };
        origin::check(recovering.manifest())?;
        let builder = &self.builder;
        let catalogue = Arc::new(self.catalogue(&recovering.manifest().catalogue)?);
        let mut tables = self.tables::<C::Row>(&catalogue);
        let row_ids = Arc::new(AtomicU64::new(1));
        let plan = Plan {
            threads: self.recovery_threads(),
            kind: builder.replay,
            progress: builder.progress.as_deref(),
            started_ns: self.started_ns,
            until,
            salvage,
            partitions: &partition::declarations(&builder.tables),
        };
        let mut recovered =
            recover(&recovering, tables.clone(), catalogue.clone(), row_ids.clone(), &plan)?;
        recovered.report.schema_changes.clone_from(&catalogue.changes);
        let replayed = Arc::get_mut(&mut tables).expect("replay has ended");
        settle_indexes(&catalogue.index_changes, replayed)?;
        let floor = EpochNumber(recovering.manifest().epoch_floor);
        let mut ends = recovered.ends;
        // A new log has no records of the old schema, and is not opened before being complete.
        let changes_log = catalogue.needs_checkpoint() && to.is_none();
        if let Some(to) = to {
            // The state continues in a new log; the old log is only closed.
            recovering = to.open(log_options(&self.builder))?;
            self.fit_streams(&mut recovering)?;
            ends.clear();
        }
        let verdict = recovering.verdict(&ends)?;
        if recovered.report.bytes >= MEASURABLE_BYTES {
            let speed = recovered.report.bytes as f64 / recovered.report.replay_seconds;
            recovering.set_replay_speed(speed as u64);
        }
        let replayed = ReplayedLog {
            log: recovering,
            verdict,
            tables,
            row_ids,
            catalogue,
            reached: recovered.max_epoch.max(floor),
            changes_log,
            report: recovered.report,
        };
        self.go_on::<C, P>(replayed, Recovering::start)
    }

    /// Begins the next incarnation of a log with `start`, and runs a database on it.
    fn go_on<C, P>(
        self,
        replayed: ReplayedLog<C::Row>,
        start: impl FnOnce(Recovering, IncarnationSettings, &Verdict, u64) -> Result<Log, LogError>,
    ) -> Result<Database, Error>
    where
        C: RunsUnder<P>,
        P: StartsOnLog,
    {
        let ReplayedLog { log, verdict, tables, row_ids, catalogue, .. } = replayed;
        let ReplayedLog { reached, changes_log, mut report, .. } = replayed;
        let first_epoch = epoch_above(reached)?;
        debug_assert!(
            (FIRST_EPOCH..=MAX_EPOCH).contains(&first_epoch)
                && (first_epoch > reached || broken!(RestartEpochs)),
            "the versions of a run are above all earlier ones"
        );
        epoch_limit::check(&self.builder, first_epoch, changes_log)?;
        let data_only = is_data_only(&self.builder);
        let stored =
            if changes_log { catalogue.bytes_before_checkpoint() } else { catalogue.to_bytes() };
        let control = C::new(&self.control_settings(self.command_replay::<P>()));
        let versions = control.replays_versions();
        let settings = self.incarnation::<P>(stored, data_only, versions);
        let log = start(log, settings, &verdict, first_epoch.0)?;
        let engine = self.start_engine::<C, P>(&log, &control, tables, row_ids, first_epoch);
        if changes_log {
            report.schema_seconds =
                self.put_schema_in_force(&engine, &log, catalogue.to_bytes())?;
        }
        let shared = self.sessions::<C, P>(engine, control);
        let (own_log, hot_rows) = (Some(log.clone()), P::hot_rows as fn(&P) -> HotRows);
        let host = Host::<C, P> { shared, log: own_log, hot_rows };
        Ok(self.finish(Arc::new(host), Some(log), &catalogue, data_only, report))
    }

    /// Returns the state shared by the sessions on a log.
    fn sessions<C, P>(&self, engine: Engine<P, C::Row>, control: C) -> Arc<Sessions<C, P>>
    where
        C: Commits<P>,
        P: LoggingProtocol,
    {
        let Builder { retries, removed_limit, log, .. } = &self.builder;
        let mut shared = Sessions::new(engine, control, *retries, *removed_limit);
        shared.nests = log.research.stepped;
        shared.keeps_streams = log.research.fixed_streams || log.research.flushed_by_sessions;
        Arc::new(shared)
    }

    /// Starts the protocol on the log. The tables have been recovered.
    fn start_engine<C: Commits<P>, P: StartsOnLog>(
        &self,
        log: &Log,
        control: &C,
        tables: Arc<Vec<TableData<C::Row>>>,
        row_ids: Arc<AtomicU64>,
        first_epoch: EpochNumber,
    ) -> Engine<P, C::Row> {
        let settings = &self.builder.log;
        let epoch = Epoch::new(first_epoch).limited_to(epoch_limit::of(&self.builder));
        let epoch = Arc::new(epoch);
        let epoch_interval = settings.epoch.unwrap_or(P::EPOCH);
        let active = Arc::<ActiveEpochs>::default();
        let protocol = P::start(&StartContext {
            log,
            settings,
            data_only: is_data_only(&self.builder),
            replays_versions: control.replays_versions(),
            epoch: &epoch,
            epoch_interval,
            active: &active,
            tables: tables.len(),
            partitions: self.builder.partitions,
        });
        let mut engine = Engine::new(tables, protocol, epoch, row_ids);
        engine.cut = Cut::new(active);
        self.configure(&mut engine, control);
        engine.epoch_interval = epoch_interval;
        // Where rows are not logged, outcomes must not depend on the form of logged rows.
        engine.whole_rows = settings.research.whole_rows && !P::LOGS_FIRST;
        engine
    }

    /// Takes the checkpoint that gives the log its new catalogue. No transaction has run yet.
    /// Returns the duration in seconds.
    fn put_schema_in_force<P: LoggingProtocol, S: Stamp>(
        &self,
        engine: &Engine<P, S>,
        log: &Log,
        catalogue: Vec<u8>,
    ) -> Result<f64, Error> {
        let began = clock::monotonic_ns();
        checkpoint::write_with_catalogue(engine, log, &self.builder.checkpoints, catalogue)?;
        Ok((clock::monotonic_ns() - began) as f64 / 1e9)
    }

    fn recovery_threads(&self) -> usize {
        match self.builder.recovery_threads {
            _ if self.builder.replay.is_on_one_thread() => 1,
            0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
            n => n,
        }
    }

    fn finish(
        self,
        engine: Arc<dyn AnyEngine>,
        log: Option<Log>,
        catalogue: &Catalogue,
        data_only: bool,
        mut report: RecoveryReport,
    ) -> Database {
        report.seconds = (clock::monotonic_ns() - self.started_ns) as f64 / 1e9;
        let (seconds, records) = (report.seconds, report.records);
        event!(INFO, "database opened", seconds = seconds, records = records, dead = report.dead);
        let concurrency = self.builder.control();
        let is_stepped = self.builder.log.research.stepped;
        let mut settings = self.builder.checkpoints;
        if is_stepped {
            // Checkpoints by themselves are taken by a thread.
            (settings.interval, settings.max_recovery) = (None, None);
        }
        let keeper = log.clone().map(|log| Keeper::new(engine.clone(), log, settings));
        let asynchronous = self.builder.asynchronous;
        // At the limit of epochs a checkpoint would wait, and the opening with it.
        let may_checkpoint = engine.epoch().may_end(engine.epoch().current());
        if let Some(keeper) = keeper.as_ref().filter(|_| may_checkpoint) {
            keeper.bound_incarnations();
        }
        let references = log.clone().map(|log| Arc::new(LogHandles::new(log, asynchronous)));
        let sites = self.builder.sites.map(|sites| (sites, self.builder.partitions));
        let keeps_order = self.builder.session_order;
        let Builder { procedures, record, origin, posted_calls, post_threads, .. } = self.builder;
        let log_ids = catalogue.procedure_ids.clone();
        let procedures = Arc::new(Procedures::new(procedures, log_ids, record, origin));
        let caller = (engine.clone(), procedures.clone(), references.clone());
        let logs_first = engine.logs_first();
        // In simulations no thread runs beside the stepping thread.
        let threads = if is_stepped { Some(0) } else { post_threads };
        let posted = PostedCalls::new(caller, posted_calls, threads, sites);
        let shared = DatabaseInner {
            keeper,
            engine,
            log,
            references,
            closed: AtomicBool::new(false),
            procedures,
            posted,
            concurrency,
            data_only,
            keeps_order,
            logs_first,
            report,
            pool: SessionPool::default(),
            acknowledged: LatencyHistogram::default(),
            _settles: SettleOnDrop,
        };
        Database::from_inner(shared)
    }
}
