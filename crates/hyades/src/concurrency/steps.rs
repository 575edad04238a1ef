//! Commit steps that the concurrency controls share.

use super::partitioned::{self, PartitionedFrames};
use super::row_frames;
use super::state::{Pending, TxnState, Write};
use crate::engine::Engine;
use crate::error::Abort;
use crate::logging::record::{
    RecordHead, RecordKind, Tid, command_in_a_word, push_change, push_plain_head,
};
use crate::logging::row_frame::RowFrames;
use crate::logging::{LoggingProtocol, Needs};
use crate::storage::record::{Record, word};
use crate::storage::row::push_varint;
use hyades_platform::mutation::{self, Mutation};
use hyades_platform::sync::checker_fence;
use hyades_wal::{FrameKind, Lsn, Payload, Reservation, Writer};

/// The call of a procedure, as a command record states it.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    /// Number of the procedure in the log.
    pub log_id: u32,
    pub arguments: &'a [u8],
}

/// Where a session's transactions are logged, and results of a commit.
pub(crate) struct Appender<'a> {
    /// `None` without a log.
    pub writer: Option<&'a mut Writer>,
    pub stream: usize,
    pub kind: RecordKind,
    pub call: Option<Call<'a>>,
    /// Set by the commit: what the frontier has to reach before the caller is answered.
    pub needs: &'a mut Needs,
    /// Buffer for the record.
    pub payload: &'a mut Vec<u8>,
    /// Bytes of frames that the transaction appended.
    pub appended: u64,
    /// The last epoch whose beginning the session has logged.
    pub stated_epoch: u64,
    /// The transaction's epoch, and the stream and end of its record, once that is reserved.
    pub position: &'a mut Option<(u64, usize, Lsn)>,
    /// The TID that a replayed transaction installs.
    pub replayed_tid: u64,
}

/// A transaction whose replay as a command would finish this many commands after everything else is
/// logged as data under [`RecordKind::Adaptive`]: it is in a dependency chain that delays replay,
/// and a short data record takes less time there.
const ADAPTIVE_LAG: u64 = 48;

/// Data records longer than this usually take longer to read and apply than a command takes to run,
/// so they would not shorten a chain.
const ADAPTIVE_DATA_BYTES: usize = 1536;

/// [`RecordKind::Adaptive`] logs data, which needs no execution at replay, if the data record is at
/// most this much longer than the command.
const ADAPTIVE_SLACK_BYTES: usize = 32;

/// Returns the next TID: above every version read or overwritten, and in the current epoch. Called
/// while the write set is locked.
#[inline]
pub(crate) fn next_tid<P: LoggingProtocol>(engine: &Engine<P>, state: &TxnState<'_, P>) -> u64 {
    let epoch = engine.epoch.current();
    let above = Tid(state.max_tid + 1);
    if above.epoch() >= epoch {
        // More than 2^27 versions of a row in one epoch overflow into the epoch number, and the
        // epoch is advanced to match.
        while engine.epoch.current() < above.epoch() {
            engine.epoch.advance();
        }
        above.0
    } else {
        Tid::new(epoch, 0).0
    }
}

/// Maximum length of a row id in a record, in bytes.
const MOST_ID_BYTES: usize = 10;

/// Whether the transaction is logged as a command.
#[inline]
pub(crate) fn as_command<P: LoggingProtocol>(
    engine: &Engine<P>,
    state: &TxnState<'_, P>,
    appender: &Appender<'_>,
) -> bool {
    let (Some(call), Some(writer)) = (appender.call, &appender.writer) else { return false };
    // Its row ids are part of a command's head, which is never split among frames.
    let given = state.row_ids_used.len();
    if given > 0 && given * MOST_ID_BYTES > writer.max_payload() / 2 {
        return false;
    }
    match appender.kind {
        RecordKind::Data => false,
        RecordKind::Command => true,
        RecordKind::Adaptive => {
            let data: usize = state
                .final_writes()
                .map(|w| match w.pending {
                    Pending::Put(row) => row.len() + 4,
                    Pending::Delta(_, delta) => delta.len() + w.record.key().len() + 6,
                    Pending::Delete => w.record.key().len() + 2,
                })
                .sum();
            let critical = || engine.protocol.replay_lag(state.stamp) >= ADAPTIVE_LAG;
            (data > ADAPTIVE_DATA_BYTES || !critical())
                && data > call.arguments.len() + ADAPTIVE_SLACK_BYTES
        }
    }
}

