//! Settings: Redis's names and syntax. Each known name works, is stored because the setting is
//! harmless, or is refused in a sentence.

mod change;
mod events;
mod output_limits;
mod packed;
mod parse;
mod places;
mod primary;
pub mod redaction;
mod renamed;
mod table;
mod tls;
mod value;

pub use events::EventClasses;
pub use output_limits::{OutputLimit, OutputLimits};
pub use packed::PackedLimits;
pub use parse::{ConfigError, environment_port, memory, replace};
pub use primary::PrimaryAddress;
pub use renamed::RenamedCommands;
pub(crate) use table::{MOST_DATABASES, SECRETS};
#[cfg(feature = "tls")]
pub use tls::ClientCertificates;
pub use tls::{PingTls, TlsSettings};

use crate::access::Users;
use change::{Change, Moment};
use hyades_platform::sync::Unpoisoned;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::Duration;
use table::{HIDDEN, NOT_WHILE_LOADING, SETTINGS, first_name};

/// The settings of a server.
///
/// ```
/// let settings = hyades_server::Settings::from_arguments(&["--port", "0", "--dir", "data"])?;
/// assert_eq!(settings.port(), 0);
/// let error = hyades_server::Settings::from_arguments(&["--port", "x"]).unwrap_err();
/// assert!(error.to_string().contains("port"));
/// # Ok::<_, hyades_server::ConfigError>(())
/// ```
#[derive(Debug)]
pub struct Settings {
    /// By place in the table.
    values: RwLock<Vec<String>>,
    /// Places of the settings given or changed.
    given: RwLock<Vec<usize>>,
    file: Option<PathBuf>,
    /// Lines with definitions of users.
    user_lines: Vec<Vec<Vec<u8>>>,
    /// Commands with new names.
    pub(crate) renamed: RenamedCommands,
    /// Given and ignored settings, in words.
    notices: Vec<String>,
    /// The users of the lines, or of the file named by `aclfile`.
    users: Users,
    /// Held during a change of several settings, or a write of the file.
    changing: Mutex<()>,
    /// Settings needed by every run of commands, as numbers.
    databases: AtomicU64,
    longest_argument: AtomicU64,
    longest_request: AtomicU64,
    timeout: AtomicU64,
    /// Most keys remembered for clients with tracking; 0: any number.
    pub(crate) most_tracked: Arc<AtomicUsize>,
    max_memory: AtomicU64,
    /// The limits of `client-output-buffer-limit`.
    pub(crate) output_limits: Arc<OutputLimits>,
    packed: [AtomicU64; 7],
    events: AtomicU64,
    tracks_latency: AtomicBool,
    is_cluster: AtomicBool,
    slower_than: AtomicI64,
    latency_threshold: AtomicU64,
    /// Returns the number of bytes allocated by the program.
    memory_counter: OnceLock<fn() -> u64>,
}

impl Default for Settings {
    fn default() -> Self {
        let values = SETTINGS.iter().map(|setting| setting.default.to_string()).collect();
        let settings = Settings {
            values: RwLock::new(values),
            given: RwLock::default(),
            file: None,
            user_lines: Vec::new(),
            renamed: RenamedCommands::default(),
            notices: Vec::new(),
            users: Users::default(),
            changing: Mutex::default(),
            databases: AtomicU64::new(0),
            longest_argument: AtomicU64::new(0),
            longest_request: AtomicU64::new(0),
            timeout: AtomicU64::new(0),
            most_tracked: Arc::default(),
            max_memory: AtomicU64::new(0),
            output_limits: Arc::default(),
            packed: Default::default(),
            events: AtomicU64::new(0),
            tracks_latency: AtomicBool::new(false),
            is_cluster: AtomicBool::new(false),
            slower_than: AtomicI64::new(0),
            latency_threshold: AtomicU64::new(0),
            memory_counter: OnceLock::new(),
        };
        settings.refresh();
        settings
    }
}

fn place(name: &str) -> Option<usize> {
    SETTINGS.iter().position(|setting| setting.name == name)
}

/// The place of the value that a setting of the table shows.
fn value_place(name: &str) -> usize {
    place(first_name(name)).expect("first names stand in the table")
}

impl Settings {
    /// Settings of a command line: the name of a file, if the first argument is no setting, then
    /// `--name value` pairs. Values of the environment, `HYADES_NAME`, take a place between the
    /// two.
    ///
    /// # Errors
    /// The file cannot be read; a name is unknown; a value is not possible.
    pub fn from_arguments<A: AsRef<str>>(arguments: &[A]) -> Result<Settings, ConfigError> {
        parse::from_arguments(arguments, &|name| std::env::var(name).ok())
    }

