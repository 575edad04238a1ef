//! Instructions of a write, by the kind of change and by the type of the key:
//! `cargo bench -p hyades --bench writes`.
//!
//! Each transaction writes one row of a hash table, without a log and on one thread, so that the
//! work of the engine itself is counted alone. A key of text is escaped and has an end; a key of
//! fixed bytes, of the same length, is stored as it is. Needs valgrind.
#![allow(missing_docs)]

#[path = "../../wal/benches/callgrind/mod.rs"]
mod callgrind;

use callgrind::{counted_by_callgrind, instructions};
use hyades::{Abort, Column, Database, Protocol, Schema, Session, Table, Transaction, Type, Value};

const ROWS: Table = Table::nth(0);
const NUMBER: Column<u64> = Column::at(1);
const ROW_COUNT: u64 = 64;
const WARM_UP: u64 = 5_000;
const COUNTED: u64 = 10_000;

const KEYS: [&str; 3] = ["number", "text", "fixed"];
const WRITES: [&str; 5] =
    ["read it", "set a number", "put a row as long", "put another length", "insert and delete"];

/// Bytes of a long key.
const KEY_BYTES: usize = 20;

/// The bytes of the key of a number.
fn key_text(id: u64) -> String {
    format!("key:{id:0width$}", width = KEY_BYTES - 4)
}

/// A key of the wanted type.
fn key<'k>(kind: &str, id: u64, text: &'k str) -> Value<'k> {
    match kind {
        "number" => id.into(),
        "text" => text.into(),
        _ => text.as_bytes().into(),
    }
}

/// Does the write of a number.
fn write(tx: &Transaction<'_>, how: &str, key: Value<'_>, n: u64) -> Result<(), Abort> {
    const BODY: [u8; 64] = [7; 64];
    let body = |len: usize| Value::Bytes(&BODY[..len]);
    match how {
        "read it" => {
            let found = tx.get_columns(ROWS, &[key][..], NUMBER.only())?;
            found.map(drop).ok_or(Abort::User(1))
        }
        "set a number" => tx.update(ROWS, &[key][..], &[NUMBER.set(n)]).map(drop),
        "put a row as long" => tx.overwrite(ROWS, &[key, n.into(), body(40)]),
        "put another length" => tx.overwrite(ROWS, &[key, n.into(), body(33 + n as usize % 16)]),
        _ if n.is_multiple_of(2) => tx.delete(ROWS, &[key][..]).map(drop),
        _ => tx.insert(ROWS, &[key, n.into(), body(40)]).map(drop),
    }
}

fn run(session: &mut Session, keys: &[String], (kind, how): (&str, &str), count: u64) {
    for n in 0..count {
        // Deletes and inserts alternate at each row.
        let id = (n / 2) % ROW_COUNT;
        let key = key(kind, id, &keys[id as usize]);
        let (result, _ticket) =
            session.try_submit(|tx| write(tx, how, key, n)).expect("a database that runs");
        result.expect("alone, there are no conflicts");
    }
}

/// The program run under callgrind.
fn child(kind: &str, how: &str) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut builder = Database::builder().protocol(Protocol::None);
    let of_key = match kind {
        "number" => Type::U64,
        "text" => Type::Text,
        _ => Type::Fixed(KEY_BYTES as u16),
    };
    let schema = Schema::new("rows").column("key", of_key).column("number", Type::U64);
    let schema = schema.column("body", Type::Bytes).primary_key(&["key"]).hash();
    builder.table(schema);
    let db = builder.open(directory.path()).expect("a new database");
    let mut session = db.session().expect("a session");
    let keys: Vec<String> = (0..ROW_COUNT).map(key_text).collect();
    // As many rows as there are keys, put in turn; each twice.
    run(&mut session, &keys, (kind, "put a row as long"), 2 * ROW_COUNT);
    run(&mut session, &keys, (kind, how), WARM_UP);
    counted_by_callgrind(&mut || run(&mut session, &keys, (kind, how), COUNTED));
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, kind, how] = &arguments[..]
        && first == "counted"
    {
        return child(kind, how);
    }
    println!("Instructions of a transaction of one row, counted by callgrind.\n");
    println!("| what it does | key of 8 bytes | text of {KEY_BYTES} | fixed bytes, {KEY_BYTES} |");
    println!("|---|---|---|---|");
    for how in WRITES {
        let count = |kind: &str| {
            let arguments = ["counted", kind, how].map(String::from);
            instructions(&arguments) as f64 / COUNTED as f64
        };
        let [number, text, fixed] = KEYS.map(count);
        println!("| {how} | {number:.1} | {text:.1} | {fixed:.1} |");
    }
}
