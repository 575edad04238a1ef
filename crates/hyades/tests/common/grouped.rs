//! A table of rows in groups, under every pair of concurrency control and logging protocol.

use hyades::{Column, Concurrency, Database, Index, Protocol, Row, Schema, Table, Type, Value};
use std::path::Path;
use std::time::Duration;

pub const ROWS: Table = Table::nth(0);
pub const ID: Column<i64> = Column::at(0);
pub const GROUP: Column<i64> = Column::at(1);
pub const TEXT: Column<str> = Column::at(2);
pub const COUNT: Column<i64> = Column::at(3);
pub const BY_GROUP: Index = Index(0);

pub fn pairs() -> impl Iterator<Item = (Protocol, Concurrency)> {
    Protocol::all().flat_map(|protocol| Concurrency::all().map(move |c| (protocol, c)))
}

pub fn streams(protocol: Protocol) -> usize {
    if matches!(protocol, Protocol::Serial | Protocol::Physiological) { 1 } else { 2 }
}

pub fn schema(is_hash: bool) -> Schema {
    let schema = Schema::new("rows")
        .column("id", Type::I64)
        .column("group", Type::I64)
        .column("text", Type::Text)
        .column("count", Type::I64)
        .primary_key(&["id"]);
    let schema = if is_hash { schema.hash() } else { schema };
    schema.index("by_group", &["group"])
}

pub fn open(dir: &Path, pair: (Protocol, Concurrency), is_hash: bool) -> Database {
    let (protocol, concurrency) = pair;
    let mut builder = Database::builder()
        .protocol(protocol)
        .concurrency(concurrency)
        .streams(streams(protocol))
        .log_settings(|log| log.epoch = Some(Duration::from_millis(1)));
    builder.table(schema(is_hash));
    builder.open(dir).unwrap()
}

pub fn row(id: i64, group: i64, text: &str) -> [Value<'_>; 4] {
    [id.into(), group.into(), text.into(), 0i64.into()]
}

pub type Content = (i64, String, i64);

pub fn content(row: &Row<'_>) -> Content {
    (row.get(GROUP), row.get(TEXT).to_string(), row.get(COUNT))
}

pub fn text(len: usize) -> String {
    "0123456789abcdef".chars().cycle().skip(len % 16).take(len).collect()
}
