//! Without the feature `replication`: no server is a member of a replicated database.

use super::membership_asked::Demand;

pub use NoMembership as Membership;

/// The membership of a server that is alone.
#[derive(Default)]
pub struct NoMembership {}

impl NoMembership {
    /// Whether the server is a member.
    #[inline]
    pub const fn is_on(&self) -> bool {
        false
    }

    /// The role in words, with database and incarnation, of a member.
    pub const fn in_words(&self) -> Option<String> {
        None
    }

    /// Whether some commands are refused by the role of the server.
    #[inline]
    pub const fn restricts(&self) -> bool {
        false
    }

    /// Why the role refuses a command on data, if at all.
    pub const fn refusal(&self, _: Demand) -> Option<String> {
        None
    }

    /// Why a request on keys of a slot is not served here in cluster mode, by the role.
    pub const fn redirection(&self, _: u16, _: Demand, _: bool) -> Option<String> {
        None
    }

    /// Whether transactions only read.
    #[inline]
    pub const fn only_reads(&self) -> bool {
        false
    }

    /// What the server waits for before it has a database, in words.
    pub const fn waits_for(&self) -> Option<String> {
        None
    }

    /// Why the member has stopped, if it has.
    pub const fn stopped(&self) -> Option<String> {
        None
    }

    /// Whether the stop of the log ends the role of the server, and not the server.
    pub const fn note_log_stopped(&self, _: &str) -> bool {
        false
    }
}
