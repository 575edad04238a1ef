//! Writes the changes of a transaction row by row, ahead of its record.

use super::state::{TxnState, Write};
use super::steps::encode_write;
use crate::engine::Engine;
use crate::logging::LoggingProtocol;
use crate::logging::row_frame::{FRAME_HEAD, RowFrames, flag, push_before, push_row};
use crate::storage::record::word;
use hyades_wal::{FrameKind, Lsn, Writer};
use std::sync::atomic::Ordering;

/// Appends the row frames of each changed row. Returns the start of the first one, which identifies
/// the transaction in all its row frames and in its record. The write set is locked, so what a row
/// holds now is its before-image.
pub(crate) fn write<P: LoggingProtocol>(
    engine: &Engine<P>,
    state: &mut TxnState<'_, P>,
    writer: &mut Writer,
    stream: usize,
    tid: u64,
) -> Option<Lsn> {
    let rows = engine.protocol.row_frames();
    let mut frame = std::mem::take(state.scratch);
    let mut images = Images::default();
    let mut first = None;
    for write in state.final_writes() {
        frame.clear();
        frame.resize(FRAME_HEAD, 0);
        images.push(engine, rows, tid, write, &mut frame);
        append(writer, stream, &mut frame, &mut first);
    }
    *state.scratch = frame;
    first
}

/// Buffers for before-images.
#[derive(Default)]
struct Images {
    row: Vec<u8>,
    before: Vec<u8>,
}

impl Images {
    fn push<P: LoggingProtocol>(
        &mut self,
        engine: &Engine<P>,
        rows: RowFrames,
        tid: u64,
        write: &Write<'_, P::RowStamp>,
        out: &mut Vec<u8>,
    ) {
        let Images { row, before } = self;
        before.clear();
        if rows == RowFrames::Both {
            row.clear();
            // Relaxed: this transaction holds the row's lock.
            let there = write.record.word.load(Ordering::Relaxed) & word::ABSENT == 0;
            if there {
                write.record.read_row(row);
            }
            let layout = &engine.tables[write.table as usize].layout;
            push_before(layout, write.base, there.then_some(&row[..]), write.change(), before);
        }
        push_row(rows, tid, before, out);
        encode_write(engine, write, out);
    }
}

/// Appends one change in as many frames as it needs. In `frame` its bytes follow room for the head.
fn append(writer: &mut Writer, stream: usize, frame: &mut [u8], first: &mut Option<Lsn>) {
    let room = writer.max_payload() - FRAME_HEAD;
    let bytes = frame.len() - FRAME_HEAD;
    let mut done = 0;
    while done < bytes {
        let n = room.min(bytes - done);
        let reservation = writer.reserve(stream, FRAME_HEAD + n);
        let name = *first.get_or_insert(reservation.start());
        // The head overwrites bytes that the previous frame already holds.
        let payload = &mut frame[done..done + FRAME_HEAD + n];
        let begins = if done == 0 { flag::BEGIN } else { 0 };
        let ends = if done + n == bytes { flag::END } else { 0 };
        payload[..8].copy_from_slice(&name.to_le_bytes());
        payload[8] = begins | ends;
        reservation.fill(FrameKind::Part, &*payload);
        done += n;
    }
}