/// Reports the tables of the locked write set to the protocol, before it overwrites their rows.
pub(crate) fn fold_table_floors<P: LoggingProtocol>(
    engine: &Engine<P>,
    state: &mut TxnState<'_, P>,
) {
    let mut last = None;
    for write in state.writes.iter().filter(|write| !write.superseded) {
        if last != Some(write.table) {
            engine.protocol.overwrites(write.table, state.stamp);
            last = Some(write.table);
        }
    }
}

/// Builds the record, writes what exceeds one frame ahead of it, and reserves its frame (the order
/// point).
#[inline(always)]
pub(crate) fn reserve<'w, P: LoggingProtocol>(
    engine: &Engine<P>,
    state: &mut TxnState<'_, P>,
    appender: &'w mut Appender<'_>,
    tid: u64,
    command: bool,
) -> Reserved<'w> {
    if P::PARTITIONED {
        return partitioned::reserve(engine, state, appender, tid);
    }
    if appender.writer.is_none() {
        return Reserved::nothing();
    }
    let epoch = Tid(tid).epoch();
    let states_epoch = epoch != appender.stated_epoch;
    appender.stated_epoch = epoch;
    if command && !states_epoch && !state.used_nondeterminism() {
        // Fast path of nearly every command: only its arguments are copied.
        let Call { log_id, arguments } = appender.call.expect("a command is a call");
        let stream = appender.stream;
        if arguments.len() <= Payload::MAX_REST
            && let Some(stamp) = engine.protocol.encode_in_a_byte(state.stamp, stream)
            && let Some((lead, len)) = command_in_a_word(Tid(tid), stamp, log_id)
        {
            let record = Payload::with_prefix(lead, len, arguments);
            let writer = appender.writer.as_deref_mut().expect("looked at above");
            let reservation = writer.reserve(stream, record.len());
            engine.protocol.place(state.stamp, stream, reservation.end());
            *appender.position = Some((epoch, stream, reservation.end()));
            appender.appended = reservation.end() - reservation.start();
            return Reserved(ReservedFrames::One(reservation, record));
        }
    }
    reserve_composed(engine, state, appender, tid, command, states_epoch)
}

