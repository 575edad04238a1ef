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
use hyades::plug::{NoWait, RunsUnder, Taurus};

impl RunsUnder<AllStreams> for ExclusiveLocks {}
impl RunsUnder<AllStreams> for NoWait {}
impl RunsUnder<Taurus> for ExclusiveLocks {}
