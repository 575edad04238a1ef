//! The procedures of YCSB and their arguments.
//!
//! A procedure depends only on its arguments, never on a setting of the process, so that a command
//! log can be replayed by a process with other settings.

use crate::MISSING_ROW;
use crate::bytes::{fill, mix};
use hyades::{
    Abort, Column, Columns, Partitions, Schema, Table, TableRow, Transaction, TypedTable, Value,
};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smallvec::SmallVec;
use std::fmt;

/// Columns of a row besides its key.
pub const COLUMNS: usize = 10;
/// The width of each column in bytes.
pub const WIDTH: usize = 100;

/// A value of a column.
pub type FieldValue = [u8; WIDTH];

/// A row: a 64-bit key and ten columns of 100 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Table)]
#[table(name = "usertable")]
#[expect(missing_docs, reason = "the columns are alike")]
pub struct User<'a> {
    #[key]
    pub key: u64,
    pub field0: &'a FieldValue,
    pub field1: &'a FieldValue,
    pub field2: &'a FieldValue,
    pub field3: &'a FieldValue,
    pub field4: &'a FieldValue,
    pub field5: &'a FieldValue,
    pub field6: &'a FieldValue,
    pub field7: &'a FieldValue,
    pub field8: &'a FieldValue,
    pub field9: &'a FieldValue,
}

/// The table.
pub type Users = TypedTable<User<'static>>;

const FIELDS: [Column<[u8]>; COLUMNS] = [
    User::FIELD0,
    User::FIELD1,
    User::FIELD2,
    User::FIELD3,
    User::FIELD4,
    User::FIELD5,
    User::FIELD6,
    User::FIELD7,
    User::FIELD8,
    User::FIELD9,
];

/// The column for a number; numbers wrap around.
#[inline]
pub fn column(n: u64) -> Column<[u8]> {
    FIELDS[(n % COLUMNS as u64) as usize]
}

/// The table's description: an ordered primary index, or a hash table.
pub fn schema(ordered: bool) -> Schema {
    if ordered { User::schema() } else { User::schema().hash() }
}

/// The partitions of the rows that a transaction accesses.
pub fn partitions(call: &Accesses) -> Partitions {
    let mut rows = call.rows.iter().map(|row| row.id());
    let first = rows.next().map_or(Partitions::ALL, Partitions::of);
    rows.fold(first, Partitions::with)
}

/// The key of row number `id`. Spread keys cover the 64-bit range, so that rows inserted later fall
/// between the rows that scans read.
#[inline]
pub fn key(id: u64, spread: bool) -> u64 {
    if spread { id.wrapping_mul(0x9E37_79B9_7F4A_7C15) } else { id }
}

/// A row access: the row's number and whether the row is written, in one integer that takes few
/// bytes in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowAccess(u64);

impl RowAccess {
    /// An access to row `id`.
    pub fn new(id: u64, write: bool) -> Self {
        RowAccess(id << 1 | write as u64)
    }

    /// The row's number.
    pub fn id(self) -> u64 {
        self.0 >> 1
    }

    /// Whether the row is written.
    pub fn is_write(self) -> bool {
        self.0 & 1 == 1
    }
}

/// A transaction of several accesses. The column of each access, and the values written, are
/// derived from the seed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Accesses {
    /// The seed of columns and values.
    pub seed: u32,
    /// The rows.
    pub rows: SmallVec<[RowAccess; 2]>,
}

/// Accesses with the written values as arguments, concatenated; with ten values per written row,
/// all columns of the row are written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Given {
    /// The accesses.
    pub accesses: Accesses,
    /// The values.
    pub values: Bytes,
}

/// Inserts one row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Insert {
    /// The row's number.
    pub id: u64,
    /// The seed of the row's values, together with the number.
    pub seed: u64,
    /// Whether keys are spread, see [`key`].
    pub spread: bool,
}

/// Reads rows in key order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scan {
    /// The row to begin with; keys are spread.
    pub id: u64,
    /// How many rows at most.
    pub count: u32,
}

/// Reads a row and changes one column to a value derived from the old value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Modify {
    /// The row.
    pub id: u64,
    /// The seed of the column and the value.
    pub seed: u32,
}

/// Changes one column of a row and reads a range of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WriteAndScan {
    /// The row to change.
    pub id: u64,
    /// The seed of the column and the value.
    pub seed: u32,
    /// The row at which the range begins; keys are not spread.
    pub from: u64,
    /// The number of rows in the range; no row is read if 0.
    pub count: u32,
}

/// The reads besides the written columns. Reads leave no trace in the database, so the setting may
/// differ between processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// Reads are of whole rows instead of one column.
    pub whole_rows: bool,
    /// Each write first reads the columns to be written.
    pub before_writes: bool,
}

