//! Counts the keys of a database that is served already.
//!
//! The primary: the count is of a snapshot from before the first write of a client, and the writes
//! add their changes meanwhile, so the sum is exact in the end. Until then DBSIZE waits, or counts
//! by itself.
//!
//! A standby: no write of a round tells what it has changed. The keys are counted again and again,
//! for INFO and the status page; DBSIZE counts by itself.

use crate::data::counts::KeyCounts;
use crate::data::scripts::ScriptCounts;
use crate::state::{Opened, Opening, Shared, Stopping};
use crate::upkeep::opening::{Counted, CountedInto, count_snapshot};
use hyades::{Error, Snapshot};
use hyades_platform::sync::Unpoisoned;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// A standby counts its keys again after this time, or after as many times the last count.
const COUNTED_EVERY: Duration = Duration::from_secs(10);
const SHARE: u32 = 20;

/// Whether a count is still wanted.
#[derive(Default)]
struct CountWanted {
    has_ended: Mutex<bool>,
    ended: Condvar,
}

/// The thread that counts, until dropped. Nothing waits for the thread, which holds the database
/// during a count.
pub(super) struct Counting {
    wanted: Arc<CountWanted>,
}

impl Counting {
    /// Counts the keys of a primary, as of a snapshot from before its first write.
    pub fn of_primary(shared: &Arc<Shared>, opened: Arc<Opened>, snapshot: Snapshot) -> Counting {
        Counting::start(shared, move |shared, _| {
            count_primary(shared, &opened, &snapshot);
            // In this order: the database is let go last, see `Held`.
            drop(snapshot);
            drop(opened);
        })
    }

    /// Counts the keys of a standby again and again.
    pub fn of_standby(shared: &Arc<Shared>, opened: Arc<Opened>) -> Counting {
        let opened = Arc::downgrade(&opened);
        Counting::start(shared, move |shared, wanted| {
            // Held during a count only.
            while let Some(opened) = opened.upgrade() {
                let pause = count_standby(shared, &opened, wanted);
                drop(opened);
                if wanted.rest(pause) {
                    return;
                }
            }
        })
    }

    fn start(
        shared: &Arc<Shared>,
        count: impl FnOnce(&Arc<Shared>, &CountWanted) + Send + 'static,
    ) -> Counting {
        let wanted = Arc::new(CountWanted::default());
        let (shared, own) = (shared.clone(), wanted.clone());
        let thread = std::thread::Builder::new().name("counting".into());
        // Without the thread DBSIZE counts by itself, and INFO shows no keys.
        let _detached = thread.spawn(move || count(&shared, &own));
        Counting { wanted }
    }

    /// Ends counting: nothing is changed from here on by a count of a standby.
    pub fn end(&self) {
        *self.wanted.has_ended.lock().unpoisoned() = true;
        self.wanted.ended.notify_all();
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.end();
    }
}

impl CountWanted {
    /// Rests for some time. True if the count is not wanted any more.
    fn rest(&self, time: Duration) -> bool {
        let ended = self.has_ended.lock().unpoisoned();
        let goes_on = |ended: &mut bool| !*ended;
        *self.ended.wait_timeout_while(ended, time, goes_on).unpoisoned().0
    }
}

fn count_primary(shared: &Shared, opened: &Opened, snapshot: &Snapshot) {
    let began = Instant::now();
    let into = CountedInto { counts: &shared.store.counts, timers: Some(&shared.store.timers) };
    match count_snapshot(&shared.clock, snapshot, opened.tables, into) {
        Ok((Counted { expired, timed_hashes }, stored)) => {
            shared.scripts.count_stored(stored);
            shared.store.counts.set_exact(true);
            let keys = (shared.store.counts.all() as u64).saturating_sub(expired);
            let seconds = opened.database.recovery().seconds.max(0.0);
            let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
            let counting = began.elapsed();
            shared.store.note_opening(Opening { time, counting, keys, expired, timed_hashes });
        }
        // Later a head of a later version would pass for a torn view.
        Err(error @ Error::Mismatch(_)) => shared.stop(Stopping::Failed(error.to_string())),
        // The log has stopped, or memory is short: DBSIZE counts by itself.
        Err(_) => {}
    }
}

/// Counts once. Returns when to count again.
fn count_standby(shared: &Shared, opened: &Opened, wanted: &CountWanted) -> Duration {
    let (began, counts) = (Instant::now(), KeyCounts::default());
    let snapshot = opened.database.open_snapshot();
    let into = CountedInto { counts: &counts, timers: None };
    let counted = count_snapshot(&shared.clock, &snapshot, opened.tables, into);
    drop(snapshot);
    if let Ok((_, stored)) = counted {
        let has_ended = wanted.has_ended.lock().unpoisoned();
        if !*has_ended {
            shared.store.counts.replace(counts);
            shared.scripts.replace_stored(stored);
        }
    }
    COUNTED_EVERY.max(began.elapsed() * SHARE)
}

/// Forgets all counts.
pub(super) fn forget(shared: &Shared) {
    shared.store.counts.replace(KeyCounts::default());
    shared.scripts.replace_stored(ScriptCounts::default());
}
