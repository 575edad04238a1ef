//! Blocks: the rows in which a large collection lies. The blocks of a run have a number in common,
//! and each begins at its low key: it holds what lies from there to the low key of the next one.
//! Each says how many elements it holds, so that they are counted without being read.

use super::keyspace::{Context, LONGEST_STRING, Stop};
use hyades::{Abort, Column, Columns, Row, Transaction};

const LOW: Column<[u8]> = Column::at(1);
const COUNT: Column<u32> = Column::at(2);
const BODY: Column<[u8]> = Column::at(3);

/// Most bytes in a block, unless a single element has more. A block that outgrows it is split: a
/// change copies and logs a block, and each block costs some 130 bytes beside its elements.
pub const MOST_BLOCK_BYTES: usize = 2 << 10;

/// What a block takes beside its elements, about: the record of its row, its key, and its place in
/// the index.
const BYTES_OF_A_BLOCK: usize = 130;

/// Bytes of a block that is written with others: it has room to grow.
pub const FILLED_BLOCK_BYTES: usize = MOST_BLOCK_BYTES * 3 / 4;

/// The longest low key: it fits into the primary key of a row whatever bytes it has.
pub const LONGEST_LOW: usize = 1 << 20;

/// Most blocks read at once by a walk over many, which begins with few: the budget of the
/// transaction is checked in between.
pub const PAGE: usize = 64;

/// A block, as it was read.
#[derive(Clone, Copy, Debug)]
pub struct Block<'t> {
    /// Where it begins.
    pub low: &'t [u8],
    /// Elements in it.
    pub count: usize,
    /// Their bytes.
    pub body: &'t [u8],
}

/// The blocks that a transaction reaches.
#[derive(Clone, Copy)]
pub struct BlockTable<'t> {
    tx: Transaction<'t>,
    context: Context<'t>,
}

/// From where a walk over a run goes on.
#[derive(Clone, Copy, Debug)]
pub enum WalkFrom<'a> {
    /// With the first block.
    First,
    /// With the block behind this low key.
    Behind(&'a [u8]),
}

