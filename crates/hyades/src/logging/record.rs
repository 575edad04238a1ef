//! The transaction record: the payload of a Record frame. docs/format.md, "Transaction records", is
//! the specification; this file writes and reads records.

use super::outcomes::StatedSum;
use crate::storage::edits::check_edits;
use crate::storage::layout::Layout;
use crate::storage::row::{check_delta, push_varint, take, take_varint};
use crate::storage::tid::Tid;
use hyades_platform::epoch::EpochNumber;
use serde::{Deserialize, Serialize};

/// How a transaction is written to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum RecordKind {
    /// The changed rows: whole rows, or the changed columns. Replay needs no procedures.
    Data,
    /// The procedure's number and arguments. Replay runs the procedure again, so the procedure must
    /// be deterministic, and registered as long as the log holds calls to it. Not under every
    /// protocol, see [`Protocol::takes_commands`](crate::Protocol::takes_commands).
    Command,
    /// The better kind for the transaction: by record size and replay depth.
    Adaptive,
}

/// Flags in a record's first byte.
mod flag {
    pub const COMMAND: u8 = 1;
    /// The transaction's time follows.
    pub const TIME: u8 = 2;
    /// The seed of the transaction's random numbers follows.
    pub const SEED: u8 = 4;
    /// The hidden row ids allocated by the transaction follow.
    pub const ROW_IDS: u8 = 8;
    /// The body begins in Part frames; the start of the first frame follows.
    pub const CONTINUED: u8 = 16;
    /// The start time of the transaction's epoch follows.
    pub const EPOCH: u8 = 32;
    /// A checksum of the command's writes follows.
    pub const OUTCOME: u8 = 64;
    /// Data about versions follow, see [`super::version_flag`].
    pub const VERSIONS: u8 = 128;
}

/// Flags in the byte announced by [`flag::VERSIONS`]. TIDs are stated as distances below the
/// record's own TID.
mod version_flag {
    /// The TID as of which the transaction read follows; otherwise the record's own TID.
    pub const AS_OF: u8 = 1;
    /// The floor follows.
    pub const FLOOR: u8 = 2;
    pub const ALL: u8 = 3;
}

/// The head of a record: the part before the vectors and the body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordHead {
    pub command: bool,
    pub tid: Tid,
    pub time_us: Option<i64>,
    pub seed: Option<u64>,
    /// When the record's epoch began, microseconds since 1970; in a session's first record of the
    /// epoch.
    pub epoch_us: Option<u64>,
    /// A checksum of a command's writes, in some commands, for replay to compare.
    pub outcome: Option<u32>,
    pub row_ids: Vec<u64>,
    /// The TID as of which a command read, if not its own TID, where replay keeps several versions
    /// of rows.
    pub as_of: Option<Tid>,
    /// No later record in the stream read as of a lower TID.
    pub floor: Option<Tid>,
    /// The start of the first Part frame, in the same stream.
    pub continued: Option<u64>,
    /// The slots of partitions that a call may access, if logged before execution. The slots stand
    /// in the record's stamp, not in the head.
    pub slots: Option<u64>,
    /// Outcomes of earlier calls that were logged before execution. In the stamp, too.
    pub outcomes: Vec<StatedSum>,
}

