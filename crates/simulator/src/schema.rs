//! The tables of a history: small, so that transactions meet.

use hyades::{
    Abort, Builder, Column, Database, Error, Index, Row, Schema, Set, Table, Transaction, Type,
    Value,
};
use std::collections::{BTreeMap, BTreeSet};

/// A row's place: its table's number, and its key.
pub type At = (u32, i64);

/// The number of the table with a hash index.
pub const HASHED: u32 = 0;
/// The number of the table with an ordered index.
pub const ORDERED: u32 = 1;
/// The number of the table in which transactions mark that they were there.
pub const MARKS: u32 = 2;
/// Rows belong to so many groups.
pub const GROUPS: i64 = 4;

const VERSION: Column<u64> = Column::at(1);
const DIGEST: Column<u64> = Column::at(2);
const GROUP: Column<i64> = Column::at(3);
const FILL: Column<str> = Column::at(4);
const BY_GROUP: Index = Index(0);

/// Which tables there are.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub struct Tables {
    /// 1 for the hashed table alone, 2 for both.
    pub count: u32,
    /// Keys of these tables lie below this.
    pub keys: i64,
    /// Whether they have a secondary index.
    pub indexed: bool,
    /// Whether the marks are in a hash index.
    pub hashed_marks: bool,
}

/// What a row holds beside its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Content {
    /// The program that wrote it.
    pub version: u64,
    /// A digest of what that had read.
    pub digest: u64,
    /// The indexed column.
    pub group: i64,
}

/// All rows.
pub type State = BTreeMap<At, Content>;

/// Declares the tables.
pub fn declare(builder: &mut Builder, tables: Tables) {
    for (number, name) in [(HASHED, "hashed"), (ORDERED, "ordered"), (MARKS, "marks")] {
        let mut schema = Schema::new(name)
            .column("key", Type::I64)
            .column("version", Type::U64)
            .column("digest", Type::U64)
            .column("group", Type::I64)
            .column("fill", Type::Text)
            .primary_key(&["key"]);
        if number == HASHED || number == MARKS && tables.hashed_marks {
            schema = schema.hash();
        }
        if tables.indexed && number != MARKS {
            schema = schema.index("by_group", &["group"]);
        }
        builder.table(schema);
    }
}

/// Text that makes rows differ in length; now and then longer than a frame.
fn fill(digest: u64) -> String {
    let length = match digest % 97 {
        0 => 5000,
        n if n < 20 => n as usize * 9,
        n => n as usize / 10,
    };
    "f".repeat(length)
}

/// The row's content.
pub fn content(row: &Row<'_>) -> Content {
    Content { version: row.get(VERSION), digest: row.get(DIGEST), group: row.get(GROUP) }
}

/// The row's key.
pub fn key(row: &Row<'_>) -> i64 {
    row.get(Column::<i64>::at(0))
}

/// Reads a row.
pub fn get<'t>(tx: &Transaction<'t>, at: At) -> Result<Option<Row<'t>>, Abort> {
    tx.get(Table::nth(at.0), at.1)
}

fn with_row<R>(at: At, content: Content, with: impl FnOnce(&[Value<'_>]) -> R) -> R {
    let fill = fill(content.digest);
    let Content { version, digest, group } = content;
    with(&[at.1.into(), version.into(), digest.into(), group.into(), fill[..].into()])
}

/// Inserts a row.
pub fn insert(tx: &Transaction<'_>, at: At, content: Content) -> Result<(), Abort> {
    with_row(at, content, |row| tx.insert(Table::nth(at.0), row).map(drop))
}

/// Inserts or replaces a row; whether it replaced one.
pub fn upsert(tx: &Transaction<'_>, at: At, content: Content) -> Result<bool, Abort> {
    with_row(at, content, |row| tx.upsert(Table::nth(at.0), row))
}

/// Inserts or replaces a row.
pub fn put(tx: &Transaction<'_>, at: At, content: Content) -> Result<(), Abort> {
    with_row(at, content, |row| tx.put(Table::nth(at.0), row))
}

/// Changes a row, if it is there.
pub fn update(tx: &Transaction<'_>, at: At, content: Content) -> Result<bool, Abort> {
    let fill = fill(content.digest);
    let sets: [Set<'_>; 4] = [
        VERSION.set(content.version),
        DIGEST.set(content.digest),
        GROUP.set(content.group),
        FILL.set(&fill[..]),
    ];
    // The last column stays as it is most of the time: a delta.
    let sets = if content.digest.is_multiple_of(4) { &sets[..] } else { &sets[..3] };
    tx.update(Table::nth(at.0), at.1, sets)
}

/// Deletes a row; whether it was there.
pub fn delete(tx: &Transaction<'_>, at: At) -> Result<bool, Abort> {
    tx.delete(Table::nth(at.0), at.1)
}

/// Scans by primary key.
pub fn scan<'t>(
    tx: &Transaction<'t>,
    table: u32,
    from: i64,
    to: i64,
    descending: bool,
    limit: usize,
) -> Result<&'t [Row<'t>], Abort> {
    let (from, to) = ([from.into()], [to.into()]);
    let scan = tx.scan(Table::nth(table)).from(&from).to(&to).limit(limit);
    if descending { scan.descending().rows() } else { scan.rows() }
}

