//! The options of TATP.

use clap::Args;
use hyades_cli::failure::{Failure, usage};
use hyades_workloads::tatp;
use serde::{Deserialize, Serialize};

/// The text above the options in the help.
pub const ABOUT: &str = "\
TATP: short transactions on the subscribers of a mobile network, 80 % only read

Transactions: GetSubscriberData 35 %, GetAccessData 35 %, GetNewDestination 10 %, UpdateLocation \
14 %, UpdateSubscriberData, InsertCallForwarding and DeleteCallForwarding 2 % each. Those that \
name a missing row, or insert one that exists, roll back, which is part of the benchmark. \
Subscribers are not drawn uniformly; how, follows from their number.

Conditions checked at the end: the subscribers are those that were loaded, all other rows belong \
to one of them, and call forwardings have valid times.";

/// Options of TATP.
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub struct Tatp {
    /// Subscribers, at least 1; each has about 9 rows in four tables
    #[arg(long, default_value_t = 100_000)]
    subscribers: u32,
}

impl Tatp {
    /// Checks the options.
    ///
    /// # Errors
    /// Wrong usage, in one sentence.
    pub fn check(&self) -> Result<(), Failure> {
        if !(1..1 << 31).contains(&self.subscribers) {
            return usage(format!(
                "--subscribers must be at least 1 and below 2^31, not {}",
                self.subscribers
            ));
        }
        Ok(())
    }

    /// The workload's configuration.
    pub fn config(&self, seed: u64) -> tatp::TatpConfig {
        tatp::TatpConfig { subscribers: self.subscribers, seed }
    }
}
