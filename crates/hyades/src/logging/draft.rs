//! A transaction's record on the way into the log: a [`Draft`] has no position yet, a [`Composed`]
//! record has known bytes, a [`Reserved`] record has a position.
//!
//! A protocol's `append` takes the draft through these steps; the work between the steps is the
//! protocol. After [`Composed::reserve`] nothing allocates or waits until the frame is filled.

use super::determinism::{Determinism, Drawn};
use super::outcomes::StatedSum;
use super::partitioned::PartitionRecords;
use super::record::{
    Change, RecordHead, command_in_a_word, push_change, push_head_with_ids, push_plain_head,
};
use super::write::{Write, final_writes, outcome};
use crate::storage::Stamp;
use crate::storage::edits::{may_be_similar, push_edits};
use crate::storage::record::{Record, word};
use crate::storage::row::push_varint;
use crate::storage::table::TableData;
use crate::storage::tid::Tid;
use hyades_platform::broken;
use hyades_platform::epoch::{Epoch, EpochNumber};
use hyades_platform::phase::{self, Phase};
use hyades_wal::{FrameKind, Lsn, Payload, Reservation, Writer};
use std::ops::Range;
use std::sync::atomic::Ordering;

/// The call of a procedure, as a command record repeats it.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// The number of the procedure in the log.
    pub log_id: u32,
    pub arguments: &'a [u8],
    /// The slots of partitions that the call may access, if logged before execution.
    pub slots: u64,
    /// The draws for the record to state, if the call is logged before execution.
    pub draws: Drawn,
    /// Outcomes of earlier calls, for the record to state.
    pub outcomes: &'a [StatedSum],
    /// The start of the frames that hold the body, if written ahead of the record
    /// ([`Call::write_ahead`]).
    pub ahead: Option<Lsn>,
}

impl Call<'_> {
    /// Appends the body of the call's record.
    #[inline(always)]
    fn push_body(&self, out: &mut Vec<u8>) {
        push_varint(out, u64::from(self.log_id));
        out.extend_from_slice(self.arguments);
    }

    /// Writes a long body as Part frames, ahead of the record: the record then needs one frame,
    /// unless head and stamp take half of a frame. To be called before anything is latched, because
    /// a full buffer waits for the device. `buffer` is overwritten.
    pub fn write_ahead(self, writer: &mut Writer, stream: usize, buffer: &mut Vec<u8>) -> Self {
        if self.arguments.len() <= writer.max_payload() / 2 {
            return Call { ahead: None, ..self };
        }
        buffer.clear();
        self.push_body(buffer);
        Call { ahead: Some(write_parts(writer, stream, buffer)), ..self }
    }
}

/// The place in the log of a call that has not run yet.
#[derive(Clone, Copy, Debug)]
pub struct ArrivedPlace {
    pub tid: Tid,
    pub stream: usize,
    /// The start of the frame; of the last frame, if there are several.
    pub start: Lsn,
    pub end: Lsn,
    /// Bytes of all frames.
    pub bytes: u64,
}

/// The statements of a record for a replay with several versions of rows.
#[derive(Clone, Copy, Debug, Default)]
pub struct StatedVersions {
    /// The TID as of which the transaction read, if not its own TID.
    pub as_of: Option<Tid>,
    /// No transaction that gets its position later reads as of a lower TID.
    pub floor: Option<Tid>,
}

/// A transaction about to be logged. The write set is protected, and the version is chosen.
pub struct Draft<'d, 'w, S: Stamp> {
    pub writer: &'w mut Writer,
    pub stream: usize,
    pub tid: Tid,
    /// The command to log; logged as data if `None`.
    pub command: Option<Call<'w>>,
    /// Whether the transaction had any operation except blind writes.
    pub has_read: bool,
    /// Whether the record states when the transaction's epoch began.
    pub states_epoch: bool,
    /// Whether rows are logged whole, instead of changed columns.
    pub whole_rows: bool,
    pub epoch: &'d Epoch,
    pub tables: &'d [TableData<S>],
    pub writes: &'d [Write<'d, S>],
    pub determinism: &'d Determinism,
    /// Row ids that the transaction drew.
    pub row_ids: &'d [u64],
    /// The record's statements for replay on several versions, if replay works so.
    pub versions: StatedVersions,
    /// Buffer for the record, owned by the session.
    pub payload: &'w mut Vec<u8>,
}

