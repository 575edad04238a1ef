//! Blocks: the rows of a large collection. The blocks of a run share a number, and each block
//! begins at a low key: the block holds the elements from there to the low key of the next block.
//! Each block stores the number of its elements, so elements are counted without a read.

use super::chunks::ChunkedString;
use super::keyspace::{Context, LONGEST_BODY, Stop};
use hyades::{Abort, Column, Row, Transaction};
use std::ops::Range;

const LOW: Column<[u8]> = Column::at(1);
const COUNT: Column<u32> = Column::at(2);
const BODY: Column<[u8]> = Column::at(3);

/// Bytes of a block in memory beside the elements: the number and the end of the elements, and the
/// head of the row.
const HEAD_BYTES: usize = 16;

/// Most bytes in a block, unless a single element has more. A larger block is split: a change
/// copies a block, and each block costs some 130 bytes beside its elements. With the head a full
/// block takes 2 KiB, which allocators serve without a rest.
pub const MOST_BLOCK_BYTES: usize = (2 << 10) - HEAD_BYTES;

/// Bytes of a block beside the elements, about: the record of the row, the key, and the place in
/// the index.
const BYTES_OF_A_BLOCK: usize = 130;

/// Bytes of a block written with further blocks, where elements may be added at any place: the
/// block has room to grow.
pub const FILLED_BLOCK_BYTES: usize = (2 << 10) * 3 / 4 - HEAD_BYTES;

/// The longest low key: any bytes of this length fit into the primary key of a row.
pub const LONGEST_LOW: usize = 1 << 20;

/// The type of a part of a collection in the table of collections: no type of values has this
/// number.
const PART: u32 = u32::MAX;

/// Most blocks read at once by a walk over many; the walk begins with few: the budget of the
/// transaction is checked between the reads.
pub const PAGE: usize = 64;

/// A block as read.
#[derive(Clone, Copy, Debug)]
pub struct Block<'t> {
    /// Where the block begins.
    pub low: &'t [u8],
    /// The number of elements in the block.
    pub count: usize,
    /// The bytes of the elements.
    pub body: &'t [u8],
}

