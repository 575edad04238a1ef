//! A world that fails, and proof that the database does not.
//!
//! [`torture`](torture::torture) runs random histories: a database on a simulated disk
//! ([`SimulatedDisk`](hyades_platform::device::SimulatedDisk)) lives several times, under random
//! transactions on several threads, and each life ends in some kind of crash. After each, what was
//! recovered is judged against what ran and what was answered ([`history`]): nothing acknowledged is
//! lost, nothing is half there, nothing dead comes back, and the state is the replay of a
//! dependency-closed set of transactions. Half of the histories run on real threads; the other half on
//! one thread that does everything, in an order and in a time that follow from the seed, so that they
//! repeat exactly.
#![forbid(unsafe_code)]

pub mod case;
mod checkpoints;
mod database;
mod examine;
mod guard;
pub mod history;
pub mod isolation;
pub mod kept;
pub mod life;
pub mod plan;
pub mod program;
pub mod report;
pub mod schema;
pub mod shape;
mod stepped;
pub mod torture;

pub use guard::HANGS_AFTER;
pub use report::Report;
pub use torture::{Options, Scheduler, Torture, torture};