impl<'d, 'w, S: Stamp> Draft<'d, 'w, S> {
    /// Returns whether the transaction drew time, randomness or row ids, which a command's record
    /// states.
    #[inline]
    fn used_nondeterminism(&self) -> bool {
        let drawn = self.determinism;
        drawn.time_us.is_some() || drawn.seed.is_some() || !self.row_ids.is_empty()
    }

    /// Returns the writes that no later write supersedes.
    pub fn final_writes(&self) -> impl Iterator<Item = &'d Write<'d, S>> + use<'d, S> {
        final_writes(self.writes)
    }

    /// Returns when the transaction's epoch began, in microseconds since 1970, if the record states
    /// the time.
    pub fn epoch_us(&self) -> Option<u64> {
        let states = self.states_epoch;
        states.then(|| self.epoch.began_us(self.tid.epoch())).flatten()
    }

    /// Returns whether the record is a command with a plain head and short arguments, as nearly all
    /// commands are: see [`Draft::short_record`].
    #[inline(always)]
    pub fn is_short_command(&self) -> bool {
        let is_short = |call: Call<'_>| call.arguments.len() <= Payload::MAX_REST;
        self.command.is_some_and(is_short)
            && !self.states_epoch
            && !self.used_nondeterminism()
            && self.versions.as_of.is_none()
            && self.versions.floor.is_none()
    }

    /// Returns the record of a [short command](Self::is_short_command) with a stamp of a single
    /// byte. The record is never put together in memory. `None` if the head is too long.
    #[inline(always)]
    pub fn short_record(&self, stamp: u8) -> Option<Payload<'w>> {
        let _measured = phase::enter(Phase::Record);
        let Call { log_id, arguments, .. } = self.command?;
        let (lead, len) = command_in_a_word(self.tid, stamp, log_id)?;
        Some(Payload::with_prefix(lead, len, arguments))
    }

    /// Reserves the frame of a [short record](Self::short_record).
    #[inline(always)]
    pub fn reserve_short(self, record: Payload<'w>) -> Reserved<'w> {
        let _measured = phase::enter(Phase::Place);
        let reservation = self.writer.reserve(self.stream, record.len());
        let bytes = reservation.end() - reservation.start();
        Reserved {
            frames: ReservedFrames::Short(reservation, record),
            version: None,
            has_parts: false,
            bytes,
        }
    }

    /// Puts the record together: head, the stamp appended by `encode`, body. A body too long for
    /// the frame is written ahead of the record, as Part frames; `encode` is called again then.
    #[inline(always)]
    pub fn compose(self, mut encode: impl FnMut(&mut Vec<u8>)) -> Composed<'w> {
        let _measured = phase::enter(Phase::Record);
        let mut encode = |out: &mut Vec<u8>| {
            let _measured = phase::enter(Phase::Stamp);
            encode(out);
        };
        let epoch_us = self.epoch_us();
        self.payload.clear();
        let is_plain = self.versions.as_of.is_none() && self.versions.floor.is_none();
        let is_command = self.command.is_some();
        let drew_others = self.determinism.time_us.is_some() || self.determinism.seed.is_some();
        if epoch_us.is_some() || !is_plain || is_command && drew_others {
            self.head(epoch_us, None).encode(self.payload);
        } else if is_command && !self.row_ids.is_empty() {
            push_head_with_ids(self.payload, self.tid, self.row_ids);
        } else {
            push_plain_head(self.payload, is_command, self.tid);
        }
        let stamp_at = self.payload.len();
        encode(self.payload);
        let body_at = self.payload.len();
        match self.command {
            Some(Call { ahead: Some(first), .. }) => {
                return self.compose_behind(epoch_us, first, &mut encode);
            }
            Some(call) => call.push_body(self.payload),
            None => {
                for write in self.final_writes() {
                    encode_write(self.tables, write, self.payload);
                }
            }
        }
        if self.payload.len() > self.writer.max_payload() {
            return self.compose_in_parts(epoch_us, body_at, &mut encode);
        }
        self.composed(stamp_at..body_at, None)
    }

    #[cold]
    fn compose_in_parts(
        self,
        epoch_us: Option<u64>,
        body_at: usize,
        encode: &mut dyn FnMut(&mut Vec<u8>),
    ) -> Composed<'w> {
        let first = write_parts(self.writer, self.stream, &self.payload[body_at..]);
        self.compose_behind(epoch_us, first, encode)
    }

    /// Puts together a record without body: the body was written ahead of the record, from `first`
    /// on.
    #[cold]
    fn compose_behind(
        self,
        epoch_us: Option<u64>,
        first: Lsn,
        encode: &mut dyn FnMut(&mut Vec<u8>),
    ) -> Composed<'w> {
        let head = self.head(epoch_us, Some(first));
        self.payload.clear();
        head.encode(self.payload);
        let stamp_at = self.payload.len();
        encode(self.payload);
        let stamp = stamp_at..self.payload.len();
        self.composed(stamp, Some(first))
    }

    /// Puts together a record without stamp and body: the changes were written ahead of the record,
    /// from `first` on.
    pub fn compose_after(self, first: Option<Lsn>) -> Composed<'w> {
        self.payload.clear();
        self.head(self.epoch_us(), first).encode(self.payload);
        let stamp = self.payload.len()..self.payload.len();
        self.composed(stamp, first)
    }

    #[inline(always)]
    fn composed(self, stamp: Range<usize>, first_part: Option<Lsn>) -> Composed<'w> {
        let Draft { writer, stream, payload, .. } = self;
        // Before a number is drawn or a position reserved: other sessions may wait for the next
        // number until the position is known.
        assert!(payload.len() <= writer.max_payload(), "a record's head is too long for a frame");
        Composed { writer, stream, payload, stamp, first_part }
    }

    /// Returns the head of a record.
    #[inline(never)]
    fn head(&self, epoch_us: Option<u64>, continued: Option<Lsn>) -> RecordHead {
        let command = self.command.is_some();
        let mut head =
            RecordHead { command, tid: self.tid, epoch_us, continued, ..RecordHead::default() };
        head.floor = self.versions.floor;
        let stated = [self.versions.as_of, self.versions.floor];
        debug_assert!(
            stated.into_iter().flatten().all(|tid| tid <= self.tid),
            "a record reads as of no later TID than its own, which is not below the floor"
        );
        if command {
            head.as_of = self.versions.as_of;
            head.time_us = self.determinism.time_us;
            head.seed = self.determinism.seed;
            // A sample is enough to detect a nondeterministic procedure. With `whole_rows` the
            // write set holds more than the procedure wrote, and has no checksum.
            if epoch_us.is_some() && !self.whole_rows {
                head.outcome = Some(outcome(self.tables, self.final_writes()));
            }
            head.row_ids.extend_from_slice(self.row_ids);
        }
        head
    }
}

