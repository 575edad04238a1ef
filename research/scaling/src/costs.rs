//! Measured costs of the model's steps.

use crate::machine::Machine;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The rows, most popular first, assumed to be in the private cache of every core: about a
/// mebibyte. The cost of the remaining rows is fitted to this number.
pub const CACHED_ROWS: u32 = 1_000;

/// Accesses of a transaction.
pub const ACCESSES: usize = 2;

/// The schemes with measured costs: a protocol with a kind of record.
pub const SCHEMES: [(&str, &str); 8] = [
    ("serial", "data"),
    ("serial", "command"),
    ("taurus", "data"),
    ("taurus", "command"),
    ("silo-r", "data"),
    ("plover", "data"),
    ("poplar", "data"),
    ("gsn", "data"),
];

/// The costs of a scheme.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SchemeCosts {
    /// Worker time of a transaction in nanoseconds, one worker on a core of its own, under the
    /// measured distribution of accesses.
    pub worker_ns: f64,
    /// Log bytes for each acknowledged transaction.
    pub bytes: f64,
    /// Time to replay a record in nanoseconds on one thread; `None` if not measured.
    pub replay_ns: Option<f64>,
    /// The factor by which the scheme's work slows down when the second core is busy too; `None`:
    /// the factor without a log.
    #[serde(default)]
    pub slowdown: Option<f64>,
    /// The parts of `replay_ns`.
    #[serde(default)]
    pub replay: ReplayParts,
}

/// The steps of a record's replay, in nanoseconds on one thread. `replay_ns` holds reading and
/// decoding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReplayParts {
    /// Reading the record's bytes from files in memory, with their checksum.
    pub read_ns: f64,
    /// Decoding the record.
    pub decode_ns: f64,
    /// Copying the record's vectors and body to a place in a window, in addition to `replay_ns`.
    pub copy_ns: f64,
    /// The factor by which replay slows down when the second core is busy too, beside the costs of
    /// the model; `None`: the factor without a log.
    pub slowdown: Option<f64>,
}

/// Costs of the machine for threads that share memory, in nanoseconds unless named otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SharingCosts {
    /// Locking and unlocking a mutex of one core.
    pub lock_ns: f64,
    /// Moving one line more beside a line that moves from one core to another.
    pub further_line_ns: f64,
    /// From the notification of a sleeping thread until the thread runs.
    pub wake_ns: f64,
    /// The time of the notifying thread for one sleeping thread.
    pub notify_ns: f64,
    /// A round of waiting of an idle thread.
    pub pause_ns: f64,
    /// Bytes per second that two cores copy together; 0 if not measured.
    pub copy_bandwidth: f64,
}

/// All costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// Worker time of a transaction without a log, in nanoseconds.
    pub none_ns: f64,
    /// The factor by which all work slows down when the second core is busy too.
    pub slowdown: f64,
    /// Time to move a cache line from one core to another, in nanoseconds.
    pub line_ns: f64,
    /// The Zipf exponent of the measurement of worker times.
    #[serde(default)]
    pub theta: f64,
    /// The number of rows in the measurement of worker times.
    #[serde(default = "measured_rows")]
    pub rows: u32,
    /// The additional time of an access to a row beyond [`CACHED_ROWS`], in nanoseconds.
    #[serde(default)]
    pub miss_ns: f64,
    /// The additional time of an access to a row that another core has changed since, in
    /// nanoseconds.
    #[serde(default)]
    pub row_ns: f64,
    /// The costs of sharing.
    #[serde(default)]
    pub sharing: SharingCosts,
    /// Costs by scheme, as in "taurus command".
    pub schemes: BTreeMap<String, SchemeCosts>,
}

fn measured_rows() -> u32 {
    Machine::default().rows
}

impl Costs {
    /// The costs of a scheme; the costs without a log if the protocol is `none`.
    pub fn scheme(&self, protocol: &str, record: &str) -> Option<SchemeCosts> {
        if protocol == "none" {
            return Some(SchemeCosts { worker_ns: self.none_ns, ..SchemeCosts::default() });
        }
        self.schemes.get(&format!("{protocol} {record}")).copied()
    }

    /// How much slower a scheme's work is with this many busy cores.
    pub(crate) fn slowed(&self, scheme: &SchemeCosts, busy: usize) -> f64 {
        // A single worker has its core to itself; several share memory and caches.
        if busy > 1 { scheme.slowdown.unwrap_or(self.slowdown) } else { 1.0 }
    }

    /// How much slower replay is with this many busy cores.
    pub(crate) fn replay_slowed(&self, scheme: &SchemeCosts, busy: usize) -> f64 {
        if busy > 1 { scheme.replay.slowdown.unwrap_or(self.slowdown) } else { 1.0 }
    }

    /// Bytes per second through memory: each pair of cores is assumed to have as much as the two
    /// cores measured; 0 if not measured.
    pub(crate) fn memory(&self, threads: usize) -> f64 {
        self.sharing.copy_bandwidth * (threads as f64 / 2.0).max(1.0)
    }

    /// The time of a scheme's transaction whose rows are in the cache, one worker.
    pub(crate) fn cached_ns(&self, scheme: &SchemeCosts) -> f64 {
        let misses = ACCESSES as f64 * miss_share(self.rows, self.theta);
        // At least half of the measured time: a fit may be off.
        (scheme.worker_ns - misses * self.miss_ns).max(scheme.worker_ns / 2.0)
    }
}

/// A scheme's name in a calibration.
pub fn scheme(protocol: &str, record: &str) -> String {
    format!("{protocol} {record}")
}

/// The share of accesses to rows that no cache is assumed to hold.
pub fn miss_share(rows: u32, theta: f64) -> f64 {
    let weight = |rank: u32| (f64::from(rank) + 1.0).powf(-theta);
    let cached: f64 = (0..rows.min(CACHED_ROWS)).map(weight).sum();
    let others: f64 = (rows.min(CACHED_ROWS)..rows).map(weight).sum();
    others / (cached + others)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skew_keeps_accesses_in_the_cache() {
        assert_eq!(miss_share(CACHED_ROWS, 0.0), 0.0);
        assert!((miss_share(10 * CACHED_ROWS, 0.0) - 0.9).abs() < 1e-9);
        let shares = [0.0, 0.6, 0.9, 1.2].map(|theta| miss_share(100_000, theta));
        assert!(shares.windows(2).all(|pair| pair[0] > pair[1]), "{shares:?}");
    }
}
