//! A standby on a thread of its own, and how old the states are that it shows.

use hyades_platform::clock::monotonic_ns;
use hyades_replication::{Standby, StandbyError};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The longest wait of a standby for a mark, after which the standby looks whether to stop.
const STEP: Duration = Duration::from_millis(5);

/// A state that a standby began to show.
#[derive(Clone, Copy, Debug)]
pub struct ServedState {
    /// When, by the monotonic clock.
    pub at_ns: u64,
    /// The last epoch of the state.
    pub epoch: u64,
    /// The age of the state at that time.
    pub age_ns: u64,
}

/// What a standby shares with the thread of the run.
#[derive(Debug, Default)]
pub struct StandbyWatch {
    /// The last epoch that is shown.
    served: AtomicU64,
    /// Whether to stop.
    stop: AtomicBool,
}

impl StandbyWatch {
    /// Whether the standby shows all transactions of the epochs up to this one.
    pub fn shows(&self, epoch: u64) -> bool {
        self.served.load(Ordering::Acquire) >= epoch
    }

    /// Ends the standby.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }
}

/// What a standby has shown, and its state at the end.
#[derive(Debug)]
pub struct Followed {
    /// In the order of time.
    pub states: Vec<ServedState>,
    /// The digest of the last state.
    pub digest: u64,
    /// The rows of the last state.
    pub rows: u64,
}

/// Ages of the shown states over an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ages {
    /// States that began to be shown within it.
    pub states: usize,
    /// The mean over the time, in nanoseconds.
    pub mean_ns: f64,
    /// The highest age, in nanoseconds.
    pub longest_ns: u64,
}

/// Follows until the watch says to stop.
///
/// # Errors
/// The standby cannot follow.
pub fn follow(mut standby: Standby, watch: &StandbyWatch) -> Result<Followed, StandbyError> {
    let mut states = Vec::new();
    while !watch.stop.load(Ordering::Acquire) {
        if let Some(epoch) = standby.step(STEP)? {
            let age_ns = standby.lag_us().unwrap_or(0) * 1000;
            states.push(ServedState { at_ns: monotonic_ns(), epoch, age_ns });
            watch.served.store(epoch, Ordering::Release);
        }
    }
    let database = standby.database();
    Ok(Followed { states, digest: database.digest(), rows: database.rows() })
}

impl Followed {
    /// When the standby showed all transactions of the epochs up to this one, by the monotonic
    /// clock.
    pub fn showed_at(&self, epoch: u64) -> Option<u64> {
        self.states.iter().find(|state| state.epoch >= epoch).map(|state| state.at_ns)
    }

    /// The ages between two times. A shown state ages until the next replaces it, so an age is
    /// highest just before.
    pub fn ages(&self, (from, to): (u64, u64)) -> Ages {
        let (mut area, mut covered, mut longest) = (0.0, 0.0, 0);
        for (at, state) in self.states.iter().enumerate() {
            let next = self.states.get(at + 1).map_or(to, |next| next.at_ns);
            let (begin, end) = (state.at_ns.max(from), next.min(to));
            if begin >= end {
                continue;
            }
            let age = |now: u64| state.age_ns + (now - state.at_ns);
            let seconds = (end - begin) as f64;
            area += (age(begin) + age(end)) as f64 / 2.0 * seconds;
            covered += seconds;
            longest = longest.max(age(end));
        }
        let is_within = |state: &&ServedState| (from..to).contains(&state.at_ns);
        let states = self.states.iter().filter(is_within).count();
        let mean_ns = if covered > 0.0 { area / covered } else { 0.0 };
        Ages { states, mean_ns, longest_ns: longest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn followed(states: &[(u64, u64, u64)]) -> Followed {
        let state =
            |&(at_ns, epoch, age_ns): &(u64, u64, u64)| ServedState { at_ns, epoch, age_ns };
        Followed { states: states.iter().map(state).collect(), digest: 0, rows: 0 }
    }

    #[test]
    fn a_state_ages_until_the_next_one() {
        let shown = followed(&[(50, 1, 10), (100, 2, 10), (200, 3, 30), (900, 4, 5)]);
        // From 100 to 200 the age grows from 10 to 110, and from 200 to 300 from 30 to 130.
        let ages = shown.ages((100, 300));
        assert_eq!(ages, Ages { states: 2, mean_ns: 70.0, longest_ns: 130 });
        // A standby that is busy for all of the interval shows the state from before.
        assert_eq!(shown.ages((300, 400)), Ages { states: 0, mean_ns: 180.0, longest_ns: 230 });
        assert_eq!(shown.ages((0, 50)), Ages { states: 0, mean_ns: 0.0, longest_ns: 0 });
    }

    #[test]
    fn what_is_shown_counts_from_the_first_state_that_has_it() {
        let shown = followed(&[(50, 1, 10), (100, 4, 10), (200, 6, 30)]);
        assert_eq!(
            [1, 3, 4, 5, 7].map(|epoch| shown.showed_at(epoch)),
            [Some(50), Some(100), Some(100), Some(200), None]
        );
    }
}
