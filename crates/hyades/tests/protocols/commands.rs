//! Promise: commands have the same effects at replay as when they ran; large and undone
//! transactions are atomic.

use crate::common::{combinations, directory, power_cut};
use hyades::{
    Abort, Builder, Column, Concurrency, Database, Error, Index, Protocol, RecordKind, Replay,
    Schema, Table, Transaction, Type,
};
use hyades_platform::device::Device;
use hyades_schemes::{TAURUS_2016, all_controls};
use serde::{Deserialize, Serialize};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

const ITEMS: Table = Table::nth(0);
const LINES: Table = Table::nth(1);
const PLAIN: Table = Table::nth(2);
const SHARED: Table = Table::nth(3);
const GROUP: Column<i64> = Column::at(1);
const NAME: Column<str> = Column::at(2);
const BY_GROUP: Index = Index(0);

fn builder(
    (protocol, streams): (Protocol, usize),
    concurrency: Concurrency,
    record: RecordKind,
    device: Option<Arc<dyn Device>>,
) -> Builder {
    let mut builder = Database::builder()
        .protocol(protocol)
        .streams(streams)
        .concurrency(concurrency)
        .record(record)
        .log_settings(|log| {
            log.device = device;
            log.segment_bytes = 1 << 18;
            log.buffer_bytes = 1 << 15;
            log.research.anchor_interval_bytes = 2000;
        });
    builder.table(
        Schema::new("items")
            .column("id", Type::I64)
            .column("group", Type::I64)
            .column("name", Type::Text)
            .primary_key(&["id"])
            .index("by_group", &["group"])
            .unique("by_name", &["name"]),
    );
    builder.table(Schema::new("lines").column("what", Type::I64).column("text", Type::Text));
    builder.table(
        Schema::new("plain")
            .column("id", Type::I64)
            .column("count", Type::I64)
            .column("text", Type::Text)
            .primary_key(&["id"])
            .hash(),
    );
    builder.table(
        Schema::new("shared")
            .column("id", Type::I64)
            .column("group", Type::I64)
            .primary_key(&["id"])
            .hash()
            .index("by_group", &["group"]),
    );
    builder.procedure("chance", 1, chance);
    builder.procedure("take_back", 1, take_back);
    builder.procedure("bulk", 1, bulk);
    builder.procedure("hot", 1, hot);
    builder.procedure("blind", 1, blind);
    builder
}

/// Reopens in every way and compares digests.
fn same_after_reopening(
    dir: &Path,
    layout: (Protocol, usize),
    concurrency: Concurrency,
    record: RecordKind,
    digest: u64,
) {
    for (threads, replay) in
        [(1, Replay::Serial), (2, Replay::Wavefront), (4, Replay::Wavefront), (3, Replay::Pools)]
    {
        let builder = builder(layout, concurrency, record, None);
        let opened = builder.recovery_threads(threads).replay(replay).open(dir);
        let what = format!("{layout:?} {concurrency:?} {record:?}: {threads} {replay:?}");
        let db = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(db.digest(), digest, "{what}");
    }
}

const LAYOUTS: [(Protocol, usize); 3] =
    [(Protocol::Serial, 1), (Protocol::Taurus, 4), (TAURUS_2016, 4)];

fn controls(protocol: Protocol) -> impl Iterator<Item = Concurrency> {
    all_controls().filter(move |control| control.takes_commands_under(protocol))
}

/// Runs `body` on two threads, each with a session of its own.
fn on_two_threads(db: &Database, body: impl Fn(&mut hyades::Session, u64) + Sync) {
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let body = &body;
            scope.spawn(move || body(&mut db.session().unwrap(), thread));
        }
    });
}