impl<'t> BlockTable<'t> {
    /// Of a transaction.
    pub fn new(tx: Transaction<'t>, context: Context<'t>) -> BlockTable<'t> {
        BlockTable { tx, context }
    }

    fn block(&self, row: &Row<'t>) -> Block<'t> {
        let (low, body) = (row.get(LOW), row.get(BODY));
        self.context.count_read_bytes(low.len(), body.len());
        Block { low, count: row.get(COUNT) as usize, body }
    }

    fn blocks(&self, rows: &[Row<'t>]) -> Vec<Block<'t>> {
        rows.iter().map(|row| self.block(row)).collect()
    }

    /// The block in which an element of this place lies, if there is one that begins there or
    /// before.
    ///
    /// # Errors
    /// A conflict, or the transaction has copied too much; as of all that follow.
    pub fn at(&self, run: u64, place: &[u8]) -> Result<Option<Block<'t>>, Abort> {
        self.context.check_copied()?;
        let (from, to) = ([run.into()], [run.into(), place.into()]);
        let scan = self.tx.scan(self.context.tables.blocks).prefix(&from).to(&to);
        Ok(scan.descending().limit(1).rows()?.first().map(|row| self.block(row)))
    }

    /// The next blocks in their order, as many as a page has, `limit` at most.
    pub fn next(
        &self,
        run: u64,
        from: WalkFrom<'_>,
        limit: usize,
    ) -> Result<Vec<Block<'t>>, Abort> {
        self.context.check_copied()?;
        let of_run = [run.into()];
        let scan = self.tx.scan(self.context.tables.blocks).prefix(&of_run);
        let scan = scan.limit(limit.min(PAGE));
        Ok(self.blocks(match from {
            WalkFrom::First => scan.rows()?,
            WalkFrom::Behind(low) => scan.after(&[run.into(), low.into()]).rows()?,
        }))
    }

    /// The blocks before a low key, or the last ones, the last first, as many as a page has,
    /// `limit` at most.
    pub fn previous(
        &self,
        run: u64,
        before: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Block<'t>>, Abort> {
        self.context.check_copied()?;
        let of_run = [run.into()];
        let scan = self.tx.scan(self.context.tables.blocks).prefix(&of_run);
        let scan = scan.descending().limit(limit.min(PAGE));
        Ok(self.blocks(match before {
            None => scan.rows()?,
            Some(low) => scan.before(&[run.into(), low.into()]).rows()?,
        }))
    }

    /// Visits all blocks of a run in their order, until it is told to stop.
    pub fn walk(
        &self,
        run: u64,
        mut visit: impl FnMut(Block<'t>) -> Result<bool, Abort>,
    ) -> Result<(), Abort> {
        let mut from = WalkFrom::First;
        loop {
            let page = self.next(run, from, PAGE)?;
            for block in &page {
                if !visit(*block)? {
                    return Ok(());
                }
            }
            match page.last() {
                Some(last) if page.len() == PAGE => from = WalkFrom::Behind(last.low),
                _ => return Ok(()),
            }
        }
    }

    /// The block that holds the element of a rank, and the rank of its first one. The way leads
    /// from `start`, or from the first block: it should be near.
    pub fn of_rank(
        &self,
        run: u64,
        start: Option<Block<'t>>,
        rank: usize,
    ) -> Result<(Block<'t>, usize), Abort> {
        let (mut block, mut begin) = match start {
            Some(block) => (block, self.count(run, Some(block.low))?),
            None => (*self.next(run, WalkFrom::First, 1)?.first().ok_or(Abort::Conflict)?, 0),
        };
        let mut step = 2;
        while rank < begin {
            let page = self.previous(run, Some(block.low), step)?;
            // Blocks that do not add up are a torn view.
            block = *page.first().ok_or(Abort::Conflict)?;
            for before in page {
                if rank < begin {
                    (block, begin) =
                        (before, begin.checked_sub(before.count).ok_or(Abort::Conflict)?);
                }
            }
            step = (2 * step).min(PAGE);
        }
        while rank >= begin + block.count {
            let page = self.next(run, WalkFrom::Behind(block.low), step)?;
            if page.is_empty() {
                return Err(Abort::Conflict);
            }
            for next in page {
                if rank >= begin + block.count {
                    (block, begin) = (next, begin + block.count);
                }
            }
            step = (2 * step).min(PAGE);
        }
        Ok((block, begin))
    }

    /// The elements in a run, or in its blocks before a low key, counted without reading them.
    pub fn count(&self, run: u64, before: Option<&[u8]>) -> Result<usize, Abort> {
        self.context.check_copied()?;
        let of_run = [run.into()];
        let scan = self.tx.scan(self.context.tables.blocks).prefix(&of_run).columns(COUNT.only());
        let rows = match before {
            None => scan.rows()?,
            Some(low) => scan.before(&[run.into(), low.into()]).rows()?,
        };
        self.context.count_read_bytes(0, rows.len() * size_of::<u32>());
        Ok(rows.iter().map(|row| row.get(COUNT) as usize).sum())
    }

    /// Whether a run has a block.
    pub fn has_any(&self, run: u64) -> Result<bool, Abort> {
        let of_run = [run.into()];
        let scan = self.tx.scan(self.context.tables.blocks).prefix(&of_run).columns(COUNT.only());
        Ok(!scan.limit(1).rows()?.is_empty())
    }

    fn check(&self, low: &[u8], body: &[u8], copies: usize) -> Result<(), Stop> {
        if body.len() + low.len() > LONGEST_STRING {
            return Err(format!("ERR the value is longer than {LONGEST_STRING} bytes").into());
        }
        self.context.count_written_bytes(low.len(), body.len(), copies);
        Ok(())
    }

    /// Adds a block where none begins.
    ///
    /// # Errors
    /// A single element is too long for a row; as of [`BlockTable::change`].
    pub fn add(&self, run: u64, low: &[u8], count: usize, body: &[u8]) -> Result<(), Stop> {
        self.check(low, body, 1)?;
        let row = [run.into(), low.into(), (count as u32).into(), body.into()];
        Ok(self.tx.put(self.context.tables.blocks, &row)?)
    }

    /// Replaces the elements of a block.
    pub fn change(&self, run: u64, low: &[u8], count: usize, body: &[u8]) -> Result<(), Stop> {
        self.check(low, body, super::keyspace::COPIES_OF_A_CHANGE)?;
        let sets = [COUNT.set(count as u32), BODY.set(body)];
        // It was read before: if it is not there now, it was deleted meanwhile.
        match self.tx.update(self.context.tables.blocks, (run, low), &sets)? {
            true => Ok(()),
            false => Err(Abort::Conflict.into()),
        }
    }

    /// Removes a block.
    pub fn remove(&self, run: u64, low: &[u8]) -> Result<(), Abort> {
        self.context.count_written_bytes(low.len(), 0, 1);
        self.tx.delete(self.context.tables.blocks, (run, low)).map(drop)
    }
}

/// Bytes of the blocks of a run.
pub fn block_bytes(table: BlockTable<'_>, run: u64) -> Result<usize, Abort> {
    let mut bytes = 0;
    table.walk(run, |block| {
        bytes += block.low.len() + block.body.len() + BYTES_OF_A_BLOCK;
        Ok(true)
    })?;
    Ok(bytes)
}

/// Removes the first blocks of a run, as many as `most` at most. Returns how many.
pub fn remove_first(
    tx: &Transaction<'_>,
    table: hyades::Table,
    run: u64,
    most: usize,
) -> Result<usize, Abort> {
    let of_run = [run.into()];
    let rows = tx.scan(table).prefix(&of_run).limit(most).columns(Columns::of(&[1])).rows()?;
    for row in rows {
        tx.delete(table, (run, row.get(LOW)))?;
    }
    Ok(rows.len())
}

/// Divides elements into blocks, where they may be cut. `sizes` are their bytes; `cuts(n)` says
/// whether a block may begin with element `n`. Each block has at most [`MOST_BLOCK_BYTES`] where
/// cuts allow it.
pub fn divide(sizes: &[usize], cuts: impl Fn(usize) -> bool) -> Vec<std::ops::Range<usize>> {
    let total: usize = sizes.iter().sum();
    // One that has just outgrown its block is cut in two halves.
    let wanted = match total {
        total if total <= MOST_BLOCK_BYTES => return std::iter::once(0..sizes.len()).collect(),
        total if total <= 2 * FILLED_BLOCK_BYTES => total / 2,
        _ => FILLED_BLOCK_BYTES,
    };
    let (mut pieces, mut begin, mut bytes) = (Vec::new(), 0, 0);
    for (at, size) in sizes.iter().enumerate() {
        let is_full = bytes >= wanted || bytes + size > MOST_BLOCK_BYTES;
        if at > begin && is_full && cuts(at) {
            pieces.push(begin..at);
            (begin, bytes) = (at, 0);
        }
        bytes += size;
    }
    pieces.push(begin..sizes.len());
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_are_whole_and_fit(sizes in prop::collection::vec(
            prop_oneof![8 => 1usize..200, 1 => 1usize..9_000], 1..400
        )) {
            let pieces = divide(&sizes, |_| true);
            let mut next = 0;
            for piece in &pieces {
                prop_assert_eq!(piece.start, next);
                prop_assert!(!piece.is_empty());
                let bytes: usize = sizes[piece.clone()].iter().sum();
                prop_assert!(bytes <= MOST_BLOCK_BYTES || piece.len() == 1);
                next = piece.end;
            }
            prop_assert_eq!(next, sizes.len());
            prop_assert_eq!(divide(&sizes, |_| false).len(), 1);
        }
    }
}
