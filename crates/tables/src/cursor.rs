//! Cursors: the rows of a range in chunks, for ranges larger than memory.

use crate::error::Error;
use crate::prefix::OwnedRange;
use crate::view::{RawRow, Reads};
use hyades_deuteronomy::ScanOrder;
use std::ops::Bound;

/// The fewest and the most rows of a chunk.
const CHUNK_ROWS: (usize, usize) = (16, 1024);
/// The bytes of a chunk, by the lengths of the rows of the chunk before.
const CHUNK_BYTES: usize = 512 << 10;

/// A place in a range.
pub(crate) struct Cursor {
    range: OwnedRange,
    order: ScanOrder,
    chunk: std::vec::IntoIter<RawRow>,
    /// The rows of the next chunk.
    next_rows: usize,
    /// The rows left to hand out.
    left: usize,
    /// Whether no row is left in the range behind the chunk.
    has_ended: bool,
}

impl Cursor {
    /// A cursor in front of the first `limit` rows of a range.
    pub fn new(range: OwnedRange, order: ScanOrder, limit: usize) -> Self {
        let (chunk, next_rows) = (Vec::new().into_iter(), CHUNK_ROWS.0);
        Self { range, order, chunk, next_rows, left: limit, has_ended: limit == 0 }
    }

    /// The next row; None behind the last. After an error the cursor has ended.
    pub fn next(&mut self, view: &mut impl Reads) -> Result<Option<RawRow>, Error> {
        if self.chunk.len() == 0
            && !self.has_ended
            && let Err(error) = self.fill(view)
        {
            self.end();
            return Err(error);
        }
        let row = self.chunk.next();
        self.left -= usize::from(row.is_some());
        Ok(row)
    }

    /// Ends the cursor.
    pub fn end(&mut self) {
        self.has_ended = true;
        self.chunk = Vec::new().into_iter();
    }

    /// The rows read and not handed out yet.
    pub fn pending(&self) -> &[RawRow] {
        self.chunk.as_slice()
    }

    /// Reads the next chunk.
    fn fill(&mut self, view: &mut impl Reads) -> Result<(), Error> {
        let limit = self.next_rows.min(self.left);
        let range = (as_slice(&self.range.0), as_slice(&self.range.1));
        let rows = view.read_rows(range, self.order, limit)?;
        self.has_ended = rows.len() < limit || rows.len() == self.left;
        if let Some((last, _)) = rows.last() {
            match self.order {
                ScanOrder::Ascending => self.range.0 = Bound::Excluded(last.to_vec()),
                ScanOrder::Descending => self.range.1 = Bound::Excluded(last.to_vec()),
            }
            let bytes: usize = rows.iter().map(|(key, value)| key.len() + value.len()).sum();
            let fitting = CHUNK_BYTES / (bytes / rows.len()).max(1);
            self.next_rows = (2 * limit).clamp(1, CHUNK_ROWS.1).min(fitting.max(1));
        }
        self.chunk = rows.into_iter();
        Ok(())
    }
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(|key| &key[..])
}
