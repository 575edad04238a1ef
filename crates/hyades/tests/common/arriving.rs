//! Histories of calls that are logged on arrival: each function returns whether a rule holds.

use super::partitions::{self, COUNT, NOTES, PRICE, PRICES, SHOPS, STAFF, STOCK};
use super::{directory, held::HeldDevice, power_cut};
use hyades::{
    Abort, Builder, Column, Database, Error, Partitions, PostedCall, ProcedureId, Protocol,
    RecordKind, Ticket, Transaction,
};
use hyades_platform::device::{Device, FileDevice};
use hyades_schemes::ARRIVAL;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The number with which the procedure `mix` aborts.
pub const REFUSED: i64 = 77;
const ITEM: i64 = 1;

/// The procedures of a database of shops.
#[derive(Clone, Copy)]
pub struct Calls {
    pub fill: ProcedureId,
    pub look: ProcedureId,
    pub bump: ProcedureId,
    pub mix: ProcedureId,
    pub sell: ProcedureId,
    pub stray: ProcedureId,
    pub fails: ProcedureId,
}

pub fn builder(partitions: usize) -> (Builder, Calls) {
    with_protocol(ARRIVAL, partitions)
}

pub fn with_protocol(protocol: Protocol, partitions: usize) -> (Builder, Calls) {
    let mut builder = partitions::builder(protocol, partitions).record(RecordKind::Command);
    let fill = builder.procedure("fill", 1, |tx: &Transaction<'_>, (): ()| {
        tx.insert(PRICES, &[ITEM.into(), 5i64.into()])?;
        for shop in 0..SHOPS {
            tx.insert(STOCK, &[shop.into(), ITEM.into(), 100i64.into()])?;
        }
        Ok(())
    });
    let look = builder.procedure("look", 1, |tx: &Transaction<'_>, (from, to): (i64, i64)| {
        let (seen, n) = (partitions::count(tx, from)?, partitions::count(tx, to)?);
        let n = n.wrapping_mul(3).wrapping_add(seen);
        partitions::set(tx, to, n)?;
        Ok(n)
    });
    builder.on(look, |(from, to): (i64, i64)| Partitions::of(from).with(to));
    let bump = builder.procedure("bump", 1, |tx: &Transaction<'_>, shop: i64| {
        let n = partitions::count(tx, shop)?.wrapping_mul(5).wrapping_add(1);
        partitions::set(tx, shop, n)?;
        Ok(n)
    });
    builder.on(bump, |(shop,): (i64,)| Partitions::of(shop));
    let mix =
        builder.procedure("mix", 1, |tx: &Transaction<'_>, (shop, n): (i64, i64)| mix(tx, shop, n));
    // Names are unique among all shops, and prices replicated.
    builder.on(
        mix,
        |(_, n): (i64, i64)| {
            if n % 10 == 0 { Partitions::ALL } else { Partitions::of(n % SHOPS) }
        },
    );
    let sell = builder.procedure("sell", 1, |tx: &Transaction<'_>, (a, b, id): (i64, i64, i64)| {
        sell(tx, [a, b], id)
    });
    builder.on(sell, |(a, b): (i64, i64)| Partitions::of(a).with(b));
    let stray = builder.procedure("stray", 1, |tx: &Transaction<'_>, (said, other): (i64, i64)| {
        partitions::set(tx, said, 1)?;
        // Goes on as if nothing had happened.
        let _ = partitions::set(tx, other, 1);
        Ok(7i64)
    });
    builder.on(stray, |(said,): (i64,)| Partitions::of(said));
    let fails = builder.procedure("fails", 1, |tx: &Transaction<'_>, shop: i64| -> Result<(), _> {
        partitions::set(tx, shop, 1)?;
        if shop >= 0 {
            panic!("told to");
        }
        Err(Abort::User(0))
    });
    builder.on(fails, |(shop,): (i64,)| Partitions::of(shop));
    (builder.recovery_threads(2), Calls { fill, look, bump, mix, sell, stray, fails })
}

