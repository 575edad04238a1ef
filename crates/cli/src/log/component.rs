//! The records of a transaction component: keys and values instead of tables and procedures.

use super::Trouble;
use super::dump::vector;
use super::records::{CountedRecord, LogRecords, StreamRecords, ends_of};
use crate::failure::Failure;
use hyades::inspect::{Share, ShareOf};
use hyades_deuteronomy::{LoggedTransaction, Operation, PROTOCOL, RecordReader, TimeMark};
use hyades_wal::{Chunk, Frame, Incarnation, Lane, Manifest, ReaderEnd, StreamReader, admits};
use std::io::Write;

/// The number of printed bytes of a key.
const KEY_BYTES: usize = 40;

/// Whether a transaction component wrote the log.
pub fn is_of_component(manifest: &Manifest) -> bool {
    manifest.newest().is_some_and(|incarnation| incarnation.protocol == PROTOCOL)
}

/// The records of a log of a transaction component.
#[derive(Default)]
pub struct ComponentRecords {
    /// The ends of the streams, which decide which records are live; before the ends are known, all
    /// records count as live.
    pub ends: Option<Vec<ReaderEnd>>,
}

impl LogRecords for ComponentRecords {
    fn stream<'r>(
        &'r self,
        incarnation: &Incarnation,
        reader: &StreamReader,
    ) -> Box<dyn StreamRecords + 'r> {
        let ends = self.ends.as_ref().map(|ends| ends_of(ends, incarnation));
        Box::new(ComponentStream { records: RecordReader::new(reader), ends })
    }
}

struct ComponentStream {
    records: RecordReader,
    ends: Option<Vec<u64>>,
}

fn is_live(ends: Option<&[u64]>, record: &LoggedTransaction<'_>) -> bool {
    let needs = || Lane::each(record.vector);
    ends.is_none_or(|ends| admits(|lane| ends.get(lane.index()).copied().unwrap_or(0), needs()))
}

impl StreamRecords for ComponentStream {
    fn enter(&mut self, chunk: &Chunk) {
        self.records.enter(chunk);
    }

    fn print(&mut self, frame: &Frame<'_>, out: &mut dyn Write) -> Result<bool, Trouble> {
        if let Some(TimeMark { at_us, highest_ts }) = RecordReader::read_time(frame) {
            let at = hyades::inspect::time(at_us);
            writeln!(out, "time       timestamps up to {highest_ts} before {at}")?;
            return Ok(true);
        }
        let read = self.records.read(frame).map_err(|error| Trouble::Failure(error.into()))?;
        let Some(record) = read else { return Ok(false) };
        let dead = if is_live(self.ends.as_deref(), &record) { "" } else { " DEAD" };
        let LoggedTransaction { ts, vector: needs, operations, parts } = record;
        write!(out, "{:<10} timestamp {ts};{dead} needs {};", "data", vector(needs))?;
        if parts > 0 {
            write!(out, " {parts} parts before it;")?;
        }
        for Operation { key, value, .. } in operations {
            let shown = key[..key.len().min(KEY_BYTES)].escape_ascii();
            let more = if key.len() > KEY_BYTES { ".." } else { "" };
            match value {
                Some(value) => write!(out, " put {shown}{more} ({} B)", value.len())?,
                None => write!(out, " delete {shown}{more}")?,
            }
        }
        writeln!(out)?;
        Ok(true)
    }

    fn count(
        &mut self,
        frame: &Frame<'_>,
        share: &mut dyn FnMut(Share<'_>),
    ) -> Result<Option<CountedRecord>, Failure> {
        let Some(record) = self.records.read(frame)? else { return Ok(None) };
        let (mut puts, mut deletes) = ((0, 0), (0, 0));
        for Operation { key, value, .. } in &record.operations {
            let counted = if value.is_some() { &mut puts } else { &mut deletes };
            let bytes = key.len() + value.map_or(0, <[u8]>::len);
            *counted = (counted.0 + 1, counted.1 + bytes as u64);
        }
        let all = [("(put)", puts), ("(deleted)", deletes)];
        for (name, (count, bytes)) in all.into_iter().filter(|(_, (count, _))| *count > 0) {
            share(Share { subject: ShareOf::Table(name), count, bytes });
        }
        let live = is_live(self.ends.as_deref(), &record);
        Ok(Some(CountedRecord { live, counts: true, ..CountedRecord::default() }))
    }

    fn check(&mut self, frame: &Frame<'_>) -> Result<bool, String> {
        self.records.read(frame).map(|read| read.is_some()).map_err(|error| error.to_string())
    }

    fn unfinished(&self) -> usize {
        self.records.unfinished()
    }
}
