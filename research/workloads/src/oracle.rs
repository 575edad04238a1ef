//! A small, simple, single-threaded database that serves as the oracle for procedures: ordered
//! maps, and a journal for rollback. Columns that were not requested read as garbage: a procedure
//! that forgets to request a column is detected.

use bumpalo::Bump;
use hyades::for_tests::{TestTable, has_column, savepoint, savepoint_number, table_number};
use hyades::{
    Abort, Access, Columns, Index, Range, Row, Savepoint, Schema, Set, Table, Transaction, Value,
};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Bound;

/// A value with an order that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Owned {
    Null,
    Bool(bool),
    I32(i32),
    U32(u32),
    I64(i64),
    U64(u64),
    Text(String),
    Bytes(Vec<u8>),
}

impl Owned {
    fn of(value: &Value<'_>) -> Owned {
        match *value {
            Value::Null => Owned::Null,
            Value::Bool(v) => Owned::Bool(v),
            Value::I32(v) => Owned::I32(v),
            Value::U32(v) => Owned::U32(v),
            Value::I64(v) => Owned::I64(v),
            Value::U64(v) => Owned::U64(v),
            Value::Text(v) => Owned::Text(v.to_string()),
            Value::Bytes(v) => Owned::Bytes(v.to_vec()),
            other => panic!("no workload has a column of {other:?}"),
        }
    }

    fn value(&self) -> Value<'_> {
        match self {
            Owned::Null => Value::Null,
            Owned::Bool(v) => Value::Bool(*v),
            Owned::I32(v) => Value::I32(*v),
            Owned::U32(v) => Value::U32(*v),
            Owned::I64(v) => Value::I64(*v),
            Owned::U64(v) => Value::U64(*v),
            Owned::Text(v) => Value::Text(v),
            Owned::Bytes(v) => Value::Bytes(v),
        }
    }

    /// A different value of the same type.
    fn garbage(&self) -> Owned {
        match self {
            Owned::Null => Owned::Null,
            Owned::Bool(v) => Owned::Bool(!v),
            Owned::I32(v) => Owned::I32(v ^ 0x5A5A_5A5A),
            Owned::U32(v) => Owned::U32(v ^ 0x5A5A_5A5A),
            Owned::I64(v) => Owned::I64(v ^ 0x5A5A_5A5A_5A5A),
            Owned::U64(v) => Owned::U64(v ^ 0x5A5A_5A5A_5A5A),
            Owned::Text(_) => Owned::Text("not asked for".to_string()),
            Owned::Bytes(v) => Owned::Bytes(v.iter().map(|b| !b).collect()),
        }
    }
}

type Tuple = Vec<Owned>;

#[derive(Default)]
struct Contents {
    /// By primary key, or by row id.
    rows: BTreeMap<Tuple, Tuple>,
    /// Per secondary index: the index columns followed by the primary key, to the primary key.
    indexes: Vec<BTreeMap<Tuple, Tuple>>,
    next_row_id: u64,
}

/// The oracle: tables in the order of their declaration.
pub struct Oracle {
    shapes: Vec<TestTable>,
    contents: RefCell<Vec<Contents>>,
    /// The undo journal, oldest first: table, key, old row.
    journal: RefCell<Vec<(usize, Tuple, Option<Tuple>)>>,
    /// Storage of the returned rows.
    arena: Bump,
    draws: Cell<u64>,
    gets: Cell<usize>,
}

