//! Serializable, durable transactions over any store of keys and values.
//!
//! Source: Levandoski, Lomet, Sengupta, Stutsman, Wang, "High Performance Transactions in
//! Deuteronomy" (CIDR 2015). A *transaction component* does all that concerns transactions:
//! multi-version timestamp order, and a log of redo records in N parallel streams (`hyades-wal`). A
//! *data component* ([`DataComponent`]) stores keys and values and knows nothing of transactions: a
//! proxy hands it the operations of transactions that have committed and are durable.
//!
//! Where it departs from the paper, and why, is in `docs/protocols/deuteronomy.md`. The two main
//! rules: *timestamps order data*: versions, operations at the data component, and redo. *LSN
//! vectors decide what counts*: what is acknowledged, and what is part of the recovered state, by
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
//! # Memory
//!
//! [`memory_bytes`](Options::memory_bytes) bounds the versions, what scans need beside them, and
//! what is committed and waits for the data component, with about 260 bytes for each record of it.
//! Of what waits and was overwritten meanwhile there is half of the budget at most: then writers
//! wait for the data component, at its own speed. Where what is not committed uses the budget up,
//! the youngest transaction that has written is aborted ([`Abort::Shed`]), at its next write. Older
//! ones wait for that, up to [`room_patience`](Options::room_patience), and go on. Beyond it there
//! are:
//! - what a session has put there since it has last looked, a key and its value; and a 64th of the
//!   budget, up to 16 KiB, of records that were just handed to the proxy;
//! - values that callers keep ([`Value`]), and the transaction table
//!   ([`transactions`](Options::transactions));
//! - the buckets of the version table, which grow with what was in it: at most half of that;
//! - what a data component caches, its own setting;
//! - at an opening, the values that are applied again: half of `memory_bytes`, and what the buffers
//!   of the log hold. But all values of the log at once where the data component has had no
//!   checkpoint yet, or does not outlive the process; and each transaction in parts that has
//!   committed is put together as a whole;
//! - also then, the timestamp of each transaction that has left parts and no record.
//!
//! # Applying
//!
//! The proxy is one thread. Sessions that need room ask it to apply, and wait; they are at the data
//! component themselves only to read. A second thread takes checkpoints, beside which operations
//! are applied. A data component that hangs ends what waits for it with [`Error::Stalled`], after
//! [`store_patience`](Options::store_patience): transactions that need room, those that write while
//! a checkpoint is under way and the log behind it is four times longer than
//! [`redo_bytes`](Options::redo_bytes), [`Database::checkpoint`] and [`Database::close`]. A read
//! that hangs waits as long as it does, and so does one that has called for a checkpoint, in that.
//! [`Database::lag`] says how much waits, and how long.
//!
//! Where the data component takes pieces of a batch at the same time ([`DataComponent::may_cut`]),
//! more threads apply with it while what waits to be applied becomes more: see
//! [`proxy_threads`](Options::proxy_threads). [`PartitionedData`] takes a piece for each part,
//! `FjallData` any; redb and the one in memory have one writer at a time.
//!
//! # What is not there yet
//!
//! Of the paper's mechanisms, and of those that go beyond it, these are missing. Where there is a
//! bound of what one could save, it was measured (`docs/performance.md`, "Where its time goes"):
//! shares of the processor time of the paper's transactions over a data component in memory, with
//! two workers.
//! - *Data components at the other end of a connection*, with a proxy there: the log would have to
//!   be sent, and outcomes with it. The proxy here is told by sessions what has committed. So it
//!   has no scan of the log, and no *side buffer* for operations whose commit was not seen.
//! - *The log's buffers as version cache* (with positions of values, and a log that keeps, releases
//!   and follows its buffers), *and slabs* for versions of one size: the copy of a value to its
//!   version, 3 %, and 5 % with writes only, and a part of what the allocator takes, 8 and 17 %: a
//!   version is an allocation wherever its value is. In exchange each version would be looked up
//!   once more, when its buffer is used again.
//! - *A latch-free version table*: at most 6 %, and 10 % with writes only: that is spent where a
//!   bucket's latch is taken, which is the first access to its cache line. Two workers found one
//!   latch of 40,000 held, so none waits for what is done under one. All steps of an operation are
//!   atomic by it, which the proofs rest on. Two cores do not show what many would.
//! - *A read cache of its own*: it would save no time where all is in memory. What was fetched is a
//!   version in the table like others, which takes 40 bytes more, with a second chance when memory
//!   is full. What that costs where data are larger than memory was not measured.
//! - *Epochs and garbage rings*: at most the reference counts, 4 to 7 %, of which a part is
//!   dropping what has no reader any more; look-ups take no larger share with two workers than with
//!   one, so cache lines that counts have changed cost them nothing that shows. Without latch-free
//!   reads nothing is reclaimed under a reader.
//! - *Limits that adjust themselves* between the table and the data component's cache: not
//!   measured. redb (4.6) and fjall (3.1) take the size of their cache when they are opened, and
//!   have no method that changes it. So both limits are settings, and the better split depends on
//!   the load.
//! - *Huge pages* for tables and buffers: no gain was shown, with all of the allocator's memory on
//!   them, within what rounds differ by, which is a fifth. An allocator can ask for them for a
//!   whole process, as that of `hyades-lab bench` does for the memory that it reserves.
//! - *A Bw-tree, and a tree with optimistic latches, over a log-structured store* as data
//!   components; the Cassandra protocol: see [`DataComponent`] for what one has to do.
//! - *Backups and point-in-time recovery*.
//!
//! # The steps
//!
//! B1 to B4 begin, R1 to R6 read, W1 to W6 write, C0 to C7 commit, A1 to A4 abort, F1 to F5 fetch,
//! E1 to E4 evict, M1 and M2 of a write and N1 to N5 are for scans, X1 to X7 the proxy, P1 to P4 a
//! checkpoint, Q1 to Q5 a restart; O1 and O2 find the oldest active transaction, S1 and S2 how a
//! transaction stands. The letters stand in the code where the step is.

#![forbid(unsafe_code)]

mod binding;
mod checkpoint;
mod config;
mod data;
mod data_component;
mod database;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod held_bytes;
mod inspect;
mod key;
mod proxy;
mod recovery;
mod session;
mod snapshot;
mod threads;
mod ticket;
#[cfg(feature = "torture")]
pub mod torture;
mod transaction;
mod transaction_component;

pub use config::{Options, ReaderRecords, UpdateLogging};
#[cfg(feature = "fjall")]
pub use data::FjallData;
#[cfg(feature = "redb")]
pub use data::RedbData;
pub use data::{DataLayer, MemoryData, PartitionedData};
pub use data_component::{
    DataComponent, Found, KeyRange, Limits, Operation, ResumePoint, ScanOrder,
};
pub use database::Database;
pub use error::{Abort, Error};
pub use hyades_wal::LogOptions;
pub use inspect::{LoggedTransaction, PROTOCOL, RecordReader};
pub use proxy::lag::Lag;
pub use recovery::Recovered;
pub use session::Session;
pub use snapshot::Snapshot;
pub use ticket::{CommitQueue, Ticket};
pub use transaction::Transaction;
pub use transaction_component::scan::Row;
pub use transaction_component::version::Value;
