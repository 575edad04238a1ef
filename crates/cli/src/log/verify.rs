//! `hyades log verify`: every checksum, every record, and that nothing durable is missing.

use super::{Dirs, Trouble, open};
use crate::failure::Failure;
use crate::units::exact;
use hyades::inspect::Inspector;
use hyades_wal::{Incarnation, ReaderEnd, Recovering, StreamReader};
use std::io::Write;

/// What one stream of one incarnation holds.
struct Checked {
    end: ReaderEnd,
    start: u64,
    frames: u64,
    records: u64,
}

/// `hyades log verify`.
pub fn verify(dirs: &Dirs, out: &mut impl Write) -> Result<bool, Trouble> {
    let recovering = open(dirs)?;
    let inspector = Inspector::new(recovering.manifest())?;
    if let (Some((rows, bytes)), Some(checkpoint)) =
        (hyades::inspect::verify_checkpoint(&recovering)?, &recovering.manifest().checkpoint)
    {
        writeln!(
            out,
            "checkpoint {} at epoch {}: {} rows, {} bytes in {} files",
            checkpoint.number,
            checkpoint.cut,
            exact(rows),
            exact(bytes),
            checkpoint.parts.len()
        )?;
    }
    let checked = check_all(&recovering, &inspector)?;
    for lane in &checked {
        let Checked { end, start, frames, records } = lane;
        writeln!(
            out,
            "incarnation {} stream {}: {} bytes, {} frames, {} transactions; valid to Lsn {}",
            end.incarnation,
            end.stream,
            exact(end.valid_to - start),
            exact(*frames),
            exact(*records),
            end.valid_to
        )?;
    }
    let ends: Vec<ReaderEnd> = checked.into_iter().map(|lane| lane.end).collect();
    recovering.verdict(&ends)?;
    let newest = recovering.manifest().newest();
    if newest.is_some_and(|incarnation| !incarnation.clean) {
        writeln!(out, "not closed in good order: what follows the valid ends is a torn tail")?;
    }
    writeln!(out, "whole: nothing that was durable is missing or damaged")?;
    Ok(true)
}

fn check_all(recovering: &Recovering, inspector: &Inspector) -> Result<Vec<Checked>, Trouble> {
    let mut all = Vec::new();
    let mut readers = recovering.readers();
    for incarnation in &recovering.manifest().incarnations {
        let lanes: Vec<_> =
            readers.extract_if(.., |r| r.incarnation == incarnation.number).collect();
        let results: Vec<Result<Checked, Failure>> = std::thread::scope(|scope| {
            let spawn = |reader| scope.spawn(move || check(inspector, incarnation, reader));
            let threads: Vec<_> = lanes.into_iter().map(spawn).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect()
        });
        for result in results {
            all.push(result.map_err(Trouble::Failure)?);
        }
    }
    Ok(all)
}

fn check(
    inspector: &Inspector,
    incarnation: &Incarnation,
    mut reader: StreamReader,
) -> Result<Checked, Failure> {
    let mut inspect = inspector.stream(incarnation, reader.stream);
    let (start, mut frames, mut records) = (reader.start(), 0, 0);
    while let Some(chunk) = reader.next_chunk()? {
        inspect.enter(&chunk);
        for frame in chunk.frames() {
            frames += 1;
            if let Some(record) = inspect.read(&frame)? {
                records += 1;
                record.content()?;
            }
        }
    }
    Ok(Checked { end: reader.end(), start, frames, records })
}
