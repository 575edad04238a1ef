//! Where a server listens beside its port, and what Redis would have written.

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

    /// The names that Redis would give to its files and directories in `dir`.
    pub(crate) fn names_of_redis(&self) -> [String; 3] {
        ["dbfilename", "appenddirname", "appendfilename"].map(|name| self.text(name))
    }
}
