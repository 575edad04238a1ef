//! `hyades log stat`: prints sizes by stream and kind, incarnations, and how parallel replay can
//! be.

use super::depth::{Depths, Item};
use super::{Dirs, Trouble, end_vector, open, survey};
use crate::failure::Failure;
use crate::units::{bytes, exact};
use clap::Args;
use hyades::inspect::{Inspector, Liveness, StreamInspector};
use hyades_wal::{FrameKind, Incarnation, StreamReader};
use serde::Serialize;
use std::io::Write;

/// Options of `hyades log stat`.
#[derive(Args, Clone, Debug)]
pub struct StatOptions {
    #[command(flatten)]
    dirs: Dirs,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// A number of frames and their bytes.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Amount {
    frames: u64,
    bytes: u64,
}

/// Frames by kind.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Kinds {
    data: Amount,
    command: Amount,
    part: Amount,
    anchor: Amount,
    heartbeat: Amount,
    void: Amount,
}

#[derive(Clone, Debug, Serialize)]
struct StreamStat {
    stream: u32,
    start: u64,
    end: u64,
    bytes: u64,
    records: u64,
    dead: u64,
}

#[derive(Clone, Debug, Serialize)]
struct IncarnationStat {
    number: u32,
    protocol: String,
    data_only: bool,
    clean: bool,
    streams: Vec<StreamStat>,
    kinds: Kinds,
    /// Live transactions.
    records: u64,
    dead: u64,
    /// The longest chain of transactions that wait for each other at replay.
    critical_path: u64,
    /// `records / critical_path`.
    parallelism: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
struct Stat {
    file_bytes: u64,
    incarnations: Vec<IncarnationStat>,
}

/// Runs `hyades log stat`.
pub fn stat(options: &StatOptions, out: &mut impl Write) -> Result<bool, Trouble> {
    let recovering = open(&options.dirs)?;
    if super::component::is_of_component(recovering.manifest()) {
        return Err(Trouble::Failure(Failure::Usage(
            "a transaction component wrote this log: `hyades verify` and `hyades log dump` know \
             its records, `hyades log stat` does not"
                .to_string(),
        )));
    }
    let inspector = Inspector::new(recovering.manifest())?;
    let ends = survey(&recovering)?;
    let liveness = inspector.liveness(&recovering, &ends)?;
    let mut readers = recovering.readers();
    let mut stat = Stat {
        file_bytes: options.dirs.dirs.iter().map(|dir| crate::place::size_of(dir)).sum(),
        incarnations: Vec::new(),
    };
    for incarnation in &recovering.manifest().incarnations {
        let number = incarnation.number;
        let lanes = readers.extract_if(.., |r| r.incarnation == number).collect();
        let ends = end_vector(&ends, number);
        stat.incarnations.push(walk((&inspector, &liveness), incarnation, lanes, &ends)?);
    }
    if options.json {
        let text = serde_json::to_string(&stat).map_err(std::io::Error::from)?;
        writeln!(out, "{text}")?;
    } else {
        print(&stat, out)?;
    }
    recovering.verdict(&ends)?;
    Ok(true)
}

struct Walk<'a> {
    reader: StreamReader,
    inspect: StreamInspector<'a>,
    stat: StreamStat,
}

impl Walk<'_> {
    /// Reads the items of the next chunk; `None` at the end.
    fn next(
        &mut self,
        liveness: &Liveness,
        kinds: &mut Kinds,
    ) -> Result<Option<Vec<Item>>, Failure> {
        let Some(chunk) = self.reader.next_chunk()? else { return Ok(None) };
        self.inspect.enter(&chunk);
        let mut items = Vec::new();
        for frame in chunk.frames() {
            let mut item = Item { end: frame.end, live: false, order: Vec::new() };
            let mut command = false;
            if let Some(record) = self.inspect.read(&frame)? {
                command = record.is_command();
                let (live, counted) = (record.is_live(liveness), u64::from(record.counts()));
                // Exactly one record of each transaction counts.
                item.live = live && record.counts();
                item.order = record.order().to_vec();
                self.stat.records += if live { counted } else { 0 };
                self.stat.dead += if live { 0 } else { counted };
            }
            let amount = match frame.kind {
                FrameKind::Record if command => &mut kinds.command,
                FrameKind::Record => &mut kinds.data,
                FrameKind::Part => &mut kinds.part,
                FrameKind::Anchor => &mut kinds.anchor,
                FrameKind::Heartbeat => &mut kinds.heartbeat,
                FrameKind::Void => &mut kinds.void,
            };
            amount.frames += 1;
            amount.bytes += frame.end - frame.start;
            items.push(item);
        }
        Ok(Some(items))
    }
}

