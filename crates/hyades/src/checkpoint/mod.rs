//! Checkpoints: images of all rows at a cut, from which recovery starts instead of from the
//! beginning of the log.
//!
//! Taking a checkpoint does not stop transactions. It makes a cut ([`cut`]), writes rows while
//! transactions run ([`write`]), reads the files back, waits until the log is durable up to the
//! cut, and then records the checkpoint in the manifest. Only after that is the log below the cut
//! truncated. An image at a cut works for every protocol and every kind of record: a replayed
//! command finds the state in which it ran. A log of data records alone needs less, see
//! [`CheckpointSettings::fuzzy`].

pub(crate) mod format;
pub(crate) mod keeper;
mod pace;
pub(crate) mod read;
pub(crate) mod verify;
mod write;

use crate::engine::Engine;
use crate::engine::cut;
use crate::error::Error;
use crate::logging::LoggingProtocol;
use hyades_platform::clock;
use hyades_platform::mutation::{self, Mutation};
use hyades_wal::{Checkpoint, CheckpointPart, Covered, Log};
use pace::Pace;
use read::Extent;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use write::Writing;

/// When checkpoints are taken, and what they may cost.
#[derive(Clone, Debug)]
pub struct CheckpointSettings {
    /// Takes a checkpoint this long after the last one, if anything was committed since: 1 ms to a
    /// year.
    pub interval: Option<Duration>,
    /// Takes checkpoints often enough that replaying the log, after the image has been loaded,
    /// takes less than this: 1 ms to a year.
    pub max_recovery: Option<Duration>,
    /// The share of all processors' time, writes to the device included, that writing a checkpoint
    /// may take: above 0, at most 1.
    pub share: f64,
    /// Memory for the earlier versions of rows that are overwritten while a checkpoint is being
    /// written, in bytes. Above this, sessions wait until saved rows are written out: 1 byte to 1
    /// TiB.
    pub buffer_bytes: u64,
    /// In a log of data records alone: writes each row as it is when it is read; replay applies
    /// later records by version. No row has to be saved while transactions run. A database can then
    /// be restored to moments since the last row was read, not since the first. A log that may hold
    /// commands always gets an exact cut.
    pub fuzzy: bool,
    /// Rows are grouped into blocks of about this many bytes; the writer pauses between two blocks.
    /// 1 byte to 1 GiB; values above 256 KiB act as 256 KiB.
    pub block_bytes: usize,
}

impl Default for CheckpointSettings {
    fn default() -> Self {
        CheckpointSettings {
            interval: None,
            max_recovery: None,
            share: 0.1,
            buffer_bytes: 64 << 20,
            fuzzy: true,
            block_bytes: cut::BLOCK_BYTES,
        }
    }
}

/// A checkpoint that was taken.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckpointReport {
    /// Counts from 1 over the database's life.
    pub number: u64,
    /// The epoch up to which it holds everything.
    pub cut_epoch: u64,
    /// Rows written; a row overwritten meanwhile may count twice.
    pub rows: u64,
    /// Of these, rows that changed since the previous checkpoint, or were saved because they were
    /// about to be overwritten: what an incremental checkpoint would have had to write.
    pub changed_rows: u64,
    /// Bytes written, after compression.
    pub bytes: u64,
    /// Number of files.
    pub parts: usize,
    /// Seconds from the cut until everything was written and the log was durable up to it.
    pub seconds: f64,
    /// Bytes of log that were truncated.
    pub truncated_bytes: u64,
}