    /// Makes the users defined by the settings.
    fn make_users(&mut self) -> Result<(), ConfigError> {
        let mut users = Users::default();
        users.set_channels_by_default(self.channels_by_default());
        users.set_default_password(&self.required_password());
        if let Some(file) = self.acl_file() {
            if !self.user_lines.is_empty() {
                let text = "users are defined by user lines or by aclfile, and not by both";
                return Err(ConfigError(text.to_string()));
            }
            let name = file.display().to_string();
            let text = std::fs::read(&file);
            let text = text.map_err(|e| ConfigError(format!("cannot read aclfile {name}: {e}")))?;
            users.read(&text, &name).map_err(ConfigError)?;
        }
        users.define(&self.user_lines).map_err(ConfigError)?;
        self.users = users;
        Ok(())
    }

    /// The users at the start.
    pub(crate) fn users(&self) -> &Users {
        &self.users
    }

    /// The file of the users; a name without a directory is in the directory of the data.
    pub(crate) fn acl_file(&self) -> Option<PathBuf> {
        let name = self.text("aclfile");
        (!name.is_empty()).then(|| self.dir().join(name))
    }

    pub(crate) fn channels_by_default(&self) -> bool {
        self.text("acl-pubsub-default") == "allchannels"
    }

    pub(crate) fn required_password(&self) -> String {
        self.text("requirepass")
    }

    /// Refusals kept by ACL LOG.
    pub(crate) fn denied_log_length(&self) -> usize {
        self.number("acllog-max-len") as usize
    }

    /// Reads the frequently needed numbers.
    fn refresh(&self) {
        self.databases.store(self.number("databases"), Relaxed);
        self.longest_argument.store(self.number("proto-max-bulk-len"), Relaxed);
        self.longest_request.store(self.number("client-query-buffer-limit"), Relaxed);
        self.timeout.store(self.number("timeout"), Relaxed);
        self.most_tracked.store(self.number("tracking-table-max-keys") as usize, Relaxed);
        self.max_memory.store(self.number("maxmemory"), Relaxed);
        self.output_limits.set(&self.text("client-output-buffer-limit"));
        self.is_cluster.store(self.is_yes("cluster-enabled"), Relaxed);
        self.tracks_latency.store(self.is_yes("latency-tracking"), Relaxed);
        self.latency_threshold.store(self.number("latency-monitor-threshold"), Relaxed);
        let slower_than = self.text("slowlog-log-slower-than").parse();
        self.slower_than.store(slower_than.expect("it is checked when it is set"), Relaxed);
        let events = EventClasses::read(&self.text("notify-keyspace-events"));
        self.events.store(events.expect("it is checked when it is set").bits().into(), Relaxed);
        let names = [
            "hash-max-listpack-entries",
            "set-max-intset-entries",
            "zset-max-listpack-entries",
            "list-max-listpack-size",
            "hll-sparse-max-bytes",
            "stream-node-max-entries",
            "stream-node-max-bytes",
        ];
        for (packed, name) in self.packed.iter().zip(names) {
            // A negative number is below the size of any collection, like 0; a negative number of
            // lists is a size in bytes, and 0 of streams is no limit.
            let is_no_limit = name.starts_with("list") || name.starts_with("stream");
            let given =
                self.text(name).parse::<u64>().ok().filter(|most| *most > 0 || !is_no_limit);
            packed.store(given.unwrap_or(if is_no_limit { u64::MAX } else { 0 }), Relaxed);
        }
    }

    /// Changes several settings of a running server: all of them, or none.
    ///
    /// # Errors
    /// Names the impossible setting.
    pub fn set(&self, changes: &[(String, String)]) -> Result<(), ConfigError> {
        self.set_and_apply(changes, || Ok(()))
    }

    /// As [`Settings::set`]. If the settings cannot be applied, nothing has changed either.
    pub(crate) fn set_and_apply(
        &self,
        changes: &[(String, String)],
        apply: impl FnOnce() -> Result<(), ConfigError>,
    ) -> Result<(), ConfigError> {
        // Of two clients that change settings at once, neither undoes the changes of the other.
        let _changing = self.changing.lock().unpoisoned();
        let before = self.values.read().unpoisoned().clone();
        let given = self.given.read().unpoisoned().clone();
        let change = |(name, value): &(String, String)| {
            let changed = self.change(name, value, Moment::Running).and_then(Change::or_error);
            changed.map_err(|error| match Settings::knows(name) {
                true => error.related_to(name),
                false => error,
            })
        };
        let result = changes.iter().try_for_each(change).and_then(|()| apply());
        if result.is_err() {
            *self.values.write().unpoisoned() = before;
            *self.given.write().unpoisoned() = given;
            self.refresh();
        }
        result
    }

