//! `hyades verify`, also `hyades log verify`: checks every checksum and every record, and that no
//! durable data is missing. The command continues after damage, and reports all damage.

use crate::data_place::{self, DataPlace};
use crate::failure::Failure;
use crate::log::records::{LogRecords, incarnations};
use crate::log::{Dirs, Trouble, component, open_damaged, records_before_ends, records_of};
use crate::units::exact;
use clap::Args;
use hyades_wal::{Incarnation, ReaderEnd, Recovering, StreamReader};
use std::io::Write;

/// The contents of one stream in one incarnation.
struct Checked {
    end: ReaderEnd,
    start: u64,
    frames: u64,
    records: u64,
    /// Transactions with frames, but without a record.
    unfinished: usize,
    /// The first record that is intact but cannot be decoded.
    strange: Vec<String>,
}

/// Options of `hyades verify`.
#[derive(Args, Clone, Debug)]
pub struct DatabaseOptions {
    #[command(flatten)]
    dirs: Dirs,
    /// The data of a database of hyades-deuteronomy, as in redb:FILE: these are read, too
    #[arg(long, value_name = "KIND:PATH")]
    data: Option<DataPlace>,
}

/// Runs `hyades verify`. The report goes to `out`.
///
/// # Errors
/// The log is in use, there is none, or something is damaged.
pub fn verify(options: &DatabaseOptions, out: &mut impl Write) -> Result<bool, Trouble> {
    let recovering = open_damaged(&options.dirs)?;
    let manifest = recovering.manifest();
    if !component::is_of_component(manifest) {
        data_place::check_needed(false, options.data.as_ref()).map_err(Trouble::Failure)?;
    }
    let mut wrong: Vec<String> = recovering.damage().iter().map(ToString::to_string).collect();
    // A transaction component has no catalogue, and its checkpoints have no files: its data
    // component holds the data no longer in the log.
    let records = records_before_ends(&recovering)?;
    if let Some(checkpoint) = &manifest.checkpoint
        && !component::is_of_component(manifest)
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
    let checked = check_all(&recovering, &*records)?;
    for lane in &checked {
        let Checked { end, start, frames, records, unfinished, strange } = lane;
        let unfinished = match unfinished {
            0 => String::new(),
            n => format!(", parts of {} without a record", exact(*n as u64)),
        };
        writeln!(
            out,
            "incarnation {} stream {}: {} bytes, {} frames, {} transactions{unfinished}; valid to \
             LSN {}",
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
    wrong.extend(damage_of_streams(&recovering, &ends)?);
    if manifest.newest().is_some_and(|incarnation| !incarnation.clean) {
        writeln!(out, "not closed cleanly: bytes after the valid ends are a torn tail")?;
    }
    if wrong.is_empty() {
        count_dead(&recovering, &ends, out)?;
    }
    let by = match (component::is_of_component(manifest), &options.data) {
        (true, None) => WrittenBy::Component { is_truncated: manifest.checkpoint.is_some() },
        (true, Some(data)) => {
            verify_data(options, data, &mut wrong, out)?;
            WrittenBy::ComponentWithData
        }
        (false, _) => WrittenBy::Engine,
    };
    conclude(&wrong, by, out)
}

/// The damage of each incarnation's streams, in words.
fn damage_of_streams(recovering: &Recovering, ends: &[ReaderEnd]) -> Result<Vec<String>, Trouble> {
    let (manifest, mut wrong) = (recovering.manifest(), Vec::new());
    for incarnation in &manifest.incarnations {
        let damaged = recovering.damaged_streams(incarnation, ends)?;
        wrong.extend(damaged.iter().map(|damage| damage.error.to_string()));
        let number = incarnation.number;
        if !damaged.is_empty() && manifest.incarnations.iter().any(|i| i.number > number) {
            wrong.push(format!(
                "later incarnations depend on data that is lost in incarnation {number}, even if \
                 they are not damaged themselves"
            ));
        }
    }
    Ok(wrong)
}

/// Reads the data of a transaction component, unless the log is damaged: then what belongs to the
/// log cannot be told.
fn verify_data(
    options: &DatabaseOptions,
    data: &DataPlace,
    wrong: &mut Vec<String>,
    out: &mut impl Write,
) -> Result<(), Trouble> {
    if !wrong.is_empty() {
        writeln!(out, "{} was not read: the log is damaged", data.path().display())?;
        return Ok(());
    }
    let opened = data.open().map_err(Trouble::Failure)?;
    match hyades_deuteronomy::verify(options.dirs.all(), &*opened) {
        Ok(verified) => writeln!(
            out,
            "{}: {} keys, {} bytes, up to the timestamp {}",
            data.path().display(),
            exact(verified.keys),
            exact(verified.data_bytes),
            exact(verified.timestamp)
        )?,
        Err(error) => wrong.push(error.to_string()),
    }
    Ok(())
}

/// Prints the number of dead transactions, which depend on data lost by a crash.
fn count_dead(
    recovering: &Recovering,
    ends: &[ReaderEnd],
    out: &mut impl Write,
) -> Result<(), Trouble> {
    // Everything reserved before the close of a log is durable.
    if recovering.manifest().incarnations.iter().all(|incarnation| incarnation.clean) {
        return Ok(());
    }
    let records = records_of(recovering, ends)?;
    for (incarnation, readers) in incarnations(recovering).filter(|(i, _)| !i.clean) {
        let mut dead = 0;
        for mut reader in readers {
            let mut records = records.stream(incarnation, &reader);
            while let Some(chunk) = reader.next_chunk()? {
                records.enter(&chunk);
                for frame in chunk.frames() {
                    let record = records.count(&frame, &mut |_| ()).map_err(Trouble::Failure)?;
                    dead += u64::from(record.is_some_and(|r| r.counts && !r.live));
                }
            }
        }
        if dead > 0 {
            writeln!(
                out,
                "incarnation {}: {} of the transactions depend on what the crash has lost, so \
                 they were never acknowledged as durable, and recovery leaves them out",
                incarnation.number,
                exact(dead)
            )?;
        }
    }
    Ok(())
}

/// The writer of a log.
#[derive(Clone, Copy)]
enum WrittenBy {
    Engine,
    /// A transaction component; truncated: older data is in its data component alone.
    Component {
        is_truncated: bool,
    },
    /// A transaction component whose data were given.
    ComponentWithData,
}

impl WrittenBy {
    /// The advice about damage.
    fn advice(self) -> &'static str {
        match self {
            WrittenBy::Engine => {
                "Restore the damaged files from a copy, or open a backup. If there is none, \
                 `hyades recover DIR... --salvage --out NEW` recovers the transactions that do \
                 not depend on lost data; a damaged checkpoint cannot be salvaged."
            }
            WrittenBy::Component { .. } | WrittenBy::ComponentWithData => {
                "Restore the whole directory and the files of the data component from a copy of \
                 both, made while no process had them open."
            }
        }
    }
}

/// Prints all damage, or the absence of damage.
fn conclude(wrong: &[String], by: WrittenBy, out: &mut impl Write) -> Result<bool, Trouble> {
    if let WrittenBy::Component { is_truncated } = by {
        let alone = if is_truncated { ". They alone hold what is no more in the log" } else { "" };
        writeln!(
            out,
            "the files of the data component are not part of the log, and were not read{alone}"
        )?;
    }
    let Some(first) = wrong.first() else {
        let scope = if matches!(by, WrittenBy::Component { .. }) { " of the log" } else { "" };
        writeln!(out, "whole: no durable data{scope} is missing or damaged")?;
        return Ok(true);
    };
    for what in wrong {
        writeln!(out, "DAMAGED: {what}")?;
    }
    writeln!(out, "{}", by.advice())?;
    let places =
        if wrong.len() == 1 { "1 place is" } else { &format!("{} places are", wrong.len()) };
    Err(Trouble::Failure(Failure::Failed(format!("{places} damaged; the first: {first}"))))
}

fn check_all(recovering: &Recovering, records: &dyn LogRecords) -> Result<Vec<Checked>, Trouble> {
    let mut all = Vec::new();
    for (incarnation, lanes) in incarnations(recovering) {
        let results: Vec<Result<Checked, hyades_wal::Error>> = std::thread::scope(|scope| {
            let spawn = |reader| scope.spawn(move || check(records, incarnation, reader));
            let threads: Vec<_> = lanes.into_iter().map(spawn).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect()
        });
        for result in results {
            all.push(result?);
        }
    }
    Ok(all)
}

fn check(
    records: &dyn LogRecords,
    incarnation: &Incarnation,
    mut reader: StreamReader,
) -> Result<Checked, hyades_wal::Error> {
    let mut of_stream = records.stream(incarnation, &reader);
    let (start, mut frames, mut records) = (reader.start(), 0, 0);
    let mut strange = Vec::new();
    while let Some(chunk) = reader.next_chunk()? {
        of_stream.enter(&chunk);
        for frame in chunk.frames() {
            frames += 1;
            match of_stream.check(&frame) {
                Ok(counts) => records += u64::from(counts),
                // A single text is enough: the same program wrote the rest of the stream.
                Err(error) if strange.is_empty() => strange.push(error),
                Err(_) => {}
            }
        }
    }
    let unfinished = of_stream.unfinished();
    Ok(Checked { end: reader.end(), start, frames, records, unfinished, strange })
}
