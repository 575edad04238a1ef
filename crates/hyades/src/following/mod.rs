//! Followers: databases whose tables are replayed from the log of another process, round after
//! round, and read meanwhile.
//!
//! - [`serving`]: the state that readers see, and how readers and rounds keep apart;
//! - [`rounds`]: the rounds, from one cut mark to the next;
//! - [`host`], [`reading`]: the follower as a [`Database`](crate::Database) that only reads;
//! - [`image`], [`image_schedule`]: checkpoints of the served state, and when they are due;
//! - [`promotion`]: the follower becomes a primary.
//!
//! `docs/protocols/cut-marks.md` has the rules.

mod host;
mod image;
mod image_schedule;
mod promotion;
mod reading;
mod rounds;
mod serving;

pub(crate) use host::{FollowerHost, Following};
pub use image::FollowerImage;
pub use image_schedule::ImageSchedule;
pub(crate) use promotion::Declarations;
pub use promotion::Promotion;
pub(crate) use rounds::{FirstState, ReplaySpeed, Rounds};
pub use rounds::{Follower, RoundReport};
pub(crate) use serving::Serving;
