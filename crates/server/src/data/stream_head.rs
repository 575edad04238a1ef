//! The head of a stream, known without the entries, and the counts for groups derived from the
//! head.

use crate::base::stream_id::StreamId;

/// Bytes of the head of a stream.
pub const HEAD_BYTES: usize = 72;

/// The values of a stream beside the entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamHead {
    /// The last id given out.
    pub last: StreamId,
    /// The number of entries.
    pub length: u64,
    /// The number of entries ever added.
    pub added: u64,
    /// Entries in the tail, including dead ones.
    pub in_tail: u64,
    /// The id of the first entry; zero if there is none.
    pub first: StreamId,
    /// The highest id of an entry removed by XDEL.
    pub deleted: StreamId,
}

impl StreamHead {
    /// The head as stored.
    pub fn words(&self) -> [u64; HEAD_BYTES / 8] {
        let StreamHead { last, length, added, in_tail, first, deleted } = *self;
        [last.ms, last.seq, length, added, in_tail, first.ms, first.seq, deleted.ms, deleted.seq]
    }

    /// Reads a head and the bytes behind it.
    pub fn from_body(body: &[u8]) -> Option<(StreamHead, &[u8])> {
        let (words, tail) = body.split_first_chunk::<HEAD_BYTES>()?;
        let word =
            |at: usize| u64::from_le_bytes(words[8 * at..8 * at + 8].try_into().expect("8 bytes"));
        let id = |at| StreamId { ms: word(at), seq: word(at + 1) };
        let head = StreamHead {
            last: id(0),
            length: word(2),
            added: word(3),
            in_tail: word(4),
            first: id(5),
            deleted: id(7),
        };
        Some((head, tail))
    }

    /// Whether an entry from an id on was deleted, behind the first entry.
    pub fn has_gaps_from(&self, id: StreamId) -> bool {
        self.length > 0 && self.deleted >= self.first.max(id) && self.deleted > StreamId::ZERO
    }

    /// The number of entries ever added up to an id, as far as the ids of the stream tell.
    pub fn added_up_to(&self, id: StreamId) -> Option<u64> {
        let is_whole = self.deleted == StreamId::ZERO || self.deleted < self.first;
        match () {
            () if self.added == 0 => Some(0),
            () if self.length == 0 && id <= self.last => Some(self.added),
            () if id == self.last => Some(self.added),
            () if id > self.last || !is_whole => None,
            () if id < self.first => self.added.checked_sub(self.length),
            () if id == self.first => self.added.checked_sub(self.length)?.checked_add(1),
            () => None,
        }
    }

    /// The number of entries a group has not read yet, as far as known. Entries up to `last` were
    /// delivered to the group, and it has read `read` entries.
    pub fn lag(&self, last: StreamId, read: Option<u64>) -> Option<i64> {
        let read = match read.filter(|_| !self.has_gaps_from(last)) {
            _ if self.added == 0 => return Some(0),
            Some(read) => read,
            None => self.added_up_to(last)?,
        };
        Some(self.added.wrapping_sub(read) as i64)
    }
}
