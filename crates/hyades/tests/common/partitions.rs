//! Histories of partitioned execution: each function returns whether a rule holds.

use super::{directory, power_cut};
use hyades::{
    Abort, Builder, Column, Columns, Database, Partitions, Protocol, RecordKind, Schema, Table,
    Transaction, Type,
};
use hyades_platform::device::Device;
use hyades_schemes::{PARTITIONED, PHYSIOLOGICAL};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Counts of items in shops, partitioned by shop.
pub const STOCK: Table = Table::nth(0);
pub const COUNT: Column<i64> = Column::at(2);
/// Prices of items, replicated.
pub const PRICES: Table = Table::nth(1);
pub const PRICE: Column<i64> = Column::at(1);
/// Notes of shops, without a key.
pub const NOTES: Table = Table::nth(2);
/// Names of staff, partitioned by shop, and unique among all.
pub const STAFF: Table = Table::nth(3);

pub const SHOPS: i64 = 8;
const ITEM: i64 = 1;

pub fn builder(protocol: Protocol, partitions: usize) -> Builder {
    let mut builder =
        Database::builder().protocol(protocol).concurrency(PARTITIONED).partitions(partitions);
    builder = builder.streams(if protocol.has_one_stream() { 1 } else { 2 });
    let stock = Schema::new("stock").column("shop", Type::I64).column("item", Type::I64);
    let stock = stock.column("count", Type::I64).primary_key(&["shop", "item"]);
    builder.table(stock.index("by_count", &["count"]).partition_by("shop"));
    let prices = Schema::new("prices").column("item", Type::I64).column("price", Type::I64);
    builder.table(prices.primary_key(&["item"]).replicated());
    let notes = Schema::new("notes").column("shop", Type::I64).column("text", Type::Text);
    builder.table(notes.partition_by("shop"));
    let staff = Schema::new("staff").column("shop", Type::I64).column("name", Type::Text);
    let staff = staff.primary_key(&["shop", "name"]).unique("by_name", &["name"]);
    builder.table(staff.partition_by("shop"));
    builder
}

pub struct Shops {
    pub db: Database,
    pub dir: tempfile::TempDir,
}

/// Opens a database, in which each shop has 100 of its item.
pub fn open(builder: Builder) -> Shops {
    let dir = directory();
    let db = builder.open(dir.path()).unwrap();
    fill(&db);
    Shops { db, dir }
}

fn fill(db: &Database) {
    db.transact(|tx| {
        tx.insert(PRICES, &[ITEM.into(), 5i64.into()])?;
        for shop in 0..SHOPS {
            tx.insert(STOCK, &[shop.into(), ITEM.into(), 100i64.into()])?;
        }
        Ok(())
    })
    .unwrap();
}

pub fn count(tx: &Transaction<'_>, shop: i64) -> Result<i64, Abort> {
    Ok(tx.get(STOCK, (shop, ITEM))?.map_or(0, |row| row.get(COUNT)))
}

pub fn set(tx: &Transaction<'_>, shop: i64, count: i64) -> Result<(), Abort> {
    tx.update(STOCK, (shop, ITEM), &[COUNT.set(count)]).map(drop)
}

/// Moves one piece, without stating the partitions beforehand. There is time in between.
fn carry(tx: &Transaction<'_>, from: i64, to: i64) -> Result<(), Abort> {
    let n = count(tx, from)?;
    set(tx, from, n - 1)?;
    let n = count(tx, to)?;
    std::thread::yield_now();
    set(tx, to, n + 1)
}

