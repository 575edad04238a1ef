//! Records of a log, of the engine or of a transaction component, as needed by the commands that
//! read logs.

use super::{Trouble, end_vector};
use crate::failure::Failure;
use hyades::inspect::Share;
use hyades_wal::{Chunk, Frame, Incarnation, Lsn, ReaderEnd, Recovering, StreamReader};
use std::io::Write;

/// The records of one stream of one incarnation, in order.
pub trait StreamRecords {
    /// Begins a chunk. To be called before the chunk's frames are read.
    fn enter(&mut self, chunk: &Chunk);

    /// Prints a frame's part of a transaction, and ends the line; false, and nothing is printed, if
    /// the frame has no part of a transaction.
    fn print(&mut self, frame: &Frame<'_>, out: &mut dyn Write) -> Result<bool, Trouble>;

    /// Decodes a frame; `None` if the frame is no transaction's record. Passes the subjects of the
    /// bytes to `share`.
    fn count(
        &mut self,
        frame: &Frame<'_>,
        share: &mut dyn FnMut(Share<'_>),
    ) -> Result<Option<CountedRecord>, Failure>;

    /// Decodes all of a frame; returns whether the frame counts as a transaction.
    fn check(&mut self, frame: &Frame<'_>) -> Result<bool, String>;

    /// The number of transactions with frames among the frames read, and no record.
    fn unfinished(&self) -> usize {
        0
    }
}

/// The records of a log.
pub trait LogRecords: Sync {
    /// The records of the stream of a reader.
    fn stream<'r>(
        &'r self,
        incarnation: &Incarnation,
        reader: &StreamReader,
    ) -> Box<dyn StreamRecords + 'r>;
}

/// A transaction's record.
#[derive(Clone, Debug, Default)]
pub struct CountedRecord {
    /// Whether the record is a command record.
    pub command: bool,
    /// Whether recovery replays the record; a dead record depends on a lost record.
    pub live: bool,
    /// Whether the transaction is counted by this record: exactly one record of several is.
    pub counts: bool,
    /// Whether frames ahead of the record have a part of its content.
    pub has_parts: bool,
    /// Whether other streams have a record of the transaction too.
    pub is_one_of_several: bool,
    /// The transaction's number, under the protocols that number transactions.
    pub number: Option<u64>,
    /// The LSNs that replay has to reach before this record, by component.
    pub order: Vec<Lsn>,
}

/// The incarnations of a log, oldest first, each with the readers of its streams.
pub fn incarnations(
    recovering: &Recovering,
) -> impl Iterator<Item = (&Incarnation, Vec<StreamReader>)> {
    let mut readers = recovering.readers();
    recovering.manifest().incarnations.iter().map(move |incarnation| {
        let of_incarnation = readers.extract_if(.., |r| r.incarnation == incarnation.number);
        (incarnation, of_incarnation.collect())
    })
}

/// The valid ends of each incarnation's streams.
pub fn ends_of(ends: &[ReaderEnd], incarnation: &Incarnation) -> Vec<u64> {
    end_vector(ends, incarnation.number)
}
