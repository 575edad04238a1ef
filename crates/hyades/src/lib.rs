//! Hyades: an in-memory, serializable, durable transactional database.
//!
//! All rows are in memory. The log has up to 64 parallel streams, a transaction is acknowledged
//! once it is on disk, and recovery uses all cores.
//!
//! - **Declare and open.** [`Database::builder`] returns a [`Builder`]. Declare tables, by structs
//!   ([`Builder::table_of`], [`TableRow`]) or by columns ([`Builder::table`], [`Schema`]), and
//!   procedures ([`Builder::procedure`]); then [`Builder::open`] a directory. Opening creates the
//!   database, or recovers an existing database. Declare everything again at each opening.
//! - **Run transactions.** [`Database::transact`] runs a closure and returns once the transaction
//!   is on disk; [`Database::call`] does the same with a procedure. After a conflict the body runs
//!   again. [`Session::begin`] begins a transaction that is ended by a call. [`Database::snapshot`]
//!   reads a consistent state beside writers.
//! - **Do not wait.** [`Session::submit`] returns before the transaction is on disk, with a
//!   [`Ticket`] to block on, poll or await. A [`CommitQueue`] holds many tickets.
//! - **Bound the log.** No checkpoint is taken unless you ask for it: set
//!   [`Builder::max_recovery`] or [`Builder::checkpoint_interval`], or call
//!   [`Database::checkpoint`]. [`Database::backup`] copies a running database.
//! - **Handle errors.** An [`Abort`] is the outcome of an operation or a transaction; an [`Error`]
//!   is a failure of the database or of its use. After [`Error::OutcomeUnknown`],
//!   [`Error::Poisoned`] or [`Error::Demoted`] the database has to be opened again.
//!
//! The guide (`docs/guide.md`) explains each of these with examples, `docs/operations.md` sizing,
//! monitoring and repair, `docs/choosing.md` the settings, `docs/reliability.md` the promises.
//!
//! ```
//! use hyades::{Database, Error, Table};
//! # let dir = tempfile::tempdir()?;
//! # let dir = dir.path();
//!
//! #[derive(Table)]
//! struct Account {
//!     #[key]
//!     owner: String,
//!     balance: i64,
//! }
//!
//! let mut builder = Database::builder();
//! let accounts = builder.table_of::<Account>();
//! let db = builder.open(dir)?;
//! db.transact(|tx| {
//!     accounts.insert(tx, &Account { owner: "Ada".into(), balance: 5 })?;
//!     accounts.insert(tx, &Account { owner: "Max".into(), balance: 0 })?;
//!     Ok(())
//! })?;
//! let pay = |from: &str, to: &str, amount: i64| {
//!     db.transact(|tx| {
//!         let (payer, payee) = (accounts.require(tx, from)?, accounts.require(tx, to)?);
//!         if payer.balance < amount {
//!             return Err(Error::user("not enough money"));
//!         }
//!         accounts.update(tx, from, &[Account::BALANCE.set(payer.balance - amount)])?;
//!         accounts.update(tx, to, &[Account::BALANCE.set(payee.balance + amount)])?;
//!         Ok(payee.balance + amount)
//!     })
//! };
//! assert_eq!(pay("Ada", "Max", 3)?, 3); // on disk
//! assert!(pay("Ada", "Max", 3).is_err());
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

