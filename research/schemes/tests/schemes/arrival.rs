//! Promise: a call that is logged on arrival, before it runs, ends at replay as before, and is
//! acknowledged only once the outcome is certain.

use crate::common::arriving::{self, Drift, REFUSED, builder, open, with_protocol};
use crate::common::partitions::{SHOPS, STOCK, count, set};
use crate::common::{directory, held::HeldDevice};
use hyades::{
    Abort, Columns, Concurrency, Database, Error, Partitions, PostedCall, Protocol, RecordKind,
    Schema, Session, Ticket, Transaction, Type,
};
use hyades_platform::device::{Device, Fault, FaultyDevice, FileDevice};
use hyades_schemes::{ARRIVAL, PARTITIONED};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

#[test]
fn calls_are_replayed_in_the_order_of_their_partitions() {
    assert!(arriving::calls_replay_in_their_order());
}

#[test]
fn the_state_is_recovered_with_any_number_of_partitions_threads_and_streams() {
    for (streams, partitions, threads) in
        [(1, [64, 64], 2), (3, [4, 1], 1), (4, [1, 16], 2), (2, [64, 4], 4)]
    {
        let [before, after] = arriving::recovered(streams, partitions, threads);
        assert_eq!(before, after, "{streams} {partitions:?} {threads}");
    }
}

#[test]
fn followers_wait_for_what_they_follow() {
    assert!(arriving::followers_wait_for_what_they_follow());
}

/// A session is kept on a stream whose syncs do not end. Its calls wait, and so do later calls of
/// their partition; calls of other partitions do not.
#[test]
fn calls_elsewhere_do_not_wait_for_a_slow_stream() {
    let dir = directory();
    let device = HeldDevice::new(FileDevice::shared());
    let own: Arc<dyn Device> = Arc::new(device.clone());
    let (builder, calls) = builder(64);
    let builder = builder.streams(4).log_settings(|log| {
        log.device = Some(own);
        log.research.fixed_streams = true;
    });
    let db = builder.open(dir.path()).unwrap();
    let (mut slow, mut other) = (db.session().unwrap(), db.session().unwrap());
    let (_, filled) = slow.call(calls.fill, &()).unwrap();
    let stream = filled.transaction_id().unwrap().stream;
    filled.wait().unwrap();
    let held = device.hold(&format!("stream-{stream:04}"));
    let call = |session: &mut Session, shop: i64| {
        let (outcome, ticket) = session.call(calls.bump, &shop).unwrap();
        outcome.unwrap();
        ticket
    };
    let mut late: Vec<Ticket> = (0..50).map(|_| call(&mut slow, 1)).collect();
    let elsewhere: Vec<Ticket> = (0..200).map(|n| call(&mut other, 2 + n % (SHOPS - 2))).collect();
    late.push(call(&mut other, 1));
    assert!(elsewhere.iter().all(|ticket| ticket.transaction_id().unwrap().stream != stream));
    let began = Instant::now();
    while !elsewhere.iter().all(|ticket| ticket.is_acknowledged().unwrap()) {
        assert!(began.elapsed() < Duration::from_secs(20), "they wait for stream {stream}");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!late.iter().any(|ticket| ticket.is_acknowledged().unwrap()));
    drop(held);
    late.into_iter().for_each(|ticket| ticket.wait().unwrap());
}

#[test]
fn a_cut_waits_for_queued_calls() {
    assert!(arriving::a_cut_waits_for_queued_calls());
}

#[test]
fn aborts_are_replayed() {
    assert!(arriving::aborts_are_replayed());
}

#[test]
fn what_was_told_survives_a_power_cut_at_any_step() {
    // Where a step falls depends on how threads meet, and how many there are on how much is written
    // at a time.
    let mut step = 0;
    loop {
        let through = arriving::sales_survive_a_cut_at(step);
        if through.unwrap_or_else(|| panic!("power cut at step {step}")) {
            break;
        }
        step += 1;
        assert!(step < 1000, "there are no more steps than that");
    }
    assert!(step > 15, "there are more steps than {step}");
}

#[test]
fn a_procedure_that_is_not_deterministic_is_named() {
    for drift in [Drift::Writes, Drift::Aborts] {
        assert!(arriving::a_drift_is_named(drift), "{drift:?}");
    }
}