/// Like [`reserve`], but composes the record in memory.
#[inline(never)]
fn reserve_composed<'w, P: LoggingProtocol>(
    engine: &Engine<P>,
    state: &mut TxnState<'_, P>,
    appender: &'w mut Appender<'_>,
    tid: u64,
    command: bool,
    states_epoch: bool,
) -> Reserved<'w> {
    let writer =
        appender.writer.as_deref_mut().expect("there is a log, or nothing to put together");
    let (stream, payload) = (appender.stream, &mut *appender.payload);
    let epoch = Tid(tid).epoch();
    let epoch_us = if states_epoch { engine.epoch.began_us(epoch) } else { None };
    payload.clear();
    let by_rows = !command && engine.protocol.row_frames() != RowFrames::None;
    let mut continued =
        if by_rows { row_frames::write(engine, state, writer, stream, tid) } else { None };
    engine.protocol.versioned(state.stamp, tid);
    if epoch_us.is_none() && continued.is_none() && !(command && state.used_nondeterminism()) {
        push_plain_head(payload, command, Tid(tid));
    } else {
        head(engine, state, tid, command, epoch_us, continued).encode(payload);
    }
    let mut stamp_at = payload.len();
    engine.protocol.encode(state.stamp, stream, command, payload);
    let mut body_at = payload.len();
    match appender.call.filter(|_| command) {
        Some(call) => {
            push_varint(payload, u64::from(call.log_id));
            payload.extend_from_slice(call.arguments);
        }
        None if by_rows => {}
        None => state.final_writes().for_each(|write| encode_write(engine, write, payload)),
    }
    if payload.len() > writer.max_payload() {
        continued = Some(write_parts(writer, stream, &payload[body_at..]));
        payload.clear();
        head(engine, state, tid, command, epoch_us, continued).encode(payload);
        stamp_at = payload.len();
        engine.protocol.encode(state.stamp, stream, command, payload);
        body_at = payload.len();
    }
    // Checked before a number is drawn: until the frame is reserved, other transactions may be
    // waiting for the next number.
    assert!(payload.len() <= writer.max_payload(), "a record's head is too long for a frame");
    engine.protocol.draw(state.stamp, stream);
    let reservation = writer.reserve(stream, payload.len());
    engine.protocol.place(state.stamp, stream, reservation.end());
    engine.protocol.patch(state.stamp, &mut payload[stamp_at..body_at]);
    appender.appended = reservation.end() - continued.unwrap_or(reservation.start());
    *appender.position = Some((epoch, stream, reservation.end()));
    Reserved(ReservedFrames::One(reservation, Payload::from(&*payload)))
}

/// Builds the head of a record that states more than its kind and its TID.
#[inline(never)]
fn head<P: LoggingProtocol>(
    engine: &Engine<P>,
    state: &TxnState<'_, P>,
    tid: u64,
    command: bool,
    epoch_us: Option<u64>,
    continued: Option<Lsn>,
) -> RecordHead {
    let mut head = RecordHead { command, tid, epoch_us, continued, ..RecordHead::default() };
    if command {
        head.time_us = state.determinism.time_us;
        head.seed = state.determinism.seed;
        // A sample is enough to detect a procedure that is not deterministic. With `whole_rows` the
        // write set holds more than the procedure wrote, and has no checksum.
        if epoch_us.is_some() && !engine.whole_rows {
            head.outcome = Some(state.outcome(&engine.tables));
        }
        head.row_ids.extend_from_slice(&state.row_ids_used);
    }
    head
}

/// Appends a write in the format of a data record.
pub(super) fn encode_write<P: LoggingProtocol>(
    engine: &Engine<P>,
    write: &Write<'_, P::RowStamp>,
    out: &mut Vec<u8>,
) {
    let table = &engine.tables[write.table as usize];
    let (keyless, fixed) = (table.keyless, table.key_bytes.is_some());
    push_change(out, table.log_id, keyless, fixed, write.record.key(), write.change());
}

/// Writes a body that is too long for one frame as Part frames. Each begins with the start LSN of
/// the first one, which identifies the chain and is returned.
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

/// Reserved frames: one, several, or none without a log.
pub(crate) struct Reserved<'w>(ReservedFrames<'w>);

enum ReservedFrames<'w> {
    None,
    One(Reservation<'w>, Payload<'w>),
    PartitionedFrames(Box<PartitionedFrames<'w>>),
}

impl<'w> Reserved<'w> {
    pub(super) fn nothing() -> Self {
        Reserved(ReservedFrames::None)
    }

    pub(super) fn many(many: Box<PartitionedFrames<'w>>) -> Self {
        Reserved(ReservedFrames::PartitionedFrames(many))
    }

    /// Returns the stream and the end of the frame, or of the first of several.
    #[inline]
    pub fn own(&self) -> Option<(usize, Lsn)> {
        match &self.0 {
            ReservedFrames::None => None,
            ReservedFrames::One(reservation, _) => Some((reservation.stream(), reservation.end())),
            ReservedFrames::PartitionedFrames(many) => many.own(),
        }
    }