mod backup;
mod calendar;
mod checkpoint;
// Types that an implementation passes on without naming need not be public, and have no docs.
// Without `plug` nothing uses what only schemes outside of the crate need.
#[cfg_attr(feature = "plug", allow(missing_docs, private_interfaces, private_bounds))]
#[cfg_attr(not(feature = "plug"), allow(dead_code))]
mod concurrency;
mod config;
mod database;
mod digest;
#[cfg_attr(feature = "plug", allow(missing_docs, private_interfaces, private_bounds))]
#[cfg_attr(not(feature = "plug"), allow(dead_code))]
mod engine;
mod erased;
mod error;
#[cfg(feature = "replication")]
mod following;
#[doc(hidden)]
pub mod fuzzing;
mod garbage;
pub mod inspect;
#[cfg_attr(feature = "plug", allow(missing_docs, private_interfaces, private_bounds))]
#[cfg_attr(not(feature = "plug"), allow(dead_code))]
mod logging;
mod metrics;
#[cfg_attr(feature = "plug", allow(missing_docs, private_interfaces, private_bounds))]
#[cfg_attr(not(feature = "plug"), allow(dead_code))]
mod opening;
mod origin;
#[cfg(feature = "plug")]
#[doc(hidden)]
pub mod plug;
mod pool;
mod posted;
mod ranges;
mod recovery;
mod restore;
mod retry;
#[doc(hidden)]
pub mod row_codec;
mod session;
#[cfg_attr(feature = "plug", allow(missing_docs, private_interfaces, private_bounds))]
#[cfg_attr(not(feature = "plug"), allow(dead_code))]
mod storage;
mod tally;
mod ticket;
mod transaction;
mod transaction_id;
mod typed;

/// Devices to which a log can be written, for [`LogSettings::device`](crate::LogSettings::device).
pub use hyades_platform::device;
/// The log below the engine: its errors ([`Error::Log`]), and the result type of [`Database::log`].
pub use hyades_wal as wal;

pub use backup::{BackupReport, backup};
#[cfg(feature = "replication")]
pub use checkpoint::image::ImagePlace;
pub use checkpoint::keeper::CheckpointStats;
pub use checkpoint::{CheckpointReport, CheckpointSettings};
pub use config::{Builder, Concurrency, Isolation, Protocol};
pub use database::{
    Attempt, Database, InOrder, OpenTransaction, Session, SessionOrder, Snapshot, Stats,
};
#[cfg(feature = "replication")]
pub use database::{CutMarks, TableDigest};
#[cfg(feature = "replication")]
pub use engine::closed_epochs::CutMark;
pub use engine::snapshots::SnapshotSettings;

pub use error::{Abort, Error};
#[cfg(feature = "replication")]
pub use following::{Follower, FollowerImage, ImageSchedule, Promotion, RoundReport};
pub use hyades_derive::Table;
pub use logging::record::RecordKind;
pub use logging::settings::LogSettings;
#[cfg(feature = "research")]
pub use logging::settings::ResearchSettings;
pub use metrics::{Histogram, Metric, MetricValue, Metrics};
#[cfg(feature = "replication")]
pub use opening::follower::FollowedLog;
pub use posted::PostedCall;
#[cfg(feature = "replication")]
pub use recovery::frame_source::{FrameChunks, FrameSource};
#[cfg(feature = "research")]
pub use recovery::plan::Replay;
pub use recovery::report::{
    IncarnationReport, Loss, Progress, RecoveryReport, StreamProgress, StreamRead,
};
pub use restore::{Restore, RestoreReport, Until};
pub use retry::RetrySettings;
pub use storage::field::{Field, KeyFields, KeyPrefix, KeyValues};
#[doc(hidden)]
pub use storage::hash_index;
pub use storage::partition::Partitions;
#[cfg(feature = "research")]
pub use storage::range::Range;
pub use storage::row::Row;
pub use storage::schema::{
    Column, Columns, MAX_COLUMNS, MAX_KEY_BYTES, MAX_ROW_BYTES, PrimaryKind, Schema, Set,
};
pub use storage::usage::TableStats;
pub use storage::value::{Assignable, ColumnType, Type, Value};
pub use ticket::{CommitQueue, Ticket};
#[cfg(feature = "research")]
pub use transaction::access::Access;
pub use transaction::access::{Index, Savepoint, Table, Transaction};
#[doc(hidden)]
#[cfg(feature = "research")]
pub use transaction::for_tests;
pub use transaction::key::Key;
pub use transaction::procedure::ProcedureId;
pub use transaction::scan::Scan;
#[cfg(feature = "research")]
pub use transaction::walk::WalkStep;
pub use transaction::walk::{Walk, Walked};
pub use transaction_id::TransactionId;
pub use typed::{Rows, TableRow, TypedIndex, TypedScan, TypedTable};

/// The programs in docs/guide.md compile and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide.md")]
pub struct Guide;

/// The program in README.md compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
