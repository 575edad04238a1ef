//! Settings of less weight: the listening places beside the port, the process in the system, delays
//! for tests, and reported settings of Redis.

use super::Settings;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

impl Settings {
    /// The addresses of the pages for monitoring. An address that begins with `-` may be missing.
    pub(crate) fn metrics_bind(&self) -> Vec<String> {
        self.text("metrics-bind").split_whitespace().map(str::to_string).collect()
    }

    /// Most connections of a socket waiting to be accepted; the system has its own bound.
    pub(crate) fn backlog(&self) -> i32 {
        self.number("tcp-backlog") as i32
    }

    /// The frequency of Redis's periodic work, per second. Only INFO uses the number: nothing here
    /// depends on it.
    pub(crate) fn hz(&self) -> String {
        self.text("hz")
    }

    /// The size that Redis would keep for its replicas, in bytes.
    pub(crate) fn replication_backlog(&self) -> String {
        self.text("repl-backlog-size")
    }

    /// The number of `oom-score-adj` for the score of the process, and whether the number is added
    /// to the earlier score, or is the whole score; `None`: the score is left alone.
    pub(crate) fn oom_score(&self) -> Option<(i32, bool)> {
        let (how, values) = (self.text("oom-score-adj"), self.text("oom-score-adj-values"));
        // The remaining values are for replicas, and for processes that save.
        let own = values.split(' ').next().and_then(|own| own.parse().ok());
        let own = own.expect("it is checked when it is set");
        (how != "no").then_some((own, how != "absolute"))
    }

    /// The extra time of loading this number of keys, for tests of clients. A negative setting
    /// stands for its fraction of a microsecond.
    pub(crate) fn load_delay(&self, keys: u64) -> Duration {
        let delay = self.text("key-load-delay").parse::<i64>();
        let delay = delay.expect("it is checked when it is set");
        Duration::from_micros(match (delay, delay.unsigned_abs()) {
            (0.., micros) => keys.saturating_mul(micros),
            (_, keys_of_one) => keys / keys_of_one,
        })
    }

    /// Whether the server is a node of a cluster.
    #[inline]
    pub(crate) fn is_cluster(&self) -> bool {
        self.is_cluster.load(Relaxed)
    }

    /// The address of a server alone for clients of its cluster, as given: empty, and 0, if not.
    pub(crate) fn cluster_announced(&self) -> (String, u16) {
        let port = u16::try_from(self.number("cluster-announce-port")).unwrap_or(0);
        (self.text("cluster-announce-ip"), port)
    }

    /// The names of Redis's files and directories in `dir`.
    pub(crate) fn names_of_redis(&self) -> [String; 3] {
        ["dbfilename", "appenddirname", "appendfilename"].map(|name| self.text(name))
    }
}
