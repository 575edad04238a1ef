//! Data components of [`hyades_deuteronomy`] in another process, or on another machine.
//!
//! [`DataServer`] serves a data component over TCP. [`RemoteData`] is a data component that asks a
//! server. The proxy of the transaction component sends batches of operations of committed, durable
//! transactions; a commit waits for the log alone, never for the server.
//!
//! # What a server may lose
//!
//! A killed server loses the operations since its last checkpoint. [`RemoteData`] keeps these
//! operations, encoded, until a checkpoint is stable, and gives the operations to the next process
//! again, before any other request. Operations may come in any order and any number of
//! times, so nothing has to be told apart. If the transaction component is lost too, its log has
//! the operations behind the resume point of the data component, as always. The memory for kept
//! operations is bounded by the transaction component's [checkpoints], a few times `redo_bytes`,
//! and by [`RemoteOptions::kept_bytes`]: beyond that limit the client has the server make its data
//! stable, with the resume point of before, and applies more only then.
//!
//! # Rules
//!
//! - R1: each connection belongs to one process of the server (its *boot*). No request reaches a
//!   later boot before all kept operations have been applied there.
//! - R2: an operation is kept before it is first sent, and until a checkpoint that began after its
//!   application has been made stable.
//! - R3: a server serves one client at a time. Another client that joins takes the place: a request
//!   of the client before that is not finished by then has no effect, and all later ones are
//!   refused. A client that returns to another boot is refused if the resume point there is of a
//!   later incarnation than the client's.
//! - R4: the resume point at the server does not go back: checkpoints follow each other, and one
//!   taken for room has the point of the last.
//!
//! While the server cannot be reached, calls wait, and the database goes on as with a stalled data
//! component: until the budget of memory is used up, and reads of what is not in memory wait. See
//! [`RemoteOptions::patience`].
//!
//! Connections are neither encrypted nor authenticated: use them within a trusted network, or
//! through a tunnel.
//!
//! ```
//! use hyades_deuteronomy::{Database, LogOptions, MemoryData, Options};
//! use hyades_deuteronomy_remote::{DataServer, RemoteData, RemoteOptions};
//! use std::sync::Arc;
//!
//! # let dir = tempfile::tempdir()?;
//! let server = DataServer::start("127.0.0.1:0", Arc::new(MemoryData::new()))?;
//! let data = RemoteData::connect(&server.address().to_string(), RemoteOptions::default())?;
//! let options = Options::new(LogOptions::new(vec![dir.path().to_owned()], 2));
//! let database = Database::open(options, Arc::new(data))?;
//! let mut session = database.session()?;
//! session.execute(|tx| tx.put(b"a", b"1"))?;
//! assert_eq!(session.execute(|tx| tx.get(b"a"))?.as_deref(), Some(&b"1"[..]));
//! # drop(session);
//! database.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [checkpoints]: hyades_deuteronomy::Options::redo_bytes

#![forbid(unsafe_code)]

mod client;
mod connection;
mod kept;
mod message;
mod peer;
mod server;
mod snapshot;

pub use client::RemoteData;
pub use peer::RemoteOptions;
pub use server::{DataServer, ServerOptions};
