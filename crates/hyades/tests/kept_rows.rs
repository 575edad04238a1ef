//! Promise: deleted rows held by a snapshot are out of the way of readers of the present, are in
//! the snapshot in every way of reading, and count as its memory.
#![allow(missing_docs)]

mod common;
use common::directory;
use common::grouped::{BY_GROUP, COUNT, GROUP, ID, ROWS, TEXT, pairs, row, schema, streams, text};
use hyades::{
    Abort, Column, Columns, Concurrency, Database, Error, Index, Protocol, Row, Schema, Session,
    Snapshot, Table, Transaction, Type,
};
use hyades_platform::resident::resident_bytes;
use hyades_schemes::all_controls;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The same rows under text keys, which have no fixed length.
const WORDS: Table = Table::nth(1);
const WORD: Column<str> = Column::at(0);
const CLASS: Column<str> = Column::at(1);
const NUMBER: Column<i64> = Column::at(2);
const BY_CLASS: Index = Index(0);

const TAURUS: (Protocol, Concurrency) = (Protocol::Taurus, Concurrency::Silo);

fn open_of(dir: &std::path::Path, pair: (Protocol, Concurrency), hash: bool) -> Database {
    let mut builder = Database::builder()
        .protocol(pair.0)
        .concurrency(pair.1)
        .streams(streams(pair.0))
        .snapshots(|limits| limits.memory = 32 << 20)
        .log_settings(|log| log.epoch = Some(Duration::from_millis(1)));
    builder.table(schema(hash));
    let words = Schema::new("words")
        .column("word", Type::Text)
        .column("class", Type::Text)
        .column("number", Type::I64)
        .primary_key(&["word"])
        .index("by_class", &["class"]);
    builder.table(words);
    builder.open(dir).unwrap()
}

fn word(id: i64) -> String {
    format!("{}{}{id}", "\0".repeat(id as usize % 3), "ab".repeat(id as usize % 7))
}

fn class(group: i64) -> String {
    "c".repeat(group as usize + 1)
}

/// Group and count of each row.
type Content = BTreeMap<i64, (i64, i64)>;

/// Lets epochs pass, and lets the session sweep its garbage.
fn sweep(session: &mut Session) {
    for _ in 0..4 {
        std::thread::sleep(Duration::from_millis(2));
        session.free_unused();
    }
}

fn put(tx: &Transaction<'_>, id: i64, (group, count): (i64, i64)) -> Result<(), Abort> {
    tx.overwrite(ROWS, &[id.into(), group.into(), "".into(), count.into()])?;
    let (word, class) = (word(id), class(group));
    tx.overwrite(WORDS, &[word[..].into(), class[..].into(), id.into()])
}

fn delete(tx: &Transaction<'_>, id: i64) -> Result<(), Abort> {
    tx.delete(ROWS, id)?;
    tx.delete(WORDS, &*word(id)).map(drop)
}

