//! Models of replication: a database whose log is kept by a service that other machines read.
//!
//! Each model here checks the rules of one part. `lane` is one lane: the copy of one log stream at
//! the service, with writers that follow each other. Takeover over several lanes, the lease, marks,
//! and what the service may forget are parts of their own: each belongs into a file beside `lane`.

pub mod lane;
