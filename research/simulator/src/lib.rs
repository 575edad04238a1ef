//! Torture tests: random transactions on a simulated disk that fails and crashes.
//!
//! [`torture`](torture::torture) runs random histories. A history opens a database on a simulated
//! disk ([`SimulatedDisk`](hyades_platform::device::SimulatedDisk)) several times. Each run is
//! called a life: several threads execute random transactions until some kind of crash. After each
//! crash the recovered state is checked against what ran and what was acknowledged ([`history`]):
//! nothing acknowledged is lost, no transaction survives in part, no dead transaction reappears,
//! and the state is the replay of a dependency-closed set of transactions. Half of the histories
//! run on real threads. The other half run on one thread, in an order and in a simulated time that
//! follow from the seed, so that they repeat exactly.
#![forbid(unsafe_code)]

pub mod case;
mod checkpoints;
pub mod clients;
pub mod conduct;
mod database;
mod ending;
mod examine;
mod guard;
pub mod history;
pub mod isolation;
pub mod kept;
pub mod life;
pub mod plan;
pub mod program;
#[cfg(feature = "replication")]
pub mod replicated;
pub mod report;
pub mod schema;
pub mod shape;
pub mod soak;
mod stated;
mod stepped;
pub mod torture;
pub mod traces;
mod wakers;

pub use guard::HANGS_AFTER;
pub use report::Report;
pub use torture::{Options, SHRINK_FOR, Scheduler, Torture, torture};
