//! Databases are generations of keys: a flush gives a database a new generation, and a swap
//! exchanges two generations. Both are transactions of a few rows, however many keys there are; the
//! reaper removes the keys of generations that no database has.

use super::Tables;
use hyades::{Abort, Column, Transaction};

const GENERATION: Column<u64> = Column::at(1);

/// The row that holds the next generation.
const NEXT: u32 = u32::MAX;

/// The first generation given out by a flush: a database that was never flushed has its own number.
pub const FIRST_GIVEN: u64 = 1 << 32;

/// The generation of a database.
pub fn generation(tx: &Transaction<'_>, tables: Tables, database: u32) -> Result<u64, Abort> {
    let row = tx.get(tables.databases, database)?;
    Ok(row.map_or(u64::from(database), |row| row.get(GENERATION)))
}

fn set(tx: &Transaction<'_>, tables: Tables, database: u32, generation: u64) -> Result<(), Abort> {
    tx.overwrite(tables.databases, &[database.into(), generation.into()])
}

/// Writes the generation of a database unchanged.
pub fn touch(tx: &Transaction<'_>, tables: Tables, database: u32) -> Result<(), Abort> {
    set(tx, tables, database, generation(tx, tables, database)?)
}

/// Removes all keys of some databases.
pub fn flush(
    tx: &Transaction<'_>,
    tables: Tables,
    databases: impl Iterator<Item = u32>,
) -> Result<(), Abort> {
    let row = tx.get(tables.databases, NEXT)?;
    let mut next = row.map_or(FIRST_GIVEN, |row| row.get(GENERATION));
    for database in databases {
        set(tx, tables, database, next)?;
        next += 1;
    }
    set(tx, tables, NEXT, next)
}

/// Swaps the keys of two databases.
pub fn swap(tx: &Transaction<'_>, tables: Tables, a: u32, b: u32) -> Result<(), Abort> {
    let (of_a, of_b) = (generation(tx, tables, a)?, generation(tx, tables, b)?);
    set(tx, tables, a, of_b)?;
    set(tx, tables, b, of_a)
}

/// The generations of the databases, and the first generation that no database may have yet.
pub fn live(
    tx: &Transaction<'_>,
    tables: Tables,
    databases: u32,
) -> Result<(Vec<u64>, u64), Abort> {
    let live = (0..databases).map(|database| generation(tx, tables, database));
    let live = live.collect::<Result<_, _>>()?;
    let next = tx.get(tables.databases, NEXT)?;
    Ok((live, next.map_or(FIRST_GIVEN, |row| row.get(GENERATION))))
}
