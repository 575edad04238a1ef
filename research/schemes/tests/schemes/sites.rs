//! Promise: with sites, calls are run only by the threads that own their partitions; the result is
//! the same as without sites, no circle of sites waits, and queued calls are run before the
//! database is closed.

use crate::common::partitions::{self, COUNT, PRICE, PRICES, SHOPS, STOCK, count, set};
use crate::common::{directory, held::HeldDevice};
use hyades::{
    Abort, Builder, Concurrency, Database, Error, Partitions, PostedCall, ProcedureId, Protocol,
    RecordKind, Transaction,
};
use hyades_platform::device::{Device, Fault, FaultyDevice, FileDevice};
use hyades_schemes::{ARRIVAL, PHYSIOLOGICAL};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

const ITEM: i64 = 1;
const REFUSED: i64 = 7;

/// The threads that have run calls, by the shops of the calls.
type Seen = Arc<Mutex<BTreeMap<Vec<i64>, BTreeSet<String>>>>;

#[derive(Clone, Copy)]
struct SiteCalls {
    fill: ProcedureId,
    add: ProcedureId,
    carry: ProcedureId,
    raise: ProcedureId,
    fails: ProcedureId,
}

fn note(seen: &Seen, shops: &[i64]) {
    let thread = std::thread::current().name().unwrap_or("").to_string();
    seen.lock().unwrap().entry(shops.to_vec()).or_default().insert(thread);
}

fn builder(protocol: Protocol, seen: &Seen) -> (Builder, SiteCalls) {
    let mut builder = partitions::builder(protocol, 8);
    if protocol.takes_commands() && protocol != Protocol::None {
        builder = builder.record(RecordKind::Command);
    }
    let fill = builder.procedure("fill", 1, |tx: &Transaction<'_>, (): ()| {
        tx.insert(PRICES, &[ITEM.into(), 5i64.into()])?;
        for shop in 0..SHOPS {
            tx.insert(STOCK, &[shop.into(), ITEM.into(), 100i64.into()])?;
        }
        Ok(())
    });
    let noted = seen.clone();
    let add = builder.procedure("add", 1, move |tx: &Transaction<'_>, (shop, n): (i64, i64)| {
        note(&noted, &[shop]);
        let sum = count(tx, shop)? + n;
        set(tx, shop, sum)?;
        if n == REFUSED { Err(Abort::User(n)) } else { Ok(sum) }
    });
    builder.on(add, |(shop,): (i64,)| Partitions::of(shop));
    let noted = seen.clone();
    let carry = builder.procedure("carry", 1, move |tx: &Transaction<'_>, shops: [i64; 3]| {
        note(&noted, &shops);
        for (shop, n) in shops.into_iter().zip([-3, 1, 2]) {
            let sum = count(tx, shop)? + n;
            set(tx, shop, sum)?;
        }
        Ok(())
    });
    builder.on(carry, |[a, b, c]: [i64; 3]| Partitions::of(a).with(b).with(c));
    // The procedure states nothing, so all sites stop for the call.
    let raise = builder.procedure("raise", 1, |tx: &Transaction<'_>, n: i64| {
        let price = tx.get(PRICES, ITEM)?.map_or(0, |row| row.get(PRICE)) + n;
        tx.update(PRICES, ITEM, &[PRICE.set(price)])?;
        Ok(price)
    });
    let fails = builder.procedure("fails", 1, |tx: &Transaction<'_>, (a, b): (i64, i64)| {
        set(tx, a, 1)?;
        set(tx, b, 1)?;
        if a >= 0 {
            panic!("told to");
        }
        Ok(())
    });
    builder.on(fails, |(a, b): (i64, i64)| Partitions::of(a).with(b));
    (builder, SiteCalls { fill, add, carry, raise, fails })
}

fn open(
    dir: &Path,
    protocol: Protocol,
    sites: Option<usize>,
    seen: &Seen,
) -> (Database, SiteCalls) {
    let (mut builder, calls) = builder(protocol, seen);
    if let Some(sites) = sites {
        builder = builder.sites(sites);
    }
    (builder.posted_calls(10_000).open(dir).unwrap(), calls)
}

fn fill(db: &Database, calls: SiteCalls) {
    db.session().unwrap().call(calls.fill, &()).unwrap().0.unwrap();
}