/// Inserts, deletes, draws, undoes, and aborts now and then, after a write.
fn mix(tx: &Transaction<'_>, shop: i64, n: i64) -> Result<i64, Abort> {
    let shop = if n % 10 == 0 { shop } else { n % SHOPS };
    let price = tx.get(PRICES, ITEM)?.map_or(0, |row| row.get(PRICE));
    let item = 2 + n % 3;
    if !tx.delete(STOCK, (shop, item))? {
        tx.insert(STOCK, &[shop.into(), item.into(), (n + price).into()])?;
    }
    let before = tx.savepoint();
    partitions::set(tx, shop, n)?;
    tx.rollback_to(before)?;
    let drawn = (tx.random() % 1000) as i64;
    partitions::set(tx, shop, drawn)?;
    let text = format!("{n} at {}", tx.now_us());
    let id = tx.insert(NOTES, &[shop.into(), text[..].into()])?;
    if n % 10 == 0 {
        let name = format!("{}", n % 70);
        match tx.insert(STAFF, &[shop.into(), name[..].into()]) {
            Err(Abort::DuplicateKey { .. }) => tx.delete(STAFF, (shop, &name[..])).map(drop)?,
            inserted => _ = inserted?,
        }
        tx.update(PRICES, ITEM, &[PRICE.set(price + 1)])?;
    }
    if n % 7 == 3 { Err(Abort::User(REFUSED)) } else { Ok(id as i64) }
}

/// Sells one piece in each of two shops: the count of a shop numbers its sales, which are rows of
/// the same table. Refused if the count is a multiple of 7, after everything was written.
fn sell(tx: &Transaction<'_>, shops: [i64; 2], id: i64) -> Result<(i64, i64), Abort> {
    let mut numbers = [0; 2];
    for (number, shop) in numbers.iter_mut().zip(shops) {
        *number = partitions::count(tx, shop)? + 1;
        partitions::set(tx, shop, *number)?;
        tx.insert(STOCK, &[shop.into(), (1000 + *number).into(), id.into()])?;
    }
    if id % 7 == 0 { Err(Abort::User(REFUSED)) } else { Ok((numbers[0], numbers[1])) }
}

pub fn open(dir: &Path, partitions: usize) -> (Database, Calls) {
    let (builder, calls) = builder(partitions);
    (builder.open(dir).unwrap(), calls)
}

/// Threads call and post all kinds of things. Returns the state and the recovered state.
pub fn recovered(streams: usize, partitions: [usize; 2], threads: usize) -> [u64; 2] {
    let dir = directory();
    let (builder, calls) = builder(partitions[0]);
    let db = builder.streams(streams).post_threads(2).open(dir.path()).unwrap();
    db.session().unwrap().call(calls.fill, &()).unwrap().0.unwrap();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let db = &db;
            scope.spawn(move || some_calls(db, calls, thread));
        }
    });
    let digest = {
        // The posted calls have to end first.
        let other = db.clone();
        db.close().unwrap();
        other.digest()
    };
    let (builder, _) = self::builder(partitions[1]);
    let db = builder.streams(3).recovery_threads(threads).open(dir.path()).unwrap();
    [digest, db.digest()]
}

fn some_calls(db: &Database, calls: Calls, thread: u64) {
    let (mut session, mut rng) = (db.session().unwrap(), fastrand::Rng::with_seed(thread));
    for n in 0..400i64 {
        let (a, b, posts) = (rng.i64(0..SHOPS), rng.i64(0..SHOPS), rng.bool());
        match (rng.u32(0..5), posts) {
            (0, true) => drop(db.post::<_, i64>(calls.look, &(a, b)).unwrap()),
            (0, false) => drop(session.call(calls.look, &(a, b)).unwrap()),
            (1, true) => drop(db.post::<_, i64>(calls.bump, &a).unwrap()),
            (1, false) => drop(session.call(calls.bump, &a).unwrap()),
            (2, true) => drop(db.post::<_, i64>(calls.stray, &(a, b)).unwrap()),
            (_, true) => drop(db.post::<_, i64>(calls.mix, &(a, n)).unwrap()),
            (_, false) => drop(session.call(calls.mix, &(a, n)).unwrap()),
        }
        if n % 50 == 0 {
            let sum = db.snapshot(|tx| Ok(tx.scan(STOCK).rows()?.len())).unwrap();
            assert!(sum >= SHOPS as usize);
            let read = session.try_submit(|tx| partitions::count(tx, a)).unwrap().0;
            read.unwrap();
        }
    }
}

