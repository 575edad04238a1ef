//! Interleavings of two transactions, one stopped in the middle.

use super::directory;
use hyades::{
    Abort, Builder, Column, Concurrency, Database, Index, Protocol, Schema, Table, Transaction,
    Type,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

pub const ITEMS: Table = Table::nth(0);
pub const COUNT: Column<i64> = Column::at(2);
pub const GROUP: Column<i64> = Column::at(1);
pub const BY_GROUP: Index = Index(0);
pub const A: i64 = 1;
pub const B: i64 = 2;
pub const C: i64 = 3;
/// Keys of no row.
pub const HASHED: Table = Table::nth(1);

/// The rows of [`ITEMS`].
pub struct Item;

impl Item {
    pub const ALL: usize = 10;
    /// A row whose version has a high timestamp.
    pub const HIGH: i64 = 9;
}

pub struct Opened {
    pub db: Database,
    pub dir: tempfile::TempDir,
}

/// A database whose epochs end only when snapshots are opened.
pub fn builder(protocol: Protocol, concurrency: Concurrency) -> Builder {
    let mut builder = Database::builder().protocol(protocol).concurrency(concurrency);
    if protocol == Protocol::Serial {
        builder = builder.streams(1);
    }
    builder = builder.log_settings(|log| log.epoch = Some(Duration::from_secs(3600)));
    let items = Schema::new("items")
        .column("id", Type::I64)
        .column("group", Type::I64)
        .column("count", Type::I64)
        .primary_key(&["id"]);
    builder.table(items.index("by_group", &["group"]));
    let hashed = Schema::new("hashed").column("id", Type::I64).column("group", Type::I64);
    builder.table(hashed.column("count", Type::I64).primary_key(&["id"]).hash());
    builder
}

/// Opens a database, and fills it with rows.
pub fn open_filled(builder: Builder) -> Opened {
    let dir = directory();
    let db = builder.open(dir.path()).unwrap();
    fill(&db);
    Opened { db, dir }
}

/// The row's count; -1 if it is missing.
pub fn count(tx: &Transaction<'_>, id: i64) -> Result<i64, Abort> {
    Ok(tx.get(ITEMS, id)?.map_or(-1, |row| row.get(COUNT)))
}

pub fn fill(db: &Database) {
    for id in 0..Item::ALL as i64 {
        db.transact(|tx| Ok(tx.insert(ITEMS, &[id.into(), id.into(), 0i64.into()])?)).unwrap();
    }
    for _ in 0..50 {
        set(db, Item::HIGH, 0);
    }
}

pub fn set(db: &Database, id: i64, count: i64) {
    let mut session = db.session().unwrap();
    let change = |tx: &Transaction<'_>| tx.update(ITEMS, id, &[COUNT.set(count)]);
    assert!(session.try_submit(change).unwrap().0.unwrap());
}

pub fn get(db: &Database, id: i64) -> i64 {
    db.transact(|tx| Ok(count(tx, id)?)).unwrap()
}

/// Stops a transaction once, in the middle of its first attempt.
#[derive(Clone)]
pub struct Pause {
    here: Arc<Barrier>,
    is_over: Arc<AtomicBool>,
}

impl Pause {
    pub fn new() -> Self {
        Pause { here: Arc::new(Barrier::new(2)), is_over: Arc::default() }
    }

    /// Called by the transaction.
    pub fn pause(&self) {
        if !self.is_over.swap(true, Ordering::SeqCst) {
            self.here.wait();
            self.here.wait();
        }
    }

    /// Runs something while the transaction is stopped; the transaction goes on even after a panic.
    pub fn meanwhile(&self, run: impl FnOnce()) {
        struct GoOn<'p>(&'p Barrier);
        impl Drop for GoOn<'_> {
            fn drop(&mut self) {
                self.0.wait();
            }
        }
        self.here.wait();
        let _go_on = GoOn(&self.here);
        run();
    }
}

/// Runs a transaction stopped once, and something else meanwhile. Returns the result and the number
/// of attempts.
pub fn beside<T: Send>(
    db: &Database,
    body: impl Fn(&Transaction<'_>, &dyn Fn()) -> Result<T, Abort> + Sync,
    meanwhile: impl FnOnce(),
) -> (T, u64) {
    let pause = Pause::new();
    let attempts = AtomicU64::new(0);
    let result = std::thread::scope(|scope| {
        let stopped = scope.spawn(|| {
            let mut session = db.session().unwrap();
            let run = |tx: &Transaction<'_>| {
                attempts.fetch_add(1, Ordering::Relaxed);
                body(tx, &|| pause.pause())
            };
            session.try_submit(run).unwrap().0.unwrap()
        });
        pause.meanwhile(meanwhile);
        stopped.join().unwrap()
    });
    (result, attempts.load(Ordering::Relaxed))
}

/// Reads a, pauses, and writes b. Returns the value of a.
pub fn copy(tx: &Transaction<'_>, pause: &dyn Fn()) -> Result<i64, Abort> {
    let seen = count(tx, A)?;
    pause();
    tx.update(ITEMS, B, &[COUNT.set(seen + 100)])?;
    Ok(seen)
}
