//! What decides the role of this member.

use crate::config::Settings;
use crate::state::membership::View;
use crate::state::membership_figures::ReadMetrics;
use hyades::{Builder, Database};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Makes the description of the server's database, with its tables: for each role a new one.
pub type MakeBuilder = Arc<dyn Fn() -> Builder + Send + Sync>;

/// Makes the source of the roles, on the thread of the member.
pub type SourceFactory =
    Box<dyn FnOnce(MakeBuilder, &Settings) -> Result<Box<dyn RoleSource>, String> + Send>;

/// A role that begins.
pub enum RoleChange {
    /// The member follows, and its state is read.
    Standby(Database),
    /// The member is the primary.
    Primary(Database),
    /// The member is about to be the primary. The server reads the state of the standby no more.
    Candidate,
    /// The member joins, for the reason that the text says, and has no database for clients. When
    /// [`RoleSource::next`] is called again, the server has let go of every handle of the database
    /// before: its directory can be opened again.
    Joining(String),
    /// The member has stopped, for the reason that the text says.
    Stopped(String),
}

impl RoleChange {
    /// The role in a word.
    pub fn name(&self) -> &'static str {
        match self {
            RoleChange::Standby(_) => "standby",
            RoleChange::Primary(_) => "primary",
            RoleChange::Candidate => "candidate",
            RoleChange::Joining(_) => "joining",
            RoleChange::Stopped(_) => "stopped",
        }
    }
}

impl fmt::Debug for RoleChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RoleChange::Standby(_) => f.write_str("Standby"),
            RoleChange::Primary(_) => f.write_str("Primary"),
            RoleChange::Candidate => f.write_str("Candidate"),
            RoleChange::Joining(text) => write!(f, "Joining({text:?})"),
            RoleChange::Stopped(text) => write!(f, "Stopped({text:?})"),
        }
    }
}

/// The source of this member's roles: the lease, the log, and the files. A single thread makes all
/// calls.
pub trait RoleSource: Send {
    /// Waits at most as long for the next role, and does the work of the present role meanwhile.
    ///
    /// After [`RoleChange::Joining`] and after a primary, the next call comes once the server has
    /// let go of the database before. After [`RoleChange::Candidate`] it comes at once: readers of
    /// the standby may still be open, and fail when the state is not theirs any more.
    fn next(&mut self, wait: Duration) -> Option<RoleChange>;

    /// The members, as this member sees them now. Called often.
    fn view(&self) -> View;

    /// What reads the figures of the replicated log, if there is one. Asked for once.
    fn figures(&self) -> Option<ReadMetrics> {
        None
    }

    /// Hands the database over to a node, or to any standby; on a standby: asks the primary to do
    /// so. Returns once the hand-over has begun, and its end is a role.
    ///
    /// # Errors
    /// Why the database is not handed over, in a sentence.
    fn hand_over(&self, to: Option<&str>) -> Result<(), String>;

    /// The server ends, and has let go of the database: a primary releases its lease.
    fn end(&mut self);
}
