//! Runs seed after seed, until the time is over or a seed fails.

use super::lives::{LifeCounts, live, live_beside_lies};
#[cfg(feature = "redb")]
use super::redb::RedbStore;
use super::stores::{LivingStore, MemoryStore};
use super::wrong::{WrongCounts, WrongLife};
use hyades_platform::resident::MemoryWatch;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use std::{fs, io};

/// The kind of data component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataStore {
    /// In memory, with arbitrary parts kept at a crash.
    Memory,
    /// In redb, on a file that loses power.
    #[cfg(feature = "redb")]
    Redb,
    /// In fjall, on files that outlive the process.
    #[cfg(feature = "fjall")]
    Fjall,
    /// In RocksDB, on files that outlive the process.
    #[cfg(feature = "rocksdb")]
    RocksDb,
}

/// The options of a run.
#[derive(Clone, Debug)]
pub struct LifeOptions {
    /// The duration in seconds. At least one history runs.
    pub seconds: f64,
    /// The seed of the first history; each later history has the next number.
    pub seed: u64,
    /// The data component.
    pub store: DataStore,
    /// Whether syncs of the log do nothing; the run has to find the fault.
    pub lying_sync: bool,
    /// The time after which a history counts as hung.
    pub hangs_after: Duration,
    /// The place of reports about faults.
    pub keep: PathBuf,
}

/// The result of a run.
#[derive(Debug, Default)]
pub struct LifeReport {
    /// Databases with several lives.
    pub histories: u64,
    /// Ended lives, and openings with a required failure.
    pub crashes: u64,
    /// Acknowledged transactions.
    pub acknowledged: u64,
    /// The counts of events met.
    pub met: LifeCounts,
    /// How much of each kind was wrong: all 0 unless a history failed.
    pub wrong: WrongCounts,
    /// The failed history, if any.
    pub failed: Option<LifeFailure>,
    /// The duration.
    pub seconds: f64,
}

/// A failed history.
#[derive(Debug)]
pub struct LifeFailure {
    /// The seed.
    pub seed: u64,
    /// The fault.
    pub wrong: String,
    /// Whether the history has not ended in time.
    pub hung: bool,
    /// The file with the report.
    pub file: PathBuf,
}

/// The end of a history, with the counts met.
enum Ended {
    Well(LifeCounts),
    Wrong(WrongLife),
    Hung,
}

impl DataStore {
    fn make(self) -> Box<dyn LivingStore> {
        match self {
            DataStore::Memory => Box::new(MemoryStore::default()),
            #[cfg(feature = "redb")]
            DataStore::Redb => Box::new(RedbStore::default()),
            #[cfg(feature = "fjall")]
            DataStore::Fjall => {
                let made = super::fjall::FjallStore::new_in(&std::env::temp_dir());
                Box::new(made.expect("a directory for temporary files can be made"))
            }
            #[cfg(feature = "rocksdb")]
            DataStore::RocksDb => {
                let made = super::rocksdb::RocksDbStore::new_in(&std::env::temp_dir());
                Box::new(made.expect("a directory for temporary files can be made"))
            }
        }
    }
}

/// Runs a history on a separate thread, so that a panic or a hang ends only the history.
fn guarded(seed: u64, options: &LifeOptions) -> io::Result<Ended> {
    let (done, ended) = channel();
    let (store, lives) = (options.store, if options.lying_sync { live_beside_lies } else { live });
    let history = move || {
        let mut met = LifeCounts::default();
        let lived = catch_unwind(AssertUnwindSafe(|| lives(seed, &mut *store.make(), &mut met)));
        // After a hang the receiver is gone.
        let _ = done.send(match lived {
            Ok(Ok(())) => Ended::Well(met),
            Ok(Err(wrong)) => Ended::Wrong(wrong),
            Err(_) => {
                let what = "a rule that is asserted is broken".to_string();
                Ended::Wrong(WrongLife::diverged(what))
            }
        });
    };
    let thread = std::thread::Builder::new().name("history".into()).spawn(history)?;
    match ended.recv_timeout(options.hangs_after) {
        Ok(ended) => {
            drop(thread.join());
            Ok(ended)
        }
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Ok(Ended::Hung),
    }
}

/// Runs histories until the time is over or a history fails, and writes a report of the failure.
/// `say` receives progress messages.
///
/// # Errors
/// A failing history could not be written down, or no thread could be started.
pub fn torture(options: &LifeOptions, mut say: impl FnMut(&str)) -> io::Result<LifeReport> {
    let began = Instant::now();
    let (mut report, mut said) = (LifeReport::default(), 0);
    let mut memory = MemoryWatch::default();
    for n in 0.. {
        let seconds = began.elapsed().as_secs_f64();
        if seconds >= options.seconds && n > 0 {
            break;
        }
        if seconds as u64 / 5 > said {
            said = seconds as u64 / 5;
            say(&format!(
                "{seconds:.0} s: {} histories, {} crashes, {} acknowledged, nothing wrong",
                report.histories, report.crashes, report.acknowledged
            ));
        }
        let seed = options.seed.wrapping_add(n);
        report.histories += 1;
        let (wrong, hung) = match guarded(seed, options)? {
            Ended::Well(met) => {
                report.crashes += (met.lives + met.failed_openings) as u64;
                report.acknowledged += met.acknowledged as u64;
                report.met.add(met);
                let Some(grown) = memory.after_history() else { continue };
                (WrongLife::grown(grown), false)
            }
            Ended::Wrong(wrong) => (wrong, false),
            Ended::Hung => (WrongLife::default(), true),
        };
        report.wrong.add(wrong.counts);
        let wrong = if hung { "it has not ended".to_string() } else { wrong.to_string() };
        say(&format!("seed {seed} fails: {wrong}"));
        let file = options.keep.join(format!("hyades-torture-deuteronomy-{seed}.txt"));
        fs::create_dir_all(&options.keep)?;
        fs::write(&file, format!("seed {seed}, data component {:?}\n{wrong}\n", options.store))?;
        report.failed = Some(LifeFailure { seed, wrong, hung, file });
        break;
    }
    report.seconds = began.elapsed().as_secs_f64();
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(keep: PathBuf) -> LifeOptions {
        let hangs_after = Duration::from_secs(60);
        let store = DataStore::Memory;
        LifeOptions { seconds: 0.5, seed: 40, store, lying_sync: false, hangs_after, keep }
    }

    #[test]
    fn histories_run_and_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let ran = torture(&options(dir.path().to_owned()), |_| {}).unwrap();
        assert!(ran.failed.is_none() && ran.wrong == WrongCounts::default(), "{ran:?}");
        assert!(ran.crashes >= 5 && ran.acknowledged > 0, "{ran:?}");
    }

    #[test]
    fn syncs_that_lie_are_found_and_what_is_lost_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = options(dir.path().to_owned());
        (options.seconds, options.lying_sync) = (60.0, true);
        let ran = torture(&options, |_| {}).unwrap();
        assert!(ran.failed.is_some() && ran.wrong != WrongCounts::default(), "{ran:?}");
    }

    #[test]
    fn a_history_that_hangs_is_written_down_and_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = options(dir.path().join("new"));
        options.hangs_after = Duration::ZERO;
        // On a busy machine some histories end before the look.
        options.seconds = 60.0;
        let ran = torture(&options, |_| {}).unwrap();
        let failed = ran.failed.expect("it fails");
        assert_eq!((failed.seed, failed.hung), (39 + ran.histories, true));
        let seed = format!("seed {}", failed.seed);
        assert!(fs::read_to_string(failed.file).unwrap().contains(&seed));
    }
}