fn walk(
    (inspector, liveness): (&Inspector, &Liveness),
    incarnation: &Incarnation,
    readers: Vec<StreamReader>,
    ends: &[u64],
) -> Result<IncarnationStat, Trouble> {
    let starts: Vec<u64> = readers.iter().map(StreamReader::start).collect();
    let vectors = incarnation.settings.get("vectors").is_some_and(|v| v != "no");
    let mut depths = Depths::new(&starts, !vectors && !incarnation.data_only);
    let mut walks: Vec<Walk<'_>> = readers
        .into_iter()
        .map(|reader| Walk {
            inspect: inspector.stream(incarnation, reader.stream.0),
            stat: StreamStat {
                stream: reader.stream.0,
                start: reader.start(),
                end: ends[reader.dimension],
                bytes: ends[reader.dimension].saturating_sub(reader.start()),
                records: 0,
                dead: 0,
            },
            reader,
        })
        .collect();
    let mut kinds = Kinds::default();
    let passed =
        depths.pass_all(|lane| walks[lane].next(liveness, &mut kinds)).map_err(Trouble::Failure)?;
    if !passed {
        return Err(Trouble::Failure(Failure::Failed(format!(
            "records of incarnation {} wait for each other in a cycle: its vectors are wrong",
            incarnation.number
        ))));
    }
    let streams: Vec<StreamStat> = walks.into_iter().map(|walk| walk.stat).collect();
    Ok(IncarnationStat {
        number: incarnation.number,
        protocol: incarnation.protocol.clone(),
        data_only: incarnation.data_only,
        clean: incarnation.clean,
        kinds,
        records: depths.records,
        dead: streams.iter().map(|s| s.dead).sum(),
        critical_path: depths.longest,
        parallelism: (depths.longest > 0).then(|| depths.records as f64 / depths.longest as f64),
        streams,
    })
}

fn print(stat: &Stat, out: &mut impl Write) -> Result<(), Trouble> {
    writeln!(out, "files: {}", bytes(stat.file_bytes as f64))?;
    for incarnation in &stat.incarnations {
        let IncarnationStat { number, protocol, streams, .. } = incarnation;
        let holds = if incarnation.data_only { "data records only" } else { "data and commands" };
        let closed = if incarnation.clean { "closed" } else { "not closed cleanly" };
        writeln!(out, "incarnation {number}: {protocol}, {holds}, {closed}")?;
        for s in streams {
            writeln!(
                out,
                "  stream {:<4} {:>10}  LSN {} to {}; {} transactions{}",
                s.stream,
                bytes(s.bytes as f64),
                s.start,
                s.end,
                exact(s.records),
                if s.dead > 0 { format!(", {} dead", exact(s.dead)) } else { String::new() }
            )?;
        }
        let Kinds { data, command, part, anchor, heartbeat, void } = incarnation.kinds;
        let kinds = [
            ("data", data),
            ("command", command),
            ("part", part),
            ("anchor", anchor),
            ("heartbeat", heartbeat),
            ("void", void),
        ];
        for (name, amount) in kinds.into_iter().filter(|(_, amount)| amount.frames > 0) {
            let (frames, size) = (exact(amount.frames), bytes(amount.bytes as f64));
            let each = bytes(amount.bytes as f64 / amount.frames as f64);
            writeln!(out, "  {name:<11} {size:>10}  {frames} frames of {each}")?;
        }
        if let Some(parallelism) = incarnation.parallelism {
            writeln!(
                out,
                "  replay      {parallelism:>10.1}  transactions in parallel: {} in total, over \
                 the longest dependency chain of {}",
                exact(incarnation.records),
                exact(incarnation.critical_path)
            )?;
        }
    }
    Ok(())
}