/// Writes a checkpoint of an engine, one at a time. Returns the entry for the manifest, and the
/// report for when the manifest has it.
pub(crate) fn write<P: LoggingProtocol>(
    engine: &Engine<P>,
    log: &Log,
    settings: &CheckpointSettings,
    stop: &AtomicBool,
) -> Result<(Checkpoint, CheckpointReport), Error> {
    let began = clock::monotonic_ns();
    let mut taken_at_us = clock::wall_us();
    let manifest = log.manifest();
    let fuzzy = settings.fuzzy && manifest.newest().is_some_and(|i| i.data_only);
    let positions = |out: &mut Vec<u64>| {
        out.clear();
        out.extend((0..log.streams()).map(|stream| log.next_lsn(stream)));
    };
    let (mut from, mut up_to) = (Vec::new(), Vec::new());
    let epoch =
        engine.cut.begin(&engine.epoch, settings.buffer_bytes, fuzzy, || positions(&mut from));
    let _ended = Ended(engine);
    // Everything in the cut has its position in the log and its row ids by now.
    positions(&mut up_to);
    let mut highest = log.highest_number();
    let mut next_row_id = engine.row_ids.load(Ordering::Relaxed);
    let mut scan_end = None;
    let (number, parts) = log.next_checkpoint();
    let pace = Pace::new(settings.share, parts.len(), stop, log);
    let writing = Writing {
        tables: &engine.tables,
        cut: &engine.cut,
        epoch,
        before: manifest.checkpoint.as_ref().map_or(0, |before| before.cut),
        fuzzy,
        device: &**log.device(),
        uuid: manifest.uuid(),
        number,
        parts: &parts,
        pace: &pace,
        block_bytes: settings.block_bytes,
    };
    let written = writing.run().and_then(|written| {
        engine.cut.end();
        if fuzzy {
            // The image may show rows of any transaction that has its place in the log by now. (A
            // transaction reads its epoch and gets its place before it installs rows.)
            scan_end = Some(engine.epoch.current());
            taken_at_us = clock::wall_us();
            positions(&mut up_to);
            highest = log.highest_number();
            next_row_id = engine.row_ids.load(Ordering::Relaxed);
        }
        if !mutation::is(Mutation::AdoptedUnread) && !mutation::is(Mutation::LongBlocks) {
            writing.read_back(&written)?;
        }
        if !mutation::is(Mutation::ValidBeforeFrontier) {
            wait_for_frontier(log, &up_to, highest, stop)?;
        }
        pace.begin()?;
        Ok(written)
    });
    let written = match written {
        Ok(written) => written,
        Err(error) => {
            // No manifest names these files. Those that cannot be removed now are removed when the
            // database is opened.
            for (_, path) in &parts {
                let _ = log.device().remove(path);
            }
            return Err(error);
        }
    };
    let rows = written.extents().map(|part| part.rows).sum();
    let lanes = manifest.newest().map(|i| &i.dims[..]).unwrap_or_default();
    let streams = lanes.iter().zip(&from);
    let sizes = parts.iter().zip(written.extents());
    let part = |(place, written): (&(usize, _), Extent)| CheckpointPart {
        dir: place.0,
        bytes: written.bytes,
        rows: written.rows,
    };
    let checkpoint = Checkpoint {
        number,
        cut: epoch,
        scan_end,
        incarnation: log.incarnation(),
        taken_at_us,
        next_row_id,
        rows,
        parts: sizes.map(part).collect(),
        streams: streams.map(|(dim, &from)| Covered { stream: dim.stream, from }).collect(),
    };
    let bytes = written.extents().map(|part| part.bytes).sum();
    let report = CheckpointReport {
        number,
        cut_epoch: epoch,
        rows,
        changed_rows: written.changed_rows,
        bytes,
        parts: parts.len(),
        seconds: (clock::monotonic_ns() - began) as f64 / 1e9,
        truncated_bytes: 0,
    };
    Ok((checkpoint, report))
}

/// Ends the cut on drop, whether or not the checkpoint succeeded.
struct Ended<'e, P: LoggingProtocol>(&'e Engine<P>);

impl<P: LoggingProtocol> Drop for Ended<'_, P> {
    fn drop(&mut self) {
        self.0.cut.end();
    }
}

/// Waits until everything that the image shows is durable.
fn wait_for_frontier(
    log: &Log,
    up_to: &[u64],
    number: u64,
    stop: &AtomicBool,
) -> Result<(), Error> {
    let positions = up_to.iter().copied().enumerate();
    let common = (log.frontier().common_lane(), number);
    for (lane, until) in positions.chain([common]) {
        // The wait always ends: closing the log, or its failure, ends it.
        let waited = log.wait(lane, until);
        waited.map_err(|cause| Error::Poisoned(cause.to_string()))?;
        if stop.load(Ordering::Acquire) {
            break;
        }
    }
    Ok(())
}
