//! Promise: a walk returns the rows present from its first step to its last, however the table
//! changes meanwhile, in steps of a bounded size; the rows of a step are read as by any other
//! operation.

use crate::common::directory;
use hyades::{
    Abort, Attempt, Builder, Column, Columns, Concurrency, Database, Error, Protocol, RecordKind,
    Schema, Table, Transaction, Type,
};
use hyades_schemes::all_controls;
use std::collections::{HashMap, HashSet};
use std::path::Path;

const ROWS: Table = Table::nth(0);
const SORTED: Table = Table::nth(1);
const ID: Column<u64> = Column::at(1);

fn builder(concurrency: Concurrency) -> Builder {
    let mut builder = Database::builder().concurrency(concurrency);
    for (name, is_hash) in [("rows", true), ("sorted", false)] {
        let schema = Schema::new(name)
            .column("group", Type::U64)
            .column("id", Type::U64)
            .column("value", Type::I64)
            .primary_key(&["group", "id"]);
        builder.table(if is_hash { schema.hash() } else { schema });
    }
    builder
}

fn open(dir: &Path, concurrency: Concurrency) -> Database {
    builder(concurrency).open(dir).unwrap()
}

fn put(tx: &Transaction<'_>, (group, id): (u64, u64), value: i64) -> Result<(), Abort> {
    tx.overwrite(ROWS, &[group.into(), id.into(), value.into()])
}

/// A step over the rows of a group: the rows found, and the next cursor.
fn step(
    tx: &Transaction<'_>,
    (group, cursor): (u64, u64),
    limit: usize,
) -> Result<(Vec<u64>, u64), Error> {
    let prefix = [group.into()];
    let step = tx.walk(ROWS, cursor).prefix(&prefix).limit(limit).columns(ID.only());
    let step = step.steps(5 * limit).rows()?;
    assert!(step.steps < 5 * limit + 40 && step.rows.len() < limit + 40);
    Ok((step.rows.iter().map(|row| row.get(ID)).collect(), step.next))
}

/// Against a model: a row that stays is returned once, a row that never existed is not, and other
/// groups are not.
#[test]
fn what_stays_is_returned_once_under_every_concurrency_control() {
    for concurrency in all_controls() {
        let mut random = fastrand::Rng::with_seed(7);
        let dir = directory();
        let db = open(dir.path(), concurrency);
        let stays = 2_000;
        let change = |body: &dyn Fn(&Transaction<'_>) -> Result<(), Abort>| {
            db.transact(|tx| Ok(body(tx)?)).unwrap();
        };
        change(&|tx| (0..stays).try_for_each(|id| put(tx, (7, id), 1)));
        change(&|tx| (0..500).try_for_each(|id| put(tx, (8, id), 1)));
        let (mut found, mut next, mut cursor) = (HashMap::new(), stays, 0);
        let mut others = Vec::new();
        loop {
            // As of a snapshot as well as in a transaction.
            let is_snapshot = random.bool();
            let mut body = |tx: &Transaction<'_>| step(tx, (7, cursor), 60);
            let (ids, then) = match is_snapshot {
                true => db.snapshot(body).unwrap(),
                false => db.transact(&mut body).unwrap(),
            };
            ids.into_iter().for_each(|id| *found.entry(id).or_insert(0) += 1);
            if then == 0 {
                break;
            }
            assert!(then > cursor);
            cursor = then;
            let (new, from) = (random.u64(0..40), next);
            change(&|tx| (from..from + new).try_for_each(|id| put(tx, (7, id), 1)));
            others.extend(from..from + new);
            next += new;
            let gone: Vec<u64> = (0..random.usize(0..others.len().min(20) + 1))
                .map(|_| others.swap_remove(random.usize(0..others.len())))
                .collect();
            change(&|tx| gone.iter().try_for_each(|id| tx.delete(ROWS, (7u64, *id)).map(drop)));
            // A replaced row stays.
            let (kept, value) = (random.u64(0..stays), random.i64(..));
            change(&|tx| put(tx, (7, kept), value));
        }
        assert!(found.values().all(|times| *times == 1), "{concurrency:?}");
        assert!((0..stays).all(|id| found.contains_key(&id)), "{concurrency:?}");
        assert!(found.keys().all(|id| *id < next), "{concurrency:?}");
    }
}

