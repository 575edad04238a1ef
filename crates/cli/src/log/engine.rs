//! The records of the engine: tables and procedures, under every protocol.

use super::Trouble;
use super::dump::vector;
use super::records::{CountedRecord, LogRecords, StreamRecords};
use crate::failure::Failure;
use hyades::TransactionId;
use hyades::inspect::{
    ChangeKind, Content, Inspected, InspectedPart, Inspector, ListedPredecessor, Liveness,
    RowChange, Share, StreamInspector,
};
use hyades_wal::{Chunk, Frame, Incarnation, StreamReader};
use std::io::Write;

/// The records of a log of the engine.
pub struct EngineRecords {
    pub inspector: Inspector,
    /// Decides which records are live; before the decision is known, all records count as live.
    pub liveness: Option<Liveness>,
}

impl LogRecords for EngineRecords {
    fn stream<'r>(
        &'r self,
        incarnation: &Incarnation,
        reader: &StreamReader,
    ) -> Box<dyn StreamRecords + 'r> {
        let stream = reader.stream.0;
        let inspect = self.inspector.stream(incarnation, stream);
        Box::new(InspectedStream { inspect, liveness: self.liveness.as_ref(), stream })
    }
}

struct InspectedStream<'r> {
    inspect: StreamInspector<'r>,
    liveness: Option<&'r Liveness>,
    stream: u32,
}

impl InspectedStream<'_> {
    fn is_live(liveness: Option<&Liveness>, record: &Inspected<'_>) -> bool {
        liveness.is_none_or(|liveness| record.is_live(liveness))
    }
}

impl StreamRecords for InspectedStream<'_> {
    fn enter(&mut self, chunk: &Chunk) {
        self.inspect.enter(chunk);
    }

    fn print(&mut self, frame: &Frame<'_>, out: &mut dyn Write) -> Result<bool, Trouble> {
        if let Some(part) = self.inspect.part(frame)? {
            self.inspect.read(frame)?;
            print_part(&part, frame, out)?;
            return Ok(true);
        }
        let Some(record) = self.inspect.read(frame)? else { return Ok(false) };
        let id = TransactionId { epoch: record.tid().0, stream: self.stream, lsn: frame.end };
        print_record(&record, id, !Self::is_live(self.liveness, &record), out)?;
        Ok(true)
    }

    fn count(
        &mut self,
        frame: &Frame<'_>,
        share: &mut dyn FnMut(Share<'_>),
    ) -> Result<Option<CountedRecord>, Failure> {
        let Some(record) = self.inspect.read(frame)? else { return Ok(None) };
        record.shares()?.into_iter().for_each(share);
        Ok(Some(CountedRecord {
            command: record.is_command(),
            live: Self::is_live(self.liveness, &record),
            counts: record.counts(),
            has_parts: record.first_part().is_some(),
            is_one_of_several: record.components().is_some_and(|all| all.len() > 1),
            number: record.number(),
            order: record.order().to_vec(),
        }))
    }

    fn check(&mut self, frame: &Frame<'_>) -> Result<bool, String> {
        let counted = |record: Inspected<'_>| record.content().map(|_| record.counts());
        let part = self.inspect.part(frame).map(|_| ());
        let read = self.inspect.read(frame).and_then(|record| record.map(counted).transpose());
        let counts = part.and(read).map_err(|error| error.to_string())?;
        Ok(counts == Some(true))
    }

    fn unfinished(&self) -> usize {
        self.inspect.unfinished()
    }
}

fn print_part(part: &InspectedPart, frame: &Frame<'_>, out: &mut dyn Write) -> Result<(), Trouble> {
    write!(out, "part       ")?;
    if part.first == frame.start {
        write!(out, "the first of a transaction;")?;
    } else {
        write!(out, "of the transaction that begins at {};", part.first)?;
    }
    match &part.row {
        Some(((epoch, sequence), change)) => writeln!(out, " {epoch}.{sequence} {}", row(change))?,
        None => writeln!(out, " its record follows")?,
    }
    Ok(())
}

