//! Collections in blocks. The row of the key holds a number, which names the blocks; so a key is
//! removed, renamed or flushed without touching the blocks. A collection without a key is
//! *garbage*: the transaction that removed the key writes the number into the garbage table, where
//! it stays until the reaper has removed the blocks. Strings in chunks have numbers of the same
//! kind, and are removed in the same way.
//!
//! Invariant: the blocks and chunks of a number belong to exactly one key, or the number is
//! garbage.

use super::Tables;
use super::blocks::BlockTable;
use super::head::Kind;
use super::member_run::{MemberOrder, MemberRun};
use super::member_values::MemberValues;
use hyades::{Abort, Column, Session, Transaction};

const NUMBER: Column<u64> = Column::at(0);
/// The type in a row of the table of collections.
const KIND: Column<u32> = Column::at(0);

/// Blocks or chunks removed by one transaction of the reaper.
const BATCH: usize = 128;

/// Most bytes of a collection packed in its key's row.
pub const MOST_PACKED_BYTES: usize = 2 << 10;

/// The body of the key's row of a hash, set or sorted set in blocks: number and secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collection {
    /// Names the runs.
    pub number: u64,
    /// The secret of the order of the members. It stays with the key when the blocks are written
    /// anew, so that a scan continues at its place.
    pub secret: u64,
}

impl Collection {
    /// Reads the body of a row.
    ///
    /// # Errors
    /// The body is not that of a collection in blocks: a torn view.
    pub fn from_body(body: &[u8]) -> Result<Collection, Abort> {
        let body: &[u8; 16] = body.try_into().map_err(|_| Abort::Conflict)?;
        let word = |at: usize| u64::from_le_bytes(body[at..at + 8].try_into().expect("8 bytes"));
        Ok(Collection { number: word(0), secret: word(8) })
    }

    /// The body of the row.
    pub fn body(self) -> Vec<u8> {
        [self.number.to_le_bytes(), self.secret.to_le_bytes()].concat()
    }

    /// The members by name, perhaps with values: the values of a hash, or the scores of a sorted
    /// set.
    pub fn members(self, table: BlockTable<'_>, values: MemberValues) -> MemberRun<'_> {
        let (number, order) = (first_run(self.number), MemberOrder::Hashed(self.secret));
        MemberRun { table, number, order, values }
    }

    /// The members of a sorted set by score: each is the bytes of the score, then the bytes of the
    /// member.
    pub fn by_score(self, table: BlockTable<'_>) -> MemberRun<'_> {
        let (number, order) = (first_run(self.number) + 1, MemberOrder::Sorted);
        MemberRun { table, number, order, values: MemberValues::None }
    }
}

/// The first of the two runs of a collection. Numbers are given out consecutively, so they stay
/// below 2^63.
pub fn first_run(number: u64) -> u64 {
    number << 1
}

/// In the second run of a stream, the first byte of the low key of each group's block. The body of
/// the block begins with the number of the group, a part of the stream.
pub const PART: u8 = 1;

fn part_of(low: &[u8], body: &[u8]) -> Option<u64> {
    let number = body.first_chunk::<8>().filter(|_| low.first() == Some(&PART))?;
    Some(u64::from_le_bytes(*number))
}

/// Marks the number of the collection as garbage. `body` is the body of its key's row, of any type.
pub fn discard(tx: &Transaction<'_>, tables: Tables, body: &[u8]) -> Result<(), Abort> {
    let number = body.first_chunk::<8>().ok_or(Abort::Conflict)?;
    tx.overwrite(tables.garbage, &[u64::from_le_bytes(*number).into()])
}

/// Removes some blocks or chunks that are garbage. Returns whether garbage is left.
#[cfg(any(test, feature = "torture"))]
pub fn remove_garbage(session: &mut Session, tables: Tables) -> Result<bool, hyades::Error> {
    remove_part(session, tables).map(|part| part != GarbagePart::None)
}

/// The result of [`remove_part`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GarbagePart {
    /// There was no garbage.
    None,
    /// Some blocks or chunks.
    Some,
    /// The last blocks or chunks of a collection or a string.
    Last,
}

/// Removes garbage blocks or chunks of one collection or string, a batch at most.
///
/// # Errors
/// The errors of a transaction.
pub fn remove_part(session: &mut Session, tables: Tables) -> Result<GarbagePart, hyades::Error> {
    let (part, ticket) = session.submit(|tx| {
        let rows = tx.scan(tables.garbage).limit(1).rows()?;
        let first = rows.first().map(|row| row.get(NUMBER));
        let Some(number) = first else { return Ok(GarbagePart::None) };
        let kind = tx.get(tables.collections, number)?.map(|row| row.get(KIND));
        let kind = kind.and_then(Kind::of_number);
        let mut left = BATCH;
        if kind.is_some_and(Kind::is_in_chunks) {
            left -= super::chunks::remove_first(tx, tables.chunks, number, left)?;
        } else {
            let run = first_run(number);
            left -= super::blocks::remove_first(tx, tables.blocks, run, left, None)?;
            // The groups of a stream have numbers of their own.
            let mut discard_part = |low: &[u8], body: &[u8]| match part_of(low, body) {
                Some(part) => tx.overwrite(tables.garbage, &[part.into()]),
                None => Ok(()),
            };
            let visit: Option<super::blocks::VisitBlock<'_>> = match kind {
                Some(Kind::Stream) => Some(&mut discard_part),
                _ => None,
            };
            left -= super::blocks::remove_first(tx, tables.blocks, run + 1, left, visit)?;
        }
        if left > 0 {
            tx.delete(tables.garbage, number)?;
            tx.delete(tables.collections, number)?;
            // A part of a collection has no type, and is no collection by itself.
            return Ok(kind.map_or(GarbagePart::Some, |_| GarbagePart::Last));
        }
        Ok(GarbagePart::Some)
    })?;
    // No client is told of the removal: it may become durable at any time.
    drop(ticket);
    Ok(part)
}