fn ids(rows: &[Row<'_>]) -> Vec<i64> {
    rows.iter().map(|row| row.get(ID)).collect()
}

/// Checks all rows with ids below `keys` in a snapshot.
fn check(snapshot: &Snapshot, model: &Content, keys: i64, hash: bool) {
    let (mut scanned, mut words) = (Content::new(), Vec::new());
    let count = snapshot.for_each(ROWS, Columns::ALL, |row| {
        let before = scanned.insert(row.get(ID), (row.get(GROUP), row.get(COUNT)));
        assert_eq!(before, None, "a walk visits a row once");
    });
    assert_eq!(count.unwrap(), model.len() as u64);
    assert_eq!(&scanned, model, "a walk");
    snapshot.for_each(WORDS, WORD.only(), |row| words.push(row.get(WORD).to_string())).unwrap();
    let mut expected: Vec<String> = model.keys().map(|id| word(*id)).collect();
    expected.sort();
    assert_eq!(words, expected, "a walk by text keys");
    snapshot.read(|tx| Ok(check_reads(tx, model, keys, hash)?)).unwrap();
}

fn check_reads(tx: &Transaction<'_>, model: &Content, keys: i64, hash: bool) -> Result<(), Abort> {
    for id in 0..keys {
        let found = tx.get(ROWS, id)?.map(|row| (row.get(GROUP), row.get(COUNT)));
        assert_eq!(found, model.get(&id).copied(), "row {id}");
        let found = tx.get(WORDS, &*word(id))?.map(|row| row.get(CLASS).to_string());
        assert_eq!(found, model.get(&id).map(|row| class(row.0)), "word {id}");
    }
    let (from, to) = (keys / 4, keys - keys / 4);
    if !hash {
        let mut inside: Vec<i64> = model.range(from..to).map(|(id, _)| *id).collect();
        let (lower, upper) = ([from.into()], [to.into()]);
        let scan = || tx.scan(ROWS).from(&lower).before(&upper);
        assert_eq!(ids(scan().rows()?), inside, "a scan");
        let some = inside.len() / 2;
        assert_eq!(ids(scan().limit(some.max(1)).rows()?), inside[..some.max(1).min(inside.len())]);
        inside.reverse();
        assert_eq!(ids(scan().descending().rows()?), inside, "a scan downwards");
        let first = some.max(1).min(inside.len());
        assert_eq!(ids(scan().descending().limit(some.max(1)).rows()?), inside[..first]);
    }
    let mut all: Vec<(i64, i64)> = model.iter().map(|(id, row)| (row.0, *id)).collect();
    all.sort();
    let group_and_id = |row: &Row<'_>| (row.get(GROUP), row.get(ID));
    let found = tx.scan_index(ROWS, BY_GROUP).rows()?;
    assert_eq!(found.iter().map(group_and_id).collect::<Vec<_>>(), all, "an index");
    let by_class = tx.scan_index(WORDS, BY_CLASS).rows()?;
    assert_eq!(by_class.len(), all.len(), "an index of text");
    assert!(by_class.iter().all(|row| model.contains_key(&row.get(NUMBER))));
    all.reverse();
    let found = tx.scan_index(ROWS, BY_GROUP).descending().rows()?;
    assert_eq!(found.iter().map(group_and_id).collect::<Vec<_>>(), all, "an index downwards");
    let of_group = tx.scan_index(ROWS, BY_GROUP).prefix(&[1i64.into()]).rows()?.len();
    assert_eq!(of_group, all.iter().filter(|(group, _)| *group == 1).count());
    Ok(())
}

/// Writes something, to both tables and to the model. An aborted transaction leaves the model.
fn write(session: &mut Session, random: &mut fastrand::Rng, model: &mut Content, keys: i64) {
    let id = random.i64(0..keys);
    let content = (random.i64(0..3), random.i64(0..100));
    let kind = random.u8(0..8);
    let was = model.get(&id).copied();
    let body = |tx: &Transaction<'_>| {
        match kind {
            0..=2 => put(tx, id, content)?,
            3 | 4 => delete(tx, id)?,
            5 => {
                delete(tx, id)?;
                put(tx, id, content)?;
            }
            6 => {
                put(tx, id, content)?;
                delete(tx, id)?;
            }
            _ => {
                let change = if was.is_some() { delete(tx, id) } else { put(tx, id, content) };
                change?;
                return Err(Abort::User(1));
            }
        }
        Ok(())
    };
    match session.try_submit(body).unwrap().0 {
        Ok(()) if matches!(kind, 3 | 4 | 6) => drop(model.remove(&id)),
        Ok(()) => drop(model.insert(id, content)),
        Err(abort) => assert_eq!(abort, Abort::User(1)),
    }
}