/// The number of refused ways to wait, at this place, for calls that have not run.
fn refusals(db: &Database) -> usize {
    let is_refused = |result: &Result<(), Error>| match result {
        Err(Error::Misuse(why)) => why.contains("inside a transaction of the same database"),
        _ => false,
    };
    let opened = db.open_snapshot();
    let read = |tx: &Transaction<'_>| {
        count(tx, 1)?;
        Ok(())
    };
    let tried = [
        db.snapshot(read),
        opened.read(read),
        opened.for_each(STOCK, Columns::ALL, |_| ()).map(drop),
        db.session().and_then(|mut session| session.snapshot(read).map(drop)),
        db.checkpoint().map(drop),
    ];
    tried.into_iter().filter(is_refused).count()
}

/// The settings of row records do not matter where no rows are logged: an outcome is the same.
#[test]
fn outcomes_do_not_depend_on_settings_of_rows() {
    let dir = directory();
    let open = |whole_rows: bool| {
        let (builder, calls) = builder(8);
        let builder = builder.log_settings(|log| {
            log.research.whole_rows = whole_rows;
            log.epoch = Some(std::time::Duration::from_micros(500));
        });
        (builder.open(dir.path()).unwrap(), calls)
    };
    let (db, calls) = open(true);
    let mut session = db.session().unwrap();
    session.call(calls.fill, &()).unwrap().0.unwrap();
    for n in 0..3000i64 {
        session.call(calls.bump, &(n % SHOPS)).unwrap().0.unwrap();
    }
    drop(session);
    let digest = db.digest();
    db.close().unwrap();
    assert_eq!(open(false).0.digest(), digest);
}

#[test]
fn what_would_wait_for_itself_is_refused() {
    let dir = directory();
    let opened: Arc<OnceLock<Database>> = Arc::default();
    let (mut builder, calls) = builder(8);
    let inside = opened.clone();
    let asks = builder
        .procedure("asks", 1, move |_: &Transaction<'_>, _: i64| Ok(inside.get().map(refusals)));
    builder.on(asks, |(shop,): (i64,)| Partitions::of(shop));
    let db = builder.open(dir.path()).unwrap();
    assert!(opened.set(db.clone()).is_ok());
    let mut session = db.session().unwrap();
    session.call(calls.fill, &()).unwrap().0.unwrap();
    assert_eq!(refusals(&db), 0);
    session.call(asks, &1i64).unwrap().0.unwrap();
    assert_eq!(session.result::<Option<usize>>().unwrap(), Some(5));
    assert_eq!(db.post::<_, Option<usize>>(asks, &1i64).unwrap().wait().unwrap(), Some(5));
    assert_eq!(db.transact(|_| Ok(refusals(&db))).unwrap(), 5);
    // A snapshot that was opened outside may be read.
    let snapshot = db.open_snapshot();
    let read = || snapshot.read(|tx| Ok(count(tx, 1)?));
    assert_eq!(db.transact(|_| read()).unwrap(), 100);
}

#[test]
fn what_was_told_survives_power_cuts() {
    for seed in 0..24 {
        assert!(arriving::sales_survive(seed), "{seed}");
    }
}

/// An access outside of the stated partitions ends the call, whatever its body does with the abort,
/// at replay as well, with any number of partitions.
#[test]
fn strays_end_with_an_abort() {
    for partitions in [1, 8, 64] {
        let dir = directory();
        let (db, calls) = open(dir.path(), partitions);
        let mut session = db.session().unwrap();
        session.call(calls.fill, &()).unwrap().0.unwrap();
        let (outcome, ticket) = session.call(calls.stray, &(1i64, 2i64)).unwrap();
        assert_eq!(outcome, Err(Abort::OutsidePartitions));
        ticket.wait().unwrap();
        let posted = db.post::<_, i64>(calls.stray, &(1i64, 2i64)).unwrap().wait();
        assert!(matches!(posted, Err(Error::Aborted(Abort::OutsidePartitions))), "{posted:?}");
        let digest = db.digest();
        assert_eq!(db.transact(|tx| Ok(count(tx, 1)?)).unwrap(), 100);
        drop(session);
        db.close().unwrap();
        for partitions in [64, 2, 1] {
            let (db, _) = open(dir.path(), partitions);
            assert_eq!(db.digest(), digest);
        }
    }
}

/// A procedure that panics has aborted. Its caller is told, and replay goes on.
#[test]
fn panics_are_replayed() {
    let dir = directory();
    let (db, calls) = open(dir.path(), 8);
    let mut session = db.session().unwrap();
    session.call(calls.fill, &()).unwrap().0.unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| session.call(calls.fails, &3i64)));
    assert!(panicked.is_err());
    let posted = db.post::<_, ()>(calls.fails, &3i64).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| posted.wait())).is_err());
    // The partition is free, and the session goes on.
    assert_eq!(session.call(calls.bump, &3i64).unwrap().0, Ok(()));
    assert_eq!(session.result::<i64>().unwrap(), 501);
    let stats = db.stats();
    assert_eq!((stats.commits, stats.panics), (2, 2), "{stats:?}");
    drop(session);
    db.close().unwrap();
    let (db, _) = open(dir.path(), 8);
    assert_eq!(db.transact(|tx| Ok(count(tx, 3)?)).unwrap(), 501);
}

