//! A client's side of the server, without sockets and threads: bytes in, transactions, bytes out.

pub mod conversation;
pub mod executed;
pub mod refusing;
pub mod replies;
pub mod runs;
