//! The names of all settings, with their defaults.

/// How the text of a setting is checked.
#[derive(Clone, Copy, Debug)]
pub enum TextRule {
    /// `yes` or `no`.
    YesNo,
    /// An integer from the first to the second.
    Number(i64, i64),
    /// A number of bytes, with a unit.
    Memory,
    /// A number of bytes from the first to the second.
    MemoryIn(u64, u64),
    /// A number of bytes, or a number of percent of `maxmemory`.
    MemoryOrPercent,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Numbers from 0 to 100.
    Percentiles,
    /// Letters of classes of keyspace events.
    Events,
    /// Limits of the bytes that wait for clients.
    OutputLimits,
    /// Permissions of a file, in octal digits.
    Permissions,
    /// Versions of TLS.
    TlsProtocols,
    /// Pairs of seconds and changes, after which Redis saves.
    SaveTimes,
    /// The title of a process, with fields in braces.
    TitleTemplate,
    /// How Redis shuts down at a signal.
    ShutdownWords,
    /// Three numbers: how soon the system kills a master, a replica, and a process that saves.
    OomScores,
    /// The host and the port of a master, or no master.
    Master,
    /// Any text.
    Text,
}

/// The effect of a setting.
#[derive(Clone, Copy, Debug)]
pub enum Rule {
    /// Set when the server starts.
    Fixed,
    /// Takes effect at once.
    Live,
    /// Kept without effect: this server has nothing to tune there.
    Stored,
    /// Values other than the default are refused, for this reason.
    Refused(&'static str),
}

/// A setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The name.
    pub name: &'static str,
    /// The default.
    pub default: &'static str,
    /// The possible values.
    pub value: TextRule,
    /// The effect.
    pub rule: Rule,
}

impl Setting {
    /// Whether several values may be given, joined into a value with blanks between.
    pub fn takes_several(&self) -> bool {
        let is_list = matches!(
            self.value,
            TextRule::Events
                | TextRule::Master
                | TextRule::OomScores
                | TextRule::OutputLimits
                | TextRule::Percentiles
                | TextRule::SaveTimes
                | TextRule::ShutdownWords
                | TextRule::TlsProtocols
        );
        is_list || matches!(self.name, "bind" | "metrics-bind")
    }
}

const fn setting(
    name: &'static str,
    default: &'static str,
    value: TextRule,
    rule: Rule,
) -> Setting {
    Setting { name, default, value, rule }
}

use Rule::{Fixed, Live, Refused, Stored};
use TextRule::{Memory, MemoryIn, MemoryOrPercent, Number, OneOf, Text, YesNo};

/// Most databases.
pub const MOST_DATABASES: u32 = 1_024;

/// Most entries of the slow log.
const MOST_SLOW: i64 = 1 << 20;

/// Why cipher suites cannot be chosen.
const SUITES: &str = "the cipher suites are fixed: all that are offered are secure";

/// The reason for a single policy.
const NEVER_EVICTED: &str = "keys are never evicted: at maxmemory, commands are refused that may \
                             use more (noeviction)";

/// Why memory is not defragmented.
const NOT_MOVED: &str = "the allocator does not move what is in use";

/// Why threads have no list of processors.
const NOT_PINNED: &str = "threads are not bound to processors: use taskset, or CPUAffinity in the \
                          unit of systemd";

/// A number of any size.
const ANY: TextRule = Number(i64::MIN, i64::MAX);

/// Second names of settings, with the first names. Both show the last value set.
pub const SECOND_NAMES: &[(&str, &str)] = &[
    ("cluster-slave-no-failover", "cluster-replica-no-failover"),
    ("cluster-slave-validity-factor", "cluster-replica-validity-factor"),
    ("hash-max-ziplist-entries", "hash-max-listpack-entries"),
    ("hash-max-ziplist-value", "hash-max-listpack-value"),
    ("list-max-ziplist-size", "list-max-listpack-size"),
    ("lua-time-limit", "busy-reply-threshold"),
    ("min-slaves-max-lag", "min-replicas-max-lag"),
    ("min-slaves-to-write", "min-replicas-to-write"),
    ("repl-ping-slave-period", "repl-ping-replica-period"),
    ("slave-announce-ip", "replica-announce-ip"),
    ("slave-announce-port", "replica-announce-port"),
    ("slave-ignore-maxmemory", "replica-ignore-maxmemory"),
    ("slave-lazy-flush", "replica-lazy-flush"),
    ("slave-priority", "replica-priority"),
    ("slave-read-only", "replica-read-only"),
    ("slave-serve-stale-data", "replica-serve-stale-data"),
    ("slaveof", "replicaof"),
    ("zset-max-ziplist-entries", "zset-max-listpack-entries"),
    ("zset-max-ziplist-value", "zset-max-listpack-value"),
];

