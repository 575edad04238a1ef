//! The counts of the rows of a prefix in key order: the sum before a key, and the row with an
//! element, are found without a walk over all rows.
//!
//! Rows lie in chunks, and each chunk has a sum: a question adds the sums of the chunks before, and
//! the counts of a part of a chunk.

/// The most rows of a chunk. A larger chunk is split.
const MOST_ROWS: usize = 128;

/// The rows of a chunk built from sorted rows: new rows find room.
const FILLED_ROWS: usize = 96;

/// Bytes of a row beside the key, about: the entry, and free places in the chunk.
const ROW_BYTES: usize = 48;

/// Bytes of an allocation for a key, about.
fn key_bytes(key: &[u8]) -> usize {
    key.len().next_multiple_of(16)
}

/// The count of a row.
#[derive(Debug)]
struct CountedRow {
    /// The first bytes of the key: most keys differ there, and the key itself is not read.
    head: u64,
    key: Box<[u8]>,
    count: u64,
}

/// The first eight bytes of a key, in key order.
#[inline]
fn head(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut first = [0; 8];
            first[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(first)
        }
    }
}

impl CountedRow {
    /// Whether the row comes before a key.
    #[inline]
    fn is_before(&self, (head, key): (u64, &[u8])) -> bool {
        self.head < head || self.head == head && *self.key < *key
    }
}

/// A row found by the number of an element.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FoundElement<'c> {
    pub key: &'c [u8],
    /// The sum of the rows before.
    pub before: u64,
}

/// The counts of rows, by key.
#[derive(Debug, Default)]
pub(crate) struct OrderedCounts {
    /// No chunk is empty.
    chunks: Vec<Vec<CountedRow>>,
    /// The sum of each chunk.
    sums: Vec<u64>,
    rows: usize,
    bytes: usize,
}

impl OrderedCounts {
    /// Adds a row behind all other rows.
    pub fn push(&mut self, key: &[u8], count: u64) {
        if self.chunks.last().is_none_or(|chunk| chunk.len() >= FILLED_ROWS) {
            // Most prefixes have few rows, for which a chunk is too much.
            let room = if self.chunks.is_empty() { 0 } else { MOST_ROWS + 1 };
            self.chunks.push(Vec::with_capacity(room));
            self.sums.push(0);
        }
        let (Some(chunk), Some(sum)) = (self.chunks.last_mut(), self.sums.last_mut()) else {
            unreachable!("there is a chunk with room");
        };
        debug_assert!(chunk.last().is_none_or(|last| *last.key < *key), "the key is the highest");
        chunk.push(CountedRow { head: head(key), key: key.into(), count });
        *sum = sum.wrapping_add(count);
        self.rows += 1;
        self.bytes += ROW_BYTES + key_bytes(key);
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes in memory, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The sum of all counts. Sums wrap around at the limit of their type.
    pub fn total(&self) -> u64 {
        self.sums.iter().fold(0, |sum, n| sum.wrapping_add(*n))
    }

    /// The place of a key: the chunk, and the place in the chunk, with the key or for the key.
    #[inline]
    fn place(&self, key: &[u8]) -> (usize, Result<usize, usize>) {
        let wanted = (head(key), key);
        let begins_before = |chunk: &Vec<CountedRow>| chunk[0].is_before(wanted);
        let behind = self.chunks.partition_point(begins_before);
        // The first row of the next chunk may have the key.
        if let Some(next) = self.chunks.get(behind)
            && next[0].head == wanted.0
            && *next[0].key == *key
        {
            return (behind, Ok(0));
        }
        let at = behind.saturating_sub(1);
        let Some(chunk) = self.chunks.get(at) else { return (0, Err(0)) };
        let place = chunk.partition_point(|row| row.is_before(wanted));
        let is_there = chunk.get(place).is_some_and(|row| *row.key == *key);
        (at, if is_there { Ok(place) } else { Err(place) })
    }

    /// The count of a row; `None` if there is no such row.
    pub fn get(&self, key: &[u8]) -> Option<u64> {
        let (chunk, place) = self.place(key);
        place.ok().map(|at| self.chunks[chunk][at].count)
    }

    /// The sum of the rows before a key.
    pub fn before(&self, key: &[u8]) -> u64 {
        let (chunk, Ok(place) | Err(place)) = self.place(key);
        let sum = self.sums[..chunk].iter().fold(0u64, |sum, n| sum.wrapping_add(*n));
        let rows = self.chunks.get(chunk).map_or(&[][..], |rows| &rows[..place]);
        rows.iter().fold(sum, |sum, row| sum.wrapping_add(row.count))
    }

    /// The row with element `n`, counted from 0.
    pub fn select(&self, n: u64) -> Option<FoundElement<'_>> {
        let mut before = 0u64;
        let chunk = self.sums.iter().position(|sum| {
            let is_here = n - before < *sum;
            before += if is_here { 0 } else { *sum };
            is_here
        })?;
        let row = self.chunks[chunk].iter().find(|row| {
            let is_here = n - before < row.count;
            before += if is_here { 0 } else { row.count };
            is_here
        })?;
        Some(FoundElement { key: &row.key, before })
    }