/// Time, random numbers and ids are the same at replay; a value that a record lacks and the call
/// needs is stated by the next record.
#[test]
fn what_is_drawn_is_the_same_at_replay() {
    let dir = directory();
    let (db, calls) = open(dir.path(), 8);
    let mut session = db.session().unwrap();
    session.call(calls.fill, &()).unwrap().0.unwrap();
    let mut ids = Vec::new();
    for n in 0..20i64 {
        match session.call(calls.mix, &(n % SHOPS, n)).unwrap().0 {
            Ok(()) => ids.push(session.result::<i64>().unwrap()),
            Err(abort) => assert_eq!((abort, n % 7), (Abort::User(REFUSED), 3)),
        }
    }
    // The first call has been logged again for its time, and again for its ids.
    assert_eq!(db.stats().conflicts, 2);
    drop(session);
    let digest = db.digest();
    db.close().unwrap();
    let (db, calls) = open(dir.path(), 8);
    assert_eq!(db.digest(), digest);
    let mut session = db.session().unwrap();
    session.call(calls.mix, &(1i64, 1i64)).unwrap().0.unwrap();
    assert!(!ids.contains(&session.result::<i64>().unwrap()), "ids are not given twice");
}

#[test]
fn closures_only_read() {
    let dir = directory();
    let (db, calls) = open(dir.path(), 8);
    db.session().unwrap().call(calls.fill, &()).unwrap().0.unwrap();
    let refused = db.transact(|tx| Ok(set(tx, 1, 5)?)).unwrap_err();
    assert!(matches!(refused, Error::Aborted(Abort::OnlyCalls)), "{refused}");
    assert!(refused.to_string().contains("procedure"));
    let swallowed = db.transact(|tx| {
        assert_eq!(tx.delete(STOCK, (1i64, 1i64)), Err(Abort::OnlyCalls));
        Ok(count(tx, 1)?)
    });
    assert_eq!(swallowed.unwrap(), 100);
    let all = db.transact(|tx| Ok(tx.scan(STOCK).rows()?.len())).unwrap();
    assert_eq!(all, SHOPS as usize);
}

#[test]
fn wrong_arguments_are_not_logged() {
    let dir = directory();
    let (db, calls) = open(dir.path(), 8);
    let mut session = db.session().unwrap();
    assert_eq!(session.call(calls.bump, &()).unwrap().0, Err(Abort::BadArguments));
    let posted = db.post::<_, i64>(calls.bump, &()).unwrap().wait();
    assert!(matches!(posted, Err(Error::Aborted(Abort::BadArguments))), "{posted:?}");
    drop(session);
    db.close().unwrap();
    let (db, _) = open(dir.path(), 8);
    assert_eq!(db.recovery().records, 0);
}