/// The result is the same in any order.
fn some_calls(db: &Database, calls: SiteCalls, thread: u64) {
    let (mut session, mut rng) = (db.session().unwrap(), fastrand::Rng::with_seed(thread));
    let mut posted: Vec<PostedCall<()>> = Vec::new();
    for n in 0..300i64 {
        let shops = [rng.i64(0..SHOPS), rng.i64(0..SHOPS), rng.i64(0..SHOPS)];
        let posts = rng.bool();
        match (rng.u32(0..12), posts) {
            (0..6, true) => posted.push(db.post(calls.add, &(shops[0], n)).unwrap()),
            (0..6, false) => {
                let (outcome, _) = session.call(calls.add, &(shops[0], n)).unwrap();
                assert_eq!(outcome, if n == REFUSED { Err(Abort::User(n)) } else { Ok(()) });
            }
            (6..10, true) => posted.push(db.post(calls.carry, &shops).unwrap()),
            (6..10, false) => session.call(calls.carry, &shops).unwrap().0.unwrap(),
            (_, true) => posted.push(db.post(calls.raise, &n).unwrap()),
            (_, false) => session.call(calls.raise, &n).unwrap().0.unwrap(),
        }
        if n % 40 == 0 {
            let read = session.try_submit(|tx| count(tx, shops[0])).unwrap().0;
            read.unwrap();
            db.snapshot(|tx| Ok(tx.scan(STOCK).rows()?.len())).unwrap();
        }
    }
    for call in posted {
        match call.outcome().unwrap() {
            (Ok(()), ticket) => ticket.wait().unwrap(),
            (Err(abort), _) => assert_eq!(abort, Abort::User(REFUSED)),
        }
    }
}

fn run_all(db: &Database, calls: SiteCalls) {
    std::thread::scope(|scope| {
        for thread in 0..3 {
            scope.spawn(move || some_calls(db, calls, thread));
        }
    });
}

/// Fails after far too long a time: then something waits for ever.
fn in_time(what: impl FnOnce() + Send + 'static) {
    let (tell, told) = mpsc::channel();
    let running = std::thread::spawn(move || {
        what();
        let _ = tell.send(());
    });
    match told.recv_timeout(Duration::from_secs(60)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it has not ended after a minute"),
        _ => running.join().unwrap(),
    }
}

const PROTOCOLS: [Protocol; 5] =
    [Protocol::None, Protocol::Serial, Protocol::Taurus, PHYSIOLOGICAL, ARRIVAL];

#[test]
fn results_are_those_of_turns_and_are_recovered() {
    for protocol in PROTOCOLS {
        let mut states = Vec::new();
        for sites in [None, Some(1), Some(2), Some(3), Some(8)] {
            let dir = directory();
            let path = dir.path().to_path_buf();
            let (tell, told) = mpsc::channel();
            in_time(move || {
                let (db, calls) = open(&path, protocol, sites, &Seen::default());
                fill(&db, calls);
                run_all(&db, calls);
                let counts = |tx: &Transaction<'_>| {
                    let rows = tx.scan(STOCK).rows()?;
                    let price = tx.get(PRICES, ITEM)?.map(|row| row.get(PRICE));
                    Ok((rows.iter().map(|row| row.get(COUNT)).collect::<Vec<_>>(), price))
                };
                let state = db.transact(counts).unwrap();
                tell.send((state, db.digest())).unwrap();
                db.close().unwrap();
            });
            let (state, digest) = told.recv().unwrap();
            if protocol != Protocol::None {
                let other = if sites.is_some() { None } else { Some(2) };
                let (db, calls) = open(dir.path(), protocol, other, &Seen::default());
                assert_eq!(db.digest(), digest, "{protocol:?} {sites:?}");
                db.session().unwrap().call(calls.add, &(1i64, 1i64)).unwrap().0.unwrap();
            }
            states.push(state);
        }
        states.dedup();
        assert_eq!(states.len(), 1, "{protocol:?}: {states:?}");
    }
}

/// A call of one site runs there; a call of several sites on the first of the sites.
#[test]
fn sites_alone_run_the_calls_of_their_partitions() {
    for protocol in [Protocol::Taurus, ARRIVAL] {
        let (dir, seen) = (directory(), Seen::default());
        let (db, calls) = open(dir.path(), protocol, Some(3), &seen);
        fill(&db, calls);
        run_all(&db, calls);
        for (shops, threads) in seen.lock().unwrap().iter() {
            let first = shops.iter().map(|shop| shop % 3).min().unwrap();
            let own = BTreeSet::from([format!("site {first}")]);
            assert_eq!(*threads, own, "{protocol:?}: shops {shops:?}");
        }
    }
}

