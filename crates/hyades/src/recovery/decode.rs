//! Decodes frames into transactions: decompresses vectors against the anchor in effect and
//! assembles long bodies from their parts.

use super::parts::{self, Parts};
use super::tombstones::Order;
use crate::error::Error;
use crate::logging::predecessors::Predecessor;
use crate::logging::record::RecordHead;
use crate::logging::row_frame::{RowFrames, RowHeads};
use crate::logging::{NumberStamp, StampFormat, StampKind, VectorStamp};
use crate::storage::tid::Tid;
use hyades_platform::broken;
use hyades_platform::epoch::EpochNumber;
use hyades_wal::{
    Checkpoint, Chunk, Frame, FrameKind, Incarnation, Lane, Lsn, StreamId, read_anchor,
};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The format of an incarnation's records, and the choice of records to replay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordShape {
    /// Components of a vector; 0 if records have no vectors.
    pub lanes: usize,
    /// Components of a record's needs: the components of a vector, or all slots of the frontier if
    /// records have numbers.
    need_lanes: usize,
    pub stamp: StampFormat,
    pub data_only: bool,
    /// Whether rows have several versions at replay, by TID.
    pub versions: bool,
    /// Whether lists of predecessors follow the vectors.
    pub predecessors: bool,
    /// Whether each changed row has its own frame.
    pub rows: RowFrames,
    /// The form in which the row frames name their transaction.
    pub row_heads: RowHeads,
    /// The checkpoint holds the records of epochs up to and including this epoch.
    cut: Option<EpochNumber>,
    /// Records of epochs above this epoch are skipped.
    until: EpochNumber,
    /// Whether the ends of the incarnation's streams have been recorded.
    pub ended: bool,
    /// Set if the records are calls logged before they ran: then whether tables were spread over
    /// partitions as now.
    pub calls: Option<bool>,
    /// Whether transactions drew timestamps at their start.
    pub draws_at_begin: bool,
}

/// The concurrency control, in an incarnation's settings, with transactions that draw timestamps at
/// their start.
const DRAWS_AT_BEGIN: &str = "timestamp-order";

impl RecordShape {
    /// Returns the format of an incarnation's records. `checkpoint`: the records in it are skipped.
    pub fn of(
        incarnation: &Incarnation,
        streams: usize,
        checkpoint: Option<&Checkpoint>,
    ) -> RecordShape {
        let setting = incarnation.settings.get("vectors").map(String::as_str);
        let predecessors = setting == Some("predecessors");
        let lanes = if predecessors || setting == Some("yes") { streams } else { 0 };
        let cut =
            checkpoint.filter(|c| c.incarnation == incarnation.number).map(|c| EpochNumber(c.cut));
        let ended = incarnation.dims.iter().all(|dim| dim.end.is_some());
        let stamp = StampFormat::of(incarnation);
        let numbered = matches!(stamp, StampFormat::Number { .. });
        let need_lanes = if numbered { Lane::count(streams) } else { lanes };
        let data_only = incarnation.data_only;
        let versions = incarnation.settings.contains_key(hyades_wal::VERSIONS);
        let until = EpochNumber::ABOVE_ALL;
        let calls = incarnation.settings.contains_key(hyades_wal::CALLS).then_some(true);
        let setting = |name: &str| incarnation.settings.get(name).map(String::as_str);
        let rows = RowFrames::of(setting("rows"));
        let draws_at_begin = setting("concurrency").is_none_or(|name| name == DRAWS_AT_BEGIN);
        let row_heads = RowHeads::of(setting(hyades_wal::ROW_HEADS));
        RecordShape {
            lanes,
            need_lanes,
            stamp,
            data_only,
            versions,
            predecessors,
            rows,
            row_heads,
            cut,
            until,
            ended,
            calls,
            draws_at_begin,
        }
    }