/// A call beyond the maximum of open calls is refused, and not logged.
#[test]
fn a_full_queue_logs_nothing() {
    let dir = directory();
    let (builder, calls) = builder(8);
    let db = builder.posted_calls(3).post_threads(0).open(dir.path()).unwrap();
    db.session().unwrap().call(calls.fill, &()).unwrap().0.unwrap();
    let post = |shop: i64| db.post::<_, i64>(calls.bump, &shop);
    // The calls of one shop wait for each other; the last call for none.
    let queued = [post(1).unwrap(), post(1).unwrap(), post(2).unwrap()];
    assert!(matches!(post(3), Err(Error::TooManyPosted(3))));
    while db.run_posted().unwrap() {}
    let results = queued.map(|call| call.wait().unwrap());
    assert_eq!(results, [501, 2506, 501]);
    db.close().unwrap();
    let (db, _) = open(dir.path(), 8);
    assert_eq!(db.recovery().records, 4);
}

/// Inside a transaction of the database no posted call is run, none is lost, and no seat is given
/// to another call.
#[test]
fn none_is_run_inside_a_transaction() {
    let dir = directory();
    let (builder, calls) = builder(8);
    let db = builder.post_threads(0).open(dir.path()).unwrap();
    db.session().unwrap().call(calls.fill, &()).unwrap().0.unwrap();
    let first = db.post::<_, i64>(calls.bump, &1i64).unwrap();
    let inside = db.try_transact(|_| Ok::<_, Abort>(db.run_posted())).unwrap().unwrap();
    assert!(matches!(inside, Err(Error::Misuse(_))), "{inside:?}");
    let second = db.post::<_, i64>(calls.bump, &1i64).unwrap();
    while db.run_posted().unwrap() {}
    assert_eq!([first.wait().unwrap(), second.wait().unwrap()], [501, 2506]);
}

/// While a checkpoint waits for a queued call no thread waits for the checkpoint: here the thread
/// that is to run the call.
#[test]
fn a_checkpoint_that_waits_is_not_waited_for() {
    let dir = directory();
    let (builder, calls) = builder(8);
    let builder = builder.post_threads(0).checkpoint_settings(|settings| settings.buffer_bytes = 1);
    let db = builder.open(dir.path()).unwrap();
    db.session().unwrap().call(calls.fill, &()).unwrap().0.unwrap();
    let queued = db.post::<_, i64>(calls.bump, &1i64).unwrap();
    std::thread::scope(|scope| {
        let checkpoint = scope.spawn(|| db.checkpoint());
        std::thread::sleep(Duration::from_millis(50));
        assert!(!checkpoint.is_finished());
        let worker = scope.spawn(|| {
            // Each call overwrites rows that the checkpoint has to keep.
            let mut session = db.session().unwrap();
            for _ in 0..3 {
                session.call(calls.bump, &2i64).unwrap().0.unwrap();
                drop(db.post::<_, i64>(calls.bump, &3i64).unwrap());
            }
            while db.run_posted().unwrap() {}
        });
        let began = Instant::now();
        while !worker.is_finished() && began.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let waits = !worker.is_finished();
        while waits && db.run_posted().unwrap() {}
        assert!(!waits, "it waits for room, and the checkpoint for it");
        worker.join().unwrap();
        checkpoint.join().unwrap().unwrap();
    });
    assert_eq!(queued.wait().unwrap(), 501);
}

/// A session's call waits for calls posted before, and is run behind them.
#[test]
fn calls_queue_behind_posted_ones() {
    let dir = directory();
    let (builder, calls) = builder(8);
    let db = builder.post_threads(0).open(dir.path()).unwrap();
    db.session().unwrap().call(calls.fill, &()).unwrap().0.unwrap();
    let posted: PostedCall<i64> = db.post(calls.bump, &1i64).unwrap();
    std::thread::scope(|scope| {
        let called = scope.spawn(|| {
            let mut session = db.session().unwrap();
            session.call(calls.bump, &1i64).unwrap().0.unwrap();
            session.result::<i64>().unwrap()
        });
        // Calls of other partitions go on meanwhile.
        let mut session = db.session().unwrap();
        session.call(calls.bump, &2i64).unwrap().0.unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!called.is_finished());
        assert!(db.run_posted().unwrap());
        assert_eq!(called.join().unwrap(), 2506);
    });
    assert_eq!(posted.wait().unwrap(), 501);
}

