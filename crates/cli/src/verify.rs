//! `hyades verify`, also `hyades log verify`: checks every checksum and every record, and that no
//! durable data is missing. It continues after damage, and reports all of it.

use crate::failure::Failure;
use crate::log::{Dirs, Trouble, component, open_damaged};
use crate::units::exact;
use hyades::inspect::{Inspected, Inspector};
use hyades_wal::{Incarnation, ReaderEnd, Recovering, StreamReader};
use std::io::Write;

/// The contents of one stream in one incarnation.
struct Checked {
    end: ReaderEnd,
    start: u64,
    frames: u64,
    records: u64,
    /// The first record that is intact but cannot be decoded.
    strange: Vec<String>,
}

/// Runs `hyades verify`. The report goes to `out`.
///
/// # Errors
/// The log is in use, there is none, or something is damaged.
pub fn verify(dirs: &Dirs, out: &mut impl Write) -> Result<bool, Trouble> {
    let recovering = open_damaged(dirs)?;
    let manifest = recovering.manifest();
    let mut wrong: Vec<String> = recovering.damage().iter().map(ToString::to_string).collect();
    // A transaction component has no catalogue, and its checkpoints have no files: its data
    // component holds what is no more in the log.
    let is_of_component = component::is_of_component(manifest);
    let inspector = if is_of_component { None } else { Some(Inspector::new(manifest)?) };
    if let Some(checkpoint) = &manifest.checkpoint
        && !is_of_component
    {
        let (rows, bytes, damaged) = hyades::inspect::examine_checkpoint(&recovering);
        writeln!(
            out,
            "checkpoint {} at epoch {}: {} rows, {} bytes in {} files",
            checkpoint.number,
            checkpoint.cut,
            exact(rows),
            exact(bytes),
            checkpoint.parts.len()
        )?;
        wrong.extend(damaged.iter().map(ToString::to_string));
    }
    let checked = check_all(&recovering, inspector.as_ref())?;
    for lane in &checked {
        let Checked { end, start, frames, records, strange } = lane;
        writeln!(
            out,
            "incarnation {} stream {}: {} bytes, {} frames, {} transactions; valid to LSN {}",
            end.incarnation,
            end.stream,
            exact(end.valid_to.saturating_sub(*start)),
            exact(*frames),
            exact(*records),
            end.valid_to
        )?;
        wrong.extend(strange.iter().cloned());
    }
    let ends: Vec<ReaderEnd> = checked.into_iter().map(|lane| lane.end).collect();
    for incarnation in &manifest.incarnations {
        let damaged = recovering.damaged_streams(incarnation, &ends)?;
        wrong.extend(damaged.iter().map(|damage| damage.error.to_string()));
        let number = incarnation.number;
        if !damaged.is_empty() && manifest.incarnations.iter().any(|i| i.number > number) {
            wrong.push(format!(
                "later incarnations depend on data that is lost in incarnation {number}, even if \
                 they are not damaged themselves"
            ));
        }
    }
    if manifest.newest().is_some_and(|incarnation| !incarnation.clean) {
        writeln!(out, "not closed cleanly: bytes after the valid ends are a torn tail")?;
    }
    conclude(&wrong, out)
}

/// Prints all damage, or that there is none.
fn conclude(wrong: &[String], out: &mut impl Write) -> Result<bool, Trouble> {
    let Some(first) = wrong.first() else {
        writeln!(out, "whole: no durable data is missing or damaged")?;
        return Ok(true);
    };
    for what in wrong {
        writeln!(out, "DAMAGED: {what}")?;
    }
    writeln!(
        out,
        "Restore the damaged files from a copy, or open a backup. If there is none, `hyades \
         recover DIR... --salvage --out NEW` recovers the transactions that do not depend on lost \
         data; a damaged checkpoint cannot be salvaged."
    )?;
    let places =
        if wrong.len() == 1 { "1 place is" } else { &format!("{} places are", wrong.len()) };
    Err(Trouble::Failure(Failure::Failed(format!("{places} damaged; the first: {first}"))))
}

fn check_all(
    recovering: &Recovering,
    inspector: Option<&Inspector>,
) -> Result<Vec<Checked>, Trouble> {
    let mut all = Vec::new();
    let mut readers = recovering.readers();
    for incarnation in &recovering.manifest().incarnations {
        let lanes: Vec<_> =
            readers.extract_if(.., |r| r.incarnation == incarnation.number).collect();
        let results: Vec<Result<Checked, Failure>> = std::thread::scope(|scope| {
            let spawn = |reader| {
                scope.spawn(move || match inspector {
                    Some(inspector) => check(inspector, incarnation, reader),
                    None => check_component(reader),
                })
            };
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

fn check_component(mut reader: StreamReader) -> Result<Checked, Failure> {
    let start = reader.start();
    let (frames, records, strange) = component::count(&mut reader)?;
    Ok(Checked {
        end: reader.end(),
        start,
        frames,
        records,
        strange: strange.into_iter().collect(),
    })
}

fn check(
    inspector: &Inspector,
    incarnation: &Incarnation,
    mut reader: StreamReader,
) -> Result<Checked, Failure> {
    let mut inspect = inspector.stream(incarnation, reader.stream.0);
    let (start, mut frames, mut records) = (reader.start(), 0, 0);
    let mut strange = Vec::new();
    while let Some(chunk) = reader.next_chunk()? {
        inspect.enter(&chunk);
        for frame in chunk.frames() {
            frames += 1;
            let counted = |record: Inspected<'_>| record.content().map(|_| record.counts());
            match inspect.read(&frame).and_then(|r| r.map(counted).transpose()) {
                Ok(counts) => records += u64::from(counts == Some(true)),
                // One is enough: the rest of the stream was written by the same program.
                Err(error) if strange.is_empty() => strange.push(error.to_string()),
                Err(_) => {}
            }
        }
    }
    Ok(Checked { end: reader.end(), start, frames, records, strange })
}
