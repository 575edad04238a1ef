//! Lists too long for the row of their key: the row holds the number of elements and the elements
//! at both ends, and blocks hold the elements between, in the order of the blocks' numbers. A push
//! or a pop writes the row; once in a while an end grows too large or becomes empty, and a block is
//! written.

use super::blocks::{
    Block, BlockTable, MOST_BLOCK_BYTES, PAGE, WalkFrom, block_bytes, divide, fill, fill_backward,
};
use super::collections::first_run;
use super::keyspace::Stop;
use super::packed;
use hyades::Abort;
use std::collections::VecDeque;

/// Most bytes at each end.
const MOST_END_BYTES: usize = 1 << 10;

/// Bytes left at an end too large for the row, or moved to an empty end.
const KEPT_END_BYTES: usize = MOST_END_BYTES / 2;

/// The number between the first blocks on either side.
const MIDDLE: u64 = 1 << 63;

/// From the number of a block at an end to the next number. The numbers between leave room for
/// parts of divided blocks. (Tests use this room up.)
const STRIDE: u64 = if cfg!(test) { 8 } else { 1 << 32 };

/// From the number of a block to the number of the block's second part, at most.
const SHORT_STRIDE: u64 = if cfg!(test) { 2 } else { 1 << 16 };

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The first element.
    Left,
    /// The last element.
    Right,
}

/// A list to change. The blocks are written at once, the row is [`LongList::body`].
pub struct LongList<'t, 'a> {
    table: BlockTable<'t>,
    number: u64,
    /// The number of all elements.
    count: usize,
    /// Numbers of the next blocks at the ends.
    next: [u64; 2],
    /// The elements at the ends, of each end from the left to the right.
    ends: [VecDeque<&'a [u8]>; 2],
}

fn size(element: &&[u8]) -> usize {
    packed::size(element.len())
}

fn sizes(elements: &[&[u8]]) -> Vec<usize> {
    elements.iter().map(size).collect()
}

/// How many of the elements fit into a block.
fn fitting<'e>(block: &Block<'_>, elements: impl Iterator<Item = &'e &'e [u8]>) -> usize {
    let mut bytes = block.body.len();
    let fits = |element: &&&[u8]| {
        bytes += size(element);
        bytes <= MOST_BLOCK_BYTES
    };
    elements.take_while(fits).count()
}

/// The number of a block.
fn number_of(block: &Block<'_>) -> Result<u64, Abort> {
    // Another length is a torn view.
    Ok(u64::from_be_bytes(block.low.try_into().map_err(|_| Abort::Conflict)?))
}

