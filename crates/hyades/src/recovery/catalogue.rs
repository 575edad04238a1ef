//! The catalogue: the tables and procedures of the log, kept in its manifest.

use super::former::FormerTable;
use super::schema_change::{self, IndexChange};
use super::stored_catalogue::{StoredCatalogue, StoredProcedure, StoredTable};
use crate::error::Error;
use crate::storage::hash_index::HashSecret;
use crate::storage::schema::Schema;
use crate::transaction::procedure::Procedure;
use std::collections::{HashMap, HashSet};

/// Numbers used in the log, matched to the declarations of this process.
pub(crate) struct Catalogue {
    stored: StoredCatalogue,
    /// The manifest's catalogue, if it stays in force until a checkpoint has been adopted.
    before: Option<Vec<u8>>,
    /// In declaration order.
    pub table_ids: Vec<u32>,
    /// The secret of the hashes of keys.
    pub secret: HashSecret,
    pub procedure_ids: Vec<u32>,
    /// Declared tables, except former ones.
    tables: ById<u32>,
    /// Dropped tables, and tables with another layout of rows in the log.
    formers: ById<FormerTable>,
    procedures: ById<Procedure>,
    /// The differences from the manifest's catalogue, in words.
    pub changes: Vec<String>,
    /// By the position of the table among the declarations.
    pub index_changes: Vec<(usize, IndexChange)>,
}

/// Values sorted by number. Every record does a lookup, and numbers mostly count up from 0.
struct ById<T>(Vec<(u32, T)>);

impl<T> FromIterator<(u32, T)> for ById<T> {
    fn from_iter<I: IntoIterator<Item = (u32, T)>>(numbered: I) -> Self {
        ById::sorted(numbered.into_iter().collect())
    }
}

impl<T> ById<T> {
    /// Separate from `from_iter`, since `from_iter` is compiled for every iterator.
    fn sorted(mut numbered: Vec<(u32, T)>) -> Self {
        numbered.sort_by_key(|(number, _)| *number);
        ById(numbered)
    }

    #[inline]
    fn get(&self, number: u32) -> Option<&T> {
        match self.0.get(number as usize) {
            Some((there, what)) if *there == number => Some(what),
            _ => self.search(number),
        }
    }

    #[cold]
    fn search(&self, number: u32) -> Option<&T> {
        let at = self.0.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(&self.0[at].1)
    }
}

/// A table's number in the log and its description; a procedure's number, name and version.
type Entries = (Vec<(u32, Schema)>, Vec<(u32, String, u32)>);

/// Decodes the manifest's catalogue, for tools without declarations to match.
pub(crate) fn entries(bytes: &[u8]) -> Result<Entries, Error> {
    let stored = StoredCatalogue::read(bytes)?;
    let tables = stored.tables.into_iter().map(|t| (t.id, t.schema)).collect();
    let procedures = stored.procedures.into_iter().map(|p| (p.id, p.name, p.version)).collect();
    Ok((tables, procedures))
}

impl Catalogue {
    /// Matches the manifest's catalogue to the declarations; new tables and procedures get new
    /// numbers, and a database without a secret for its hashes gets `new_secret`, if given.
    ///
    /// # Errors
    /// [`Error::Mismatch`]: the catalogue cannot be read, or a table cannot be changed to its
    /// declaration.
    pub fn join(
        bytes: &[u8],
        schemas: &[Schema],
        procedures: &[Procedure],
        dropped: &[String],
        new_secret: Option<HashSecret>,
    ) -> Result<Catalogue, Error> {
        let mut stored = StoredCatalogue::read(bytes)?;
        stored.hash_secret = stored.hash_secret.or(new_secret);
        let secret = stored.hash_secret.unwrap_or(HashSecret::KNOWN);
        let mut catalogue = Catalogue {
            stored,
            secret,
            before: None,
            table_ids: Vec::new(),
            procedure_ids: Vec::new(),
            tables: ById(Vec::new()),
            formers: ById(Vec::new()),
            procedures: ById(Vec::new()),
            changes: Vec::new(),
            index_changes: Vec::new(),
        };
        let mut waits = catalogue.join_tables(schemas)?;
        waits |= catalogue.drop_tables(dropped)?;
        catalogue.join_procedures(procedures);
        catalogue.before = waits.then(|| bytes.to_vec());
        if bytes.is_empty() {
            catalogue.changes.clear();
        }
        debug_assert_eq!(catalogue.table_ids.len(), schemas.len(), "a table has a number");
        debug_assert_eq!(catalogue.procedure_ids.len(), procedures.len(), "so has a procedure");
        Ok(catalogue)
    }

