//! The steps that commits have in common.

use super::partitioned::{self, Many};
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

/// The call of a procedure, as a command record repeats it.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    /// The number that stands for the procedure in the log.
    pub log_id: u32,
    pub arguments: &'a [u8],
}

/// Where a session's transactions go.
pub(crate) struct Appender<'a> {
    /// None where there is no log.
    pub writer: Option<&'a mut Writer>,
    pub stream: usize,
    pub kind: RecordKind,
    pub call: Option<Call<'a>>,
    /// What the frontier has to reach before the caller is answered.
    pub needs: &'a mut Needs,
    /// Working memory for the record.
    pub payload: &'a mut Vec<u8>,
    /// Bytes of frames appended by the transaction.
    pub appended: u64,
    /// The epoch whose beginning the session has stated last.
    pub stated_epoch: u64,
    /// The transaction's epoch and the end of its record, once that has its place. None before.
    pub placed: &'a mut Option<(u64, usize, Lsn)>,
    /// The version that a replayed transaction installs.
    pub replayed_tid: u64,
}

/// Transactions whose replay would come so many commands behind that of all else are logged as data
/// under [`RecordKind::Adaptive`]: they are in a chain that replay waits for, and a short data record takes
/// less time in it.
const ADAPTIVE_LAG: u64 = 48;

/// Data records longer than this take longer to read and apply than a usual command to run: then there
/// is nothing to win in a chain.
const ADAPTIVE_DATA_BYTES: usize = 1536;

/// A data record may be this much longer than the command before [`RecordKind::Adaptive`] prefers the
/// command: data needs no execution at replay.
const ADAPTIVE_SLACK_BYTES: usize = 32;

/// The next version: above all that was read or is overwritten, in the current epoch. Called while
/// the write set is protected.
#[inline]
pub(crate) fn next_tid<P: LoggingProtocol>(engine: &Engine<P>, state: &TxnState<'_, P>) -> u64 {
    let epoch = engine.epoch.current();
    let above = Tid(state.max_tid + 1);
    if above.epoch() >= epoch {
        // More than 2^27 versions of one row in an epoch carry into the next number, and the epoch is
        // pulled along.
        while engine.epoch.current() < above.epoch() {
            engine.epoch.advance();
        }
        above.0
    } else {
        Tid::new(epoch, 0).0
    }
}

/// The longest that a row id is in a record.
const MOST_ID_BYTES: usize = 10;

/// Whether the transaction goes to the log as a command.
#[inline]
pub(crate) fn as_command<P: LoggingProtocol>(
    engine: &Engine<P>,
    state: &TxnState<'_, P>,
    appender: &Appender<'_>,
) -> bool {
    let (Some(call), Some(writer)) = (appender.call, &appender.writer) else { return false };
    // The row ids that it was given stand in a command's head, which is never divided among frames.
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
            let critical = || engine.protocol.lag(state.stamp) >= ADAPTIVE_LAG;
            (data > ADAPTIVE_DATA_BYTES || !critical())
                && data > call.arguments.len() + ADAPTIVE_SLACK_BYTES
        }
    }
}

/// The tables of the write set, which is protected, are about to be written.
pub(crate) fn look_at_tables<P: LoggingProtocol>(engine: &Engine<P>, state: &mut TxnState<'_, P>) {
    let mut last = None;
    for write in state.writes.iter().filter(|write| !write.superseded) {
        if last != Some(write.table) {
            engine.protocol.overwrites(write.table, state.stamp);
            last = Some(write.table);
        }
    }
}

/// Builds the record, writes what does not fit a frame ahead of it, and reserves the last frame: the
/// order point.
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
    if command && !states_epoch && !state.has_drawn() {
        // Nearly every command: nothing but its arguments has to be copied.
        let Call { log_id, arguments } = appender.call.expect("a command is a call");
        let stream = appender.stream;
        if arguments.len() <= Payload::MAX_REST
            && let Some(stamp) = engine.protocol.encode_in_a_byte(state.stamp, stream)
            && let Some((lead, len)) = command_in_a_word(Tid(tid), stamp, log_id)
        {
            let record = Payload::led_by(lead, len, arguments);
            let writer = appender.writer.as_deref_mut().expect("looked at above");
            let reservation = writer.reserve(stream, record.len());
            engine.protocol.place(state.stamp, stream, reservation.end());
            *appender.placed = Some((epoch, stream, reservation.end()));
            appender.appended = reservation.end() - reservation.start();
            return Reserved(ReservedFrames::One(reservation, record));
        }
    }
    reserve_composed(engine, state, appender, tid, command, states_epoch)
}