    /// Sets the count of a row, or removes the row. Returns by how many bytes the counts have
    /// grown.
    pub fn set(&mut self, key: &[u8], count: Option<u64>) -> isize {
        let bytes = self.bytes;
        match (self.place(key), count) {
            ((chunk, Ok(at)), Some(count)) => {
                let row = &mut self.chunks[chunk][at];
                let change = count.wrapping_sub(row.count);
                row.count = count;
                self.sums[chunk] = self.sums[chunk].wrapping_add(change);
            }
            ((chunk, Ok(at)), None) => self.remove((chunk, at)),
            ((chunk, Err(at)), Some(count)) if chunk < self.chunks.len() => {
                self.insert((chunk, at), key, count);
            }
            ((_, Err(_)), Some(count)) => self.push(key, count),
            ((_, Err(_)), None) => {}
        }
        self.bytes as isize - bytes as isize
    }

    fn insert(&mut self, (chunk, at): (usize, usize), key: &[u8], count: u64) {
        let is_last = chunk + 1 == self.chunks.len() && at == self.chunks[chunk].len();
        if is_last && at >= MOST_ROWS {
            // Keys that ascend leave full chunks behind, not halves.
            self.chunks.push(Vec::with_capacity(MOST_ROWS + 1));
            self.sums.push(0);
            return self.insert((chunk + 1, 0), key, count);
        }
        let rows = &mut self.chunks[chunk];
        rows.insert(at, CountedRow { head: head(key), key: key.into(), count });
        self.sums[chunk] = self.sums[chunk].wrapping_add(count);
        self.rows += 1;
        self.bytes += ROW_BYTES + key_bytes(key);
        if rows.len() > MOST_ROWS {
            let mut upper = Vec::with_capacity(MOST_ROWS + 1);
            upper.extend(rows.drain(MOST_ROWS / 2..));
            let sum = upper.iter().fold(0u64, |sum, row| sum.wrapping_add(row.count));
            self.sums[chunk] = self.sums[chunk].wrapping_sub(sum);
            self.chunks.insert(chunk + 1, upper);
            self.sums.insert(chunk + 1, sum);
        }
    }

    fn remove(&mut self, (chunk, at): (usize, usize)) {
        let rows = &mut self.chunks[chunk];
        let row = rows.remove(at);
        self.sums[chunk] = self.sums[chunk].wrapping_sub(row.count);
        self.rows -= 1;
        self.bytes -= ROW_BYTES + key_bytes(&row.key);
        let len = rows.len();
        // A small chunk joins the chunk before it: chunks stay half filled, about.
        let joins = chunk > 0 && len + self.chunks[chunk - 1].len() <= MOST_ROWS / 2;
        if len == 0 || joins {
            let (rows, sum) = (self.chunks.remove(chunk), self.sums.remove(chunk));
            if joins {
                self.chunks[chunk - 1].extend(rows);
                self.sums[chunk - 1] = self.sums[chunk - 1].wrapping_add(sum);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Compares with a map: sums before keys, and the rows of elements.
    fn compare(counts: &OrderedCounts, model: &BTreeMap<Vec<u8>, u64>, rng: &mut fastrand::Rng) {
        let total: u64 = model.values().sum();
        assert_eq!((counts.rows(), counts.total()), (model.len(), total));
        for _ in 0..20 {
            let key = key(rng);
            assert_eq!(counts.get(&key), model.get(&key).copied());
            let before: u64 = model.range(..key.clone()).map(|(_, n)| n).sum();
            assert_eq!(counts.before(&key), before);
            let n = rng.u64(..total + 3);
            let mut before = 0;
            let found = model.iter().find(|(_, count)| {
                let is_here = n - before < **count;
                before += if is_here { 0 } else { **count };
                is_here
            });
            let found = found.map(|(key, _)| FoundElement { key, before });
            assert_eq!(counts.select(n), found);
        }
    }

    /// Short keys, and keys with the same first bytes.
    fn key(rng: &mut fastrand::Rng) -> Vec<u8> {
        let n = rng.u32(..1_000);
        match n % 3 {
            0 => n.to_be_bytes().to_vec(),
            1 => format!("the same beginning {n:04}").into_bytes(),
            _ => vec![0; n as usize / 50],
        }
    }

    #[test]
    fn counts_are_those_of_a_map() {
        let mut rng = fastrand::Rng::with_seed(7);
        for most in [3, 40, 100] {
            let (mut counts, mut model) = (OrderedCounts::default(), BTreeMap::new());
            // Mostly insertions, then mostly removals.
            for round in 0..3_000u32 {
                let key = key(&mut rng);
                let inserts = rng.u32(..100) < if round < 1_500 { 90 } else { most };
                let count = inserts.then(|| rng.u64(..4));
                counts.set(&key, count);
                match count {
                    Some(count) => _ = model.insert(key, count),
                    None => _ = model.remove(&key),
                }
                if round % 100 == 0 {
                    compare(&counts, &model, &mut rng);
                }
            }
            for key in model.keys() {
                counts.set(key, None);
            }
            assert_eq!((counts.rows(), counts.bytes(), counts.chunks.len()), (0, 0, 0));
        }
    }

    #[test]
    fn sorted_rows_fill_chunks() {
        let mut counts = OrderedCounts::default();
        (0..10_000u32).for_each(|n| counts.push(&n.to_be_bytes(), 2));
        for n in (10_000..20_000u32).chain(20_000..20_010) {
            counts.set(&n.to_be_bytes(), Some(2));
        }
        assert_eq!(counts.total(), 40_020);
        assert_eq!(counts.before(&15_000u32.to_be_bytes()), 30_000);
        let found = counts.select(30_001).map(|found| (found.key.to_vec(), found.before));
        assert_eq!(found, Some((15_000u32.to_be_bytes().to_vec(), 30_000)));
        assert!(counts.chunks.len() < 20_010 / FILLED_ROWS + 2);
    }
}
