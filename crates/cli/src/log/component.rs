//! The logs of a transaction component: keys and values instead of tables and procedures.

use super::dump::{other, title, vector};
use super::{Trouble, end_vector};
use crate::failure::Failure;
use hyades_deuteronomy::{LoggedTransaction, Operation, PROTOCOL, RecordReader};
use hyades_wal::{Lane, Manifest, ReaderEnd, Recovering, StreamReader, admits};
use std::io::Write;

/// The bytes of a key that are printed.
const KEY_BYTES: usize = 40;

/// Whether a transaction component wrote the log.
pub fn is_of_component(manifest: &Manifest) -> bool {
    manifest.newest().is_some_and(|incarnation| incarnation.protocol == PROTOCOL)
}

/// Which frames are printed: of a stream, of an incarnation, and how many of each.
pub struct Wanted {
    pub stream: Option<u32>,
    pub incarnation: Option<u32>,
    pub limit: Option<usize>,
}

/// Prints every frame as a line.
pub fn dump(
    wanted: &Wanted,
    recovering: &Recovering,
    ends: &[ReaderEnd],
    out: &mut impl Write,
) -> Result<(), Trouble> {
    let mut readers = recovering.readers();
    for incarnation in &recovering.manifest().incarnations {
        let number = incarnation.number;
        let lanes: Vec<_> = readers.extract_if(.., |r| r.incarnation == number).collect();
        if wanted.incarnation.is_some_and(|wanted| wanted != number) {
            continue;
        }
        title(incarnation, out)?;
        for reader in lanes {
            if wanted.stream.is_none_or(|wanted| wanted == reader.stream.0) {
                stream(wanted.limit, reader, &end_vector(ends, number), out)?;
            }
        }
    }
    Ok(())
}

fn stream(
    limit: Option<usize>,
    mut reader: StreamReader,
    ends: &[u64],
    out: &mut impl Write,
) -> Result<(), Trouble> {
    let (lane, id) = (reader.dimension, reader.stream.0);
    writeln!(out, " stream {id} (component {lane}): LSN {} to {}", reader.start(), ends[lane])?;
    let mut records = RecordReader::new(&reader);
    let mut left = limit.unwrap_or(usize::MAX);
    while let Some(chunk) = reader.next_chunk()? {
        records.enter(&chunk);
        for frame in chunk.frames() {
            if left == 0 {
                writeln!(out, "  and more")?;
                return Ok(());
            }
            left -= 1;
            write!(out, "  @{:<10} {:>6} B  ", frame.end, frame.end - frame.start)?;
            let read = records.read(&frame).map_err(|error| Trouble::Failure(error.into()))?;
            match read {
                Some(transaction) => print(&transaction, ends, out)?,
                None => other(&frame, ends.len(), out)?,
            }
        }
    }
    Ok(())
}

fn print(
    transaction: &LoggedTransaction<'_>,
    ends: &[u64],
    out: &mut impl Write,
) -> Result<(), Trouble> {
    let LoggedTransaction { ts, vector: needs, operations } = transaction;
    let is_live = admits(|lane| ends[lane.index()], Lane::each(needs));
    let dead = if is_live { "" } else { " DEAD" };
    write!(out, "{:<10} timestamp {ts};{dead} needs {};", "data", vector(needs))?;
    for Operation { key, value, .. } in operations {
        let shown = key[..key.len().min(KEY_BYTES)].escape_ascii();
        let more = if key.len() > KEY_BYTES { ".." } else { "" };
        match value {
            Some(value) => write!(out, " put {shown}{more} ({} B)", value.len())?,
            None => write!(out, " delete {shown}{more}")?,
        }
    }
    writeln!(out)?;
    Ok(())
}

/// What a stream holds: frames, transactions, and the first record that cannot be read.
pub fn count(reader: &mut StreamReader) -> Result<(u64, u64, Option<String>), Failure> {
    let mut records = RecordReader::new(reader);
    let (mut frames, mut transactions, mut strange) = (0, 0, None);
    while let Some(chunk) = reader.next_chunk()? {
        records.enter(&chunk);
        for frame in chunk.frames() {
            frames += 1;
            match records.read(&frame) {
                Ok(read) => transactions += u64::from(read.is_some()),
                Err(error) => drop(strange.get_or_insert_with(|| error.to_string())),
            }
        }
    }
    Ok((frames, transactions, strange))
}