fn print_record(
    record: &Inspected<'_>,
    id: TransactionId,
    dead: bool,
    out: &mut dyn Write,
) -> Result<(), Trouble> {
    let kind = if record.is_command() { "command" } else { "data" };
    let (epoch, sequence) = record.tid();
    write!(out, "{kind:<10} {epoch}.{sequence:<8} id {id};")?;
    if dead {
        write!(out, " DEAD")?;
    }
    print_order(record, out)?;
    if let Some(first) = record.first_part() {
        write!(out, " begins at {first};")?;
    }
    if let Some(began) = record.epoch_us() {
        write!(out, " epoch began at {};", hyades::inspect::time(began))?;
    }
    if let Some((epoch, sequence)) = record.reads_as_of() {
        write!(out, " reads as of {epoch}.{sequence};")?;
    }
    if let Some((epoch, sequence)) = record.floor() {
        write!(out, " floor {epoch}.{sequence};")?;
    }
    if let Some(time) = record.time_us() {
        write!(out, " time {time} us;")?;
    }
    if let Some(seed) = record.seed() {
        write!(out, " seed {seed};")?;
    }
    if let ids @ [first, ..] = record.row_ids() {
        write!(out, " {} row numbers from {first};", ids.len())?;
    }
    if let Some(outcome) = record.outcome() {
        write!(out, " outcome {outcome:#010x};")?;
    }
    match record.content()? {
        Content::Command { procedure, version, argument_bytes } => {
            writeln!(out, " {procedure} version {version}, {argument_bytes} bytes of arguments")?;
        }
        Content::Rows(rows) => {
            let rows: Vec<String> = rows.iter().map(row).collect();
            writeln!(out, " {}", rows.join("; "))?;
        }
        other => writeln!(out, " {other:?}")?,
    }
    Ok(())
}

/// Prints the protocol's data in the record.
fn print_order(record: &Inspected<'_>, out: &mut dyn Write) -> Result<(), Trouble> {
    if let Some(number) = record.number() {
        let read = match record.has_read() {
            Some(true) => ", has read",
            Some(false) => ", has not read",
            None => "",
        };
        write!(out, " number {number}{read};")?;
    }
    match record.components() {
        Some(all) if all.len() > 1 => {
            let counts = if record.counts() { "" } else { "not the " };
            let all: Vec<String> = all.iter().map(ToString::to_string).collect();
            write!(out, " {counts}first of the records in components {};", all.join(" "))?;
        }
        _ => {}
    }
    if !record.validity().is_empty() {
        write!(out, " needs {};", vector(record.validity()))?;
        let follows_more = record.order() != record.validity();
        if !record.is_command() && !record.order().is_empty() && follows_more {
            write!(out, " follows {};", vector(record.order()))?;
        }
    }
    let (overwrote, read): (Vec<ListedPredecessor>, Vec<_>) =
        record.predecessors().into_iter().partition(|listed| listed.overwritten);
    for (what, list) in [("has read from", read), ("has overwritten", overwrote)] {
        if !list.is_empty() {
            let places = list.iter().map(|listed| format!("{}:{}", listed.component, listed.lsn));
            write!(out, " {what} {};", places.collect::<Vec<_>>().join(" "))?;
        }
    }
    if let Some(partitions) = record.partitions() {
        write!(out, " partitions {partitions:#x};")?;
    }
    if record.stated_outcomes() > 0 {
        write!(out, " states {} outcomes;", record.stated_outcomes())?;
    }
    Ok(())
}

fn row(change: &RowChange) -> String {
    let RowChange { table, key, .. } = change;
    let columns: Vec<String> = change.columns.iter().map(|(c, v)| format!("{c} = {v}")).collect();
    let columns = columns.join(", ");
    match change.kind {
        ChangeKind::Put => format!("put {table} ({key}): {columns}"),
        ChangeKind::Delta(epoch, sequence) => {
            format!("change {table} ({key}) after version {epoch}.{sequence}: {columns}")
        }
        ChangeKind::Delete => format!("delete {table} ({key})"),
        other => format!("{other:?} {table} ({key}): {columns}"),
    }
}