/// Two sessions and two threads bump one shop, and look from that shop to another. Replay by two
/// threads produces the former state.
pub fn calls_replay_in_their_order() -> bool {
    let dir = directory();
    let (db, calls) = open(dir.path(), 64);
    db.session().unwrap().call(calls.fill, &()).unwrap().0.unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3i64 {
            let db = &db;
            scope.spawn(move || {
                let mut session = db.session().unwrap();
                for round in 0..1500i64 {
                    match (thread, round % 2) {
                        (0, _) => drop(session.call(calls.look, &(0i64, 1i64)).unwrap()),
                        (1, one) => drop(session.call(calls.bump, &one).unwrap()),
                        (_, one) => drop(db.post::<_, i64>(calls.bump, &one).unwrap().wait()),
                    }
                }
            });
        }
    });
    let digest = db.digest();
    db.close().unwrap();
    builder(64).0.open(dir.path()).is_ok_and(|db| db.digest() == digest)
}

/// A call that follows a call of a held stream is acknowledged only with that call.
pub fn followers_wait_for_what_they_follow() -> bool {
    let dir = directory();
    let device = HeldDevice::new(FileDevice::shared());
    let (builder, calls) = builder(64);
    let held: Arc<dyn Device> = Arc::new(device.clone());
    let db = builder.log_settings(|log| log.device = Some(held)).open(dir.path()).unwrap();
    let mut session = db.session().unwrap();
    session.call(calls.fill, &()).unwrap().1.wait().unwrap();
    let stream_of = |ticket: &Ticket| ticket.transaction_id().map(|id| id.stream);
    let (_, ticket) = session.call(calls.bump, &1i64).unwrap();
    let stream = stream_of(&ticket);
    ticket.wait().unwrap();
    let _held = device.hold(&format!("stream-{:04}", stream.unwrap()));
    let (_, first) = session.call(calls.bump, &2i64).unwrap();
    // A session begins on a stream with nothing to write.
    let (_, second) = db.session().unwrap().call(calls.bump, &2i64).unwrap();
    assert_eq!((stream_of(&first) == stream, stream_of(&second) == stream), (true, false));
    std::thread::sleep(Duration::from_millis(100));
    let holds = !first.is_acknowledged().unwrap() && !second.is_acknowledged().unwrap();
    device.release();
    first.wait().unwrap();
    second.wait().unwrap();
    holds
}

/// A checkpoint begins while queued calls have not run. Returns whether the checkpoint has waited
/// for the calls, and the state and the recovered state are the same.
pub fn a_cut_waits_for_queued_calls() -> bool {
    let dir = directory();
    let (builder, calls) = builder(64);
    let db = builder.post_threads(0).open(dir.path()).unwrap();
    db.session().unwrap().call(calls.fill, &()).unwrap().1.wait().unwrap();
    for shop in 0..SHOPS {
        drop(db.post::<_, i64>(calls.bump, &shop).unwrap());
        drop(db.post::<_, i64>(calls.bump, &shop).unwrap());
    }
    let is_over = AtomicBool::new(false);
    let waited = std::thread::scope(|scope| {
        scope.spawn(|| {
            db.checkpoint().unwrap();
            is_over.store(true, Ordering::SeqCst);
        });
        std::thread::sleep(Duration::from_millis(100));
        let waited = !is_over.load(Ordering::SeqCst);
        while db.run_posted().unwrap() {}
        waited
    });
    let digest = db.digest();
    db.close().unwrap();
    let (db, _) = open(dir.path(), 64);
    waited && db.digest() == digest
}

/// A call that has aborted aborts again at replay.
pub fn aborts_are_replayed() -> bool {
    let dir = directory();
    let (db, calls) = open(dir.path(), 64);
    let mut session = db.session().unwrap();
    session.call(calls.fill, &()).unwrap().0.unwrap();
    let (outcome, ticket) = session.call(calls.sell, &(1i64, 2i64, 7i64)).unwrap();
    assert_eq!(outcome, Err(Abort::User(REFUSED)));
    ticket.wait().unwrap();
    drop(session);
    let digest = db.digest();
    db.close().unwrap();
    builder(64).0.open(dir.path()).is_ok_and(|db| db.digest() == digest)
}

/// The reply to a client for a sale: its numbers in both shops, or the refusal.
type Told = BTreeMap<i64, Option<(i64, i64)>>;