impl RecordHead {
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut flags = if self.command { flag::COMMAND } else { 0 };
        flags |= if self.time_us.is_some() { flag::TIME } else { 0 };
        flags |= if self.seed.is_some() { flag::SEED } else { 0 };
        flags |= if self.epoch_us.is_some() { flag::EPOCH } else { 0 };
        flags |= if self.outcome.is_some() { flag::OUTCOME } else { 0 };
        flags |= if self.row_ids.is_empty() { 0 } else { flag::ROW_IDS };
        flags |= if self.continued.is_some() { flag::CONTINUED } else { 0 };
        let has_versions = self.as_of.is_some() || self.floor.is_some();
        flags |= if has_versions { flag::VERSIONS } else { 0 };
        push_start(out, flags, self.tid);
        if let Some(time) = self.time_us {
            out.extend_from_slice(&time.to_le_bytes());
        }
        if let Some(seed) = self.seed {
            out.extend_from_slice(&seed.to_le_bytes());
        }
        if let Some(began) = self.epoch_us {
            out.extend_from_slice(&began.to_le_bytes());
        }
        if let Some(outcome) = self.outcome {
            out.extend_from_slice(&outcome.to_le_bytes());
        }
        if !self.row_ids.is_empty() {
            push_row_ids(out, &self.row_ids);
        }
        if let Some(first) = self.continued {
            push_varint(out, first);
        }
        if has_versions {
            let as_of = if self.as_of.is_some() { version_flag::AS_OF } else { 0 };
            let floor = if self.floor.is_some() { version_flag::FLOOR } else { 0 };
            out.push(as_of | floor);
            for tid in self.as_of.into_iter().chain(self.floor) {
                push_varint(out, self.tid.bits() - tid.bits());
            }
        }
    }

    /// Reads the head and advances `bytes` past it.
    pub fn decode(bytes: &mut &[u8]) -> Option<RecordHead> {
        let flags = take(bytes, 1)?[0];
        let tid = take_tid(bytes)?;
        let mut head =
            RecordHead { command: flags & flag::COMMAND != 0, tid, ..RecordHead::default() };
        if flags & flag::TIME != 0 {
            head.time_us = Some(i64::from_le_bytes(take(bytes, 8)?.try_into().ok()?));
        }
        if flags & flag::SEED != 0 {
            head.seed = Some(u64::from_le_bytes(take(bytes, 8)?.try_into().ok()?));
        }
        if flags & flag::EPOCH != 0 {
            head.epoch_us = Some(u64::from_le_bytes(take(bytes, 8)?.try_into().ok()?));
        }
        if flags & flag::OUTCOME != 0 {
            head.outcome = Some(u32::from_le_bytes(take(bytes, 4)?.try_into().ok()?));
        }
        if flags & flag::ROW_IDS != 0 {
            let n = take_varint(bytes)?;
            if n > bytes.len() as u64 {
                return None;
            }
            head.row_ids = (0..n).map(|_| take_varint(bytes)).collect::<Option<_>>()?;
        }
        if flags & flag::CONTINUED != 0 {
            head.continued = Some(take_varint(bytes)?);
        }
        if flags & flag::VERSIONS != 0 {
            let flags = take(bytes, 1)?[0];
            if flags & !version_flag::ALL != 0 {
                return None;
            }
            let mut below = || tid.bits().checked_sub(take_varint(bytes)?).map(Tid::from_bits);
            if flags & version_flag::AS_OF != 0 {
                head.as_of = Some(below()?);
            }
            if flags & version_flag::FLOOR != 0 {
                head.floor = Some(below()?);
            }
        }
        Some(head)
    }
}

/// Appends a TID as two varints.
#[inline]
pub(crate) fn push_tid(out: &mut Vec<u8>, tid: Tid) {
    push_varint(out, tid.epoch().0);
    push_varint(out, tid.sequence());
}

/// Appends the head of a record with only kind and TID, as nearly all records have.
#[inline(always)]
pub(crate) fn push_plain_head(out: &mut Vec<u8>, command: bool, tid: Tid) {
    push_start(out, if command { flag::COMMAND } else { 0 }, tid);
}

/// Appends the head of a command's record with only the drawn row ids, as of calls that insert rows
/// without a primary key: [`RecordHead::encode`] gives the same.
#[inline]
pub(crate) fn push_head_with_ids(out: &mut Vec<u8>, tid: Tid, row_ids: &[u64]) {
    push_start(out, flag::COMMAND | flag::ROW_IDS, tid);
    push_row_ids(out, row_ids);
}

#[inline]
fn push_row_ids(out: &mut Vec<u8>, row_ids: &[u64]) {
    push_varint(out, row_ids.len() as u64);
    row_ids.iter().for_each(|id| push_varint(out, *id));
}

/// Appends the flags and the TID, the start of every head.
#[inline(always)]
fn push_start(out: &mut Vec<u8>, flags: u8, tid: Tid) {
    let Some((start, bytes)) = start_in_a_word(flags, tid) else {
        out.push(flags);
        push_tid(out, tid);
        return;
    };
    // In one store, truncated afterwards.
    let end = out.len() + bytes;
    out.extend_from_slice(&(start as u32).to_le_bytes());
    out.truncate(end);
}

