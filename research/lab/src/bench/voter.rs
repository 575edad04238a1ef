//! The options of Voter.

use clap::Args;
use hyades_cli::failure::{Failure, usage};
use hyades_workloads::voter;
use serde::{Deserialize, Serialize};

/// The text above the options in the help.
pub const ABOUT: &str = "\
Voter: votes by telephone, a row each

One transaction: it looks whether the contestant exists and how often the caller has voted, finds \
the state of the area code, and inserts the vote. One in 100 votes names a contestant that does \
not exist. Callers are drawn from eight billion numbers. Votes are partitioned by the caller.

Conditions checked at the end: votes are for contestants, in the states of their area codes, and \
each caller's count is right and not above the limit.";

/// Options of Voter.
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub struct Voter {
    /// Contestants, at least 1
    #[arg(long, default_value_t = 6)]
    contestants: i32,
    /// How often a caller may vote, or none: then nothing is counted, and votes are never read
    #[arg(long, default_value = "2", value_name = "N")]
    vote_limit: String,
}

impl Voter {
    /// Checks the options.
    ///
    /// # Errors
    /// Wrong usage, in one sentence.
    pub fn check(&self) -> Result<(), Failure> {
        if !(1..=1_000_000).contains(&self.contestants) {
            return usage(format!("--contestants must be 1 to 1000000, not {}", self.contestants));
        }
        match self.limit() {
            Ok(None | Some(1..)) => Ok(()),
            _ => usage(format!("--vote-limit must be 1 or more, or none, not {}", self.vote_limit)),
        }
    }

    fn limit(&self) -> Result<Option<i32>, std::num::ParseIntError> {
        match &*self.vote_limit {
            "none" => Ok(None),
            limit => limit.parse().map(Some),
        }
    }

    /// The workload's configuration.
    pub fn config(&self, seed: u64) -> voter::VoterConfig {
        let limit = self.limit().expect("the options were checked");
        voter::VoterConfig { contestants: self.contestants, limit, seed }
    }
}
