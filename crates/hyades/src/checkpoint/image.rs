//! The image of a follower: tables whose log is written by another process.

use super::pace::Pace;
use super::write::Writing;
use super::{CheckpointSettings, entries};
use crate::engine::cut::Cut;
use crate::engine::snapshots::Snapshots;
use crate::error::Error;
use crate::storage::Stamp;
use crate::storage::table::TableData;
use hyades_platform::device::Device;
use hyades_platform::epoch::EpochNumber;
use hyades_wal::CheckpointPart;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Where the files of an image are written.
#[derive(Clone, Debug)]
pub struct ImagePlace {
    /// The device of the directories.
    pub device: Arc<dyn Device>,
    /// The identity of the database.
    pub uuid: [u8; 16],
    /// The number of the checkpoint.
    pub number: u64,
    /// The files to write, each with the number of its directory in the manifest.
    pub parts: Vec<(usize, PathBuf)>,
    /// The cut of the checkpoint before, or 0.
    pub before: u64,
}

/// Writes the rows of a cut that has begun, ends the cut, and reads the files back. Returns the
/// entries for the manifest, and the number of rows changed since the checkpoint before.
pub(crate) fn write_image<S: Stamp>(
    (tables, cut, snapshots): (&[TableData<S>], &Cut, &Snapshots),
    epoch: EpochNumber,
    place: &ImagePlace,
    settings: &CheckpointSettings,
    stop: &AtomicBool,
) -> Result<(Vec<CheckpointPart>, u64), Error> {
    let pace = Pace::new(settings.share, place.parts.len(), stop, None);
    let writing = Writing {
        tables,
        cut,
        epoch,
        before: EpochNumber(place.before),
        fuzzy: false,
        device: &*place.device,
        uuid: place.uuid,
        number: place.number,
        parts: &place.parts,
        pace: &pace,
        block_bytes: settings.block_bytes,
    };
    let write = || {
        let written = writing.run()?;
        cut.end(snapshots);
        writing.read_back(&written)?;
        pace.begin()?;
        Ok::<_, Error>(written)
    };
    let written = write().inspect_err(|_| {
        // No manifest names these files.
        for (_, path) in &place.parts {
            let _ = place.device.remove(path);
        }
    })?;
    Ok((entries(&place.parts, &written), written.changed_rows))
}
