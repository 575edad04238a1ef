//! Where a server listens beside its port, and what is told of Redis's own settings.

use super::Settings;

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

    /// The names that Redis would give to its files and directories in `dir`.
    pub(crate) fn names_of_redis(&self) -> [String; 3] {
        ["dbfilename", "appenddirname", "appendfilename"].map(|name| self.text(name))
    }
}
