//! The server's interface for a script.

use super::control::Halt;
use std::time::Instant;

/// The server's interface for a script.
pub trait Host {
    /// Runs a command, which begins now, and appends its reply, an error as well, in version 3 of
    /// the protocol or 2.
    ///
    /// # Errors
    /// The script ends, whatever the script would do with an error.
    fn call(
        &self,
        args: &[&[u8]],
        now: Instant,
        resp3: bool,
        reply: &mut Vec<u8>,
    ) -> Result<(), Halt>;

    /// Whether the user may run a command.
    ///
    /// # Errors
    /// There is no such command: the text.
    fn may_run(&self, args: &[&[u8]]) -> Result<bool, &'static str>;

    /// Writes to the server's log; levels are 0, for debugging, to 3, a warning.
    fn log(&self, level: i64, text: &[u8]);
}
