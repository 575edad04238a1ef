//! What torture found.

use serde::{Deserialize, Serialize};

/// The sum over all histories. Every column from `lost` to `refused_wrongly` is to be 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The first history's seed; the next ones follow it.
    pub seed: u64,
    /// Databases that were begun, lived several times, and were checked after each life.
    pub histories: u64,
    /// Ends of lives: power cuts, kills, failed devices, and ends of attempts to open.
    pub crashes: u64,
    /// Transactions that were answered, read-only ones and aborts included.
    pub acknowledged: u64,
    /// Answered, and not there after a crash; or what an answered reader saw is not.
    pub lost: u64,
    /// There in part.
    pub partial: u64,
    /// Dead after one crash, and there after a later one.
    pub resurrected: u64,
    /// States that no replay of a dependency-closed set of the history gives; two recoveries of the same
    /// disk that differ; damage that was not noticed; panics.
    pub diverged: u64,
    /// Openings of undamaged databases that were refused.
    pub refused_wrongly: u64,
    /// Transactions that did not end, or were not answered, in time.
    #[serde(default)]
    pub late: u64,
    /// Histories that did not end in time.
    #[serde(default)]
    pub hung: u64,
    /// How long it took.
    pub seconds: f64,
}

impl Report {
    /// Whether every column of faults is 0.
    pub fn is_sound(&self) -> bool {
        let histories = [self.lost, self.partial, self.resurrected, self.diverged];
        histories == [0; 4] && [self.refused_wrongly, self.late, self.hung] == [0; 3]
    }
}