/// The first name of a setting.
pub fn first_name(name: &str) -> &str {
    SECOND_NAMES.iter().find(|(second, _)| *second == name).map_or(name, |(_, first)| first)
}

/// Settings that Redis takes at the start alone.
pub const AT_START: [&str; 9] = [
    "aof_rewrite_cpulist",
    "bgsave_cpulist",
    "bio_cpulist",
    "cluster-enabled",
    "daemonize",
    "logfile",
    "server_cpulist",
    "socket-mark-id",
    "syslog-enabled",
];

/// Settings that Redis does not change while loading data.
pub const NOT_WHILE_LOADING: [&str; 3] = ["appendonly", "dir", "repl-diskless-load"];

/// Passwords, and related names: neither errors nor MONITOR show the values.
pub const SECRETS: [&str; 5] =
    ["masterauth", "masteruser", "requirepass", "tls-client-key-file-pass", "tls-key-file-pass"];

/// Settings of Redis for its own tests: CONFIG GET shows a setting named in full.
pub const HIDDEN: [&str; 5] = [
    "key-load-delay",
    "loading-process-events-interval-bytes",
    "rdb-key-save-delay",
    "use-exit-on-panic",
    "watchdog-period",
];

/// All settings: first the working settings, then the known settings of Redis.
pub const SETTINGS: &[Setting] = &[
    setting("backup-dir", "", Text, Fixed),
    setting("bind", "127.0.0.1 -::1", Text, Fixed),
    setting("databases", "16", Number(1, MOST_DATABASES as i64), Fixed),
    setting("dir", "hyades-data", Text, Fixed),
    setting("enable-debug-command", "no", OneOf(&["no", "yes", "local"]), Fixed),
    setting("log-archive", "", Text, Fixed),
    setting("loops", "0", Number(0, 256), Fixed),
    setting("max-recovery", "10", Number(1, 86_400), Fixed),
    setting("maxclients", "10000", Number(1, 1_000_000), Live),
    setting("metrics-bind", "127.0.0.1 -::1", Text, Fixed),
    setting("metrics-port", "0", Number(0, 65_535), Fixed),
    setting("port", "6379", Number(0, 65_535), Live),
    setting("protected-mode", "yes", YesNo, Live),
    setting("proto-max-bulk-len", "536870912", MemoryIn(1 << 20, 1 << 30), Live),
    setting("streams", "0", Number(0, 64), Fixed),
    setting("acl-pubsub-default", "resetchannels", OneOf(&["allchannels", "resetchannels"]), Live),
    setting("aclfile", "", Text, Fixed),
    setting("acllog-max-len", "128", Number(0, 1 << 20), Live),
    setting("active-defrag-cycle-max", "25", ANY, Stored),
    setting("active-defrag-cycle-min", "1", ANY, Stored),
    setting("active-defrag-ignore-bytes", "104857600", Memory, Stored),
    setting("active-defrag-max-scan-fields", "1000", ANY, Stored),
    setting("active-defrag-threshold-lower", "10", ANY, Stored),
    setting("active-defrag-threshold-upper", "100", ANY, Stored),
    setting("active-expire-effort", "1", ANY, Stored),
    setting("activedefrag", "no", YesNo, Refused(NOT_MOVED)),
    setting("activerehashing", "yes", YesNo, Stored),
    setting("always-show-logo", "no", YesNo, Fixed),
    setting("aof-disable-auto-gc", "no", YesNo, Stored),
    setting("aof-load-truncated", "yes", YesNo, Stored),
    setting("aof-rewrite-incremental-fsync", "yes", YesNo, Stored),
    setting("aof-timestamp-enabled", "no", YesNo, Stored),
    setting("aof-use-rdb-preamble", "yes", YesNo, Stored),
    setting("aof_rewrite_cpulist", "", Text, Refused(NOT_PINNED)),
    setting("appenddirname", "appendonlydir", Text, Fixed),
    setting("appendfilename", "appendonly.aof", Text, Fixed),
    setting("appendfsync", "always", OneOf(&["always", "everysec", "no"]), Stored),
    setting("appendonly", "yes", YesNo, Stored),
    setting("auto-aof-rewrite-min-size", "67108864", Memory, Stored),
    setting("auto-aof-rewrite-percentage", "100", ANY, Stored),
    setting("bgsave_cpulist", "", Text, Refused(NOT_PINNED)),
    setting("bind-source-addr", "", Text, Stored),
    setting("bio_cpulist", "", Text, Refused(NOT_PINNED)),
    setting("busy-reply-threshold", "5000", ANY, Stored),
    setting(
        "client-output-buffer-limit",
        "normal 570425344 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
        TextRule::OutputLimits,
        Live,
    ),
    setting("client-query-buffer-limit", "1073741824", MemoryIn(1 << 20, 1 << 30), Live),
    setting("cluster-allow-pubsubshard-when-down", "yes", YesNo, Stored),
    setting("cluster-allow-reads-when-down", "no", YesNo, Stored),
    setting("cluster-allow-replica-migration", "yes", YesNo, Stored),
    setting("cluster-announce-bus-port", "0", ANY, Stored),
    setting("cluster-announce-hostname", "", Text, Stored),
    setting("cluster-announce-human-nodename", "", Text, Stored),
    setting("cluster-announce-ip", "", Text, Live),
    setting("cluster-announce-port", "0", Number(0, 65_535), Live),
    setting("cluster-announce-tls-port", "0", ANY, Stored),
    setting("cluster-config-file", "nodes.conf", Text, Fixed),
    setting("cluster-enabled", "no", YesNo, Fixed),
    setting("cluster-link-sendbuf-limit", "0", Memory, Stored),
    setting("cluster-migration-barrier", "1", ANY, Stored),
    setting("cluster-node-timeout", "15000", ANY, Stored),
    setting("cluster-port", "0", ANY, Fixed),
    setting("cluster-preferred-endpoint-type", "ip", Text, Stored),
    setting("cluster-replica-no-failover", "no", YesNo, Stored),
    setting("cluster-replica-validity-factor", "10", ANY, Stored),
    setting("cluster-require-full-coverage", "yes", YesNo, Stored),
    setting("cluster-slave-no-failover", "no", YesNo, Stored),
    setting("cluster-slave-validity-factor", "10", ANY, Stored),
    setting("crash-log-enabled", "yes", YesNo, Stored),
    setting("crash-memcheck-enabled", "yes", YesNo, Stored),
    setting("daemonize", "no", YesNo, Refused("run it under a service manager")),
    setting("dbfilename", "dump.rdb", Text, Fixed),
    setting("disable-thp", "yes", YesNo, Fixed),
    setting("dynamic-hz", "yes", YesNo, Stored),
    setting("enable-module-command", "no", OneOf(&["no", "yes", "local"]), Fixed),
    setting("enable-protected-configs", "no", OneOf(&["no", "yes", "local"]), Fixed),
    setting("hash-max-listpack-entries", "512", ANY, Live),
    setting("hash-max-listpack-value", "64", Memory, Stored),
    setting("hash-max-ziplist-entries", "512", ANY, Stored),
    setting("hash-max-ziplist-value", "64", Memory, Stored),
    setting("hll-sparse-max-bytes", "3000", Memory, Live),
    setting("hz", "10", ANY, Stored),
    setting("ignore-warnings", "", Text, Stored),
    setting("io-threads", "1", ANY, Fixed),
    setting("io-threads-do-reads", "no", YesNo, Fixed),
    setting("jemalloc-bg-thread", "yes", YesNo, Stored),
    setting("key-load-delay", "0", Number(i32::MIN as i64, i32::MAX as i64), Live),
    setting("latency-monitor-threshold", "0", Number(0, i64::MAX), Live),
    setting("latency-tracking", "yes", YesNo, Live),
    setting("latency-tracking-info-percentiles", "50 99 99.9", TextRule::Percentiles, Live),
    setting("lazyfree-lazy-eviction", "no", YesNo, Stored),
    setting("lazyfree-lazy-expire", "no", YesNo, Stored),
    setting("lazyfree-lazy-server-del", "no", YesNo, Stored),
    setting("lazyfree-lazy-user-del", "no", YesNo, Stored),
    setting("lazyfree-lazy-user-flush", "no", YesNo, Stored),
    setting("lfu-decay-time", "1", ANY, Stored),
    setting("lfu-log-factor", "10", ANY, Stored),
    setting("list-compress-depth", "0", ANY, Stored),
    setting("list-max-listpack-size", "-2", ANY, Live),
    setting("list-max-ziplist-size", "-2", ANY, Stored),
    setting(
        "loading-process-events-interval-bytes",
        "2097152",
        Number(1_024, i32::MAX as i64),
        Stored,
    ),
    setting("locale-collate", "", Text, Stored),
    setting("logfile", "", Text, Refused("messages go to standard error")),
    setting(
        "loglevel",
        "notice",
        OneOf(&["debug", "verbose", "notice", "warning", "nothing"]),
        Stored,
    ),
    setting("lua-time-limit", "5000", ANY, Stored),
    setting("masterauth", "", Text, Live),
    setting("masteruser", "", Text, Live),
    setting("maxmemory", "0", Memory, Live),
    setting("maxmemory-clients", "0", MemoryOrPercent, Stored),
    setting("maxmemory-eviction-tenacity", "10", ANY, Stored),
    setting("maxmemory-policy", "noeviction", Text, Refused(NEVER_EVICTED)),
    setting("maxmemory-samples", "5", ANY, Stored),
    setting("min-replicas-max-lag", "10", ANY, Stored),
    setting("min-replicas-to-write", "0", ANY, Refused("there are no replicas")),
    setting("min-slaves-max-lag", "10", ANY, Stored),
    setting("min-slaves-to-write", "0", ANY, Refused("there are no replicas")),
    setting("no-appendfsync-on-rewrite", "no", YesNo, Stored),
    setting("notify-keyspace-events", "", TextRule::Events, Live),
    setting("oom-score-adj", "no", OneOf(&["no", "yes", "relative", "absolute"]), Live),
    setting("oom-score-adj-values", "0 200 800", TextRule::OomScores, Live),
    setting("pidfile", "", Text, Fixed),
    setting(
        "proc-title-template",
        "{title} {listen-addr} {server-mode}",
        TextRule::TitleTemplate,
        Stored,
    ),
    setting("propagation-error-behavior", "ignore", Text, Stored),
    setting("rdb-del-sync-files", "no", YesNo, Stored),
    setting("rdb-key-save-delay", "0", ANY, Stored),
    setting("rdb-save-incremental-fsync", "yes", YesNo, Stored),
    setting("rdbchecksum", "yes", YesNo, Fixed),
    setting("rdbcompression", "yes", YesNo, Stored),
    setting("repl-backlog-size", "1048576", Memory, Stored),
    setting("repl-backlog-ttl", "3600", ANY, Stored),
    setting("repl-disable-tcp-nodelay", "no", YesNo, Stored),
    setting("repl-diskless-load", "disabled", Text, Stored),
    setting("repl-diskless-sync", "yes", YesNo, Stored),
    setting("repl-diskless-sync-delay", "5", ANY, Stored),
    setting("repl-diskless-sync-max-replicas", "0", ANY, Stored),
    setting("repl-ping-replica-period", "10", ANY, Stored),
    setting("repl-ping-slave-period", "10", ANY, Stored),
    setting("repl-timeout", "60", Number(1, i32::MAX as i64), Live),
    setting("replica-announce-ip", "", Text, Stored),
    setting("replica-announce-port", "0", Number(0, 65_535), Live),
    setting("replica-announced", "yes", YesNo, Stored),
    setting("replica-ignore-disk-write-errors", "no", YesNo, Stored),
    setting("replica-ignore-maxmemory", "yes", YesNo, Stored),
    setting("replica-lazy-flush", "no", YesNo, Stored),
    setting("replica-priority", "100", ANY, Stored),
    setting("replica-read-only", "yes", YesNo, Stored),
    setting("replica-serve-stale-data", "yes", YesNo, Stored),
    setting("replicaof", "", TextRule::Master, Fixed),
    setting("requirepass", "", Text, Live),
    setting("sanitize-dump-payload", "no", Text, Stored),
    setting("save", "3600 1 300 100 60 10000", TextRule::SaveTimes, Stored),
    setting("server_cpulist", "", Text, Refused(NOT_PINNED)),
    setting("set-max-intset-entries", "512", ANY, Live),
    setting("set-max-listpack-entries", "128", ANY, Stored),
    setting("set-max-listpack-value", "64", Memory, Stored),
    setting("set-proc-title", "yes", YesNo, Fixed),
    setting("shutdown-on-sigint", "default", TextRule::ShutdownWords, Stored),
    setting("shutdown-on-sigterm", "default", TextRule::ShutdownWords, Stored),
    setting("shutdown-timeout", "10", ANY, Stored),
    setting("slave-announce-ip", "", Text, Stored),
    setting("slave-announce-port", "0", ANY, Stored),
    setting("slave-ignore-maxmemory", "yes", YesNo, Stored),
    setting("slave-lazy-flush", "no", YesNo, Stored),
    setting("slave-priority", "100", ANY, Stored),
    setting("slave-read-only", "yes", YesNo, Stored),
    setting("slave-serve-stale-data", "yes", YesNo, Stored),
    setting("slaveof", "", TextRule::Master, Fixed),
    setting("slowlog-log-slower-than", "10000", Number(-1, i64::MAX), Live),
    setting("script-time-limit", "60000", Number(1, 86_400_000), Live),
    setting("slowlog-max-len", "128", Number(0, MOST_SLOW), Live),
    setting("socket-mark-id", "0", ANY, Refused("sockets are not marked")),
    setting("stop-writes-on-bgsave-error", "yes", YesNo, Stored),
    setting("stream-node-max-bytes", "4096", Memory, Live),
    setting("stream-node-max-entries", "100", ANY, Live),
    setting("supervised", "no", Text, Fixed),
    setting("syslog-enabled", "no", YesNo, Refused("messages go to standard error")),
    setting("syslog-facility", "local0", Text, Fixed),
    setting("syslog-ident", "redis", Text, Fixed),
    setting("tcp-backlog", "511", Number(0, i32::MAX as i64), Fixed),
    setting("tcp-keepalive", "300", Number(0, 32_767), Live),
    setting("timeout", "0", Number(0, i32::MAX as i64), Live),
    setting("tls-auth-clients", "yes", OneOf(&["yes", "no", "optional"]), Fixed),
    setting("tls-ca-cert-dir", "", Text, Refused("name one file with tls-ca-cert-file")),
    setting("tls-ca-cert-file", "", Text, Fixed),
    setting("tls-cert-file", "", Text, Fixed),
    setting("tls-ciphers", "", Text, Refused(SUITES)),
    setting("tls-ciphersuites", "", Text, Refused(SUITES)),
    setting("tls-client-cert-file", "", Text, Stored),
    setting("tls-client-key-file", "", Text, Stored),
    setting("tls-client-key-file-pass", "", Text, Stored),
    setting("tls-cluster", "no", YesNo, Stored),
    setting("tls-dh-params-file", "", Text, Stored),
    setting("tls-key-file", "", Text, Fixed),
    setting("tls-key-file-pass", "", Text, Refused("keys with a passphrase are not read")),
    setting("tls-port", "0", Number(0, 65_535), Fixed),
    setting("tls-prefer-server-ciphers", "no", YesNo, Fixed),
    setting("tls-protocols", "", TextRule::TlsProtocols, Fixed),
    setting("tls-replication", "no", YesNo, Stored),
    setting("tls-session-cache-size", "20480", ANY, Stored),
    setting("tls-session-cache-timeout", "300", ANY, Stored),
    setting("tls-session-caching", "yes", YesNo, Stored),
    setting("tracking-table-max-keys", "1000000", Number(0, i64::MAX), Live),
    setting("unixsocket", "", Text, Fixed),
    setting("unixsocketperm", "0", TextRule::Permissions, Fixed),
    setting("use-exit-on-panic", "no", YesNo, Stored),
    setting("watchdog-period", "0", Number(0, i32::MAX as i64), Stored),
    setting("zset-max-listpack-entries", "128", ANY, Live),
    setting("zset-max-listpack-value", "64", Memory, Stored),
    setting("zset-max-ziplist-entries", "128", ANY, Stored),
    setting("zset-max-ziplist-value", "64", Memory, Stored),
];