/// Threads sell, called and posted, until the power goes. Returns whether the replies agree with
/// the recovered rows, and sales are there in both shops or in none.
pub fn sales_survive(seed: u64) -> bool {
    let dir = directory();
    let device = power_cut(seed);
    let (builder, calls) = builder(64);
    let cut: Arc<dyn Device> = Arc::new(device.clone());
    let builder = builder.streams(1 + seed as usize % 4).post_threads(2);
    let builder = builder.log_settings(|log| {
        log.device = Some(cut);
        log.epoch = Some(Duration::from_millis(2));
    });
    let db = builder.open(dir.path()).unwrap();
    db.session().unwrap().call(calls.fill, &()).unwrap().1.wait().unwrap();
    let told = Mutex::new(Told::new());
    std::thread::scope(|scope| {
        for thread in 0..3i64 {
            let (db, told) = (&db, &told);
            scope.spawn(move || seller(db, calls, thread, (seed, told)));
        }
        if seed.is_multiple_of(3) {
            let db = &db;
            scope.spawn(move || while db.checkpoint().is_ok() {});
        }
        std::thread::sleep(Duration::from_millis(20 + seed % 30));
        device.cut();
    });
    drop(db);
    let (db, _) = open(dir.path(), 1 << (seed % 7));
    are_there(&db, &told.into_inner().unwrap())
}

fn seller(db: &Database, calls: Calls, thread: i64, (seed, told): (u64, &Mutex<Told>)) {
    let mut rng = fastrand::Rng::with_seed(seed * 3 + thread as u64);
    let (mut session, mut posted) = (db.session().unwrap(), Vec::new());
    let tell = |id: i64, result: Result<(i64, i64), Error>| match result {
        Ok(numbers) => _ = told.lock().unwrap().insert(id, Some(numbers)),
        Err(Error::Aborted(_)) => _ = told.lock().unwrap().insert(id, None),
        Err(_) => {}
    };
    for n in 0..100_000i64 {
        let id = n * 3 + thread;
        let (a, b) = (rng.i64(0..SHOPS), rng.i64(0..SHOPS));
        if rng.bool() {
            let call: Result<PostedCall<(i64, i64)>, _> = db.post(calls.sell, &(a, b, id));
            match call {
                Ok(call) => posted.push((id, call)),
                Err(Error::TooManyPosted(_)) => {}
                Err(_) => break,
            }
        } else {
            let Ok((outcome, ticket)) = session.call(calls.sell, &(a, b, id)) else { break };
            let result = outcome.map(|()| session.result().unwrap());
            if n % 4 == 0 && ticket.wait().is_ok() {
                tell(id, result.map_err(Error::Aborted));
            }
        }
        if posted.len() > 20 {
            posted.drain(..).for_each(|(id, call)| tell(id, call.wait()));
        }
    }
    posted.drain(..).for_each(|(id, call)| tell(id, call.wait()));
}

fn are_there(db: &Database, told: &Told) -> bool {
    let rows = |tx: &Transaction<'_>| {
        let rows = tx.scan(STOCK).rows()?;
        let row = |row: &hyades::Row<'_>| {
            (row.get(Column::<i64>::at(0)), row.get(Column::<i64>::at(1)), row.get(COUNT))
        };
        Ok(rows.iter().map(row).collect::<Vec<_>>())
    };
    let rows = db.snapshot(rows).unwrap();
    let mut sold: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    let mut counts = BTreeMap::new();
    for &(shop, item, n) in &rows {
        if item == ITEM {
            counts.insert(shop, n);
        } else {
            sold.entry(n).or_default().push(item - 1000);
        }
    }
    let in_both = sold.values().all(|numbers| numbers.len() == 2);
    let sales = rows.len() as i64 - SHOPS;
    let counted = counts.values().sum::<i64>() - 100 * SHOPS;
    let as_told = told.iter().all(|(id, told)| match (told, sold.get(id)) {
        (None, None) => true,
        (Some((a, b)), Some(numbers)) => {
            let mut numbers = numbers.clone();
            let mut told = [*a, *b];
            numbers.sort_unstable();
            told.sort_unstable();
            numbers == told
        }
        _ => false,
    });
    in_both && sales == counted && as_told
}

/// The use of a number from outside that makes a procedure not deterministic.
#[derive(Clone, Copy, Debug)]
pub enum Drift {
    /// The procedure writes the number.
    Writes,
    /// The procedure aborts by the number.
    Aborts,
}

