//! Measured costs of the model's steps.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The costs of a scheme: a protocol with a kind of record.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SchemeCosts {
    /// Worker time of a transaction in nanoseconds, one worker on a core of its own.
    pub worker_ns: f64,
    /// Log bytes for each acknowledged transaction.
    pub bytes: f64,
    /// Time to replay a record in nanoseconds on one thread; `None` if it was not measured.
    pub replay_ns: Option<f64>,
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
    /// Costs by scheme, as in "taurus command".
    pub schemes: BTreeMap<String, SchemeCosts>,
}

impl Costs {
    /// The costs of a scheme; those of running without a log if the protocol is `none`.
    pub fn scheme(&self, protocol: &str, record: &str) -> Option<SchemeCosts> {
        if protocol == "none" {
            let worker_ns = self.none_ns;
            return Some(SchemeCosts { worker_ns, bytes: 0.0, replay_ns: None });
        }
        self.schemes.get(&format!("{protocol} {record}")).copied()
    }
}
