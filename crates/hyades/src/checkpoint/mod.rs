//! Checkpoints: images of all rows at a cut. Recovery starts from an image instead of the beginning
//! of the log.
//!
//! Taking a checkpoint does not stop transactions. A checkpoint makes a cut ([`cut`]), writes rows
//! while transactions run ([`write`]), reads the files back, waits until the log is durable up to
//! the cut, and then records the checkpoint in the manifest. Only then is the log below the cut
//! truncated. An image at a cut works for every protocol and every kind of record: a replayed
//! command finds the state of its original run. A log of only data records needs less, see
//! [`CheckpointSettings::fuzzy`].

pub(crate) mod format;
#[cfg(feature = "replication")]
pub(crate) mod image;
pub(crate) mod keeper;
mod pace;
pub(crate) mod read;
mod scan;
pub(crate) mod verify;
mod write;

use crate::engine::Engine;
use crate::engine::cut;
use crate::error::Error;
use crate::logging::LoggingProtocol;
use crate::storage::Stamp;
use hyades_platform::broken;
use hyades_platform::epoch::EpochNumber;
use hyades_platform::{clock, event};
use hyades_wal::{Checkpoint, CheckpointPart, Covered, Lane, Log};
use pace::Pace;
use read::Extent;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use write::{Writing, WrittenParts};

/// When checkpoints are taken, and their permitted cost.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CheckpointSettings {
    /// Takes a checkpoint this long after the last checkpoint, if anything was committed since: 1
    /// ms to a year. Default: not set.
    pub interval: Option<Duration>,
    /// Takes checkpoints often enough that replaying the log, after the image has been loaded,
    /// takes less than this duration: 1 ms to a year. Default: not set. If neither `max_recovery`
    /// nor `interval` is set, checkpoints are taken only by
    /// [`Database::checkpoint`](crate::Database::checkpoint).
    pub max_recovery: Option<Duration>,
    /// The largest share of all processors' time, writes to the device included, for writing a
    /// checkpoint: above 0, at most 1. Default: 0.1.
    pub share: f64,
    /// Memory for the earlier versions of rows overwritten during the writing of a checkpoint, in
    /// bytes. Above the limit, sessions wait until saved rows are written out: 1 byte to 1 TiB.
    /// Default: 64 MiB.
    pub buffer_bytes: u64,
    /// In a log of only data records: writes each row in its state when read; replay applies later
    /// records by version. No row has to be saved while transactions run. A database can then be
    /// restored to moments since the last row was read, not since the first row was read. A log
    /// that may hold commands always gets an exact cut. Default: true.
    pub fuzzy: bool,
    /// The number of files of a checkpoint in each directory of the log, each written by its own
    /// thread, from rows scanned by the thread: 1 to 64. Default: 1.
    pub files_per_dir: usize,
    /// Rows are grouped into blocks of about this size in bytes; the writer pauses between two
    /// blocks. 1 byte to 1 GiB; values above 256 KiB act as 256 KiB. Public with the feature
    /// `research`.
    #[cfg(feature = "research")]
    pub block_bytes: usize,
    #[cfg(not(feature = "research"))]
    pub(crate) block_bytes: usize,
}

impl Default for CheckpointSettings {
    fn default() -> Self {
        CheckpointSettings {
            interval: None,
            max_recovery: None,
            share: 0.1,
            buffer_bytes: 64 << 20,
            fuzzy: true,
            files_per_dir: 1,
            block_bytes: cut::BLOCK_BYTES,
        }
    }
}

/// A completed checkpoint.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CheckpointReport {
    /// Counts from 1 over the database's life.
    pub number: u64,
    /// The epoch up to which the checkpoint holds everything.
    pub cut_epoch: u64,
    /// Rows written; a row overwritten during the checkpoint may count twice.
    pub rows: u64,
    /// Of these, rows that changed since the previous checkpoint, or were saved before an
    /// overwrite: the rows that an incremental checkpoint would have to write.
    pub changed_rows: u64,
    /// Bytes written, after compression.
    pub bytes: u64,
    /// Number of files.
    pub parts: usize,
    /// Seconds from the cut until everything was written and the log was durable up to the cut.
    pub seconds: f64,
    /// Truncated bytes of the log.
    pub truncated_bytes: u64,
}

