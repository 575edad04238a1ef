//! A durable, transactional server that speaks Redis's protocol.
//!
//! Every `OK` is on disk before it is sent. Commands run on all cores over any keys; the commands
//! that a client sends at once are usually one transaction. docs/server describes the server and
//! its operation.
//!
//! ```no_run
//! use hyades_server::{Server, Settings};
//! let settings = Settings::from_arguments(&["--port", "0", "--dir", "data"])?;
//! let server = Server::start(settings)?;
//! server.wait_until_open()?;
//! println!("ready on {:?}", server.address());
//! server.wait()?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! The core, `session`, knows neither sockets nor threads: bytes in, transactions, bytes out.
#![deny(unsafe_code)]

mod access;
mod base;
mod catalogue;
mod client;
mod clients;
mod commands;
mod config;
mod data;
mod export;
#[cfg(feature = "torture")]
#[doc(hidden)]
pub mod fuzzing;
mod http;
mod import;
#[cfg(feature = "replication")]
mod member;
mod net;
mod rdb;
mod replica;
mod request;
mod resp;
mod script;
mod server;
mod session;
mod sockets;
mod state;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "tls_off.rs"]
mod tls;
#[cfg(feature = "torture")]
#[doc(hidden)]
pub mod torture;
mod transact;
mod upkeep;

pub use config::{ConfigError, PingTls, Settings, environment_port};
pub use export::{ExportReport, export};
pub use import::{ImportReport, import};
#[cfg(feature = "replication")]
pub use member::{
    LaneFigures, MakeBuilder, MemberView, PrimaryView, ReadMetrics, RoleChange, RoleSource,
    SourceFactory, View,
};
pub use server::{Handle, Server, ServerError, ping, ping_file, survive_file_limit};
