//! Settings of less weight: where a server listens beside its port, what the process is to the
//! system, delays for tests, and what is told of Redis's own settings.

use super::Settings;
use std::time::Duration;

impl Settings {
    /// The addresses of the pages for monitoring. One that begins with `-` may be missing.
    pub(crate) fn metrics_bind(&self) -> Vec<String> {
        self.text("metrics-bind").split_whitespace().map(str::to_string).collect()
    }

    /// Most connections of a socket that wait to be accepted; the system has a bound of its own.
    pub(crate) fn backlog(&self) -> i32 {
        self.number("tcp-backlog") as i32
    }

    /// How often Redis would look after things in a second. Nothing here does so by a clock.
    pub(crate) fn hz(&self) -> String {
        self.text("hz")
    }

    /// What Redis would keep for its replicas, in bytes.
    pub(crate) fn replication_backlog(&self) -> String {
        self.text("repl-backlog-size")
    }

    /// What `oom-score-adj` adds to the score of the process, and whether it is added to what the
    /// process had before, or is all; `None`: it is left alone.
    pub(crate) fn oom_score(&self) -> Option<(i32, bool)> {
        let (how, values) = (self.text("oom-score-adj"), self.text("oom-score-adj-values"));
        // The others are those of replicas, and of processes that save.
        let own = values.split(' ').next().and_then(|own| own.parse().ok());
        let own = own.expect("it is checked when it is set");
        (how != "no").then_some((own, how != "absolute"))
    }

    /// How much longer loading takes with this number of keys, for tests of clients. A negative
    /// setting stands for its fraction of a microsecond.
    pub(crate) fn load_delay(&self, keys: u64) -> Duration {
        let delay = self.text("key-load-delay").parse::<i64>();
        let delay = delay.expect("it is checked when it is set");
        Duration::from_micros(match (delay, delay.unsigned_abs()) {
            (0.., micros) => keys.saturating_mul(micros),
            (_, keys_of_one) => keys / keys_of_one,
        })
    }

    /// The names that Redis would give to its files and directories in `dir`.
    pub(crate) fn names_of_redis(&self) -> [String; 3] {
        ["dbfilename", "appenddirname", "appendfilename"].map(|name| self.text(name))
    }
}
