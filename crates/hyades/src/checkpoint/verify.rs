//! Opens the parts of a checkpoint, and checks them without a database.

use super::format::PartId;
use super::read::{Block, Extent, PartReader};
use crate::error::Error;
use hyades_platform::epoch::EpochNumber;
use hyades_platform::sync::Unpoisoned;
use hyades_wal::{Checkpoint, Recovering};
use std::path::PathBuf;
use std::sync::Mutex;

fn open(
    recovering: &Recovering,
    checkpoint: &Checkpoint,
    part: usize,
    path: PathBuf,
) -> Result<PartReader, Error> {
    let described = &checkpoint.parts[part];
    let id = PartId {
        uuid: recovering.manifest().uuid(),
        number: checkpoint.number,
        part: part as u32,
        cut: EpochNumber(checkpoint.cut),
    };
    let expected = Extent { bytes: described.bytes, rows: described.rows };
    PartReader::open(&**recovering.device(), &path, id, expected)
}

/// Opens every part of the checkpoint.
pub(crate) fn parts(
    recovering: &Recovering,
    checkpoint: &Checkpoint,
) -> Result<Vec<Mutex<PartReader>>, Error> {
    let files = recovering.checkpoint_files().into_iter().enumerate();
    files.map(|(part, path)| open(recovering, checkpoint, part, path).map(Mutex::new)).collect()
}

/// Reads and checks the whole checkpoint without installing anything. Returns its rows and bytes.
pub(crate) fn verify(
    recovering: &Recovering,
    checkpoint: &Checkpoint,
) -> Result<(u64, u64), Error> {
    let (mut rows, mut bytes) = (0, 0);
    let (mut block, mut content) = (Block::default(), Vec::new());
    for part in parts(recovering, checkpoint)? {
        let mut part = part.into_inner().unpoisoned();
        while part.next(&mut block)? {
            block.content(part.id, &part.path, &mut content)?;
        }
        rows += part.rows();
        bytes += part.bytes();
    }
    Ok((rows, bytes))
}

/// Reads the whole checkpoint and skips damaged blocks. Returns the rows and bytes of the intact
/// blocks, and all errors.
pub(crate) fn examine(recovering: &Recovering, checkpoint: &Checkpoint) -> (u64, u64, Vec<Error>) {
    let (mut rows, mut bytes, mut wrong) = (0, 0, Vec::new());
    let (mut block, mut content) = (Block::default(), Vec::new());
    for (at, path) in recovering.checkpoint_files().into_iter().enumerate() {
        let mut part = match open(recovering, checkpoint, at, path) {
            Ok(part) => part,
            Err(error) => {
                wrong.push(error);
                continue;
            }
        };
        loop {
            match part.next(&mut block) {
                Ok(true) => {}
                Ok(false) => break,
                // The offset of the next block is unknown.
                Err(error) => {
                    wrong.push(error);
                    break;
                }
            }
            match block.content(part.id, &part.path, &mut content) {
                Ok((_, count)) => {
                    rows += u64::from(count);
                    bytes += block.bytes.len() as u64;
                }
                Err(error) => wrong.push(error),
            }
        }
    }
    (rows, bytes, wrong)
}
