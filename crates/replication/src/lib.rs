//! The log of a database on several machines: each stream of the log has a *lane* in a replicated
//! log service, with the same bytes at the same positions.
//!
//! - [`service`]: what is asked of a log service, and a [`simulated`] service.
//! - [`message`]: a batch of frames as a message of a lane, and the rule by which every reader of a
//!   lane takes the same messages.
//! - [`seal`]: the end of all earlier incarnations of a lane.
//! - [`begin`]: the beginning of an incarnation, as the log service keeps it.
//! - [`appender`]: the writer of the lanes, as the log's [`Remote`](hyades_wal::Remote).
//! - [`lease`], [`lease_keeper`], [`lease_watch`]: which process writes, and may answer.
//! - [`meter`]: counts and times of requests, for monitoring.
//! - [`lane_place`], [`holds`]: what members need of the lanes, and what may be purged.
//! - `bases`, `base_fetch`: a member's files as the beginning of another member.
//! - [`standby`]: a copy of the database that follows, is read, and can take over.
//! - `status`: a database as its log shows it, for operators.
//! - [`member`], [`member_thread`]: a process that is a standby or the primary, as the lease says.
//!
//! An acknowledged batch is in its lane before the first seal of a later incarnation, so every
//! reader that ends the incarnation takes the batch: see `docs/protocols/replicated-lane.md`.
#![forbid(unsafe_code)]

pub mod appender;
mod base_fetch;
mod base_messages;
mod bases;
pub mod begin;
pub mod first;
mod hex;
mod hold_keeper;
pub mod holds;
mod keys;
pub mod lane_place;
pub mod lane_tail;
pub mod lease;
pub mod lease_keeper;
pub mod lease_watch;
pub mod marks;
pub mod member;
pub mod member_thread;
pub mod message;
pub mod meter;
#[cfg(feature = "nats")]
pub mod nats;
pub mod probe;
mod reports;
pub mod seal;
pub mod service;
mod short_lane;
pub mod simulated;
pub mod standby;
mod standby_checkpoint;
mod standby_error;
#[cfg(feature = "nats")]
pub mod status;
pub mod verify;

pub use appender::Appender;
pub use first::FirstAppender;
pub use marks::MarkSender;
pub use member::{MemberSettings, MemberView, Role};
pub use member_thread::Member;
pub use message::{LaneReader, Message, MessageBody, Taken};
pub use reports::Verified;
pub use seal::{Sealed, Writer};
pub use service::{LogService, Place, Reply, Request, RequestId};
pub use standby::{Standby, StandbyError, StandbySettings};
