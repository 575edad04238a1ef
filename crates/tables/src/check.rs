//! Checks of whole databases: indexes equal tables, and no large value lacks a piece.

use crate::catalogue::Catalogue;
use crate::cursor::Cursor;
use crate::error::Error;
use crate::index::Index;
use crate::large::Stored;
use crate::prefix::{OwnedRange, PIECES, Prefix};
use crate::rows::TableRows;
use crate::tables::Tables;
use crate::view::View;
use hyades_deuteronomy::ScanOrder;

/// The counts of a check without findings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checked {
    /// The rows of the declared tables.
    pub rows: u64,
    /// The entries of the indexes of the declared tables.
    pub entries: u64,
    /// The pieces of all values of the database.
    pub pieces: u64,
}

impl Tables {
    /// Checks the declared tables, and the pieces of all values of the database: each row has an
    /// entry in each index, each entry a row, each value its pieces, each piece a value. Reads
    /// everything; on a long snapshot beside any writers.
    ///
    /// # Errors
    /// [`Error::Corrupt`], with the first finding; the errors of reads.
    pub fn check<V: View>(&self, view: &mut V) -> Result<Checked, Error> {
        let mut checked = Checked::default();
        for table in self.all_rows() {
            table.check_generation(view)?;
            check_table(table, view, &mut checked)?;
        }
        checked.pieces = check_pieces(view)?;
        Ok(checked)
    }
}

/// Runs `each` on the rows of a range, in chunks.
fn for_each<V: View>(
    view: &mut V,
    range: OwnedRange,
    mut each: impl FnMut(&mut V, &[u8], crate::Bytes) -> Result<(), Error>,
) -> Result<u64, Error> {
    let (mut cursor, mut count) = (Cursor::new(range, ScanOrder::Ascending, usize::MAX), 0);
    while let Some((key, value)) = cursor.next(view)? {
        each(view, &key, value)?;
        count += 1;
    }
    Ok(count)
}

fn check_table<V: View>(
    table: &TableRows,
    view: &mut V,
    checked: &mut Checked,
) -> Result<(), Error> {
    let prefix = table.keyspace.prefix();
    let rows = for_each(view, prefix.all(), |view, key, stored| {
        let row = table.decode(view, stored)?;
        if table.codec.primary_key(&row) != prefix.rest(key) {
            return finding(table, "a row under another key");
        }
        table.indexes.iter().try_for_each(|index| has_entry(table, index, view, &row, key))
    })?;
    for index in &table.indexes {
        let entries = for_each(view, index.prefix.all(), |_, _, _| Ok(()))?;
        // Each row has an entry of its own, so as many entries leave none without a row.
        if entries != rows {
            let text = format!("{entries} entries in index {:?} for {rows} rows", index.name);
            return finding(table, &text);
        }
        checked.entries += entries;
    }
    checked.rows += rows;
    Ok(())
}

fn has_entry<V: View>(
    table: &TableRows,
    index: &Index,
    view: &mut V,
    row: &[u8],
    key: &[u8],
) -> Result<(), Error> {
    let entry = index.entry(&table.codec, row, table.keyspace.prefix().rest(key));
    match view.read_value(&entry.key)? {
        Some(value) if *value == entry.value => Ok(()),
        _ => finding(table, &format!("a row without its entry in index {:?}", index.name)),
    }
}

fn finding(table: &TableRows, what: &str) -> Result<(), Error> {
    Err(Error::Corrupt(format!("table {:?} has {what}", table.name())))
}

/// Checks the pieces of all values. Returns their number.
fn check_pieces<V: View>(view: &mut V) -> Result<u64, Error> {
    let catalogue = Catalogue::read(view)?;
    let keyspaces = catalogue.keyspaces.iter().map(|keyspace| keyspace.number);
    let tables = catalogue.tables.iter().map(|table| table.number);
    let mut wanted = 0;
    for number in keyspaces.chain(tables) {
        for_each(view, Prefix::new(number).all(), |view, _, stored| {
            let Stored::Spread(head) = Stored::decode(&stored)? else { return Ok(()) };
            wanted += u64::from(head.pieces());
            (0..head.pieces()).try_for_each(|piece| head.read_piece(view, piece).map(drop))
        })?;
    }
    let found = for_each(view, Prefix::new(PIECES).all(), |_, _, _| Ok(()))?;
    match found == wanted {
        true => Ok(found),
        false => Err(Error::Corrupt(format!(
            "the database has {found} pieces of values, and its values have {wanted}"
        ))),
    }
}
