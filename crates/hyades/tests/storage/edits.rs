//! Small changes of long values are logged by the changed bytes. Promise: nothing acknowledged is
//! lost, and a small change of a long value takes little of the log.

use crate::common::{PROTOCOLS, directory};
use hyades::{
    Abort, Builder, Column, Concurrency, Database, Protocol, RecordKind, Schema, Session, Table,
    Ticket, Type,
};
use hyades_schemes::{PARTITIONED, TICTOC, TIMESTAMP_ORDER};
use std::path::Path;

const ROWS: Table = Table::nth(0);
const BODY: Column<[u8]> = Column::at(2);
const KEYS: i64 = 6;

const CONTROLS: [Concurrency; 6] = [
    Concurrency::NoWait,
    Concurrency::Silo,
    TICTOC,
    Concurrency::Hekaton,
    TIMESTAMP_ORDER,
    PARTITIONED,
];

fn schema() -> Schema {
    Schema::new("rows")
        .column("id", Type::I64)
        .column("count", Type::U32)
        .column("body", Type::Bytes)
        .primary_key(&["id"])
}

fn builder(protocol: Protocol, concurrency: Concurrency, schema: Schema) -> Builder {
    let one_stream = protocol.has_one_stream();
    let mut builder = Database::builder()
        .protocol(protocol)
        .concurrency(concurrency)
        .record(RecordKind::Data)
        .streams(if one_stream { 1 } else { 3 })
        .log_settings(|log| log.segment_bytes = 4 << 20);
    builder.table(schema);
    builder
}

/// Changes as many values as `count`, and waits for all changes. Only now and then waits before the
/// next change: under silo-r a wait takes most of an epoch.
fn run(db: &Database, seed: u64, count: usize) {
    let (mut session, mut random) = (db.session().unwrap(), fastrand::Rng::with_seed(seed));
    let mut tickets = Vec::new();
    for nth in 1..=count {
        tickets.push(change(&mut session, &mut random));
        if nth % 30 == 0 || nth == count {
            tickets.drain(..).for_each(|ticket| ticket.wait().unwrap());
        }
    }
}

/// Changes a few bytes of a value somewhere, or the whole value; from time to time with the row
/// itself.
fn change(session: &mut Session, random: &mut fastrand::Rng) -> Ticket {
    let id = random.i64(..KEYS);
    let (at, replaced, len) = (random.usize(..), random.usize(..40), random.usize(..60));
    let bytes: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(len).collect();
    let kind = random.u8(..20);
    let change = |tx: &hyades::Transaction<'_>| -> Result<(), Abort> {
        let Some(row) = tx.get(ROWS, (id,))? else {
            tx.insert(ROWS, &[id.into(), 1u32.into(), bytes.repeat(8)[..].into()])?;
            return Ok(());
        };
        let mut body = row.get(BODY).to_vec();
        let at = at % (body.len() + 1);
        let end = (at + replaced).min(body.len());
        body.splice(at..end, bytes.iter().copied());
        body.truncate(3_000);
        let count = Column::<u32>::at(1);
        match kind {
            0 => drop(tx.delete(ROWS, (id,))?),
            1 => drop(tx.overwrite(ROWS, &[id.into(), 7u32.into(), body[..].into()])?),
            2 => drop(tx.update(ROWS, (id,), &[BODY.set(&body[..]), count.set(9)])?),
            // Twice in a transaction.
            3 => {
                tx.update(ROWS, (id,), &[BODY.set(&body[..])])?;
                body.insert(at, 1);
                tx.update(ROWS, (id,), &[BODY.set(&body[..])])?;
            }
            _ => drop(tx.update(ROWS, (id,), &[BODY.set(&body[..])])?),
        }
        Ok(())
    };
    let (changed, ticket) = session.try_submit(change).unwrap();
    changed.unwrap();
    ticket
}

/// Opens the database as often as `lives`, with changes by two threads, and ends without closing.
fn survives(protocol: Protocol, concurrency: Concurrency, schema: fn() -> Schema, seed: u64) {
    let what = format!("{protocol:?}, {concurrency:?}, seed {seed}");
    let dir = directory();
    let mut expected = None;
    for life in 0..3 {
        let db = builder(protocol, concurrency, schema()).open(dir.path());
        let db = db.unwrap_or_else(|error| panic!("{what}, life {life}: {error}"));
        if let Some(expected) = expected {
            assert_eq!(db.digest(), expected, "{what}, life {life}");
        }
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let db = &db;
                scope.spawn(move || run(db, seed * 100 + life * 10 + thread, 80));
            }
        });
        if life == 1 {
            db.checkpoint().unwrap();
            run(&db, seed, 50);
        }
        expected = Some(db.digest());
        drop(db);
    }
}

