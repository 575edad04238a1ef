//! Models of replication: a database whose log is kept by a service that other machines read.
//!
//! Each model here checks the rules of one part. `lane` is one lane: the copy of one log stream at
//! the service, with writers that follow each other. `takeover` has several lanes, the files of the
//! members, and how one primary follows another. `lease` decides when a candidate tries, and what a
//! holder may answer; `marks` are the states that a follower reaches; `holds` is what the service
//! may forget.

pub mod holds;
pub mod lane;
pub mod lease;
pub mod marks;
pub mod takeover;
