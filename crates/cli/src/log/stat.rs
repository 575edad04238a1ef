//! `hyades log stat`: prints sizes by stream and kind, incarnations, and how parallel replay can
//! be.

use super::depth::{Depths, Item};
use super::records::{LogRecords, StreamRecords, ends_of, incarnations};
use super::tally::{Contents, FrameTally, Kinds};
use super::{Dirs, Trouble, open, records_of, survey};
use crate::failure::Failure;
use crate::units::{bytes, exact};
use clap::Args;
use hyades_wal::{Incarnation, ReaderEnd, StreamReader};
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

#[derive(Clone, Debug, Serialize)]
struct StreamStat {
    stream: u32,
    start: u64,
    end: u64,
    bytes: u64,
    records: u64,
    dead: u64,
    /// Records of transactions that are counted in another stream, for transactions with records
    /// there.
    further_records: u64,
    /// The highest number of the stream's records, if the records have numbers.
    highest_number: Option<u64>,
    /// The number up to which the stream has stated to hold all its records; 0 without numbers.
    mark: u64,
}

#[derive(Clone, Debug, Serialize)]
struct IncarnationStat {
    number: u32,
    protocol: String,
    data_only: bool,
    clean: bool,
    streams: Vec<StreamStat>,
    kinds: Kinds,
    contents: Contents,
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
    let ends = survey(&recovering)?;
    let records = records_of(&recovering, &ends)?;
    let mut stat = Stat {
        file_bytes: options.dirs.dirs.iter().map(|dir| crate::place::size_of(dir)).sum(),
        incarnations: Vec::new(),
    };
    for (incarnation, lanes) in incarnations(&recovering) {
        stat.incarnations.push(walk(&*records, incarnation, lanes, &ends)?);
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
    records: Box<dyn StreamRecords + 'a>,
    stat: StreamStat,
}

impl Walk<'_> {
    /// Reads the items of the next chunk; `None` at the end.
    fn next(&mut self, tally: &mut FrameTally) -> Result<Option<Vec<Item>>, Failure> {
        let Some(chunk) = self.reader.next_chunk()? else { return Ok(None) };
        self.records.enter(&chunk);
        let mut items = Vec::new();
        for frame in chunk.frames() {
            let mut item = Item { end: frame.end, live: false, order: Vec::new() };
            let record = self.records.count(&frame, &mut |share| tally.share(share))?;
            tally.frame(&frame, record.as_ref());
            if let Some(record) = record {
                // Exactly one record of each transaction counts.
                item.live = record.live && record.counts;
                item.order = record.order;
                self.stat.records += u64::from(item.live);
                self.stat.dead += u64::from(record.counts && !record.live);
                self.stat.further_records += u64::from(!record.counts);
                self.stat.highest_number = self.stat.highest_number.max(record.number);
            }
            items.push(item);
        }
        Ok(Some(items))
    }
}

fn walk(
    records: &dyn LogRecords,
    incarnation: &Incarnation,
    readers: Vec<StreamReader>,
    all_ends: &[ReaderEnd],
) -> Result<IncarnationStat, Trouble> {
    let starts: Vec<u64> = readers.iter().map(StreamReader::start).collect();
    let vectors = incarnation.settings.get("vectors").is_some_and(|v| v != "no");
    let mut depths = Depths::new(&starts, !vectors && !incarnation.data_only);
    let ends = ends_of(all_ends, incarnation);
    let mark = |reader: &StreamReader| {
        let is_same =
            |end: &&ReaderEnd| (end.incarnation, end.stream) == (incarnation.number, reader.stream);
        all_ends.iter().find(is_same).map_or(0, |end| end.mark)
    };
    let begin = |reader: StreamReader| Walk {
        records: records.stream(incarnation, &reader),
        stat: StreamStat {
            stream: reader.stream.0,
            start: reader.start(),
            end: ends[reader.dimension],
            bytes: ends[reader.dimension].saturating_sub(reader.start()),
            records: 0,
            dead: 0,
            further_records: 0,
            highest_number: None,
            mark: mark(&reader),
        },
        reader,
    };
    let mut walks: Vec<Walk<'_>> = readers.into_iter().map(begin).collect();
    let mut tally = FrameTally::default();
    let passed = depths.pass_all(|lane| walks[lane].next(&mut tally)).map_err(Trouble::Failure)?;
    if !passed {
        return Err(Trouble::Failure(Failure::Failed(format!(
            "records of incarnation {} wait for each other in a cycle: its vectors are wrong",
            incarnation.number
        ))));
    }
    let unfinished = walks.iter().map(|walk| walk.records.unfinished() as u64).sum();
    let (kinds, contents) = tally.finish(unfinished);
    let streams: Vec<StreamStat> = walks.into_iter().map(|walk| walk.stat).collect();
    Ok(IncarnationStat {
        number: incarnation.number,
        protocol: incarnation.protocol.clone(),
        data_only: incarnation.data_only,
        clean: incarnation.clean,
        kinds,
        contents,
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
            let numbers = match s.highest_number {
                Some(highest) => {
                    format!("; numbers to {}, all to {}", exact(highest), exact(s.mark))
                }
                None => String::new(),
            };
            let further = match s.further_records {
                0 => String::new(),
                n => format!(", records of {} counted elsewhere", exact(n)),
            };
            writeln!(
                out,
                "  stream {:<4} {:>10}  LSN {} to {}; {} transactions{}{further}{numbers}",
                s.stream,
                bytes(s.bytes as f64),
                s.start,
                s.end,
                exact(s.records),
                if s.dead > 0 { format!(", {} dead", exact(s.dead)) } else { String::new() }
            )?;
        }
        incarnation.kinds.print(out)?;
        incarnation.contents.print(out)?;
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