/// Appends a write in the form of a data record. The write set is protected, so the row in place
/// has the version that the write follows.
#[inline]
pub(super) fn encode_write<S: Stamp>(
    tables: &[TableData<S>],
    write: &Write<'_, S>,
    out: &mut Vec<u8>,
) {
    let table = &tables[write.table as usize];
    match write.change() {
        Change::Delta { base, delta } if may_be_similar(&table.layout, delta) => {
            encode_similar(table, write.record, base, delta, out);
        }
        change => encode_change(table, write.record, change, out),
    }
}

/// Appends a delta, or the edits that give the delta, if shorter.
#[inline(never)]
fn encode_similar<S: Stamp>(
    table: &TableData<S>,
    record: &Record<S>,
    base: Tid,
    delta: &[u8],
    out: &mut Vec<u8>,
) {
    debug_assert_eq!(
        word::tid(record.word.load(Ordering::Relaxed)),
        base,
        "a write follows the version that is in place"
    );
    let mut row = Vec::with_capacity(record.row_len());
    table.read_row(record, &mut row);
    let mut edits = Vec::with_capacity(delta.len());
    let change = match push_edits(&table.layout, &row, delta, &mut edits) {
        true => Change::Edits { base, edits: &edits },
        false => Change::Delta { base, delta },
    };
    encode_change(table, record, change, out);
}

