//! The rows of a soak test: the writes of each transaction of a worker, and so the expected rows
//! after any number of transactions.

use hyades::{Abort, Column, Database, Index, Schema, Table, Transaction, Type};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub(super) const ROWS: Table = Table::nth(0);
const COUNTS: Table = Table::nth(1);
const SHARED: Table = Table::nth(2);
/// The table whose rows bystanders replace.
pub(super) const CHURNED: Table = Table::nth(3);
const COUNT: Column<u64> = Column::at(1);
pub(super) const GROUP: Column<u64> = Column::at(2);
pub(super) const VALUE: Column<[u8]> = Column::at(3);

/// Number of rows that each worker writes, in turn.
const SLOTS: u64 = 40;
/// One in this number of transactions of a worker also increments the row shared by all workers.
const SHARES: u64 = 8;
/// One in this number of transactions of a worker deletes its row.
const DELETES: u64 = 5;

/// Parameters that stay the same over all runs of a database.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SoakData {
    /// The longest value in bytes.
    pub longest_value: usize,
    /// Bytes of the longest key beyond its first sixteen.
    pub longest_key: usize,
    /// Whether the table of rows has a hash index.
    pub hashed: bool,
    /// Threads whose transactions are counted.
    pub workers: u64,
}

fn mix(n: u64) -> u64 {
    let n = (n ^ n >> 31).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    n ^ n >> 29
}

impl SoakData {
    /// Random data.
    pub(super) fn random(rng: &mut fastrand::Rng) -> SoakData {
        SoakData {
            longest_value: [100, 3000, 40_000, 300_000, 2 << 20, 12 << 20][rng.usize(0..6)],
            longest_key: [0, 20, 900, 20_000][rng.usize(0..4)],
            hashed: rng.bool(),
            workers: [1, 2, 5, 16][rng.usize(0..4)],
        }
    }

    fn key(&self, worker: u64, slot: u64) -> Vec<u8> {
        let mut key = [worker.to_be_bytes(), slot.to_be_bytes()].concat();
        let more = mix(worker * SLOTS + slot) as usize % (self.longest_key + 1);
        key.resize(key.len() + more, 0);
        key
    }

    /// The value that transaction `n` of a worker writes to its row; `None` for a deletion.
    fn value(&self, worker: u64, n: u64) -> Option<Vec<u8>> {
        let random = mix(worker << 40 | n);
        let most = if random.is_multiple_of(4) { self.longest_value } else { 200 };
        let length = (random >> 8) as usize % (most + 1);
        (!n.is_multiple_of(DELETES)).then(|| vec![random as u8; length])
    }

    /// The rows of a worker after its first `count` transactions: slot to (transaction, value).
    fn rows(&self, worker: u64, count: u64) -> BTreeMap<u64, (u64, Vec<u8>)> {
        let recent = (count.saturating_sub(SLOTS) + 1..=count).map(|n| (n % SLOTS, n));
        recent.filter_map(|(slot, n)| Some((slot, (n, self.value(worker, n)?)))).collect()
    }

    /// Bound for the bytes of rows, their replacements, and transactions that write rows.
    pub(super) fn memory(&self) -> u64 {
        let rows = self.workers * SLOTS * (self.longest_value / 4 + self.longest_key + 500) as u64;
        6 * rows + 40 * self.workers * self.longest_value as u64
    }

    /// The tables. With `more`, the checked tables have one more index.
    pub(super) fn schemas(&self, more: bool) -> [Schema; 4] {
        let schema = |name: &str, key| {
            let schema = Schema::new(name).column("key", key).column("count", Type::U64);
            let schema = schema.column("group", Type::U64).primary_key(&["key"]);
            schema.index("by_group", &["group"])
        };
        let indexed = |schema: Schema| match more {
            true => schema.index("by_count", &["count"]),
            false => schema,
        };
        let rows = indexed(schema("rows", Type::Bytes).column("value", Type::Bytes));
        let churned = schema("churned", Type::U64).column("value", Type::Bytes);
        [
            if self.hashed { rows.hash() } else { rows },
            indexed(schema("counts", Type::U64)),
            schema("shared", Type::U64),
            churned,
        ]
    }

    /// Body of the next transaction of a worker. Returns the number of the transaction.
    pub(super) fn step(&self, tx: &Transaction<'_>, worker: u64) -> Result<u64, Abort> {
        let n = tx.get(COUNTS, worker)?.map_or(0, |row| row.get(COUNT)) + 1;
        tx.upsert(COUNTS, &[worker.into(), n.into(), (n % 7).into()])?;
        let key = self.key(worker, n % SLOTS);
        match self.value(worker, n) {
            Some(value) => {
                tx.upsert(ROWS, &[key[..].into(), n.into(), (n % 3).into(), value[..].into()])?;
            }
            None => {
                tx.delete(ROWS, &key[..])?;
            }
        }
        if n.is_multiple_of(SHARES) {
            let shared = tx.get(SHARED, 0u64)?.map_or(0, |row| row.get(COUNT)) + 1;
            tx.upsert(SHARED, &[0u64.into(), shared.into(), shared.into()])?;
        }
        Ok(n)
    }

    /// Returns the number of transactions of each worker in the database, or the error.
    pub(super) fn look(&self, db: &Database) -> Result<Vec<u64>, String> {
        let looked = db.try_transact(|tx| self.look_in(tx)).map_err(|error| error.to_string())?;
        looked.map_err(|abort: Abort| abort.to_string())?
    }

    pub(super) fn look_in(&self, tx: &Transaction<'_>) -> Result<Result<Vec<u64>, String>, Abort> {
        let (mut counts, mut shares, mut rows) = (Vec::new(), 0, 0);
        for worker in 0..self.workers {
            let count = tx.get(COUNTS, worker)?.map_or(0, |row| row.get(COUNT));
            let expected = self.rows(worker, count);
            for slot in 0..SLOTS {
                let row = tx.get(ROWS, &self.key(worker, slot)[..])?;
                let columns = |row: &hyades::Row<'_>| (row.get(COUNT), row.get(GROUP));
                let found = row.as_ref().map(|row| (columns(row), row.get(VALUE)));
                let wanted = expected.get(&slot).map(|(n, value)| ((*n, n % 3), &value[..]));
                if found != wanted {
                    let short = |row: Option<((u64, u64), &[u8])>| {
                        row.map(|(numbers, v)| (numbers, v.len()))
                    };
                    return Ok(Err(format!(
                        "worker {worker} has run {count} transactions; its row {slot} is {:?}, \
                         not {:?} (transaction and group, bytes)",
                        short(found),
                        short(wanted)
                    )));
                }
            }
            rows += expected.len();
            counts.push(count);
            shares += count / SHARES;
        }
        let shared = tx.get(SHARED, 0u64)?.map_or(0, |row| row.get(COUNT));
        if shared != shares {
            return Ok(Err(format!(
                "{shares} transactions added to the shared row, which says {shared}"
            )));
        }
        let mut indexed = 0;
        for group in 0..3u64 {
            indexed += tx.scan_index(ROWS, Index(0)).prefix(&[group.into()]).rows()?.len();
        }
        if indexed != rows {
            return Ok(Err(format!("there are {rows} rows, and {indexed} by the index")));
        }
        Ok(Ok(counts))
    }
}
