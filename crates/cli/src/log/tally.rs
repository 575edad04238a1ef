//! The subjects of the frames of an incarnation: by kind, procedure and table.

use super::records::CountedRecord;
use crate::units::{bytes, exact};
use hyades::inspect::{Share, ShareOf};
use hyades_wal::{Frame, FrameKind};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// A number of frames and their bytes.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Amount {
    frames: u64,
    bytes: u64,
}

/// Frames by kind.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Kinds {
    data: Amount,
    command: Amount,
    part: Amount,
    /// Records in the checkpoint: replay skips such records.
    covered: Amount,
    anchor: Amount,
    heartbeat: Amount,
    void: Amount,
}

/// Calls of a procedure.
#[derive(Clone, Debug, Serialize)]
struct ProcedureTally {
    name: String,
    version: u32,
    calls: u64,
    /// Bytes of the calls' encoded numbers and arguments.
    bytes: u64,
}

/// Changes of a table's rows.
#[derive(Clone, Debug, Serialize)]
struct TableTally {
    name: String,
    changes: u64,
    /// Bytes of the encoded changes, keys included.
    bytes: u64,
}

/// The subjects of transactions' frames. Dead records count.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Contents {
    procedures: Vec<ProcedureTally>,
    tables: Vec<TableTally>,
    before_image_bytes: u64,
    /// The rest of records and their parts: heads, checksums, stamps, unfinished transactions.
    overhead_bytes: u64,
    /// Transactions whose content begins in frames ahead of the record.
    with_parts: u64,
    /// Transactions with records in several streams.
    in_several_streams: u64,
    /// Transactions with parts, whose record the crash has lost.
    pub unfinished: u64,
}

/// Counts frames.
#[derive(Debug, Default)]
pub struct FrameTally {
    kinds: Kinds,
    procedures: BTreeMap<(String, u32), (u64, u64)>,
    tables: BTreeMap<String, (u64, u64)>,
    contents: Contents,
}

fn add<K: Ord>(to: &mut BTreeMap<K, (u64, u64)>, key: K, share: Share<'_>) {
    let sum = to.entry(key).or_default();
    *sum = (sum.0 + share.count, sum.1 + share.bytes);
}

impl FrameTally {
    /// Counts a part of a record.
    pub fn share(&mut self, share: Share<'_>) {
        match share.subject {
            ShareOf::Procedure(name, version) => {
                add(&mut self.procedures, (name.to_string(), version), share);
            }
            ShareOf::Table(name) => add(&mut self.tables, name.to_string(), share),
            ShareOf::BeforeImages => self.contents.before_image_bytes += share.bytes,
            // The bytes stay in the overhead.
            _ => {}
        }
    }

    /// Counts a frame, and its part of a transaction.
    pub fn frame(&mut self, frame: &Frame<'_>, record: Option<&CountedRecord>) {
        let kinds = &mut self.kinds;
        let amount = match (frame.kind, record) {
            (FrameKind::Record, Some(CountedRecord { command: true, .. })) => &mut kinds.command,
            (FrameKind::Record, Some(_)) => &mut kinds.data,
            (FrameKind::Record, None) => &mut kinds.covered,
            (FrameKind::Part, _) => &mut kinds.part,
            (FrameKind::Anchor, _) => &mut kinds.anchor,
            (FrameKind::Heartbeat, _) => &mut kinds.heartbeat,
            (FrameKind::Void, _) => &mut kinds.void,
        };
        amount.frames += 1;
        amount.bytes += frame.end - frame.start;
        if let Some(record) = record.filter(|record| record.counts) {
            self.contents.with_parts += u64::from(record.has_parts);
            self.contents.in_several_streams += u64::from(record.is_one_of_several);
        }
    }

    /// The sums, with the number of unfinished transactions.
    pub fn finish(self, unfinished: u64) -> (Kinds, Contents) {
        let FrameTally { kinds, procedures, tables, mut contents } = self;
        let procedures = procedures.into_iter();
        contents.procedures = procedures
            .map(|((name, version), (calls, bytes))| ProcedureTally { name, version, calls, bytes })
            .collect();
        let tables = tables.into_iter();
        contents.tables =
            tables.map(|(name, (changes, bytes))| TableTally { name, changes, bytes }).collect();
        let frames = kinds.data.bytes + kinds.command.bytes + kinds.part.bytes;
        let known = contents.procedures.iter().map(|procedure| procedure.bytes).sum::<u64>()
            + contents.tables.iter().map(|table| table.bytes).sum::<u64>()
            + contents.before_image_bytes;
        contents.overhead_bytes = frames.saturating_sub(known);
        contents.unfinished = unfinished;
        (kinds, contents)
    }
}

impl Kinds {
    /// Prints a line for each kind with frames.
    pub fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let Kinds { data, command, part, covered, anchor, heartbeat, void } = self;
        let kinds = [
            ("data", data),
            ("command", command),
            ("part", part),
            ("covered", covered),
            ("anchor", anchor),
            ("heartbeat", heartbeat),
            ("void", void),
        ];
        for (name, amount) in kinds.into_iter().filter(|(_, amount)| amount.frames > 0) {
            let (frames, size) = (exact(amount.frames), bytes(amount.bytes as f64));
            let each = bytes(amount.bytes as f64 / amount.frames as f64);
            writeln!(out, "  {name:<11} {size:>10}  {frames} frames of {each}")?;
        }
        Ok(())
    }
}

impl Contents {
    /// Prints a line for each procedure, each table, and the rest.
    pub fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let each = |size: u64, n: u64| bytes(size as f64 / n.max(1) as f64);
        for ProcedureTally { name, version, calls, bytes: size } in &self.procedures {
            let (calls, mean) = (exact(*calls), each(*size, *calls));
            let size = bytes(*size as f64);
            writeln!(out, "  {size:>22}  {calls} calls of {name} version {version}, {mean} each")?;
        }
        for TableTally { name, changes, bytes: size } in &self.tables {
            let (changes, mean) = (exact(*changes), each(*size, *changes));
            let size = bytes(*size as f64);
            writeln!(out, "  {size:>22}  {changes} changes in {name}, {mean} each")?;
        }
        let rest = [
            (self.before_image_bytes, "before-images"),
            (self.overhead_bytes, "heads, checksums and stamps of these"),
        ];
        for (size, what) in rest.into_iter().filter(|(size, _)| *size > 0) {
            writeln!(out, "  {:>22}  {what}", bytes(size as f64))?;
        }
        let transactions = [
            (self.with_parts, "transactions with several frames in a stream"),
            (self.in_several_streams, "transactions with records in several streams"),
            (self.unfinished, "transactions whose record is lost"),
        ];
        for (count, what) in transactions.into_iter().filter(|(count, _)| *count > 0) {
            writeln!(out, "  {:>22}  {what}", exact(count))?;
        }
        Ok(())
    }
}