/// Random writes and aborts, snapshots opened and closed, and sweeps, at any time.
fn walk(pair: (Protocol, Concurrency), hash: bool, seed: u64, steps: usize) {
    const KEYS: i64 = 60;
    let (dir, mut random) = (directory(), fastrand::Rng::with_seed(seed));
    let db = open_of(dir.path(), pair, hash);
    let mut session = db.session().unwrap();
    let (mut model, mut open) = (Content::new(), Vec::<(Snapshot, Content)>::new());
    for _ in 0..steps {
        match random.u8(0..100) {
            0..4 if open.len() < 5 => open.push((db.open_snapshot(), model.clone())),
            4..7 if !open.is_empty() => drop(open.remove(random.usize(..open.len()))),
            7..9 => sweep(&mut session),
            9..11 if !open.is_empty() => {
                let (snapshot, was) = &open[random.usize(..open.len())];
                check(snapshot, was, KEYS, hash);
            }
            _ => write(&mut session, &mut random, &mut model, KEYS),
        }
    }
    sweep(&mut session);
    while let Some((snapshot, was)) = open.pop() {
        check(&snapshot, &was, KEYS, hash);
        drop(snapshot);
        sweep(&mut session);
    }
    check(&db.open_snapshot(), &model, KEYS, hash);
    until_garbage_is_gone(&db, &mut session);
    assert!(db.stats().snapshot_bytes <= 64 << 10, "{}", db.stats().snapshot_bytes);
}

fn until_garbage_is_gone(db: &Database, session: &mut Session) {
    let until = Instant::now() + Duration::from_secs(30);
    while db.stats().garbage > 0 {
        assert!(Instant::now() < until, "{} items are left", db.stats().garbage);
        sweep(session);
    }
}

#[test]
fn each_snapshot_stays_as_it_was_under_every_pair() {
    for (seed, pair) in pairs().enumerate() {
        for hash in [false, true] {
            walk(pair, hash, seed as u64, 400);
        }
    }
}

#[test]
fn each_snapshot_stays_as_it_was_for_long() {
    let controls = all_controls().filter(|control| control.runs_under(Protocol::None));
    for (seed, control) in controls.enumerate() {
        walk((Protocol::None, control), false, 100 + seed as u64, 4_000);
    }
}

/// Rows that leave the index while a snapshot is read are found once, wherever the rows are.
#[test]
fn rows_that_are_moved_during_a_scan_are_in_it() {
    const COUNT: i64 = 3_000;
    for pair in [TAURUS, (Protocol::Taurus, Concurrency::Hekaton)] {
        let dir = directory();
        let (db, over) = (open_of(dir.path(), pair, false), AtomicBool::new(false));
        let mut session = db.session().unwrap();
        for round in 0..5 {
            for id in 0..COUNT {
                session.try_submit(|tx| put(tx, id, (id % 3, round))).unwrap().0.unwrap();
            }
            let (snapshot, session) = (db.open_snapshot(), &mut session);
            over.store(false, Ordering::Relaxed);
            std::thread::scope(|scope| {
                let over = &over;
                scope.spawn(move || {
                    for id in 0..COUNT {
                        session.try_submit(|tx| delete(tx, id)).unwrap().0.unwrap();
                    }
                    sweep(session);
                    over.store(true, Ordering::Relaxed);
                });
                let held: Vec<i64> = (0..COUNT).collect();
                let back: Vec<i64> = held.iter().rev().copied().collect();
                while !over.load(Ordering::Relaxed) {
                    let read = |tx: &Transaction<'_>| {
                        assert!(ids(tx.scan(ROWS).columns(ID.only()).rows()?) == held);
                        let down = tx.scan(ROWS).descending().columns(ID.only()).rows()?;
                        assert!(ids(down) == back);
                        let grouped = tx.scan_index(ROWS, BY_GROUP).rows()?;
                        assert_eq!(grouped.len() as i64, COUNT);
                        Ok(())
                    };
                    snapshot.read(read).unwrap();
                    let mut walked = Vec::new();
                    snapshot.for_each(ROWS, ID.only(), |row| walked.push(row.get(ID))).unwrap();
                    assert!(walked == held);
                }
            });
        }
    }
}

