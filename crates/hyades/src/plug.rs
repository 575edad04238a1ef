//! The extension interface of the engine: the parts of a logging protocol, or of a concurrency
//! control, outside of this crate, and the opening of a database with both. Not part of the public
//! API: the interface changes with the engine. `research/plug-example` has one of each.

pub use crate::concurrency::hekaton::Hekaton;
pub use crate::concurrency::locks::{LockWord, MarksRows, ReadTime};
pub use crate::concurrency::no_wait::NoWait;
pub use crate::concurrency::optimistic::LockBit;
pub use crate::concurrency::partitions::PartitionStamps;
pub use crate::concurrency::silo::Silo;
pub use crate::concurrency::state::{HeldLock, ReadRow, TxnState};
pub use crate::concurrency::{
    Beginning, CommandReplay, Commits, ConcurrencyControl, ControlSettings, RecordLock, VisibleRow,
};
pub use crate::engine::Engine;
pub use crate::engine::active::{ActiveTransactions, Preparing};
pub use crate::logging::draft::{
    ArrivedPlace, Call, Composed, Draft, RecordPlace, Reserved, StatedVersions,
};
pub use crate::logging::none::NoLog;
pub use crate::logging::partitioned::ComposedPartitions;
pub use crate::logging::row_frame::RowFrames;
pub use crate::logging::schemes::{PluggedControl, PluggedProtocol};
pub use crate::logging::serial::Serial;
pub use crate::logging::taurus::Taurus;
pub use crate::logging::write::{Pending, Write};
pub use crate::logging::{
    HotRows, LoggingProtocol, NumberStamp, RowRef, StampFormat, StampKind, StartContext,
    StartsOnLog, VectorStamp,
};
pub use crate::opening::pairs::{Pair, RunsUnder};
pub use crate::storage::Stamp;
pub use crate::storage::gap::{Gap, GapChange, GapLocks};
pub use crate::storage::partition::TouchedPartitions;
pub use crate::storage::record::{Record, WRITER, word};
pub use crate::storage::tid::Tid;
/// The positions that the frontier has to reach before a transaction is acknowledged.
pub use hyades_wal::{Needs, admits, is_met};

use crate::logging::schemes::{CONTROLS, PROTOCOLS};
use crate::opening::pairs::PLUGGED_PAIRS;

/// The steps of a commit.
pub mod steps {
    pub use crate::concurrency::steps::{
        Commit, Committed, Valid, already_locked, append, as_command, committed, end_read_only,
        install, install_unstamped, next_tid, publish_reads, validate_and_append,
    };
}

/// Locks in version words, held during a commit.
pub mod optimistic {
    pub use crate::concurrency::optimistic::{PATIENCE, lock, stable_word, unlock};
}

/// Rows that a transaction marks as its own until the commit, and reads as of a time.
pub mod marked {
    pub use crate::concurrency::locks::{
        copy_in_place, inserted, install, release, stated_versions, writer_of,
    };
}

/// Vectors of positions, and what is kept of rows' vectors in memory.
pub mod vectors {
    pub use crate::logging::lanes::clear;
    pub use crate::logging::taurus::anchoring::Anchoring;
    pub use crate::logging::taurus::lsn_vector_table::{
        FoldTarget, LsnVectorTable, Reference, Ring, RowObservation,
    };
}

/// Lists of predecessors in stamps.
pub mod predecessors {
    pub use crate::logging::predecessors::{Id, Predecessor, decode, encode, end, id, lane};
}

/// Outcomes of calls that were logged before their run.
pub mod outcomes {
    pub use crate::logging::outcomes::{StatedSum, push_sums, take_sums};
}

/// Encodings of numbers in stamps, and sets of partitions.
pub mod bytes {
    /// The slots of all partitions.
    pub const ALL_SLOTS: u64 = crate::Partitions::ALL.0;
    pub use crate::storage::partition::members;
    pub use crate::storage::row::{push_varint, take, take_varint};
}

/// What a crate has for the engine, see [`register`].
pub struct Schemes {
    pub protocols: &'static [&'static PluggedProtocol],
    pub controls: &'static [&'static PluggedControl],
    pub pairs: &'static [&'static Pair],
}

/// Makes protocols and concurrency controls known to the process, by the names in their rows: from
/// then on databases that were written with them are opened and inspected. May be called often.
pub fn register(schemes: &Schemes) {
    PROTOCOLS.add(schemes.protocols);
    CONTROLS.add(schemes.controls);
    PLUGGED_PAIRS.add(schemes.pairs);
}
