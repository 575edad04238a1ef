//! Databases whose schema changes, with a workload that names columns: a call that was logged under
//! an old schema means the same under the new one.

use super::Combination;
use super::watched::{Watched, watched};
use hyades::{
    Abort, Builder, Database, Error, Index, Replay, Schema, Set, Table, Transaction, Type, Value,
};
use hyades_platform::device::{Device, PowerCutDevice};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Keys are below this number.
pub const KEYS: i64 = 40;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Owned {
    Null,
    Int(i64),
    Text(String),
}

impl Owned {
    pub fn value(&self) -> Value<'_> {
        match self {
            Owned::Null => Value::Null,
            Owned::Int(n) => Value::I64(*n),
            Owned::Text(text) => Value::Text(text),
        }
    }

    fn of(value: Value<'_>) -> Owned {
        match value {
            Value::Null => Owned::Null,
            Value::I64(n) => Owned::Int(n),
            Value::Text(text) => Owned::Text(text.to_string()),
            other => panic!("{other:?} is not in these tables"),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct ColumnOf {
    pub name: String,
    pub kind: Type,
    pub nullable: bool,
    /// The value of a row written without the column; null if there is no default.
    pub default: Owned,
}

#[derive(Clone, Debug, PartialEq)]
pub struct IndexOf {
    pub name: String,
    pub columns: Vec<String>,
    pub unique: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TableOf {
    pub name: String,
    pub columns: Vec<ColumnOf>,
    /// The primary key is the column `id`, or there is none.
    pub keyless: bool,
    pub hash: bool,
    pub indexes: Vec<IndexOf>,
}

/// All tables, in the order of their declaration, and the tables to drop.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tables {
    pub tables: Vec<TableOf>,
    pub dropped: Vec<String>,
}

/// Rows by table and key: the column `id`, or the hidden row id.
pub type Rows = BTreeMap<String, BTreeMap<i64, BTreeMap<String, Owned>>>;

pub fn column(name: &str, kind: Type) -> ColumnOf {
    ColumnOf { name: name.into(), kind, nullable: false, default: Owned::Null }
}

pub fn nullable(name: &str, kind: Type) -> ColumnOf {
    ColumnOf { nullable: true, ..column(name, kind) }
}

pub fn with_default(name: &str, kind: Type, default: Owned) -> ColumnOf {
    ColumnOf { default, ..column(name, kind) }
}

pub fn index(name: &str, columns: &[&str], unique: bool) -> IndexOf {
    let columns = columns.iter().map(|column| (*column).to_string()).collect();
    IndexOf { name: name.into(), columns, unique }
}

impl TableOf {
    pub fn schema(&self) -> Schema {
        let mut schema = Schema::new(&self.name);
        for ColumnOf { name, kind, nullable, default } in &self.columns {
            schema = match (nullable, default) {
                (true, default) => schema.nullable_with_default(name, *kind, default.value()),
                (false, Owned::Null) => schema.column(name, *kind),
                (false, default) => schema.column_with_default(name, *kind, default.value()),
            };
        }
        if !self.keyless {
            schema = schema.primary_key(&["id"]);
        }
        if self.hash {
            schema = schema.hash();
        }
        for IndexOf { name, columns, unique } in &self.indexes {
            let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
            schema = match unique {
                true => schema.unique(name, &columns),
                false => schema.index(name, &columns),
            };
        }
        schema
    }

    pub fn position(&self, name: &str) -> Option<u16> {
        self.columns.iter().position(|column| column.name == name).map(|at| at as u16)
    }
}

impl Tables {
    /// Three tables: ordered with indexes, without a key, and hash.
    pub fn first() -> Tables {
        let accounts = TableOf {
            name: "accounts".into(),
            columns: vec![
                column("id", Type::I64),
                column("owner", Type::Text),
                column("balance", Type::I64),
                nullable("memo", Type::Text),
            ],
            keyless: false,
            hash: false,
            indexes: vec![
                index("by_owner", &["owner"], true),
                index("by_balance", &["balance", "owner"], false),
            ],
        };
        let events = TableOf {
            name: "events".into(),
            columns: vec![column("what", Type::Text), column("at", Type::I64)],
            keyless: true,
            hash: false,
            indexes: vec![index("by_at", &["at"], false)],
        };
        let old = TableOf {
            name: "old".into(),
            columns: vec![column("id", Type::I64), column("owner", Type::Text)],
            keyless: false,
            hash: true,
            indexes: Vec::new(),
        };
        Tables { tables: vec![accounts, events, old], dropped: Vec::new() }
    }

    pub fn named(&self, name: &str) -> Option<(Table, &TableOf)> {
        let at = self.tables.iter().position(|table| table.name == name)?;
        Some((Table::nth(at as u32), &self.tables[at]))
    }

    pub fn table(&mut self, name: &str) -> &mut TableOf {
        self.tables.iter_mut().find(|table| table.name == name).expect("it is declared")
    }

    pub fn drop_table(&mut self, name: &str) {
        self.tables.retain(|table| table.name != name);
        self.dropped.push(name.to_string());
    }

    /// The rows after an opening of their database with these tables.
    pub fn convert(&self, rows: &Rows) -> Rows {
        let convert = |table: &TableOf| {
            let mut rows = rows.get(&table.name).cloned().unwrap_or_default();
            for row in rows.values_mut() {
                for column in &table.columns {
                    row.entry(column.name.clone()).or_insert_with(|| column.default.clone());
                }
            }
            (table.name.clone(), rows)
        };
        self.tables.iter().map(convert).collect()
    }
}

/// A change of one row of a table; columns by name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Op {
    Insert(String, Vec<(String, Owned)>),
    Upsert(String, Vec<(String, Owned)>),
    Update(String, i64, Vec<(String, Owned)>),
    Delete(String, i64),
}

/// The procedure that all transactions call: an operation with a taken key leaves a row in `events`
/// instead. Returns the hidden row ids that were used.
pub fn apply(tables: &Tables, tx: &Transaction<'_>, ops: &[Op]) -> Result<Vec<u64>, Abort> {
    let mut ids = Vec::new();
    for op in ops {
        match apply_one(tables, tx, op) {
            Ok(id) => ids.extend(id),
            Err(Abort::DuplicateKey { .. }) => ids.extend(apply_one(tables, tx, &taken(op))?),
            Err(abort) => return Err(abort),
        }
    }
    Ok(ids)
}

/// The operation done instead of an operation with a taken key.
pub fn taken(op: &Op) -> Op {
    let what = Owned::Text(format!("taken: {op:?}"));
    Op::Insert("events".into(), vec![("what".into(), what), ("at".into(), Owned::Int(-1))])
}

/// A whole row, with the defaults of the columns not given.
pub fn whole(table: &TableOf, given: &[(String, Owned)]) -> Vec<Owned> {
    let value = |column: &ColumnOf| {
        let found = given.iter().find(|(name, _)| *name == column.name);
        found.map_or_else(|| column.default.clone(), |(_, value)| value.clone())
    };
    table.columns.iter().map(value).collect()
}

/// Returns the hidden row id of a row inserted into a table without a key.
fn apply_one(tables: &Tables, tx: &Transaction<'_>, op: &Op) -> Result<Option<u64>, Abort> {
    let (Op::Insert(name, _) | Op::Upsert(name, _) | Op::Update(name, ..) | Op::Delete(name, _)) =
        op;
    let (handle, table) = tables.named(name).ok_or(Abort::UnknownHandle)?;
    let id = |key: i64| if table.keyless { Value::U64(key as u64) } else { Value::I64(key) };
    match op {
        Op::Insert(_, given) => {
            let row = whole(table, given);
            let values: Vec<Value<'_>> = row.iter().map(Owned::value).collect();
            let id = tx.insert(handle, &values)?;
            return Ok(table.keyless.then_some(id));
        }
        Op::Upsert(_, given) => {
            let row = whole(table, given);
            let values: Vec<Value<'_>> = row.iter().map(Owned::value).collect();
            tx.upsert(handle, &values)?;
        }
        Op::Update(_, key, sets) => {
            let set =
                |(name, value): &'_ (String, Owned)| Some((table.position(name)?, value.clone()));
            let sets: Vec<(u16, Owned)> = sets.iter().filter_map(set).collect();
            let sets: Vec<Set<'_>> =
                sets.iter().map(|(column, v)| Set { column: *column, value: v.value() }).collect();
            tx.update(handle, &[id(*key)][..], &sets)?;
        }
        Op::Delete(_, key) => drop(tx.delete(handle, &[id(*key)][..])?),
    }
    Ok(None)
}

/// A random transaction on the tables.
pub fn random_ops(tables: &Tables, rng: &mut fastrand::Rng) -> Vec<Op> {
    (0..rng.usize(1..4)).map(|_| random_op(tables, rng)).collect()
}

fn random_op(tables: &Tables, rng: &mut fastrand::Rng) -> Op {
    let table = &tables.tables[rng.usize(..tables.tables.len())];
    let key = rng.i64(0..KEYS);
    let mut value = |column: &ColumnOf| match (&*column.name, column.kind) {
        ("id", _) => Owned::Int(key),
        // One name for two keys, now and then: the index is unique at times.
        ("owner", _) => Owned::Text(format!("owner {}", key + i64::from(rng.u8(..8) == 0))),
        _ if column.nullable && rng.u8(..4) == 0 => Owned::Null,
        (_, Type::I64) => Owned::Int(rng.i64(0..100)),
        _ => Owned::Text("x".repeat(rng.usize(0..60))),
    };
    let row: Vec<(String, Owned)> =
        table.columns.iter().map(|column| (column.name.clone(), value(column))).collect();
    let name = table.name.clone();
    match rng.u8(..8) {
        0..3 => Op::Insert(name, row),
        3 if !table.keyless => Op::Upsert(name, row),
        4 => Op::Delete(name, key),
        _ => {
            let mut sets = row;
            sets.retain(|(column, _)| column != "id" && rng.bool());
            if sets.is_empty() {
                Op::Insert(name, sets_of(table, key))
            } else {
                Op::Update(name, key, sets)
            }
        }
    }
}

fn sets_of(table: &TableOf, key: i64) -> Vec<(String, Owned)> {
    let value = |column: &ColumnOf| match column.kind {
        Type::I64 => Owned::Int(key),
        _ => Owned::Text(format!("owner {key}")),
    };
    table.columns.iter().map(|column| (column.name.clone(), value(column))).collect()
}

/// Options for opening, apart from the tables and the combination.
#[derive(Clone)]
pub struct With {
    pub device: Option<PowerCutDevice>,
    pub threads: usize,
    pub replay: Replay,
}

impl Default for With {
    fn default() -> Self {
        With { device: None, threads: 2, replay: Replay::Wavefront }
    }
}

pub fn builder(tables: &Tables, c: Combination, with: &With) -> Builder {
    let mut builder = Database::builder()
        .protocol(c.protocol)
        .concurrency(c.concurrency)
        .record(c.record)
        .streams(c.streams)
        .recovery_threads(with.threads)
        .replay(with.replay)
        .log_settings(|log| {
            log.buffer_bytes = 1 << 14;
            log.research.anchor_interval_bytes = 2000;
            log.epoch = Some(Duration::from_millis(1));
            log.segment_bytes = 1 << 16;
            log.device = with.device.clone().map(|device| Arc::new(device) as Arc<dyn Device>);
        });
    for table in &tables.tables {
        builder.table(table.schema());
    }
    for name in &tables.dropped {
        builder.drop_table(name);
    }
    let tables = tables.clone();
    builder
        .procedure("apply", 1, move |tx: &Transaction<'_>, ops: Vec<Op>| apply(&tables, tx, &ops));
    builder
}

pub fn try_open(
    dir: &Path,
    tables: &Tables,
    c: Combination,
    with: &With,
) -> Result<(Database, Watched), Error> {
    let watched = watched(&format!("{c:?}"));
    Ok((builder(tables, c, with).open(dir)?, watched))
}

pub fn open(dir: &Path, tables: &Tables, c: Combination) -> (Database, Watched) {
    try_open(dir, tables, c, &With::default()).unwrap_or_else(|error| panic!("{c:?}: {error}"))
}

/// Runs random transactions, one after the other, then waits until each is on disk. The last ticket
/// would not do: a transaction that changed nothing waits for no other transaction.
pub fn run(db: &Database, tables: &Tables, rng: &mut fastrand::Rng, count: usize) {
    let apply = db.prepare("apply").unwrap();
    let mut session = db.session().unwrap();
    let mut tickets = Vec::new();
    for _ in 0..count {
        let Ok((result, ticket)) = session.call(apply, &random_ops(tables, rng)) else { return };
        result.unwrap();
        tickets.push(ticket);
    }
    for ticket in tickets {
        if ticket.wait().is_err() {
            return;
        }
    }
}

/// All rows of a database. Checks that every index leads to all rows, in index order.
pub fn rows(db: &Database, tables: &Tables) -> Rows {
    let contents = |name: &str| db.try_transact(|tx| rows_of(tables, tx, name)).unwrap().unwrap();
    tables.tables.iter().map(|table| (table.name.clone(), contents(&table.name))).collect()
}

type RowsOfTable = BTreeMap<i64, BTreeMap<String, Owned>>;

fn rows_of(tables: &Tables, tx: &Transaction<'_>, name: &str) -> Result<RowsOfTable, Abort> {
    let (handle, table) = tables.named(name).expect("it is declared");
    let read = |row: &hyades::Row<'_>| {
        let values = table.columns.iter().zip(0..);
        let values = values.map(|(column, at)| (column.name.clone(), Owned::of(row.value(at))));
        let values: BTreeMap<String, Owned> = values.collect();
        let key = match values.get("id") {
            Some(Owned::Int(key)) => *key,
            _ => row.row_id() as i64,
        };
        (key, values)
    };
    let mut all = RowsOfTable::new();
    if table.hash {
        for key in 0..KEYS {
            all.extend(tx.get(handle, key)?.as_ref().map(read));
        }
    } else {
        all.extend(tx.scan(handle).rows()?.iter().map(read));
    }
    for (at, index) in table.indexes.iter().enumerate() {
        let found: Vec<_> =
            tx.scan_index(handle, Index(at as u16)).rows()?.iter().map(read).collect();
        let key = |row: &BTreeMap<String, Owned>| -> Vec<Owned> {
            index.columns.iter().map(|column| row[column].clone()).collect()
        };
        assert!(found.is_sorted_by_key(|(id, row)| (key(row), *id)), "{name}, {}", index.name);
        let found: RowsOfTable = found.into_iter().collect();
        assert_eq!(found, all, "index {} of {name}", index.name);
    }
    Ok(all)
}

/// Copies a directory with all its contents.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let to = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &to);
        } else {
            std::fs::copy(&path, &to).unwrap();
        }
    }
}