/// Appends a change of a row in the form of a data record.
#[inline]
pub(super) fn encode_change<S: Stamp>(
    table: &TableData<S>,
    record: &Record<S>,
    change: Change<'_>,
    out: &mut Vec<u8>,
) {
    let (keyless, fixed) = (table.keyless, table.key_bytes.is_some());
    push_change(out, table.log_id, keyless, fixed, record.key(), change);
}

/// Writes a body that is too long for a frame as Part frames. Each frame starts with the start of
/// the first frame, which identifies the chain. Returns the start of the first frame.
pub(super) fn write_parts(writer: &mut Writer, stream: usize, body: &[u8]) -> Lsn {
    let mut first = None;
    let mut frame = Vec::with_capacity(writer.max_payload());
    for chunk in body.chunks(writer.max_payload() - 8) {
        let reservation = writer.reserve(stream, chunk.len() + 8);
        let first = *first.get_or_insert(reservation.start());
        frame.clear();
        frame.extend_from_slice(&first.to_le_bytes());
        frame.extend_from_slice(chunk);
        reservation.fill(FrameKind::Part, &frame);
    }
    first.expect("a body that is too long is not empty")
}

/// A record with known bytes, except for the parts that depend on the position.
pub struct Composed<'w> {
    writer: &'w mut Writer,
    stream: usize,
    payload: &'w mut Vec<u8>,
    /// The range of the stamp in `payload`.
    stamp: Range<usize>,
    /// The start of the first frame written ahead of the record.
    first_part: Option<Lsn>,
}

impl<'w> Composed<'w> {
    /// Reserves the frame: the order point. Neither waits nor allocates.
    #[inline(always)]
    pub fn reserve(self) -> Reserved<'w> {
        let _measured = phase::enter(Phase::Place);
        let reservation = self.writer.reserve(self.stream, self.payload.len());
        let bytes = reservation.end() - self.first_part.unwrap_or(reservation.start());
        let has_parts = self.first_part.is_some();
        let frames = ReservedFrames::One(reservation, self.payload, self.stamp);
        Reserved { frames, version: None, has_parts, bytes }
    }
}

/// A record with its position or positions, or nothing where there is no log.
pub struct Reserved<'w> {
    frames: ReservedFrames<'w>,
    /// The transaction's version, if drawn with the position.
    version: Option<Tid>,
    /// Whether frames were written ahead of the record.
    has_parts: bool,
    /// Bytes of all frames that the transaction has appended.
    pub bytes: u64,
}

/// Where a transaction is logged, and its version.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordPlace {
    /// The transaction's version; [`Tid::NONE`] if the transaction wrote nothing.
    pub tid: Tid,
    /// Whether the version is of the draft's epoch, whose beginning the record states if the draft
    /// says so.
    pub has_drafts_epoch: bool,
    /// Stream and end of the record, if there is a record.
    pub position: Option<(usize, Lsn)>,
    /// Bytes of all frames.
    pub bytes: u64,
}

enum ReservedFrames<'w> {
    None,
    Short(Reservation<'w>, Payload<'w>),
    One(Reservation<'w>, &'w mut Vec<u8>, Range<usize>),
    Many(Box<PartitionRecords<'w>>),
}

impl<'w> Reserved<'w> {
    /// Creates an empty reservation, where there is no log.
    pub fn nothing() -> Self {
        Reserved { frames: ReservedFrames::None, version: None, has_parts: false, bytes: 0 }
    }

