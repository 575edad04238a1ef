//! Changes of the schema: a table's declaration is compared with the catalogue. Accepted changes
//! take effect with the first checkpoint afterwards; until then the log holds only records of the
//! old schema.

use crate::error::Error;
use crate::storage::Stamp;
use crate::storage::schema::{ColumnSpec, IndexSpec, Schema};
use crate::storage::table::TableData;

/// The differences between a declaration and the table in the catalogue.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct TableChange {
    /// The changes in words.
    pub words: Vec<String>,
    /// Whether rows have another layout.
    pub layout: bool,
    pub indexes: IndexChange,
}

/// The changes of a table's indexes that matter to replay: commands ran under the old indexes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct IndexChange {
    /// Positions of the new unique indexes. These may hold duplicates during replay.
    new_unique: Vec<usize>,
    /// The dropped unique indexes, with the positions of columns as declared. During replay,
    /// dropped indexes are kept behind the declared indexes.
    dropped_unique: Vec<IndexSpec>,
}

impl IndexChange {
    pub fn is_empty(&self) -> bool {
        self.new_unique.is_empty() && self.dropped_unique.is_empty()
    }
}

/// Compares a declaration with the table in the catalogue.
///
/// # Errors
/// [`Error::Mismatch`]: a difference not accepted; names the table and the column.
pub(crate) fn compare(stored: &Schema, declared: &Schema) -> Result<TableChange, Error> {
    let refused = |what: String| Err(Error::Mismatch(what));
    let (table, mut change) = (&declared.name, TableChange::default());
    for column in &stored.columns {
        let name = &column.name;
        let Some(at) = declared.position(name) else {
            return refused(format!(
                "column {name:?} of table {table:?} of the database is not declared: a column \
                 cannot be dropped; declare it as {}",
                described(column)
            ));
        };
        let now = &declared.columns[usize::from(at)];
        if (now.kind, now.nullable) != (column.kind, column.nullable) {
            return refused(format!(
                "column {name:?} of table {table:?} of the database is {} and is declared as {}: \
                 a column's type cannot be changed; declare it as it was, and add another column",
                described(column),
                described(now)
            ));
        }
    }
    if names(stored, &stored.key) != names(declared, &declared.key)
        || stored.primary != declared.primary
    {
        return refused(format!(
            "table {table:?} of the database is declared with another primary key: a primary key \
             cannot be changed; declare it as it was, or add another table"
        ));
    }
    for column in declared.columns.iter().filter(|c| stored.position(&c.name).is_none()) {
        if !column.nullable && column.default.is_none() {
            return refused(format!(
                "table {table:?} of the database has no column {:?}, and its declaration does not \
                 say what existing rows get there: make it nullable, or give it a default",
                column.name
            ));
        }
        change.words.push(format!("added column {:?} to table {table:?}", column.name));
    }
    let kept = stored.columns.iter().map(|column| declared.position(&column.name));
    if !kept.is_sorted() {
        change.words.push(format!("reordered the columns of table {table:?}"));
    }
    change.layout = !change.words.is_empty();
    compare_indexes(stored, declared, &mut change);
    Ok(change)
}

fn compare_indexes(stored: &Schema, declared: &Schema, change: &mut TableChange) {
    let table = &declared.name;
    let is_in = |schema: &Schema, owner: &Schema, index: &IndexSpec| {
        let wanted = (&index.name, index.unique, names(owner, &index.columns));
        schema.indexes.iter().any(|i| (&i.name, i.unique, names(schema, &i.columns)) == wanted)
    };
    let how = |index: &IndexSpec| if index.unique { "unique index" } else { "index" };
    for index in stored.indexes.iter().filter(|index| !is_in(declared, stored, index)) {
        change.words.push(format!("dropped {} {:?} of table {table:?}", how(index), index.name));
        if index.unique {
            let columns = names(stored, &index.columns).into_iter();
            let columns = columns.filter_map(|name| declared.position(name)).collect();
            change.indexes.dropped_unique.push(IndexSpec { columns, ..index.clone() });
        }
    }
    for (at, index) in declared.indexes.iter().enumerate() {
        if is_in(stored, declared, index) {
            continue;
        }
        change.words.push(format!("added {} {:?} to table {table:?}", how(index), index.name));
        if index.unique {
            change.indexes.new_unique.push(at);
        }
    }
}

fn names<'s>(schema: &'s Schema, columns: &[u16]) -> Vec<&'s str> {
    columns.iter().map(|&at| &*schema.columns[usize::from(at)].name).collect()
}

