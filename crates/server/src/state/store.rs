//! The database of a server: opening, numbers of keys, and checkpoints.

use super::saves::Saves;
use super::slot::OpenedSlot;
use super::timers::Timers;
use crate::data::Tables;
use crate::data::counts::KeyCounts;
use hyades::{Database, Progress};
use hyades_platform::sync::Unpoisoned;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, UNIX_EPOCH};

/// How the names of a checkpoint's files begin.
const PART_PREFIX: &[u8] = b"checkpoint-";

/// An open database.
#[derive(Clone)]
pub struct Opened {
    /// The database.
    pub database: Database,
    /// The tables of the database.
    pub tables: Tables,
}

/// Time and results of the opening of the database.
#[derive(Clone, Copy, Debug, Default)]
pub struct Opening {
    /// Duration of the opening.
    pub time: Duration,
    /// Duration of the count of keys, as part of the opening.
    pub counting: Duration,
    /// Keys not yet expired.
    pub keys: u64,
    /// Expired keys.
    pub expired: u64,
    /// Hashes with fields that might expire.
    pub timed_hashes: u64,
}

/// The database, once open, and data about the database.
#[derive(Default)]
pub struct Store {
    /// The database, once open.
    pub opened: OpenedSlot,
    /// Time and results of the opening.
    opening: Mutex<Option<Opening>>,
    /// Progress of recovery.
    pub progress: Mutex<Option<Progress>>,
    /// Numbers of keys.
    pub counts: KeyCounts,
    /// When keys expire.
    pub timers: Timers,
    /// Checkpoints requested by clients.
    pub saves: Saves,
    /// The number of checkpoints taken, and the time of the last, in seconds since 1970.
    last_save: Mutex<Option<(u64, i64)>>,
}

impl Store {
    /// Progress of recovery, in words.
    pub fn loading(&self) -> String {
        let progress = self.progress.lock().unpoisoned().clone();
        let Some(progress) = progress else { return "the database is being opened".to_string() };
        let percent = (100.0 * progress.share()) as u64;
        match progress.estimate_seconds {
            Some(left) => format!("{percent} %, about {left:.0} s left"),
            None => format!("{percent} %"),
        }
    }

    /// The cause of the failure of the log, if any.
    pub fn log_failure(&self) -> Option<String> {
        let opened = self.opened.get()?;
        let log = opened.database.log()?;
        log.poisoned().map(|poisoned| poisoned.cause.to_string())
    }

    /// Time and results of the opening, once known.
    pub fn opening(&self) -> Option<Opening> {
        *self.opening.lock().unpoisoned()
    }

    /// Keeps time and results of the opening.
    pub fn note_opening(&self, opening: Opening) {
        *self.opening.lock().unpoisoned() = Some(opening);
    }

    /// Forgets what is kept beside the rows of a database that was let go, but for the counts.
    #[cfg(feature = "replication")]
    pub fn forget(&self) {
        *self.opening.lock().unpoisoned() = None;
        *self.progress.lock().unpoisoned() = None;
        *self.last_save.lock().unpoisoned() = None;
        self.timers.take();
        self.timers.note_generations();
        self.saves.forget();
    }

    /// The time of the newest checkpoint, in seconds since 1970; before the first checkpoint, the
    /// start of the server.
    pub fn last_save_seconds(&self, dir: &Path, started: i64) -> i64 {
        let Some(opened) = self.opened.get() else { return started };
        let taken = opened.database.checkpoints().taken;
        let mut last = self.last_save.lock().unpoisoned();
        match *last {
            Some((known, seconds)) if known == taken => seconds,
            _ => {
                let seconds = newest_checkpoint(dir).unwrap_or(started);
                *last = Some((taken, seconds));
                seconds
            }
        }
    }
}

/// The time at which the newest checkpoint in a directory was written, by its files.
fn newest_checkpoint(dir: &Path) -> Option<i64> {
    let files = std::fs::read_dir(dir).ok()?.flatten();
    let parts = files.filter(|file| file.file_name().as_encoded_bytes().starts_with(PART_PREFIX));
    let newest = parts.filter_map(|file| file.metadata().ok()?.modified().ok()).max()?;
    Some(newest.duration_since(UNIX_EPOCH).ok()?.as_secs() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::wall_us;
    use crate::config::Settings;
    use crate::state::Shared;
    use std::fs::File;
    use std::time::SystemTime;

    #[test]
    fn the_last_save_is_when_the_newest_checkpoint_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().display().to_string();
        let mut builder = Database::builder();
        let tables = Tables::declare(&mut builder);
        let database = builder.open(dir.path()).unwrap();
        let opened = || {
            let shared = Shared::new(Settings::from_arguments(&["--dir", &name]).unwrap());
            let database = database.clone();
            assert!(shared.store.opened.set(Opened { database, tables }).is_ok());
            shared
        };
        let now = || wall_us() as i64 / 1_000_000;
        assert!((now() - opened().last_save_seconds()).abs() < 60);
        database.checkpoint().unwrap();
        let then = SystemTime::now() - Duration::from_secs(1_000);
        let age = || {
            for file in std::fs::read_dir(dir.path()).unwrap().flatten() {
                if file.file_name().as_encoded_bytes().starts_with(PART_PREFIX) {
                    let file = File::options().write(true).open(file.path()).unwrap();
                    file.set_modified(then).unwrap();
                }
            }
        };
        age();
        let shared = opened();
        assert!((now() - 1_000 - shared.last_save_seconds()).abs() < 60);
        // The time is read again after the next checkpoint, and only then.
        database.checkpoint().unwrap();
        assert!((now() - shared.last_save_seconds()).abs() < 60);
        age();
        assert!((now() - shared.last_save_seconds()).abs() < 60);
    }
}
