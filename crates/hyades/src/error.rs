//! Error types: [`Abort`] is the small, expected outcome of a transaction; [`Error`] is a failure
//! of the database or of its use.

use hyades_wal::{Poisoned, RemoteEnded, StopKind};
use std::fmt;

/// Why an operation or a transaction failed. Small and `Copy`. The engine retries
/// [`Abort::Conflict`]; any other abort reaches the caller as the transaction's outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Abort {
    /// A conflict with another transaction. The engine rolls back and runs the transaction again.
    Conflict,
    /// The procedure or closure aborted by its own rule, with a value for the caller.
    User(i64),
    /// A row with this primary key or unique secondary key already exists.
    DuplicateKey {
        /// The table's position among the declared tables.
        table: u32,
        /// The secondary index's number within the table; `None` means the primary key.
        index: Option<u16>,
    },
    /// A value does not match the column's type, a key has the wrong number of columns, or a scan's
    /// bound has more columns than the key.
    WrongType {
        /// The table's position among the declared tables.
        table: u32,
        /// The column's position; for keys, the position in the key.
        column: u16,
    },
    /// A null for a column that was not declared nullable.
    NullValue {
        /// The table's position among the declared tables.
        table: u32,
        /// The column's position.
        column: u16,
    },
    /// A row is larger than [`MAX_ROW_BYTES`](crate::MAX_ROW_BYTES) (16 MiB).
    RowTooLarge {
        /// The table's position among the declared tables.
        table: u32,
    },
    /// A primary key, or the columns of a secondary index, are longer than
    /// [`MAX_KEY_BYTES`](crate::MAX_KEY_BYTES).
    KeyTooLarge {
        /// The table's position among the declared tables.
        table: u32,
        /// The secondary index's number within the table; `None` means the primary key.
        index: Option<u16>,
    },
    /// The procedure's arguments could not be decoded, or its result could not be encoded.
    BadArguments,
    /// A primary key column cannot be updated: delete the row and insert it again.
    KeyColumnChanged {
        /// The table's position among the declared tables.
        table: u32,
        /// The column's position.
        column: u16,
    },
    /// There is no row with the primary key, see
    /// [`TypedTable::require`](crate::TypedTable::require).
    NotFound {
        /// The table's position among the declared tables.
        table: u32,
    },
    /// There is no table or index with this number, or the index is a hash table and cannot be
    /// scanned.
    UnknownHandle,
    /// The handle of a table comes from another builder than the builder of this database.
    ForeignHandle {
        /// The table's position among the tables declared to the other builder.
        table: u32,
    },
    /// The savepoint was discarded by a rollback to an earlier savepoint, or is another
    /// transaction's.
    NoSuchSavepoint,
    /// A snapshot, or a follower of another database, is read, and nothing can be written there,
    /// see [`Database::snapshot`](crate::Database::snapshot).
    ReadOnly,
    /// A [walk](crate::Transaction::walk) in a procedure whose call may be logged and repeated.
    NotInCall,
    /// A call accesses rows outside of the partitions stated by its procedure
    /// ([`Builder::on`](crate::Builder::on)), where calls are logged before they run
    /// (`arrival` in the crate `hyades-schemes`).
    OutsidePartitions,
    /// A closure writes, where nothing but calls of procedures is logged
    /// (`arrival` in the crate `hyades-schemes`).
    OnlyCalls,
    /// A call inserts more than 65,536 rows without a primary key, where calls are logged before
    /// they run (`arrival` in the crate `hyades-schemes`).
    TooManyRowIds,
    /// The snapshot was ended, because older versions of rows took too much memory or because the
    /// snapshot was too old, see [`SnapshotSettings`](crate::SnapshotSettings). Open another
    /// snapshot.
    SnapshotEnded,
    /// The transaction, or the closure that reads a snapshot, ran for so long that rows removed
    /// meanwhile by other transactions, and possibly read by this transaction, took more memory
    /// than [`Builder::removed_limit`](crate::Builder::removed_limit) allows. The transaction has
    /// no effect.
    RanTooLong,
}

const TOO_MANY_ROW_IDS: &str = "the call inserts more than 65536 rows without a primary key";
const OUTSIDE_PARTITIONS: &str = "the procedure accesses rows outside of the partitions that it \
                                  states: state all of them with Builder::on";
const NOT_IN_CALL: &str = "a procedure whose call is logged cannot walk over a table, since replay \
                           would find another order: walk in a closure, or log its rows \
                           (RecordKind::Data)";

const RAN_TOO_LONG: &str = "the transaction ran so long that rows which others removed meanwhile \
                            filled the memory for them: make it shorter, wait outside of it, or \
                            raise Builder::removed_limit";

