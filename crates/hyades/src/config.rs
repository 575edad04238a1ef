//! How a database is described before it is opened.

use crate::checkpoint::CheckpointSettings;
use crate::error::Abort;
use crate::logging::record::RecordKind;
use crate::logging::settings::LogSettings;
use crate::recovery::plan::Replay;
use crate::recovery::report::Progress;
use crate::retry::RetrySettings;
use crate::storage::schema::Schema;
use crate::transaction::access::{Table, Transaction};
use crate::transaction::procedure::{Procedure, ProcedureId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How transactions are logged and ordered against the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Protocol {
    /// No log: nothing survives. The yardstick of the others.
    None,
    /// One stream, replayed in its order.
    Serial,
    /// Parallel streams with LSN vectors (Xia et al., VLDB 2020), as corrected in
    /// docs/protocols.md.
    #[default]
    Taurus,
    /// Parallel streams with lists of predecessors: Taurus as its first report has it (Yu et al.,
    /// 2016), as corrected in docs/protocols.md.
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
    /// Parallel streams, each with the changes of a part of the rows (Zhou et al., 2020). Data
    /// records only.
    Plover,
    /// Parallel streams with scalable sequence numbers: transactions that only put rows down
    /// ([`Transaction::put`]) wait for their own stream alone, all others for the common mark (Zhou
    /// et al., 2019). Data records only.
    Poplar,
}

impl Protocol {
    /// Its name, in manifests and on the command line.
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
        }
    }

    /// The protocol of this name in a manifest.
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
            _ => None,
        }
    }
}

/// How transactions are kept serializable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Concurrency {
    /// Two-phase locking that aborts instead of waiting.
    NoWait,
    /// Optimistic, validated at commit (Tu et al., SOSP 2013).
    #[default]
    Silo,
}

/// Who is told how recovery goes.
pub(crate) type Tell = dyn Fn(&Progress) + Send + Sync;

/// Describes and opens a database, see [`crate::Database::builder`].
///
/// What is declared has to be the same every time that a directory is opened; new tables and new
/// versions of procedures may join.
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
/// let id: u64 = db.call("note", "began")??;
/// assert_eq!(db.streams(), 8);
/// # let _ = id;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct Builder {
    pub(crate) protocol: Protocol,
    pub(crate) concurrency: Concurrency,
    pub(crate) record: RecordKind,
    pub(crate) log: LogSettings,
    pub(crate) tables: Vec<Schema>,
    pub(crate) procedures: Vec<Procedure>,
    pub(crate) recovery_threads: usize,
    pub(crate) replay: Replay,
    pub(crate) progress: Option<Arc<Tell>>,
    pub(crate) checkpoints: CheckpointSettings,
    pub(crate) retries: RetrySettings,
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            protocol: Protocol::default(),
            concurrency: Concurrency::default(),
            record: RecordKind::Data,
            log: LogSettings::default(),
            tables: Vec::new(),
            procedures: Vec::new(),
            recovery_threads: 0,
            replay: Replay::default(),
            progress: None,
            checkpoints: CheckpointSettings::default(),
            retries: RetrySettings::default(),
        }
    }
}

impl Builder {
    /// Chooses the logging protocol.
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = protocol;
        self
    }

    /// Chooses the concurrency control.
    pub fn concurrency(mut self, concurrency: Concurrency) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// Chooses how procedures are logged unless they, or a call, say otherwise. Closures are always
    /// data-logged.
    pub fn record(mut self, record: RecordKind) -> Self {
        self.record = record;
        self
    }

    /// The number of log streams, 1 to 64.
    pub fn streams(mut self, streams: usize) -> Self {
        self.log.streams = streams;
        self
    }

    /// Adds a further log directory beside the one given to [`Builder::open`]; streams are placed
    /// on all of them in turn.
    pub fn log_dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.log.dirs.push(dir.as_ref().to_path_buf());
        self
    }

    /// Sets everything about the log at once.
    pub fn log_settings(mut self, change: impl FnOnce(&mut LogSettings)) -> Self {
        change(&mut self.log);
        self
    }

    /// How many threads recover, at most 1,024; 0 (the default) means all cores.
    pub fn recovery_threads(mut self, threads: usize) -> Self {
        self.recovery_threads = threads;
        self
    }

    /// How an ordered replay runs.
    pub fn replay(mut self, replay: Replay) -> Self {
        self.replay = replay;
        self
    }

    /// Is called a few times a second while the database recovers.
    pub fn on_progress(mut self, tell: impl Fn(&Progress) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(tell));
        self
    }

    /// Takes a checkpoint this often, as long as something is committed.
    pub fn checkpoint_interval(mut self, interval: Duration) -> Self {
        self.checkpoints.interval = Some(interval);
        self
    }

    /// Takes checkpoints so often that the replay of the log, after the checkpoint's image has been
    /// loaded, takes no longer than this, as far as that can be told from how fast the last replay
    /// was. Where that cannot be kept, [`crate::Database::checkpoints`] says by how much, and why.
    pub fn max_recovery(mut self, bound: Duration) -> Self {
        self.checkpoints.max_recovery = Some(bound);
        self
    }

    /// The share of all processors' time that writing a checkpoint may take, above 0 and at most 1;
    /// 0.1 if not set.
    pub fn checkpoint_share(mut self, share: f64) -> Self {
        self.checkpoints.share = share;
        self
    }

    /// Sets everything about checkpoints at once.
    pub fn checkpoint_settings(mut self, change: impl FnOnce(&mut CheckpointSettings)) -> Self {
        change(&mut self.checkpoints);
        self
    }

    /// Sets how often, and how long, a transaction that conflicts with others is run again.
    pub fn retries(mut self, change: impl FnOnce(&mut RetrySettings)) -> Self {
        change(&mut self.retries);
        self
    }

    /// Declares a table. Tables that the directory knows already must be declared the same way.
    pub fn table(&mut self, schema: Schema) -> Table {
        self.tables.push(schema);
        Table(self.tables.len() as u32 - 1)
    }

    /// Registers a procedure: it must be deterministic, taking time and randomness from its
    /// transaction, and it passes on a conflict that an operation returns. Change `version`
    /// whenever its behaviour changes. It may be begun more than once for a transaction: where it
    /// met a conflict, and, at recovery, to learn which rows it will touch.
    pub fn procedure<A, R, F>(&mut self, name: &str, version: u32, body: F) -> ProcedureId
    where
        A: DeserializeOwned,
        R: Serialize,
        F: Fn(&Transaction<'_>, A) -> Result<R, Abort> + Send + Sync + 'static,
    {
        self.add(Procedure::new(name, version, None, body))
    }

    /// Registers a procedure that is always logged in the given way.
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

    fn add(&mut self, procedure: Procedure) -> ProcedureId {
        self.procedures.push(procedure);
        ProcedureId(self.procedures.len() as u32 - 1)
    }
}
