//! The database of a server: its opening, the numbers of its keys, and its checkpoints.

use super::saves::Saves;
use super::timers::Timers;
use crate::data::Tables;
use crate::data::counts::KeyCounts;
use hyades::{Database, Progress};
use hyades_platform::sync::Unpoisoned;
use std::path::Path;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, UNIX_EPOCH};

/// How the names of a checkpoint's files begin.
const PART_PREFIX: &[u8] = b"checkpoint-";

/// A database that is open.
pub struct Opened {
    /// The database.
    pub database: Database,
    /// Its tables.
    pub tables: Tables,
}

/// What opening the database took, and found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Opening {
    /// How long it took.
    pub time: Duration,
    /// How long counting the keys took, of that.
    pub counting: Duration,
    /// Keys that had not expired.
    pub keys: u64,
    /// Keys that had.
    pub expired: u64,
    /// Hashes whose fields might expire.
    pub timed_hashes: u64,
}

/// The database, once it is open, and what is known of it.
#[derive(Default)]
pub struct Store {
    /// The database, once it is open.
    pub opened: OnceLock<Opened>,
    /// What opening it took, and found.
    pub opening: OnceLock<Opening>,
    /// How far recovery has got.
    pub progress: Mutex<Option<Progress>>,
    /// Numbers of keys.
    pub counts: KeyCounts,
    /// When keys expire.
    pub timers: Timers,
    /// Checkpoints that clients ask for.
    pub saves: Saves,
    /// When a checkpoint was taken last, in seconds since 1970, and how many had been.
    last_save: Mutex<Option<(u64, i64)>>,
}

impl Store {
    /// How far recovery has got, in words.
    pub fn loading(&self) -> String {
        let progress = self.progress.lock().unpoisoned().clone();
        let Some(progress) = progress else { return "the database is being opened".to_string() };
        let percent = (100.0 * progress.share()) as u64;
        match progress.estimate_seconds {
            Some(left) => format!("{percent} %, about {left:.0} s left"),
            None => format!("{percent} %"),
        }
    }

    /// Why the log has failed, if it has.
    pub fn log_failure(&self) -> Option<String> {
        let log = self.opened.get()?.database.log()?;
        log.poisoned().map(|poisoned| poisoned.cause.to_string())
    }

    /// When the newest checkpoint was written, in seconds since 1970; before there is one, when the
    /// server was started.
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

/// When the newest checkpoint in a directory was written, by its files.
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
        // It is read again after the next one, and only then.
        database.checkpoint().unwrap();
        assert!((now() - shared.last_save_seconds()).abs() < 60);
        age();
        assert!((now() - shared.last_save_seconds()).abs() < 60);
    }
}
