//! A discrete-event model of logging and replay, for machines larger than the one at hand.
//!
//! Workers, their shared cache lines, conflicts between workers, log buffers, devices, anchors and
//! replay are modelled. The acknowledgement rule, the vectors and their encoding are the engine's
//! own code (`hyades-wal`), and the distribution of accesses is the distribution of the engine's
//! workloads. The protocols' stamps ([`rules`]) and the order of replay ([`wavefront`]) are
//! restated for rows and records without content; a test compares the stamps with the stamps in the
//! engine's log. The cost of each step is measured on the machine at hand ([`costs`]), and a run
//! says where its time goes and which resource is used most ([`usage`]). The workload is YCSB: two
//! accesses, each a read or a write with equal probability. Workers keep to one stream, as under
//! the engine's setting `fixed_streams`.
#![forbid(unsafe_code)]

mod chunks;
pub mod costs;
mod device;
pub mod forward;
pub mod machine;
pub mod order;
pub mod replay;
pub mod rules;
mod shared;
mod streams;
pub mod usage;
mod waiting;
pub mod wavefront;
