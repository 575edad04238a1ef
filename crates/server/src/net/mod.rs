//! Threads that serve sockets: event loops, the listener, executors for work that would hold up a
//! loop.

pub mod connection;
pub mod event_loop;
pub mod executors;
pub mod listener;
