//! `hyades log dump`: prints every frame as a line.

use super::component::{self, Wanted};
use super::{Dirs, Trouble, end_vector, open, survey};
use clap::Args;
use hyades::TransactionId;
use hyades::inspect::{ChangeKind, Content, Inspected, Inspector, Liveness, RowChange};
use hyades_wal::{Frame, FrameKind, Incarnation, StreamReader, read_anchor, read_heartbeat};
use std::io::Write;

/// Options of `hyades log dump`.
#[derive(Args, Clone, Debug)]
pub struct DumpOptions {
    #[command(flatten)]
    dirs: Dirs,
    /// Only this stream, by its id
    #[arg(long, value_name = "ID")]
    stream: Option<u32>,
    /// Only this incarnation
    #[arg(long, value_name = "NUMBER")]
    incarnation: Option<u32>,
    /// At most this many frames of each stream and incarnation
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

/// Runs `hyades log dump`. Valid frames are printed even if something behind them is damaged.
pub fn dump(options: &DumpOptions, out: &mut impl Write) -> Result<bool, Trouble> {
    let recovering = open(&options.dirs)?;
    let ends = survey(&recovering)?;
    if component::is_of_component(recovering.manifest()) {
        let DumpOptions { stream, incarnation, limit, .. } = *options;
        component::dump(&Wanted { stream, incarnation, limit }, &recovering, &ends, out)?;
        recovering.verdict(&ends)?;
        return Ok(true);
    }
    let inspector = Inspector::new(recovering.manifest())?;
    let liveness = inspector.liveness(&recovering, &ends)?;
    let mut readers = recovering.readers();
    for incarnation in &recovering.manifest().incarnations {
        let number = incarnation.number;
        let lanes: Vec<_> = readers.extract_if(.., |r| r.incarnation == number).collect();
        if options.incarnation.is_some_and(|wanted| wanted != number) {
            continue;
        }
        title(incarnation, out)?;
        for reader in lanes {
            if options.stream.is_none_or(|wanted| wanted == reader.stream.0) {
                let ends = end_vector(&ends, number);
                stream(options, (&inspector, &liveness), incarnation, reader, &ends, out)?;
            }
        }
    }
    recovering.verdict(&ends)?;
    Ok(true)
}

pub(super) fn title(incarnation: &Incarnation, out: &mut impl Write) -> Result<(), Trouble> {
    let Incarnation { number, protocol, .. } = incarnation;
    let holds = if incarnation.data_only { "data records only" } else { "data and commands" };
    let streams = incarnation.dims.len();
    let closed = if incarnation.clean { "closed" } else { "not closed cleanly" };
    writeln!(out, "incarnation {number}: {protocol}, {holds}, {streams} streams, {closed}")?;
    Ok(())
}

fn stream(
    options: &DumpOptions,
    (inspector, liveness): (&Inspector, &Liveness),
    incarnation: &Incarnation,
    mut reader: StreamReader,
    ends: &[u64],
    out: &mut impl Write,
) -> Result<(), Trouble> {
    let (lane, id) = (reader.dimension, reader.stream.0);
    writeln!(out, " stream {id} (component {lane}): LSN {} to {}", reader.start(), ends[lane])?;
    let mut inspect = inspector.stream(incarnation, id);
    let mut left = options.limit.unwrap_or(usize::MAX);
    while let Some(chunk) = reader.next_chunk()? {
        inspect.enter(&chunk);
        for frame in chunk.frames() {
            if left == 0 {
                writeln!(out, "  and more")?;
                return Ok(());
            }
            left -= 1;
            write!(out, "  @{:<10} {:>6} B  ", frame.end, frame.end - frame.start)?;
            match inspect.read(&frame)? {
                Some(record) => {
                    let (stream, lsn) = (id, frame.end);
                    let named = TransactionId { epoch: record.tid().0, stream, lsn };
                    transaction(&record, named, !record.is_live(liveness), out)?;
                }
                None => other(&frame, ends.len(), out)?,
            }
        }
    }
    Ok(())
}

pub(super) fn other(frame: &Frame<'_>, lanes: usize, out: &mut impl Write) -> Result<(), Trouble> {
    match frame.kind {
        FrameKind::Anchor => {
            let mut anchor = vec![0; lanes];
            match read_anchor(frame.payload, &mut anchor) {
                Some(()) => writeln!(out, "anchor     durable {}", vector(&anchor))?,
                None => writeln!(out, "anchor     for a different number of streams")?,
            }
        }
        FrameKind::Heartbeat => {
            let (mark, durable) = read_heartbeat(frame.payload).unwrap_or_default();
            writeln!(out, "heartbeat  mark {mark}, durable {durable}")?;
        }
        FrameKind::Void => writeln!(out, "void")?,
        FrameKind::Part => writeln!(out, "part       of a record that follows")?,
        FrameKind::Record => writeln!(out, "record")?,
    }
    Ok(())
}

/// The components that are not 0, each with its lane.
pub(super) fn vector(lanes: &[u64]) -> String {
    let some = lanes.iter().enumerate().filter(|(_, lsn)| **lsn > 0);
    let text: Vec<String> = some.map(|(lane, lsn)| format!("{lane}:{lsn}")).collect();
    if text.is_empty() { "nothing".to_string() } else { text.join(" ") }
}

fn transaction(
    record: &Inspected<'_>,
    id: TransactionId,
    dead: bool,
    out: &mut impl Write,
) -> Result<(), Trouble> {
    let kind = if record.is_command() { "command" } else { "data" };
    let (epoch, sequence) = record.tid();
    write!(out, "{kind:<10} {epoch}.{sequence:<8} id {id};")?;
    if dead {
        write!(out, " DEAD")?;
    }
    if let Some(number) = record.number() {
        let read = match record.has_read() {
            Some(true) => ", has read",
            Some(false) => ", has not read",
            None => "",
        };
        write!(out, " number {number}{read};")?;
    }
    if !record.counts() {
        write!(out, " further record of a transaction;")?;
    }
    if !record.validity().is_empty() {
        write!(out, " needs {};", vector(record.validity()))?;
        let follows_more = record.order() != record.validity();
        if !record.is_command() && !record.order().is_empty() && follows_more {
            write!(out, " follows {};", vector(record.order()))?;
        }
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