    pub(super) fn many(records: Box<PartitionRecords<'w>>, bytes: u64) -> Self {
        Reserved { frames: ReservedFrames::Many(records), version: None, has_parts: false, bytes }
    }

    /// Adds the transaction's version, drawn with the position.
    pub fn with_version(self, version: Tid) -> Self {
        Reserved { version: Some(version), ..self }
    }

    /// Returns whether the version drawn with the position is of a later epoch than the draft. A
    /// snapshot of the draft's epoch may have been opened meanwhile: then the snapshot holds
    /// nothing of the transaction, and the transaction must not have read anything missing in the
    /// snapshot.
    #[inline(always)]
    pub fn is_in_later_epoch(&self, drafted: Tid) -> bool {
        self.version.is_some_and(|version| version.epoch() != drafted.epoch())
            && !broken!(LateVersions)
    }

    /// Returns whether a checkpoint with the cut `closed`, or an earlier checkpoint, may include
    /// frames written ahead of this frame, but not the transaction, whose version is of a later
    /// epoch than the draft: then the record could not be read.
    #[inline(always)]
    pub fn is_divided(&self, drafted: Tid, closed: impl FnOnce() -> EpochNumber) -> bool {
        self.has_parts && self.is_in_later_epoch(drafted) && closed() >= drafted.epoch()
    }

    /// Returns the stream and end of the frame; of the first frame if there are several.
    #[inline]
    pub fn position(&self) -> Option<(usize, Lsn)> {
        match &self.frames {
            ReservedFrames::None => None,
            ReservedFrames::Short(frame, _) | ReservedFrames::One(frame, ..) => {
                Some((frame.stream(), frame.end()))
            }
            ReservedFrames::Many(many) => many.position(),
        }
    }

    /// Returns the end of the frame, or of the first frame.
    ///
    /// Panics where there is no log.
    #[inline(always)]
    pub fn end(&self) -> Lsn {
        self.position().expect("there is a log").1
    }

    /// Returns the start of a record's frame; Part frames ahead of the record do not count.
    ///
    /// Panics where there is no log, and where there are several records.
    pub fn start(&self) -> Lsn {
        match &self.frames {
            ReservedFrames::Short(frame, _) | ReservedFrames::One(frame, ..) => frame.start(),
            ReservedFrames::None | ReservedFrames::Many(_) => unreachable!("it has one frame"),
        }
    }

    /// Calls `patch` with the stamp of each record: the stamp may be written anew in the same
    /// length, with facts known since the reservation.
    #[inline(always)]
    pub fn patch(&mut self, mut patch: impl FnMut(&mut [u8])) {
        match &mut self.frames {
            ReservedFrames::One(_, payload, stamp) => patch(&mut payload[stamp.clone()]),
            ReservedFrames::Many(records) => records.patch(patch),
            ReservedFrames::None | ReservedFrames::Short(..) => {}
        }
    }

    /// Publishes the record, which was drafted with the version `drafted`.
    #[inline(always)]
    pub fn fill(self, drafted: Tid) -> RecordPlace {
        let _measured = phase::enter(Phase::Buffer);
        let placed = RecordPlace {
            tid: self.version.unwrap_or(drafted),
            has_drafts_epoch: !self.is_in_later_epoch(drafted),
            position: self.position(),
            bytes: self.bytes,
        };
        debug_assert!(placed.tid >= drafted, "a version is not below what was read");
        match self.frames {
            ReservedFrames::None => {}
            ReservedFrames::Short(reservation, record) => {
                reservation.fill(FrameKind::Record, record);
            }
            ReservedFrames::One(reservation, payload, _) => {
                reservation.fill(FrameKind::Record, &*payload);
            }
            ReservedFrames::Many(many) => many.fill(),
        }
        placed
    }

    /// Voids the frame after a failed validation: the frame keeps its position and has no content.
    pub fn void(self) {
        match self.frames {
            ReservedFrames::None => {}
            ReservedFrames::Short(reservation, _) | ReservedFrames::One(reservation, ..) => {
                reservation.void()
            }
            ReservedFrames::Many(many) => many.void(),
        }
    }
}