/// Arguments of [`populate`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct YcsbPopulate {
    /// The first row's number.
    pub from: u64,
    /// How many rows.
    pub count: u32,
    /// As in [`Insert`].
    pub seed: u64,
    /// As in [`Insert`].
    pub spread: bool,
}

/// A missing row ends the transaction.
fn found<T>(row: Option<T>) -> Result<T, Abort> {
    row.ok_or(Abort::User(MISSING_ROW))
}

fn done(was_there: bool) -> Result<(), Abort> {
    found(was_there.then_some(()))
}

/// Reads one column, or the whole row.
#[inline]
fn read(
    tx: &Transaction<'_>,
    table: Users,
    id: u64,
    column: Column<[u8]>,
    whole_row: bool,
) -> Result<(), Abort> {
    let columns = if whole_row { Columns::ALL } else { column.only() };
    found(table.get_columns(tx, id, columns)?).map(drop)
}

/// Reads the columns about to be written, if `reads` says so.
#[inline]
fn read_before(
    tx: &Transaction<'_>,
    table: Users,
    row: &RowAccess,
    mixed: u64,
    whole_row: bool,
    reads: Reads,
) -> Result<(), Abort> {
    if !reads.before_writes {
        return Ok(());
    }
    read(tx, table, row.id(), column(mixed), whole_row)
}

/// Prefetches the rows, so that the cache misses overlap.
fn prefetch(tx: &Transaction<'_>, table: Users, call: &Accesses, columns: impl Fn(u64) -> Columns) {
    if call.rows.len() > 1 {
        for (row, n) in call.rows.iter().zip(0u64..) {
            table.prefetch(tx, row.id(), columns(mix(call.seed as u64, n)));
        }
    }
}

/// The columns that an access touches: all, or the column derived from the seed.
fn touched(whole_rows: bool) -> impl Fn(u64) -> Columns {
    move |mixed| if whole_rows { Columns::ALL } else { column(mixed).only() }
}

/// Runs the accesses; a write sets one column.
pub fn access(
    tx: &Transaction<'_>,
    table: Users,
    call: &Accesses,
    reads: Reads,
) -> Result<(), Abort> {
    prefetch(tx, table, call, touched(reads.whole_rows));
    let mut value = [0; WIDTH];
    for (row, n) in call.rows.iter().zip(0u64..) {
        let mixed = mix(call.seed as u64, n);
        if row.is_write() {
            read_before(tx, table, row, mixed, reads.whole_rows, reads)?;
            fill(mixed, &mut value);
            let set = column(mixed).set(&value);
            done(table.update(tx, row.id(), &[set])?)?;
        } else {
            read(tx, table, row.id(), column(mixed), reads.whole_rows)?;
        }
    }
    Ok(())
}

/// Runs the accesses; a write sets all columns.
pub fn access_all(
    tx: &Transaction<'_>,
    table: Users,
    call: &Accesses,
    reads: Reads,
) -> Result<(), Abort> {
    prefetch(tx, table, call, touched(true));
    let mut values = [0; WIDTH * COLUMNS];
    for (row, n) in call.rows.iter().zip(0u64..) {
        let mixed = mix(call.seed as u64, n);
        if row.is_write() {
            read_before(tx, table, row, mixed, true, reads)?;
            fill(mixed, &mut values);
            write_all(tx, table, row.id(), &values)?;
        } else {
            read(tx, table, row.id(), column(mixed), reads.whole_rows)?;
        }
    }
    Ok(())
}

/// Runs the accesses as blind writes of all columns, with derived values.
pub fn store(tx: &Transaction<'_>, table: Users, call: &Accesses) -> Result<(), Abort> {
    prefetch(tx, table, call, touched(true));
    let mut values = [0; WIDTH * COLUMNS];
    for (row, n) in call.rows.iter().zip(0u64..) {
        fill(mix(call.seed as u64, n), &mut values);
        overwrite(tx, table, row.id(), &values)?;
    }
    Ok(())
}

/// Runs the accesses as blind writes with the given values, ten per row.
pub fn store_given(tx: &Transaction<'_>, table: Users, call: &Given) -> Result<(), Abort> {
    let Given { accesses, values } = call;
    if values.0.len() != accesses.rows.len() * WIDTH * COLUMNS {
        return Err(Abort::BadArguments);
    }
    prefetch(tx, table, accesses, touched(true));
    for (row, values) in accesses.rows.iter().zip(values.0.chunks_exact(WIDTH * COLUMNS)) {
        overwrite(tx, table, row.id(), values)?;
    }
    Ok(())
}

