//! Hyades: an in-memory, serializable, durable transactional database.
//!
//! It logs in parallel to any number of streams, acknowledges only what is on disk, and recovers on
//! all cores.

mod concurrency;
mod config;
mod database;
mod digest;
mod engine;
mod error;
mod garbage;
pub mod inspect;
mod logging;
mod opening;
mod recovery;
mod session;
mod storage;
mod ticket;
mod transaction;

pub use config::{Builder, Concurrency, LogSettings, Protocol, Replay};
pub use database::{Database, Session, Stats};

pub use error::{Abort, Error};
pub use recovery::{IncarnationReport, Progress, RecoveryReport};
pub use storage::row::Row;
pub use storage::schema::{Column, Columns, MAX_COLUMNS, MAX_ROW_BYTES, PrimaryKind, Schema, Set};
pub use storage::value::{ColumnType, Type, Value};
#[doc(hidden)]
pub use storage::{for_tests, hash_index, ordered_index};
pub use ticket::{CommitQueue, Ticket};
pub use transaction::access::{Access, Index, Key, Range, Savepoint, Scan, Table, Transaction};
pub use transaction::procedure::{ProcedureId, Record};
