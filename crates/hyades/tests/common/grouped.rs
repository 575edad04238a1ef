//! A table of rows in groups, under every pair of concurrency control and logging protocol.

use hyades::{
    Abort, Column, Concurrency, Database, Index, Protocol, Row, Schema, Table, Transaction, Type,
    Value,
};
use hyades_schemes::{all_controls, all_protocols};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

pub const ROWS: Table = Table::nth(0);
pub const ID: Column<i64> = Column::at(0);
pub const GROUP: Column<i64> = Column::at(1);
pub const TEXT: Column<str> = Column::at(2);
pub const COUNT: Column<i64> = Column::at(3);
pub const BY_GROUP: Index = Index(0);

pub fn pairs() -> impl Iterator<Item = (Protocol, Concurrency)> {
    // Rows are written by closures.
    let protocols = all_protocols().filter(|protocol| protocol.takes_data());
    let pairs = protocols.flat_map(|protocol| all_controls().map(move |c| (protocol, c)));
    pairs.filter(|(protocol, concurrency)| concurrency.runs_under(*protocol))
}

pub fn streams(protocol: Protocol) -> usize {
    if protocol.has_one_stream() { 1 } else { 2 }
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

pub const ACCOUNTS: i64 = 500;

/// Two threads transfer amounts between accounts, delete accounts and open them again, and change
/// their groups, until `body` has returned.
pub fn beside_transfers<T>(db: &Database, body: impl FnOnce(&AtomicU64) -> T) -> T {
    let (over, commits) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let (over, commits) = (&over, &commits);
            scope.spawn(move || {
                let mut session = db.session().unwrap();
                let mut random = fastrand::Rng::with_seed(worker);
                while !over.load(Ordering::Relaxed) {
                    let (from, to) = (random.i64(0..ACCOUNTS), random.i64(0..ACCOUNTS));
                    let (amount, len) = (random.i64(1..9), random.usize(0..200));
                    let transfer = |tx: &Transaction<'_>| move_some(tx, (from, to), amount, len);
                    session.try_submit(transfer).unwrap().0.unwrap();
                    commits.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        struct Over<'o>(&'o AtomicBool);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _over = Over(&over);
        body(&commits)
    })
}

/// Moves an amount. An account with nothing left does not exist.
pub fn move_some(
    tx: &Transaction<'_>,
    (from, to): (i64, i64),
    amount: i64,
    len: usize,
) -> Result<(), Abort> {
    let Some(found) = tx.get(ROWS, from)?.filter(|_| from != to) else { return Ok(()) };
    let (group, have) = (found.get(GROUP), found.get(COUNT));
    let (amount, text) = (amount.min(have), text(len));
    if amount == have {
        tx.delete(ROWS, from)?;
    } else {
        let sets = [GROUP.set((group + 1) % 7), COUNT.set(have - amount)];
        tx.update(ROWS, from, &sets)?;
    }
    match tx.get(ROWS, to)? {
        None => {
            let row = [to.into(), amount.into(), text[..].into(), amount.into()];
            tx.insert(ROWS, &row).map(drop)
        }
        Some(found) => {
            let sets = [TEXT.set(&text[..]), COUNT.set(found.get(COUNT) + amount)];
            tx.update(ROWS, to, &sets).map(drop)
        }
    }
}

pub fn fill(db: &Database) {
    db.transact(|tx| {
        for id in 0..ACCOUNTS {
            tx.insert(ROWS, &[id.into(), (id % 7).into(), "".into(), 10i64.into()])?;
        }
        Ok(())
    })
    .unwrap();
}

pub fn sum(rows: &[Row<'_>]) -> i64 {
    rows.iter().map(|row| row.get(COUNT)).sum()
}
