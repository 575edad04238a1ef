//! The records of a log, for recovery and for tools.

use crate::data_component::Operation;
use crate::error::Error;
use crate::times::{MarkSearch, TimeMark};
use crate::transaction_component::record::{self, ReadRecord};
use hyades_wal::{Chunk, Frame, FrameKind, Lsn, StreamReader, read_anchor};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The protocol of the incarnations of a log of a transaction component (`docs/format.md`, 13).
pub const PROTOCOL: &str = "deuteronomy";

/// A committed transaction with writes, as stated by a record.
#[derive(Debug)]
pub struct LoggedTransaction<'r> {
    /// The timestamp.
    pub ts: u64,
    /// By stream of the incarnation, the transaction's dependencies: the transaction is part of the
    /// recovered state if all these positions are valid.
    pub vector: &'r [Lsn],
    /// The writes, by key.
    pub operations: Vec<Operation<'r>>,
    /// The number of frames before the record that hold parts of the transaction.
    pub parts: u64,
}

/// The parts of a transaction read so far.
#[derive(Clone, Debug, Default)]
struct PartsRead {
    first: Lsn,
    count: u64,
    /// The operations, in the order of the parts.
    operations: Vec<u8>,
}

/// The timestamps of transactions with parts and without a record: aborted, or not ended. Found by
/// a look at all frames, each stream in its order.
#[derive(Clone, Debug, Default)]
pub(crate) struct PartsWithoutRecord {
    timestamps: BTreeSet<u64>,
    /// The highest timestamp of any record or part.
    highest_ts: u64,
    /// The time mark looked for.
    pub(crate) times: MarkSearch,
}

impl PartsWithoutRecord {
    /// Takes the next frame of a stream. An unreadable frame is left to a [`RecordReader`].
    pub fn note(&mut self, frame: &Frame<'_>) {
        match frame.kind {
            FrameKind::Part => {
                if let Ok((ts, _)) = record::read_part(frame.payload) {
                    self.timestamps.insert(ts);
                    self.highest_ts = self.highest_ts.max(ts);
                }
            }
            FrameKind::Record => {
                self.times.note(frame.payload);
                if let Some((ts, has_parts)) = record::read_ts(frame.payload) {
                    self.highest_ts = self.highest_ts.max(ts);
                    if has_parts {
                        self.timestamps.remove(&ts);
                    }
                }
            }
            _ => {}
        }
    }

    /// The highest timestamp of a record or a part, of whatever transaction; 0 if there was none.
    pub fn highest_ts(&self) -> u64 {
        self.highest_ts
    }
}

/// Reads the records of a stream of an incarnation, in order.
#[derive(Debug)]
pub struct RecordReader {
    stream: u32,
    incarnation: u32,
    /// The vector of the last anchor.
    anchor: Vec<Lsn>,
    vector: Vec<Lsn>,
    /// The start of the first frame read.
    begin: Option<Lsn>,
    /// By timestamp, the parts of transactions without a record among the frames read so far. Parts
    /// of aborted transactions stay until the end, unless left out.
    parts: BTreeMap<u64, PartsRead>,
    left_out: Arc<PartsWithoutRecord>,
    /// The parts of the transaction read last.
    own: PartsRead,
    /// The highest timestamp of a record or a part read so far.
    highest_ts: u64,
}

impl RecordReader {
    /// Makes a record reader for the stream of `reader`.
    pub fn new(reader: &StreamReader) -> Self {
        let vector = vec![0; reader.dimensions];
        Self {
            stream: reader.stream.0,
            incarnation: reader.incarnation,
            anchor: vector.clone(),
            vector,
            begin: None,
            parts: BTreeMap::new(),
            left_out: Arc::default(),
            own: PartsRead::default(),
            highest_ts: 0,
        }
    }

    /// Leaves out the parts of the transactions in `without_record`.
    pub(crate) fn leave_out(&mut self, without_record: Arc<PartsWithoutRecord>) {
        self.left_out = without_record;
    }

    /// Begins a chunk. Call this before the chunk's frames are read.
    pub fn enter(&mut self, chunk: &Chunk) {
        self.anchor.clear();
        self.anchor.extend_from_slice(chunk.anchor());
    }

