//! Sockets: of clients, of Unix, the ones that are listened to, and what wakes a loop that polls
//! them.

pub mod client_socket;
pub mod listening;
pub mod unix_socket;
pub mod waker;
