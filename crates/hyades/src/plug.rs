//! The seam of the engine: what a logging protocol, or a concurrency control, outside of this crate
//! is made of, and how a database is opened with it. Not part of the public API: it changes with
//! the engine. `research/plug-example` has one of each.

pub use crate::concurrency::locks::LockWord;
pub use crate::concurrency::no_wait::NoWait;
pub use crate::concurrency::optimistic::LockBit;
pub use crate::concurrency::silo::Silo;
pub use crate::concurrency::state::{HeldLock, ReadRow, TxnState};
pub use crate::concurrency::{
    Beginning, CommandReplay, Commits, ConcurrencyControl, ControlSettings, RecordLock, VisibleRow,
};
pub use crate::engine::Engine;
pub use crate::logging::draft::{Composed, Draft, RecordPlace, Reserved};
pub use crate::logging::serial::Serial;
pub use crate::logging::taurus::Taurus;
pub use crate::logging::write::{Pending, Write};
pub use crate::logging::{
    LoggingProtocol, NumberStamp, RowRef, StampFormat, StampKind, StartContext, StartsOnLog,
    VectorStamp,
};
pub use crate::opening::pairs::RunsUnder;
pub use crate::storage::Stamp;
pub use crate::storage::gap::Gap;
pub use crate::storage::record::{Record, WRITER, word};
pub use crate::storage::tid::Tid;
/// What the frontier has to reach before a transaction is acknowledged.
pub use hyades_wal::Needs;

use crate::config::Builder;
use crate::database::Database;
use crate::error::Error;
use crate::opening::open_plugged;
use std::path::Path;

/// The steps of a commit.
pub mod steps {
    pub use crate::concurrency::steps::{
        Commit, Committed, already_locked, append, as_command, committed, end_read_only, install,
        next_tid, publish_reads,
    };
}

/// Opens a database as [`Builder::open`] does, with this pair instead of the one that the builder
/// names. `control`: what the manifest calls the concurrency control.
///
/// # Errors
/// As [`Builder::open`].
pub fn open<C, P>(
    builder: Builder,
    control: &'static str,
    dir: impl AsRef<Path>,
) -> Result<Database, Error>
where
    C: RunsUnder<P>,
    P: StartsOnLog,
{
    open_plugged::<C, P>(builder, control, dir.as_ref())
}