    /// Whether there is a setting of this name.
    pub(crate) fn knows(name: &str) -> bool {
        place(&name.to_ascii_lowercase()).is_some()
    }

    /// Whether Redis does not change a setting while it loads its data.
    pub(crate) fn waits_for_loading(name: &str) -> bool {
        NOT_WHILE_LOADING.iter().any(|setting| setting.eq_ignore_ascii_case(name))
    }

    /// Names and values of the settings that match at least one pattern.
    pub(crate) fn matching(&self, patterns: &[&[u8]]) -> Vec<(&'static str, String)> {
        let values = self.values.read().unpoisoned();
        let matches = |name: &str| {
            let is_hidden = HIDDEN.contains(&name);
            let fits = |pattern: &&[u8]| match is_hidden {
                true => pattern.eq_ignore_ascii_case(name.as_bytes()),
                false => crate::base::glob::matches(pattern, name.as_bytes(), true),
            };
            patterns.iter().any(fits)
        };
        let all = SETTINGS.iter().filter(|setting| matches(setting.name));
        all.map(|setting| (setting.name, values[value_place(setting.name)].clone())).collect()
    }

    /// Writes the settings that differ from the file into the file, or all settings: lines keep
    /// their places.
    pub(crate) fn rewrite(&self, users: &Users, writes_all: bool) -> Result<(), ConfigError> {
        let Some(file) = &self.file else {
            return Err(ConfigError("The server is running without a config file".to_string()));
        };
        let _changing = self.changing.lock().unpoisoned();
        let values = self.values.read().unpoisoned().clone();
        let is_first = |at: &usize| value_place(SETTINGS[*at].name) == *at;
        let given = match writes_all {
            true => (0..SETTINGS.len()).filter(is_first).collect(),
            false => self.given.read().unpoisoned().clone(),
        };
        let all = given.into_iter().map(|at| (SETTINGS[at].name, values[at].clone()));
        // ACL SAVE writes the users of `aclfile`.
        let users: Vec<Vec<u8>> = match self.acl_file() {
            None if users.is_restricted() || !self.user_lines.is_empty() => {
                users.iter().map(|user| user.line()).collect()
            }
            _ => Vec::new(),
        };
        parse::rewrite(file, &all.collect::<Vec<_>>(), &users)
    }

    fn text(&self, name: &str) -> String {
        let at = value_place(name);
        self.values.read().unpoisoned()[at].clone()
    }

    fn number(&self, name: &str) -> u64 {
        self.text(name).parse().expect("numbers are checked when they are set")
    }

    fn is_yes(&self, name: &str) -> bool {
        self.text(name) == "yes"
    }

    /// The port; 0: any free port.
    pub fn port(&self) -> u16 {
        self.number("port") as u16
    }

    /// The port of the metrics and of the status page; 0: no port.
    pub(crate) fn metrics_port(&self) -> u16 {
        self.number("metrics-port") as u16
    }

    /// The addresses to listen at. An address that begins with `-` may be missing.
    pub(crate) fn bind(&self) -> Vec<String> {
        self.text("bind").split_whitespace().map(str::to_string).collect()
    }

    /// The socket file for clients of this machine.
    pub(crate) fn unix_socket(&self) -> Option<PathBuf> {
        Some(PathBuf::from(self.text("unixsocket"))).filter(|path| !path.as_os_str().is_empty())
    }

    /// The permissions of the socket file, if not left to the process.
    pub(crate) fn unix_permissions(&self) -> Option<u32> {
        let mode = u32::from_str_radix(&self.text("unixsocketperm"), 8);
        Some(mode.expect("it is checked when it is set")).filter(|mode| *mode > 0)
    }

    /// The directory of the data.
    pub fn dir(&self) -> PathBuf {
        Path::new(&self.text("dir")).to_path_buf()
    }

    /// The directory below which HYADES.BACKUP makes copies.
    pub(crate) fn backup_dir(&self) -> Option<PathBuf> {
        Some(PathBuf::from(self.text("backup-dir"))).filter(|dir| !dir.as_os_str().is_empty())
    }

    /// The directory that keeps what checkpoints make superfluous of the log.
    pub(crate) fn log_archive(&self) -> Option<PathBuf> {
        Some(PathBuf::from(self.text("log-archive"))).filter(|dir| !dir.as_os_str().is_empty())
    }

