//! Checkpoints of a follower: images of the served state, at which a restart begins.
//!
//! **Invariant.** An image holds exactly the transactions of all epochs up to the served epoch, and
//! its positions are the `from` of the mark of that epoch. An image begins between rounds, with a
//! cut at the served epoch. Rounds go on meanwhile; before a round overwrites a row of the cut, the
//! round saves the row for the image ([`crate::engine::cut`]). A round does not begin while the
//! image has too many saved rows to write.

use super::host::Following;
use crate::checkpoint::image::{self, ImagePlace};
use crate::checkpoint::{CheckpointReport, CheckpointSettings};
use crate::error::Error;
use crate::storage::Stamp;
use hyades_platform::broken;
use hyades_platform::clock;
use hyades_platform::epoch::EpochNumber;
use hyades_wal::{Checkpoint, Covered};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An image that has begun, see [`Follower::begin_image`](crate::Follower::begin_image). The drop
/// abandons the image, and ends the saving of rows.
pub struct FollowerImage(pub(super) Box<dyn AnyImage>);

impl fmt::Debug for FollowerImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FollowerImage").finish_non_exhaustive()
    }
}

impl FollowerImage {
    /// Writes the image, beside rounds and readers, and reads the files back. `stop` ends the work.
    /// Returns the entry for the manifest, which may name the image once the follower's copy of the
    /// log is durable up to the end of the image's mark.
    ///
    /// # Errors
    /// A file could not be written, or `stop` was set: the files are removed.
    pub fn write(
        self,
        place: &ImagePlace,
        settings: &CheckpointSettings,
        stop: &AtomicBool,
    ) -> Result<(Checkpoint, CheckpointReport), Error> {
        self.0.write(place, settings, stop)
    }
}

/// An image of some engine.
pub(crate) trait AnyImage: Send {
    fn write(
        self: Box<Self>,
        place: &ImagePlace,
        settings: &CheckpointSettings,
        stop: &AtomicBool,
    ) -> Result<(Checkpoint, CheckpointReport), Error>;
}

/// The image of tables with this metadata of rows.
pub(super) struct ServedImage<S: Stamp> {
    following: Arc<Following<S>>,
    cut: EpochNumber,
    incarnation: u32,
    streams: Vec<Covered>,
    next_row_id: u64,
    began_ns: u64,
    taken_at_us: u64,
}

impl<S: Stamp> ServedImage<S> {
    /// Begins an image of the state at `cut`. No round is under way. `streams`: the positions of
    /// the mark. `buffer_bytes`: memory for saved rows.
    ///
    /// # Errors
    /// Another image is being written.
    pub fn begin(
        following: Arc<Following<S>>,
        cut: EpochNumber,
        (incarnation, streams): (u32, Vec<Covered>),
        buffer_bytes: u64,
    ) -> Result<Self, Error> {
        let engine = &following.replay.engine;
        if following.imaging.swap(true, Ordering::SeqCst) {
            return Err(Error::Misuse("an image of the follower is being written".to_string()));
        }
        if !broken!(ImageInRound) {
            engine.cut.begin_at(cut, &engine.snapshots, buffer_bytes);
        }
        let next_row_id = engine.row_ids.load(Ordering::Relaxed);
        let (began_ns, taken_at_us) = (clock::monotonic_ns(), clock::wall_us());
        Ok(ServedImage { following, cut, incarnation, streams, next_row_id, began_ns, taken_at_us })
    }
}

impl<S: Stamp> Drop for ServedImage<S> {
    fn drop(&mut self) {
        let engine = &self.following.replay.engine;
        engine.cut.end(&engine.snapshots);
        self.following.imaging.store(false, Ordering::SeqCst);
    }
}

impl<S: Stamp> AnyImage for ServedImage<S> {
    fn write(
        self: Box<Self>,
        place: &ImagePlace,
        settings: &CheckpointSettings,
        stop: &AtomicBool,
    ) -> Result<(Checkpoint, CheckpointReport), Error> {
        let engine = &self.following.replay.engine;
        let source = (&engine.tables[..], &engine.cut, &engine.snapshots);
        let (parts, changed_rows) = image::write_image(source, self.cut, place, settings, stop)?;
        let checkpoint = Checkpoint {
            number: place.number,
            cut: self.cut.0,
            scan_end: None,
            incarnation: self.incarnation,
            taken_at_us: self.taken_at_us,
            next_row_id: self.next_row_id,
            rows: parts.iter().map(|part| part.rows).sum(),
            parts,
            streams: self.streams.clone(),
        };
        let report = CheckpointReport {
            number: place.number,
            cut_epoch: self.cut.0,
            rows: checkpoint.rows,
            changed_rows,
            bytes: checkpoint.parts.iter().map(|part| part.bytes).sum(),
            parts: checkpoint.parts.len(),
            seconds: (clock::monotonic_ns() - self.began_ns) as f64 / 1e9,
            truncated_bytes: 0,
        };
        Ok((checkpoint, report))
    }
}