/// Threads carry pieces between shops while other threads count all pieces, in one transaction.
/// Runs until a wrong sum is seen, or the time is over.
pub fn pieces_stay(shops: &Shops, time: Duration) -> bool {
    let db = &shops.db;
    let (wrong, began) = (AtomicBool::new(false), Instant::now());
    let goes_on = || !wrong.load(Ordering::Relaxed) && began.elapsed() < time;
    let sum = |tx: &Transaction<'_>| {
        let rows = tx.scan(STOCK).rows()?;
        Ok::<_, Abort>(rows.iter().map(|row| row.get(COUNT)).sum::<i64>())
    };
    std::thread::scope(|scope| {
        for thread in 0..3 {
            scope.spawn(move || {
                let (mut session, mut rng) =
                    (db.session().unwrap(), fastrand::Rng::with_seed(thread));
                while goes_on() {
                    let (from, to) = (rng.i64(0..SHOPS), rng.i64(0..SHOPS));
                    let says = rng.bool();
                    let run = |tx: &Transaction<'_>| {
                        if says {
                            tx.hold(Partitions::of(from).with(to))?;
                        }
                        if from == to { Ok(()) } else { carry(tx, from, to) }
                    };
                    session.try_submit(run).unwrap().0.unwrap();
                }
            });
        }
        while goes_on() {
            // As of a snapshot, and while all partitions are held.
            let mut sums = [db.transact(|tx| Ok(sum(tx)?)).unwrap(), 0];
            let holding = |tx: &Transaction<'_>| {
                tx.hold(Partitions::ALL)?;
                // A transaction that only reads would read a snapshot.
                tx.delete(STOCK, (0i64, ITEM + 1))?;
                sum(tx)
            };
            sums[1] = db.transact(|tx| Ok(holding(tx)?)).unwrap();
            if sums != [100 * SHOPS; 2] {
                wrong.store(true, Ordering::Relaxed);
            }
        }
    });
    !wrong.load(Ordering::Relaxed)
}

/// Threads carry pieces between shops, logged row by row, until the power goes: then all pieces are
/// recovered. Returns whether all pieces are recovered for this many databases.
pub fn pieces_survive_power_cuts(undo: bool, databases: u64) -> bool {
    (0..databases).all(|seed| {
        let device = power_cut(seed);
        let build = |device: Option<Arc<dyn Device>>| {
            builder(PHYSIOLOGICAL, 64).log_settings(move |log| {
                log.research.undo = undo;
                log.device = device;
            })
        };
        let Shops { db, dir } = open(build(Some(Arc::new(device.clone()))));
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let db = &db;
                scope.spawn(move || {
                    let (mut session, mut rng) =
                        (db.session().unwrap(), fastrand::Rng::with_seed(seed * 3 + thread));
                    // Until the log fails.
                    loop {
                        let (from, to) = (rng.i64(0..SHOPS), rng.i64(1..SHOPS));
                        let to = (from + to) % SHOPS;
                        let Ok((_, ticket)) = session.try_submit(|tx| carry(tx, from, to)) else {
                            return;
                        };
                        if ticket.wait().is_err() {
                            return;
                        }
                        // So that few transactions write the same shops meanwhile.
                        std::thread::sleep(Duration::from_micros(50));
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(10 + seed * 7 % 30));
            device.cut();
        });
        drop(db);
        // The open is refused if a change follows a missing change.
        let Ok(db) = build(None).open(dir.path()) else { return false };
        let sum = |tx: &Transaction<'_>| {
            let rows = tx.scan(STOCK).rows()?;
            Ok::<_, Abort>(rows.iter().map(|row| row.get(COUNT)).sum::<i64>())
        };
        db.try_transact(sum).unwrap() == Ok(100 * SHOPS)
    })
}

/// Threads that state partitions get all of them, in the end. If the threads wait for each other
/// for this time, the queues are left as they are, and false is returned.
pub fn all_get_their_turns(time: Duration) -> bool {
    let Shops { db, dir } = open(builder(Protocol::None, 64));
    let (done, result) = std::sync::mpsc::channel();
    for thread in 0..4 {
        let (db, done) = (db.clone(), done.clone());
        std::thread::spawn(move || {
            let (mut session, mut rng) = (db.session().unwrap(), fastrand::Rng::with_seed(thread));
            for _ in 0..2000 {
                let (one, other) = (rng.i64(0..3), rng.i64(0..3));
                let run = |tx: &Transaction<'_>| {
                    tx.hold(Partitions::of(one).with(other))?;
                    count(tx, one)
                };
                session.try_submit(run).unwrap().0.unwrap();
            }
            // Fails only if the test is over.
            let _ = done.send(());
        });
    }
    let all = (0..4).all(|_| result.recv_timeout(time).is_ok());
    drop(dir);
    all
}

