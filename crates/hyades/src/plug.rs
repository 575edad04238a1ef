//! The extension interface of the engine: the parts of a logging protocol, or of a concurrency
//! control, outside of this crate, and the opening of a database with both. Not part of the public
//! API: the interface changes with the engine. `research/plug-example` has one of each.

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
/// The positions that the frontier has to reach before a transaction is acknowledged.
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

/// Opens a database like [`Builder::open`], with the pair `C` and `P` instead of the builder's
/// pair. `control`: the name of the concurrency control in the manifest.
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
