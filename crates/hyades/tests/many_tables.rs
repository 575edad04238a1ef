//! Promise: the time and memory to open a schema grow linearly with its number of tables.
#![allow(missing_docs)]

use hyades::{Builder, Database, Schema, Type};
use hyades_platform::clock::process_cpu_ns;
use std::path::Path;
use std::time::Duration;

/// Number of tables. `HYADES_TABLES` sets another number, for measurements.
fn tables() -> usize {
    std::env::var("HYADES_TABLES").map_or(40_000, |n| n.parse().unwrap())
}

/// Half of the tables are hash tables; one in ten has a secondary index.
fn builder() -> Builder {
    let mut builder = Database::builder().streams(2);
    for n in 0..tables() {
        let mut schema = Schema::new(&format!("table number {n}"))
            .column("id", Type::I64)
            .column("count", Type::I64)
            .primary_key(&["id"]);
        if n % 2 == 0 {
            schema = schema.hash();
        }
        if n % 10 == 0 {
            schema = schema.index("by_count", &["count"]);
        }
        builder.table(schema);
    }
    builder
}

/// Resident memory of this process in bytes.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// Returns the processor time of the opening, which neither a slow disk nor a busy machine changes,
/// and the bytes of a table.
fn open(dir: &Path) -> (Database, Duration, u64) {
    let builder = builder();
    let (began_ns, before) = (process_cpu_ns(), resident());
    let db = builder.open(dir).unwrap();
    let each = resident().saturating_sub(before) / tables() as u64;
    (db, Duration::from_nanos(process_cpu_ns() - began_ns), each)
}

#[test]
fn forty_thousand_tables_are_opened_in_seconds() {
    let dir = tempfile::tempdir().unwrap();
    for when in ["anew", "again"] {
        let (db, took, each) = open(dir.path());
        eprintln!("{} tables {when}: {took:?}, {each} bytes each", tables());
        // Far below the time of quadratic growth.
        assert!(took < Duration::from_secs(10), "{when}: {took:?}");
        assert!(each < 50_000, "{when}: an empty table takes {each} bytes");
        db.close().unwrap();
    }
}
