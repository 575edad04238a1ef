//! The number of rows of a table, and their bytes.
//!
//! The writers count. A session has cells of its own, one for each table, and no other thread
//! writes these; a thread of a replay adds its sums up at its end. A reader adds all cells up. The
//! change of a write is found at installation, while the writer has the row's protection: so every
//! change is counted once, and the sums are exact when no write is under way. A row counts with the
//! bytes of its key and with its own bytes in the record; heads of records and indexes do not
//! count.

use super::record::Record;
use hyades_platform::sync::Padded;
use std::ops::{AddAssign, Neg};
use std::sync::atomic::{AtomicI64, Ordering};

/// Rows and their bytes, or a change of both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub rows: i64,
    pub bytes: i64,
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Usage) {
        self.rows += other.rows;
        self.bytes += other.bytes;
    }
}

impl Neg for Usage {
    type Output = Usage;
    fn neg(self) -> Usage {
        Usage { rows: -self.rows, bytes: -self.bytes }
    }
}

/// The size of a table, see [`Database::tables`](crate::Database::tables).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableStats {
    /// The name of the table.
    pub name: String,
    /// The number of rows.
    pub rows: u64,
    /// Bytes of the rows: their encoded keys, and their columns. The head of a row's record, at
    /// least 40 bytes, and its places in indexes come on top.
    pub bytes: u64,
}

/// Counts a row in a record, protected by the caller.
pub(crate) fn of_row<S>(record: &Record<S>) -> Usage {
    Usage { rows: 1, bytes: (record.key().len() + record.row_len()) as i64 }
}

/// Returns the change by a write that was just installed in `record`: whether the row was there,
/// whether the row is there now, and by how many bytes it has grown.
pub(crate) fn change_of<S>(record: &Record<S>, (was, is): (bool, bool), grown: i64) -> Usage {
    match (was, is) {
        (false, false) => Usage::default(),
        (false, true) => of_row(record),
        // A deleted row stays in its record for a while, unchanged.
        (true, false) => -of_row(record),
        (true, true) => Usage { rows: 0, bytes: grown },
    }
}

/// A sum of one table.
#[derive(Debug, Default)]
pub(crate) struct UsageCell {
    rows: AtomicI64,
    bytes: AtomicI64,
}

impl UsageCell {
    /// Adds a change; other threads may do so, too. Relaxed, here and below: a count.
    pub fn add_shared(&self, change: Usage) {
        self.rows.fetch_add(change.rows, Ordering::Relaxed);
        self.bytes.fetch_add(change.bytes, Ordering::Relaxed);
    }

    pub fn get(&self) -> Usage {
        let [rows, bytes] =
            [&self.rows, &self.bytes].map(|counter| counter.load(Ordering::Relaxed));
        Usage { rows, bytes }
    }
}

/// Cells of a cache line, see [`Padded`].
const LINE: usize = 8;

/// The cells of one writer, by the numbers of the tables. They share no cache line with the cells
/// of another writer.
#[derive(Debug)]
pub(crate) struct UsageCells(Box<[Padded<[UsageCell; LINE]>]>);

impl UsageCells {
    pub fn new(tables: usize) -> UsageCells {
        UsageCells((0..tables.div_ceil(LINE)).map(|_| Padded::default()).collect())
    }

    /// Adds a change. Called by the writer alone: no read-modify-write instruction.
    #[inline]
    pub fn add(&self, table: u32, change: Usage) {
        let cell = &self.0[table as usize / LINE][table as usize % LINE];
        let add = |sum: &AtomicI64, n: i64| {
            sum.store(sum.load(Ordering::Relaxed) + n, Ordering::Relaxed);
        };
        add(&cell.rows, change.rows);
        add(&cell.bytes, change.bytes);
    }

    /// Adds all cells to `sums`, by table.
    pub fn add_to(&self, sums: &mut [Usage]) {
        let cells = self.0.iter().flat_map(|line| line.0.iter());
        sums.iter_mut().zip(cells).for_each(|(sum, cell)| *sum += cell.get());
    }

    /// Sets all cells to 0 and returns their previous values, by table. Called by the writer alone.
    pub fn take(&self) -> impl Iterator<Item = Usage> {
        let cells = self.0.iter().flat_map(|line| line.0.iter());
        cells.map(|cell| {
            let was = cell.get();
            cell.rows.store(0, Ordering::Relaxed);
            cell.bytes.store(0, Ordering::Relaxed);
            was
        })
    }
}

/// Sums of one thread alone, by the numbers of the tables.
#[derive(Debug, Default)]
pub(crate) struct LocalUsage(Vec<Usage>);

impl LocalUsage {
    #[inline]
    pub fn add(&mut self, table: u32, change: Usage) {
        let at = table as usize;
        if at >= self.0.len() {
            self.0.resize(at + 1, Usage::default());
        }
        self.0[at] += change;
    }

    /// Sets all sums to 0 and returns their previous values.
    pub fn take(&mut self) -> Vec<Usage> {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_apart_by_writer_and_add_up() {
        for tables in [0, 1, LINE, LINE + 1, 100] {
            let writers = [UsageCells::new(tables), UsageCells::new(tables)];
            for table in 0..tables {
                let change = Usage { rows: 1, bytes: table as i64 };
                writers.iter().for_each(|cells| cells.add(table as u32, change));
                writers[0].add(table as u32, -Usage { rows: 0, bytes: 1 });
            }
            let mut sums = vec![Usage::default(); tables];
            writers.iter().for_each(|cells| cells.add_to(&mut sums));
            for (table, sum) in sums.iter().enumerate() {
                assert_eq!(*sum, Usage { rows: 2, bytes: 2 * table as i64 - 1 }, "{table}");
            }
            let taken: Vec<Usage> = writers[1].take().take(tables).collect();
            assert!(taken.iter().all(|usage| usage.rows == 1) && taken.len() == tables);
            assert!(writers[1].take().all(|usage| usage == Usage::default()));
            if let [first, ..] = &*writers[0].0 {
                assert_eq!(std::ptr::from_ref(first).addr() % 128, 0);
            }
        }
    }

    #[test]
    #[should_panic(expected = "out of bounds")]
    fn a_table_beyond_the_last_line_has_no_cell() {
        UsageCells::new(LINE).add(LINE as u32, Usage { rows: 1, bytes: 1 });
    }
}