fn owned(values: &[Value<'_>]) -> Tuple {
    values.iter().map(Owned::of).collect()
}

/// Compares a key with a bound that may be a prefix.
fn by_prefix(key: &[Owned], prefix: &[Owned]) -> std::cmp::Ordering {
    key[..prefix.len().min(key.len())].cmp(prefix)
}

impl Oracle {
    pub fn new(schemas: Vec<Schema>) -> Oracle {
        let shapes: Vec<TestTable> =
            schemas.into_iter().enumerate().map(|(n, s)| TestTable::new(s, n as u32)).collect();
        let contents = shapes
            .iter()
            .map(|shape| Contents {
                indexes: shape.indexes().map(|_| BTreeMap::new()).collect(),
                ..Contents::default()
            })
            .collect();
        Oracle {
            shapes,
            contents: RefCell::new(contents),
            journal: RefCell::default(),
            arena: Bump::new(),
            draws: Cell::new(0),
            gets: Cell::new(0),
        }
    }

    /// Runs a transaction: the changes are kept if `body` returns a value, and rolled back if
    /// `body` aborts.
    pub fn transact<T>(
        &self,
        body: impl FnOnce(&Transaction<'_>) -> Result<T, Abort>,
    ) -> Result<T, Abort> {
        let outcome = body(&Transaction::new(self));
        if outcome.is_err() {
            self.rollback_to(savepoint(0))?;
        }
        self.journal.borrow_mut().clear();
        outcome
    }

    /// Number of calls of `get`.
    pub fn gets(&self) -> usize {
        self.gets.get()
    }

    /// Number of rows of a table.
    pub fn len(&self, table: Table) -> usize {
        self.contents.borrow()[table_number(table)].rows.len()
    }

    /// A digest over all rows.
    pub fn digest(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        for contents in self.contents.borrow().iter() {
            contents.rows.hash(&mut hasher);
            contents.indexes.hash(&mut hasher);
        }
        hasher.finish()
    }

    fn key_of(&self, table: usize, row: &Tuple, columns: &[u16]) -> Tuple {
        debug_assert_eq!(row.len(), self.shapes[table].columns());
        columns.iter().map(|&c| row[c as usize].clone()).collect()
    }

    /// Checks a key as the engine does, and returns an owned copy.
    fn checked_key(&self, table: usize, key: &[Value<'_>]) -> Result<Tuple, Abort> {
        let shape = &self.shapes[table];
        assert_eq!(key.len(), shape.key().len().max(1), "the key's columns");
        for (column, value) in shape.key().iter().zip(key) {
            shape.check(*column, value)?;
        }
        Ok(owned(key))
    }

    /// The unique index in which a row with another primary key has the row's key.
    fn duplicate_in(&self, table: usize, key: &Tuple, row: &Tuple) -> Option<u16> {
        let all = self.contents.borrow();
        let indexes = self.shapes[table].indexes().zip(&all[table].indexes);
        let has_other = |(columns, is_unique): (&[u16], bool), index: &BTreeMap<Tuple, Tuple>| {
            let start = self.key_of(table, row, columns);
            let mut same = index.range(start.clone()..);
            is_unique
                && same
                    .next()
                    .is_some_and(|(entry, primary)| entry.starts_with(&start) && primary != key)
        };
        let found = indexes.into_iter().position(|(shape, index)| has_other(shape, index));
        found.map(|index| index as u16)
    }

    /// Stores a row, or removes the row if `None`, indexes included, and returns the old row.
    fn put(&self, table: usize, key: &Tuple, row: Option<Tuple>) -> Option<Tuple> {
        let mut all = self.contents.borrow_mut();
        let contents = &mut all[table];
        let old = contents.rows.remove(key);
        for (index, (columns, _)) in contents.indexes.iter_mut().zip(self.shapes[table].indexes()) {
            let entry = |row: &Tuple| {
                let mut entry = self.key_of(table, row, columns);
                entry.extend_from_slice(key);
                entry
            };
            if let Some(old) = &old {
                index.remove(&entry(old));
            }
            if let Some(row) = &row {
                index.insert(entry(row), key.clone());
            }
        }
        if let Some(row) = row {
            contents.rows.insert(key.clone(), row);
        }
        old
    }

    fn change(&self, table: usize, key: &Tuple, row: Option<Tuple>) -> bool {
        let old = self.put(table, key, row);
        let had = old.is_some();
        self.journal.borrow_mut().push((table, key.clone(), old));
        had
    }

    fn hand_out<'a>(&'a self, table: usize, key: &Tuple, row: &Tuple, columns: Columns) -> Row<'a> {
        let shape = &self.shapes[table];
        let visible: Tuple = row
            .iter()
            .enumerate()
            .map(|(at, value)| match has_column(columns, at as u16) {
                true => value.clone(),
                false => value.garbage(),
            })
            .collect();
        let values: Vec<Value<'_>> = visible.iter().map(Owned::value).collect();
        let bytes = self.arena.alloc_slice_copy(&shape.encode(&values).expect("it was in a row"));
        let row_id = match (shape.key().is_empty(), key.first()) {
            (true, Some(Owned::U64(id))) => *id,
            _ => 0,
        };
        shape.row(bytes, row_id)
    }
}

impl Access for Oracle {
    fn get<'a>(
        &'a self,
        table: Table,
        key: &[Value<'_>],
        columns: Columns,
    ) -> Result<Option<Row<'a>>, Abort> {
        self.gets.set(self.gets.get() + 1);
        let table = table_number(table);
        let key = self.checked_key(table, key)?;
        let row = self.contents.borrow()[table].rows.get(&key).cloned();
        Ok(row.map(|row| self.hand_out(table, &key, &row, columns)))
    }

    fn insert(&self, table: Table, row: &[Value<'_>]) -> Result<u64, Abort> {
        let table = table_number(table);
        self.shapes[table].encode(row)?;
        let row = owned(row);
        let (key, id) = if self.shapes[table].key().is_empty() {
            let id = &mut self.contents.borrow_mut()[table].next_row_id;
            *id += 1;
            (vec![Owned::U64(*id)], *id)
        } else {
            (self.key_of(table, &row, self.shapes[table].key()), 0)
        };
        if self.contents.borrow()[table].rows.contains_key(&key) {
            return Err(Abort::DuplicateKey { table: table as u32, index: None });
        }
        if let Some(index) = self.duplicate_in(table, &key, &row) {
            return Err(Abort::DuplicateKey { table: table as u32, index: Some(index) });
        }
        self.change(table, &key, Some(row));
        Ok(id)
    }

    fn update(&self, table: Table, key: &[Value<'_>], sets: &[Set<'_>]) -> Result<bool, Abort> {
        let table = table_number(table);
        let key = self.checked_key(table, key)?;
        let Some(mut row) = self.contents.borrow()[table].rows.get(&key).cloned() else {
            return Ok(false);
        };
        for set in sets {
            self.shapes[table].check(set.column, &set.value)?;
            if self.shapes[table].key().contains(&set.column) {
                return Err(Abort::KeyColumnChanged { table: table as u32, column: set.column });
            }
            row[set.column as usize] = Owned::of(&set.value);
        }
        if let Some(index) = self.duplicate_in(table, &key, &row) {
            return Err(Abort::DuplicateKey { table: table as u32, index: Some(index) });
        }
        Ok(self.change(table, &key, Some(row)))
    }

    fn upsert(&self, table: Table, row: &[Value<'_>]) -> Result<bool, Abort> {
        let table = table_number(table);
        self.shapes[table].encode(row)?;
        let row = owned(row);
        let key = self.key_of(table, &row, self.shapes[table].key());
        if let Some(index) = self.duplicate_in(table, &key, &row) {
            return Err(Abort::DuplicateKey { table: table as u32, index: Some(index) });
        }
        Ok(self.change(table, &key, Some(row)))
    }

    fn delete(&self, table: Table, key: &[Value<'_>]) -> Result<bool, Abort> {
        let table = table_number(table);
        let key = self.checked_key(table, key)?;
        Ok(self.change(table, &key, None))
    }

    fn scan<'a>(
        &'a self,
        table: Table,
        index: Option<Index>,
        range: &Range<'_>,
        columns: Columns,
    ) -> Result<&'a [Row<'a>], Abort> {
        let table = table_number(table);
        let all = self.contents.borrow();
        let contents = &all[table];
        let start = match range.lower {
            Bound::Included(key) | Bound::Excluded(key) => owned(key),
            Bound::Unbounded => Tuple::new(),
        };
        let after = matches!(range.lower, Bound::Excluded(_));
        let inside = |key: &Tuple| match range.upper {
            Bound::Included(upper) => by_prefix(key, &owned(upper)).is_le(),
            Bound::Excluded(upper) => by_prefix(key, &owned(upper)).is_lt(),
            Bound::Unbounded => true,
        };
        let map = match index {
            Some(index) => &contents.indexes[index.0 as usize],
            None => {
                assert!(self.shapes[table].is_ordered(), "a hash table cannot be scanned");
                &contents.rows
            }
        };
        let mut keys: Vec<&Tuple> = map
            .range(start.clone()..)
            .skip_while(|(key, _)| after && by_prefix(key, &start).is_eq())
            .take_while(|(key, _)| inside(key))
            .map(|(key, to)| if index.is_some() { to } else { key })
            .take(if range.descending { usize::MAX } else { range.limit })
            .collect();
        if range.descending {
            keys.reverse();
            keys.truncate(range.limit);
        }
        let rows =
            keys.into_iter().map(|key| self.hand_out(table, key, &contents.rows[key], columns));
        Ok(self.arena.alloc_slice_copy(&rows.collect::<Vec<_>>()))
    }

    fn savepoint(&self) -> Savepoint {
        savepoint(self.journal.borrow().len() as u32)
    }

    fn rollback_to(&self, savepoint: Savepoint) -> Result<(), Abort> {
        let keep = savepoint_number(savepoint) as usize;
        if keep > self.journal.borrow().len() {
            return Err(Abort::NoSuchSavepoint);
        }
        let undo = self.journal.borrow_mut().split_off(keep);
        for (table, key, old) in undo.into_iter().rev() {
            self.put(table, &key, old);
        }
        Ok(())
    }

    fn now_us(&self) -> i64 {
        1_700_000_000_000_000
    }

    fn random(&self) -> u64 {
        self.draws.set(self.draws.get() + 1);
        self.draws.get()
    }
}

impl crate::Reader for Oracle {
    fn read<T>(
        &self,
        body: impl Fn(&Transaction<'_>) -> Result<T, Abort>,
    ) -> Result<T, hyades::Error> {
        self.transact(|tx| body(tx)).map_err(|abort| hyades::Error::Misuse(abort.to_string()))
    }
}
