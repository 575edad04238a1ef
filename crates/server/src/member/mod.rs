//! The server as a member of a replicated database.
//!
//! - [`source`]: the roles of this member, as something outside of the server decides them;
//! - [`roles`]: the thread that puts each role in force;
//! - [`counting`]: the counts of keys, beside clients.
//!
//! A role comes with a database, or with none. Whatever the server had of the database before is
//! let go first: sessions, queues, jobs, timers, counts. Clients of a role that has ended are
//! disconnected once they were told what is certain, and ask again where the primary is.
//!
//! What a client meets:
//!
//! | role | reads | writes |
//! |---|---|---|
//! | joining, candidate | LOADING | LOADING |
//! | standby | as of the epoch that is served, one state in each turn of a loop | READONLY |
//! | primary | yes | yes |
//! | handing over | TRYAGAIN | TRYAGAIN |
//! | primary whose lease has run out | held for a second, then MASTERDOWN | while the log stores |
//! | stopped | MASTERDOWN | MASTERDOWN |
//!
//! On a standby keys expire by its own clock, and nothing is removed; messages are of its own
//! clients; commands that wait, WATCH and CLIENT TRACKING are refused, since nothing tells of the
//! writes that a round replays.

mod counting;
mod roles;
mod source;
#[cfg(test)]
mod tests;

pub use crate::state::membership::{MemberView, PrimaryView, View};
pub use crate::state::membership_figures::{LaneFigures, ReadMetrics};
pub use roles::run;
pub use source::{MakeBuilder, RoleChange, RoleSource, SourceFactory};