fn described(column: &ColumnSpec) -> String {
    format!("{:?}{}", column.kind, if column.nullable { " or null" } else { "" })
}

/// The schema under which the log is replayed: the declared schema, with the old rules of
/// uniqueness.
pub(super) fn replay_schema(declared: &Schema, change: &IndexChange) -> Schema {
    let mut schema = declared.clone();
    for &at in &change.new_unique {
        schema.indexes[at].unique = false;
    }
    schema.indexes.extend(change.dropped_unique.iter().cloned());
    schema
}

/// Gives replayed tables their declared indexes: the last step in memory. Each change is for the
/// table at the given position.
///
/// # Errors
/// [`Error::Mismatch`] if rows share a key of a new unique index.
pub(crate) fn settle_indexes<S: Stamp>(
    changes: &[(usize, IndexChange)],
    tables: &mut [TableData<S>],
) -> Result<(), Error> {
    for (at, change) in changes {
        let table = &mut tables[*at];
        for &index in &change.new_unique {
            let guard = hyades_platform::reclaim::pin();
            if let Some(rows) = table.duplicates(index, &guard) {
                let [one, other] = rows.map(|entry| table.key_text(entry.record()));
                return Err(Error::Mismatch(format!(
                    "unique index {:?} cannot be added to table {:?}: the rows with the primary \
                     keys {one} and {other} have the same key in it; nothing was changed: change \
                     the rows under the old declaration first",
                    table.secondaries[index].name, table.layout.name
                )));
            }
        }
        for &index in &change.new_unique {
            table.secondaries[index].unique = true;
        }
        let declared = table.secondaries.len() - change.dropped_unique.len();
        table.truncate_indexes(declared);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::value::Type;

    fn accounts() -> Schema {
        Schema::new("accounts")
            .column("id", Type::I64)
            .column("owner", Type::Text)
            .nullable("note", Type::Text)
            .primary_key(&["id"])
            .index("by_owner", &["owner"])
            .unique("by_note", &["note"])
    }

    #[test]
    fn what_is_accepted_is_named() {
        let declared = Schema::new("accounts")
            .nullable("since", Type::I32)
            .column("owner", Type::Text)
            .column_with_default("level", Type::I32, 3)
            .column("id", Type::I64)
            .nullable("note", Type::Text)
            .primary_key(&["id"])
            .unique("by_owner", &["owner"])
            .index("by_level", &["level", "owner"]);
        let change = compare(&accounts(), &declared).unwrap();
        let words = [
            "added column \"since\" to table \"accounts\"",
            "added column \"level\" to table \"accounts\"",
            "reordered the columns of table \"accounts\"",
            "dropped index \"by_owner\" of table \"accounts\"",
            "dropped unique index \"by_note\" of table \"accounts\"",
            "added unique index \"by_owner\" to table \"accounts\"",
            "added index \"by_level\" to table \"accounts\"",
        ];
        assert_eq!(change.words, words);
        assert!(change.layout);
        let replayed = replay_schema(&declared, &change.indexes);
        let rules: Vec<_> = replayed.indexes.iter().map(|i| (&*i.name, i.unique)).collect();
        assert_eq!(rules, [("by_owner", false), ("by_level", false), ("by_note", true)]);
        assert_eq!(names(&replayed, &replayed.indexes[2].columns), ["note"]);
        assert_eq!(compare(&accounts(), &accounts()).unwrap(), TableChange::default());
    }

    #[test]
    fn what_is_not_accepted_is_refused() {
        let start = || Schema::new("accounts").column("id", Type::I64);
        let rest = |s: Schema| s.nullable("note", Type::Text).primary_key(&["id"]);
        for (declared, parts) in [
            (rest(start()), ["\"owner\"", "cannot be dropped", "Text"]),
            (rest(start().column("owner", Type::Bytes)), ["\"owner\"", "Text", "as Bytes"]),
            (rest(start().nullable("owner", Type::Text)), ["\"owner\"", "Text", "Text or null"]),
            (rest(start().column("owner", Type::Text)).hash(), ["primary", "key", "as it was"]),
            (
                rest(start().column("owner", Type::Text)).primary_key(&["owner"]),
                ["primary", "key", "as it was"],
            ),
            (
                rest(start().column("owner", Type::Text).column("age", Type::I32)),
                ["\"age\"", "nullable", "default"],
            ),
        ] {
            let text = compare(&accounts(), &declared).unwrap_err().to_string();
            let named = parts.iter().all(|part| text.contains(part));
            assert!(named && text.contains("\"accounts\""), "{text}");
        }
    }
}
