//! The engine of Hyades with a logging protocol and a concurrency control from outside, a file
//! each, over `hyades::plug`.
//!
//! The program runs [`transfers`] in the given directory, and prints each acknowledged transfer.
//! `tests/transfers.rs` kills the program, opens the database again, and checks the sums.

pub mod all_streams;
pub mod exclusive_locks;
pub mod transfers;

use all_streams::AllStreams;
use exclusive_locks::ExclusiveLocks;
use hyades::plug::{
    self, NoWait, Pair, PluggedControl, PluggedProtocol, RunsUnder, Schemes, StartsOnLog, Taurus,
};
use hyades::{Concurrency, Protocol};

impl RunsUnder<AllStreams> for ExclusiveLocks {}
impl RunsUnder<AllStreams> for NoWait {}
impl RunsUnder<Taurus> for ExclusiveLocks {}

static PROTOCOL: PluggedProtocol = PluggedProtocol {
    name: AllStreams::NAME,
    stamps: |_| AllStreams::STAMPS,
    takes_commands: false,
    takes_data: true,
    has_one_stream: false,
    control: None,
    register,
};

static CONTROL: PluggedControl =
    PluggedControl { name: "exclusive-locks", has_partitions: false, register };

/// The protocol, for [`hyades::Builder::protocol`].
pub const ALL_STREAMS: Protocol = Protocol::Plugged(&PROTOCOL);

/// The concurrency control, for [`hyades::Builder::concurrency`].
pub const EXCLUSIVE_LOCKS: Concurrency = Concurrency::Plugged(&CONTROL);

static SCHEMES: Schemes = Schemes {
    protocols: &[&PROTOCOL],
    controls: &[&CONTROL],
    pairs: &[
        &Pair::on_log::<ExclusiveLocks, AllStreams>(EXCLUSIVE_LOCKS, ALL_STREAMS),
        &Pair::on_log::<NoWait, AllStreams>(Concurrency::NoWait, ALL_STREAMS),
        &Pair::on_log::<ExclusiveLocks, Taurus>(EXCLUSIVE_LOCKS, Protocol::Taurus),
    ],
};

/// Makes the protocol and the control known to the process.
pub fn register() {
    plug::register(&SCHEMES);
}