impl<'t: 'a, 'a> LongList<'t, 'a> {
    /// Reads the body of a row.
    ///
    /// # Errors
    /// The body is not the body of a list in blocks: a torn view.
    pub fn from_body(table: BlockTable<'t>, body: &'t [u8]) -> Result<LongList<'t, 'a>, Abort> {
        let read = || {
            let (words, rest) = body.split_first_chunk::<32>()?;
            let word = |at: usize| {
                u64::from_le_bytes(words[8 * at..8 * at + 8].try_into().expect("8 bytes"))
            };
            let (length, rest) = rest.split_first_chunk::<4>()?;
            let (left, right) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            Some(([word(0), word(1), word(2), word(3)], [left, right]))
        };
        let ([number, count, left, right], ends) = read().ok_or(Abort::Conflict)?;
        let ends = [packed::elements(ends[0])?.into(), packed::elements(ends[1])?.into()];
        let list = LongList { table, number, count: count as usize, next: [left, right], ends };
        // The ends have more elements than the list: a torn view.
        if list.middle() > count as usize { Err(Abort::Conflict) } else { Ok(list) }
    }

    /// Writes the blocks of a new list. Returns the body of the row.
    pub fn write(table: BlockTable<'t>, number: u64, all: &[&[u8]]) -> Result<Vec<u8>, Stop> {
        let mut list = LongList::empty(table, number);
        list.push(End::Right, all)?;
        Ok(list.body())
    }

    fn empty(table: BlockTable<'t>, number: u64) -> LongList<'t, 'a> {
        let (next, ends) = ([MIDDLE - STRIDE, MIDDLE], [VecDeque::new(), VecDeque::new()]);
        LongList { table, number, count: 0, next, ends }
    }

    /// The body of the row.
    pub fn body(&self) -> Vec<u8> {
        let [left, right] = &self.ends;
        let left = packed::pack(left.iter().copied());
        let mut body = Vec::with_capacity(2 * MOST_END_BYTES);
        for word in [self.number, self.count as u64, self.next[0], self.next[1]] {
            body.extend(word.to_le_bytes());
        }
        body.extend((left.len() as u32).to_le_bytes());
        body.extend(left);
        right.iter().for_each(|element| packed::push(&mut body, element));
        body
    }

    /// The number of elements.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Elements in blocks.
    fn middle(&self) -> usize {
        // If the list has fewer elements than the ends, the result is too large.
        self.count.wrapping_sub(self.ends[0].len() + self.ends[1].len())
    }

    fn run(&self) -> u64 {
        first_run(self.number)
    }

    /// The block at an end, or the block beside this low key.
    fn end_block(&self, end: End, beside: Option<&[u8]>) -> Result<Option<Block<'t>>, Abort> {
        let found = match end {
            End::Left => {
                self.table.next(self.run(), beside.map_or(WalkFrom::First, WalkFrom::Behind), 1)?
            }
            End::Right => self.table.previous(self.run(), beside, 1)?,
        };
        Ok(found.first().copied())
    }

    fn blocks(&self) -> Result<Vec<Block<'t>>, Abort> {
        let mut blocks = Vec::new();
        self.table.walk(self.run(), |block| {
            blocks.push(block);
            Ok(true)
        })?;
        Ok(blocks)
    }

    fn add_block(&self, number: u64, elements: &[&[u8]]) -> Result<(), Stop> {
        let body = packed::pack(elements.iter().copied());
        self.table.add(self.run(), &number.to_be_bytes(), elements.len(), &body)
    }

    fn change_block(&self, block: &Block<'_>, elements: &[&[u8]]) -> Result<(), Stop> {
        let body = packed::pack(elements.iter().copied());
        self.table.change(self.run(), block.low, elements.len(), &body)
    }

    /// Adds elements at an end, one after the other.
    pub fn push(&mut self, end: End, elements: &[&'a [u8]]) -> Result<(), Stop> {
        self.count += elements.len();
        let at = end as usize;
        match end {
            End::Left => elements.iter().for_each(|element| self.ends[at].push_front(element)),
            End::Right => self.ends[at].extend(elements),
        }
        self.spill(end)
    }

    /// Moves the inner elements of an end too large for the row into blocks.
    fn spill(&mut self, end: End) -> Result<(), Stop> {
        let at = end as usize;
        if self.ends[at].iter().map(size).sum::<usize>() <= MOST_END_BYTES {
            return Ok(());
        }
        let all: Vec<&[u8]> = self.ends[at].drain(..).collect();
        let mut bytes = 0;
        let stays = |element: &&&[u8]| {
            bytes += size(element);
            bytes <= KEPT_END_BYTES
        };
        let block = self.end_block(end, None)?;
        match end {
            End::Left => {
                let (outer, inner) = all.split_at(all.iter().take_while(stays).count());
                self.ends[at] = outer.iter().copied().collect();
                self.spill_left(inner, block)
            }
            End::Right => {
                let kept = all.iter().rev().take_while(stays).count();
                let (inner, outer) = all.split_at(all.len() - kept);
                self.ends[at] = outer.iter().copied().collect();
                self.spill_right(inner, block)
            }
        }
    }

    /// Fills the block at the left end up, and puts further blocks in front.
    fn spill_left(&mut self, inner: &[&[u8]], block: Option<Block<'t>>) -> Result<(), Stop> {
        let mut rest = inner;
        if let Some(block) = block {
            let first;
            (rest, first) = inner.split_at(inner.len() - fitting(&block, inner.iter().rev()));
            if !first.is_empty() {
                let all = first.iter().copied().chain(packed::elements(block.body)?);
                self.change_block(&block, &all.collect::<Vec<_>>())?;
            }
        }
        let pieces = fill_backward(&sizes(rest), |_| true);
        if self.next[0] / STRIDE < pieces.len() as u64 {
            return self.start_anew(End::Left, rest);
        }
        for piece in pieces.into_iter().rev() {
            self.add_block(self.next[0], &rest[piece])?;
            self.next[0] -= STRIDE;
        }
        Ok(())
    }

    /// Fills the block at the right end up, and puts further blocks behind.
    fn spill_right(&mut self, inner: &[&[u8]], block: Option<Block<'t>>) -> Result<(), Stop> {
        let mut rest = inner;
        if let Some(block) = block {
            let last;
            (last, rest) = inner.split_at(fitting(&block, inner.iter()));
            if !last.is_empty() {
                let mut all = packed::elements(block.body)?;
                all.extend(last);
                self.change_block(&block, &all)?;
            }
        }
        let pieces = fill(&sizes(rest), |_| true);
        if (u64::MAX - self.next[1]) / STRIDE < pieces.len() as u64 {
            return self.start_anew(End::Right, rest);
        }
        for piece in pieces {
            self.add_block(self.next[1], &rest[piece])?;
            self.next[1] += STRIDE;
        }
        Ok(())
    }

    /// Removes all blocks, and passes on the low key and the elements of each.
    fn take_blocks(&self, mut take: impl FnMut(&[u8], Vec<&'t [u8]>)) -> Result<(), Stop> {
        for block in self.blocks()? {
            self.table.remove(self.run(), block.low)?;
            take(block.low, packed::elements(block.body)?);
        }
        Ok(())
    }

    /// Writes all blocks anew, and these elements at an end whose numbers are used up.
    fn start_anew(&mut self, end: End, beside: &[&[u8]]) -> Result<(), Stop> {
        let mut all: Vec<&[u8]> = Vec::new();
        self.take_blocks(|_, elements| all.extend(elements))?;
        let at = if end == End::Left { 0 } else { all.len() };
        all.splice(at..at, beside.iter().copied());
        self.next = [MIDDLE - STRIDE, MIDDLE];
        self.spill_right(&all, None)
    }

    /// Fills an empty end with elements of the next block, at least as many as wanted; without a
    /// block, with the elements of the other end. Blocks up to `taken`, removed by this
    /// transaction, are skipped: the transaction would visit each of them again.
    fn refill(
        &mut self,
        end: End,
        wanted: usize,
        taken: &mut Option<&'t [u8]>,
    ) -> Result<(), Stop> {
        let (at, other) = (end as usize, 1 - end as usize);
        if self.middle() == 0 {
            self.ends[at] = std::mem::take(&mut self.ends[other]);
            return Ok(());
        }
        let block = self.end_block(end, *taken)?.ok_or(Abort::Conflict)?;
        let all = packed::elements(block.body)?;
        if all.is_empty() || all.len() > self.middle() {
            return Err(Abort::Conflict.into());
        }
        let (mut bytes, mut count) = (0, 0);
        let comes = |element: &&&[u8]| {
            (bytes, count) = (bytes + size(element), count + 1);
            count <= wanted || bytes <= KEPT_END_BYTES
        };
        let outer = match end {
            End::Left => all.iter().take_while(comes).count(),
            End::Right => all.iter().rev().take_while(comes).count(),
        };
        let (outer, rest) = match end {
            End::Left => all.split_at(outer.max(1)),
            End::Right => {
                let (rest, outer) = all.split_at(all.len() - outer.max(1));
                (outer, rest)
            }
        };
        self.ends[at] = outer.iter().copied().collect();
        if !rest.is_empty() {
            return self.change_block(&block, rest);
        }
        *taken = Some(block.low);
        Ok(self.table.remove(self.run(), block.low)?)
    }

    /// Takes elements off an end, the outermost first.
    pub fn pop(&mut self, end: End, count: usize) -> Result<Vec<&'a [u8]>, Stop> {
        let (mut popped, at, mut taken) = (Vec::new(), end as usize, None);
        while popped.len() < count.min(self.count + popped.len()) {
            if self.ends[at].is_empty() {
                self.refill(end, count - popped.len(), &mut taken)?;
            }
            let element = match end {
                End::Left => self.ends[at].pop_front(),
                End::Right => self.ends[at].pop_back(),
            };
            popped.push(element.ok_or(Abort::Conflict)?);
            self.count -= 1;
        }
        // Elements moved together with a large element may be too large for the row.
        self.spill(end)?;
        Ok(popped)
    }

    /// All elements.
    pub fn all(&self) -> Result<Vec<&'a [u8]>, Stop> {
        self.range(0, self.count)
    }

    /// The elements from a place on, `count` at most.
    pub fn range(&self, from: usize, count: usize) -> Result<Vec<&'a [u8]>, Stop> {
        let to = from.saturating_add(count).min(self.count);
        let [left, right] = &self.ends;
        let (first, last) = (left.len(), self.count - right.len());
        let part = |elements: &VecDeque<&'a [u8]>, begin: usize| -> Vec<&'a [u8]> {
            let at = |place: usize| place.clamp(begin, begin + elements.len()) - begin;
            elements.range(at(from)..at(to).max(at(from))).copied().collect()
        };
        let mut found = part(left, 0);
        let (from_block, to_block) = (from.max(first), to.min(last));
        if from_block < to_block {
            let (mut block, mut begin) = self.block_of(from_block)?;
            let mut step = 2;
            let mut page = VecDeque::new();
            loop {
                let all = packed::elements(block.body)?;
                let end = begin + all.len();
                let skipped = from_block.saturating_sub(begin).min(all.len());
                let taken = (to_block.min(end) - begin).max(skipped);
                found.extend(&all[skipped..taken]);
                begin = end;
                if begin >= to_block {
                    break;
                }
                if page.is_empty() {
                    page = self.table.next(self.run(), WalkFrom::Behind(block.low), step)?.into();
                    step = (2 * step).min(PAGE);
                }
                block = page.pop_front().ok_or(Abort::Conflict)?;
            }
        }
        found.extend(part(right, last));
        Ok(found)
    }

    /// The block with a place between the ends, and the place of the block's first element.
    fn block_of(&self, place: usize) -> Result<(Block<'t>, usize), Abort> {
        let (block, begin) = self.table.of_rank(self.run(), place - self.ends[0].len())?;
        Ok((block, begin + self.ends[0].len()))
    }

    /// Replaces the element at a place.
    pub fn set(&mut self, place: usize, element: &'a [u8]) -> Result<(), Stop> {
        self.edit(place, |all, at| all[at] = element)
    }

    /// Inserts an element at an existing place.
    pub fn insert(&mut self, place: usize, element: &'a [u8]) -> Result<(), Stop> {
        self.count += 1;
        self.edit_of(place, 1, |all, at| all.insert(at, element))
    }

    fn edit(
        &mut self,
        place: usize,
        change: impl FnOnce(&mut Vec<&'a [u8]>, usize),
    ) -> Result<(), Stop> {
        self.edit_of(place, 0, change)
    }

    /// Changes the end or the block with a place. `added`: number of elements counted already.
    fn edit_of(
        &mut self,
        place: usize,
        added: usize,
        change: impl FnOnce(&mut Vec<&'a [u8]>, usize),
    ) -> Result<(), Stop> {
        let last = self.count - added - self.ends[1].len();
        let end = match place {
            place if place < self.ends[0].len() => Some((End::Left, place)),
            place if place >= last => Some((End::Right, place - last)),
            _ => None,
        };
        if let Some((end, at)) = end {
            let mut all: Vec<&[u8]> = self.ends[end as usize].drain(..).collect();
            change(&mut all, at);
            self.ends[end as usize] = all.into();
            return self.spill(end);
        }
        self.count -= added;
        let (block, begin) = self.block_of(place)?;
        self.count += added;
        let mut all = packed::elements(block.body)?;
        if place - begin >= all.len() {
            return Err(Abort::Conflict.into());
        }
        change(&mut all, place - begin);
        self.rewrite(&block, &all)
    }

    /// Writes the elements of a block, divided if the block is too large.
    fn rewrite(&mut self, block: &Block<'_>, all: &[&[u8]]) -> Result<(), Stop> {
        if all.is_empty() {
            return Ok(self.table.remove(self.run(), block.low)?);
        }
        let pieces = divide(&sizes(all), |_| true);
        let next = self.table.next(self.run(), WalkFrom::Behind(block.low), 1)?;
        let end = next.first().map_or(Ok(self.next[1]), number_of)?;
        let mut number = number_of(block)?;
        let wanted = SHORT_STRIDE.min(end.saturating_sub(number) / pieces.len() as u64);
        self.change_block(block, &all[pieces[0].clone()])?;
        if pieces.len() > 1 && wanted == 0 {
            let rest = &all[pieces[0].end..];
            return self.renumber(block.low, rest);
        }
        for piece in &pieces[1..] {
            number += wanted;
            self.add_block(number, &all[piece.clone()])?;
        }
        Ok(())
    }

    /// Writes all blocks anew, with `rest` behind this low key: no number is free there.
    fn renumber(&mut self, low: &[u8], rest: &[&[u8]]) -> Result<(), Stop> {
        let mut all: Vec<&[u8]> = Vec::new();
        self.take_blocks(|at, elements| {
            all.extend(elements);
            all.extend(if at == low { rest } else { &[] });
        })?;
        // Unused numbers, so that no block is removed and written at once.
        self.spill_right(&all, None)
    }

    /// Removes the elements named by `is_removed`, from the left or from the right. Returns the
    /// number of removed elements.
    pub fn remove(
        &mut self,
        from: End,
        mut is_removed: impl FnMut(&[u8]) -> bool,
    ) -> Result<usize, Stop> {
        let before = self.count;
        let mut retain = |mut all: Vec<&'a [u8]>| {
            if from == End::Right {
                all.reverse();
            }
            all.retain(|element| !is_removed(element));
            if from == End::Right {
                all.reverse();
            }
            all
        };
        let mut blocks = self.blocks()?;
        if from == End::Right {
            blocks.reverse();
        }
        let mut removed = 0;
        for end in [from, if from == End::Left { End::Right } else { End::Left }] {
            let all: Vec<&[u8]> = self.ends[end as usize].drain(..).collect();
            let had = all.len();
            let left = retain(all);
            removed += had - left.len();
            self.ends[end as usize] = left.into();
            for block in blocks.drain(..) {
                let all = packed::elements(block.body)?;
                let had = all.len();
                let left = retain(all);
                if left.len() < had {
                    removed += had - left.len();
                    self.rewrite(&block, &left)?;
                }
            }
        }
        self.count = before.checked_sub(removed).ok_or(Abort::Conflict)?;
        Ok(removed)
    }

    /// Bytes of the blocks.
    pub fn bytes(&self) -> Result<usize, Abort> {
        block_bytes(self.table, self.run())
    }
}

const _: () = assert!(KEPT_END_BYTES < MOST_END_BYTES && MOST_END_BYTES <= MOST_BLOCK_BYTES);
