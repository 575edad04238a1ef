//! The catalogue: tables and procedures as the log knows them, kept in its manifest.

use crate::error::Error;
use crate::storage::schema::Schema;
use crate::transaction::procedure::Procedure;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Stored {
    tables: Vec<StoredTable>,
    procedures: Vec<StoredProcedure>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct StoredTable {
    id: u32,
    schema: Schema,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StoredProcedure {
    id: u32,
    name: String,
    version: u32,
}

/// Numbers used in the log, matched to what this process declares.
pub(crate) struct Catalogue {
    stored: Stored,
    /// In declaration order.
    pub table_ids: Vec<u32>,
    pub procedure_ids: Vec<u32>,
    tables: ById<u32>,
    procedures: ById<Procedure>,
}

/// Values sorted by number. Every record does a lookup, and numbers mostly count up from 0.
struct ById<T>(Vec<(u32, T)>);

impl<T> FromIterator<(u32, T)> for ById<T> {
    fn from_iter<I: IntoIterator<Item = (u32, T)>>(numbered: I) -> Self {
        let mut numbered: Vec<_> = numbered.into_iter().collect();
        numbered.sort_by_key(|(number, _)| *number);
        ById(numbered)
    }
}

impl<T> ById<T> {
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

impl Stored {
    fn read(bytes: &[u8]) -> Result<Stored, Error> {
        if bytes.is_empty() {
            return Ok(Stored::default());
        }
        let unreadable = |why: String| {
            Error::Mismatch(format!(
                "the catalogue in the log's manifest cannot be read ({why}): it was written by \
                 another version of Hyades"
            ))
        };
        let stored: Stored =
            serde_json::from_slice(bytes).map_err(|error| unreadable(error.to_string()))?;
        stored.check().map_err(unreadable)?;
        Ok(stored)
    }

    /// Checks the invariants that the rest of the code relies on.
    fn check(&self) -> Result<(), String> {
        let (mut ids, mut names) = (HashSet::new(), HashSet::new());
        for table in &self.tables {
            table.schema.check_stored()?;
            if !ids.insert(table.id) || !names.insert(&table.schema.name) {
                return Err(format!("table {:?}, number {}, twice", table.schema.name, table.id));
            }
        }
        let mut ids = HashSet::new();
        if let Some(twice) = self.procedures.iter().find(|p| !ids.insert(p.id)) {
            return Err(format!("two procedures of number {}", twice.id));
        }
        let ids = self.tables.iter().map(|t| t.id).chain(self.procedures.iter().map(|p| p.id));
        match ids.max() {
            Some(u32::MAX) => Err("a number for which there is no next".to_string()),
            _ => Ok(()),
        }
    }
}

/// A table's number in the log and its description; a procedure's number, name and version.
type Entries = (Vec<(u32, Schema)>, Vec<(u32, String, u32)>);

/// Decodes the manifest's catalogue, for tools that have no declarations to match it to.
pub(crate) fn entries(bytes: &[u8]) -> Result<Entries, Error> {
    let stored = Stored::read(bytes)?;
    let tables = stored.tables.into_iter().map(|t| (t.id, t.schema)).collect();
    let procedures = stored.procedures.into_iter().map(|p| (p.id, p.name, p.version)).collect();
    Ok((tables, procedures))
}

impl Catalogue {
    /// Matches the manifest's catalogue to the declarations; new tables and procedures get new
    /// numbers.
    pub fn join(
        bytes: &[u8],
        schemas: &[Schema],
        procedures: &[Procedure],
    ) -> Result<Catalogue, Error> {
        let mut stored = Stored::read(bytes)?;
        let named = |(at, t): (usize, &StoredTable)| (t.schema.name.clone(), at);
        let known: HashMap<String, usize> = stored.tables.iter().enumerate().map(named).collect();
        let mut next = stored.tables.iter().map(|t| t.id + 1).max().unwrap_or(0);
        let mut table_ids = Vec::new();
        for schema in schemas {
            match known.get(&schema.name).map(|at| &stored.tables[*at]) {
                Some(table) if table.schema == *schema => table_ids.push(table.id),
                Some(table) => return Err(different(&table.schema, schema)),
                None => {
                    stored.tables.push(StoredTable { id: next, schema: schema.clone() });
                    table_ids.push(next);
                    next += 1;
                }
            }
        }
        let declared: HashSet<u32> = table_ids.iter().copied().collect();
        if let Some(missing) = stored.tables.iter().find(|t| !declared.contains(&t.id)) {
            return Err(Error::Mismatch(format!(
                "the database has a table {:?} that was not declared: declare it as it was",
                missing.schema.name
            )));
        }
        let of = |p: &StoredProcedure| ((p.name.clone(), p.version), p.id);
        let numbers: HashMap<(String, u32), u32> = stored.procedures.iter().rev().map(of).collect();
        let mut next = stored.procedures.iter().map(|p| p.id + 1).max().unwrap_or(0);
        let mut procedure_ids = Vec::new();
        let mut known = Vec::new();
        for procedure in procedures {
            let key = (procedure.name.clone(), procedure.version);
            let id = numbers.get(&key).copied().unwrap_or_else(|| {
                let (id, (name, version)) = (next, key);
                stored.procedures.push(StoredProcedure { id, name, version });
                next += 1;
                id
            });
            procedure_ids.push(id);
            known.push((id, procedure.clone()));
        }
        debug_assert_eq!(table_ids.len(), schemas.len(), "each declared table has a number");
        debug_assert_eq!(procedure_ids.len(), procedures.len(), "each procedure has a number");
        let tables = table_ids.iter().enumerate().map(|(at, id)| (*id, at as u32)).collect();
        let procedures = known.into_iter().collect();
        Ok(Catalogue { stored, table_ids, procedure_ids, tables, procedures })
    }

    /// Encodes the catalogue for the manifest.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(&self.stored).expect("a catalogue is plain data")
    }

    /// The position among the declarations of the table with this number in the log.
    #[inline]
    pub fn table(&self, log_id: u64) -> Option<usize> {
        self.tables.get(u32::try_from(log_id).ok()?).map(|at| *at as usize)
    }

    /// The procedure with this number in the log.
    ///
    /// # Errors
    /// A message that says what is missing.
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

fn different(stored: &Schema, declared: &Schema) -> Error {
    let what = if stored.columns != declared.columns {
        let of = |schema: &Schema| {
            schema
                .columns
                .iter()
                .map(|c| {
                    let null = if c.nullable { " or null" } else { "" };
                    format!("{} {:?}{null}", c.name, c.kind)
                })
                .collect::<Vec<_>>()
                .join(", ")
        };
        format!("has columns ({}) and is declared with ({})", of(stored), of(declared))
    } else if stored.key != declared.key || stored.primary != declared.primary {
        "is declared with another primary key".to_string()
    } else {
        "is declared with other secondary indexes".to_string()
    };
    Error::Mismatch(format!("table {:?} of the database {what}: declare it as it was", stored.name))
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
