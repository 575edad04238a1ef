//! Promise: prefetch hints change no result, whatever is hinted.

use crate::common::directory;
use hyades::{Abort, Column, Database, Index, Schema, Table, Transaction, Type, Value};

const TABLES: u32 = 12;
const ROWS: i64 = 400;
const A: Column<i64> = Column::at(0);
const B: Column<i64> = Column::at(1);

/// One hash table, one table without a key, and ordered tables with two indexes each.
fn schema(nth: u32) -> Schema {
    let schema = Schema::new(&format!("table {nth}"))
        .column("a", Type::I64)
        .column("b", Type::I64)
        .column("name", Type::Text);
    match nth {
        0 => schema.primary_key(&["a", "b"]).hash().index("by name", &["name"]),
        1 => schema.index("by b", &["b"]),
        _ => schema.primary_key(&["a", "b"]).index("by name", &["name"]).index("by b", &["b"]),
    }
}

/// Prefetches everything with a name, valid or not.
fn announce(tx: &Transaction<'_>, a: i64) {
    let odd = [Value::Text("not a number"), Value::Null];
    let name = [Value::Text("name 7")];
    let (whole, part, id) = ([a.into(), (a / 2).into()], [a.into()], [7u64.into()]);
    // The last table does not exist, and not all tables have all three indexes.
    for table in (0..=TABLES).map(Table::nth) {
        for key in [&whole[..], &part, &id, &odd, &name, &[]] {
            for index in [None, Some(0), Some(1), Some(2)] {
                let scan = || match index {
                    None => tx.scan(table),
                    Some(at) => tx.scan_index(table, Index(at)),
                };
                scan().prefix(key).prefetch();
                scan().prefix(key).descending().prefetch();
                scan().after(key).prefetch();
                scan().before(key).descending().limit(0).prefetch();
            }
        }
        tx.scan(table).prefetch();
        tx.scan(table).descending().prefetch();
    }
}

#[test]
fn announcing_changes_nothing() {
    let states: Vec<Vec<Vec<(i64, i64)>>> = [false, true]
        .map(|announced| {
            let dir = directory();
            let mut builder = Database::builder();
            let tables: Vec<Table> = (0..TABLES).map(|nth| builder.table(schema(nth))).collect();
            let db = builder.open(dir.path()).unwrap();
            for a in 0..ROWS {
                let row = [(a * 37 % ROWS).into(), (a / 2).into(), Value::Text("name 7")];
                let ran = db.try_transact(|tx| {
                    if announced && a % 8 == 0 {
                        announce(tx, a);
                    }
                    for &table in &tables {
                        tx.insert(table, &row)?;
                        // The row exists by now.
                        tx.scan(table).prefix(&row[..1]).prefetch();
                        if a % 3 == 0 && table != tables[1] {
                            let key = (a * 37 % ROWS, a / 2);
                            assert!(tx.get(table, key)?.is_some());
                            assert!(tx.delete(table, key)?);
                        }
                    }
                    Ok::<_, Abort>(())
                });
                ran.unwrap().unwrap();
            }
            let read = |tx: &Transaction<'_>| {
                let rows = |&table: &Table| {
                    let by_index = tx.scan_index(table, Index(0)).descending().rows()?;
                    // A hash table cannot be scanned.
                    let by_key = if table == tables[0] { &[] } else { tx.scan(table).rows()? };
                    let rows = by_key.iter().chain(by_index);
                    Ok(rows.map(|row| (row.get(A), row.get(B))).collect())
                };
                tables.iter().map(rows).collect::<Result<Vec<Vec<(i64, i64)>>, Abort>>()
            };
            db.try_transact(read).unwrap().unwrap()
        })
        .into();
    assert!(states[0].iter().all(|rows| rows.len() >= ROWS as usize / 2));
    assert_eq!(states[0], states[1]);
}