#[test]
fn edits_survive_under_every_protocol() {
    for (seed, protocol) in (0..).zip(PROTOCOLS) {
        survives(protocol, Concurrency::Silo, schema, seed);
    }
}

#[test]
fn edits_survive_under_every_concurrency_control() {
    for (seed, concurrency) in (20..).zip(CONTROLS) {
        for protocol in PROTOCOLS.into_iter().filter(|p| concurrency.runs_under(*p)) {
            survives(protocol, concurrency, || schema().partition_by("id"), seed);
        }
    }
}

#[test]
fn edits_of_rows_whose_key_is_stored_once_survive() {
    for seed in 40..44 {
        survives(Protocol::Taurus, Concurrency::Silo, || schema().key_once(), seed);
        survives(Protocol::Taurus, Concurrency::NoWait, || schema().key_once().hash(), seed);
    }
}

fn log_bytes(db: &Database) -> u64 {
    db.stats().log_bytes
}

fn set_body(db: &Database, body: &[u8]) -> u64 {
    let before = log_bytes(db);
    let set = |tx: &hyades::Transaction<'_>| tx.update(ROWS, (1i64,), &[BODY.set(body)]);
    assert!(db.try_transact(set).unwrap().unwrap());
    log_bytes(db) - before
}

/// The bytes of the log for a change of the body, the fewest of a few changes: streams state each
/// other's positions now and then, beside the records.
fn fewest_bytes(db: &Database, body: &mut Vec<u8>, change: impl Fn(&mut Vec<u8>)) -> u64 {
    let bytes = (0..4).map(|_| {
        change(body);
        set_body(db, body)
    });
    bytes.min().expect("there are four")
}

fn insert(db: &Database, body: &[u8]) {
    let row = |tx: &hyades::Transaction<'_>| {
        tx.insert(ROWS, &[1i64.into(), 1u32.into(), body.into()]).map(drop)
    };
    db.try_transact(row).unwrap().unwrap();
}

fn noise(len: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(len as u64);
    std::iter::repeat_with(|| random.u8(..)).take(len).collect()
}

#[test]
fn an_element_of_a_block_of_4_kib_takes_less_than_90_bytes_of_the_log() {
    let dir = directory();
    let db = builder(Protocol::Taurus, Concurrency::Silo, schema()).open(dir.path()).unwrap();
    let mut body = noise(4_096);
    insert(&db, &body);
    let bytes = fewest_bytes(&db, &mut body, |body| {
        body.splice(1_000..1_000, *b"a field of 20 bytes, and a value of 20");
    });
    assert!(bytes <= 90, "{bytes} bytes");
    // The whole value.
    let other = noise(4_100);
    assert!(set_body(&db, &other) >= 4_100);
    let expected = db.digest();
    drop(db);
    let db = builder(Protocol::Taurus, Concurrency::Silo, schema()).open(dir.path()).unwrap();
    assert_eq!(db.digest(), expected);
}

#[test]
fn a_value_of_many_frames_is_changed_by_few_bytes() {
    let dir = directory();
    let open = |dir: &Path| builder(Protocol::Taurus, Concurrency::Silo, schema()).open(dir);
    let db = open(dir.path()).unwrap();
    let mut body = noise(9 << 20);
    insert(&db, &body);
    let bytes = fewest_bytes(&db, &mut body, |body| {
        body[5 << 20] ^= 1;
        body.extend_from_slice(b"appended");
    });
    assert!(bytes <= 100, "{bytes} bytes");
    let expected = db.digest();
    drop(db);
    assert_eq!(open(dir.path()).unwrap().digest(), expected);
}

/// Changes of a table are replayed into a table that has other columns by now.
#[test]
fn edits_are_replayed_into_a_table_with_other_columns() {
    let dir = directory();
    let db = builder(Protocol::Taurus, Concurrency::Silo, schema()).open(dir.path()).unwrap();
    let mut body = noise(2_000);
    insert(&db, &body);
    body.splice(500..510, *b"changed");
    assert!(set_body(&db, &body) <= 90);
    drop(db);
    let wider = || {
        Schema::new("rows")
            .column_with_default("first", Type::Text, "new")
            .column("body", Type::Bytes)
            .column("id", Type::I64)
            .column("count", Type::U32)
            .primary_key(&["id"])
    };
    let moved = Column::<[u8]>::at(1);
    let db = builder(Protocol::Taurus, Concurrency::Silo, wider()).open(dir.path()).unwrap();
    let found = |tx: &hyades::Transaction<'_>| {
        let row = tx.get(ROWS, (1i64,))?.expect("it is there");
        Ok::<_, Abort>((row.get(Column::<str>::at(0)).to_string(), row.get(moved).to_vec()))
    };
    assert_eq!(db.try_transact(found).unwrap().unwrap(), ("new".to_string(), body));
}