/// Uses time, random numbers and row ids.
fn chance(tx: &Transaction<'_>, id: i64) -> Result<(i64, u64, u64), Abort> {
    let (time, drawn) = (tx.now_us(), tx.random());
    assert_eq!(tx.now_us(), time, "a transaction has one time");
    let text = format!("{drawn} {}", tx.random());
    let first = tx.insert(LINES, &[time.into(), text[..].into()])?;
    let second = tx.insert(LINES, &[id.into(), "second"[..].into()])?;
    if drawn.is_multiple_of(3) {
        tx.delete(LINES, first)?;
    }
    Ok((time, drawn, second))
}

#[test]
fn time_randomness_and_row_ids_repeat_at_replay() {
    for layout in LAYOUTS {
        for concurrency in controls(layout.0) {
            let dir = directory();
            let db =
                builder(layout, concurrency, RecordKind::Command, None).open(dir.path()).unwrap();
            let id = db.prepare("chance").unwrap();
            let seen = std::sync::Mutex::new(Vec::new());
            on_two_threads(&db, |session, thread| {
                for n in 0..80 {
                    let (result, ticket) = session.call(id, &(thread as i64 * 1000 + n)).unwrap();
                    result.unwrap();
                    drop(ticket);
                    seen.lock().unwrap().push(session.result::<(i64, u64, u64)>().unwrap());
                }
            });
            let digest = db.digest();
            drop(db);
            let seen = seen.into_inner().unwrap();
            let mut drawn: Vec<u64> = seen.iter().map(|s| s.1).collect();
            drawn.sort_unstable();
            drawn.dedup();
            assert_eq!(drawn.len(), 160, "every transaction has its own numbers");
            same_after_reopening(dir.path(), layout, concurrency, RecordKind::Command, digest);
            let db =
                builder(layout, concurrency, RecordKind::Command, None).open(dir.path()).unwrap();
            let fresh = db.try_transact(|tx| tx.insert(LINES, &[0i64.into(), "new"[..].into()]));
            let fresh = fresh.unwrap().unwrap();
            assert!(seen.iter().all(|s| s.2 < fresh), "row ids are not given out again");
            for (_, _, row) in seen {
                let found = db.try_transact(|tx| Ok::<_, Abort>(tx.get(LINES, row)?.is_some()));
                assert!(found.unwrap().unwrap(), "row {row} has another id");
            }
        }
    }
}

#[derive(Serialize, Deserialize, Clone, Copy)]
struct TakeBack {
    own: i64,
    shared: i64,
    keep: bool,
}

/// Inserts or replaces a shared row and undoes it, then writes a row of its own. Such commands have
/// only reads in common, so replay runs them in parallel.
fn take_back(tx: &Transaction<'_>, t: TakeBack) -> Result<(), Abort> {
    let savepoint = tx.savepoint();
    let there = tx.upsert(SHARED, &[t.shared.into(), (t.own % 2).into()])?;
    if t.keep && there {
        tx.delete(SHARED, t.shared)?;
    } else if !t.keep {
        tx.rollback_to(savepoint)?;
    }
    tx.upsert(PLAIN, &[t.own.into(), i64::from(there).into(), "own"[..].into()])?;
    Ok(())
}

