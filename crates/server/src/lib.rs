//! A durable, transactional server that speaks Redis's protocol.
//!
//! Every `OK` is on disk before it is sent. Commands run on all cores over any keys; what a client
//! sends at once is usually one transaction. docs/server.md says what it does and how it is run.
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
//! The core, `conversation`, knows neither sockets nor threads: bytes in, transactions, bytes out.
#![deny(unsafe_code)]

mod access;
mod catalogue;
mod channels;
mod client_socket;
mod clients;
mod clock;
mod command_stats;
mod commands;
mod config;
mod connection;
mod conversation;
mod data;
mod event_loop;
mod executors;
mod expiry;
#[cfg(feature = "torture")]
#[doc(hidden)]
pub mod fuzzing;
mod glob;
mod handshakes;
mod histogram;
mod http;
mod inbox;
mod latency_events;
mod listener;
mod memory;
mod migration;
mod monitors;
mod oom_score;
mod open_files;
mod opening;
mod pause;
mod ping;
mod rates;
mod rdb;
mod reaper;
mod redaction;
mod redis_files;
mod removal;
mod replies;
mod resp;
mod runs;
mod saves;
mod server;
mod shared;
mod signals;
mod slow_log;
mod standstill;
mod systemd;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "tls_off.rs"]
mod tls;
#[cfg(feature = "torture")]
#[doc(hidden)]
pub mod torture;
mod unix_socket;
mod waiting;
mod waker;

pub use config::{ConfigError, Settings, environment_port};
pub use ping::{PingTls, ping, ping_file};
pub use server::{Handle, Server, ServerError};
pub use signals::survive_file_limit;
