//! Chunks: the rows of a large string, 64 KiB in each. The chunks of a string share a number, and
//! each has a place: an access to some bytes touches only the chunks with these bytes, whatever the
//! length of the string. The row of the key holds the number and the length.
//!
//! Invariant: byte `i` of a string is byte `i % CHUNK_BYTES` of the chunk at `i / CHUNK_BYTES`, or
//! 0 if the chunk is absent or ends before. No chunk has a byte behind the end of the string, and
//! strings in chunks never become shorter: bytes behind the end are absent.

use super::keyspace::{COPIES_OF_A_CHANGE, Context};
use hyades::{Abort, Column, Table, Transaction};
use std::borrow::Cow;
use std::ops::Range;

const PLACE: Column<u32> = Column::at(1);
const BODY: Column<[u8]> = Column::at(2);

/// Bytes of a chunk in memory beside its content: where the content ends, and the head of the row.
const HEAD_BYTES: usize = 16;

/// Bytes of a chunk. With the head a full chunk takes 64 KiB, which allocators serve without a
/// rest.
pub const CHUNK_BYTES: usize = (64 << 10) - HEAD_BYTES;

/// Memory of a chunk beside the bytes, about: the record of the row, the key, and the place in the
/// index.
const BYTES_OF_A_CHUNK: usize = 130;

/// The longest string in the row of a key; longer strings lie in chunks. (Earlier versions kept
/// longer strings in the row as well: a change moves them into chunks.)
pub const LONGEST_IN_ROW: usize = 1 << 20;

/// The longest possible string: the limit of `proto-max-bulk-len`.
const LONGEST: usize = 1 << 30;

/// Stands for bytes without a chunk.
static ZEROS: [u8; CHUNK_BYTES] = [0; CHUNK_BYTES];

/// Looking up the place of an absent chunk counts as copying this many bytes.
const BYTES_OF_ABSENCE: usize = 256;

/// A string in chunks, as a transaction reaches it.
#[derive(Clone, Copy)]
pub struct ChunkedString<'t> {
    tx: Transaction<'t>,
    context: Context<'t>,
    number: u64,
    length: usize,
}

