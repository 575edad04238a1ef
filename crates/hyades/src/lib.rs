//! Hyades: an in-memory, serializable, durable transactional database.
//!
//! It logs in parallel to any number of streams, acknowledges only what is on disk, and recovers on
//! all cores.

mod error;
mod storage;
mod transaction;

pub use error::{Abort, Error};
#[doc(hidden)]
pub use storage::for_tests;
pub use storage::row::Row;
pub use storage::schema::{Column, Columns, MAX_COLUMNS, MAX_ROW_BYTES, PrimaryKind, Schema, Set};
pub use storage::value::{ColumnType, Type, Value};
pub use transaction::access::{Access, Index, Key, Range, Savepoint, Scan, Table, Transaction};
pub use transaction::procedure::{ProcedureId, Record};