/// Upper bounds on the content of a checkpoint's image.
struct ImageBounds {
    /// By stream: everything in the image is below this position.
    up_to: Vec<u64>,
    /// Upper bound of the transaction numbers in the image.
    highest: u64,
    next_row_id: u64,
    taken_at_us: u64,
    /// The epoch in which the last row was read, if the cut is fuzzy.
    scan_end: Option<EpochNumber>,
}

impl ImageBounds {
    /// Returns the bounds of everything installed by now: each installed change has its position in
    /// the log and its row ids.
    fn now<P: LoggingProtocol, S: Stamp>(engine: &Engine<P, S>, log: &Log) -> ImageBounds {
        let taken_at_us = clock::wall_us();
        ImageBounds {
            up_to: positions(log),
            highest: log.highest_number(),
            next_row_id: engine.row_ids.load(Ordering::Relaxed),
            taken_at_us,
            scan_end: None,
        }
    }
}

/// Returns the next position of each stream.
fn positions(log: &Log) -> Vec<u64> {
    (0..log.streams()).map(|stream| log.next_lsn(stream)).collect()
}

/// Writes a checkpoint of an engine, one at a time. Returns the entry for the manifest, and the
/// report for use once the manifest has the entry.
pub(crate) fn write<P: LoggingProtocol, S: Stamp>(
    engine: &Engine<P, S>,
    log: &Log,
    settings: &CheckpointSettings,
    stop: &AtomicBool,
) -> Result<(Checkpoint, CheckpointReport), Error> {
    let began = clock::monotonic_ns();
    let began_at_us = clock::wall_us();
    let manifest = log.manifest();
    let fuzzy = settings.fuzzy && manifest.newest().is_some_and(|i| i.data_only);
    let (number, parts) = log.next_checkpoint(settings.files_per_dir);
    let pace = Pace::new(settings.share, parts.len(), stop, Some(log));
    let (mut from, limit) = (Vec::new(), settings.buffer_bytes);
    let readers = (&*engine.epoch, &engine.snapshots);
    let note = || from = positions(log);
    let Some(epoch) = engine.cut.begin(readers, limit, fuzzy, || pace.is_over(), note) else {
        return Err(pace.over().expect("the wait for an epoch ended for a reason"));
    };
    let _ended = Ended(engine);
    let shown = ImageBounds { taken_at_us: began_at_us, ..ImageBounds::now(engine, log) };
    event!(INFO, "checkpoint begun", number = number, cut_epoch = epoch.0, fuzzy = fuzzy);
    let writing = Writing {
        tables: &engine.tables,
        cut: &engine.cut,
        epoch,
        before: EpochNumber(manifest.checkpoint.as_ref().map_or(0, |before| before.cut)),
        fuzzy,
        device: &**log.device(),
        uuid: manifest.uuid(),
        number,
        parts: &parts,
        pace: &pace,
        block_bytes: settings.block_bytes,
    };
    let (written, shown) =
        write_and_wait(engine, log, &writing, shown, stop).inspect_err(|_| {
            // No manifest names these files. Files that cannot be removed now are removed at the
            // next opening of the database.
            for (_, path) in &parts {
                let _ = log.device().remove(path);
            }
        })?;
    let lanes = manifest.newest().map(|i| &i.dims[..]).unwrap_or_default();
    debug_assert_eq!(lanes.len(), from.len(), "the log goes on from a position in each stream");
    let scan_end = shown.scan_end.unwrap_or(epoch);
    debug_assert!(scan_end >= epoch, "the scan of a fuzzy cut ends after the cut");
    let streams = lanes.iter().zip(&from);
    let checkpoint = Checkpoint {
        number,
        cut: epoch.0,
        scan_end: shown.scan_end.map(|epoch| epoch.0),
        incarnation: log.incarnation(),
        taken_at_us: shown.taken_at_us,
        next_row_id: shown.next_row_id,
        rows: written.extents().map(|part| part.rows).sum(),
        parts: entries(&parts, &written),
        streams: streams.map(|(dim, &from)| Covered { stream: dim.stream, from }).collect(),
    };
    let report = CheckpointReport {
        number,
        cut_epoch: epoch.0,
        rows: checkpoint.rows,
        changed_rows: written.changed_rows,
        bytes: written.extents().map(|part| part.bytes).sum(),
        parts: parts.len(),
        seconds: (clock::monotonic_ns() - began) as f64 / 1e9,
        truncated_bytes: 0,
    };
    Ok((checkpoint, report))
}

