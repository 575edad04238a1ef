//! Transactions with several frames: frames ahead of a record, records in other streams, and the
//! records listed by a record.

use super::{Inspected, RowChange, StreamInspector, describe};
use crate::error::Error;
use crate::logging::predecessors;
use crate::logging::row_frame::{FramedChange, RowFrame, RowFrames};
use hyades_wal::{Frame, FrameKind, Lsn};

/// A frame ahead of a transaction's record, with a part of its content.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InspectedPart {
    /// The start of the transaction's first frame: see [`Inspected::first_part`].
    pub first: Lsn,
    /// The transaction's TID, as epoch and sequence number, and the change of a row, where rows
    /// have their own frames and the change fits into this frame.
    pub row: Option<((u64, u64), RowChange)>,
}

/// A record named as a predecessor by another record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedPredecessor {
    /// The predecessor's stream, as a component of vectors.
    pub component: usize,
    /// The end of the predecessor's frame.
    pub lsn: Lsn,
    /// Whether the predecessor was only overwritten, not read: then the follower is live without
    /// the predecessor.
    pub overwritten: bool,
}

impl StreamInspector<'_> {
    /// Decodes a frame ahead of a transaction's record; `None` for other frames. Does not replace
    /// [`read`](Self::read): every frame has to be passed to `read`.
    ///
    /// # Errors
    /// The frame has another format than this version's.
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

    /// Returns the number of transactions with frames among the frames read, but without a record
    /// yet. At the end of the stream: transactions with a record lost in the crash.
    pub fn unfinished(&self) -> usize {
        self.decoder.parts()
    }
}

impl Inspected<'_> {
    /// Returns the start of the first frame of the record's transaction in this stream, if frames
    /// precede the record.
    pub fn first_part(&self) -> Option<Lsn> {
        self.head.continued
    }

    /// Returns the streams with a record of the transaction, as components, if the transaction may
    /// have several records.
    pub fn components(&self) -> Option<Vec<usize>> {
        let set = self.stamp.and_then(|stamp| stamp.written)?;
        Some((0..u64::BITS as usize).filter(|at| set >> at & 1 == 1).collect())
    }

    /// Returns the predecessors listed by this record.
    pub fn predecessors(&self) -> Vec<ListedPredecessor> {
        let listed = self.predecessors.iter().map(|listed| ListedPredecessor {
            component: predecessors::lane(listed.id),
            lsn: predecessors::end(listed.id),
            overwritten: listed.overwritten,
        });
        listed.collect()
    }

    /// Returns the set of partitions permitted to a call logged before its run, a bit for each of
    /// 64.
    pub fn partitions(&self) -> Option<u64> {
        self.head.slots
    }

    /// Returns the numbers of the keyless rows that a command inserted, or the first number that
    /// its call may give: replay gives the same numbers.
    pub fn row_ids(&self) -> &[u64] {
        &self.head.row_ids
    }

    /// Returns the checksum of a command's writes, if the record has a checksum: replay compares
    /// the checksums.
    pub fn outcome(&self) -> Option<u32> {
        self.head.outcome
    }

    /// Returns the number of outcomes of earlier calls stated by the record, where calls are logged
    /// before their run.
    pub fn stated_outcomes(&self) -> usize {
        self.head.outcomes.len()
    }
}
