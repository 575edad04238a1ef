//! The records of a log, for recovery and for tools.

use crate::data_component::Operation;
use crate::error::Error;
use crate::transaction_component::record;
use hyades_wal::{Chunk, Frame, FrameKind, Lsn, StreamReader, read_anchor};

/// The protocol of the incarnations of a log of a transaction component (`docs/format.md`, 13).
pub const PROTOCOL: &str = "deuteronomy";

/// A committed transaction that wrote something, as a record states it.
#[derive(Debug)]
pub struct LoggedTransaction<'r> {
    /// Its timestamp.
    pub ts: u64,
    /// By stream of its incarnation, what it depends on: it is part of the recovered state if all
    /// these positions are valid.
    pub vector: &'r [Lsn],
    /// What it wrote, by key.
    pub operations: Vec<Operation<'r>>,
}

/// Reads the records of one stream of one incarnation, in order.
#[derive(Debug)]
pub struct RecordReader {
    stream: u32,
    incarnation: u32,
    /// What the last anchor has stated.
    anchor: Vec<Lsn>,
    vector: Vec<Lsn>,
}

impl RecordReader {
    /// For the stream of this reader.
    pub fn new(reader: &StreamReader) -> Self {
        let vector = vec![0; reader.dimensions];
        let (stream, incarnation) = (reader.stream.0, reader.incarnation);
        Self { stream, incarnation, anchor: vector.clone(), vector }
    }

    /// Begins a chunk. To be called before its frames are read.
    pub fn enter(&mut self, chunk: &Chunk) {
        self.anchor.clear();
        self.anchor.extend_from_slice(chunk.anchor());
    }

    /// Reads a frame; None if it is no transaction's record.
    ///
    /// # Errors
    /// [`Error::Invalid`]: its bytes are not those of a record, though its checksum is right.
    pub fn read<'r>(
        &'r mut self,
        frame: &Frame<'r>,
    ) -> Result<Option<LoggedTransaction<'r>>, Error> {
        match frame.kind {
            FrameKind::Anchor => {
                // One for another number of streams states nothing here.
                let _ = read_anchor(frame.payload, &mut self.anchor);
                Ok(None)
            }
            FrameKind::Record => {
                let read = record::read(frame.payload, &self.anchor, &mut self.vector);
                let (ts, operations) = read.map_err(|why| {
                    Error::Invalid(format!(
                        "the record at {} of stream {} in incarnation {} cannot be read: {why}",
                        frame.start, self.stream, self.incarnation
                    ))
                })?;
                Ok(Some(LoggedTransaction { ts, vector: &self.vector, operations }))
            }
            _ => Ok(None),
        }
    }
}