/// Own writes are seen, and reads are validated.
#[test]
fn a_step_reads_as_every_operation_does() {
    let dir = directory();
    let db = open(dir.path(), Concurrency::Silo);
    let all = |tx: &Transaction<'_>| -> Result<HashSet<u64>, Error> {
        let (mut found, mut cursor) = (HashSet::new(), 0);
        loop {
            let (ids, next) = step(tx, (1, cursor), 10)?;
            found.extend(ids);
            cursor = next;
            if cursor == 0 {
                return Ok(found);
            }
        }
    };
    db.transact(|tx| Ok((0..3).try_for_each(|id| put(tx, (1, id), 0))?)).unwrap();
    let seen = db.transact(|tx| {
        put(tx, (1, 9), 0)?;
        tx.delete(ROWS, (1u64, 1u64))?;
        all(tx)
    });
    assert_eq!(seen.unwrap(), HashSet::from([0, 2, 9]));
    let (mut one, mut other) = (db.session().unwrap(), db.session().unwrap());
    let mut attempt = |id: u64, is_new: bool| {
        let outcome = one.attempt(|tx| {
            let found = all(tx)?;
            let write = |tx: &Transaction<'_>| -> Result<(), Error> { Ok(put(tx, (1, id), 5)?) };
            // By another thread: a transaction has no other transaction inside.
            let other = &mut other;
            let written = std::thread::scope(|scope| {
                scope.spawn(|| other.attempt(write).unwrap()).join().unwrap()
            });
            assert!(matches!(written, Attempt::Committed(..)));
            assert_eq!(found.contains(&id), !is_new);
            tx.overwrite(SORTED, &[1u64.into(), id.into(), 1i64.into()])?;
            Ok::<_, Error>(())
        });
        matches!(outcome.unwrap(), Attempt::Conflict)
    };
    assert!(attempt(2, false), "a row that was read is overwritten");
    assert!(!attempt(77, true), "no phantom is met");
}

/// A client may keep a cursor across a restart: no row that stays is missed.
#[test]
fn a_cursor_outlives_the_process() {
    let dir = directory();
    let rows = 30_000;
    let db = open(dir.path(), Concurrency::Silo);
    db.transact(|tx| Ok((0..rows).try_for_each(|id| put(tx, (1, id), 0))?)).unwrap();
    let (ids, cursor) = db.transact(|tx| step(tx, (1, 0), 9_000)).unwrap();
    let mut found: HashSet<u64> = ids.into_iter().collect();
    assert!(cursor > 0 && found.len() < 10_000);
    db.close().unwrap();
    let db = open(dir.path(), Concurrency::Silo);
    let (ids, end) = db.transact(|tx| step(tx, (1, cursor), 1_000_000)).unwrap();
    found.extend(ids);
    assert_eq!((end, found.len() as u64), (0, rows));
}

#[test]
fn what_cannot_be_walked_is_refused() {
    let dir = directory();
    let db = open(dir.path(), Concurrency::Silo);
    let walk =
        |table| db.transact(|tx| Ok(tx.walk(table, 0).rows().map(|walked| walked.rows.len())));
    assert_eq!(walk(ROWS).unwrap(), Ok(0));
    assert_eq!(walk(SORTED).unwrap(), Err(Abort::UnknownHandle));
    assert_eq!(walk(Table::nth(9)).unwrap(), Err(Abort::UnknownHandle));
    let wrong = db.transact(|tx| Ok(tx.walk(ROWS, 0).prefix(&["x".into()]).rows().err()));
    assert!(matches!(wrong.unwrap(), Some(Abort::WrongType { .. })));
    // Numbers beyond the last cursor are the end.
    for cursor in [1 << 53, u64::MAX] {
        let next = db.transact(|tx| Ok(tx.walk(ROWS, cursor).columns(Columns::ALL).rows()?.next));
        assert_eq!(next.unwrap(), 0);
    }
}

/// Replay would find another order.
#[test]
fn a_call_that_is_logged_does_not_walk() {
    for record in [RecordKind::Data, RecordKind::Command, RecordKind::Adaptive] {
        let dir = directory();
        let mut builder = builder(Concurrency::Silo).protocol(Protocol::Taurus).record(record);
        builder.procedure("count", 1, |tx: &Transaction<'_>, _: u64| {
            put(tx, (1, 1), 1)?;
            Ok::<_, Abort>(tx.walk(ROWS, 0).rows()?.rows.len() as u64)
        });
        let db = builder.open(dir.path()).unwrap();
        let called = db.call::<u64, u64>("count", &1);
        match record {
            RecordKind::Data => assert_eq!(called.unwrap(), 1),
            _ => assert!(matches!(called, Err(Error::Aborted(Abort::NotInCall)))),
        }
        db.close().unwrap();
    }
}
