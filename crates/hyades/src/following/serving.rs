//! The state that a follower serves, and how its readers and its rounds keep apart.
//!
//! **Invariant.** While a reader is open, each row, and each entry of an index, is as of the served
//! epoch, or the version of that epoch is kept. Three cases:
//!
//! - Between rounds the tables are as of the served epoch.
//! - A round *beside readers* has the snapshot of the served epoch open from before the first
//!   change until the round is over: the versions are kept, for readers from before and for readers
//!   that come meanwhile. Once the snapshot was ended, because its versions took too much memory,
//!   no reader joins the snapshot.
//! - A round *alone* keeps nothing. It begins only while no snapshot is open, and whatever reader
//!   comes meanwhile waits until the round is over.
//!
//! A round is beside readers if a snapshot is open at its beginning, or if a reader came since the
//! beginning of the round before: so a follower without readers replays at full speed, and a reader
//! waits for at most one round.

use crate::engine::snapshots::{SnapshotState, Snapshots};
use crate::error::Error;
use hyades_platform::broken;
use hyades_platform::epoch::{Epoch, EpochNumber};
use hyades_platform::sync::Unpoisoned;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// A round under way, as far as readers are concerned.
enum Round {
    None,
    Alone,
    /// With the open snapshot of the served epoch.
    Beside(Arc<SnapshotState>),
}

struct State {
    /// The last epoch in the tables between rounds; `None` before the first whole state.
    served: Option<EpochNumber>,
    round: Round,
    /// Whether a reader came since the last round began.
    has_readers: bool,
    /// Why the follower goes on no more.
    stopped: Option<String>,
}

/// See the module.
pub(crate) struct Serving {
    state: Mutex<State>,
    /// A round has ended.
    ended: Condvar,
}

impl Serving {
    pub fn new(served: Option<EpochNumber>) -> Serving {
        let state = State { served, round: Round::None, has_readers: false, stopped: None };
        Serving { state: Mutex::new(state), ended: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unpoisoned()
    }

    /// The served epoch.
    pub fn served(&self) -> Option<EpochNumber> {
        self.state().served
    }

    /// Opens a snapshot of the served state. Waits for the end of a round alone.
    ///
    /// # Errors
    /// There is no state yet, or a round has failed.
    pub fn open(&self, snapshots: &Snapshots) -> Result<Arc<SnapshotState>, Error> {
        let mut state = self.state();
        loop {
            state.has_readers = true;
            if let Some(why) = &state.stopped {
                return Err(Error::Misuse(format!("the follower serves no state any more: {why}")));
            }
            let Some(served) = state.served else {
                return Err(Error::Misuse(
                    "the follower serves no state yet: its first round has not ended".to_string(),
                ));
            };
            let open = match &state.round {
                Round::None => Some(snapshots.open_as_of(served)),
                Round::Beside(_) => snapshots.share_as_of(served),
                Round::Alone => None,
            };
            if let Some(open) = open {
                return Ok(open);
            }
            state = self.ended.wait(state).unpoisoned();
        }
    }

    /// Begins a round. Returns whether the round has to keep what the served state holds.
    pub fn begin_round(&self, snapshots: &Snapshots) -> bool {
        let mut state = self.state();
        let has_readers = std::mem::take(&mut state.has_readers) || snapshots.open_now() > 0;
        let beside = state.served.filter(|_| has_readers);
        state.round = match beside {
            Some(served) => Round::Beside(snapshots.open_as_of(served)),
            None => Round::Alone,
        };
        beside.is_some() && !broken!(ForgetServed)
    }

    /// Ends a round that has replayed everything up to `served`; `None` if the state is not whole.
    pub fn end_round(&self, (snapshots, epoch): (&Snapshots, &Epoch), served: Option<EpochNumber>) {
        let mut state = self.state();
        let round = std::mem::replace(&mut state.round, Round::None);
        debug_assert!(served >= state.served, "a follower serves later and later epochs");
        state.served = served;
        drop(state);
        self.ended.notify_all();
        if let Round::Beside(snapshot) = round {
            snapshots.close(&snapshot, epoch);
        }
    }

    /// Ends the follower: a round has failed, and the tables hold no state; or the tables are those
    /// of a primary now. No reader begins after the call.
    pub fn stop(&self, why: String) {
        self.state().stopped = Some(why);
        self.ended.notify_all();
    }

    /// Whether the follower was [ended](Serving::stop).
    pub fn has_stopped(&self) -> bool {
        self.state().stopped.is_some()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use hyades_platform::epoch::MAX_EPOCH;
    use std::time::Duration;

    #[test]
    fn a_reader_waits_for_a_round_alone_and_joins_a_round_beside_readers() {
        let (snapshots, epoch) = (Snapshots::default(), Epoch::new(MAX_EPOCH));
        let serving = Serving::new(Some(EpochNumber(5)));
        let end = |epoch_served| {
            serving.end_round((&snapshots, &epoch), Some(EpochNumber(epoch_served)));
        };
        assert!(!serving.begin_round(&snapshots), "there is no reader");
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| serving.open(&snapshots).unwrap());
            std::thread::sleep(Duration::from_millis(10));
            assert!(!reader.is_finished());
            end(6);
            let open = reader.join().unwrap();
            assert_eq!(open.epoch, EpochNumber(6));
            assert!(serving.begin_round(&snapshots), "a reader is open");
            snapshots.close(&open, &epoch);
        });
        let joined = serving.open(&snapshots).unwrap();
        assert_eq!((joined.epoch, snapshots.oldest()), (EpochNumber(6), EpochNumber(6)));
        end(7);
        let later = serving.open(&snapshots).unwrap();
        assert_eq!((later.epoch, snapshots.open_now()), (EpochNumber(7), 2));
        [joined, later].iter().for_each(|open| snapshots.close(open, &epoch));
        assert_eq!(snapshots.open_now(), 0);
        assert!(serving.begin_round(&snapshots), "a reader came since the last round began");
        end(8);
        assert!(!serving.begin_round(&snapshots), "no reader came since");
        serving.stop("of a test".to_string());
        assert!(serving.open(&snapshots).is_err());
    }
}
