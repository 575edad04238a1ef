//! The schemes of papers beside Hyades' own, for comparison: logging protocols and concurrency
//! controls on `hyades::plug`, a file each.
//!
//! - Taurus: [`TAURUS_2016`], of the first report (Yu et al., 2016); the baselines of the paper of
//!   2020 (Xia et al., PVLDB 14(2)): [`SILO_R`], [`PLOVER`], and [`TICTOC`].
//!   Two-phase locking that waits, which Taurus draws: [`WAIT_DIE`] (Rosenkrantz et al., 1978).
//! - Poplar (Zhou et al., 2019): [`POPLAR`], and its baseline [`GSN`].
//! - Command logging as in VoltDB (Malviya et al., ICDE 2014): [`ARRIVAL`] on [`PARTITIONED`], and
//!   the baseline [`PHYSIOLOGICAL`].
//! - Deuteronomy (Levandoski et al., CIDR 2015): [`TIMESTAMP_ORDER`], on the rows of this engine;
//!   the component itself is the crate `hyades-deuteronomy`.
//!
//! A database takes them like Hyades' own:
//!
//! ```
//! use hyades::{Database, Schema, Type};
//! # let dir = tempfile::tempdir()?;
//! # let dir = dir.path();
//! let mut builder = Database::builder()
//!     .protocol(hyades_schemes::TAURUS_2016)
//!     .concurrency(hyades_schemes::TICTOC);
//! let words = builder.table(Schema::new("words").column("word", Type::Text));
//! let db = builder.open(dir)?;
//! db.transact(|tx| Ok(tx.insert(words, &["durable".into()])?))?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! A process that opens or inspects a database by its manifest calls [`register`] first. The rules
//! of each scheme, and departures from the papers, are in docs/protocols.
#![deny(unsafe_code)]

/// The programs in README.md compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

mod controls;
mod protocols;
mod table;

pub use table::{ARRIVAL, GSN, PHYSIOLOGICAL, PLOVER, POPLAR, SILO_R, TAURUS_2016};
pub use table::{PARTITIONED, TICTOC, TIMESTAMP_ORDER, WAIT_DIE};
pub use table::{all_controls, all_protocols, register};
