//! Transactions with several frames: those ahead of a record, records in other streams, and the
//! records that a record lists.

use super::{Inspected, RowChange, StreamInspector, describe};
use crate::error::Error;
use crate::logging::predecessors;
use crate::logging::row_frame::{FramedChange, RowFrame, RowFrames};
use hyades_wal::{Frame, FrameKind, Lsn};

/// A frame ahead of a transaction's record, with a part of its content.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InspectedPart {
    /// Where the first frame of the transaction begins: see [`Inspected::first_part`].
    pub first: Lsn,
    /// The transaction's TID, as epoch and sequence number, and the change of a row, where rows
    /// have frames of their own and the change fits into this one.
    pub row: Option<((u64, u64), RowChange)>,
}

/// A record that another one names as one that it follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedPredecessor {
    /// Its stream, as a component of vectors.
    pub component: usize,
    /// The end of its frame.
    pub lsn: Lsn,
    /// Whether it was only overwritten, not read: then the follower is live without it.
    pub overwritten: bool,
}

impl StreamInspector<'_> {
    /// Decodes a frame ahead of a transaction's record; `None` for other frames. Does not replace
    /// [`read`](Self::read), which has to see every frame.
    ///
    /// # Errors
    /// The frame is not of this version's format.
    pub fn part(&self, frame: &Frame<'_>) -> Result<Option<InspectedPart>, Error> {
        if frame.kind != FrameKind::Part {
            return Ok(None);
        }
        let broken = || self.decoder.broken(frame, "a part of a transaction");
        if self.shape.rows == RowFrames::None {
            let first = frame.payload.first_chunk::<8>().ok_or_else(broken)?;
            return Ok(Some(InspectedPart { first: Lsn::from_le_bytes(*first), row: None }));
        }
        let framed = RowFrame::read(self.shape.row_heads, frame).ok_or_else(broken)?;
        let mut part = InspectedPart { first: framed.first, row: None };
        if framed.is_whole() {
            part.row = Some(self.row_of(framed.bytes).ok_or_else(broken)?);
        }
        Ok(Some(part))
    }

    fn row_of(&self, bytes: &[u8]) -> Option<((u64, u64), RowChange)> {
        let framed = FramedChange::read(self.shape.rows, bytes)?;
        let mut rest = framed.change;
        let (known, key, change) = self.inspector.take_change(&mut rest)?;
        let row = describe(known, key, change)?;
        rest.is_empty().then_some(((framed.tid.epoch().0, framed.tid.sequence()), row))
    }

    /// Returns how many transactions have frames among those read, but no record yet. At the end of
    /// the stream: those whose record the crash has lost.
    pub fn unfinished(&self) -> usize {
        self.decoder.parts()
    }
}

impl Inspected<'_> {
    /// Returns where the first of its transaction's frames in this stream begins, if some stand
    /// ahead of the record.
    pub fn first_part(&self) -> Option<Lsn> {
        self.head.continued
    }

    /// Returns the streams that have a record of the transaction, as components, if it may have
    /// several.
    pub fn components(&self) -> Option<Vec<usize>> {
        let set = self.stamp.and_then(|stamp| stamp.written)?;
        Some((0..u64::BITS as usize).filter(|at| set >> at & 1 == 1).collect())
    }

    /// Returns the records that this one lists as those that it follows.
    pub fn predecessors(&self) -> Vec<ListedPredecessor> {
        let listed = self.predecessors.iter().map(|listed| ListedPredecessor {
            component: predecessors::lane(listed.id),
            lsn: predecessors::end(listed.id),
            overwritten: listed.overwritten,
        });
        listed.collect()
    }

    /// Returns the set of partitions that a call may access that was logged before it ran, a bit
    /// for each of 64.
    pub fn partitions(&self) -> Option<u64> {
        self.head.slots
    }

    /// Returns the numbers of the rows without a key that a command inserted, or the first that its
    /// call may give: replay gives the same.
    pub fn row_ids(&self) -> &[u64] {
        &self.head.row_ids
    }

    /// Returns the checksum of what a command wrote, if the record has it: replay compares it.
    pub fn outcome(&self) -> Option<u32> {
        self.head.outcome
    }

    /// Returns how many outcomes of earlier calls the record states, where calls are logged before
    /// they run.
    pub fn stated_outcomes(&self) -> usize {
        self.head.outcomes.len()
    }
}