/// Steps that do not commute: reads one shop and writes another shop; or writes one shop.
fn declare_steps(builder: &mut Builder) {
    builder.procedure("look", 1, |tx: &Transaction<'_>, (from, to): (i64, i64)| {
        let seen = count(tx, from)?;
        let n = count(tx, to)?;
        set(tx, to, n.wrapping_mul(3).wrapping_add(seen))
    });
    builder.procedure("bump", 1, |tx: &Transaction<'_>, shop: i64| {
        let n = count(tx, shop)?;
        set(tx, shop, n.wrapping_mul(5).wrapping_add(1))
    });
}

/// One session looks from shop 0 to shop 1, in one stream; another session bumps either, in another
/// stream. Commands replayed by two threads produce the former state.
pub fn commands_replay_in_their_order() -> bool {
    let build = || {
        let mut builder = builder(Protocol::Taurus, 64).record(RecordKind::Command);
        declare_steps(&mut builder);
        builder.recovery_threads(2)
    };
    let shops = open(build());
    let (look, bump) = (shops.db.prepare("look").unwrap(), shops.db.prepare("bump").unwrap());
    let (mut one, mut other) = (shops.db.session().unwrap(), shops.db.session().unwrap());
    for round in 0..3000i64 {
        one.call(look, &(0i64, 1i64)).unwrap().0.unwrap();
        other.call(bump, &(round % 2)).unwrap().0.unwrap();
    }
    drop((one, other));
    let digest = shops.db.digest();
    shops.db.close().unwrap();
    // A command whose writes differ from before stops replay.
    build().open(shops.dir.path()).is_ok_and(|db| db.digest() == digest)
}

/// Threads do all kinds of things in all shops. Returns the state and the recovered state, with
/// another number of partitions.
pub fn recovered(protocol: Protocol, record: RecordKind, partitions: [usize; 2]) -> [u64; 2] {
    let build = |partitions| {
        let mut builder = builder(protocol, partitions).record(record);
        declare_steps(&mut builder);
        builder.procedure("mix", 1, |tx: &Transaction<'_>, (shop, n): (i64, i64)| mix(tx, shop, n));
        builder.recovery_threads(2)
    };
    let shops = open(build(partitions[0]));
    let db = &shops.db;
    std::thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || {
                let (mut session, mut rng) =
                    (db.session().unwrap(), fastrand::Rng::with_seed(thread));
                let procedure = |name: &str| db.prepare(name).unwrap();
                let (look, bump, mixed) = (procedure("look"), procedure("bump"), procedure("mix"));
                for n in 0..400 {
                    let (a, b) = (rng.i64(0..SHOPS), rng.i64(0..SHOPS));
                    let called = match rng.u32(0..4) {
                        0 => session.call(look, &(a, b)),
                        1 => session.call(bump, &a),
                        _ => session.call(mixed, &(a, n)),
                    };
                    called.unwrap().0.unwrap();
                }
            });
        }
    });
    let digest = db.digest();
    shops.db.close().unwrap();
    [digest, build(partitions[1]).open(shops.dir.path()).unwrap().digest()]
}

/// Inserts, deletes, inserts again, undoes, and reads replicated rows.
fn mix(tx: &Transaction<'_>, shop: i64, n: i64) -> Result<(), Abort> {
    let price = tx.get(PRICES, ITEM)?.map_or(0, |row| row.get(PRICE));
    let key = (shop, 2 + n % 3);
    if !tx.delete(STOCK, key)? {
        tx.insert(STOCK, &[shop.into(), (2 + n % 3).into(), (n + price).into()])?;
    }
    let before = tx.savepoint();
    set(tx, shop, n)?;
    tx.insert(NOTES, &[shop.into(), "undone".into()])?;
    tx.rollback_to(before)?;
    let name = format!("{}", n % 7);
    match tx.insert(STAFF, &[shop.into(), name[..].into()]) {
        Err(Abort::DuplicateKey { .. }) => tx.delete(STAFF, (shop, &name[..])).map(drop)?,
        inserted => _ = inserted?,
    }
    if n % 50 == 0 {
        tx.update(PRICES, ITEM, &[PRICE.set(price + 1)])?;
    }
    let rows = tx.scan(STOCK).prefix(&[shop.into()]).columns(Columns::ALL).rows()?;
    let sum = rows.iter().map(|row| row.get(COUNT)).fold(0i64, i64::wrapping_add);
    tx.insert(NOTES, &[shop.into(), sum.to_string()[..].into()]).map(drop)
}
