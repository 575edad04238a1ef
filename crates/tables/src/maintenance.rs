//! Work of an opening after a change of the declarations, in transactions of bounded size: new
//! indexes are filled, and the entries of dropped indexes are removed. After a crash the next
//! opening goes on where the last transaction ended.

use crate::catalogue::{Catalogue, progress_key};
use crate::error::Error;
use crate::index::Index;
use crate::prefix::{OwnedRange, Prefix};
use crate::rows::TableRows;
use crate::view::{RawRow, Reads};
use hyades_deuteronomy::{Database, ScanOrder, Session, Transaction};
use std::ops::Bound;

/// The rows of the first transaction, and the most rows of a transaction.
const ROWS: (usize, usize) = (4, 1024);
/// The most bytes of a transaction's rows and writes, as expected from the transaction before.
const BYTES: usize = 512 << 10;
/// The least transactions that the memory of the database has room for.
const TRANSACTIONS: usize = 16;
/// The bytes in memory beside a row or an entry, about.
const ROW_BYTES: usize = 512;

/// The outcome of a transaction.
struct Step {
    has_ended: bool,
    rows: usize,
    bytes: usize,
}

impl Step {
    fn new(rows: &[RawRow], limit: usize) -> Self {
        let bytes = rows.iter().map(|(key, value)| key.len() + value.len()).sum();
        Self { has_ended: rows.len() < limit, rows: rows.len(), bytes }
    }
}

/// Runs transactions until the work has ended. `step` gets the number of rows.
fn run(
    database: &Database,
    session: &mut Session,
    mut step: impl FnMut(&mut Transaction<'_>, usize) -> Result<Step, Error>,
) -> Result<(), Error> {
    use hyades_deuteronomy::Error as Below;
    let most_bytes = BYTES.min(database.stats().memory_bytes / TRANSACTIONS);
    let mut limit = ROWS.0;
    loop {
        match session.execute(|tx| step(tx, limit)) {
            Ok(Step { has_ended: true, .. }) => return Ok(()),
            Ok(Step { rows, bytes, .. }) => {
                let fitting = most_bytes / (bytes / rows.max(1) + ROW_BYTES);
                limit = (2 * limit).min(ROWS.1).min(fitting.max(1));
            }
            // The memory of a transaction is small: fewer rows fit.
            Err(Error::Database(Below::TransactionTooLarge(..))) if limit > 1 => limit /= 2,
            Err(error) => return Err(error),
        }
    }
}

/// Removes the entries of the dropped indexes.
///
/// # Errors
/// The errors of transactions.
pub(crate) fn remove_dropped(
    database: &Database,
    session: &mut Session,
    dropped: &[u32],
) -> Result<(), Error> {
    for &number in dropped {
        run(database, session, |tx, limit| {
            let mut catalogue = Catalogue::read(tx)?;
            if !catalogue.dropped.contains(&number) {
                return Ok(Step::new(&[], 1));
            }
            let rows = read_range(tx, &Prefix::new(number).all(), limit)?;
            for (key, _) in &rows {
                tx.delete(key)?;
            }
            let step = Step::new(&rows, limit);
            if step.has_ended {
                catalogue.dropped.retain(|dropped| *dropped != number);
                catalogue.write(tx)?;
            }
            Ok(step)
        })?;
    }
    Ok(())
}

fn read_range(
    tx: &mut Transaction<'_>,
    (from, to): &OwnedRange,
    limit: usize,
) -> Result<Vec<RawRow>, Error> {
    let slice = |bound| Bound::as_ref(bound).map(|key: &Vec<u8>| &key[..]);
    tx.read_rows((slice(from), slice(to)), ScanOrder::Ascending, limit)
}

/// Fills the indexes of a table that are not filled yet.
///
/// # Errors
/// [`Error::Unique`]: rows share a key of a new unique index; [`Error::Changed`]; the errors of
/// transactions.
pub(crate) fn fill_indexes(
    database: &Database,
    session: &mut Session,
    table: &TableRows,
) -> Result<(), Error> {
    for index in table.indexes.iter().filter(|index| !index.is_filled) {
        run(database, session, |tx, limit| fill(tx, table, index, limit))?;
    }
    Ok(())
}

/// Writes the entries of the next rows.
fn fill(
    tx: &mut Transaction<'_>,
    table: &TableRows,
    index: &Index,
    limit: usize,
) -> Result<Step, Error> {
    let mut catalogue = Catalogue::read(tx)?;
    let changed = || Error::Changed(table.name().to_owned());
    let stored = catalogue.index_mut(index.number).ok_or_else(changed)?;
    if stored.is_filled {
        return Ok(Step::new(&[], 1));
    }
    table.check_generation(tx)?;
    let (progress, prefix) = (progress_key(index.number), table.keyspace.prefix());
    let mut range = prefix.all();
    if let Some(last) = tx.get(&progress)? {
        range.0 = Bound::Excluded(prefix.key(&last));
    }
    let rows = read_range(tx, &range, limit)?;
    let step = Step::new(&rows, limit);
    let mut last = None;
    for (key, stored) in rows {
        let row = table.decode(tx, stored)?;
        let primary = prefix.rest(&key).to_vec();
        let entry = index.entry(&table.codec, &row, &primary);
        if entry.excludes && tx.get(&entry.key)?.is_some() {
            return Err(table.not_unique(index));
        }
        tx.put(&entry.key, &entry.value)?;
        last = Some(primary);
    }
    if step.has_ended {
        catalogue.index_mut(index.number).expect("the index was found").is_filled = true;
        catalogue.write(tx)?;
        tx.delete(&progress)?;
    } else if let Some(last) = last {
        tx.put(&progress, &last)?;
    }
    Ok(step)
}
