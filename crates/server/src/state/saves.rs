//! SAVE, BGSAVE and BGREWRITEAOF, which all take a checkpoint. Acknowledged changes are on disk
//! before and after a checkpoint; a checkpoint makes the log shorter, and the next start faster.
//! BGSAVE and BGREWRITEAOF are answered at once, and a dedicated thread takes the checkpoint.

use hyades::{Database, Error};
use hyades_platform::sync::Unpoisoned;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The command that has asked for a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveKind {
    /// SAVE and BGSAVE.
    Save,
    /// BGREWRITEAOF.
    Rewrite,
}

/// How a requested checkpoint begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// The checkpoint begins now.
    Started,
    /// The checkpoint follows the running checkpoint of the other kind.
    Scheduled,
}

/// Checkpoints of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct SaveStats {
    /// Start of the running checkpoint.
    pub since: Option<Instant>,
    /// Another checkpoint follows.
    pub is_scheduled: bool,
    /// The number of checkpoints taken.
    pub taken: u64,
    /// Duration of the last checkpoint.
    pub last: Option<Duration>,
    /// The last checkpoint has failed.
    pub has_failed: bool,
}

#[derive(Debug, Default)]
struct SaveState {
    /// By [`SaveKind`].
    kinds: [SaveStats; 2],
    /// The next checkpoint for the thread.
    wanted: Option<SaveKind>,
    /// The number of checkpoints begun by the thread.
    begun: u64,
    stops: bool,
}

impl SaveState {
    fn is_under_way(&self) -> bool {
        self.kinds.iter().any(|stats| stats.since.is_some())
    }

    fn of(&mut self, kind: SaveKind) -> &mut SaveStats {
        &mut self.kinds[kind as usize]
    }
}

/// Checkpoints requested by clients: at most one at a time.
#[derive(Debug, Default)]
pub struct Saves {
    state: Mutex<SaveState>,
    changed: Condvar,
}

impl Saves {
    fn lock(&self) -> MutexGuard<'_, SaveState> {
        self.state.lock().unpoisoned()
    }

    /// The state of a kind.
    pub fn stats(&self, kind: SaveKind) -> SaveStats {
        *self.lock().of(kind)
    }

    /// The number of checkpoints begun in the background.
    pub fn begun_in_background(&self) -> u64 {
        self.lock().begun
    }

    /// Makes the thread take a checkpoint: now, or, if the checkpoint `may_follow`, after a
    /// checkpoint of the other kind. `None` if a checkpoint of this kind is under way, or if the
    /// checkpoint may not follow.
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

    /// For SAVE: takes a checkpoint on this thread; `changes` counts the changes since the last
    /// checkpoint. `None` if another checkpoint is under way.
    pub fn save(&self, database: &Database, changes: &AtomicU64) -> Option<Result<(), Error>> {
        let mut state = self.lock();
        if state.is_under_way() {
            return None;
        }
        state.of(SaveKind::Save).since = Some(Instant::now());
        drop(state);
        Some(self.take(database, changes, SaveKind::Save))
    }

    /// Takes the checkpoint already begun; a scheduled checkpoint follows on the thread.
    pub fn take(
        &self,
        database: &Database,
        changes: &AtomicU64,
        kind: SaveKind,
    ) -> Result<(), Error> {
        let before = changes.load(Relaxed);
        let result = database.checkpoint().map(drop);
        if result.is_ok() {
            let left = |now: u64| Some(now.saturating_sub(before));
            let _ = changes.fetch_update(Relaxed, Relaxed, left);
        }
        let mut state = self.lock();
        let stats = state.of(kind);
        stats.last = stats.since.take().map(|since| since.elapsed());
        stats.has_failed = result.is_err();
        stats.taken += u64::from(result.is_ok());
        for next in [SaveKind::Save, SaveKind::Rewrite] {
            if !state.is_under_way() && std::mem::take(&mut state.of(next).is_scheduled) {
                state.of(next).since = Some(Instant::now());
                state.wanted = Some(next);
                self.changed.notify_all();
            }
        }
        result
    }

    /// Waits for a checkpoint to take in the background. `None` if the server stops.
    pub fn wait(&self) -> Option<SaveKind> {
        let mut state = self.lock();
        loop {
            if state.stops {
                return None;
            }
            if let Some(kind) = state.wanted.take() {
                state.begun += 1;
                return Some(kind);
            }
            state = self.changed.wait(state).unpoisoned();
        }
    }

    /// Forgets the requested checkpoints: the database was let go.
    #[cfg(feature = "replication")]
    pub fn forget(&self) {
        let mut state = self.lock();
        state.wanted = None;
        for stats in &mut state.kinds {
            (stats.since, stats.is_scheduled) = (None, false);
        }
    }

    /// Ends [`Saves::wait`].
    pub fn stop(&self) {
        self.lock().stops = true;
        self.changed.notify_all();
    }
}
