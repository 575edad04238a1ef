//! Where the time of a simulated run goes, and which resource gives way first.

use crate::shared::Time;
use serde::Serialize;

/// From this utilisation on, a resource is saturated.
pub const SATURATED: f64 = 0.9;

/// A share of time, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Share {
    /// An activity of threads, or a resource.
    pub what: &'static str,
    /// The share.
    pub share: f64,
}

/// Where time goes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Usage {
    /// The time of all workers or threads, by activity. The sum is at most 1: the rest is idle.
    pub threads: Vec<Share>,
    /// The utilisation of each kind of resource: the busiest instance's, of the whole time. The
    /// first resource is the threads' own work.
    pub resources: Vec<Share>,
}

/// The name of the first resource: the work that the threads would do alone.
pub const OWN_WORK: &str = "own work of the threads";

/// What gives way first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct First {
    /// The resource.
    pub resource: &'static str,
    /// Its utilisation, from 0 to 1.
    pub utilisation: f64,
    /// Whether the resource is saturated; otherwise the threads wait for each other's results.
    pub is_saturated: bool,
}

impl Usage {
    /// The threads' own work, if saturated; else the most used of the other resources.
    pub fn first(&self) -> Option<First> {
        let (own, others) = self.resources.split_first()?;
        let most = others.iter().max_by(|a, b| a.share.total_cmp(&b.share));
        let named = if own.share >= SATURATED { own } else { most.unwrap_or(own) };
        Some(First {
            resource: named.what,
            utilisation: named.share,
            is_saturated: named.share >= SATURATED,
        })
    }
}

/// The share of `time` in `whole`.
pub(crate) fn share(what: &'static str, time: Time, whole: f64) -> Share {
    let share = if whole > 0.0 { (time as f64 / whole).min(1.0) } else { 0.0 };
    Share { what, share }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_work_is_named_only_where_it_fills_the_time() {
        let usage = |own, lock, line| Usage {
            threads: Vec::new(),
            resources: [(OWN_WORK, own), ("lock", lock), ("line", line)]
                .map(|(what, share)| Share { what, share })
                .into(),
        };
        let first = |own, lock, line| usage(own, lock, line).first().unwrap();
        assert_eq!(first(0.95, 0.99, 0.2).resource, OWN_WORK);
        assert_eq!(first(0.5, 0.93, 0.2).resource, "lock");
        assert!(first(0.5, 0.93, 0.2).is_saturated && !first(0.5, 0.2, 0.7).is_saturated);
        assert_eq!(first(0.5, 0.2, 0.7).resource, "line");
    }
}
