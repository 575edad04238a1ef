//! Parameters of recovery.

use super::report::Progress;
use hyades_platform::epoch::EpochNumber;
use std::collections::BTreeMap;

/// How replay orders the records of a log in need of an order. Public with the feature `research`.
#[cfg_attr(not(feature = "research"), allow(dead_code))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Replay {
    /// As `Wavefront`, but one thread replays alone while records mostly wait for each other and
    /// one thread is measured as faster.
    #[default]
    Automatic,
    /// Watermarks of stream prefixes, and a window of waiting records in each stream.
    Wavefront,
    /// The pools of the Taurus paper (section 3.3, algorithms 3 and 4), corrected; for comparison.
    Pools,
    /// The basic recovery of the Taurus report of 2016 (section 4.4.1): separate phases read the
    /// log, find the recoverable records, and replay them. For comparison, on logs of `taurus-2016`
    /// only: all other logs are replayed as under `Wavefront`.
    Phases,
    /// One thread, in an order allowed by the vectors.
    Serial,
}

impl Replay {
    /// Whether replay runs on one thread only.
    pub(crate) fn is_on_one_thread(self) -> bool {
        self == Replay::Serial
    }
}

/// The parameters of one recovery.
pub(crate) struct Plan<'p> {
    pub threads: usize,
    pub kind: Replay,
    pub progress: Option<&'p (dyn Fn(&Progress) + Send + Sync)>,
    pub started_ns: u64,
    /// Transactions of later epochs are left out.
    pub until: EpochNumber,
    /// Recovers as much as a damaged log allows.
    pub salvage: bool,
    /// The declared spread of tables over partitions.
    pub partitions: &'p BTreeMap<String, String>,
}