/// Announces a scan by primary key, or an insertion where it begins.
pub fn announce(tx: &Transaction<'_>, (table, from): At, to: i64, descending: bool) {
    let (from, to) = ([from.into()], [to.into()]);
    let scan = tx.scan(Table::nth(table)).from(&from).to(&to);
    if descending { scan.descending().prefetch() } else { scan.prefetch() }
}

/// Announces a scan by group, or that rows will be linked at its end.
pub fn announce_group(tx: &Transaction<'_>, table: u32, group: i64, descending: bool) {
    let group = [group.into()];
    let scan = tx.scan_index(Table::nth(table), BY_GROUP).prefix(&group);
    if descending { scan.descending().prefetch() } else { scan.prefetch() }
}

/// Scans by group.
pub fn group<'t>(tx: &Transaction<'t>, table: u32, group: i64) -> Result<&'t [Row<'t>], Abort> {
    tx.scan_index(Table::nth(table), BY_GROUP).prefix(&[group.into()]).rows()
}

/// Reads everything, the slow way: each key alone, then by scans and by index, which must agree.
/// `programs` have run: marks are looked for up to there.
///
/// # Errors
/// What the database says, or how two ways to the same rows disagree.
pub fn dump(db: &Database, tables: Tables, programs: u64) -> Result<State, String> {
    let failed = |error: Error| format!("the recovered database cannot be read: {error}");
    let (state, complaint) = db
        .transact(|tx| look(tx, tables, programs))
        .map_err(failed)?
        .map_err(|abort: Abort| format!("the recovered database cannot be read: {abort}"))?;
    if let Some(complaint) = complaint {
        return Err(complaint);
    }
    let rows = db.rows();
    if rows != state.len() as u64 {
        return Err(format!("{} rows are found by key, {rows} are there", state.len()));
    }
    Ok(state)
}

fn look(
    tx: &Transaction<'_>,
    tables: Tables,
    programs: u64,
) -> Result<(State, Option<String>), Abort> {
    let mut state = State::new();
    let mut complaint = None;
    let mut places: Vec<At> = Vec::new();
    for table in 0..2 {
        places.extend((0..tables.keys).map(|key| (table, key)));
    }
    places.extend((0..programs as i64).map(|id| (MARKS, id)));
    for at in places {
        if let Some(row) = get(tx, at)? {
            let content = content(&row);
            if row.get(FILL).chars().any(|c| c != 'f') {
                complaint = Some(format!("the text of row {at:?} is damaged"));
            }
            state.insert(at, content);
        }
    }
    for table in 0..2 {
        let of = state.range((table, i64::MIN)..(table + 1, i64::MIN));
        let by_key: BTreeSet<(i64, i64)> = of.map(|(at, c)| (c.group, at.1)).collect();
        if tables.indexed {
            let mut by_group = BTreeSet::new();
            for number in 0..GROUPS {
                for row in group(tx, table, number)? {
                    by_group.insert((number, key(row)));
                }
            }
            if by_group != by_key {
                complaint = Some(format!(
                    "table {table} has the rows (group, key) {by_key:?}, its index {by_group:?}"
                ));
            }
        }
        if table == ORDERED {
            let rows = scan(tx, table, 0, i64::MAX, false, usize::MAX)?;
            let scanned: BTreeSet<i64> = rows.iter().map(key).collect();
            if scanned != by_key.iter().map(|(_, key)| *key).collect()
                || scanned.len() != rows.len()
            {
                complaint = Some(format!("a scan finds {scanned:?}, single reads {by_key:?}"));
            }
        }
    }
    Ok((state, complaint))
}
