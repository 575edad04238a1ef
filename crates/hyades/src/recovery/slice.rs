//! Replay of a part of a log that goes on: a round of a follower.
//!
//! A slice holds the frames of each stream from one position to another. Replay applies the records
//! of the epochs after `cut` up to `until`; the records up to the cut are in the tables already,
//! and later records are left out. Rules for the positions of a *whole* slice are in
//! [`crate::engine::closed_epochs`]: every record of these epochs, and every position that the
//! records need, is in the slice or before. So no record of a whole slice is dead, and no delta
//! waits for a base at the end: anything else is an error.
//!
//! Between slices the tables hold exactly the transactions up to `until`.

use super::catalogue::Catalogue;
use super::decode::RecordShape;
use super::frame_source::FrameSource;
use super::progress::RecoveryProgress;
use super::read_ahead::LaneReader;
use super::replay::ReplayContext;
use super::{finish, last_writer_wins, load, wavefront};
use crate::concurrency::replaying::Replaying;
use crate::error::Error;
use crate::garbage::Garbage;
use crate::logging::StampFormat;
use crate::logging::row_frame::RowFrames;
use crate::logging::unstamped::Unstamped;
use crate::storage::Stamp;
use crate::storage::table::TableData;
use hyades_platform::broken;
use hyades_platform::epoch::EpochNumber;
use hyades_platform::sync::Unpoisoned;
use hyades_wal::{Incarnation, Lsn, Recovering, StreamEnd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The part of an incarnation to replay, see the module.
pub(crate) struct Slice<'s> {
    /// The tables hold the records of all epochs up to and including this epoch.
    pub cut: Option<EpochNumber>,
    /// Records of epochs above this epoch are left out.
    pub until: EpochNumber,
    /// By stream, the first frame to read.
    pub from: &'s [Lsn],
    /// By stream, the end of the last frame to read.
    pub to: &'s [Lsn],
    /// Whether every record, and all that the records need, is there. Otherwise the slice is the
    /// end of its incarnation, and records that need something behind the end are dead.
    pub is_whole: bool,
}

impl Slice<'_> {
    /// Bytes of frames to read.
    pub fn bytes(&self) -> u64 {
        self.from.iter().zip(self.to).map(|(from, to)| to - from).sum()
    }
}

/// Refuses records that cannot be replayed slice by slice.
pub(crate) fn check_followed(incarnation: &Incarnation) -> Result<(), Error> {
    match refusal(incarnation) {
        None => Ok(()),
        Some(why) => Err(Error::Mismatch(format!(
            "incarnation {} of the log, written by the protocol {}, cannot be followed: {why}",
            incarnation.number, incarnation.protocol
        ))),
    }
}

fn refusal(incarnation: &Incarnation) -> Option<&'static str> {
    let shape = RecordShape::of(incarnation, incarnation.dims.len(), None);
    if shape.predecessors {
        return Some("its records list their predecessors, which may be in any earlier round");
    }
    if matches!(shape.stamp, StampFormat::Number { .. }) {
        return Some("its records are judged by marks, which come behind the records of a round");
    }
    if shape.versions {
        return Some("its commands are replayed on row versions of earlier rounds");
    }
    if shape.calls.is_some() {
        return Some("its calls are logged before they run, and may run after the end of a round");
    }
    if shape.rows != RowFrames::None {
        return Some("changes of single rows are logged before it is known whether they commit");
    }
    None
}

/// The context of replays that go on in the same tables.
pub(crate) fn context<S: Stamp>(
    tables: Arc<Vec<TableData<S>>>,
    catalogue: Arc<Catalogue>,
    row_ids: Arc<AtomicU64>,
) -> ReplayContext<S> {
    ReplayContext::new(tables, catalogue, row_ids, RecoveryProgress::new(&[], 0))
}

/// Loads the checkpoint of a log into empty tables.
pub(crate) fn load_base<S: Stamp>(
    replay: &ReplayContext<S>,
    base: &Recovering,
    threads: usize,
) -> Result<(), Error> {
    let Some(checkpoint) = &base.manifest().checkpoint else { return Ok(()) };
    load::load(replay, base, checkpoint, threads)?;
    end_round(replay)
}

/// Replays a slice on this many threads. After an error the tables hold no state, and the context
/// can be used no more.
pub(crate) fn replay<S: Stamp>(
    replay: &ReplayContext<S>,
    incarnation: &Incarnation,
    source: &dyn FrameSource,
    slice: &Slice<'_>,
    threads: usize,
) -> Result<(), Error> {
    let streams = incarnation.dims.len();
    let lanes = incarnation.dims.iter().enumerate().map(|(at, dim)| {
        let part = (slice.from[at], slice.to[at]);
        LaneReader::of_slice(source, dim.stream, (at, streams), part)
    });
    let until = if broken!(ApplyLaterEpoch) { EpochNumber::ABOVE_ALL } else { slice.until };
    let shape = RecordShape::of(incarnation, streams, None).after(slice.cut).until(until);
    replay.is_whole.store(slice.is_whole, Ordering::Relaxed);
    let lanes = lanes.collect::<Result<Vec<_>, Error>>()?;
    let result = match (shape.data_only, shape.has_vectors()) {
        (true, _) => {
            // Records judged by marks are not followed.
            let end = |&valid_to: &Lsn| StreamEnd { valid_to, mark: 0 };
            let ends: Vec<_> = slice.to.iter().map(end).collect();
            last_writer_wins::replay(replay, lanes, &ends, shape, threads)
        }
        (false, true) => wavefront::replay(replay, lanes, shape, (threads, threads > 1)),
        (false, false) => wavefront::replay(replay, lanes, shape, (1, false)),
    };
    if let Some(error) = replay.failure.lock().unpoisoned().take() {
        return Err(error);
    }
    result?;
    end_round(replay)
}

/// Ends a slice: no delta may wait, and deleted rows and index entries leave that no reader needs.
fn end_round<S: Stamp>(replay: &ReplayContext<S>) -> Result<(), Error> {
    finish::finish_incarnation(replay)?;
    let mut left = replay.left.lock().unpoisoned();
    for (table, key) in replay.absent.lock().unpoisoned().drain(..) {
        left.add_row(table, key);
    }
    left.sweep_up_to::<Replaying, Unstamped<S>>(&replay.engine, &mut (), usize::MAX);
    drop(left);
    let engine = &replay.engine;
    engine.snapshots.tidy(&engine.epoch);
    engine
        .row_ids
        .fetch_max(replay.counts.max_row_id.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    Ok(())
}

/// Ends the slices for good: what was kept for readers of earlier states leaves, and the tables are
/// as a recovery leaves them. No reader is left.
pub(crate) fn settle<S: Stamp>(replay: &ReplayContext<S>) {
    let engine = &replay.engine;
    let mut left = replay.left.lock().unpoisoned();
    loop {
        let before = left.len();
        left.sweep_up_to::<Replaying, Unstamped<S>>(engine, &mut (), usize::MAX);
        if left.is_empty() || left.len() == before {
            break;
        }
    }
    // A tombstone with a stale entry may be left. It only takes memory.
    *left = Garbage::default();
    engine.snapshots.tidy(&engine.epoch);
    debug_assert!(replay.absent.lock().unpoisoned().is_empty(), "a slice has removed tombstones");
    debug_assert!(finish::check_unique(replay).is_ok(), "rounds hold a state of the primary");
}
