//! Transactions: what a caller may do, and what one remembers until it ends.

pub(crate) mod access;
pub(crate) mod known;
pub(crate) mod procedure;
pub(crate) mod running;
pub(crate) mod state;