/// Kept rows are memory of the snapshots: the oldest ends, and its rows are freed.
#[test]
fn a_snapshot_ends_when_deleted_rows_take_too_much_memory() {
    const COUNT: i64 = 60_000;
    let dir = directory();
    let db = open_of(dir.path(), (Protocol::None, Concurrency::Silo), false);
    let mut session = db.session().unwrap();
    let text = text(900);
    for id in 0..COUNT {
        session.try_submit(|tx| tx.overwrite(ROWS, &row(id, 0, &text))).unwrap().0.unwrap();
    }
    let first = db.open_snapshot();
    for id in 0..COUNT / 2 {
        session.try_submit(|tx| tx.delete(ROWS, id)).unwrap().0.unwrap();
    }
    sweep(&mut session);
    assert_eq!(db.stats().snapshots_ended, 1, "it holds about 27 MB of versions, and of rows");
    let error = first.read(|tx| Ok(tx.get(ROWS, 0i64)?.is_some())).unwrap_err();
    assert!(matches!(error, Error::Aborted(Abort::SnapshotEnded)), "{error}");
    let second = db.open_snapshot();
    session.try_submit(|tx| tx.delete(ROWS, COUNT - 1)).unwrap().0.unwrap();
    sweep(&mut session);
    let read = |tx: &Transaction<'_>| {
        let last = tx.get_columns(ROWS, COUNT - 1, TEXT.only())?;
        Ok(last.map(|row| row.get(TEXT).to_string()))
    };
    assert_eq!(second.read(read).unwrap(), Some(text));
    assert_eq!(db.stats().snapshots_ended, 1, "what the first one held is not charged to it");
    drop((first, second));
    until_garbage_is_gone(&db, &mut session);
    assert!(db.stats().snapshot_bytes <= 64 << 10, "{}", db.stats().snapshot_bytes);
}

/// A row of a hash table that is deleted and inserted again leaves kept data for the snapshot each
/// time, though the snapshot holds one row. All kept data counts, so the snapshot ends, and the
/// process's memory stays near the limit.
#[test]
fn rows_of_a_hash_table_that_come_and_go_end_a_snapshot() {
    const KEYS: i64 = 50;
    let dir = directory();
    let db = open_of(dir.path(), (Protocol::None, Concurrency::Silo), true);
    let mut session = db.session().unwrap();
    let mut change = |insert: bool| {
        let changed = session.try_submit(|tx| {
            (0..KEYS).try_for_each(|id| match insert {
                true => tx.insert(ROWS, &row(id, 0, "")).map(drop),
                false => tx.delete(ROWS, id).map(drop),
            })
        });
        changed.unwrap().0.unwrap();
    };
    change(true);
    let snapshot = db.open_snapshot();
    let (before, began) = (resident_bytes(), Instant::now());
    for n in 1.. {
        change(false);
        change(true);
        if n % 100 == 0 {
            let grown = resident_bytes().saturating_sub(before);
            assert!(grown < 80 << 20, "{} MB more after {n} rounds", grown >> 20);
            match snapshot.for_each(ROWS, Columns::ALL, |_| ()) {
                Err(Error::Aborted(Abort::SnapshotEnded)) => break,
                visited => assert_eq!(visited.unwrap(), KEYS as u64),
            }
        }
        assert!(began.elapsed() < Duration::from_secs(100), "the snapshot should have ended");
    }
}

/// Rows held by no snapshot leave no trace: rows inserted after the newest snapshot, again and
/// again.
#[test]
fn rows_inserted_after_a_snapshot_are_not_kept_for_it() {
    let dir = directory();
    let db = open_of(dir.path(), TAURUS, false);
    let mut session = db.session().unwrap();
    session.try_submit(|tx| put(tx, 1, (1, 1))).unwrap().0.unwrap();
    let snapshot = db.open_snapshot();
    for round in 0..200 {
        session.try_submit(|tx| put(tx, 1, (round % 3, round))).unwrap().0.unwrap();
        session.try_submit(|tx| put(tx, 2, (round % 3, round))).unwrap().0.unwrap();
        session.try_submit(|tx| delete(tx, 1)).unwrap().0.unwrap();
        session.try_submit(|tx| delete(tx, 2)).unwrap().0.unwrap();
        if round % 4 == 0 {
            sweep(&mut session);
        }
    }
    sweep(&mut session);
    // One row in each table, and its entry.
    assert_eq!(db.stats().garbage, 4);
    check(&snapshot, &Content::from([(1, (1, 1))]), 3, false);
}