/// Writes a checkpoint of an engine that has run no transaction, as fast as possible, and makes the
/// manifest name the checkpoint together with a new catalogue.
pub(crate) fn write_with_catalogue<P: LoggingProtocol, S: Stamp>(
    engine: &Engine<P, S>,
    log: &Log,
    settings: &CheckpointSettings,
    catalogue: Vec<u8>,
) -> Result<(), Error> {
    let settings = CheckpointSettings { share: 1.0, ..settings.clone() };
    let (checkpoint, _) = write(engine, log, &settings, &AtomicBool::new(false))?;
    log.adopt_with_catalogue(checkpoint, catalogue)?;
    Ok(())
}

/// Returns the entries of the parts in the manifest.
fn entries(parts: &[(usize, PathBuf)], written: &WrittenParts) -> Vec<CheckpointPart> {
    debug_assert_eq!(parts.len(), written.extents().count(), "each part was written");
    let entry =
        |(&(dir, _), Extent { bytes, rows }): (&(usize, _), _)| CheckpointPart { dir, bytes, rows };
    parts.iter().zip(written.extents()).map(entry).collect()
}

/// Writes the files, ends the cut, reads the files back, and waits until everything in the files is
/// durable. `shown`: the bounds of an exact cut. Returns the bounds of the image.
fn write_and_wait<P: LoggingProtocol, S: Stamp>(
    engine: &Engine<P, S>,
    log: &Log,
    writing: &Writing<'_, S>,
    mut shown: ImageBounds,
    stop: &AtomicBool,
) -> Result<(WrittenParts, ImageBounds), Error> {
    let written = writing.run()?;
    engine.cut.end(&engine.snapshots);
    if writing.fuzzy {
        // The image may show rows of any transaction with a place in the log by now. (A transaction
        // reads its epoch and gets its place before installing rows.)
        let scan_end = Some(engine.epoch.current());
        shown = ImageBounds { scan_end, ..ImageBounds::now(engine, log) };
    }
    if !broken!(AdoptedUnread) && !broken!(LongBlocks) {
        writing.read_back(&written)?;
    }
    if !broken!(ValidBeforeFrontier) {
        wait_for_frontier(log, &shown.up_to, shown.highest, stop)?;
    }
    writing.pace.begin()?;
    Ok((written, shown))
}

/// Ends the cut on drop, whether or not the checkpoint succeeded.
struct Ended<'e, P: LoggingProtocol, S: Stamp>(&'e Engine<P, S>);

impl<P: LoggingProtocol, S: Stamp> Drop for Ended<'_, P, S> {
    fn drop(&mut self) {
        self.0.cut.end(&self.0.snapshots);
    }
}

/// Waits until everything in the image is durable.
fn wait_for_frontier(
    log: &Log,
    up_to: &[u64],
    number: u64,
    stop: &AtomicBool,
) -> Result<(), Error> {
    let positions = Lane::each(up_to);
    let common = (log.frontier().common_lane(), number);
    for (lane, until) in positions.chain([common]) {
        // The wait always ends: closing the database, or a failure of the log, ends the wait.
        log.wait(lane, until)?;
        if stop.load(Ordering::Acquire) {
            break;
        }
    }
    Ok(())
}
