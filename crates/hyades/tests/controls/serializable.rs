//! Histories of several threads that check invariants preserved only by serializability: write skew
//! over ranges and missing keys, races of inserts, descending scans with limits. Each history is
//! replayed.

use crate::common::directory;
use hyades::{
    Abort, Builder, Column, Concurrency, Database, Index, Protocol, RecordKind, Replay, Schema,
    Table, Transaction, Type, Value,
};
use hyades_schemes::{GSN, PHYSIOLOGICAL, PLOVER, POPLAR, SILO_R, TAURUS_2016, all_controls};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Abort code of a transaction that read a state of no serial order.
const BROKEN: i64 = -1;
const DUTY: Table = Table::nth(0);
const BOOKINGS: Table = Table::nth(1);
const KEYS: Table = Table::nth(2);
const NAMES: Table = Table::nth(3);
const NUMBERS: Table = Table::nth(4);
const ON: Column<bool> = Column::at(1);
const ROOM: Column<i64> = Column::at(1);
const BY_ROOM: Index = Index(0);

#[derive(Serialize, Deserialize, Clone, Copy)]
struct Draw {
    seed: u64,
    id: i64,
}

/// Write skew over a range: of three employees at least one is on duty.
fn duty(tx: &Transaction<'_>, draw: Draw) -> Result<i64, Abort> {
    let who = draw.seed as i64 % 3;
    let rows = tx.scan(DUTY).rows()?;
    let on = rows.iter().filter(|row| row.get(ON)).count();
    if on == 0 {
        return Err(Abort::User(BROKEN));
    }
    let leave = on > 1;
    tx.update(DUTY, who, &[ON.set(!leave)])?;
    Ok(on as i64)
}

/// A phantom in a secondary index: a room has at most one booking.
fn book(tx: &Transaction<'_>, draw: Draw) -> Result<i64, Abort> {
    let room = draw.seed as i64 % 4;
    let prefix = [Value::I64(room)];
    let rows = tx.scan_index(BOOKINGS, BY_ROOM).prefix(&prefix).rows()?;
    match rows {
        [] => {
            tx.insert(BOOKINGS, &[draw.id.into(), room.into()])?;
        }
        [row] if draw.seed.is_multiple_of(8) => {
            let Value::I64(id) = row.value(0) else { return Err(Abort::User(BROKEN)) };
            tx.delete(BOOKINGS, id)?;
        }
        // The booking moves to another room if the room is free.
        [row] => {
            let Value::I64(id) = row.value(0) else { return Err(Abort::User(BROKEN)) };
            let other = [Value::I64((room + 1) % 4)];
            if tx.scan_index(BOOKINGS, BY_ROOM).prefix(&other).rows()?.is_empty() {
                tx.update(BOOKINGS, id, &[ROOM.set((room + 1) % 4)])?;
            }
        }
        _ => return Err(Abort::User(BROKEN)),
    }
    Ok(rows.len() as i64)
}

/// Write skew over missing keys of a hash table: of a pair at most one exists.
fn pair(tx: &Transaction<'_>, draw: Draw) -> Result<i64, Abort> {
    let first = draw.seed as i64 % 3 * 2;
    let there = |id: i64| Ok::<_, Abort>(tx.get(KEYS, id)?.is_some());
    match (there(first)?, there(first + 1)?) {
        (true, true) => Err(Abort::User(BROKEN)),
        (false, false) => {
            let which = first + (draw.seed >> 20) as i64 % 2;
            tx.insert(KEYS, &[which.into(), draw.id.into()])?;
            Ok(0)
        }
        (left, _) => {
            tx.delete(KEYS, if left { first } else { first + 1 })?;
            Ok(1)
        }
    }
}

/// Race for a unique name. The winner checks that only its row has the name.
fn name(tx: &Transaction<'_>, draw: Draw) -> Result<i64, Abort> {
    let name = format!("name {}", draw.seed % 3);
    match tx.insert(NAMES, &[draw.id.into(), name[..].into()]) {
        Ok(_) => {}
        Err(Abort::DuplicateKey { index: Some(0), .. }) => {
            let by_name = [Value::Text(&name)];
            let rows = tx.scan_index(NAMES, Index(0)).prefix(&by_name).rows()?;
            let [row] = rows else { return Err(Abort::User(BROKEN)) };
            let Value::I64(id) = row.value(0) else { return Err(Abort::User(BROKEN)) };
            tx.delete(NAMES, id)?;
        }
        Err(abort) => return Err(abort),
    }
    let by_name = [Value::Text(&name)];
    let count = tx.scan_index(NAMES, Index(0)).prefix(&by_name).rows()?.len();
    if count > 1 { Err(Abort::User(BROKEN)) } else { Ok(count as i64) }
}

/// Inserts the number after the highest, found by a descending scan. Sometimes deletes the lowest.
fn number(tx: &Transaction<'_>, draw: Draw) -> Result<i64, Abort> {
    let at = |row: &hyades::Row<'_>| match row.value(0) {
        Value::I64(n) => n,
        _ => BROKEN,
    };
    let top = tx.scan(NUMBERS).descending().limit(2).rows()?;
    if let [first, second] = top
        && at(first) != at(second) + 1
    {
        return Err(Abort::User(BROKEN));
    }
    let next = top.first().map_or(0, at) + 1;
    tx.insert(NUMBERS, &[next.into(), draw.id.into()])?;
    if draw.seed.is_multiple_of(4) {
        let lowest = tx.scan(NUMBERS).limit(1).rows()?;
        tx.delete(NUMBERS, at(&lowest[0]))?;
    }
    Ok(next)
}

const NAMES_OF_ALL: [&str; 5] = ["duty", "book", "pair", "name", "number"];