impl fmt::Display for Abort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Abort::Conflict => write!(f, "the transaction conflicts with another one"),
            Abort::User(value) => write!(f, "the transaction was aborted with value {value}"),
            Abort::DuplicateKey { table, index: None } => {
                write!(f, "table {table} already has a row with this primary key")
            }
            Abort::DuplicateKey { table, index: Some(index) } => {
                write!(f, "table {table} already has a row with this key in unique index {index}")
            }
            Abort::WrongType { table, column } => {
                write!(f, "the value for column {column} of table {table} has the wrong type")
            }
            Abort::NullValue { table, column } => {
                write!(f, "column {column} of table {table} does not take nulls")
            }
            Abort::RowTooLarge { table } => write!(f, "the row is too large for table {table}"),
            Abort::KeyTooLarge { table, index: None } => {
                write!(f, "the primary key is too large for table {table}")
            }
            Abort::KeyTooLarge { table, index: Some(index) } => {
                write!(f, "the key is too large for index {index} of table {table}")
            }
            Abort::BadArguments => write!(f, "the procedure's arguments could not be decoded"),
            Abort::KeyColumnChanged { table, column } => {
                write!(
                    f,
                    "column {column} is in the primary key of table {table}: delete the row and \
                     insert it anew"
                )
            }
            Abort::NotFound { table } => write!(f, "table {table} has no row with this key"),
            Abort::UnknownHandle => write!(f, "there is no such table, or no index to scan"),
            Abort::ForeignHandle { table } => {
                write!(
                    f,
                    "the handle of table {table} comes from another builder: use the one that this \
                     database's builder returned"
                )
            }
            Abort::NoSuchSavepoint => {
                write!(f, "the transaction has no such savepoint, or no longer")
            }
            Abort::ReadOnly => {
                write!(
                    f,
                    "a snapshot, or a follower, is only read: write in a transaction of the primary"
                )
            }
            Abort::NotInCall => f.write_str(NOT_IN_CALL),
            Abort::OutsidePartitions => f.write_str(OUTSIDE_PARTITIONS),
            Abort::OnlyCalls => {
                write!(
                    f,
                    "the protocol logs nothing but calls of procedures: write in a procedure, \
                     or open the database with another protocol"
                )
            }
            Abort::TooManyRowIds => f.write_str(TOO_MANY_ROW_IDS),
            Abort::RanTooLong => f.write_str(RAN_TOO_LONG),
            Abort::SnapshotEnded => {
                write!(
                    f,
                    "the snapshot was ended, since it took too much memory or was too old: open \
                     another one, read it faster, or raise Builder::snapshots"
                )
            }
        }
    }
}

impl std::error::Error for Abort {}

/// A failure of the database or of its use: I/O, corruption, misuse. As text, one sentence with the
/// cause and, if any, the remedy.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The log reported an error: I/O, corruption, a directory in use. The message states file and
    /// offset.
    Log(hyades_wal::Error),
    /// Wrong use of the API or of a setting. The message states the right use.
    Misuse(String),
    /// The data on disk does not match the declarations of the program (schema, procedures,
    /// protocol).
    Mismatch(String),
    /// A checkpoint file is missing, damaged, or of another format.
    Checkpoint {
        /// The file.
        path: std::path::PathBuf,
        /// The byte in the file at which the fault was found.
        offset: u64,
        /// The fault.
        message: String,
    },
    /// A written checkpoint cannot be loaded. The checkpoint is not used: the previous checkpoint
    /// and the whole log remain.
    CheckpointRefused {
        /// The written file.
        path: std::path::PathBuf,
        /// The byte in the file at which the fault was found.
        offset: u64,
        /// The fault.
        message: String,
    },
    /// Writing a checkpoint panicked, with this message. The database keeps running, the previous
    /// checkpoint and the whole log remain, and the next checkpoint starts anew.
    CheckpointPanicked(String),
    /// Replay of the log cannot continue; the message names the record and the procedure. Nothing
    /// was changed.
    Recovery(String),
    /// The log failed before this transaction was known to be durable: the transaction may or may
    /// not survive. The outcome is decided when the database is opened again.
    OutcomeUnknown,
    /// A transaction met conflicts until its attempts or its time were used up, see
    /// [`RetrySettings`](crate::RetrySettings). The transaction has no effect.
    Starved {
        /// Attempts, each with a conflict.
        attempts: u64,
        /// Time since the first conflict, in seconds.
        seconds: f64,
    },
    /// Removed rows not freed yet take more memory than
    /// [`Builder::removed_limit`](crate::Builder::removed_limit) allows, since a transaction begun
    /// earlier is still running, and does nothing by which it could be ended. This transaction has
    /// no effect.
    RemovedRows {
        /// Bytes not freed.
        bytes: u64,
        /// The time for which the oldest transaction has been seen, in seconds.
        seconds: f64,
    },
    /// This number of posted calls have not ended, the most allowed by
    /// [`Builder::posted_calls`](crate::Builder::posted_calls). Nothing of this call was done or
    /// logged.
    TooManyPosted(usize),
    /// The transaction ended without a commit, and its changes were rolled back. Operations return
    /// an [`Abort`]; `?` turns the abort into this error.
    Aborted(Abort),
    /// The closure of a transaction failed with its own error, see [`Error::user`]. The changes
    /// were rolled back.
    User(Box<dyn std::error::Error + Send + Sync>),
    /// The log failed, with this cause. The database accepts no work until it is opened again.
    Poisoned(String),
    /// Another process is primary of the replicated database, as this incarnation. This handle
    /// answers nothing any more: what was read may be old, and nothing can be written. A
    /// transaction that had written, and was not acknowledged, gets [`Error::OutcomeUnknown`].
    Demoted {
        /// The incarnation of the other process.
        by: u32,
    },
}

