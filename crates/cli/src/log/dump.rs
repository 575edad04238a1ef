//! `hyades log dump`: prints every frame as a line.

use super::records::{LogRecords, ends_of, incarnations};
use super::{Dirs, Trouble, open, records_of, survey};
use clap::Args;
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
    let records = records_of(&recovering, &ends)?;
    for (incarnation, lanes) in incarnations(&recovering) {
        if options.incarnation.is_some_and(|wanted| wanted != incarnation.number) {
            continue;
        }
        title(incarnation, out)?;
        for reader in lanes {
            if options.stream.is_none_or(|wanted| wanted == reader.stream.0) {
                let ends = ends_of(&ends, incarnation);
                stream(options.limit, (&*records, incarnation), reader, &ends, out)?;
            }
        }
    }
    recovering.verdict(&ends)?;
    Ok(true)
}

fn title(incarnation: &Incarnation, out: &mut impl Write) -> Result<(), Trouble> {
    let Incarnation { number, protocol, .. } = incarnation;
    let holds = if incarnation.data_only { "data records only" } else { "data and commands" };
    let streams = incarnation.dims.len();
    let closed = if incarnation.clean { "closed" } else { "not closed cleanly" };
    writeln!(out, "incarnation {number}: {protocol}, {holds}, {streams} streams, {closed}")?;
    Ok(())
}

fn stream(
    limit: Option<usize>,
    (records, incarnation): (&dyn LogRecords, &Incarnation),
    mut reader: StreamReader,
    ends: &[u64],
    out: &mut impl Write,
) -> Result<(), Trouble> {
    let (lane, id) = (reader.dimension, reader.stream.0);
    writeln!(out, " stream {id} (component {lane}): LSN {} to {}", reader.start(), ends[lane])?;
    let mut records = records.stream(incarnation, &reader);
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
            if !records.print(&frame, out)? {
                other(&frame, ends.len(), out)?;
            }
        }
    }
    if records.unfinished() > 0 {
        writeln!(out, "  {} transactions have parts here, and no record", records.unfinished())?;
    }
    Ok(())
}

/// Prints a frame without a part of a replayed transaction.
fn other(frame: &Frame<'_>, lanes: usize, out: &mut impl Write) -> Result<(), Trouble> {
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
        FrameKind::Record => writeln!(out, "record     the checkpoint holds it")?,
    }
    Ok(())
}

/// The components other than 0, each with its lane.
pub(super) fn vector(lanes: &[u64]) -> String {
    let some = lanes.iter().enumerate().filter(|(_, lsn)| **lsn > 0);
    let text: Vec<String> = some.map(|(lane, lsn)| format!("{lane}:{lsn}")).collect();
    if text.is_empty() { "nothing".to_string() } else { text.join(" ") }
}