#[test]
fn a_failed_log_is_told() {
    let dir = directory();
    let device = FaultyDevice::new(FileDevice::shared());
    let faulty: Arc<dyn Device> = Arc::new(device.clone());
    let (builder, calls) = builder(8);
    let db = builder.log_settings(|log| log.device = Some(faulty)).open(dir.path()).unwrap();
    db.session().unwrap().call(calls.fill, &()).unwrap().1.wait().unwrap();
    device.arm(Fault::Write(0));
    let failed = db.post::<_, i64>(calls.bump, &1i64).unwrap().wait();
    assert!(matches!(failed, Err(Error::OutcomeUnknown)), "{failed:?}");
    let refused = db.post::<_, i64>(calls.bump, &1i64).unwrap_err();
    assert!(matches!(refused, Error::Poisoned(_)), "{refused:?}");
    let refused = db.session().unwrap().call(calls.bump, &1i64).unwrap_err();
    assert!(matches!(refused, Error::Poisoned(_)), "{refused:?}");
}

/// The protocol may change when the database is opened: the log is replayed by its own protocol.
#[test]
fn other_protocols_before_and_after() {
    let dir = directory();
    let mut digest = None;
    for protocol in [Protocol::Taurus, ARRIVAL, Protocol::Taurus, ARRIVAL] {
        let (builder, calls) = with_protocol(protocol, 8);
        let db = builder.open(dir.path()).unwrap();
        let mut session = db.session().unwrap();
        if let Some(digest) = digest {
            assert_eq!(db.digest(), digest, "{protocol:?}");
        } else {
            session.call(calls.fill, &()).unwrap().0.unwrap();
        }
        for n in 0..50i64 {
            let _ = session.call(calls.mix, &(n % SHOPS, n)).unwrap();
            let _ = session.call(calls.sell, &(1i64, 2i64, n)).unwrap();
        }
        drop(session);
        digest = Some(db.digest());
        db.close().unwrap();
    }
}

/// Strays are recognized by the spread of the tables: the spread may change only once nothing is to
/// be replayed.
#[test]
fn partitions_change_behind_a_checkpoint() {
    let dir = directory();
    let open = |spread: fn(Schema) -> Schema| {
        let mut builder = hyades::Database::builder()
            .protocol(ARRIVAL)
            .concurrency(PARTITIONED)
            .record(RecordKind::Command);
        let schema = Schema::new("rows").column("a", Type::I64).column("b", Type::I64);
        let rows = builder.table(spread(schema.primary_key(&["a", "b"])));
        let put = builder.procedure("put", 1, move |tx: &Transaction<'_>, (a, b): (i64, i64)| {
            tx.insert(rows, &[a.into(), b.into()]).map(drop)
        });
        builder.on(put, |(a,): (i64,)| Partitions::of(a));
        builder.open(dir.path()).map(|db| (db, put))
    };
    let (db, put) = open(|schema| schema.partition_by("a")).unwrap();
    db.session().unwrap().call(put, &(1i64, 2i64)).unwrap().0.unwrap();
    db.clone().close().unwrap();
    drop(db);
    let refused = open(|schema| schema.partition_by("b")).err().unwrap();
    assert!(matches!(refused, Error::Mismatch(_)), "{refused}");
    let named = "table \"rows\" was partitioned by \"a\", and is partitioned by \"b\" now";
    assert!(refused.to_string().contains(named), "{refused}");
    let (db, _) = open(|schema| schema.partition_by("a")).unwrap();
    assert_eq!(db.rows(), 1);
    db.checkpoint().unwrap();
    db.clone().close().unwrap();
    drop(db);
    let (db, put) = open(|schema| schema.partition_by("b")).unwrap();
    assert_eq!(db.rows(), 1);
    let (outcome, _) = db.session().unwrap().call(put, &(1i64, 3i64)).unwrap();
    assert_eq!(outcome, Err(Abort::OutsidePartitions));
}

#[test]
fn wrong_settings_are_refused() {
    let refused = |builder: hyades::Builder| builder.open("never made").err().unwrap().to_string();
    let data = refused(builder(8).0.record(RecordKind::Data));
    assert!(data.contains("set record to command"), "{data}");
    let silo = refused(builder(8).0.concurrency(Concurrency::Silo));
    assert!(silo.ends_with("or concurrency to partitioned"), "{silo}");
}
