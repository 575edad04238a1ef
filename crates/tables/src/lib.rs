//! Keyspaces, typed tables, secondary indexes and large values over [`hyades_deuteronomy`]: for
//! data larger than memory, in serializable, durable transactions.
//!
//! - **Declare and open.** [`Tables::builder`] declares [keyspaces](Keyspace), maps from bytes to
//!   bytes, and [tables](TypedTable), whose rows are values of a struct with
//!   `#[derive(hyades::Table)]`; [`Builder::open`] creates or finds them in a
//!   [`Database`](hyades_deuteronomy::Database). The derive names the crate `hyades`, so a program
//!   depends on both crates.
//! - **Write** in the transactions of a [`Session`](hyades_deuteronomy::Session). Secondary indexes
//!   are written in the same transaction.
//! - **Read** through a [`View`]: transactions, snapshots and long snapshots have the same methods.
//!   Scans read in chunks, in both directions, as iterators or with a closure.
//! - **Large values** are spread over pieces, and read whole or [in pieces](Keyspace::open_value).
//!
//! The database holds nothing but tables: its other keys are refused, and a transaction does not
//! write keys by itself. The guide is `docs/component-guide.md`, the formats are section 14 of
//! `docs/format.md`.
//!
//! ```
//! use hyades::Table;
//! use hyades_deuteronomy::{Database, LogOptions, MemoryData, Options};
//! use hyades_tables::{Error, Tables};
//! use std::sync::Arc;
//! # let dir = tempfile::tempdir()?;
//!
//! #[derive(Table)]
//! struct Account {
//!     #[key]
//!     owner: String,
//!     #[index]
//!     balance: i64,
//! }
//!
//! let options = Options::new(LogOptions::new(vec![dir.path().to_owned()], 2));
//! let database = Database::open(options, Arc::new(MemoryData::new()))?;
//! let tables = Tables::builder().table_of::<Account>().keyspace("photos").open(&database)?;
//! let (accounts, photos) = (tables.table_of::<Account>()?, tables.keyspace("photos")?);
//!
//! let mut session = database.session()?;
//! session.execute(|tx| {
//!     accounts.insert(tx, &Account { owner: "Ada".into(), balance: 5 })?;
//!     accounts.insert(tx, &Account { owner: "Max".into(), balance: 0 })?;
//!     photos.put(tx, b"Ada", &vec![0; 2 << 20])
//! })?;
//! let poor = session.execute(|tx| {
//!     accounts.modify(tx, "Ada", |account| account.balance -= 3)?;
//!     accounts.modify(tx, "Max", |account| account.balance += 3)?;
//!     let poor = accounts.index(tx, Account::BY_BALANCE).range(..3).rows()?;
//!     poor.map(|account| Ok(account?.owner)).collect::<Result<Vec<_>, Error>>()
//! })?;
//! assert_eq!(poor, ["Ada"]);
//!
//! let mut snapshot = database.long_snapshot()?;
//! assert_eq!(tables.check(&mut snapshot)?.entries, 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod bytes;
mod catalogue;
mod check;
mod cursor;
mod declaring;
mod error;
mod index;
mod keyspace;
mod large;
mod maintenance;
mod prefix;
mod rows;
mod table;
mod table_scan;
mod tables;
mod value_reader;
mod view;
mod writes;

pub use bytes::Bytes;
pub use check::Checked;
pub use error::Error;
pub use keyspace::{Keyspace, KeyspaceRows, KeyspaceScan};
pub use table::TypedTable;
pub use table_scan::{TypedRows, TypedScan};
pub use tables::{Builder, Tables};
pub use value_reader::ValueReader;
pub use view::View;

/// The programs in docs/component-guide.md compile and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/component-guide.md")]
pub struct Guide;