/// Returns whether replay names a procedure, and no other, if the number from outside has changed;
/// and opens the database if the number is the same.
pub fn a_drift_is_named(drift: Drift) -> bool {
    let dir = directory();
    let open = |outside: i64| {
        let (mut builder, calls) = builder(64);
        let drifts =
            builder.procedure("drifts", 1, move |tx: &Transaction<'_>, (shop, n): (i64, i64)| {
                match drift {
                    Drift::Writes => partitions::set(tx, shop, n + outside),
                    Drift::Aborts if n % 3 == outside => Err(Abort::User(REFUSED)),
                    Drift::Aborts => partitions::set(tx, shop, n),
                }
            });
        builder.on(drifts, |(shop, _): (i64, i64)| Partitions::of(shop));
        let builder = builder.log_settings(|log| log.epoch = Some(Duration::from_millis(1)));
        builder.open(dir.path()).map(|db| (db, calls, drifts))
    };
    let (db, calls, drifts) = open(1).unwrap();
    let mut session = db.session().unwrap();
    session.call(calls.fill, &()).unwrap().0.unwrap();
    let until = Instant::now() + Duration::from_millis(100);
    // Some hundred calls, in several epochs: the writes of one call in eight are examined.
    for n in 0i64.. {
        if n > 300 && Instant::now() > until {
            break;
        }
        let _ = session.call(drifts, &(1i64, n)).unwrap();
        session.call(calls.bump, &2i64).unwrap().0.unwrap();
        if n % 16 == 0 {
            db.post::<_, i64>(calls.bump, &3i64).unwrap().wait().unwrap();
            let _ = db.post::<_, ()>(drifts, &(4i64, n)).unwrap().wait();
        }
    }
    drop(session);
    db.close().unwrap();
    open(1).unwrap().0.close().unwrap();
    let Err(error) = open(2) else { return false };
    // Nothing is lost.
    open(1).unwrap().0.close().unwrap();
    let text = error.to_string();
    assert!(text.contains("nothing was changed on disk"), "{text}");
    text.contains("\"drifts\" version 1 is not deterministic") && !text.contains("bump")
}

/// Sales and a checkpoint, until the power goes `step` changes of the device after their start.
/// `None` if a reported sale is not there, otherwise whether the sales and the checkpoint have
/// ended.
pub fn sales_survive_a_cut_at(step: u64) -> Option<bool> {
    let dir = directory();
    let device = power_cut(step);
    let (builder, calls) = builder(64);
    let cut: Arc<dyn Device> = Arc::new(device.clone());
    let db = builder.post_threads(1).log_settings(|log| log.device = Some(cut));
    let db = db.open(dir.path()).unwrap();
    db.session().unwrap().call(calls.fill, &()).unwrap().1.wait().unwrap();
    device.cut_after(step);
    let mut told = Told::new();
    let through = some_sales(&db, calls, &mut told).is_ok();
    device.cut();
    drop(db);
    for partitions in [64, 4] {
        let (db, _) = open(dir.path(), partitions);
        if !are_there(&db, &told) {
            return None;
        }
        db.close().unwrap();
    }
    Some(through)
}

fn some_sales(db: &Database, calls: Calls, told: &mut Told) -> Result<(), Error> {
    let mut session = db.session()?;
    for round in 0..8i64 {
        let sale = |n: i64| (n % SHOPS, (n * 3 + 1) % SHOPS, 5 * round + n);
        let posted = (0..4).map(|n| db.post::<_, (i64, i64)>(calls.sell, &sale(n)));
        let posted: Vec<_> = posted.collect::<Result<_, _>>()?;
        let (outcome, ticket) = session.call(calls.sell, &sale(4))?;
        let called = outcome.map(|()| session.result().unwrap());
        if round == 4 {
            db.checkpoint()?;
        }
        for (n, call) in posted.into_iter().enumerate() {
            match call.wait() {
                Ok(numbers) => told.insert(sale(n as i64).2, Some(numbers)),
                Err(Error::Aborted(_)) => told.insert(sale(n as i64).2, None),
                Err(error) => return Err(error),
            };
        }
        ticket.wait()?;
        told.insert(sale(4).2, called.ok());
    }
    Ok(())
}
