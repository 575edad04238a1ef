//! Sockets: of clients, of Unix, listening sockets, and the waker of a polling loop.

pub mod client_socket;
pub mod listening;
pub mod unix_socket;
pub mod waker;