    pub(crate) fn databases(&self) -> u32 {
        self.databases.load(Relaxed) as u32
    }

    pub(crate) fn max_clients(&self) -> usize {
        self.number("maxclients") as usize
    }

    pub(crate) fn is_protected(&self) -> bool {
        self.is_yes("protected-mode")
    }

    pub(crate) fn longest_argument(&self) -> usize {
        self.longest_argument.load(Relaxed) as usize
    }

    /// Most bytes of a request.
    pub(crate) fn longest_request(&self) -> usize {
        self.longest_request.load(Relaxed) as usize
    }

    /// Seconds after which a silent client is disconnected; 0: never.
    pub(crate) fn timeout_seconds(&self) -> u64 {
        self.timeout.load(Relaxed)
    }

    /// Bytes of memory above which commands with a possible growth are refused; 0: no limit.
    pub(crate) fn max_memory(&self) -> u64 {
        self.max_memory.load(Relaxed)
    }

    /// Makes `maxmemory` and INFO count the bytes allocated and not freed by the program, as
    /// `allocated` returns. Without the function, the pages of the process in memory count. The
    /// first function given counts.
    pub fn count_memory(&self, allocated: fn() -> u64) {
        let _ = self.memory_counter.set(allocated);
    }

    pub(crate) fn memory_counter(&self) -> Option<fn() -> u64> {
        self.memory_counter.get().copied()
    }

    /// How many elements are packed at most.
    pub(crate) fn packed(&self) -> PackedLimits {
        let [hash, set, sorted_set, list, sparse_sketch, node_entries, node_bytes] =
            self.packed.each_ref().map(|packed| packed.load(Relaxed) as usize);
        PackedLimits { hash, set, sorted_set, list, sparse_sketch, node_entries, node_bytes }
    }

    /// The wanted keyspace events.
    pub(crate) fn events(&self) -> EventClasses {
        EventClasses::from_bits(self.events.load(Relaxed) as u16)
    }

    /// Whether histograms of commands' times are kept.
    pub(crate) fn tracks_latency(&self) -> bool {
        self.tracks_latency.load(Relaxed)
    }

    /// The percentiles of commands' times in INFO.
    pub(crate) fn latency_percentiles(&self) -> Vec<f64> {
        let text = self.text("latency-tracking-info-percentiles");
        text.split(' ').filter_map(|number| number.parse().ok()).collect()
    }

    /// Commands of at least this time, in microseconds, are in the slow log.
    pub(crate) fn slower_than(&self) -> Option<u64> {
        u64::try_from(self.slower_than.load(Relaxed)).ok()
    }

    /// Commands of at least this time, in milliseconds, are events of latency.
    #[inline]
    pub(crate) fn latency_threshold_ms(&self) -> Option<u64> {
        Some(self.latency_threshold.load(Relaxed)).filter(|least| *least > 0)
    }

    /// The time limit of a script.
    pub(crate) fn script_time_limit(&self) -> Duration {
        Duration::from_millis(self.number("script-time-limit"))
    }

    /// The number of entries of the slow log.
    pub(crate) fn slow_log_length(&self) -> usize {
        self.number("slowlog-max-len") as usize
    }

    /// Whether `save` names times at which Redis would save.
    pub(crate) fn has_times_of_saving(&self) -> bool {
        !self.text("save").is_empty()
    }

    pub(crate) fn debug_is_enabled(&self) -> bool {
        self.text("enable-debug-command") != "no"
    }

    /// The number of log streams; None: by measurement.
    pub(crate) fn streams(&self) -> Option<usize> {
        Some(self.number("streams") as usize).filter(|streams| *streams > 0)
    }

    /// After this time without a byte the system checks whether a client is still there; 0: never.
    pub(crate) fn keepalive_seconds(&self) -> u64 {
        self.number("tcp-keepalive")
    }

    /// The number of event loops.
    pub(crate) fn loops(&self) -> usize {
        match self.number("loops") as usize {
            0 => loops_for(std::thread::available_parallelism().map_or(1, usize::from)),
            loops => loops,
        }
    }

    pub(crate) fn max_recovery_seconds(&self) -> u64 {
        self.number("max-recovery")
    }

    pub(crate) fn config_file(&self) -> Option<&Path> {
        self.file.as_deref()
    }
}

/// Seven event loops for each eight cores: at least one core is left free, if there are several.
/// With loops on all cores, loops and flushers would wait for each other, and each reply waits for
/// a flusher.
fn loops_for(cores: usize) -> usize {
    (cores * 7 / 8).max(1)
}

#[cfg(test)]
mod line_tests;
#[cfg(test)]
mod tests;