    /// Whether an incarnation's records omit the entries covered by the anchor in effect.
    pub fn leaves_out(incarnation: &Incarnation) -> bool {
        let setting = incarnation.settings.get("vectors").map(String::as_str);
        matches!(setting, Some("yes" | "predecessors"))
    }

    /// Returns the shape with records of epochs above `epoch` skipped.
    pub fn until(self, epoch: EpochNumber) -> RecordShape {
        RecordShape { until: epoch, ..self }
    }

    /// Returns the shape with records of epochs up to `cut` skipped.
    #[cfg(feature = "replication")]
    pub fn after(self, cut: Option<EpochNumber>) -> RecordShape {
        RecordShape { cut, ..self }
    }

    /// Returns the shape, compared with the present declarations of how tables are spread over
    /// partitions.
    pub fn over(self, incarnation: &Incarnation, declared: &BTreeMap<String, String>) -> Self {
        let calls = self.calls.map(|_| spread_otherwise(incarnation, declared).is_none());
        RecordShape { calls, ..self }
    }

    /// Whether the transaction is skipped: the checkpoint holds it, or its epoch is above `until`.
    pub fn skips(&self, tid: Tid) -> bool {
        if tid.epoch() > self.until {
            return true;
        }
        self.cut.is_some_and(|cut| tid.epoch() <= cut) && !broken!(ReplayBelowCut)
    }

    /// Returns the order that shows when no earlier version of a row can follow, where data records
    /// are replayed in any order; `None` without such an order, see [`super::tombstones`].
    pub fn order_of_versions(&self) -> Option<Order> {
        let is_undone = self.rows == RowFrames::Both;
        match self.stamp {
            _ if is_undone || self.draws_at_begin => None,
            StampFormat::Number { version: Some(_), .. } => Some(Order::Versions),
            _ => Some(Order::Epochs),
        }
    }

    fn stamp_kind(&self, head: &RecordHead) -> StampKind {
        let unordered_readers = self.data_only || self.versions;
        StampKind { command: head.command, unordered_readers }
    }

    /// Whether only the order of records in the stream determines their order of replay.
    pub fn is_sequential(&self) -> bool {
        !self.predecessors && !self.data_only && !self.has_vectors()
    }

    /// The form in which [`parts::add`] has to read frames ahead of a record.
    pub fn row_form(&self) -> (RowFrames, RowHeads) {
        (self.rows, self.row_heads)
    }

    pub fn has_vectors(&self) -> bool {
        self.lanes > 0
    }
}

/// A decoded record. Its vectors are in the decoder.
pub(crate) struct Decoded<'a> {
    pub head: RecordHead,
    pub body: Cow<'a, [u8]>,
    /// The record's stamp, if records have numbers.
    pub stamp: Option<NumberStamp>,
}

impl Decoded<'_> {
    /// Whether the record is counted: true for one record of each transaction.
    pub fn counts(&self) -> bool {
        self.stamp.is_none_or(|stamp| stamp.counts)
    }
}

/// The fault reported by a decoder where a table is spread over partitions otherwise than when
/// calls were logged. A decoder does not know the tables, see [`name_tables`].
const OTHER_PARTITIONS: &str =
    "a table's partitions are declared otherwise than when calls were logged";

/// Finds a table spread otherwise now than when the incarnation's calls were logged, and describes
/// both.
fn spread_otherwise(
    incarnation: &Incarnation,
    declared: &BTreeMap<String, String>,
) -> Option<String> {
    let then = incarnation.settings.get(hyades_wal::CALLS)?;
    let Ok(then) = serde_json::from_str::<BTreeMap<String, String>>(then) else {
        return Some("how tables were spread cannot be read".to_string());
    };
    // No row is left of a table not declared any more.
    let pairs = then.iter().filter_map(|(table, then)| Some((table, then, declared.get(table)?)));
    let mut others = pairs.filter(|(_, then, now)| then != now);
    let (table, then, now) = others.next()?;
    Some(format!("table {table:?} was {}, and is {} now", words(then), words(now)))
}

