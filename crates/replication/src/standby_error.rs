//! Why a member of a replicated database does not go on.

use hyades_wal::RemoteEnded;
use std::fmt;

/// Why a standby stops.
#[derive(Debug)]
#[non_exhaustive]
pub enum StandbyError {
    /// No primary has begun in time.
    NoPrimary,
    /// The log service holds something else than the log of the database.
    Service(RemoteEnded),
    /// The standby's files.
    Files(hyades_wal::Error),
    /// The records cannot be replayed.
    Replay(hyades::Error),
    /// The database had content before its log was replicated, and the files lack it.
    NeedsBase,
    /// The log service has lost messages that it had confirmed.
    Lost {
        /// The stream.
        stream: usize,
        /// Where the incarnation ends by the lane.
        end: u64,
        /// What was stored, by the lease, another message, or this member's files.
        stored: u64,
    },
}

impl fmt::Display for StandbyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StandbyError::NoPrimary => f.write_str("no primary has begun to write the log"),
            StandbyError::Service(ended) => ended.fmt(f),
            StandbyError::Files(error) => write!(f, "the files of the member: {error}"),
            StandbyError::Replay(error) => write!(f, "the log cannot be followed: {error}"),
            StandbyError::NeedsBase => f.write_str(
                "the database had content before its log was replicated, which no lane has: a \
                 standby begins with a base, which a member fetches",
            ),
            StandbyError::Lost { stream, end, stored } => write!(
                f,
                "the log service has lost what it had confirmed: stream {stream} was stored up to \
                 Lsn {stored}, and its lane ends at Lsn {end}; the files of the members have it: \
                 no member goes on by itself"
            ),
        }
    }
}

impl StandbyError {
    /// Whether the log service does not answer, and may later.
    pub(crate) fn is_silence(&self) -> bool {
        use hyades_wal::Error::Remote;
        matches!(
            self,
            StandbyError::Service(RemoteEnded::Silent)
                | StandbyError::Files(Remote(RemoteEnded::Silent))
                | StandbyError::Replay(hyades::Error::Log(Remote(RemoteEnded::Silent)))
        )
    }
}

impl std::error::Error for StandbyError {}

impl From<RemoteEnded> for StandbyError {
    fn from(ended: RemoteEnded) -> Self {
        StandbyError::Service(ended)
    }
}

impl From<hyades_wal::Error> for StandbyError {
    fn from(error: hyades_wal::Error) -> Self {
        StandbyError::Files(error)
    }
}

impl From<hyades::Error> for StandbyError {
    fn from(error: hyades::Error) -> Self {
        StandbyError::Replay(error)
    }
}