/// Returns the flags and the TID, if short, as nearly always: at most four bytes in a word, the
/// lowest first, and the number of bytes.
#[inline(always)]
fn start_in_a_word(flags: u8, tid: Tid) -> Option<(u64, usize)> {
    let (epoch, sequence) = (tid.epoch().0, tid.sequence());
    if epoch >= 1 << 14 || sequence >= 1 << 7 {
        return None;
    }
    let (epoch, bytes) = match epoch {
        0..0x80 => (epoch, 1),
        _ => (epoch & 0x7f | 0x80 | epoch >> 7 << 8, 2),
    };
    Some((u64::from(flags) | epoch << 8 | sequence << (8 + 8 * bytes), 2 + bytes))
}

/// Returns the part of a command's record before the arguments, if the head is plain and the stamp
/// is a single byte: at most six bytes in a word, the lowest first, and the number of bytes. `None`
/// if there are more.
#[inline(always)]
pub(crate) fn command_in_a_word(tid: Tid, stamp: u8, procedure: u32) -> Option<(u64, usize)> {
    if procedure >= 1 << 7 {
        return None;
    }
    let (start, bytes) = start_in_a_word(flag::COMMAND, tid)?;
    let rest = u64::from(stamp) | u64::from(procedure) << 8;
    Some((start | rest << (8 * bytes), bytes + 2))
}

/// Reads a TID; `None` if malformed.
pub(crate) fn take_tid(bytes: &mut &[u8]) -> Option<Tid> {
    let (epoch, sequence) = (take_varint(bytes)?, take_varint(bytes)?);
    let epoch_fits = epoch < 1 << (Tid::BITS - Tid::SEQUENCE_BITS);
    let sequence_fits = sequence < 1 << Tid::SEQUENCE_BITS;
    (epoch_fits && sequence_fits).then(|| Tid::new(EpochNumber(epoch), sequence))
}