/// As [`reserve`], where the record is put together in memory.
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
    if epoch_us.is_none() && continued.is_none() && !(command && state.has_drawn()) {
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
    // Looked at before a number is drawn: until the place is known others may wait for the next one.
    assert!(payload.len() <= writer.max_payload(), "a record's head is too long for a frame");
    engine.protocol.draw(state.stamp, stream);
    let reservation = writer.reserve(stream, payload.len());
    engine.protocol.place(state.stamp, stream, reservation.end());
    engine.protocol.patch(state.stamp, &mut payload[stamp_at..body_at]);
    appender.appended = reservation.end() - continued.unwrap_or(reservation.start());
    *appender.placed = Some((epoch, stream, reservation.end()));
    Reserved(ReservedFrames::One(reservation, Payload::from(&*payload)))
}

/// The head of a record that says more than what it is and its TID.
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
        // Now and then is enough to tell that a procedure is not deterministic. Whole rows are not what it wrote.
        if epoch_us.is_some() && !engine.whole_rows {
            head.outcome = Some(state.outcome(&engine.tables));
        }
        head.row_ids.extend_from_slice(&state.row_ids_used);
    }
    head
}

/// Appends a write as a data record has it.
pub(super) fn encode_write<P: LoggingProtocol>(
    engine: &Engine<P>,
    write: &Write<'_, P::RowStamp>,
    out: &mut Vec<u8>,
) {
    let table = &engine.tables[write.table as usize];
    let (keyless, fixed) = (table.keyless, table.key_bytes.is_some());
    push_change(out, table.log_id, keyless, fixed, write.record.key(), write.change());
}

/// Writes a body that is too long for one frame as Part frames: each starts with the start of the
/// first one, which names the chain. Returns that start.
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

/// A reserved frame, or several, or nothing where there is no log.
pub(crate) struct Reserved<'w>(ReservedFrames<'w>);

enum ReservedFrames<'w> {
    None,
    One(Reservation<'w>, Payload<'w>),
    Many(Box<Many<'w>>),
}

impl<'w> Reserved<'w> {
    pub(super) fn nothing() -> Self {
        Reserved(ReservedFrames::None)
    }

    pub(super) fn many(many: Box<Many<'w>>) -> Self {
        Reserved(ReservedFrames::Many(many))
    }

    /// The stream and end of the frame, or of one of them.
    #[inline]
    pub fn own(&self) -> Option<(usize, Lsn)> {
        match &self.0 {
            ReservedFrames::None => None,
            ReservedFrames::One(reservation, _) => Some((reservation.stream(), reservation.end())),
            ReservedFrames::Many(many) => many.own(),
        }
    }

    /// Publishes the record.
    #[inline(always)]
    pub fn fill(self) {
        match self.0 {
            ReservedFrames::None => {}
            ReservedFrames::One(reservation, payload) => {
                reservation.fill(FrameKind::Record, payload)
            }
            ReservedFrames::Many(many) => many.fill(),
        }
    }

    /// The transaction failed its validation: the frame keeps its place and says nothing.
    pub fn void(self) {
        match self.0 {
            ReservedFrames::None => {}
            ReservedFrames::One(reservation, ..) => reservation.void(),
            ReservedFrames::Many(many) => many.void(),
        }
    }
}

/// Raises the read stamps of everything that a command read, before it validates.
#[inline(always)]
pub(crate) fn publish_reads<'s, P: LoggingProtocol>(
    engine: &Engine<P>,
    state: &mut TxnState<'s, P>,
) {
    // A row locked for writing may in the end not be written: it was read all the same.
    // What is overwritten as well will take the write stamp, which stands above.
    for read in state.reads.iter().filter(|read| !read.overwritten) {
        leave_mark(engine, state.stamp, read.table, read.record);
    }
    for held in state.held.iter().filter(|held| !held.overwritten) {
        leave_mark(engine, state.stamp, held.table, held.record);
    }
    for gap in &state.gaps {
        engine.protocol.publish_read(gap.stamp(), state.stamp);
    }
    // The raises, and the looks at what was raised already, are SeqCst, and so are the loads of the
    // validation that follows: they come in this order in the one order that a writer's lock and its
    // later load of the stamps are also in.
    checker_fence();
}

/// The row remembers that the command has read it, if rows of its table have to.
#[inline(always)]
fn leave_mark<P: LoggingProtocol>(
    engine: &Engine<P>,
    stamp: &mut P::TxnStamp,
    table: u32,
    record: &Record<P::RowStamp>,
) {
    if engine.protocol.has_to_remember(table, stamp) {
        engine.protocol.publish_read(&record.stamp, stamp);
    }
}

/// Installs and publishes the writes; the version word that each row then gets is handed to
/// `release`, which stores it and ends the row's protection.
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

/// Ends a transaction that wrote nothing, or whose writes are given up: it has to wait for what it read.
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
