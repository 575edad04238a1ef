//! Loading a checkpoint: blocks of all parts by all threads, in any order. Indexes are made as rows arrive.

use super::format::{BLOCK_HEAD, HEADER, PartId, damaged};
use crate::error::Error;
use crate::logging::record::take_tid;
use crate::recovery::Replay;
use crate::recovery::apply::Applier;
use crate::recovery::threads;
use hyades_platform::device::DeviceFile;
use hyades_wal::{Checkpoint, Recovering};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// A part that is being read.
struct PartReader {
    id: PartId,
    path: PathBuf,
    file: Arc<dyn DeviceFile>,
    /// The next block.
    at: u64,
    end: u64,
    rows: u64,
    expected: u64,
}

/// A block as it stands in its part.
#[derive(Default)]
struct Block {
    offset: u64,
    bytes: Vec<u8>,
}

impl PartReader {
    /// Reads the next block; false at the end. What is in it is not yet checked.
    fn next(&mut self, block: &mut Block) -> Result<bool, Error> {
        if self.at >= self.end {
            if self.rows != self.expected {
                let what =
                    format!("it has {} rows and not {}, as it should", self.rows, self.expected);
                return Err(damaged(&self.path, self.end, &what));
            }
            return Ok(false);
        }
        let read = |bytes: &mut Vec<u8>, from: usize, length: usize| {
            bytes.resize(from + length, 0);
            let offset = self.at + from as u64;
            let n = self
                .file
                .read_at(&mut bytes[from..], offset)
                .map_err(|e| damaged(&self.path, offset, &format!("it cannot be read ({e})")))?;
            if n < length {
                return Err(damaged(&self.path, offset + n as u64, "it is cut off"));
            }
            Ok(())
        };
        block.bytes.clear();
        block.offset = self.at;
        read(&mut block.bytes, 0, BLOCK_HEAD)?;
        let head = PartId::block_head(&self.path, self.at, self.end, &block.bytes)?;
        read(&mut block.bytes, BLOCK_HEAD, head.stored)?;
        self.at += block.bytes.len() as u64;
        self.rows += u64::from(head.rows);
        Ok(true)
    }
}

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
    let file = recovering
        .device()
        .open(&path)
        .map_err(|e| damaged(&path, 0, &format!("it cannot be opened ({e})")))?;
    let mut header = [0; HEADER];
    let n = file
        .read_at(&mut header, 0)
        .map_err(|e| damaged(&path, 0, &format!("it cannot be read ({e})")))?;
    id.check_header(&path, &header[..n])?;
    let (end, expected) = (described.bytes, described.rows);
    Ok(PartReader { id, path, file, at: HEADER as u64, end, rows: 0, expected })
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
            let end = block.offset + block.bytes.len() as u64;
            let head = PartId::block_head(&part.path, block.offset, end, &block.bytes)?;
            part.id.content(&part.path, block.offset, &head, &block.bytes, &mut content)?;
        }
        rows += part.rows;
        bytes += part.end;
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
            let end = block.offset + block.bytes.len() as u64;
            let checked = PartId::block_head(&part.path, block.offset, end, &block.bytes);
            let checked = checked.and_then(|head| {
                let id = part.id;
                id.content(&part.path, block.offset, &head, &block.bytes, &mut content)?;
                Ok(head.rows)
            });
            match checked {
                Ok(of) => {
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
            let end = block.offset + block.bytes.len() as u64;
            let head = PartId::block_head(&path, block.offset, end, &block.bytes)?;
            let mut rest = id.content(&path, block.offset, &head, &block.bytes, &mut content)?;
            let guard = crossbeam_epoch::pin();
            for _ in 0..head.rows {
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
