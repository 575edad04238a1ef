//! The result of a torture run.

use crate::case::Outcome;
use serde::{Deserialize, Serialize};

/// Sums over all histories. Every column from `lost` to `hung` must be 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Seed of the first history. The next seeds follow.
    pub seed: u64,
    /// Databases opened several times and checked after each life.
    pub histories: u64,
    /// Ended lives (power cuts, kills, device failures, clean shutdowns) and failed attempts to
    /// open.
    pub crashes: u64,
    /// Acknowledged transactions, read-only transactions and aborts included.
    pub acknowledged: u64,
    /// Acknowledged transactions missing after a crash, and missing rows read by acknowledged
    /// transactions.
    pub lost: u64,
    /// Transactions that survived in part.
    pub partial: u64,
    /// Transactions lost in one crash that reappeared after a later crash.
    pub resurrected: u64,
    /// States that no replay of a dependency-closed set of the history yields, recoveries of the
    /// same disk that differ, unnoticed damage, and panics.
    pub diverged: u64,
    /// Replies and messages sent before their predecessors.
    #[serde(default)]
    pub out_of_order: u64,
    /// Refused openings of undamaged databases.
    pub refused_wrongly: u64,
    /// Transactions that did not end, or were not answered, in time.
    #[serde(default)]
    pub late: u64,
    /// Histories after which the process kept more memory than after the first histories.
    #[serde(default)]
    pub grown: u64,
    /// Histories that did not end in time.
    #[serde(default)]
    pub hung: u64,
    /// Duration in seconds.
    pub seconds: f64,
}

impl Report {
    /// Adds a history.
    pub(crate) fn add(&mut self, outcome: &Outcome) {
        self.histories += 1;
        self.crashes += outcome.crashes;
        self.acknowledged += outcome.acknowledged;
        self.lost += outcome.verdict.lost.len() as u64;
        self.partial += outcome.verdict.partial.len() as u64;
        self.resurrected += outcome.verdict.resurrected.len() as u64;
        self.diverged += outcome.verdict.diverged.len() as u64;
        self.out_of_order += outcome.out_of_order.len() as u64;
        self.refused_wrongly += outcome.refused_wrongly.len() as u64;
        self.late += outcome.late.len() as u64;
        self.grown += u64::from(outcome.grown.is_some());
        self.hung += u64::from(outcome.hung.is_some());
    }

    /// Whether every column of faults is 0.
    pub fn is_sound(&self) -> bool {
        let histories = [self.lost, self.partial, self.resurrected, self.diverged];
        let others = [self.out_of_order, self.refused_wrongly, self.late, self.grown, self.hung];
        histories == [0; 4] && others == [0; 5]
    }
}
