//! Threads that serve sockets: event loops, the listener, executors for work too long for a loop.

pub mod connection;
pub mod event_loop;
pub mod executors;
pub mod listener;
