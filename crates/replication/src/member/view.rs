//! What a member shows of itself, and which standby it would hand the database over to.

use crate::holds::Holds;
use crate::lease::Lease;
use crate::reports::Heard;
use hyades_platform::clock;
use std::fmt;
use std::time::Duration;

/// A standby heard of within this time is taken to run.
const LATELY_NS: u64 = 500_000_000;
/// A standby with a smaller lag follows closely, in microseconds.
const CLOSE_LAG_US: u64 = 1_000_000;

/// What a member knows of itself and of the primary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberView {
    /// The name of this member's node.
    pub node: String,
    /// The newest lease seen, if there is one.
    pub lease: Option<Lease>,
    /// Whether this member is the primary.
    pub is_primary: bool,
    /// Whether the log service has answered within the term of the lease. At the primary: whether
    /// what only reads may be answered.
    pub is_answered: bool,
    /// The database's uuid, once known.
    pub database: Option<[u8; 16]>,
    /// The incarnation that is followed or written; 0 before the first.
    pub incarnation: u32,
    /// By stream, what this member has.
    pub positions: Vec<u64>,
    /// The last epoch of the state that is served; 0 if none is.
    pub epoch: u64,
    /// The age of the served state, in microseconds, by the wall clocks of the primary and here;
    /// `None` if not known.
    pub lag_us: Option<u64>,
    /// At a standby, the bytes of the log that it knows of and has not replayed; `None` if not
    /// known.
    pub behind_bytes: Option<u64>,
    /// At the primary, how long what only reads is answered without another renewal.
    pub lease_left: Option<Duration>,
    /// By lane, up to which place the lanes may be purged; empty if not known.
    pub purged: Vec<u64>,
    /// The members that the lanes are kept for, as far as known: nodes with a place or a hold.
    pub kept_for: Vec<String>,
    /// How many members fetch a base from this one.
    pub bases: usize,
    /// The standbys heard of, but for this member.
    pub standbys: Vec<Heard>,
}

/// Why there is no standby to hand the database over to: the primary goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoSuccessor {
    /// The member has no database yet.
    NoDatabase,
    /// The node named, or any, was not heard of within the last half second.
    NotHeard(Option<String>),
    /// The node's state, or the newest one of any, is older than a second, or of unknown age.
    Behind {
        /// The node.
        node: String,
        /// The age of the state.
        lag: Option<Duration>,
    },
}

impl fmt::Display for NoSuccessor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoSuccessor::NoDatabase => f.write_str("this member has no database"),
            NoSuccessor::NotHeard(Some(node)) => write!(f, "standby {node:?} is not heard of"),
            NoSuccessor::NotHeard(None) => f.write_str("no standby is heard of"),
            NoSuccessor::Behind { node, lag: Some(lag) } => {
                let seconds = lag.as_secs_f64();
                write!(f, "standby {node:?} is {seconds:.1} s behind, and may be 1 s")
            }
            NoSuccessor::Behind { node, lag: None } => {
                write!(f, "standby {node:?} joins, and has no state yet")
            }
        }
    }
}

impl std::error::Error for NoSuccessor {}

impl MemberView {
    /// Fills in what the key `holds` states.
    pub(super) fn show_holds(&mut self, holds: Option<&Holds>) {
        let Some(holds) = holds else { return };
        self.purged.clone_from(&holds.purged);
        self.kept_for = holds.members.keys().cloned().collect();
    }

    /// The node that takes the database if it is handed over to a node, or to any: a standby heard
    /// of lately that follows closely, of all such the one that has synced most. One that joins
    /// may be busy with the lanes for long, and has synced most if it was the primary.
    ///
    /// # Errors
    /// There is no such standby, and why.
    pub fn successor(&self, to: Option<&str>) -> Result<String, NoSuccessor> {
        if self.database.is_none() {
            return Err(NoSuccessor::NoDatabase);
        }
        if to == Some(&*self.node) {
            return check_lag(&self.node, self.lag_us);
        }
        let now = clock::monotonic_ns();
        let is_asked = |heard: &&Heard| {
            now.saturating_sub(heard.at_ns) < LATELY_NS
                && to.is_none_or(|to| heard.report.node == to)
        };
        let heard = self.standbys.iter().filter(is_asked).map(|heard| &heard.report);
        let best = heard.max_by_key(|report| {
            let synced: u128 = report.synced.iter().map(|&lsn| u128::from(lsn)).sum();
            (is_close(report.lag_us), report.incarnation, synced)
        });
        let best = best.ok_or_else(|| NoSuccessor::NotHeard(to.map(str::to_owned)))?;
        check_lag(&best.node, best.lag_us)
    }
}

fn is_close(lag_us: Option<u64>) -> bool {
    lag_us.is_some_and(|lag| lag < CLOSE_LAG_US)
}

fn check_lag(node: &str, lag_us: Option<u64>) -> Result<String, NoSuccessor> {
    let node = node.to_owned();
    if is_close(lag_us) {
        return Ok(node);
    }
    Err(NoSuccessor::Behind { node, lag: lag_us.map(Duration::from_micros) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reports::Report;

    fn heard(node: &str, synced: u64, lag_us: Option<u64>, ago_ns: u64) -> Heard {
        let report = Report {
            database: String::new(),
            node: node.to_owned(),
            address: String::new(),
            incarnation: 1,
            synced: vec![synced],
            lag_us,
        };
        Heard { report, at_ns: clock::monotonic_ns().saturating_sub(ago_ns) }
    }

    #[test]
    fn the_database_goes_to_a_standby_that_follows_closely() {
        clock::simulate(Some(60_000_000_000));
        let mut view = MemberView { node: "a".into(), lag_us: Some(0), ..MemberView::default() };
        assert_eq!(view.successor(None), Err(NoSuccessor::NoDatabase));
        view.database = Some([1; 16]);
        assert_eq!(view.successor(None), Err(NoSuccessor::NotHeard(None)));
        view.standbys = vec![
            heard("joins", 900, None, 0),
            heard("late", 800, Some(3_000_000), 0),
            heard("silent", 700, Some(1), 10 * LATELY_NS),
        ];
        let refused = view.successor(None).unwrap_err();
        assert!(matches!(&refused, NoSuccessor::Behind { .. }), "{refused}");
        view.standbys.extend([heard("b", 10, Some(5), 0), heard("c", 20, Some(9), 0)]);
        assert_eq!(view.successor(None).unwrap(), "c");
        assert_eq!(view.successor(Some("b")).unwrap(), "b");
        for (to, text) in [
            ("joins", "standby \"joins\" joins, and has no state yet"),
            ("late", "standby \"late\" is 3.0 s behind, and may be 1 s"),
            ("silent", "standby \"silent\" is not heard of"),
        ] {
            assert_eq!(view.successor(Some(to)).unwrap_err().to_string(), text);
        }
        // A standby asks the primary for the database.
        assert_eq!(view.successor(Some("a")).unwrap(), "a");
        view.lag_us = None;
        assert!(view.successor(Some("a")).is_err());
        clock::simulate(None);
    }
}
