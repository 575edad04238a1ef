//! The tables of a history: small, so that transactions conflict.

use fastrand::Rng;
use hyades::{
    Abort, Builder, Column, Database, Error, Index, Row, Schema, Set, Table, Transaction, Type,
    Value,
};
use std::collections::{BTreeMap, BTreeSet};

/// The place of a row: table number and key.
pub type At = (u32, i64);

/// The number of the table with a hash index.
pub const HASHED: u32 = 0;
/// The number of the table with an ordered index.
pub const ORDERED: u32 = 1;
/// The number of the first table for marker rows, of which a transaction inserts one.
pub const MARKS: u32 = 2;
/// Number of groups of rows.
pub const GROUPS: i64 = 4;

const VERSION: Column<u64> = Column::at(1);
const DIGEST: Column<u64> = Column::at(2);
const GROUP: Column<i64> = Column::at(3);
const FILL: Column<str> = Column::at(4);
/// In the layout to which a change of the schema leads: the row's key, or null in rows from before.
const NOTE: Column<Option<i64>> = Column::at(5);
const BY_GROUP: Index = Index(0);
/// The digits of a digest in a text.
const DIGITS: usize = 16;

/// Parameters of the tables.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Tables {
    /// 1 for the hashed table alone, 2 for both.
    pub count: u32,
    /// Keys of these tables are below this number.
    pub keys: i64,
    /// Whether the tables have a secondary index.
    pub indexed: bool,
    /// Whether the tables of marker rows have a hash index.
    pub hashed_marks: bool,
    /// Longest text of a row in bytes, where a text may be longer than usual; otherwise 0.
    #[serde(default)]
    pub longest_text: u32,
    /// Longest key in bytes, before encoding, where keys are bytes; 0 where keys are numbers.
    #[serde(default)]
    pub longest_key: u32,
    /// Number of additional tables for marker rows.
    #[serde(default)]
    pub spare: u32,
    /// Whether there are two rows after the other keys that are always written together.
    #[serde(default)]
    pub pairs: bool,
    /// Whether openings change the schema.
    #[serde(default)]
    pub changes: bool,
    /// Whether rows have the column added by a change.
    #[serde(default)]
    pub noted: bool,
    /// Whether the tables have the index that a change adds or drops.
    #[serde(default)]
    pub by_version: bool,
}

/// Distance of the rows written together from the end of the other keys.
const PAIR: [i64; 2] = [0, 1];

impl Tables {
    /// The place of a program's marker row.
    pub fn mark(self, id: u64) -> At {
        (MARKS + (id % (1 + u64::from(self.spare))) as u32, id as i64)
    }

    /// The two rows written together.
    pub fn pair(self, table: u32) -> [At; 2] {
        PAIR.map(|n| (table, self.keys + n))
    }

    /// Approximate bound for the bytes of a row. A key takes twice its bytes in an index, and each
    /// lookup encodes it anew.
    pub(crate) fn row_bytes(self) -> usize {
        (self.longest_text as usize + 4 * self.longest_key as usize).max(64)
    }

    /// One more than the largest key that a row of the first two tables may have.
    fn end(self) -> i64 {
        self.keys + if self.pairs { PAIR.len() as i64 } else { 0 }
    }

    /// Number of leading key bytes that distinguish rows and put them in order.
    fn key_prefix_len(self) -> usize {
        if self.longest_key < 8 && self.end() <= 1 << 8 { 1 } else { 8 }
    }

    /// The bytes of a key, where keys are bytes: its number, and a filler that makes keys differ in
    /// length.
    fn key_bytes(self, key: i64) -> Vec<u8> {
        let key_prefix_len = self.key_prefix_len();
        let mut bytes = key.to_be_bytes()[8 - key_prefix_len..].to_vec();
        let room = (self.longest_key as usize).saturating_sub(key_prefix_len);
        // A zero takes two bytes in an index. The longest keys are among the first.
        let more = if key % 3 == 0 { room } else { key as usize * 7919 % (room + 1) };
        bytes.resize(key_prefix_len + more, if key % 2 == 0 { 0 } else { 0xFF });
        bytes
    }

    fn has_bytes(self, table: u32) -> bool {
        self.longest_key > 0 && table < MARKS
    }

    /// Calls `with` with the key as a value of its column.
    pub(crate) fn with_key<R>(self, at: At, with: impl FnOnce(Value<'_>) -> R) -> R {
        if self.has_bytes(at.0) {
            with(Value::Bytes(&self.key_bytes(at.1)))
        } else {
            with(at.1.into())
        }
    }
}

/// The content of a row without its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Content {
    /// The program that wrote the row.
    pub version: u64,
    /// Digest of all that the program had read.
    pub digest: u64,
    /// The indexed column.
    pub group: i64,
}

/// All rows.
pub type State = BTreeMap<At, Content>;