impl<'t> ChunkedString<'t> {
    /// An empty string with a number not used before.
    pub fn new(tx: Transaction<'t>, context: Context<'t>, number: u64) -> ChunkedString<'t> {
        ChunkedString { tx, context, number, length: 0 }
    }

    /// Reads number and length from the body of the key's row.
    ///
    /// # Errors
    /// The body is not the body of a string in chunks: a torn view.
    pub fn from_body(
        tx: Transaction<'t>,
        context: Context<'t>,
        body: &[u8],
    ) -> Result<ChunkedString<'t>, Abort> {
        let body: &[u8; 16] = body.try_into().map_err(|_| Abort::Conflict)?;
        let word = |at: usize| u64::from_le_bytes(body[at..at + 8].try_into().expect("8 bytes"));
        // A transaction that has set the time of expiry of a key sees the new time beside a body
        // written since by another transaction. Memory for an arbitrary length would end the
        // process.
        let length = usize::try_from(word(8)).ok().filter(|length| *length <= LONGEST);
        Ok(ChunkedString { tx, context, number: word(0), length: length.ok_or(Abort::Conflict)? })
    }

    /// The body of the key's row.
    pub fn body(&self) -> [u8; 16] {
        let mut body = [0; 16];
        body[..8].copy_from_slice(&self.number.to_le_bytes());
        body[8..].copy_from_slice(&(self.length as u64).to_le_bytes());
        body
    }

    /// Bytes in the string.
    pub fn len(&self) -> usize {
        self.length
    }

    /// The same string, extended with zeros up to this length.
    pub fn extended(self, length: usize) -> ChunkedString<'t> {
        ChunkedString { length: self.length.max(length), ..self }
    }

    fn table(&self) -> Table {
        self.context.tables.chunks
    }

    /// The bytes of a chunk, if there is one.
    ///
    /// # Errors
    /// A conflict, or the transaction has copied too much; the same holds for the functions below.
    fn chunk(&self, place: usize) -> Result<Option<&'t [u8]>, Abort> {
        self.context.check_copied()?;
        let key = (self.number, place as u32);
        let row = self.tx.get_columns(self.table(), key, BODY.only())?;
        let body = row.map(|row| row.get(BODY));
        self.context.count_read_bytes(0, body.map_or(BYTES_OF_ABSENCE, <[u8]>::len));
        match body {
            // Chunks are written by this program: a longer body is a torn view.
            Some(body) if body.len() > CHUNK_BYTES => Err(Abort::Conflict),
            body => Ok(body),
        }
    }

    /// Visits the bytes of a range, piece by piece with the place of each, until `visit` returns
    /// false.
    pub fn visit(
        &self,
        range: Range<usize>,
        mut visit: impl FnMut(usize, &[u8]) -> bool,
    ) -> Result<(), Abort> {
        debug_assert!(range.end <= self.length, "{range:?} of {}", self.length);
        let mut at = range.start;
        while at < range.end {
            let from = at % CHUNK_BYTES;
            let to = CHUNK_BYTES.min(from + range.end - at);
            let body = self.chunk(at / CHUNK_BYTES)?.unwrap_or_default();
            let stored = &body[from.min(body.len())..to.min(body.len())];
            let zeros = &ZEROS[..to - from - stored.len()];
            for piece in [stored, zeros] {
                if !piece.is_empty() && !visit(at, piece) {
                    return Ok(());
                }
                at += piece.len();
            }
        }
        Ok(())
    }

    /// An error if a range is more than a loop should read. The check comes before the read.
    pub fn check_loop(&self, range: &Range<usize>) -> Result<(), Abort> {
        self.context.check_loop(range.len())
    }

    /// Appends the bytes of a range.
    pub fn read(&self, range: Range<usize>, out: &mut Vec<u8>) -> Result<(), Abort> {
        self.check_loop(&range)?;
        out.reserve(range.len());
        self.visit(range, |_, piece| {
            out.extend_from_slice(piece);
            true
        })
    }

    fn put(&self, place: usize, body: &[u8]) -> Result<(), Abort> {
        self.context.count_written_bytes(size_of::<u64>(), body.len(), 1);
        let row = [self.number.into(), (place as u32).into(), body.into()];
        self.tx.overwrite(self.table(), &row)
    }

    /// Writes bytes from `at` on, with zeros before them if `at` is behind the end. Returns whether
    /// a byte has changed.
    pub fn write(&mut self, at: usize, bytes: &[u8]) -> Result<bool, Abort> {
        self.context.check_room(bytes.len())?;
        let (mut changed, mut done) = (false, 0);
        while done < bytes.len() {
            let (place, from) = ((at + done) / CHUNK_BYTES, (at + done) % CHUNK_BYTES);
            let piece = &bytes[done..bytes.len().min(done + CHUNK_BYTES - from)];
            changed |= self.write_piece(place, from, piece)?;
            done += piece.len();
        }
        self.length = self.length.max(at + bytes.len());
        Ok(changed)
    }

    /// Writes bytes into a chunk, from byte `from` of the chunk on.
    fn write_piece(&self, place: usize, from: usize, piece: &[u8]) -> Result<bool, Abort> {
        let to = from + piece.len();
        let may_exist = place < self.length.div_ceil(CHUNK_BYTES);
        if may_exist && piece.len() == CHUNK_BYTES {
            return self.put(place, piece).map(|()| true);
        }
        let Some(old) = (if may_exist { self.chunk(place)? } else { None }) else {
            if piece.iter().all(|byte| *byte == 0) {
                return Ok(false);
            }
            let body: Cow<'_, [u8]> = match from {
                0 => piece.into(),
                _ => [&ZEROS[..from], piece].concat().into(),
            };
            return self.put(place, &body).map(|()| true);
        };
        if old.get(from..to) == Some(piece) {
            return Ok(false);
        }
        let mut body = Vec::with_capacity(old.len().max(to));
        body.extend_from_slice(old);
        body.resize(old.len().max(to), 0);
        body[from..to].copy_from_slice(piece);
        self.context.count_written_bytes(size_of::<u64>(), body.len(), COPIES_OF_A_CHANGE);
        // The log takes only the changed part of the body.
        match self.tx.update(self.table(), (self.number, place as u32), &[BODY.set(&body[..])])? {
            true => Ok(true),
            // The chunk was read before: if it is absent now, it was removed meanwhile.
            false => Err(Abort::Conflict),
        }
    }

    /// Copies the chunks to a string with this number, which has no chunks yet.
    pub fn copy(&self, number: u64) -> Result<ChunkedString<'t>, Abort> {
        self.check_loop(&(0..self.length))?;
        let copy = ChunkedString { number, ..*self };
        for place in 0..self.length.div_ceil(CHUNK_BYTES) {
            if let Some(body) = self.chunk(place)? {
                copy.put(place, body)?;
            }
        }
        Ok(copy)
    }

    /// Bytes of memory of the chunks, about: no chunk is read.
    pub fn bytes(&self) -> Result<usize, Abort> {
        self.context.check_copied()?;
        let of_string = [self.number.into()];
        let scan = self.tx.scan(self.table()).prefix(&of_string).columns(PLACE.only());
        let count = scan.rows()?.len();
        self.context.count_read_bytes(0, count * BYTES_OF_A_CHUNK);
        Ok(self.length.min(count * CHUNK_BYTES) + count * BYTES_OF_A_CHUNK)
    }
}