/// Runs the accesses with the given values.
pub fn access_given(
    tx: &Transaction<'_>,
    table: Users,
    call: &Given,
    reads: Reads,
) -> Result<(), Abort> {
    let Given { accesses, values } = call;
    let writes = accesses.rows.iter().filter(|row| row.is_write()).count();
    let each = values.0.len().checked_div(writes).unwrap_or(0);
    let fits = each == WIDTH || each == WIDTH * COLUMNS;
    if (writes > 0 && !fits) || values.0.len() != each * writes {
        return Err(Abort::BadArguments);
    }
    prefetch(tx, table, accesses, touched(reads.whole_rows || each != WIDTH));
    let mut values = &values.0[..];
    for (row, n) in accesses.rows.iter().zip(0u64..) {
        let mixed = mix(accesses.seed as u64, n);
        if !row.is_write() {
            read(tx, table, row.id(), column(mixed), reads.whole_rows)?;
            continue;
        }
        let (mine, rest) = values.split_at(each);
        values = rest;
        read_before(tx, table, row, mixed, reads.whole_rows || each != WIDTH, reads)?;
        if each == WIDTH {
            let set = column(mixed).set(mine);
            done(table.update(tx, row.id(), &[set])?)?;
        } else {
            write_all(tx, table, row.id(), mine)?;
        }
    }
    Ok(())
}

fn write_all(tx: &Transaction<'_>, table: Users, id: u64, values: &[u8]) -> Result<(), Abort> {
    let mut sets = [User::FIELD0.set(Value::Null); COLUMNS];
    for ((set, field), value) in sets.iter_mut().zip(FIELDS).zip(values.chunks_exact(WIDTH)) {
        *set = field.set(value);
    }
    done(table.update(tx, id, &sets)?)
}

/// Builds a row.
fn row(key: u64, values: &[u8]) -> User<'_> {
    let (values, _) = values.as_chunks::<WIDTH>();
    let values: &[FieldValue; COLUMNS] = values.try_into().expect("ten values");
    let [field0, field1, field2, field3, field4, field5, field6, field7, field8, field9] = values;
    User { key, field0, field1, field2, field3, field4, field5, field6, field7, field8, field9 }
}

fn overwrite(tx: &Transaction<'_>, table: Users, id: u64, values: &[u8]) -> Result<(), Abort> {
    table.overwrite(tx, &row(id, values))
}

/// Inserts a row.
pub fn insert(tx: &Transaction<'_>, table: Users, call: &Insert) -> Result<(), Abort> {
    let mut values = [0; WIDTH * COLUMNS];
    fill(mix(call.seed, call.id), &mut values);
    table.insert(tx, &row(key(call.id, call.spread), &values))?;
    Ok(())
}

/// Inserts rows of the population.
pub fn populate(tx: &Transaction<'_>, table: Users, call: &YcsbPopulate) -> Result<(), Abort> {
    let &YcsbPopulate { from, count, seed, spread } = call;
    (from..from + count as u64).try_for_each(|id| insert(tx, table, &Insert { id, seed, spread }))
}

/// Scans, and returns the number of rows.
pub fn scan(tx: &Transaction<'_>, table: Users, call: &Scan) -> Result<u32, Abort> {
    rows_from(tx, table, key(call.id, true), call.count)
}

/// Changes a column of one row, then scans; returns the number of rows scanned.
pub fn write_and_scan(
    tx: &Transaction<'_>,
    table: Users,
    call: &WriteAndScan,
) -> Result<u32, Abort> {
    let mixed = mix(call.seed as u64, 0);
    let mut value = [0; WIDTH];
    fill(mixed, &mut value);
    done(table.update(tx, call.id, &[column(mixed).set(&value)])?)?;
    if call.count == 0 {
        return Ok(0);
    }
    rows_from(tx, table, call.from, call.count)
}

/// Reads at most `count` whole rows from a key on; returns their number.
fn rows_from(tx: &Transaction<'_>, table: Users, from: u64, count: u32) -> Result<u32, Abort> {
    let rows = table.scan(tx).range(from..).limit(count as usize);
    Ok(rows.get_columns(Columns::ALL)?.len() as u32)
}

/// Reads a whole row and changes one column to a value derived from the column's old value, so that
/// the outcome depends on the order of the changes.
pub fn modify(tx: &Transaction<'_>, table: Users, call: &Modify) -> Result<(), Abort> {
    let row = found(table.get_columns(tx, call.id, Columns::ALL)?)?;
    let column = column(mix(call.seed as u64, 0));
    let old = row.get(column);
    let old = u64::from_le_bytes(old[..8].try_into().expect("the column is wider"));
    let mut value = [0; WIDTH];
    fill(mix(old, call.seed as u64), &mut value);
    done(table.update(tx, call.id, &[column.set(&value)])?)
}

/// Serialized as bytes; kept inline up to a row's length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bytes(pub SmallVec<[u8; 1024]>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Copy;
        impl Visitor<'_> for Copy {
            type Value = Bytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "bytes")
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
                Ok(Bytes(SmallVec::from_slice(bytes)))
            }
        }
        deserializer.deserialize_bytes(Copy)
    }
}
