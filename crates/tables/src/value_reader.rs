//! Reading a value in pieces.

use crate::bytes::Bytes;
use crate::error::Error;
use crate::large::{Head, Stored};
use crate::view::View;
use std::io::{self, BufRead, Read};

/// A value to be read from its beginning to its end, a piece at a time: for values larger than one
/// likes to have in memory. Returned by [`Keyspace::open_value`](crate::Keyspace::open_value).
///
/// Errors of the database are kept within the [`io::Error`]:
/// `error.get_ref()` is an [`Error`].
pub struct ValueReader<'v, V> {
    view: &'v mut V,
    /// None where the value stands beside its key.
    head: Option<Head>,
    len: u64,
    /// The piece to be read next.
    next: u32,
    piece: Bytes,
    /// The bytes of `piece` read.
    read: usize,
}

impl<'v, V: View> ValueReader<'v, V> {
    pub(crate) fn new(view: &'v mut V, stored: Bytes) -> Result<Self, Error> {
        let (head, piece) = match Stored::decode(&stored)? {
            Stored::Inline => (None, stored.skip(1)),
            Stored::Spread(head) => (Some(head), Bytes::owned(Vec::new())),
        };
        let len = head.as_ref().map_or(piece.len() as u64, |head| head.bytes);
        Ok(Self { view, head, len, next: 0, piece, read: 0 })
    }

    /// The length of the whole value in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the value has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<V: View> BufRead for ValueReader<'_, V> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if let Some(head) = &self.head
            && self.read == self.piece.len()
            && self.next < head.pieces()
        {
            self.piece = head.read_piece(self.view, self.next).map_err(io::Error::other)?;
            (self.next, self.read) = (self.next + 1, 0);
        }
        Ok(&self.piece[self.read..])
    }

    fn consume(&mut self, amount: usize) {
        self.read = (self.read + amount).min(self.piece.len());
    }
}

impl<V: View> Read for ValueReader<'_, V> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(out)?;
        self.consume(count);
        Ok(count)
    }
}
