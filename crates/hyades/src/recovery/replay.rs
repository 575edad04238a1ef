//! State shared by the threads of a replay.

use super::catalogue::Catalogue;
use super::held_deltas::HeldDeltas;
use super::progress::RecoveryProgress;
#[cfg(feature = "replication")]
use super::standing_threads::StandingThreads;
use crate::engine::Engine;
use crate::error::Error;
use crate::garbage::Garbage;
use crate::logging::outcomes::ComparedOutcomes;
use crate::logging::predecessors::Id;
use crate::logging::record::RecordHead;
use crate::logging::unstamped::Unstamped;
use crate::storage::Stamp;
use crate::storage::key::KeyBytes;
use crate::storage::table::TableData;
use crate::storage::usage::Usage;
use hyades_platform::epoch::{Epoch, EpochNumber, MAX_EPOCH};
use hyades_platform::sync::Unpoisoned;
use std::collections::VecDeque;
#[cfg(feature = "replication")]
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The garbage left behind by a record.
pub(crate) struct DeferredGarbage {
    pub writer: Id,
    /// The epoch of the writer.
    pub epoch: EpochNumber,
    pub garbage: Garbage,
}

/// The state shared by the threads of a replay.
pub(crate) struct ReplayContext<S: Stamp> {
    pub engine: Engine<Unstamped<S>>,
    pub catalogue: Arc<Catalogue>,
    pub held: HeldDeltas,
    pub counts: ReplayCounters,
    pub progress: RecoveryProgress,
    /// The first error; all threads stop after an error.
    pub failure: Mutex<Option<Error>>,
    pub failed: AtomicBool,
    /// The garbage left behind by records; only where rows have several versions.
    pub later: Mutex<VecDeque<DeferredGarbage>>,
    /// Keys whose rows were absent when last applied: tombstones to remove at the end.
    pub absent: Mutex<Vec<(u32, KeyBytes)>>,
    /// Outcomes of an incarnation's calls logged before they ran.
    pub outcomes: Mutex<ComparedOutcomes>,
    /// Whether the state before the replay is served meanwhile: then overwritten versions are kept,
    /// and rows and index entries stay until the end. Set before the threads begin.
    pub serves: AtomicBool,
    /// Whether all that live records need is there, so that no record may be dead. Set before the
    /// threads begin.
    pub is_whole: AtomicBool,
    /// Garbage of a replay that serves.
    pub left: Mutex<Garbage>,
    /// The threads of a replay that goes on in rounds.
    #[cfg(feature = "replication")]
    pub standing: OnceLock<StandingThreads>,
}

/// Counters over all incarnations. Added to by every thread, mostly in batches, and read for
/// progress: Relaxed throughout.
#[derive(Default)]
pub(crate) struct ReplayCounters {
    pub records: AtomicU64,
    pub dead: AtomicU64,
    pub bytes: AtomicU64,
    pub max_epoch: AtomicU64,
    pub max_row_id: AtomicU64,
    /// The most bytes taken by older versions of rows.
    pub version_bytes: AtomicU64,
    /// The time of replay by one thread alone, where faster than many threads.
    pub alone_ns: AtomicU64,
}

impl<S: Stamp> ReplayContext<S> {
    /// Creates the context of a recovery into the empty `tables`.
    pub fn new(
        tables: Arc<Vec<TableData<S>>>,
        catalogue: Arc<Catalogue>,
        row_ids: Arc<AtomicU64>,
        progress: RecoveryProgress,
    ) -> ReplayContext<S> {
        // The highest epoch, so garbage can be removed at once during replay.
        let epoch = Arc::new(Epoch::new(MAX_EPOCH));
        ReplayContext {
            engine: Engine::new(tables, Unstamped::<S>::default(), epoch, row_ids),
            catalogue,
            held: HeldDeltas::default(),
            counts: ReplayCounters::default(),
            progress,
            failure: Mutex::new(None),
            failed: AtomicBool::new(false),
            later: Mutex::default(),
            absent: Mutex::default(),
            outcomes: Mutex::default(),
            serves: AtomicBool::new(false),
            is_whole: AtomicBool::new(false),
            left: Mutex::default(),
            #[cfg(feature = "replication")]
            standing: OnceLock::new(),
        }
    }

    /// Adds the usage of an ending replay thread to the tables.
    pub fn add_usage(&self, added: impl IntoIterator<Item = Usage>) {
        let tables = self.engine.tables.iter();
        tables.zip(added).for_each(|(table, added)| table.replayed.add_shared(added));
    }

    /// Remembers the first error and stops all threads.
    pub fn fail(&self, error: Error) {
        self.failure.lock().unpoisoned().get_or_insert(error);
        self.failed.store(true, Ordering::Release);
    }

    /// Called for each dead record.
    #[cold]
    pub fn note_dead(&self, head: &RecordHead) {
        if self.is_whole.load(Ordering::Relaxed) {
            self.fail(Error::Recovery(format!(
                "transaction {} depends on positions of the log behind the end of the round that \
                 holds the transaction: the cut mark is wrong, or frames of the followed log are \
                 missing",
                head.tid
            )));
        }
    }

    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }
}
