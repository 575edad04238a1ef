//! Figures of a running database, for operators.

use crate::database::Database;
use crate::error::Abort;
use crate::proxy::lag::Lag;
use crate::transaction_component::counts::Counted;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Aborts by their reason, see [`Abort`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Aborts {
    /// [`Abort::TooLate`].
    pub too_late: u64,
    /// [`Abort::ReadByYounger`].
    pub read_by_younger: u64,
    /// [`Abort::Unfinished`].
    pub unfinished: u64,
    /// [`Abort::SnapshotTooOld`].
    pub snapshot_too_old: u64,
    /// [`Abort::Shed`].
    pub shed: u64,
}

/// Figures of a database. Counts are since the opening, and lag behind by the running transactions.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Transactions committed.
    pub committed: u64,
    /// Transactions aborted by their callers, and snapshots ended.
    pub rolled_back: u64,
    /// Attempts aborted by the database; most are run again.
    pub aborted: Aborts,
    /// Reads of keys that were found in memory.
    pub hits: u64,
    /// Reads of keys that went to the data component.
    pub misses: u64,
    /// Transactions aborted to make room for others, see [`Abort::Shed`].
    pub shed: u64,
    /// The time of transactions' searches for versions to drop, with the memory for versions nearly
    /// exhausted; the sum over all sessions.
    pub collecting: Duration,
    /// About how many bytes the versions in memory take.
    pub version_bytes: usize,
    /// The budget, [`memory_bytes`](crate::Options::memory_bytes).
    pub memory_bytes: usize,
    /// The distance of the data component behind the committed transactions.
    pub lag: Lag,
    /// The threads that apply operations to the data component.
    pub proxy_threads: usize,
    /// The bytes of the log that redo would read.
    pub redo_bytes: u64,
    /// The open long snapshots and their clones: the data component keeps what is overwritten
    /// meanwhile.
    pub long_snapshots: usize,
}

impl Stats {
    /// The share of reads found in memory; 1 without a read.
    pub fn hit_rate(&self) -> f64 {
        match self.hits + self.misses {
            0 => 1.0,
            reads => self.hits as f64 / reads as f64,
        }
    }
}

impl Database {
    /// Returns figures of the database: what transactions met, memory, and the distance of the data
    /// component. Reading holds up no transaction.
    ///
    /// ```
    /// # use hyades_deuteronomy::{Database, Error, LogOptions, MemoryData, Options};
    /// # let dir = tempfile::tempdir()?;
    /// # let options = Options::new(LogOptions::new(vec![dir.path().to_owned()], 1));
    /// # let database = Database::open(options, std::sync::Arc::new(MemoryData::new()))?;
    /// let mut session = database.session()?;
    /// session.execute(|tx| tx.put(b"a", b"1"))?;
    /// let stats = database.stats();
    /// assert_eq!(stats.committed, 1);
    /// assert!(stats.version_bytes < stats.memory_bytes);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stats(&self) -> Stats {
        let component = self.component();
        let sum = |what| component.counts.sum(what);
        let aborted = |abort| sum(Counted::Aborted(abort));
        Stats {
            committed: sum(Counted::Commit),
            rolled_back: sum(Counted::RolledBack),
            aborted: Aborts {
                too_late: aborted(Abort::TooLate),
                read_by_younger: aborted(Abort::ReadByYounger),
                unfinished: aborted(Abort::Unfinished),
                snapshot_too_old: aborted(Abort::SnapshotTooOld),
                shed: aborted(Abort::Shed),
            },
            hits: sum(Counted::Hit),
            misses: sum(Counted::Miss),
            shed: component.room.shed(),
            collecting: Duration::from_nanos(component.collecting_ns.load(Ordering::Relaxed)),
            version_bytes: component.versions.bytes(),
            memory_bytes: component.options.memory_bytes,
            lag: component.proxy.lag(),
            proxy_threads: component.proxy.pool().running(),
            redo_bytes: component.redo_bytes(),
            long_snapshots: component.open_snapshots.load(Ordering::Relaxed),
        }
    }
}
