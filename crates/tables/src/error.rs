//! The errors of tables.

use std::fmt;

/// An error of an operation on tables, or of an opening.
///
/// An operation that returns an error has written nothing, and the transaction may go on; with two
/// exceptions. After an [`Aborted`](hyades_deuteronomy::Error::Aborted) in [`Error::Database`] the
/// transaction has ended. After [`Error::Partial`] the transaction must not be committed: return
/// the error from the closure.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The database below failed, or refused a write.
    Database(hyades_deuteronomy::Error),
    /// A write failed in the middle of an operation of several writes, and the writes before could
    /// not be taken back: abort the transaction. With the error of the write.
    Partial(Box<Error>),
    /// A key to be inserted exists, in this table or keyspace.
    Exists(String),
    /// A row to be read does not exist, in this table.
    NotFound(String),
    /// Another row has the same key in a unique index.
    Unique {
        /// The table.
        table: String,
        /// The index.
        index: String,
    },
    /// A row does not fit its table. The message names the column.
    Row(String),
    /// A value above the size of a piece is above the memory of a transaction, or above the limit
    /// of a keyspace of small values.
    ValueTooLarge {
        /// The length of the value in bytes.
        bytes: usize,
        /// The refused write.
        source: Option<Box<Error>>,
    },
    /// The declarations are wrong in themselves, or something was not declared.
    Declaration(String),
    /// The declarations do not fit the tables of the database.
    Mismatch(String),
    /// A schema is wrong, or is no accepted change of the stored schema. The message names the
    /// table and the column.
    Schema(hyades::Error),
    /// The catalogue has another format than the formats known to this program: the format found,
    /// and the newest known.
    Format(u64, u64),
    /// The table was declared otherwise by another opening since this one, or was so as of the
    /// moment of a snapshot.
    Changed(String),
    /// The database holds something that this library does not write. The message says what and
    /// where.
    Corrupt(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Database(error) => error.fmt(f),
            Self::Partial(error) => write!(
                f,
                "an operation was written in part, so the transaction must be aborted: {error}"
            ),
            Self::Exists(place) => write!(f, "the key to be inserted into {place:?} exists"),
            Self::NotFound(table) => write!(f, "table {table:?} has no row with this key"),
            Self::Unique { table, index } => write!(
                f,
                "another row of table {table:?} has the same key in the unique index {index:?}"
            ),
            Self::ValueTooLarge { bytes, source: None } => write!(
                f,
                "a value of {bytes} bytes in a keyspace of small values: declare a keyspace of \
                 values of any size"
            ),
            Self::ValueTooLarge { bytes, source: Some(source) } => write!(
                f,
                "a value of {bytes} bytes cannot be written by this transaction, whose writes are \
                 kept in memory until it commits: write it in a transaction of its own, raise \
                 Options::memory_bytes, or cut it into several values ({source})"
            ),
            Self::Row(message)
            | Self::Declaration(message)
            | Self::Mismatch(message)
            | Self::Corrupt(message) => f.write_str(message),
            Self::Schema(error) => error.fmt(f),
            Self::Format(found, known) => write!(
                f,
                "the catalogue of tables has format {found}, and this program knows formats up to \
                 {known}: open the database with the version of Hyades that wrote it, or a later \
                 one"
            ),
            Self::Changed(table) => write!(
                f,
                "table {table:?} has other indexes, or other columns, than this handle knows: \
                 another opening changed the declaration, or a snapshot is older than the change. \
                 Open the tables again, or take a new snapshot"
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Database(error) => Some(error),
            Self::Partial(error) => Some(&**error),
            Self::ValueTooLarge { source: Some(source), .. } => Some(&**source),
            Self::Schema(error) => Some(error),
            _ => None,
        }
    }
}

impl From<hyades_deuteronomy::Error> for Error {
    fn from(error: hyades_deuteronomy::Error) -> Self {
        Self::Database(error)
    }
}

impl From<hyades::Error> for Error {
    fn from(error: hyades::Error) -> Self {
        Self::Schema(error)
    }
}

impl Error {
    /// Whether the transaction has ended with the error: nothing can be taken back, or has to be.
    pub(crate) fn has_ended_transaction(&self) -> bool {
        use hyades_deuteronomy::Error as Below;
        matches!(self, Self::Database(Below::Aborted(_) | Below::OutcomeUnknown | Below::Log(_)))
    }
}
