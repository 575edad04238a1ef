//! A data component of [`hyades_deuteronomy`] on object storage, by SlateDB: Amazon S3 and what
//! speaks its protocol, Azure, Google Cloud (features `aws`, `azure`, `gcp`), or a directory.
//!
//! ```
//! use hyades_deuteronomy::{Database, LogOptions, Options};
//! use hyades_deuteronomy_slatedb::{SlateData, SlateOptions};
//! use std::sync::Arc;
//!
//! # let dir = tempfile::tempdir()?;
//! # let (log, objects) = (dir.path().join("log"), dir.path().join("objects"));
//! // Or SlateData::open_url("s3://bucket", "path", ..), with the feature `aws`.
//! let data = SlateData::open_dir(&objects, SlateOptions::default())?;
//! let database = Database::open(Options::new(LogOptions::new(vec![log], 2)), Arc::new(data))?;
//! let mut session = database.session()?;
//! session.execute(|tx| tx.put(b"a", b"1"))?;
//! assert_eq!(session.execute(|tx| tx.get(b"a"))?.as_deref(), Some(&b"1"[..]));
//! # drop(session);
//! database.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The log stays on disks of the machine, or on several machines: a commit waits for the log alone.
//! What is not in memory is read from the object storage, by a round trip of milliseconds; see
//! [`SlateOptions::cache_bytes`] and [`SlateOptions::disk_cache`].
//!
//! # How
//!
//! A write reads nothing: an operation is an operand of a merge operator, for which the highest
//! timestamp wins, and SlateDB merges when the key is read, flushed or compacted. So operations may
//! come in any order, any number of times. SlateDB's own log is off, for the transaction
//! component's log has every operation. Writes are durable in the order of writing, a memory table
//! at a time; so a dead process leaves a prefix of the writes, with all writes up to the last
//! checkpoint, which is a resume point, written last, and a flush.
//!
//! A deletion is also listed by its timestamp. [`forget_below`] goes through the list, and removes
//! each key whose newest operation is still a deletion below the floor, by a transaction of
//! SlateDB, which does not commit if the key was written in between. A compaction filter would be
//! cheaper, and wrong: an older operation that came later may be in a newer table than the
//! deletion, and would come back.
//!
//! # One process at a time
//!
//! The process that opens a database last takes the place of any other, which can make nothing
//! stable any more: its next checkpoint is an error that says so. The database is bound to its log.
//!
//! # When the object storage is away
//!
//! Requests are tried again, with pauses of up to a second. Transactions go on, as far as memory
//! reaches: SlateDB's memory tables, then the budget of the transaction component. A read of what
//! is not in memory fails after [`SlateOptions::read_patience`], and with it its transaction; a
//! write or a checkpoint after [`SlateOptions::patience`], which stops the database. Nothing
//! acknowledged is lost: the log has it, and the next opening applies it again.
//!
//! # Limits
//!
//! - Keys of up to 65,526 bytes, values of up to 16 MiB; a frame of the log bounds both to 1 MiB.
//! - Each checkpoint writes a table: with a small [`redo_bytes`] there are many small objects.
//! - Objects replaced by compactions are deleted some minutes later, while the database is open.
//! - The next process takes over an unfinished compaction of a killed process after 30 s
//!   (`worker_heartbeat_timeout` in [`SlateOptions::settings`]); where 32 tables wait for
//!   compaction, a checkpoint waits for as long.
//! - Power cuts of a directory are not simulated; all that is written there is synced.
//!
//! # Tests
//!
//! The crate is no member of the workspace, since SlateDB brings more than a hundred crates.
//! `scripts/slatedb-tests.sh [s3://bucket]` runs its tests, over a service of the protocol of S3,
//! too.
//!
//! [`redo_bytes`]: hyades_deuteronomy::Options::redo_bytes
//! [`forget_below`]: hyades_deuteronomy::DataComponent::forget_below

#![forbid(unsafe_code)]

mod data;
mod failure;
mod forgetting;
mod item;
mod options;
mod reading;
mod waiting;

pub use data::SlateData;
pub use options::SlateOptions;
pub use slatedb::Settings;
pub use slatedb::object_store;