/// Declares the tables. How they are spread over partitions, and whether their rows repeat the key
/// in memory, is random, anew at each opening; without `rng` they are spread by their keys.
pub fn declare(builder: &mut Builder, tables: Tables, mut rng: Option<&mut Rng>) {
    for number in 0..=MARKS + tables.spare {
        let name = match number {
            HASHED => "hashed".to_string(),
            ORDERED => "ordered".to_string(),
            MARKS => "marks".to_string(),
            _ => format!("marks {number}"),
        };
        let mut schema = Schema::new(&name)
            .column("key", if tables.has_bytes(number) { Type::Bytes } else { Type::I64 })
            .column("version", Type::U64)
            .column("digest", Type::U64)
            .column("group", Type::I64)
            .column("fill", Type::Text);
        if tables.noted {
            schema = schema.nullable("note", Type::I64);
        }
        schema = schema.primary_key(&["key"]);
        let drawn = rng.as_mut().map_or(2, |rng| rng.u32(0..6));
        schema = match drawn {
            0 => schema.replicated(),
            1 => schema,
            _ => schema.partition_by("key"),
        };
        if drawn % 2 == 1 {
            schema = schema.key_once();
        }
        if number == HASHED || number >= MARKS && tables.hashed_marks {
            schema = schema.hash();
        }
        if tables.indexed && number < MARKS {
            schema = schema.index("by_group", &["group"]);
        }
        if tables.by_version {
            schema = schema.index("by_version", &["version"]);
        }
        builder.table(schema);
    }
}

/// Text that makes rows differ in length. Some texts are longer than a frame, or as long as a row
/// may be. Texts are alike but for the digest, which is in front and once more behind, as in long
/// values with small changes.
fn fill(tables: Tables, table: u32, digest: u64) -> String {
    let most = if table < MARKS { tables.longest_text as usize } else { 0 };
    let length = match digest % 97 {
        n if most > 0 && n < 60 => most,
        n if most > 0 && n < 80 => (digest >> 8) as usize % most,
        0 => 5000,
        n if n < 20 => n as usize * 9,
        n => n as usize / 10,
    };
    let mut text = "f".repeat(length);
    if length >= 2 * DIGITS {
        let digits = format!("{digest:0DIGITS$x}");
        let behind = DIGITS + (digest >> 16) as usize % (length - 2 * DIGITS + 1);
        text.replace_range(..DIGITS, &digits);
        text.replace_range(behind..behind + DIGITS, &digits);
    }
    text
}

/// The error in the columns of a row that are no part of its content.
fn complaint(tables: Tables, at: At, row: &Row<'_>) -> Option<String> {
    if !is_fill(tables, at.0, row.get(FILL)) {
        return Some(format!("the text of row {at:?} is damaged"));
    }
    let note = if tables.noted { row.get(NOTE) } else { None };
    note.filter(|note| *note != at.1).map(|note| format!("the note of row {at:?} is {note}"))
}

/// Whether a text is the text of some digest.
fn is_fill(tables: Tables, table: u32, text: &str) -> bool {
    if text.len() < 2 * DIGITS {
        return text.bytes().all(|c| c == b'f');
    }
    let digest = text.get(..DIGITS).and_then(|digits| u64::from_str_radix(digits, 16).ok());
    digest.is_some_and(|digest| fill(tables, table, digest) == text)
}

/// The row's content.
pub fn content(row: &Row<'_>) -> Content {
    Content { version: row.get(VERSION), digest: row.get(DIGEST), group: row.get(GROUP) }
}

/// The row's key.
pub fn key(tables: Tables, table: u32, row: &Row<'_>) -> i64 {
    if !tables.has_bytes(table) {
        return row.get(Column::<i64>::at(0));
    }
    let mut bytes = [0; 8];
    let key_prefix_len = tables.key_prefix_len();
    bytes[8 - key_prefix_len..].copy_from_slice(&row.get(Column::<[u8]>::at(0))[..key_prefix_len]);
    i64::from_be_bytes(bytes)
}

/// Reads a row.
pub fn get<'t>(tx: &Transaction<'t>, tables: Tables, at: At) -> Result<Option<Row<'t>>, Abort> {
    tables.with_key(at, |key| tx.get(Table::nth(at.0), (key,)))
}