/// Describes the spread of a table in words.
fn words(spread: &str) -> String {
    match spread.split_once(' ') {
        Some(("by", column)) => format!("partitioned by {column:?}"),
        Some(("slot", number)) => format!("in the partition of slot {number}"),
        _ => spread.to_string(),
    }
}

/// Adds the table concerned to the error.
pub(crate) fn name_tables(
    error: Error,
    incarnation: &Incarnation,
    declared: &BTreeMap<String, String>,
) -> Error {
    let other = match &error {
        Error::Mismatch(fault) if fault == OTHER_PARTITIONS => {
            spread_otherwise(incarnation, declared)
        }
        _ => None,
    };
    other.map_or(error, |other| {
        Error::Mismatch(format!(
            "{other}, but calls that were logged then have to be replayed: open the database with \
             the former declarations, and take a checkpoint first"
        ))
    })
}

/// Decodes one stream's frames in order.
pub(crate) struct Decoder {
    shape: RecordShape,
    stream: StreamId,
    anchor: Vec<Lsn>,
    /// The needs of the last decoded record for being live, and the positions to replay before the
    /// record.
    pub validity: Vec<Lsn>,
    pub order: Vec<Lsn>,
    /// The last record's predecessors, if records list them.
    pub predecessors: Vec<Predecessor>,
    /// Bodies begun in Part frames, by the start of the first frame.
    parts: Parts,
}

impl Decoder {
    pub fn new(shape: RecordShape, stream: StreamId) -> Self {
        Decoder {
            shape,
            stream,
            anchor: vec![0; shape.lanes],
            validity: vec![0; shape.need_lanes],
            order: vec![0; shape.lanes],
            predecessors: Vec::new(),
            parts: Parts::new(),
        }
    }

    /// Returns the anchor in effect for the next frame.
    pub fn anchor(&self) -> &[Lsn] {
        &self.anchor
    }

    /// Returns the number of bytes, over all streams, that the last record follows.
    pub fn prefix_bytes(&self) -> u64 {
        self.order.iter().zip(&self.validity).map(|(order, validity)| order.max(validity)).sum()
    }

    /// Sets the components of `validity` covered by the anchor in effect to zero.
    pub fn forget_what_is_anchored(&mut self) {
        for (lsn, anchor) in self.validity.iter_mut().zip(&self.anchor) {
            *lsn = if *lsn > *anchor { *lsn } else { 0 };
        }
    }

    /// Begins a chunk: loads the anchor in effect at the chunk's start.
    pub fn enter(&mut self, chunk: &Chunk) {
        if self.shape.has_vectors() {
            debug_assert_eq!(
                chunk.anchor().len(),
                self.anchor.len(),
                "an anchor is of all streams"
            );
            self.anchor.copy_from_slice(chunk.anchor());
        }
    }

    /// Begins a chunk with the parts needed by its records.
    pub fn enter_with_parts(&mut self, chunk: &Chunk, parts: Parts) {
        self.enter(chunk);
        self.parts = parts;
    }

    /// The error for a malformed frame.
    pub fn broken(&self, frame: &Frame<'_>, what: &str) -> Error {
        Error::Recovery(format!(
            "the record at Lsn {} of log stream {} is not one of this format ({what}), though its \
             checksum is right: it was written by another version of Hyades",
            frame.start, self.stream
        ))
    }