    /// Returns whether a table is changed.
    fn join_tables(&mut self, schemas: &[Schema]) -> Result<bool, Error> {
        let named = |(at, t): (usize, &StoredTable)| (t.schema.name.clone(), at);
        let known: HashMap<String, usize> =
            self.stored.tables.iter().enumerate().map(named).collect();
        let (mut tables, mut formers, mut changed) = (Vec::new(), Vec::new(), false);
        for (position, schema) in schemas.iter().enumerate() {
            let Some(&at) = known.get(&schema.name) else {
                let id = self.stored.add_table(schema)?;
                self.changes.push(format!("added table {:?}", schema.name));
                self.table_ids.push(id);
                tables.push((id, position as u32));
                continue;
            };
            let StoredTable { id, schema: stored } = &mut self.stored.tables[at];
            self.table_ids.push(*id);
            let change = schema_change::compare(stored, schema)?;
            changed |= !change.words.is_empty();
            self.changes.extend(change.words);
            if !change.indexes.is_empty() {
                self.index_changes.push((position, change.indexes));
            }
            if change.layout {
                formers.push((*id, FormerTable::new(stored, Some((position, schema)))));
            } else {
                tables.push((*id, position as u32));
            }
            stored.clone_from(schema);
        }
        self.tables = tables.into_iter().collect();
        self.formers = formers.into_iter().collect();
        Ok(changed)
    }

    /// Removes the tables declared as dropped. Returns whether a table was removed.
    fn drop_tables(&mut self, dropped: &[String]) -> Result<bool, Error> {
        let declared: HashSet<u32> = self.table_ids.iter().copied().collect();
        let is_undeclared = |table: &mut StoredTable| !declared.contains(&table.id);
        let undeclared: Vec<_> = self.stored.tables.extract_if(.., is_undeclared).collect();
        let mut formers = std::mem::take(&mut self.formers.0);
        for StoredTable { id, schema } in &undeclared {
            if !dropped.contains(&schema.name) {
                return Err(Error::Mismatch(format!(
                    "the database has a table {:?} that was not declared: declare it as it was, \
                     or drop it with Builder::drop_table({:?})",
                    schema.name, schema.name
                )));
            }
            self.changes.push(format!("dropped table {:?}", schema.name));
            formers.push((*id, FormerTable::new(schema, None)));
        }
        self.formers = formers.into_iter().collect();
        Ok(!undeclared.is_empty())
    }

    fn join_procedures(&mut self, procedures: &[Procedure]) {
        let stored = &mut self.stored.procedures;
        let key_and_id = |p: &StoredProcedure| ((p.name.clone(), p.version), p.id);
        let numbers: HashMap<(String, u32), u32> = stored.iter().rev().map(key_and_id).collect();
        let mut next = stored.iter().map(|p| p.id + 1).max().unwrap_or(0);
        let mut known = Vec::new();
        for procedure in procedures {
            let key = (procedure.name.clone(), procedure.version);
            let id = numbers.get(&key).copied().unwrap_or_else(|| {
                let (id, (name, version)) = (next, key);
                stored.push(StoredProcedure { id, name, version });
                next += 1;
                id
            });
            self.procedure_ids.push(id);
            known.push((id, procedure.clone()));
        }
        self.procedures = known.into_iter().collect();
    }

