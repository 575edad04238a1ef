//! Writes the changes of a transaction row by row, ahead of its record.

use super::draft::{Draft, encode_change};
use super::row_frame::{LONGEST_HEAD, RowFrames, RowHead, push_before, push_row};
use super::write::{Write, final_writes};
use crate::storage::Stamp;
use crate::storage::record::word;
use crate::storage::table::TableData;
use crate::storage::tid::Tid;
use hyades_wal::{FrameKind, Lsn, Writer};
use std::sync::atomic::Ordering;

impl<S: Stamp> Draft<'_, '_, S> {
    /// Writes a frame for each changed row. Returns the start of the first frame, by which the
    /// record and all frames identify the transaction. The write set is protected, so rows still
    /// have the content from before the transaction. Bytes beyond `most` are left out.
    pub fn write_rows(&mut self, rows: RowFrames, most: usize) -> Option<Lsn> {
        let mut images = Images::default();
        let (mut first, mut left) = (None, most);
        let frame = &mut *self.payload;
        for write in final_writes(self.writes) {
            frame.clear();
            frame.resize(LONGEST_HEAD, 0);
            images.push(self.tables, rows, self.tid, write, frame);
            let bytes = left.min(frame.len() - LONGEST_HEAD);
            left -= bytes;
            append(self.writer, self.stream, &mut frame[..LONGEST_HEAD + bytes], &mut first);
        }
        first
    }
}

/// Buffers for before-images.
#[derive(Default)]
struct Images {
    row: Vec<u8>,
    before: Vec<u8>,
}

impl Images {
    fn push<S: Stamp>(
        &mut self,
        tables: &[TableData<S>],
        rows: RowFrames,
        tid: Tid,
        write: &Write<'_, S>,
        out: &mut Vec<u8>,
    ) {
        let Images { row, before } = self;
        before.clear();
        if rows == RowFrames::Both {
            row.clear();
            // Relaxed: the transaction holds the row's lock.
            let there = write.record.word.load(Ordering::Relaxed) & word::ABSENT == 0;
            let table = &tables[write.table as usize];
            if there {
                table.read_row(write.record, row);
            }
            let old = there.then_some(&row[..]);
            push_before(&table.layout, write.base, old, write.change(), before);
        }
        push_row(rows, tid, before, out);
        encode_change(&tables[write.table as usize], write.record, write.change(), out);
    }
}

/// Appends a change in as many frames as needed. In `frame` the change follows room for the longest
/// head. `first` is the start of the transaction's first frame, once there is a frame.
fn append(writer: &mut Writer, stream: usize, frame: &mut [u8], first: &mut Option<Lsn>) {
    let bytes = frame.len() - LONGEST_HEAD;
    let mut done = 0;
    while done < bytes {
        let head = RowHead::len(*first);
        let n = (writer.max_payload() - head).min(bytes - done);
        let reservation = writer.reserve(stream, head + n);
        // The head overwrites bytes that the previous frame already holds.
        let change = LONGEST_HEAD + done;
        let payload = &mut frame[change - head..change + n];
        RowHead { first: *first, begins: done == 0, ends: done + n == bytes }.write(payload);
        first.get_or_insert(reservation.start());
        reservation.fill(FrameKind::Part, &*payload);
        done += n;
    }
}
