//! Errors of SlateDB as errors of a data component, with what to do.

use hyades_deuteronomy::Error;
use slatedb::{CloseReason, ErrorKind};
use std::time::Duration;

/// What to do where another process has opened the database.
const FENCED: &str = "another process has opened the database after this one, which can no longer \
                      write. Nothing acknowledged is lost: it is in the log. Make sure that one \
                      process at a time opens the database, and open it again";

/// What to do about an error of SlateDB.
fn advice(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Closed(CloseReason::Fenced) => FENCED,
        ErrorKind::Closed(_) => {
            "SlateDB has stopped after an error before this one, which its log messages tell. \
             Nothing acknowledged is lost: open the database again"
        }
        ErrorKind::Unavailable => {
            "the object storage refuses or cannot be reached: look at its address, the \
             credentials, the permissions, and the space that is left, and open the database again"
        }
        ErrorKind::Data => {
            "the objects are damaged, or of another version of SlateDB, or some were removed: \
             restore the objects, or restore a backup into an empty path"
        }
        ErrorKind::Invalid => "SlateDB's settings, or the path, do not fit: correct them",
        _ => "SlateDB failed in an unexpected way: open the database again, and report the error",
    }
}

/// The error of a call that failed.
pub(crate) fn failed(doing: &str, error: &slatedb::Error) -> Error {
    let advice = advice(error.kind());
    Error::DataComponent(format!("SlateDB failed while {doing}: {error}. What to do: {advice}"))
}

/// The error of a call that took too long.
pub(crate) fn unanswered(doing: &str, patience: Duration) -> Error {
    Error::DataComponent(format!(
        "the object storage has not answered for {patience:?} while {doing}. Nothing acknowledged \
         is lost: it is in the log. Look at the network and the storage; a database that has \
         stopped is opened again when the storage answers"
    ))
}

/// The error for bytes that this crate has not written.
pub(crate) fn damaged(what: &str) -> Error {
    Error::DataComponent(format!(
        "{what} in the SlateDB database was not written by this program: the path belongs to \
         another program, or the objects are damaged. Choose an empty path, or restore a backup"
    ))
}