    /// Encodes the catalogue for the manifest.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.stored.to_bytes()
    }

    /// Returns the catalogue at the beginning of an incarnation: the old catalogue if a change of
    /// the schema has to wait for a checkpoint.
    pub fn bytes_before_checkpoint(&self) -> Vec<u8> {
        self.before.clone().unwrap_or_else(|| self.to_bytes())
    }

    /// Whether a change of the schema comes into force with the next checkpoint.
    pub fn needs_checkpoint(&self) -> bool {
        self.before.is_some()
    }

    /// Returns the advice for the error about a command that cannot be replayed, if the schema is
    /// being changed.
    pub fn advice(&self) -> String {
        if !self.needs_checkpoint() {
            return String::new();
        }
        format!(
            ". The log was written before this change of the schema: {}. If the procedure needs \
             what it used then, open the database with the old program, take a checkpoint, and \
             then change the schema",
            self.changes.join(", ")
        )
    }

    /// Checks that the catalogue of a later incarnation of the same log numbers tables and
    /// procedures as this catalogue does.
    ///
    /// # Errors
    /// [`Error::Mismatch`]; names the table or the procedure.
    #[cfg(feature = "replication")]
    pub fn check_later(&self, bytes: &[u8]) -> Result<(), Error> {
        let later = StoredCatalogue::read(bytes)?;
        let other = |what: String| {
            Err(Error::Mismatch(format!(
                "the log goes on with another catalogue: {what}; open the follower again, with \
                 the declarations of the program that writes the log"
            )))
        };
        let is_own = |table: &StoredTable| {
            let (id, name) = (table.id, &table.schema.name);
            let own = self.stored.tables.iter();
            let mut same = own.filter(|own| (own.id, &own.schema.name) == (id, name));
            let changes = same.next().map(|own| schema_change::compare(&table.schema, &own.schema));
            changes.is_some_and(|changes| changes.is_ok_and(|change| change.words.is_empty()))
        };
        if let Some(table) = later.tables.iter().find(|table| !is_own(table)) {
            let name = &table.schema.name;
            return other(format!("table {name:?} is new, was changed, or renumbered"));
        }
        match later.procedures.iter().find(|p| !self.stored.procedures.contains(p)) {
            None => Ok(()),
            Some(StoredProcedure { name, version, .. }) => {
                other(format!("procedure {name:?} version {version} is new, or renumbered"))
            }
        }
    }

    /// The schema under which the log is replayed into a declared table.
    pub fn replay_schema(&self, position: usize, declared: &Schema) -> Option<Schema> {
        let (_, change) = self.index_changes.iter().find(|(at, _)| *at == position)?;
        Some(schema_change::replay_schema(declared, change))
    }

    /// Returns the table with this number in the log, if its form in the log is not as declared.
    #[cold]
    pub fn former(&self, log_id: u64) -> Option<&FormerTable> {
        self.formers.get(u32::try_from(log_id).ok()?)
    }

    /// Whether there are former tables.
    pub fn has_formers(&self) -> bool {
        !self.formers.0.is_empty()
    }

    /// Returns the position among the declarations of the table with this number in the log. `None`
    /// if there is no such table, or if the table is a [former](Catalogue::former) table.
    #[inline]
    pub fn table(&self, log_id: u64) -> Option<usize> {
        self.tables.get(u32::try_from(log_id).ok()?).map(|at| *at as usize)
    }

    /// Returns the procedure with this number in the log.
    ///
    /// # Errors
    /// A message that names the missing procedure.
    pub fn procedure(&self, log_id: u64) -> Result<&Procedure, String> {
        let id = u32::try_from(log_id).map_err(|_| format!("there is no procedure {log_id}"))?;
        if let Some(procedure) = self.procedures.get(id) {
            return Ok(procedure);
        }
        let Some(stored) = self.stored.procedures.iter().find(|p| p.id == id) else {
            return Err(format!("the catalogue has no procedure number {id}"));
        };
        let (name, version) = (&stored.name, stored.version);
        let others: Vec<String> = self
            .procedures
            .0
            .iter()
            .filter(|(_, p)| p.name == *name)
            .map(|(_, p)| p.version.to_string())
            .collect();
        Err(if others.is_empty() {
            format!("procedure {name:?} version {version} is not registered: register it")
        } else {
            format!(
                "procedure {name:?} is registered in version {} but the log calls version \
                 {version}: register that version as well",
                others.join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_numbered_is_found_with_gaps_and_without() {
        for numbers in [vec![], vec![0, 1, 2, 3], vec![7, 2, u32::MAX - 1, 0], vec![1, 2, 3]] {
            let numbered: ById<u32> = numbers.iter().map(|n| (*n, n ^ 5)).collect();
            for n in (0..10).chain([u32::MAX - 1, u32::MAX]) {
                let expected = numbers.contains(&n).then_some(n ^ 5);
                assert_eq!(numbered.get(n).copied(), expected, "{n} in {numbers:?}");
            }
        }
    }
}