/// The change of a row in a data record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    /// The whole row.
    Put(&'a [u8]),
    /// Changed columns, and the version of the row before the change.
    Delta { base: Tid, delta: &'a [u8] },
    /// Changed columns, long values as edits, and the version of the row before the change.
    Edits { base: Tid, edits: &'a [u8] },
    /// The row is deleted.
    Delete,
}

const PUT: u64 = 0;
const DELTA: u64 = 1;
const DELETE: u64 = 2;
const EDITS: u64 = 3;

/// Appends a row's change. `key` is the encoded primary key, or the row id's eight bytes.
pub(crate) fn push_change(
    out: &mut Vec<u8>,
    table: u32,
    keyless: bool,
    fixed_key: bool,
    key: &[u8],
    change: Change<'_>,
) {
    let tag = match change {
        Change::Put(_) => PUT,
        Change::Delta { .. } => DELTA,
        Change::Delete => DELETE,
        Change::Edits { .. } => EDITS,
    };
    push_varint(out, u64::from(table) << 2 | tag);
    let with_key = !matches!(change, Change::Put(_)) || keyless;
    if with_key {
        if !fixed_key {
            push_varint(out, key.len() as u64);
        }
        out.extend_from_slice(key);
    }
    match change {
        Change::Put(row) => {
            push_varint(out, row.len() as u64);
            out.extend_from_slice(row);
        }
        Change::Delta { base, delta } => {
            push_tid(out, base);
            out.extend_from_slice(delta);
        }
        Change::Edits { base, edits } => {
            push_tid(out, base);
            out.extend_from_slice(edits);
        }
        Change::Delete => {}
    }
}

/// The properties of a table for decoding a data record.
pub(crate) struct TableShape<'t> {
    pub layout: &'t Layout,
    pub keyless: bool,
    /// The length of every encoded key, if always the same.
    pub key_bytes: Option<usize>,
}

/// Reads the next row's change from a data record: the table's number in the log, the key where
/// separate from the row, the change. `None` if the bytes are malformed.
pub(crate) fn take_change<'a, 't>(
    bytes: &mut &'a [u8],
    shape: impl FnOnce(u64) -> Option<TableShape<'t>>,
) -> Option<(u64, Option<&'a [u8]>, Change<'a>)> {
    let tag = take_varint(bytes)?;
    let table = tag >> 2;
    let shape = shape(table)?;
    let kind = tag & 3;
    let key = if kind != PUT || shape.keyless {
        let len = match shape.key_bytes {
            Some(len) => len,
            None => take_varint(bytes)? as usize,
        };
        Some(take(bytes, len)?)
    } else {
        None
    };
    let change = match kind {
        PUT => {
            let len = take_varint(bytes)? as usize;
            let row = take(bytes, len)?;
            if !shape.layout.is_valid(row) {
                return None;
            }
            Change::Put(row)
        }
        DELTA => {
            let base = take_tid(bytes)?;
            let rest = check_delta(shape.layout, bytes)?;
            let delta = &bytes[..bytes.len() - rest.len()];
            *bytes = rest;
            Change::Delta { base, delta }
        }
        DELETE => Change::Delete,
        EDITS => {
            let base = take_tid(bytes)?;
            let rest = check_edits(shape.layout, bytes)?;
            let edits = &bytes[..bytes.len() - rest.len()];
            *bytes = rest;
            Change::Edits { base, edits }
        }
        _ => return None,
    };
    Some((table, key, change))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_head_reads_back(
            command: bool, epoch in 0u64..1 << 34, sequence in 0u64..1 << 27,
            time_us: Option<i64>, seed: Option<u64>, epoch_us: Option<u64>, row_ids: Vec<u64>,
            outcome: Option<u32>, continued: Option<u64>, as_of: Option<u64>, floor: Option<u64>,
        ) {
            let tid = Tid::new(EpochNumber(epoch), sequence);
            let not_above = |n: u64| Tid::from_bits(tid.bits() - n % (tid.bits() + 1));
            let [as_of, floor] = [as_of, floor].map(|below| below.map(not_above));
            let head = RecordHead {
                command, tid, time_us, seed, epoch_us, outcome, row_ids, as_of, floor, continued,
                slots: None, outcomes: Vec::new(),
            };
            let mut out = Vec::new();
            head.encode(&mut out);
            out.push(77);
            let mut rest = &out[..];
            prop_assert_eq!(RecordHead::decode(&mut rest), Some(head));
            prop_assert_eq!(rest, &[77][..]);
        }

        #[test]
        fn a_head_from_random_bytes_never_panics(bytes: Vec<u8>) {
            let _ = RecordHead::decode(&mut &bytes[..]);
        }
    }

    #[test]
    fn a_head_with_row_ids_alone_is_a_head() {
        for ids in [&[0][..], &[7, 1 << 40, u64::MAX]] {
            for tid in [Tid::new(EpochNumber(5), 9), Tid::new(EpochNumber(1 << 20), 1 << 20)] {
                let (mut short, mut usual) = (Vec::new(), Vec::new());
                push_head_with_ids(&mut short, tid, ids);
                let row_ids = ids.to_vec();
                let head = RecordHead { command: true, tid, row_ids, ..RecordHead::default() };
                head.encode(&mut usual);
                assert_eq!(short, usual, "{tid:?} {ids:?}");
            }
        }
    }

    #[test]
    fn a_plain_head_is_a_head() {
        for epoch in [0, 1, 0x7f, 0x80, 0x3fff, 0x4000, (1 << 34) - 1] {
            for sequence in [0, 1, 0x7f, 0x80, (1 << 27) - 1] {
                for command in [false, true] {
                    let tid = Tid::new(EpochNumber(epoch), sequence);
                    let (mut plain, mut whole) = (vec![7], vec![7]);
                    push_plain_head(&mut plain, command, tid);
                    RecordHead { command, tid, ..RecordHead::default() }.encode(&mut whole);
                    assert_eq!(plain, whole, "{epoch}.{sequence}");
                }
            }
        }
    }

    #[test]
    fn a_command_in_a_word_is_what_a_record_begins_with() {
        for epoch in [0, 1, 0x7f, 0x80, 0x3fff, 0x4000] {
            for sequence in [0, 1, 0x7f, 0x80] {
                for procedure in [0, 1, 0x7f, 0x80] {
                    let tid = Tid::new(EpochNumber(epoch), sequence);
                    let mut expected = Vec::new();
                    push_plain_head(&mut expected, true, tid);
                    expected.push(5);
                    push_varint(&mut expected, procedure.into());
                    match command_in_a_word(tid, 5, procedure) {
                        Some((word, len)) => assert_eq!(word.to_le_bytes()[..len], expected),
                        None => assert!(epoch > 0x3fff || sequence > 0x7f || procedure > 0x7f),
                    }
                }
            }
        }
    }

    #[test]
    fn the_head_of_an_early_transaction_is_short() {
        let mut out = Vec::new();
        RecordHead { tid: Tid::new(EpochNumber(9), 100), ..RecordHead::default() }.encode(&mut out);
        assert_eq!(out.len(), 3);
    }
}