    /// Fills the frames with the record.
    #[inline(always)]
    pub fn fill(self) {
        match self.0 {
            ReservedFrames::None => {}
            ReservedFrames::One(reservation, payload) => {
                reservation.fill(FrameKind::Record, payload)
            }
            ReservedFrames::PartitionedFrames(many) => many.fill(),
        }
    }

    /// Voids the frames of a transaction that failed validation: they keep their places and hold no
    /// record.
    pub fn void(self) {
        match self.0 {
            ReservedFrames::None => {}
            ReservedFrames::One(reservation, ..) => reservation.void(),
            ReservedFrames::PartitionedFrames(many) => many.void(),
        }
    }
}

/// Raises the read stamps of everything read, before validation.
#[inline(always)]
pub(crate) fn publish_reads<'s, P: LoggingProtocol>(
    engine: &Engine<P>,
    state: &mut TxnState<'s, P>,
) {
    // A row locked for writing but not written counts as read. A row that is overwritten gets the
    // write stamp, which is higher.
    for read in state.reads.iter().filter(|read| !read.overwritten) {
        raise_read_stamp(engine, state.stamp, read.table, read.record);
    }
    for held in state.held.iter().filter(|held| !held.overwritten) {
        raise_read_stamp(engine, state.stamp, held.table, held.record);
    }
    for gap in &state.gaps {
        engine.protocol.publish_read(gap.stamp(), state.stamp);
    }
    // Raising a read stamp, or finding it high enough, is SeqCst, and so are the loads of the
    // validation that follows. A writer's lock and its later load of the stamps are in the same
    // total order: either the validation sees the lock, or the writer sees the stamp.
    checker_fence();
}

/// Raises the row's read stamp, if rows of its table need one.
#[inline(always)]
fn raise_read_stamp<P: LoggingProtocol>(
    engine: &Engine<P>,
    stamp: &mut P::TxnStamp,
    table: u32,
    record: &Record<P::RowStamp>,
) {
    if engine.protocol.needs_read_stamp(table, stamp) {
        engine.protocol.publish_read(&record.stamp, stamp);
    }
}

/// Installs and publishes the writes. `release` is called with the new version word of each row,
/// which it stores; that may end the row's protection.
#[inline(always)]
pub(crate) fn install<'s, P: LoggingProtocol>(
    engine: &Engine<P>,
    state: &mut TxnState<'s, P>,
    tid: u64,
    release: impl Fn(&Record<P::RowStamp>, u64),
) {
    let cut = engine.cut.before(tid);
    for write in state.writes.iter().filter(|w| !w.superseded) {
        let table = &engine.tables[write.table as usize];
        if let Some(cut) = cut {
            engine.cut.save(table, write.record, cut);
        }
        let layout = &table.layout;
        let there = write.install(layout, state.guard, state.scratch);
        let late = mutation::is(Mutation::StampAfterRelease);
        if !late {
            engine.protocol.publish_write(&write.record.stamp, state.stamp);
        }
        let absent = if there { 0 } else { word::ABSENT };
        release(write.record, tid << word::TID_SHIFT | absent);
        if late {
            std::thread::yield_now();
            engine.protocol.publish_write(&write.record.stamp, state.stamp);
        }
    }
}

/// Ends a transaction that wrote nothing or whose writes are discarded. It has to wait for what it
/// read.
pub(crate) fn end_read_only<P: LoggingProtocol>(
    engine: &Engine<P>,
    state: &mut TxnState<'_, P>,
    appender: &mut Appender<'_>,
    valid: bool,
) -> Result<(), Abort> {
    if !valid {
        return Err(Abort::Conflict);
    }
    if !mutation::is(Mutation::AckReadersAtOnce) {
        engine.protocol.needs(state.stamp, None, appender.needs);
    }
    Ok(())
}