/// Removes the first chunks of a string, at most `most`. Returns the number of removed chunks.
pub fn remove_first(
    tx: &Transaction<'_>,
    table: Table,
    number: u64,
    most: usize,
) -> Result<usize, Abort> {
    let of_string = [number.into()];
    let rows = tx.scan(table).prefix(&of_string).limit(most).columns(PLACE.only()).rows()?;
    for row in rows {
        tx.delete(table, (number, row.get(PLACE)))?;
    }
    Ok(rows.len())
}

/// A string as stored.
#[derive(Clone, Copy)]
pub enum StoredString<'t> {
    /// In the row of the key.
    InRow(&'t [u8]),
    /// In chunks.
    InChunks(ChunkedString<'t>),
}

impl<'t> StoredString<'t> {
    /// Bytes in the string.
    pub fn len(&self) -> usize {
        match self {
            StoredString::InRow(text) => text.len(),
            StoredString::InChunks(string) => string.len(),
        }
    }

    /// The bytes of a string short enough for a number or the like; otherwise an empty slice, which
    /// is no number either.
    pub fn short(&self) -> &'t [u8] {
        match self {
            &StoredString::InRow(text) => text,
            StoredString::InChunks(_) => &[],
        }
    }

    /// A byte of the string; 0 behind the end.
    ///
    /// # Errors
    /// A conflict, or the transaction has copied too much; the same holds for the functions below.
    pub fn byte(&self, at: usize) -> Result<u8, Abort> {
        if at >= self.len() {
            return Ok(0);
        }
        Ok(self.part(at..at + 1)?[0])
    }

    /// The bytes of a range of the string.
    pub fn part(&self, range: Range<usize>) -> Result<Cow<'t, [u8]>, Abort> {
        match self {
            &StoredString::InRow(text) => Ok(Cow::Borrowed(&text[range])),
            StoredString::InChunks(string) => {
                let mut out = Vec::new();
                string.read(range, &mut out)?;
                Ok(out.into())
            }
        }
    }

    /// The whole string.
    pub fn whole(&self) -> Result<Cow<'t, [u8]>, Abort> {
        self.part(0..self.len())
    }

    /// See [`ChunkedString::visit`].
    pub fn visit(
        &self,
        range: Range<usize>,
        mut visit: impl FnMut(usize, &[u8]) -> bool,
    ) -> Result<(), Abort> {
        match self {
            StoredString::InRow(text) => {
                visit(range.start, &text[range]);
                Ok(())
            }
            StoredString::InChunks(string) => string.visit(range, visit),
        }
    }

    /// See [`ChunkedString::check_loop`].
    pub fn check_loop(&self, range: &Range<usize>) -> Result<(), Abort> {
        match self {
            StoredString::InRow(_) => Ok(()),
            StoredString::InChunks(string) => string.check_loop(range),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::stored_tests::Stored;

    /// A body of another kind of value may have 16 bytes as well.
    #[test]
    fn a_length_that_no_string_has_is_a_torn_view() {
        let (stored, text) = (Stored::new(), u64::from_le_bytes(*b"ijklmnop"));
        for (length, expected) in [
            (0, Ok(0)),
            (LONGEST as u64, Ok(LONGEST)),
            (LONGEST as u64 + 1, Err(Abort::Conflict)),
            (text, Err(Abort::Conflict)),
            (u64::MAX, Err(Abort::Conflict)),
        ] {
            let body = [7u64.to_le_bytes(), length.to_le_bytes()].concat();
            let found = stored.run(|table| Ok(table.string(&body).map(|string| string.len())));
            assert_eq!(found, expected, "{length}");
        }
    }
}