/// The blocks within reach of a transaction.
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
    /// The blocks within reach of `tx`.
    pub fn new(tx: Transaction<'t>, context: Context<'t>) -> BlockTable<'t> {
        BlockTable { tx, context }
    }

    /// The string in chunks named by the body of a key's row.
    pub fn string(&self, body: &[u8]) -> Result<ChunkedString<'t>, Abort> {
        ChunkedString::from_body(self.tx, self.context, body)
    }

    fn block(&self, row: &Row<'t>) -> Block<'t> {
        let (low, body) = (row.get(LOW), row.get(BODY));
        self.context.count_read_bytes(low.len(), body.len());
        Block { low, count: row.get(COUNT) as usize, body }
    }

    fn blocks(&self, rows: &[Row<'t>]) -> Vec<Block<'t>> {
        rows.iter().map(|row| self.block(row)).collect()
    }

    /// The block in which an element of this place lies, if a block begins there or before.
    ///
    /// # Errors
    /// A conflict, or the transaction has copied too much; the same holds for the functions below.
    pub fn at(&self, run: u64, place: &[u8]) -> Result<Option<Block<'t>>, Abort> {
        self.context.check_copied()?;
        let (from, to) = ([run.into()], [run.into(), place.into()]);
        let scan = self.tx.scan(self.context.tables.blocks).prefix(&from).to(&to);
        Ok(scan.descending().limit(1).rows()?.first().map(|row| self.block(row)))
    }

    /// The block with this low key, if there is one.
    pub fn get(&self, run: u64, low: &[u8]) -> Result<Option<Block<'t>>, Abort> {
        self.context.check_copied()?;
        let row = self.tx.get(self.context.tables.blocks, (run, low))?;
        Ok(row.map(|row| self.block(&row)))
    }

    /// The next blocks in their order: at most a page, and at most `limit`.
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

    /// The blocks before a low key, or the last blocks, in descending order: at most a page, and at
    /// most `limit`.
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

    /// Visits all blocks of a run in their order, until `visit` returns false.
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

    /// The block with the element of a rank, and the rank of the block's first element.
    pub fn of_rank(&self, run: u64, rank: usize) -> Result<(Block<'t>, usize), Abort> {
        self.context.check_copied()?;
        let found = self.tx.select(self.context.tables.blocks, run, rank as u64)?;
        // Blocks that do not add up are a torn view.
        let (row, begin) = found.ok_or(Abort::Conflict)?;
        Ok((self.block(&row), begin as usize))
    }

    /// The number of elements in a run, or in its blocks before a low key, counted without reading
    /// elements: from the sums that the database keeps, or block by block.
    pub fn count(&self, run: u64, before: Option<&[u8]>) -> Result<usize, Abort> {
        self.context.check_copied()?;
        let before = before.map(|low| [run.into(), low.into()]);
        let blocks = self.context.tables.blocks;
        let sum = self.tx.sum(blocks, run, before.as_ref().map(|key| &key[..]))?;
        self.context.count_read_bytes(0, size_of::<u64>());
        Ok(sum as usize)
    }

    /// Where each block of a run begins, and how many elements it has, without reading elements.
    pub fn counts(&self, run: u64) -> Result<Vec<(&'t [u8], usize)>, Abort> {
        self.context.check_copied()?;
        let (of_run, columns) = ([run.into()], LOW.only().and(COUNT.only()));
        let scan = self.tx.scan(self.context.tables.blocks).prefix(&of_run).columns(columns);
        let rows = scan.rows()?;
        let all: Vec<_> = rows.iter().map(|row| (row.get(LOW), row.get(COUNT) as usize)).collect();
        let bytes = all.iter().map(|(low, _)| low.len() + size_of::<u32>()).sum();
        self.context.count_read_bytes(0, bytes);
        Ok(all)
    }

    /// Whether a run has a block.
    pub fn has_any(&self, run: u64) -> Result<bool, Abort> {
        let of_run = [run.into()];
        let scan = self.tx.scan(self.context.tables.blocks).prefix(&of_run).columns(COUNT.only());
        Ok(!scan.limit(1).rows()?.is_empty())
    }

    fn check(&self, low: &[u8], body: &[u8], copies: usize) -> Result<(), Stop> {
        if body.len() + low.len() > LONGEST_BODY {
            return Err(format!("ERR the value is longer than {LONGEST_BODY} bytes").into());
        }
        self.context.count_written_bytes(low.len(), body.len(), copies);
        Ok(())
    }

    /// Adds copies of the blocks of a run to the run `to`, an empty run.
    pub fn copy(&self, from: u64, to: u64) -> Result<(), Stop> {
        let mut walk = WalkFrom::First;
        loop {
            let page = self.next(from, walk, PAGE)?;
            for block in &page {
                self.add(to, block.low, block.count, block.body)?;
            }
            match page.last() {
                Some(last) => walk = WalkFrom::Behind(last.low),
                None => return Ok(()),
            }
        }
    }

    /// A new number for blocks of a collection beside the blocks of the collection's own number.
    pub fn number_part(&self) -> Result<u64, Abort> {
        self.context.count_written_bytes(size_of::<u64>(), size_of::<u32>(), 1);
        self.tx.insert(self.context.tables.collections, &[PART.into()])
    }

    /// Marks the blocks of a number as garbage.
    pub fn discard(&self, number: u64) -> Result<(), Abort> {
        self.context.count_written_bytes(0, size_of::<u64>(), 1);
        self.context.effects.borrow_mut().discarded = true;
        self.tx.overwrite(self.context.tables.garbage, &[number.into()])
    }

    /// Adds a block where none begins.
    ///
    /// # Errors
    /// A single element is too long for a row; and the errors of [`BlockTable::change`].
    pub fn add(&self, run: u64, low: &[u8], count: usize, body: &[u8]) -> Result<(), Stop> {
        self.check(low, body, 1)?;
        let row = [run.into(), low.into(), (count as u32).into(), body.into()];
        Ok(self.tx.overwrite(self.context.tables.blocks, &row)?)
    }

    /// Replaces the elements of a block.
    pub fn change(&self, run: u64, low: &[u8], count: usize, body: &[u8]) -> Result<(), Stop> {
        self.check(low, body, super::keyspace::COPIES_OF_A_CHANGE)?;
        let sets = [COUNT.set(count as u32), BODY.set(body)];
        // The block was read before: if it is absent now, it was deleted meanwhile.
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

/// A function called with the low key and the body of a block.
pub type VisitBlock<'v> = &'v mut dyn FnMut(&[u8], &[u8]) -> Result<(), Abort>;

/// Removes the first blocks of a run, at most `most`, after a call of `visit` with each. Returns
/// the number of removed blocks.
pub fn remove_first(
    tx: &Transaction<'_>,
    table: hyades::Table,
    run: u64,
    most: usize,
    mut visit: Option<VisitBlock<'_>>,
) -> Result<usize, Abort> {
    let of_run = [run.into()];
    let columns = if visit.is_some() { LOW.only().and(BODY.only()) } else { LOW.only() };
    let rows = tx.scan(table).prefix(&of_run).limit(most).columns(columns).rows()?;
    for row in rows {
        if let Some(visit) = &mut visit {
            visit(row.get(LOW), row.get(BODY))?;
        }
        tx.delete(table, (run, row.get(LOW)))?;
    }
    Ok(rows.len())
}

/// Divides elements into blocks, where cuts are allowed. `sizes` are the bytes of the elements;
/// `cuts(n)` says whether a block may begin with element `n`. Each block has at most
/// [`MOST_BLOCK_BYTES`] where cuts allow it.
pub fn divide(sizes: &[usize], cuts: impl Fn(usize) -> bool) -> Vec<Range<usize>> {
    // A block just grown too large is cut in two halves.
    let wanted = match sizes.iter().sum::<usize>() {
        total if total <= MOST_BLOCK_BYTES => MOST_BLOCK_BYTES,
        total if total <= 2 * FILLED_BLOCK_BYTES => total / 2,
        _ => FILLED_BLOCK_BYTES,
    };
    divide_at(sizes, wanted, cuts)
}

/// As [`divide`], into full blocks; the last block has the rest.
pub fn fill(sizes: &[usize], cuts: impl Fn(usize) -> bool) -> Vec<Range<usize>> {
    divide_at(sizes, MOST_BLOCK_BYTES, cuts)
}

/// As [`fill`], but the first block has the rest.
pub fn fill_backward(sizes: &[usize], cuts: impl Fn(usize) -> bool) -> Vec<Range<usize>> {
    let end = sizes.len();
    let backward: Vec<usize> = sizes.iter().rev().copied().collect();
    let pieces = fill(&backward, |at| cuts(end - at)).into_iter().rev();
    pieces.map(|piece| end - piece.end..end - piece.start).collect()
}

/// As [`divide`], where the elements `old` were a block. If the block was well filled and elements
/// were added only before or behind the block, the block stays: elements in ascending or descending
/// order leave full blocks behind, not halves.
pub fn divide_grown(
    sizes: &[usize],
    old: Range<usize>,
    cuts: impl Fn(usize) -> bool,
) -> Vec<Range<usize>> {
    let bytes = |range: &Range<usize>| sizes[range.clone()].iter().sum::<usize>();
    let all = 0..sizes.len();
    let is_full = (FILLED_BLOCK_BYTES..=MOST_BLOCK_BYTES).contains(&bytes(&old));
    let may_cut = |at: usize| at == 0 || at == all.end || cuts(at);
    if !is_full || bytes(&all) <= MOST_BLOCK_BYTES || !may_cut(old.start) || !may_cut(old.end) {
        return divide(sizes, cuts);
    }
    let mut pieces = fill_backward(&sizes[..old.start], &cuts);
    pieces.push(old.clone());
    let behind = fill(&sizes[old.end..], |at| cuts(old.end + at)).into_iter();
    pieces.extend(behind.map(|piece| old.end + piece.start..old.end + piece.end));
    pieces
}

/// Divides elements into blocks of `wanted` bytes or a few more; no elements make no block.
fn divide_at(sizes: &[usize], wanted: usize, cuts: impl Fn(usize) -> bool) -> Vec<Range<usize>> {
    let (mut pieces, mut begin, mut bytes) = (Vec::new(), 0, 0);
    for (at, size) in sizes.iter().enumerate() {
        let is_full = bytes >= wanted || bytes + size > MOST_BLOCK_BYTES;
        if at > begin && is_full && cuts(at) {
            pieces.push(begin..at);
            (begin, bytes) = (at, 0);
        }
        bytes += size;
    }
    if begin < sizes.len() {
        pieces.push(begin..sizes.len());
    }
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
            let (first, last) = (usize::from(sizes[0] % 2 == 0), sizes.len() - sizes[0] % 2);
            let ways = [
                divide(&sizes, |_| true),
                fill(&sizes, |_| true),
                fill_backward(&sizes, |_| true),
                divide_grown(&sizes, first.min(last)..last, |_| true),
            ];
            for pieces in ways {
                let mut next = 0;
                for piece in &pieces {
                    prop_assert_eq!(piece.start, next);
                    prop_assert!(!piece.is_empty());
                    let bytes: usize = sizes[piece.clone()].iter().sum();
                    prop_assert!(bytes <= MOST_BLOCK_BYTES || piece.len() == 1);
                    next = piece.end;
                }
                prop_assert_eq!(next, sizes.len());
            }
            prop_assert_eq!(divide(&sizes, |_| false).len(), 1);
            prop_assert_eq!(divide_grown(&sizes, 0..last, |_| false).len(), 1);
        }

        #[test]
        fn blocks_are_filled_up_to_an_element(sizes in prop::collection::vec(1usize..200, 1..400)) {
            let bytes = |piece: &Range<usize>| sizes[piece.clone()].iter().sum::<usize>();
            let forward = fill(&sizes, |_| true);
            for pair in forward.windows(2) {
                prop_assert!(bytes(&pair[0]) + sizes[pair[1].start] > MOST_BLOCK_BYTES);
            }
            for pair in fill_backward(&sizes, |_| true).windows(2) {
                prop_assert!(bytes(&pair[1]) + sizes[pair[0].end - 1] > MOST_BLOCK_BYTES);
            }
        }
    }

    /// A block at the limit, and a block past the limit, grown in front, behind, and in between.
    #[test]
    fn a_block_that_grows_at_an_end_stays_full() {
        let full = vec![16; MOST_BLOCK_BYTES / 16];
        let count = full.len();
        assert_eq!(count * 16, MOST_BLOCK_BYTES);
        let all = |_: usize| true;
        assert_eq!(divide_grown(&full, 0..count - 1, all).len(), 1);
        let more = vec![16; count + 1];
        assert_eq!(divide_grown(&more, 0..count, all), [0..count, count..count + 1]);
        assert_eq!(divide_grown(&more, 1..count + 1, all), [0..1, 1..count + 1]);
        let halves = divide(&more, all);
        assert_eq!(divide_grown(&more, 0..count + 1, all), halves);
        assert_eq!(halves.len(), 2);
        // Where a cut is not allowed, and a block that is not well filled.
        assert_eq!(divide_grown(&more, 0..count, |at| at < count), halves);
        let few = FILLED_BLOCK_BYTES / 16 - 1;
        assert_eq!(divide_grown(&more, 0..few, all), halves);
        assert_eq!(divide_grown(&more, 0..few + 1, all), [0..few + 1, few + 1..count + 1]);
        assert!(fill(&[], all).is_empty() && fill_backward(&[], all).is_empty());
    }
}