    /// Decodes the frame if the frame is a transaction's record and is not skipped. Keeps track of
    /// anchors and parts.
    pub fn decode<'a>(&mut self, frame: &Frame<'a>) -> Result<Option<Decoded<'a>>, Error> {
        match frame.kind {
            FrameKind::Record => {}
            FrameKind::Anchor => {
                if self.shape.has_vectors()
                    && read_anchor(frame.payload, &mut self.anchor).is_none()
                {
                    return Err(self.broken(frame, "an anchor of another number of streams"));
                }
                return Ok(None);
            }
            FrameKind::Part => {
                return match parts::add(&mut self.parts, self.shape.row_form(), frame) {
                    Some(()) => Ok(None),
                    None => Err(self.broken(frame, "a part without its beginning")),
                };
            }
            _ => return Ok(None),
        }
        let mut rest = frame.payload;
        let Some(mut head) = self.shape.stamp.head(&mut rest) else {
            return Err(self.broken(frame, "its head"));
        };
        if !self.shape.versions && (head.as_of.is_some() || head.floor.is_some()) {
            return Err(self.broken(frame, "versions of rows, which its log does not keep"));
        }
        if self.shape.skips(head.tid) {
            // The first parts of the record may have been truncated from the log.
            self.forget_parts(head.continued);
            return Ok(None);
        }
        if self.shape.calls == Some(false) {
            return Err(Error::Mismatch(OTHER_PARTITIONS.to_string()));
        }
        let mut stamp = None;
        match self.shape.stamp {
            StampFormat::Empty => {}
            StampFormat::Number { read, .. } => {
                self.validity.fill(0);
                stamp = read(head.tid, &mut rest, &mut self.validity);
                if stamp.is_none() {
                    return Err(self.broken(frame, "its number"));
                }
            }
            StampFormat::Vectors { read, .. } => {
                let kind = self.shape.stamp_kind(&head);
                let out = VectorStamp {
                    anchor: &self.anchor,
                    validity: &mut self.validity,
                    order: &mut self.order,
                    predecessors: &mut self.predecessors,
                    slots: &mut head.slots,
                    outcomes: &mut head.outcomes,
                };
                read(kind, &mut rest, out).map_err(|what| self.broken(frame, what))?;
            }
        }
        let body = self.body(frame, head.continued, rest)?;
        Ok(Some(Decoded { head, body, stamp }))
    }

    /// Returns the body of a record; the body ends with `rest` and may have begun in other frames.
    fn body<'a>(
        &self,
        frame: &Frame<'_>,
        continued: Option<Lsn>,
        rest: &'a [u8],
    ) -> Result<Cow<'a, [u8]>, Error> {
        let Some(first) = continued else { return Ok(Cow::Borrowed(rest)) };
        let group = self.parts.get(&first).filter(|group| !group.incomplete);
        let Some(mut body) = group.map(|group| group.body.clone()) else {
            return Err(self.broken(frame, "its parts are missing"));
        };
        body.extend_from_slice(rest);
        Ok(Cow::Owned(body))
    }

    /// Decodes a record ahead of its turn: its head, and its body, unless the body began in other
    /// frames. `None` if the frame is not a record, is skipped, or cannot be decoded ahead.
    pub fn peek<'a>(&self, frame: &Frame<'a>) -> Option<(RecordHead, &'a [u8])> {
        let shape = &self.shape;
        if frame.kind != FrameKind::Record {
            return None;
        }
        let mut rest = frame.payload;
        let head = shape.stamp.head(&mut rest)?;
        if head.continued.is_some() || shape.skips(head.tid) {
            return None;
        }
        match shape.stamp {
            StampFormat::Empty => {}
            StampFormat::Vectors { skip, .. } => skip?(shape.stamp_kind(&head), &mut rest)?,
            StampFormat::Number { .. } => return None,
        }
        Some((head, rest))
    }

    /// Returns the bytes of the before-images in the frames from `first` on.
    pub fn before_bytes(&self, first: Option<Lsn>) -> u64 {
        first.and_then(|first| self.parts.get(&first)).map_or(0, parts::Group::before_bytes)
    }

    /// Returns the number of transactions with parts and no record yet.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Frees the parts at `first` after their record was handled.
    pub fn forget_parts(&mut self, first: Option<Lsn>) {
        if let Some(first) = first {
            self.parts.remove(&first);
        }
    }
}
