//! How a NATS service is reached, and why it cannot be used.

use super::address::Address;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The most bytes of a message, if the servers take as many.
pub(super) const MAX_MESSAGE_BYTES: usize = 2 << 20;
/// Bytes of the servers' limit that are left for headers and subject.
pub(super) const HEADER_BYTES: usize = 4 << 10;
/// The least limit of a message: a batch holds a frame of the smallest buffer.
pub(super) const LEAST_MESSAGE_BYTES: usize = 64 << 10;

/// How the service is reached.
#[derive(Clone, Debug)]
pub struct NatsSettings {
    /// The servers and the name of the replicated log.
    pub address: Address,
    /// Replicas of each lane: 1, 3 or 5. Default: 3.
    pub replicas: usize,
    /// How long an append waits for an answer, and a connection for a server. Default: 1 s.
    pub timeout: Duration,
    /// A file with the credentials of a NATS user (`.creds`).
    pub credentials: Option<PathBuf>,
    /// A file with certificates of the authorities that the servers' certificates are checked by,
    /// beside those of the system.
    pub authorities: Option<PathBuf>,
    /// The name of the NATS server that runs on this machine: while this process is the primary,
    /// the server leads no lane if another server can.
    pub near: Option<String>,
}

impl NatsSettings {
    /// The default settings for an address.
    pub fn new(address: Address) -> Self {
        NatsSettings {
            address,
            replicas: 3,
            timeout: Duration::from_secs(1),
            credentials: None,
            authorities: None,
            near: None,
        }
    }
}

/// Why the service cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum NatsError {
    /// No server was reached.
    Unreachable(String),
    /// A file with credentials cannot be read.
    Credentials(PathBuf, std::io::Error),
    /// The service cannot be used as it is set.
    Unsuitable(String),
    /// The stream of a lane cannot be opened or created.
    Lane(String, String),
    /// The stream of a lane is there, with other settings.
    Mismatch(String, String),
    /// The thread of the connection did not start.
    Thread(std::io::Error),
}

impl NatsError {
    /// Whether the same may succeed later: servers may be starting, or electing a leader.
    pub fn may_pass(&self) -> bool {
        matches!(self, NatsError::Unreachable(_) | NatsError::Lane(..))
    }
}

impl fmt::Display for NatsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NatsError::Unreachable(why) => write!(f, "no NATS server was reached: {why}"),
            NatsError::Credentials(path, error) => {
                write!(f, "{}: the credentials cannot be read: {error}", path.display())
            }
            NatsError::Unsuitable(why) => write!(f, "the NATS service cannot be used: {why}"),
            NatsError::Lane(stream, why) | NatsError::Mismatch(stream, why) => {
                write!(f, "the NATS stream {stream} cannot be used: {why}")
            }
            NatsError::Thread(error) => write!(f, "the thread for NATS does not start: {error}"),
        }
    }
}

impl std::error::Error for NatsError {}

/// A lane's stream could not be opened or created.
pub(super) fn lane_error(stream: &str, why: &dyn fmt::Display) -> NatsError {
    NatsError::Lane(stream.to_owned(), why.to_string())
}
