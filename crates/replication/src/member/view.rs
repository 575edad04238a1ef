//! What a member shows of itself.

use crate::lease::Lease;
use crate::reports::Heard;
use std::time::Duration;

/// What a member knows of itself and of the primary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberView {
    /// The newest lease seen, if there is one.
    pub lease: Option<Lease>,
    /// Whether this member is the primary.
    pub is_primary: bool,
    /// Whether the log service has answered within the term of the lease. At the primary: whether
    /// what only reads may be answered.
    pub is_answered: bool,
    /// The database's uuid, once known.
    pub database: Option<[u8; 16]>,
    /// The incarnation that is followed or written; 0 before the first.
    pub incarnation: u32,
    /// By stream, what this member has.
    pub positions: Vec<u64>,
    /// The last epoch of the state that is served; 0 if none is.
    pub epoch: u64,
    /// The age of the served state, in microseconds, by the wall clocks of the primary and here;
    /// `None` if not known.
    pub lag_us: Option<u64>,
    /// At a standby, the bytes of the log that it knows of and has not replayed; `None` if not
    /// known.
    pub behind_bytes: Option<u64>,
    /// At the primary, how long what only reads is answered without another renewal.
    pub lease_left: Option<Duration>,
    /// The standbys heard of, but for this member.
    pub standbys: Vec<Heard>,
}
