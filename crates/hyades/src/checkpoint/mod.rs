//! Checkpoints: images of all rows at a cut, from which recovery begins instead of at the log's
//! beginning.
//!
//! A checkpoint never stops the world. It makes a cut ([`cut`]), writes rows while transactions run
//! ([`write`]), reads them back, waits until the log is durable up to the cut, and then has the manifest name it;
//! only after that the log below the cut is truncated. Taken at a cut, it serves every protocol and every kind of
//! record: a command replayed on it finds what it found when it ran. A log of data records alone needs less, see
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
    /// Takes one this long after the last one, if anything was committed since: 1 ms to a year.
    pub interval: Option<Duration>,
    /// Takes them so often that the log's replay, after the image has been loaded, stays below this: 1 ms to a
    /// year.
    pub max_recovery: Option<Duration>,
    /// The share of all processors' time, writes to the device included, that writing one may take: above
    /// 0, at most 1.
    pub share: f64,
    /// What rows overwritten while one is being written may take, in bytes, before sessions wait for them to
    /// be written down: 1 byte to 1 TiB.
    pub buffer_bytes: u64,
    /// In a log of data records alone: rows are taken as they are when they are read, and replay goes by their
    /// versions. Nothing has to be saved while transactions run, and a database can be brought back to moments
    /// since the last row was read, not since the first. A log that may hold commands takes exactly a cut.
    pub fuzzy: bool,
    /// Rows are put together to blocks of about this many bytes; between two of them a writer rests. 1 byte to
    /// 1 GiB; more than 256 KiB are as good as that.
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
    /// Rows written; one overwritten meanwhile may count twice.
    pub rows: u64,
    /// Of these, rows that had changed since the checkpoint before, or were about to change again: what an
    /// incremental checkpoint would have had to write.
    pub changed_rows: u64,
    /// Bytes written, after compression.
    pub bytes: u64,
    /// Files.
    pub parts: usize,
    /// From the cut until everything was written and the log durable up to it.
    pub seconds: f64,
    /// Bytes of log that were given up.
    pub truncated_bytes: u64,
}

/// Writes a checkpoint of an engine, one at a time. Returns what the manifest is to say, and what to report
/// once it does.
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
    // Everything of the cut has its place in the log, and its row ids.
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
            // Rows of whoever has its place in the log by now may be in it. (Who installs a row has read its
            // epoch before, and has its place.)
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
            // No manifest names them. What cannot be removed goes when the database is opened.
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

/// Ends the cut, however the checkpoint ends.
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
        // In any case one that ends: a log that is closed or fails stops the wait.
        let waited = log.wait(lane, until);
        waited.map_err(|cause| Error::Poisoned(cause.to_string()))?;
        if stop.load(Ordering::Acquire) {
            break;
        }
    }
    Ok(())
}
