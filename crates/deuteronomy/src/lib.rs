//! Serializable, durable transactions over any store of keys and values.
//!
//! Source: Levandoski, Lomet, Sengupta, Stutsman, Wang, "High Performance Transactions in
//! Deuteronomy" (CIDR 2015). A *transaction component* does all that concerns transactions:
//! multi-version timestamp order, and a log of redo records in N parallel streams (`hyades-wal`). A
//! *data component* ([`DataComponent`]) stores keys and values and knows nothing of transactions: a
//! proxy hands it the operations of transactions that have committed and are durable.
//!
//! Where it departs from the paper, and why, is in `docs/protocols.md`. The two main rules:
//! *timestamps order data*: versions, operations at the data component, and redo. *LSN vectors
//! decide what counts*: what is acknowledged, and what is part of the recovered state, by
//! [`hyades_wal::admits`] alone.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! use hyades_deuteronomy::{Database, Error, LogOptions, MemoryData, Options};
//! use std::ops::Bound;
//! use std::sync::Arc;
//!
//! let options = Options::new(LogOptions::new(vec![dir.path().to_owned()], 2));
//! let database = Database::open(options, Arc::new(MemoryData::new()))?;
//! let mut session = database.session()?;
//! session.execute(|tx| {
//!     tx.insert(b"a", b"100")?;
//!     tx.insert(b"b", b"0")
//! })?;
//! let old = session.execute(|tx| {
//!     let old = tx.update(b"a", b"99")?;
//!     tx.put(b"b", b"1")?;
//!     Ok::<_, Error>(old)
//! })?;
//! assert_eq!(*old, *b"100");
//! let rows = session.execute(|tx| tx.scan(Bound::Included(b"a"), Bound::Unbounded, 10))?;
//! assert_eq!(rows.len(), 2);
//! drop(session);
//! database.close()?;
//! # Ok(()) }
//! ```
//!
//! # Scans
//!
//! [`Transaction::scan`], [`scan_back`](Transaction::scan_back) and
//! [`scan_each`](Transaction::scan_each) are serializable: the transaction sees what older ones
//! have put into the range, and an older one that puts something there afterwards aborts. For that
//! each scan is noted until no older transaction is active, in a list of bounded size that writers
//! search which are older than a scan; and the keys that have versions in memory are in an ordered
//! index. A scan goes through its range in pieces, so that it may be larger than memory. What that
//! costs:
//! - While it runs, a scan is noted with its bounds; then, if it has ended early, up to its last
//!   row.
//! - If more than 1,024 scans, or more than an eighth of the budget, would have to be noted, older
//!   transactions may write nothing that they have not written yet: they run again.
//! - A scan copies the references of up to 1,024 keys of the index at a time. The first write of a
//!   key that is not in memory waits for scans that do so.
//!
//! # What is not there yet
//!
//! Data components at the other end of a connection. Values are kept on the heap, not in the
//! buffers of the log.
//!
//! # The steps
//!
//! B1 to B4 begin, R1 to R6 read, W1 to W6 write, C0 to C7 commit, A1 to A4 abort, F1 to F5 fetch,
//! E1 to E4 evict, M1 and M2 of a write and N1 to N5 are for scans, X1 to X7 the proxy, P1 to P4 a
//! checkpoint, Q1 to Q5 a restart; O1 and O2 find the oldest active transaction, S1 and S2 how a
//! transaction stands. The letters stand in the code where the step is.

#![forbid(unsafe_code)]

mod checkpoint;
mod config;
mod data;
mod data_component;
mod database;
mod error;
mod inspect;
mod proxy;
mod recovery;
mod session;
mod ticket;
#[cfg(feature = "torture")]
pub mod torture;
mod transaction_component;

pub use config::{Options, ReaderRecords, UpdateLogging};
#[cfg(feature = "fjall")]
pub use data::FjallData;
#[cfg(feature = "redb")]
pub use data::RedbData;
pub use data::{DataLayer, MemoryData, PartitionedData};
pub use data_component::{
    DataComponent, Found, KeyRange, Limits, Operation, ResumePoint, Row, ScanOrder,
};
pub use database::Database;
pub use error::{Abort, Error};
pub use hyades_wal::LogOptions;
pub use inspect::{LoggedTransaction, PROTOCOL, RecordReader};
pub use recovery::Recovered;
pub use session::{Session, Transaction};
pub use ticket::Ticket;