/// Sets of sites that overlap in a circle, and closures that enter the same partitions.
#[test]
fn no_circle_of_sites_waits() {
    in_time(|| {
        for protocol in [Protocol::None, ARRIVAL] {
            let dir = directory();
            let (db, calls) = open(dir.path(), protocol, Some(4), &Seen::default());
            fill(&db, calls);
            std::thread::scope(|scope| {
                for thread in 0..4i64 {
                    let db = &db;
                    scope.spawn(move || {
                        let mut session = db.session().unwrap();
                        for n in 0..400i64 {
                            let at = thread + n;
                            let shops = [at % 4, (at + 1) % 4, (at + 3 * (n % 2)) % 4];
                            drop(db.post::<_, ()>(calls.carry, &shops).unwrap());
                            if n % 8 == thread {
                                session.call(calls.raise, &0i64).unwrap().0.unwrap();
                                let both = |tx: &Transaction<'_>| {
                                    Ok::<_, Abort>(count(tx, at % 4)? + count(tx, 3 - at % 4)?)
                                };
                                session.try_submit(both).unwrap().0.unwrap();
                            }
                        }
                    });
                }
            });
            let other = db.clone();
            db.close().unwrap();
            let sum = |tx: &Transaction<'_>| {
                Ok::<_, Abort>(tx.scan(STOCK).rows()?.iter().map(|row| row.get(COUNT)).sum::<i64>())
            };
            if let Ok(sum) = other.try_transact(sum) {
                assert_eq!(sum.unwrap(), 100 * SHOPS);
            }
        }
    });
}

#[test]
fn queued_calls_are_run_before_it_is_closed() {
    for protocol in [Protocol::None, Protocol::Taurus, ARRIVAL] {
        in_time(move || {
            let dir = directory();
            let (db, calls) = open(dir.path(), protocol, Some(2), &Seen::default());
            fill(&db, calls);
            let mut posted = Vec::new();
            for n in 0..3000i64 {
                posted.push(match n % 3 {
                    0 => db.post::<_, ()>(calls.carry, &[n % 8, (n + 1) % 8, 3]).unwrap(),
                    _ => db.post::<_, ()>(calls.add, &(n % 8, 1i64)).unwrap(),
                });
            }
            let other = db.clone();
            db.close().unwrap();
            let refused = other.post::<_, ()>(calls.add, &(1i64, 1i64)).unwrap_err();
            assert!(refused.to_string().contains("closed"), "{refused}");
            let called = other.session().and_then(|mut s| s.call(calls.add, &(1i64, 1i64)));
            assert!(called.is_err());
            let ran = posted.into_iter().map(PostedCall::wait).filter(Result::is_ok);
            assert_eq!(ran.count(), 3000, "{protocol:?}");
        });
    }
}

/// The first call starts the threads of the sites, or finds the database closed.
#[test]
fn a_first_call_that_races_with_closing_ends() {
    for protocol in [Protocol::None, ARRIVAL] {
        in_time(move || {
            for _ in 0..100 {
                let dir = directory();
                let (db, calls) = open(dir.path(), protocol, Some(2), &Seen::default());
                let other = db.clone();
                let caller = std::thread::spawn(move || {
                    let mut session = other.session()?;
                    session.call(calls.add, &(1i64, 1i64)).map(drop)
                });
                std::thread::yield_now();
                let _ = db.close();
                if let Err(error) = caller.join().unwrap() {
                    assert!(error.to_string().contains("closed"), "{error}");
                }
            }
        });
    }
}

#[test]
fn a_panic_in_a_call_of_several_sites_stops_none() {
    for protocol in [Protocol::Taurus, ARRIVAL] {
        let dir = directory();
        let (db, calls) = open(dir.path(), protocol, Some(2), &Seen::default());
        fill(&db, calls);
        let mut session = db.session().unwrap();
        for _ in 0..3 {
            let panicked = || drop(session.call(calls.fails, &(1i64, 2i64)));
            assert!(catch_unwind(AssertUnwindSafe(panicked)).is_err());
            assert_eq!(session.call(calls.add, &(1i64, 1i64)).unwrap().0, Ok(()));
            assert_eq!(session.call(calls.add, &(2i64, 1i64)).unwrap().0, Ok(()));
        }
        assert_eq!(session.result::<i64>().unwrap(), 103);
    }
}