impl Error {
    /// An error of the program's own, for a closure of
    /// [`Database::transact`](crate::Database::transact): a type, or a text.
    pub fn user(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::User(error.into())
    }
}

impl From<Abort> for Error {
    fn from(abort: Abort) -> Error {
        Error::Aborted(abort)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Log(error) => write!(f, "{error}"),
            Error::Misuse(text) | Error::Mismatch(text) | Error::Recovery(text) => {
                write!(f, "{text}")
            }
            Error::Checkpoint { path, offset, message } => write!(
                f,
                "{} cannot be used at byte {offset}: {message}; restore the checkpoint's files \
                 from a copy",
                path.display()
            ),
            Error::CheckpointRefused { path, offset, message } => write!(
                f,
                "no checkpoint was taken, and the log stays whole: byte {offset} of {}: {message}",
                path.display()
            ),
            Error::CheckpointPanicked(text) => write!(
                f,
                "the checkpoint panicked ({text}): none was taken, and the log stays whole"
            ),
            Error::OutcomeUnknown => write!(
                f,
                "the log failed before the transaction was durable: whether it survives is \
                 unknown until the database is opened again"
            ),
            Error::Starved { attempts, seconds } => write!(
                f,
                "the transaction met a conflict in all of its {attempts} attempts in {seconds:.1} \
                 s, and nothing of it was done: make it shorter, or give it more time with \
                 Builder::retries"
            ),
            Error::RemovedRows { bytes, seconds } => write!(
                f,
                "{} MB of removed rows cannot be freed, since a transaction has been running for \
                 {seconds:.1} s, and nothing of this one was done: end that transaction, or raise \
                 Builder::removed_limit",
                bytes >> 20
            ),
            Error::TooManyPosted(calls) => write!(
                f,
                "{calls} posted calls have not ended, the most there may be, and nothing of this \
                 one was done: post it again later, or raise Builder::posted_calls"
            ),
            Error::Aborted(abort) => write!(f, "{abort}"),
            Error::User(error) => write!(f, "{error}"),
            Error::Poisoned(cause) => {
                write!(
                    f,
                    "the database takes no more work after a log failure ({cause}); open it again"
                )
            }
            Error::Demoted { by } => write!(
                f,
                "another process has become primary of this database, as incarnation {by} of the \
                 replicated log: nothing more is answered here; send the work there, or open the \
                 database again to follow that process"
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Log(error) => Some(error),
            Error::Aborted(abort) => Some(abort),
            Error::User(error) => Some(&**error),
            _ => None,
        }
    }
}

impl From<hyades_wal::Error> for Error {
    fn from(error: hyades_wal::Error) -> Self {
        match error {
            hyades_wal::Error::Remote(RemoteEnded::Fenced { by }) => Error::Demoted { by },
            hyades_wal::Error::Poisoned(Poisoned { kind: StopKind::Demoted { by }, .. }) => {
                Error::Demoted { by }
            }
            error => Error::Log(error),
        }
    }
}

/// The error of work that begins after the log has stopped.
impl From<Poisoned> for Error {
    fn from(poisoned: Poisoned) -> Self {
        match poisoned.kind {
            StopKind::Demoted { by } => Error::Demoted { by },
            _ => Error::Poisoned(poisoned.to_string()),
        }
    }
}
