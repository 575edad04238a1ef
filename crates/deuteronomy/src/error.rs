//! The errors of a database, and why a transaction was aborted.

use hyades_wal::MAX_PAYLOAD;
use std::fmt;
use std::time::Duration;

/// The cause of a transaction's abort. The transaction has had no effect and may be run again, as
/// in [`Session::execute`](crate::Session::execute) and
/// [`Session::submit`](crate::Session::submit).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Abort {
    /// The transaction would overwrite a version of a younger transaction.
    TooLate,
    /// The transaction would overwrite a version read by a younger transaction.
    ReadByYounger,
    /// The transaction would read a version of an older, long transaction.
    Unfinished,
    /// The version to read is no longer kept anywhere.
    SnapshotTooOld,
    /// The memory budget is exhausted. The transaction was the youngest in need of memory, or has
    /// waited for longer than [`room_patience`](crate::Options::room_patience).
    Shed,
}

impl fmt::Display for Abort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLate => "a younger transaction has written the key",
            Self::ReadByYounger => "a younger transaction has read the key",
            Self::Unfinished => "an older transaction that has written the key has not ended",
            Self::SnapshotTooOld => "the version as of the transaction's timestamp is gone",
            Self::Shed => "the memory budget is exhausted",
        })
    }
}

/// An error of the database.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The transaction was aborted, and had no effect. Returned by single attempts, and where
    /// [`Options::attempts`](crate::Options::attempts) attempts were in vain.
    Aborted(Abort),
    /// The key to be inserted exists.
    Exists,
    /// The key to be updated does not exist.
    NotFound,
    /// The log stopped before the transaction was acknowledged. The transaction may or may not be
    /// there after the next opening.
    OutcomeUnknown,
    /// A key is too long for the data component: the length and the limit, in bytes.
    KeyTooLong(usize, usize),
    /// A value is too long for the data component: the length and the limit, in bytes.
    ValueTooLong(usize, usize),
    /// A key and its value are too long for a frame of the log: the length, with headers, and the
    /// limit, in bytes. The limit is at most 1 MiB, and also a quarter of
    /// [`LogOptions::buffer_bytes`](crate::LogOptions::buffer_bytes) and of the log's
    /// `segment_bytes`.
    WriteTooLarge(usize, usize),
    /// The transaction writes more than the memory budget: the keys and values, with their data
    /// structures, and the limit, in bytes.
    TransactionTooLarge(usize, usize),
    /// The database was opened without [`ranges`](crate::Options::ranges).
    NoRanges,
    /// The data component keeps no snapshots, needed for a
    /// [long snapshot](crate::Database::long_snapshot) or a backup.
    NoSnapshots,
    /// The timestamps are used up: the next would be above 2^61, not allowed in a record. Running
    /// transactions does not lead there, but a damaged timestamp does.
    Timestamps,
    /// As many sessions exist as [`Options::sessions`](crate::Options::sessions) says.
    Sessions(usize),
    /// The options, or the log and the data component opened together, do not fit.
    Invalid(String),
    /// The data component has been at a call for the given time, above
    /// [`store_patience`](crate::Options::store_patience), and the waiting operations leave no
    /// room, or the data component was to be made stable. Nothing is lost: the log has all commits.
    /// The data component may still go on; otherwise open the database again.
    Stalled(Duration),
    /// The data component failed, with a message.
    DataComponent(String),
    /// The log failed, or is damaged.
    Log(hyades_wal::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Aborted(abort) => write!(f, "the transaction was aborted: {abort}"),
            Self::Exists => f.write_str("the key to be inserted exists"),
            Self::NotFound => f.write_str("the key to be updated does not exist"),
            Self::OutcomeUnknown => f.write_str(
                "the log stopped before the transaction was acknowledged: open the database again \
                 to see whether it is there",
            ),
            Self::KeyTooLong(len, limit) => {
                write!(f, "a key of {len} bytes: the data component takes {limit}")
            }
            Self::ValueTooLong(len, limit) => {
                write!(f, "a value of {len} bytes: the data component takes {limit}")
            }
            Self::WriteTooLarge(len, limit) if *limit >= MAX_PAYLOAD => write!(
                f,
                "a key and its value take {len} bytes of the log: a frame holds {limit}, whatever \
                 the options. Spread the value over several keys"
            ),
            Self::WriteTooLarge(len, limit) => write!(
                f,
                "a key and its value take {len} bytes of the log: a frame holds {limit}, the \
                 smaller of a quarter of the buffer and a quarter of a segment. Enlarge both in \
                 the options of the log, up to frames of {MAX_PAYLOAD} bytes, or spread the value \
                 over several keys"
            ),
            Self::TransactionTooLarge(len, limit) => write!(
                f,
                "the writes of a transaction take {len} bytes of memory: the limit is {limit}, the \
                 memory budget"
            ),
            Self::NoRanges => {
                f.write_str("the database was opened without ranges: set Options::ranges to scan")
            }
            Self::NoSnapshots => f.write_str(
                "the data component keeps no snapshots: over this one, read by transactions or by \
                 Session::snapshot",
            ),
            Self::Timestamps => f.write_str(
                "the timestamps are used up. Running transactions does not lead there: the log or \
                 the data component has a damaged one. Read what you need in a snapshot, and write \
                 it to a new database, or restore copies of both",
            ),
            Self::Sessions(sessions) => {
                write!(f, "all {sessions} sessions are in use: drop one, or allow more")
            }
            Self::Invalid(message) => f.write_str(message),
            Self::Stalled(call) => write!(
                f,
                "the data component has not returned from a call for {call:?}, and what is \
                 committed waits for it: look at its device and its log. If it does not go on, \
                 open the database again: what is committed is in the log"
            ),
            Self::DataComponent(message) => write!(f, "the data component failed: {message}"),
            Self::Log(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Log(error) => Some(error),
            _ => None,
        }
    }
}

impl From<hyades_wal::Error> for Error {
    fn from(error: hyades_wal::Error) -> Self {
        Self::Log(error)
    }
}

impl From<Abort> for Error {
    fn from(abort: Abort) -> Self {
        Self::Aborted(abort)
    }
}
