//! Declarations are compared with the catalogue, and the catalogue is changed, in a transaction.

use crate::catalogue::{Catalogue, StoredIndex, StoredKeyspace, StoredTable, progress_key};
use crate::error::Error;
use hyades::Schema;
use hyades::row_codec::{ColumnDefaults, IndexColumns, RowCodec, schema_change};
use hyades_deuteronomy::Transaction;

/// The declaration of a keyspace.
#[derive(Clone, Debug)]
pub(crate) struct DeclaredKeyspace {
    pub name: String,
    pub is_any_size: bool,
}

/// The catalogue with all declarations, and the changes in words.
pub(crate) struct Declared {
    pub catalogue: Catalogue,
    pub changes: Vec<String>,
}

/// Makes the declarations a part of the catalogue.
///
/// # Errors
/// [`Error::Mismatch`]; [`Error::Schema`]; [`Error::Format`]; [`Error::Corrupt`]; the errors of
/// reads and writes.
pub(crate) fn declare(
    tx: &mut Transaction<'_>,
    keyspaces: &[DeclaredKeyspace],
    tables: &[RowCodec],
) -> Result<Declared, Error> {
    let mut catalogue = Catalogue::read(tx)?;
    let mut changes = Vec::new();
    for declared in keyspaces {
        declare_keyspace(&mut catalogue, declared, &mut changes)?;
    }
    for declared in tables {
        let name = declared.schema().name();
        match catalogue.tables.iter().position(|table| table.name == name) {
            None => create_table(tx, &mut catalogue, declared, &mut changes)?,
            Some(at) => change_table(tx, &mut catalogue, at, declared, &mut changes)?,
        }
    }
    if !changes.is_empty() {
        catalogue.write(tx)?;
    }
    Ok(Declared { catalogue, changes })
}

fn declare_keyspace(
    catalogue: &mut Catalogue,
    declared: &DeclaredKeyspace,
    changes: &mut Vec<String>,
) -> Result<(), Error> {
    let DeclaredKeyspace { name, is_any_size } = declared.clone();
    let kind = |is_any_size| if is_any_size { "values of any size" } else { "small values" };
    match catalogue.keyspaces.iter().find(|keyspace| keyspace.name == name) {
        Some(stored) if stored.is_any_size == is_any_size => Ok(()),
        Some(stored) => Err(Error::Mismatch(format!(
            "keyspace {name:?} of the database has {}, and is declared with {}: declare it as it \
             was created",
            kind(stored.is_any_size),
            kind(is_any_size)
        ))),
        None => {
            changes.push(format!("created keyspace {name:?}"));
            let number = catalogue.take_number()?;
            catalogue.keyspaces.push(StoredKeyspace { name, number, is_any_size });
            Ok(())
        }
    }
}

fn column_names(codec: &RowCodec, index: &IndexColumns<'_>) -> Vec<String> {
    let name = |column: &u16| codec.column_name(*column).expect("an index has columns").to_owned();
    index.columns.iter().map(name).collect()
}

/// The index of a declaration, with a number of its own.
fn new_index(
    catalogue: &mut Catalogue,
    codec: &RowCodec,
    index: &IndexColumns<'_>,
    is_filled: bool,
) -> Result<StoredIndex, Error> {
    let (name, unique, columns) = (index.name.to_owned(), index.unique, column_names(codec, index));
    Ok(StoredIndex { name, number: catalogue.take_number()?, unique, columns, is_filled })
}

fn create_table(
    tx: &mut Transaction<'_>,
    catalogue: &mut Catalogue,
    declared: &RowCodec,
    changes: &mut Vec<String>,
) -> Result<(), Error> {
    let name = declared.schema().name().to_owned();
    changes.push(format!("created table {name:?}"));
    let number = catalogue.take_number()?;
    let indexes = declared.indexes().map(|index| new_index(catalogue, declared, &index, true));
    let mut table = StoredTable {
        name,
        number,
        generation: 0,
        indexes: indexes.collect::<Result<_, _>>()?,
        versions: vec![declared.schema().clone()],
        defaults: ColumnDefaults::new(),
    };
    table.raise_generation(tx)?;
    catalogue.tables.push(table);
    Ok(())
}

/// The declared defaults of the columns that a table does not have yet.
fn new_defaults(stored: &Schema, declared: &RowCodec) -> Result<ColumnDefaults, Error> {
    let stored = RowCodec::new(stored.clone())?;
    let mut defaults = declared.defaults();
    defaults.retain(|name, _| {
        (0..).map_while(|at| stored.column_name(at)).all(|column| column != name)
    });
    Ok(defaults)
}

fn change_table(
    tx: &mut Transaction<'_>,
    catalogue: &mut Catalogue,
    at: usize,
    declared: &RowCodec,
    changes: &mut Vec<String>,
) -> Result<(), Error> {
    let mut table = catalogue.tables[at].clone();
    let last = table.versions.last_mut().expect("a table has a schema");
    let change = schema_change(last, declared.schema())?;
    if change.words.is_empty() {
        return Ok(());
    }
    if change.has_new_layout {
        table.defaults.extend(new_defaults(last, declared)?);
        table.versions.push(declared.schema().clone());
    } else {
        *last = declared.schema().clone();
    }
    let mut indexes = Vec::new();
    for index in declared.indexes() {
        let columns = column_names(declared, &index);
        let is_same = |stored: &StoredIndex| {
            (&*stored.name, stored.unique, &stored.columns) == (index.name, index.unique, &columns)
        };
        indexes.push(match table.indexes.iter().position(is_same) {
            Some(kept) => table.indexes.swap_remove(kept),
            None => new_index(catalogue, declared, &index, false)?,
        });
    }
    for dropped in std::mem::replace(&mut table.indexes, indexes) {
        tx.delete(&progress_key(dropped.number))?;
        catalogue.dropped.push(dropped.number);
    }
    table.raise_generation(tx)?;
    changes.extend(change.words);
    catalogue.tables[at] = table;
    Ok(())
}