    fn wrong(&self, frame: &Frame<'_>, why: &str) -> Error {
        Error::Invalid(format!(
            "the record at {} of stream {} in incarnation {} cannot be read: {why}",
            frame.start, self.stream, self.incarnation
        ))
    }

    /// Reads a frame; None if the frame is no transaction's record. None as well if parts of the
    /// transaction come before the first frame read: a log is read, and truncated, from a position
    /// where the data component holds every transaction with earlier parts.
    ///
    /// # Errors
    /// [`Error::Invalid`]: the bytes are not the bytes of a record, though the checksum is right,
    /// or a part of the transaction is missing.
    pub fn read<'r>(
        &'r mut self,
        frame: &Frame<'r>,
    ) -> Result<Option<LoggedTransaction<'r>>, Error> {
        let begin = *self.begin.get_or_insert(frame.start);
        match frame.kind {
            FrameKind::Anchor => {
                // An anchor for another number of streams states nothing here.
                let _ = read_anchor(frame.payload, &mut self.anchor);
                Ok(None)
            }
            FrameKind::Part => self.read_part(frame).map(|()| None),
            FrameKind::Record if TimeMark::read(frame.payload).is_some() => Ok(None),
            FrameKind::Record => {
                let read = record::read(frame.payload, &self.anchor, &mut self.vector);
                let ReadRecord { ts, parts, operations } =
                    read.map_err(|why| self.wrong(frame, why))?;
                self.highest_ts = self.highest_ts.max(ts);
                let Some(parts) = parts else {
                    let vector = &self.vector;
                    return Ok(Some(LoggedTransaction { ts, vector, operations, parts: 0 }));
                };
                self.own = self.parts.remove(&ts).unwrap_or_default();
                if parts.first < begin {
                    return Ok(None);
                }
                if (self.own.first, self.own.count) != (parts.first, parts.count) {
                    return Err(self.wrong(frame, "a part of its transaction is missing"));
                }
                let all = record::read_operations(&self.own.operations, ts);
                let mut all = all.map_err(|why| self.wrong(frame, why))?;
                all.extend(operations);
                let (operations, parts) = (last_of_each_key(all), parts.count);
                Ok(Some(LoggedTransaction { ts, vector: &self.vector, operations, parts }))
            }
            _ => Ok(None),
        }
    }

    /// Reads a frame that states a time; None if the frame states none.
    pub fn read_time(frame: &Frame<'_>) -> Option<TimeMark> {
        let is_record = frame.kind == FrameKind::Record;
        is_record.then(|| TimeMark::read(frame.payload)).flatten()
    }

    /// The highest timestamp of a record or a part read so far; 0 if none.
    pub fn highest_ts(&self) -> u64 {
        self.highest_ts
    }

    /// Returns the number of transactions with parts among the frames read, and no record; without
    /// transactions left out.
    pub fn unfinished(&self) -> usize {
        self.parts.len()
    }

    fn read_part(&mut self, frame: &Frame<'_>) -> Result<(), Error> {
        let read = record::read_part(frame.payload);
        let (ts, operations) = read.map_err(|why| self.wrong(frame, why))?;
        self.highest_ts = self.highest_ts.max(ts);
        if self.left_out.timestamps.contains(&ts) {
            return Ok(());
        }
        let parts = self
            .parts
            .entry(ts)
            .or_insert_with(|| PartsRead { first: frame.start, ..PartsRead::default() });
        parts.count += 1;
        parts.operations.extend_from_slice(operations);
        Ok(())
    }
}

/// Returns the last operation of each key, by key: a transaction with a second write of a key logs
/// the key again.
fn last_of_each_key(mut operations: Vec<Operation<'_>>) -> Vec<Operation<'_>> {
    operations.reverse();
    // Stable: the last operation stays the first of its key.
    operations.sort_by_key(|operation| operation.key);
    operations.dedup_by(|later, first| later.key == first.key);
    operations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_operation_on_a_key_counts() {
        let operation = |key, value: &'static [u8]| Operation { key, ts: 1, value: Some(value) };
        let operations = vec![
            operation(&b"b"[..], b"1"),
            operation(b"a", b"2"),
            operation(b"b", b"3"),
            operation(b"b", b"4"),
        ];
        assert_eq!(last_of_each_key(operations), [operation(b"a", b"2"), operation(b"b", b"4")]);
    }
}
