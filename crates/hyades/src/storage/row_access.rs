//! Rows in records: reads and writes of whole and shortened rows. See [`super::short_rows`].

use super::layout::Layout;
use super::record::Record;
use super::row::{Assignments, apply_delta};
use super::schema::Columns;
use super::short_rows::{ShortRows, is_key};
use super::table::TableData;
use super::window::CopyWindow;
use crate::storage::Stamp;
use bumpalo::Bump;
use hyades_platform::reclaim::Guard;
use std::borrow::Cow;
use std::sync::atomic::Ordering;

/// A copied part of a row.
#[derive(Clone, Copy)]
pub(crate) struct RowPart<'a> {
    pub bytes: &'a [u8],
    /// The offset of the bytes in the row.
    pub base: usize,
    /// The row's null bitmap, if the bytes are a window with some fixed-width columns only.
    pub nulls: Option<u64>,
}

impl<'a> RowPart<'a> {
    /// A row, or its first bytes.
    pub fn first(bytes: &'a [u8]) -> Self {
        RowPart { bytes, base: 0, nulls: None }
    }
}

impl<S: Stamp> TableData<S> {
    /// The layout of rows in records.
    #[inline]
    pub fn record_layout(&self) -> &Layout {
        self.short.as_ref().map_or(&self.layout, |short| &short.layout)
    }

    /// Whether some of the columns are not in the rows of records, but in their keys.
    #[inline]
    pub fn needs_key(&self, columns: Columns) -> bool {
        self.record_layout().left_out & columns.0 != 0
    }

    /// The layout of the result of a read of these columns.
    #[inline]
    pub fn layout_read(&self, columns: Columns) -> &Layout {
        if self.needs_key(columns) { &self.layout } else { self.record_layout() }
    }

    /// Whether the bytes, from a log, can be the key of a record, as far as the record's row
    /// depends on the key.
    pub fn accepts_key(&self, key: &[u8]) -> bool {
        self.short.is_none() || is_key(&self.layout, key)
    }

    /// The size of a row in a record, in bytes.
    pub fn bytes_in_record(&self, row: &[u8]) -> usize {
        match &self.short {
            None => row.len(),
            Some(short) => short.short_len(&self.layout, row),
        }
    }

    /// Appends a whole row to `out`. Without a lock the row may be torn, as the version word shows.
    pub fn read_row(&self, record: &Record<S>, out: &mut Vec<u8>) {
        let (begin, whole) = (out.len(), &self.layout);
        match &self.short {
            None => record.read_row(out),
            Some(short) if short.keys_lead => {
                let room = short.room(whole, record.key());
                out.resize(begin + room, 0);
                record.read_row(out);
                match short.widen(whole, record.key(), &mut out[begin..], room) {
                    Some(at) => drop(out.drain(begin..begin + at)),
                    None => out.truncate(begin),
                }
            }
            Some(short) => {
                let mut bytes = Vec::with_capacity(record.row_len());
                record.read_row(&mut bytes);
                short.append_whole(whole, record.key(), &bytes, out);
            }
        }
    }

