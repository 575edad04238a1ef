//! Loading a checkpoint: blocks of all parts by all threads, in any order. Indexes are made as rows arrive.

use super::format::{PartId, damaged};
use super::read::{Block, Extent, PartReader};
use crate::error::Error;
use crate::logging::record::take_tid;
use crate::recovery::Replay;
use crate::recovery::apply::Applier;
use crate::recovery::threads;
use hyades_wal::{Checkpoint, Recovering};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

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
        cut: checkpoint.cut,
    };
    let expected = Extent { bytes: described.bytes, rows: described.rows };
    PartReader::open(&**recovering.device(), &path, id, expected)
}

/// Opens every part of the checkpoint.
fn parts(
    recovering: &Recovering,
    checkpoint: &Checkpoint,
) -> Result<Vec<Mutex<PartReader>>, Error> {
    let files = recovering.checkpoint_files().into_iter().enumerate();
    files.map(|(part, path)| open(recovering, checkpoint, part, path).map(Mutex::new)).collect()
}

/// Reads all of the checkpoint and checks it; nothing is installed. Returns its rows and bytes.
pub(crate) fn verify(
    recovering: &Recovering,
    checkpoint: &Checkpoint,
) -> Result<(u64, u64), Error> {
    let (mut rows, mut bytes) = (0, 0);
    let (mut block, mut content) = (Block::default(), Vec::new());
    for part in parts(recovering, checkpoint)? {
        let mut part = part.into_inner().expect("no holder panics");
        while part.next(&mut block)? {
            block.content(part.id, &part.path, &mut content)?;
        }
        rows += part.rows();
        bytes += part.bytes();
    }
    Ok((rows, bytes))
}

/// Reads all of the checkpoint, past what is damaged. Returns the rows and bytes of what is whole, and what is
/// wrong.
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
                // Where the next block begins is not known.
                Err(error) => {
                    wrong.push(error);
                    break;
                }
            }
            match block.content(part.id, &part.path, &mut content) {
                Ok((_, of)) => {
                    rows += u64::from(of);
                    bytes += block.bytes.len() as u64;
                }
                Err(error) => wrong.push(error),
            }
        }
    }
    (rows, bytes, wrong)
}

/// Installs every row of the checkpoint.
pub(crate) fn load<S: Default + Send + Sync + 'static>(
    replay: &Replay<S>,
    recovering: &Recovering,
    checkpoint: &Checkpoint,
    threads: usize,
) -> Result<(), Error> {
    let parts = parts(recovering, checkpoint)?;
    threads::run_on(replay, threads, |seat| load_some(replay, &parts, seat), |_| ());
    if let Some(error) = replay.failure.lock().expect("no holder panics").take() {
        return Err(error);
    }
    let counts = &replay.counts;
    counts.max_epoch.fetch_max(checkpoint.cut, Ordering::Relaxed);
    counts.max_row_id.fetch_max(checkpoint.next_row_id.saturating_sub(1), Ordering::Relaxed);
    Ok(())
}

fn load_some<S: Default + Send + Sync + 'static>(
    replay: &Replay<S>,
    parts: &[Mutex<PartReader>],
    seat: usize,
) -> Result<(), Error> {
    let mut applier = Applier::default();
    let (mut block, mut content) = (Block::default(), Vec::new());
    for turn in 0..parts.len() {
        let part = &parts[(seat + turn) % parts.len()];
        while !replay.has_failed() {
            let (id, path) = {
                let mut reader = part.lock().expect("no holder panics");
                if !reader.next(&mut block)? {
                    break;
                }
                (reader.id, reader.path.clone())
            };
            let (mut rest, rows) = block.content(id, &path, &mut content)?;
            let guard = crossbeam_epoch::pin();
            for _ in 0..rows {
                let fits = take_tid(&mut rest)
                    .is_some_and(|tid| applier.apply_next(replay, tid.0, &mut rest, &guard));
                if !fits {
                    let what =
                        "a row does not fit the declared tables, though its checksum is right";
                    return Err(damaged(&path, block.offset, what));
                }
            }
            if !rest.is_empty() {
                return Err(damaged(&path, block.offset, "a block is longer than its rows"));
            }
        }
    }
    applier.finish(replay);
    Ok(())
}