fn builder(
    streams: usize,
    protocol: Protocol,
    concurrency: Concurrency,
    record: RecordKind,
) -> Builder {
    let mut builder = Database::builder()
        .protocol(protocol)
        .streams(streams)
        .concurrency(concurrency)
        .record(record)
        .log_settings(|log| {
            log.segment_bytes = 1 << 18;
            log.buffer_bytes = 1 << 16;
            log.research.anchor_interval_bytes = 4000;
            log.epoch = Some(Duration::from_millis(2));
        });
    let ids = |name: &str| Schema::new(name).column("id", Type::I64);
    builder.table(ids("duty").column("on", Type::Bool).primary_key(&["id"]));
    let bookings = ids("bookings").column("room", Type::I64).primary_key(&["id"]);
    builder.table(bookings.index("by_room", &["room"]));
    builder.table(ids("keys").column("by", Type::I64).primary_key(&["id"]).hash());
    let names = ids("names").column("name", Type::Text).primary_key(&["id"]);
    builder.table(names.unique("by_name", &["name"]));
    builder.table(ids("numbers").column("by", Type::I64).primary_key(&["id"]));
    builder.procedure("duty", 1, duty);
    builder.procedure("book", 1, book);
    builder.procedure("pair", 1, pair);
    builder.procedure("name", 1, name);
    builder.procedure("number", 1, number);
    builder
}

/// Runs the named procedures on three threads.
fn history(dir: &Path, which: &[&str], builder: impl Fn() -> Builder, what: &str) {
    let db = builder().open(dir).unwrap();
    db.try_transact(|tx| {
        for who in 0..3i64 {
            tx.insert(DUTY, &[who.into(), true.into()])?;
        }
        Ok::<_, Abort>(())
    })
    .unwrap()
    .unwrap();
    let ids: Vec<_> = which.iter().map(|name| db.prepare(name).unwrap()).collect();
    let next = AtomicU64::new(1);
    let start = Barrier::new(3);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (db, ids, next, start) = (&db, &ids, &next, &start);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(thread);
                let mut session = db.session().unwrap();
                start.wait();
                for _ in 0..1000 {
                    // Relaxed: the ids only need to be distinct.
                    let id = next.fetch_add(1, Ordering::Relaxed) as i64;
                    let draw = Draw { seed: rng.u64(..) >> 1, id };
                    let at = rng.usize(0..ids.len());
                    let (result, ticket) = session.call(ids[at], &draw).unwrap();
                    drop(ticket);
                    assert_eq!(result, Ok(()), "{what}: {}", which[at]);
                }
            });
        }
    });
    let digest = db.digest();
    drop(db);
    for (threads, replay) in [(2, Replay::Wavefront), (4, Replay::Wavefront), (3, Replay::Pools)] {
        let opened = builder().recovery_threads(threads).replay(replay).open(dir);
        let db = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(db.digest(), digest, "{what}: {threads} {replay:?}");
    }
}

/// Checks one kind of invariant, or all at once, under all combinations.
fn under_everything(which: &[&str]) {
    for concurrency in all_controls() {
        for record in [RecordKind::Data, RecordKind::Command, RecordKind::Adaptive] {
            for (protocol, streams) in [
                (Protocol::Serial, 1),
                (Protocol::Taurus, 4),
                (TAURUS_2016, 4),
                (SILO_R, 3),
                (GSN, 3),
                (PLOVER, 3),
                (POPLAR, 3),
                (PHYSIOLOGICAL, 1),
            ] {
                let takes =
                    record == RecordKind::Data || concurrency.takes_commands_under(protocol);
                if !concurrency.runs_under(protocol) || !takes {
                    continue;
                }
                let what = format!("{concurrency:?} {record:?} {protocol:?}");
                let dir = directory();
                history(
                    dir.path(),
                    which,
                    || builder(streams, protocol, concurrency, record),
                    &what,
                );
            }
        }
    }
}

#[test]
fn no_write_skew_over_a_range() {
    under_everything(&["duty"]);
}

#[test]
fn no_phantoms_in_a_secondary_index() {
    under_everything(&["book"]);
}

#[test]
fn no_write_skew_over_missing_keys() {
    under_everything(&["pair"]);
}

#[test]
fn a_unique_name_is_given_once() {
    under_everything(&["name"]);
}

#[test]
fn a_descending_scan_with_a_limit_sees_the_highest() {
    under_everything(&["number"]);
}

#[test]
fn all_invariants_hold_at_once() {
    under_everything(&NAMES_OF_ALL);
}

/// Promise: of concurrent inserts with the same primary key exactly one succeeds.
#[test]
fn of_inserts_with_one_key_one_wins() {
    for concurrency in all_controls() {
        for table in [KEYS, NUMBERS] {
            let dir = directory();
            let db = builder(4, Protocol::Taurus, concurrency, RecordKind::Data)
                .open(dir.path())
                .unwrap();
            let won = AtomicU64::new(0);
            let start = Barrier::new(3);
            std::thread::scope(|scope| {
                for thread in 0..3i64 {
                    let (db, won, start) = (&db, &won, &start);
                    scope.spawn(move || {
                        let mut session = db.session().unwrap();
                        start.wait();
                        for id in 0..1000i64 {
                            let row = [id.into(), thread.into()];
                            let (result, ticket) =
                                session.try_submit(|tx| tx.insert(table, &row)).unwrap();
                            drop(ticket);
                            match result {
                                Ok(_) => drop(won.fetch_add(1, Ordering::Relaxed)),
                                Err(Abort::DuplicateKey { index: None, .. }) => {}
                                Err(abort) => panic!("{abort}"),
                            }
                        }
                    });
                }
            });
            assert_eq!(won.load(Ordering::Relaxed), 1000);
            assert_eq!(db.rows(), 1000);
        }
    }
}
