//! Transactions: what a caller may do, and what one remembers until it ends.

pub(crate) mod access;
mod checking;
pub(crate) mod descents;
mod indexing;
pub(crate) mod known;
pub(crate) mod procedure;
pub(crate) mod running;
mod scanning;
pub(crate) mod state;
pub(crate) mod wanted;
mod window;