#[test]
fn what_is_put_in_place_and_taken_back_by_many_at_once_is_no_conflict_at_replay() {
    for layout in LAYOUTS {
        for concurrency in controls(layout.0) {
            for keep in [0, 20] {
                let dir = directory();
                let opened =
                    builder(layout, concurrency, RecordKind::Command, None).open(dir.path());
                let db = opened.unwrap();
                let id = db.prepare("take_back").unwrap();
                on_two_threads(&db, |session, thread| {
                    let mut rng = fastrand::Rng::with_seed(thread + keep);
                    for n in 0..800 {
                        let call = TakeBack {
                            own: 1000 + thread as i64 * 10 + n % 10,
                            shared: rng.i64(0..3),
                            keep: rng.u64(0..100) < keep,
                        };
                        let (result, ticket) = session.call(id, &call).unwrap();
                        result.unwrap();
                        drop(ticket);
                    }
                });
                let digest = db.digest();
                drop(db);
                same_after_reopening(dir.path(), layout, concurrency, RecordKind::Command, digest);
            }
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Bulk {
    first: i64,
    rows: i64,
    text: String,
    give_up: bool,
}

fn bulk(tx: &Transaction<'_>, bulk: Bulk) -> Result<i64, Abort> {
    for id in bulk.first..bulk.first + bulk.rows {
        let name = format!("{id} {}", bulk.text);
        tx.upsert(ITEMS, &[id.into(), (id % 5).into(), name[..].into()])?;
    }
    if bulk.give_up { Err(Abort::User(bulk.rows)) } else { Ok(bulk.rows) }
}

/// The log buffer has 32 KiB, and a frame at most 8 KiB.
#[test]
fn a_transaction_larger_than_a_log_buffer_is_whole_or_not_there() {
    for layout in LAYOUTS {
        for concurrency in controls(layout.0) {
            for record in [RecordKind::Data, RecordKind::Command, RecordKind::Adaptive] {
                let dir = directory();
                let device = power_cut(5);
                let held = Some(Arc::new(device.clone()) as Arc<dyn Device>);
                let db = builder(layout, concurrency, record, held).open(dir.path()).unwrap();
                on_two_threads(&db, |_, thread| {
                    let first = thread as i64 * 1000;
                    for n in 0..3 {
                        let text = "long ".repeat(8000 + n);
                        let large = Bulk { first, rows: 3, text, give_up: n == 1 };
                        match db.call::<_, i64>("bulk", &large) {
                            Ok(3) => assert_ne!(n, 1),
                            Err(Error::Aborted(Abort::User(3))) => assert_eq!(n, 1),
                            other => panic!("{other:?}"),
                        }
                        let many = Bulk {
                            first: first + 10,
                            rows: 300,
                            text: "x".into(),
                            give_up: n == 1,
                        };
                        let ended = db.call::<_, i64>("bulk", &many);
                        assert!(matches!(ended, Ok(_) | Err(Error::Aborted(Abort::User(_)))));
                    }
                    // A closure is always logged as data.
                    let text = "closure ".repeat(20_000);
                    let row = [first.into(), text[..].into()];
                    db.try_transact(|tx| tx.insert(LINES, &row)).unwrap().unwrap();
                });
                let digest = db.digest();
                device.cut();
                drop(db);
                same_after_reopening(dir.path(), layout, concurrency, record, digest);
            }
        }
    }
}

#[test]
fn rows_grow_and_shrink() {
    for concurrency in controls(Protocol::Taurus) {
        let dir = directory();
        let layout = (Protocol::Taurus, 3);
        let db = builder(layout, concurrency, RecordKind::Data, None).open(dir.path()).unwrap();
        let name = |id: i64, len: usize| format!("{id}-{}", "y".repeat(len));
        on_two_threads(&db, |session, thread| {
            let id = thread as i64;
            for (n, len) in [0, 100_000, 3, 5000, 1, 300_000, 0, 64, 63].into_iter().enumerate() {
                let text = name(id, len);
                let result = session.try_submit(|tx| {
                    if !tx.update(ITEMS, id, &[NAME.set(&text[..]), GROUP.set(n as i64)])? {
                        tx.insert(ITEMS, &[id.into(), 0i64.into(), text[..].into()])?;
                    }
                    // A transaction reads its own write.
                    assert_eq!(tx.get(ITEMS, id)?.unwrap().get(NAME), text);
                    Ok::<_, Abort>(())
                });
                let (result, ticket) = result.unwrap();
                result.unwrap();
                ticket.wait().unwrap();
            }
        });
        let digest = db.digest();
        drop(db);
        same_after_reopening(dir.path(), layout, concurrency, RecordKind::Data, digest);
        let db = builder(layout, concurrency, RecordKind::Data, None).open(dir.path()).unwrap();
        db.try_transact(|tx| {
            for id in 0..2 {
                let row = tx.get(ITEMS, id)?.unwrap();
                assert_eq!((row.get(NAME), row.get(GROUP)), (&name(id, 63)[..], 8));
            }
            Ok::<_, Abort>(())
        })
        .unwrap()
        .unwrap();
    }
}

/// Row 0 is contended, the others are not. The text keeps a data record longer than the command.
fn hot(tx: &Transaction<'_>, cold: i64) -> Result<(), Abort> {
    for id in [0, cold] {
        let row = tx.get(PLAIN, id)?.ok_or(Abort::User(id))?;
        let count = row.get(Column::<i64>::at(1)) + 1;
        let text = format!("row {id} has count {count} {}", "z".repeat(100));
        tx.upsert(PLAIN, &[id.into(), count.into(), text[..].into()])?;
    }
    Ok(())
}

/// Overwrites row 0, which all calls do.
fn blind(tx: &Transaction<'_>, cold: i64) -> Result<(), Abort> {
    let row = tx.get(PLAIN, cold)?.ok_or(Abort::User(cold))?;
    let text = format!("{} {}", row.get(Column::<i64>::at(1)), "z".repeat(100));
    tx.overwrite(PLAIN, &[0i64.into(), cold.into(), text[..].into()])
}

/// Counts the records in a closed log: (data, command).
fn kinds(dir: &Path) -> (u64, u64) {
    let options = hyades_wal::LogOptions::new(vec![dir.to_owned()], 4);
    let (mut data, mut commands) = (0, 0);
    for mut reader in hyades_wal::open(options).unwrap().readers() {
        while let Some(chunk) = reader.next_chunk().unwrap() {
            for frame in chunk.frames().filter(|f| f.kind == hyades_wal::FrameKind::Record) {
                // docs/format.md: the lowest bit of the first byte marks a command.
                if frame.payload[0] & 1 == 1 { commands += 1 } else { data += 1 }
            }
        }
    }
    (data, commands)
}

/// Has two threads call a procedure 600 times in all, after 201 rows were inserted. Returns the
/// numbers of data and command records.
fn calls_of(procedure: &str, protocol: Protocol, concurrency: Concurrency) -> (u64, u64) {
    let layout = (protocol, 4);
    let dir = directory();
    let db = builder(layout, concurrency, RecordKind::Adaptive, None).open(dir.path()).unwrap();
    let id = db.prepare(procedure).unwrap();
    let mut rows = db.session().unwrap();
    for id in 0..=200i64 {
        let row = [id.into(), 0i64.into(), ""[..].into()];
        let (result, _ticket) = rows.try_submit(|tx| tx.insert(PLAIN, &row)).unwrap();
        result.unwrap();
    }
    on_two_threads(&db, |session, thread| {
        for n in 0..300 {
            let cold = 1 + thread as i64 + 2 * (n % 100);
            let (result, ticket) = session.call(id, &cold).unwrap();
            result.unwrap();
            drop(ticket);
        }
    });
    let digest = db.digest();
    db.close().unwrap();
    let (data, commands) = kinds(dir.path());
    assert_eq!(data + commands, 201 + 600);
    same_after_reopening(dir.path(), layout, concurrency, RecordKind::Adaptive, digest);
    (data, commands)
}

#[test]
fn adaptive_breaks_the_chain_of_a_hot_row() {
    for concurrency in controls(Protocol::Taurus) {
        let (data, commands) = calls_of("hot", Protocol::Taurus, concurrency);
        // All commands form one chain through row 0. Replay by one thread never waits for a chain.
        // With more threads it would, so the adaptive mode soon logs data records.
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        assert!(commands >= 48, "{data} data records, {commands} commands");
        assert_eq!(data > 201 + 300, threads > 1, "{data} data records, {commands} commands");
    }
}

/// Under Taurus of 2016 the length of a chain counts: a data record is the first of the next one.
#[test]
fn adaptive_breaks_chains_of_reads_and_of_blind_writes() {
    for concurrency in controls(TAURUS_2016) {
        for procedure in ["hot", "blind"] {
            let (data, commands) = calls_of(procedure, TAURUS_2016, concurrency);
            assert!(commands >= 48, "{procedure}: {data} data records, {commands} commands");
            assert!(data > 201, "{procedure}: {data} data records, {commands} commands");
        }
    }
}

#[test]
fn a_body_that_panics_releases_its_locks_and_leaves_nothing() {
    for concurrency in controls(Protocol::Taurus) {
        let dir = directory();
        let layout = (Protocol::Taurus, 2);
        let mut builder = builder(layout, concurrency, RecordKind::Command, None);
        builder.procedure("panics", 1, |tx: &Transaction<'_>, id: i64| -> Result<(), Abort> {
            tx.upsert(ITEMS, &[id.into(), 9i64.into(), "panic"[..].into()])?;
            panic!("inside a procedure");
        });
        let db = builder.open(dir.path()).unwrap();
        let row = |name: &'static str| [1i64.into(), 2i64.into(), name[..].into()];
        db.try_transact(|tx| tx.insert(ITEMS, &row("one"))).unwrap().unwrap();
        let digest = db.digest();
        let mut session = db.session().unwrap();
        for _ in 0..3 {
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                let _ = session.try_submit(|tx| -> Result<(), Abort> {
                    tx.update(ITEMS, 1i64, &[GROUP.set(77i64)])?;
                    tx.insert(ITEMS, &[2i64.into(), 2i64.into(), "two"[..].into()])?;
                    tx.scan_index(ITEMS, BY_GROUP).rows()?;
                    panic!("inside a closure");
                });
            }));
            assert!(panicked.is_err());
            let panicked = catch_unwind(AssertUnwindSafe(|| db.call::<_, ()>("panics", &1i64)));
            assert!(panicked.is_err());
        }
        assert_eq!(db.digest(), digest);
        // The same session, another session and the database's own session all continue with the
        // same rows.
        let update = |tx: &Transaction<'_>| tx.update(ITEMS, 1i64, &[GROUP.set(3i64)]);
        let (result, ticket) = session.try_submit(update).unwrap();
        assert_eq!(result, Ok(true));
        ticket.wait().unwrap();
        assert_eq!(db.try_transact(update).unwrap(), Ok(true));
        let two = [2i64.into(), 2i64.into(), "two"[..].into()];
        db.try_transact(|tx| tx.insert(ITEMS, &two)).unwrap().unwrap();
        db.close().unwrap();
    }
}

#[test]
fn every_combination_takes_back_in_order() {
    // Shorter than the test above, but over all combinations and recovered after a power cut.
    for (seed, c) in combinations().into_iter().enumerate() {
        let dir = directory();
        let device = power_cut(seed as u64);
        let layout = (c.protocol, c.streams);
        let held = Some(Arc::new(device.clone()) as Arc<dyn Device>);
        let db = builder(layout, c.concurrency, c.record, held).open(dir.path()).unwrap();
        let id = db.prepare("take_back").unwrap();
        on_two_threads(&db, |session, thread| {
            let mut rng = fastrand::Rng::with_seed(seed as u64 * 2 + thread);
            for n in 0..60 {
                let own = 1000 + n % 4 + 4 * rng.i64(0..2);
                let call = TakeBack { own, shared: rng.i64(0..2), keep: rng.bool() };
                let (result, ticket) = session.call(id, &call).unwrap();
                result.unwrap();
                drop(ticket);
            }
        });
        db.log().unwrap().flush().unwrap();
        let digest = db.digest();
        device.cut();
        drop(db);
        let opened = builder(layout, c.concurrency, c.record, None).recovery_threads(3);
        assert_eq!(opened.open(dir.path()).unwrap().digest(), digest, "{c:?}");
    }
}
