//! Loads a checkpoint: all threads read blocks of all parts, in any order. Indexes are built as
//! rows arrive.

use super::apply::Applier;
use super::replay::ReplayContext;
use super::threads;
use crate::checkpoint::format::damaged;
use crate::checkpoint::read::{Block, PartReader};
use crate::checkpoint::verify::parts;
use crate::error::Error;
use crate::logging::record::take_tid;
use crate::storage::Stamp;
use hyades_platform::sync::Unpoisoned;
use hyades_wal::{Checkpoint, Recovering};
use std::sync::Mutex;
use std::sync::atomic::Ordering;

/// Installs every row of the checkpoint.
pub(crate) fn load<S: Stamp>(
    replay: &ReplayContext<S>,
    recovering: &Recovering,
    checkpoint: &Checkpoint,
    threads: usize,
) -> Result<(), Error> {
    let parts = parts(recovering, checkpoint)?;
    threads::run_on(replay, threads, |number| load_some(replay, &parts, number), |_| ());
    if let Some(error) = replay.failure.lock().unpoisoned().take() {
        return Err(error);
    }
    replay.progress.image_is_complete();
    let counts = &replay.counts;
    // A fuzzy image may hold rows of later epochs than its cut.
    counts.max_epoch.fetch_max(checkpoint.reaches_back_to(), Ordering::Relaxed);
    counts.max_row_id.fetch_max(checkpoint.next_row_id.saturating_sub(1), Ordering::Relaxed);
    Ok(())
}

fn load_some<S: Stamp>(
    replay: &ReplayContext<S>,
    parts: &[Mutex<PartReader>],
    number: usize,
) -> Result<(), Error> {
    let mut applier = Applier::default();
    let (mut block, mut content) = (Block::default(), Vec::new());
    for turn in 0..parts.len() {
        let part = &parts[(number + turn) % parts.len()];
        while !replay.has_failed() {
            let (id, path) = {
                let mut reader = part.lock().unpoisoned();
                if !reader.next(&mut block)? {
                    break;
                }
                (reader.id, reader.path.clone())
            };
            let (mut rest, rows) = block.content(id, &path, &mut content)?;
            replay.progress.image_was_read(block.bytes.len());
            let guard = hyades_platform::reclaim::pin();
            for _ in 0..rows {
                let fits = take_tid(&mut rest)
                    .is_some_and(|tid| applier.apply_next(replay, tid, &mut rest, &guard));
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
