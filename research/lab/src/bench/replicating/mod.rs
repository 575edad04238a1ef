//! `--standbys`: a primary whose log is also in the lanes of a log service, and standbys in the
//! same process that follow the lanes. The options, and the figures of such a run.

#[cfg(feature = "replication")]
mod following;
#[cfg(feature = "replication")]
mod lanes;
#[cfg(feature = "replication")]
mod run;

use super::choices::{Concurrency, Protocol};
use clap::Args;
use hyades_cli::failure::{Failure, usage};
use hyades_cli::units::time;
use serde::{Deserialize, Serialize};

#[cfg(feature = "replication")]
pub use run::run;

/// Most standbys of a run.
const MOST: usize = 8;

/// Options of replication.
#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Replicating {
    /// Keep the log in the lanes of a log service too, and have K standbys follow the lanes, 0 to
    /// 8; they run in this process, replay the load as well, and must end with the primary's state
    #[arg(long, value_name = "K")]
    pub standbys: Option<usize>,
    /// With --standbys: the log service, as nats://HOST:PORT,../NAME; the lanes are new, and
    /// removed at the end. In a build with --features nats [default: a service in the memory of
    /// this process, which answers at once and is gone with the process]
    #[arg(long, value_name = "ADDRESS", requires = "standbys")]
    pub log_service: Option<String>,
    /// With --log-service: replicas of each lane: 1, 3 or 5 [default: 3]
    #[arg(long, value_name = "N", requires = "log_service",
        value_parser = clap::value_parser!(u32).range(1..=5))]
    pub lane_replicas: Option<u32>,
}

impl Replicating {
    /// Checks the options beside the protocol and the concurrency control. `others` are options
    /// that are not for a replicated run, and whether each is set.
    ///
    /// # Errors
    /// Wrong usage, in one sentence.
    pub fn check(
        &self,
        (protocol, concurrency): (Protocol, Concurrency),
        others: &[(&str, bool)],
    ) -> Result<(), Failure> {
        let Some(standbys) = self.standbys else { return Ok(()) };
        if standbys > MOST {
            return usage(format!("--standbys must be 0 to {MOST}, not {standbys}"));
        }
        if !matches!(protocol, Protocol::Serial | Protocol::Taurus) {
            return usage(format!(
                "no standby follows a log of {}: --standbys is for --protocol serial and taurus",
                protocol.word()
            ));
        }
        let followed = [Concurrency::Silo, Concurrency::NoWait, Concurrency::Hekaton];
        if !followed.contains(&concurrency) {
            return usage(format!(
                "no standby follows a log under {}: --standbys is for --concurrency silo, no-wait \
                 and hekaton",
                concurrency.word()
            ));
        }
        if let Some((name, _)) = others.iter().find(|(_, is_set)| *is_set) {
            return usage(format!(
                "{name} is not for a run with --standbys: leave one of both out"
            ));
        }
        self.check_build()
    }

    #[cfg(feature = "replication")]
    fn check_build(&self) -> Result<(), Failure> {
        self.log_service.as_deref().map_or(Ok(()), lanes::check)
    }

    #[cfg(not(feature = "replication"))]
    fn check_build(&self) -> Result<(), Failure> {
        usage("this build has no replication: build it with --features replication")
    }
}

/// The figures of a run with standbys.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Replicated {
    /// What keeps the lanes.
    pub log_service: String,
    /// The number of standbys.
    pub standbys: usize,
    /// Transactions acknowledged in all of the run, warm-up and end included.
    pub transactions: u64,
    /// The same per second, from the start of the run until the last standby shows all of them.
    pub copied_per_s: f64,
    /// Processor time of the process in that time, in seconds: of primary, clients and standbys.
    pub processor_seconds: f64,
    /// The mean age of the state that a standby shows while the workload runs, in milliseconds, of
    /// the standby with the highest; null without standbys.
    pub age_ms: Option<f64>,
    /// The highest age of all.
    pub longest_age_ms: Option<f64>,
    /// From the last acknowledgement until the last standby shows all transactions.
    pub catch_up_ms: Option<f64>,
    /// By standby.
    pub each: Vec<StandbyFigures>,
    /// Whether each standby's state equals the primary's at the end; null without standbys.
    pub state_matches: Option<bool>,
}

/// The figures of a standby.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StandbyFigures {
    /// States shown while the workload runs.
    pub states: usize,
    /// The mean age of the shown state, in milliseconds.
    pub age_ms: f64,
    /// The highest age.
    pub longest_age_ms: f64,
    /// From the last acknowledgement until the standby shows all transactions.
    pub catch_up_ms: f64,
    /// Rows at the end.
    pub rows: u64,
    /// Whether the state equals the primary's at the end.
    pub state_matches: bool,
}

impl Replicated {
    /// Whether no standby's state differs from the primary's.
    pub fn holds(&self) -> bool {
        self.state_matches != Some(false)
    }

    /// One line of text.
    pub fn text(&self) -> String {
        let (count, service) = (self.standbys, &self.log_service);
        let head = format!(
            "{count} standbys, log service {service}: {:.0} transactions/s on all copies",
            self.copied_per_s
        );
        let ms = |ms: Option<f64>| time(ms.unwrap_or(0.0) * 1e-3);
        match self.state_matches {
            None => head,
            Some(matches) => format!(
                "{head}; age {} on average, {} at most; all shown {} after the end; states {}",
                ms(self.age_ms),
                ms(self.longest_age_ms),
                ms(self.catch_up_ms),
                if matches { "are equal" } else { "DIFFER" }
            ),
        }
    }
}
