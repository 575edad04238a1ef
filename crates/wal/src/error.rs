//! The errors of the log, with messages for users.

use crate::remote::RemoteEnded;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An error of the log. The text names the file, the place in the file, and the remedy.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// An I/O operation failed.
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The attempted action.
        action: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
    /// A file could not be replaced, and is unchanged.
    NotReplaced {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The segments that a truncation removes could not be copied to the archive: nothing was
    /// removed, and the next truncation tries again.
    NotArchived(Box<Error>),
    /// A log directory is locked by another opening of the log.
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// A log directory is not writable, but the log was opened for writing.
    ReadOnly {
        /// The directory.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// Durable bytes are missing or wrong.
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The offset of the damage in the file; 0 where the file as a whole is meant.
        offset: u64,
        /// The finding, the expectation, and the remedy.
        message: String,
    },
    /// The files were written by another version of the format.
    Version {
        /// The file.
        path: PathBuf,
        /// The version found.
        found: u64,
        /// The newest version that the program reads.
        newest: u32,
    },
    /// The options, directories or arguments do not fit the log.
    Invalid(String),
    /// All writers allowed by the log are in use; the value is the number.
    Writers(usize),
    /// The log is poisoned or closed.
    Poisoned(Poisoned),
    /// The remote stores no more.
    Remote(RemoteEnded),
}

impl Error {
    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { path: path.to_owned(), action, source }
    }

    /// The kind of a stop of the log by the error.
    pub(crate) fn stop_kind(&self) -> StopKind {
        match self {
            Self::Remote(RemoteEnded::Fenced { by }) => StopKind::Demoted { by: *by },
            Self::Poisoned(poisoned) => poisoned.kind,
            _ => StopKind::Failed,
        }
    }

    pub(crate) fn corrupt(path: &Path, offset: u64, message: impl Into<String>) -> Self {
        Self::Corrupt { path: path.to_owned(), offset, message: message.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, action, source } => {
                write!(f, "could not {action} {}: {source}", path.display())
            }
            Self::NotReplaced { path, source } => {
                write!(f, "could not write a new {}, which is as it was: {source}", path.display())
            }
            Self::NotArchived(cause) => write!(
                f,
                "the log was not truncated, because its archive could not be written: {cause}"
            ),
            Self::InUse { path } => write!(
                f,
                "the log directory {} is in use by another process, or is opened twice in this one",
                path.display()
            ),
            Self::ReadOnly { path, source } => write!(
                f,
                "the log directory {} is read-only ({source}): opening a database writes to its \
                 directories; `hyades verify`, `hyades log` and `hyades backup` only read them, \
                 and `hyades recover --out` makes a database elsewhere from them",
                path.display()
            ),
            Self::Corrupt { path, offset, message } => {
                write!(f, "{} is corrupt at byte {offset}: {message}", path.display())
            }
            Self::Version { path, found, newest } => write!(
                f,
                "{} has format version {found}, and this program reads versions up to {newest}: \
                 use the program that wrote it",
                path.display()
            ),
            Self::Invalid(message) => f.write_str(message),
            Self::Writers(places) => write!(
                f,
                "all {places} writers of the log are in use, one for each session: drop one"
            ),
            Self::Poisoned(poisoned) => poisoned.fmt(f),
            Self::Remote(ended) => ended.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. }
            | Self::ReadOnly { source, .. }
            | Self::NotReplaced { source, .. } => Some(source),
            Self::NotArchived(cause) => Some(cause),
            Self::Poisoned(poisoned) => Some(poisoned),
            Self::Remote(ended) => Some(ended),
            _ => None,
        }
    }
}

impl From<Poisoned> for Error {
    fn from(poisoned: Poisoned) -> Self {
        Self::Poisoned(poisoned)
    }
}

/// Why a log has stopped, in kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopKind {
    /// A device, a remote or the program failed.
    Failed,
    /// Another process has taken the replicated log over.
    Demoted {
        /// The incarnation of the other process.
        by: u32,
    },
    /// The log was closed, or dropped, by its owner.
    Closed,
}

/// The log stopped: nothing more becomes durable. Records not yet durable have an unknown outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Poisoned {
    /// Why, as a sentence.
    pub cause: Arc<str>,
    /// Why, in kind.
    pub kind: StopKind,
}

impl fmt::Display for Poisoned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            // The cause says what to do.
            StopKind::Demoted { .. } => f.write_str(&self.cause),
            StopKind::Failed | StopKind::Closed => {
                write!(f, "the log has stopped, open the database again: {}", self.cause)
            }
        }
    }
}

impl std::error::Error for Poisoned {}
