//! SAVE, BGSAVE and BGREWRITEAOF, which all take a checkpoint. What is acknowledged is on disk
//! before it, and after it; it makes the log shorter, and the next start faster. BGSAVE and
//! BGREWRITEAOF are answered at once, and a thread of its own takes the checkpoint.

use crate::shared::Shared;
use hyades::Error;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// What has asked for a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveKind {
    /// SAVE and BGSAVE.
    Save,
    /// BGREWRITEAOF.
    Rewrite,
}

/// How a checkpoint has begun that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// It begins now.
    Started,
    /// It follows the one that is under way, which is of the other kind.
    Scheduled,
}

/// Checkpoints of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct SaveStats {
    /// Since when one has been under way.
    pub since: Option<Instant>,
    /// One follows that.
    pub is_scheduled: bool,
    /// How many were taken.
    pub taken: u64,
    /// How long the last one took.
    pub last: Option<Duration>,
    /// The last one has failed.
    pub has_failed: bool,
}

#[derive(Debug, Default)]
struct SaveState {
    /// By [`SaveKind`].
    kinds: [SaveStats; 2],
    /// What the thread is to begin with.
    wanted: Option<SaveKind>,
    /// How many checkpoints it has begun.
    begun: u64,
    stops: bool,
}

impl SaveState {
    fn is_under_way(&self) -> bool {
        self.kinds.iter().any(|of| of.since.is_some())
    }

    fn of(&mut self, kind: SaveKind) -> &mut SaveStats {
        &mut self.kinds[kind as usize]
    }
}

/// Checkpoints that clients have asked for: one at a time.
#[derive(Debug, Default)]
pub struct Saves {
    state: Mutex<SaveState>,
    changed: Condvar,
}

impl Saves {
    fn lock(&self) -> MutexGuard<'_, SaveState> {
        self.state.lock().expect("no holder panics")
    }

    /// What is known of a kind.
    pub fn stats(&self, kind: SaveKind) -> SaveStats {
        *self.lock().of(kind)
    }

    /// How many checkpoints were begun in the background.
    pub fn begun_in_background(&self) -> u64 {
        self.lock().begun
    }

    /// Has the thread take a checkpoint: now, or, if it `may_follow`, after one of the other kind.
    /// `None` if one of this kind is under way, or if it may not follow.
    pub fn begin_in_background(&self, kind: SaveKind, may_follow: bool) -> Option<Begun> {
        let mut state = self.lock();
        if state.of(kind).since.is_some() {
            return None;
        }
        if state.is_under_way() {
            state.of(kind).is_scheduled |= may_follow;
            return may_follow.then_some(Begun::Scheduled);
        }
        state.of(kind).since = Some(Instant::now());
        state.wanted = Some(kind);
        self.changed.notify_all();
        Some(Begun::Started)
    }

    /// For SAVE: takes a checkpoint on this thread. `None` if another one is under way.
    pub fn save(&self, shared: &Shared) -> Option<Result<(), Error>> {
        let mut state = self.lock();
        if state.is_under_way() {
            return None;
        }
        state.of(SaveKind::Save).since = Some(Instant::now());
        drop(state);
        Some(self.take(shared, SaveKind::Save))
    }

    /// Takes the checkpoint that was begun; what is scheduled follows it on the thread.
    fn take(&self, shared: &Shared, kind: SaveKind) -> Result<(), Error> {
        let before = shared.counters.changes.load(Relaxed);
        let opened = shared.opened.get().expect("commands come once it is open");
        let result = opened.database.checkpoint().map(drop);
        if result.is_ok() {
            let left = |changes: u64| Some(changes.saturating_sub(before));
            let _ = shared.counters.changes.fetch_update(Relaxed, Relaxed, left);
        }
        let mut state = self.lock();
        let of = state.of(kind);
        of.last = of.since.take().map(|since| since.elapsed());
        of.has_failed = result.is_err();
        of.taken += u64::from(result.is_ok());
        for next in [SaveKind::Save, SaveKind::Rewrite] {
            if !state.is_under_way() && std::mem::take(&mut state.of(next).is_scheduled) {
                state.of(next).since = Some(Instant::now());
                state.wanted = Some(next);
                self.changed.notify_all();
            }
        }
        result
    }

    /// Ends [`run`], once what it does is done.
    pub fn stop(&self) {
        self.lock().stops = true;
        self.changed.notify_all();
    }
}

/// Takes the checkpoints that are to be taken in the background, until the server stops.
pub fn run(shared: &Shared) {
    let saves = &shared.saves;
    loop {
        let mut state = saves.lock();
        let kind = loop {
            if state.stops {
                return;
            }
            match state.wanted.take() {
                Some(kind) => break kind,
                None => state = saves.changed.wait(state).expect("no holder panics"),
            }
        };
        state.begun += 1;
        drop(state);
        if let Err(Error::Poisoned(cause)) = saves.take(shared, kind) {
            return shared.stop_for_log(&cause);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use crate::data::Tables;
    use crate::shared::{Opened, Stopping};
    use SaveKind::{Rewrite, Save};

    #[test]
    fn one_is_taken_at_a_time_and_another_kind_follows() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut builder = hyades::Database::builder();
        let tables = Tables::declare(&mut builder);
        let database = builder.open(dir.path()).unwrap();
        let shared = Shared::new(Settings::default());
        assert!(shared.opened.set(Opened { database, tables }).is_ok());
        shared.counters.changes.store(7, Relaxed);
        let saves = &shared.saves;
        // No thread takes it yet.
        assert_eq!(saves.begin_in_background(Save, false), Some(Begun::Started));
        assert_eq!(saves.begin_in_background(Save, true), None, "one of each kind");
        assert_eq!(saves.begin_in_background(Rewrite, false), None);
        assert!(!saves.stats(Rewrite).is_scheduled);
        assert_eq!(saves.begin_in_background(Rewrite, true), Some(Begun::Scheduled));
        assert_eq!(saves.begin_in_background(Rewrite, true), Some(Begun::Scheduled));
        assert!(saves.save(&shared).is_none(), "SAVE does not come between");
        let both = || [Save, Rewrite].map(|kind| saves.stats(kind));
        assert!(saves.stats(Save).since.is_some() && saves.stats(Rewrite).since.is_none());
        std::thread::scope(|scope| {
            scope.spawn(|| run(&shared));
            let began = Instant::now();
            while both().map(|of| of.taken) != [1, 1] {
                assert!(began.elapsed() < Duration::from_secs(60), "they are not taken");
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(both().iter().all(|of| of.since.is_none() && !of.is_scheduled));
            assert!(both().iter().all(|of| of.last.is_some() && !of.has_failed));
            assert_eq!(shared.counters.changes.load(Relaxed), 0);
            assert!(saves.save(&shared).unwrap().is_ok());
            assert_eq!(both().map(|of| of.taken), [2, 1]);
            assert_eq!(saves.begun_in_background(), 2, "but for the one of SAVE");
            shared.stop(Stopping::Asked);
        });
    }
}