    /// Copies a whole row into `arena` memory. Without a lock the row may be torn.
    pub fn read_row_into<'a>(&self, record: &Record<S>, arena: &'a Bump) -> &'a [u8] {
        match &self.short {
            None => record.read_row_into(arena),
            Some(short) => self.read_whole_up_to(short, record, usize::MAX, arena),
        }
    }

    /// Copies the part of a row that a read of these columns needs, into `arena` memory, in the
    /// layout [`TableData::layout_read`]. Without a lock the part may be torn.
    #[inline]
    pub fn read_part<'a>(
        &self,
        record: &Record<S>,
        columns: Columns,
        window: CopyWindow,
        arena: &'a Bump,
    ) -> RowPart<'a> {
        let layout = self.record_layout();
        let up_to = |end_at: usize| layout.fixed_bytes + record.read_u32(end_at) as usize;
        if let Some(short) = self.short.as_ref().filter(|_| self.needs_key(columns)) {
            let most = match window {
                CopyWindow::Fixed(..) => layout.fixed_bytes,
                CopyWindow::Prefix(end_at) => up_to(end_at),
                CopyWindow::Whole => usize::MAX,
            };
            return RowPart::first(self.read_whole_up_to(short, record, most, arena));
        }
        match window {
            CopyWindow::Fixed(offset, len) => {
                let nulls = if layout.has_nulls { record.read_first_word() } else { 0 };
                let (bytes, base) = record.read_window_into(offset, len, arena);
                RowPart { bytes, base, nulls: Some(nulls) }
            }
            CopyWindow::Prefix(end_at) => {
                RowPart::first(record.read_prefix_into(up_to(end_at), arena))
            }
            CopyWindow::Whole => RowPart::first(record.read_row_into(arena)),
        }
    }

    /// The whole row, in `arena` memory, of the first `most` bytes of a record's short row.
    fn read_whole_up_to<'a>(
        &self,
        short: &ShortRows,
        record: &Record<S>,
        most: usize,
        arena: &'a Bump,
    ) -> &'a [u8] {
        let (whole, key) = (&self.layout, record.key());
        if !short.keys_lead {
            return self.whole_of(short, key, record.read_prefix_into(most, arena), arena);
        }
        let room = short.room(whole, key);
        let (words, len) = record.block();
        let len = len.min(most);
        let buffer = arena.alloc_slice_fill_copy(room + len.next_multiple_of(8), 0u8);
        let copied = buffer[room..].as_chunks_mut::<8>().0;
        for (to, word) in copied.iter_mut().zip(words) {
            *to = word.load(Ordering::Relaxed).to_le_bytes();
        }
        let buffer = &mut buffer[..room + len];
        match short.widen(whole, key, buffer, room) {
            Some(at) => &buffer[at..],
            None => &[],
        }
    }

    fn whole_of<'a>(&self, short: &ShortRows, key: &[u8], row: &[u8], arena: &'a Bump) -> &'a [u8] {
        let mut out = Vec::with_capacity(self.layout.fixed_bytes + key.len() + row.len());
        short.append_whole(&self.layout, key, row, &mut out);
        arena.alloc_slice_copy(&out)
    }

    /// The whole row, in `arena` memory, of an older version of a record. The bytes of `row` are in
    /// the form of a record.
    pub fn whole_row<'a>(&self, record: &Record<S>, row: &'a [u8], arena: &'a Bump) -> &'a [u8] {
        match &self.short {
            None => row,
            Some(short) => self.whole_of(short, record.key(), row, arena),
        }
    }

    /// A whole row in the form of a record.
    pub fn record_bytes<'a>(&self, row: &'a [u8]) -> Cow<'a, [u8]> {
        let Some(short) = &self.short else { return Cow::Borrowed(row) };
        let mut bytes = Vec::new();
        short.shorten(&self.layout, row, &mut bytes);
        Cow::Owned(bytes)
    }

    /// Replaces the whole row of a record. The caller holds the write lock. Returns by how many
    /// bytes the row in the record has grown.
    #[inline]
    pub fn store_row(
        &self,
        record: &Record<S>,
        row: &[u8],
        guard: &Guard,
        scratch: &mut Vec<u8>,
    ) -> i64 {
        let (len, old_len) = match &self.short {
            None => (row.len(), record.store_row(row, guard)),
            Some(short) => {
                short.shorten(&self.layout, row, scratch);
                (scratch.len(), record.store_row(scratch, guard))
            }
        };
        len as i64 - old_len as i64
    }

    /// Writes changed columns into the row of a record. The caller holds the write lock. Returns by
    /// how many bytes the row in the record has grown.
    pub fn store_delta(
        &self,
        record: &Record<S>,
        columns: u64,
        delta: &[u8],
        guard: &Guard,
        scratch: &mut Vec<u8>,
    ) -> i64 {
        let layout = self.record_layout();
        debug_assert_eq!(columns & layout.key_set, 0, "a delta has no columns of the key");
        if layout.changes_in_place(columns) {
            for (column, bytes) in Assignments::new(layout, delta) {
                let at = layout.columns[column as usize].offset as usize;
                record.store_range(at, bytes.expect("the table has no nulls"));
            }
            return 0;
        }
        scratch.clear();
        record.read_row(scratch);
        apply_delta(layout, scratch, delta)
            .expect("the row's size was checked when it was written");
        scratch.len() as i64 - record.store_row(scratch, guard) as i64
    }
}
