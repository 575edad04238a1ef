//! Serializable, durable transactions over any store of keys and values.
//!
//! Source: Levandoski, Lomet, Sengupta, Stutsman, Wang, "High Performance Transactions in
//! Deuteronomy" (CIDR 2015). A *transaction component* does all transaction processing:
//! multi-version timestamp order, and a log of redo records in N parallel streams (`hyades-wal`). A
//! *data component* ([`DataComponent`]) stores keys and values and knows nothing of transactions: a
//! proxy hands over the operations of committed, durable transactions.
//!
//! The departures from the paper, with reasons, are in `docs/protocols/deuteronomy.md`. The two
//! main rules: *timestamps order data*: versions, operations at the data component, and redo. *LSN
//! vectors decide what counts*: the acknowledged transactions, and the recovered state, by
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
//! [`scan_each`](Transaction::scan_each) are serializable: the transaction sees the rows put into
//! the range by older transactions, and an older transaction with a later write there aborts.
//! Therefore each scan is noted until no older transaction is active, in a list of bounded size,
//! searched by writers older than a scan; and the keys with versions in memory are in an ordered
//! index. A scan goes through its range in pieces, so a range may be larger than memory. The costs:
//! - During its run, a scan is noted with its bounds; then, after an early end, up to the last row.
//! - If more than 1,024 scans, or more than an eighth of the budget, would have to be noted, older
//!   transactions may write to no key for the first time: they run again.
//! - A scan copies the references of up to 1,024 keys of the index at a time. The first write of a
//!   key not in memory waits for copying scans.
//!
//! # Long reads and backups
//!
//! [`Database::long_snapshot`] reads all data as of a moment, from a snapshot of the data
//! component: the read may take any time, and takes no memory of versions. [`Database::backup`]
//! copies a running database on a long snapshot, and [`Restore`] makes a database as of an earlier
//! timestamp or time. With an archive of the log ([`LogOptions::archive`]) each moment since a
//! backup can be restored.
//!
//! # Memory
//!
//! [`memory_bytes`](Options::memory_bytes) bounds the versions, the further data for scans, and the
//! committed operations waiting for the data component, with about 230 bytes for each waiting
//! record. Waiting operations overwritten meanwhile take half of the budget at most: then writers
//! wait for the data component, at its own speed. Where uncommitted writes use the budget up, the
//! youngest transaction with writes is aborted ([`Abort::Shed`]), at its next write. Older
//! transactions wait for the abort, up to [`room_patience`](Options::room_patience), and go on.
//! Beyond the budget there are:
//! - a session's writes since its last look, a key and its value; and a 64th of the budget, up to
//!   16 KiB, of records just handed to the proxy;
//! - values kept by callers ([`Value`]), and the transaction table
//!   ([`transactions`](Options::transactions));
//! - the buckets of the version table, growing with the largest content so far: at most a quarter
//!   of the content;
//! - the cache of a data component, its own setting;
//! - at an opening, the values applied again: half of `memory_bytes`, and the content of the log's
//!   buffers. But all values of the log at once where the data component has had no checkpoint yet,
//!   or does not outlive the process; and each committed transaction in parts is put together as a
//!   whole;
//! - also then, the timestamp of each transaction with parts and without a record.
//!
//! # Applying
//!
//! The proxy is a single thread. Sessions in need of room ask the proxy to apply, and wait;
//! sessions themselves call the data component only to read. A second thread takes checkpoints,
//! while operations are applied. If the data component hangs, waiting calls end with
//! [`Error::Stalled`], after [`store_patience`](Options::store_patience): transactions in need of
//! room, transactions that write while a checkpoint is under way and the log behind the checkpoint
//! is four times longer than [`redo_bytes`](Options::redo_bytes), [`Database::checkpoint`] and
//! [`Database::close`]. A hanging read waits as long as the data component hangs, and so does a
//! caller of a checkpoint, inside the checkpoint. [`Database::stats`] tells the amount waiting,
//! and the time.
//!
//! Where the data component takes pieces of a batch at the same time ([`DataComponent::may_cut`]),
//! more threads apply with the proxy while the waiting operations become more: see
//! [`proxy_threads`](Options::proxy_threads). [`PartitionedData`] takes a piece for each part,
//! `FjallData` and `RocksDbData` any; redb and the data component in memory have a single writer at
//! a time.
//!
//! # The steps
//!
//! B1 to B4 begin, R1 to R6 read, W1 to W6 write, C0 to C7 commit, A1 to A4 abort, F1 to F5 fetch,
//! E1 to E4 evict, M1 and M2 of a write and N1 to N5 are for scans, L1 to L4 for long snapshots, X1
//! to X7 the proxy, P1 to P4 a checkpoint, Q1 to Q5 a restart; O1 and O2 find the oldest active
//! transaction, S1 and S2 how a transaction stands. The letters stand in the code where the step
//! is.

#![forbid(unsafe_code)]

mod backup;
mod binding;
mod checkpoint;
mod closed;
mod config;
mod copying;
mod data;
mod data_component;
mod database;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod held_bytes;
mod inspect;
mod key;
mod long_snapshot;
mod proxy;
mod recovery;
mod restore;
mod session;
mod snapshot;
mod stats;
mod threads;
mod ticket;
mod times;
#[cfg(feature = "torture")]
pub mod torture;
mod transaction;
mod transaction_component;

pub use backup::Backup;
pub use closed::{Verified, backup, verify};
pub use config::{Options, ReaderRecords, UpdateLogging};
#[cfg(feature = "fjall")]
pub use data::FjallData;
#[cfg(feature = "redb")]
pub use data::RedbData;
#[cfg(feature = "rocksdb")]
pub use data::RocksDbData;
pub use data::{DataLayer, MemoryData, PartitionedData};
pub use data_component::{
    DataComponent, DataSnapshot, Found, KeyRange, Limits, Operation, ResumePoint, ScanOrder,
    is_empty_range, range_behind,
};
pub use database::Database;
pub use error::{Abort, Error};
pub use hyades_wal::{Continuation, LogOptions};
pub use inspect::{LoggedTransaction, PROTOCOL, RecordReader};
pub use long_snapshot::LongSnapshot;
pub use proxy::lag::Lag;
pub use recovery::Recovered;
pub use restore::{Restore, Restored, Until};
pub use session::Session;
pub use snapshot::Snapshot;
pub use stats::{Aborts, Stats};
pub use ticket::{CommitQueue, Ticket};
pub use times::TimeMark;
pub use transaction::Transaction;
pub use transaction_component::scan::Row;
pub use transaction_component::version::Value;