fn with_row<R>(
    tables: Tables,
    at: At,
    content: Content,
    with: impl FnOnce(&[Value<'_>]) -> R,
) -> R {
    let fill = fill(tables, at.0, content.digest);
    let Content { version, digest, group } = content;
    tables.with_key(at, |key| {
        let row = [key, version.into(), digest.into(), group.into(), fill[..].into(), at.1.into()];
        with(&row[..if tables.noted { 6 } else { 5 }])
    })
}

/// Inserts a row.
pub fn insert(tx: &Transaction<'_>, tables: Tables, at: At, content: Content) -> Result<(), Abort> {
    with_row(tables, at, content, |row| tx.insert(Table::nth(at.0), row).map(drop))
}

/// Inserts or replaces a row. Returns whether the row replaced another.
pub fn upsert(
    tx: &Transaction<'_>,
    tables: Tables,
    at: At,
    content: Content,
) -> Result<bool, Abort> {
    with_row(tables, at, content, |row| tx.upsert(Table::nth(at.0), row))
}

/// Inserts or replaces a row without learning which (a blind write).
pub fn put(tx: &Transaction<'_>, tables: Tables, at: At, content: Content) -> Result<(), Abort> {
    with_row(tables, at, content, |row| tx.overwrite(Table::nth(at.0), row))
}

/// Changes a row. Returns whether it exists.
pub fn update(
    tx: &Transaction<'_>,
    tables: Tables,
    at: At,
    content: Content,
) -> Result<bool, Abort> {
    let fill = fill(tables, at.0, content.digest);
    let sets: [Set<'_>; 4] = [
        VERSION.set(content.version),
        DIGEST.set(content.digest),
        GROUP.set(content.group),
        FILL.set(&fill[..]),
    ];
    // Three of four updates leave the last column unchanged, to be logged as a delta.
    let sets = if content.digest.is_multiple_of(4) { &sets[..] } else { &sets[..3] };
    tables.with_key(at, |key| tx.update(Table::nth(at.0), (key,), sets))
}

/// Deletes a row. Returns whether it existed.
pub fn delete(tx: &Transaction<'_>, tables: Tables, at: At) -> Result<bool, Abort> {
    tables.with_key(at, |key| tx.delete(Table::nth(at.0), (key,)))
}

/// A range of keys and a direction.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    /// The table.
    pub table: u32,
    /// The first key.
    pub from: i64,
    /// The last key.
    pub to: i64,
    /// Whether to scan downwards from the end.
    pub descending: bool,
}

impl Keys {
    /// Calls `with` with a scan of the range.
    fn with_scan<'t, R>(
        self,
        tx: &Transaction<'t>,
        tables: Tables,
        with: impl FnOnce(hyades::Scan<'t, '_>) -> R,
    ) -> R {
        let table = self.table;
        // Byte keys have no largest value to name.
        let last = self.to.min(tables.end());
        tables.with_key((table, self.from), |from| {
            tables.with_key((table, last), |to| {
                let (from, to) = ([from], [to]);
                let scan = tx.scan(Table::nth(table)).from(&from).to(&to);
                with(if self.descending { scan.descending() } else { scan })
            })
        })
    }
}

/// Scans by primary key.
pub fn scan<'t>(
    tx: &Transaction<'t>,
    tables: Tables,
    keys: Keys,
    limit: usize,
) -> Result<&'t [Row<'t>], Abort> {
    keys.with_scan(tx, tables, |scan| scan.limit(limit).rows())
}

/// Prefetches for a scan by primary key, or for an insertion at the start of the scan.
pub fn announce(tx: &Transaction<'_>, tables: Tables, keys: Keys) {
    keys.with_scan(tx, tables, |scan| scan.prefetch());
}

/// Prefetches for a scan by group, or for the insertion of an index entry at the end of the scan.
pub fn announce_group(tx: &Transaction<'_>, table: u32, group: i64, descending: bool) {
    let group = [group.into()];
    let scan = tx.scan_index(Table::nth(table), BY_GROUP).prefix(&group);
    if descending { scan.descending().prefetch() } else { scan.prefetch() }
}

/// Scans by group.
pub fn group<'t>(tx: &Transaction<'t>, table: u32, group: i64) -> Result<&'t [Row<'t>], Abort> {
    tx.scan_index(Table::nth(table), BY_GROUP).prefix(&[group.into()]).rows()
}

/// Reads everything: each key alone, then by scans and by index, which must agree. Marker rows are
/// looked up for the first `programs` programs.
///
/// # Errors
/// Errors of the database, or how two ways to read the same rows disagree.
pub fn dump(db: &Database, tables: Tables, programs: u64) -> Result<State, String> {
    let failed = |error: Error| format!("the recovered database cannot be read: {error}");
    let (state, complaint) = db
        .try_transact(|tx| look(tx, tables, programs))
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
        places.extend((0..tables.end()).map(|key| (table, key)));
    }
    places.extend((0..programs).map(|id| tables.mark(id)));
    for at in places {
        if let Some(row) = get(tx, tables, at)? {
            let content = content(&row);
            complaint = complaint.or(self::complaint(tables, at, &row));
            state.insert(at, content);
        }
    }
    for table in 0..2 {
        let entries = state.range((table, i64::MIN)..(table + 1, i64::MIN));
        let by_key: BTreeSet<(i64, i64)> = entries.map(|(at, c)| (c.group, at.1)).collect();
        if tables.indexed {
            let mut by_group = BTreeSet::new();
            for number in 0..GROUPS {
                for row in group(tx, table, number)? {
                    by_group.insert((number, key(tables, table, row)));
                }
            }
            if by_group != by_key {
                complaint = Some(format!(
                    "table {table} has the rows (group, key) {by_key:?}, its index {by_group:?}"
                ));
            }
        }
        if table == ORDERED {
            let all = Keys { table, from: 0, to: i64::MAX, descending: false };
            let rows = scan(tx, tables, all, usize::MAX)?;
            let scanned: BTreeSet<i64> = rows.iter().map(|row| key(tables, table, row)).collect();
            if scanned != by_key.iter().map(|(_, key)| *key).collect()
                || scanned.len() != rows.len()
            {
                complaint = Some(format!("a scan finds {scanned:?}, single reads {by_key:?}"));
            }
        }
    }
    Ok((state, complaint))
}