/// A failed log ends queued calls with an error, and closing ends.
#[test]
fn a_log_that_fails_leaves_no_call_waiting() {
    in_time(|| {
        let dir = directory();
        let (builder, calls) = builder(Protocol::Taurus, &Seen::default());
        let device = FaultyDevice::new(FileDevice::shared());
        let own: Arc<dyn Device> = Arc::new(device.clone());
        let builder = builder.sites(2).log_settings(|log| log.device = Some(own));
        let db = builder.open(dir.path()).unwrap();
        fill(&db, calls);
        device.arm(Fault::Write(0));
        let posted: Vec<PostedCall<()>> = (0..2000i64)
            .filter_map(|n| db.post(calls.carry, &[n % 8, (n + 1) % 8, 5]).ok())
            .collect();
        let failed = posted.into_iter().map(PostedCall::wait).filter(Result::is_err).count();
        assert!(failed > 0);
        assert!(db.close().is_err());
    });
}

/// A call inside of a transaction of another database must not wait for a site that may wait for
/// this call; and a session of its own is refused as without sites.
#[test]
fn calls_inside_of_transactions_are_not_handed_over() {
    let (dir, seen) = (directory(), Seen::default());
    let (db, calls) = open(dir.path(), Protocol::None, Some(2), &seen);
    fill(&db, calls);
    let other_dir = directory();
    let (outer, _) = open(other_dir.path(), Protocol::None, None, &Seen::default());
    seen.lock().unwrap().clear();
    let inner = db.clone();
    outer
        .transact(|_| {
            inner.session()?.call(calls.add, &(2i64, 1i64))?.0?;
            Ok(())
        })
        .unwrap();
    let threads = seen.lock().unwrap()[&vec![2]].clone();
    assert!(!threads.contains("site 0"), "{threads:?}");
    let refused = db.transact(|_| Ok(inner.session()?.call(calls.add, &(2i64, 1i64))?.0?));
    assert!(matches!(refused, Err(Error::Misuse(_))), "{refused:?}");
}

/// The outcome is there before it is durable, and its ticket says when the outcome is durable.
#[test]
fn an_outcome_comes_before_it_is_durable() {
    for (protocol, sites) in [(ARRIVAL, None), (ARRIVAL, Some(2))] {
        let dir = directory();
        let held = HeldDevice::new(FileDevice::shared());
        let (mut builder, calls) = builder(protocol, &Seen::default());
        if let Some(sites) = sites {
            builder = builder.sites(sites);
        }
        let own: Arc<dyn Device> = Arc::new(held.clone());
        let db = builder.log_settings(|log| log.device = Some(own)).open(dir.path()).unwrap();
        let (outcome, ticket) = db.session().unwrap().call(calls.fill, &()).unwrap();
        outcome.unwrap();
        ticket.wait().unwrap();
        let guards = [held.hold("stream-0000"), held.hold("stream-0001")];
        let (outcome, ticket) =
            db.post::<_, i64>(calls.add, &(1i64, 5i64)).unwrap().outcome().unwrap();
        assert_eq!(outcome, Ok(105));
        assert!(!ticket.is_acknowledged().unwrap());
        drop(guards);
        ticket.wait().unwrap();
    }
}

#[test]
fn what_sites_are_not_for_is_refused() {
    let open = |change: fn(Builder) -> Builder| {
        let dir = directory();
        let (builder, _) = builder(Protocol::None, &Seen::default());
        change(builder).open(dir.path()).map(drop)
    };
    open(|builder| builder.sites(1)).unwrap();
    open(|builder| builder.sites(8)).unwrap();
    for (change, why) in [
        ((|b| b.sites(0)) as fn(Builder) -> Builder, "choose 1 to 8"),
        (|b| b.sites(9), "choose 1 to 8"),
        (|b| b.concurrency(Concurrency::Silo).sites(2), "choose partitioned execution"),
        (|b| b.post_threads(2).sites(2), "Builder::post_threads"),
    ] {
        match open(change) {
            Err(Error::Misuse(fault)) => assert!(fault.contains(why), "{fault}"),
            other => panic!("{why}: {other:?}"),
        }
    }
}
