//! Tables that are read often and written rarely. Promise: a writer is replayed after all earlier
//! readers, although these leave no read stamps on the rows.
#![allow(missing_docs)]

mod common;
use common::directory;
use hyades::{
    Abort, Builder, Column, Concurrency, Database, ProcedureId, Protocol, RecordKind, Schema,
    Table, Transaction, Type,
};
use hyades_schemes::all_controls;
use std::sync::{Mutex, MutexGuard};

const RATES: Table = Table::nth(0);
const ACCOUNTS: Table = Table::nth(1);
const VALUE: Column<i64> = Column::at(1);
const ROWS: i64 = 8;
const SESSIONS: i64 = 3;
/// Calls of each session between two changes: enough for the table to count as unwritten again.
const CALLS: i64 = 1200;

/// A broken rule is global to the process, so the tests run one at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner())
}

fn apply(tx: &Transaction<'_>, (account, rate): (i64, i64)) -> Result<(), Abort> {
    let rate = tx.get(RATES, rate)?.unwrap().get(VALUE);
    let sum = tx.get(ACCOUNTS, account)?.unwrap().get(VALUE);
    tx.update(ACCOUNTS, account, &[VALUE.set(sum.wrapping_mul(31).wrapping_add(rate))])?;
    Ok(())
}

fn change(tx: &Transaction<'_>, (rate, value): (i64, i64)) -> Result<(), Abort> {
    tx.upsert(RATES, &[rate.into(), value.into()])?;
    Ok(())
}

/// A builder with the procedures `apply` and `change`.
fn builder(concurrency: Concurrency) -> (Builder, ProcedureId, ProcedureId) {
    let mut builder = Database::builder()
        .protocol(Protocol::Taurus)
        .streams(4)
        .concurrency(concurrency)
        .record(RecordKind::Command)
        .log_settings(|log| log.research.anchor_interval_bytes = 300);
    for name in ["rates", "accounts"] {
        let table = Schema::new(name).column("id", Type::I64).column("value", Type::I64);
        builder.table(table.primary_key(&["id"]).hash());
    }
    let apply = builder.procedure("apply", 1, apply);
    let change = builder.procedure("change", 1, change);
    (builder, apply, change)
}

fn populate(db: &Database) {
    for id in 0..ROWS.max(SESSIONS) {
        let row = |table| {
            move |tx: &Transaction<'_>| tx.insert(table, &[id.into(), 0i64.into()]).map(drop)
        };
        db.try_transact(row(RATES)).unwrap().unwrap();
        db.try_transact(row(ACCOUNTS)).unwrap().unwrap();
    }
}

/// Whether several recoveries yield the same state.
fn is_recovered(concurrency: Concurrency, record: RecordKind) -> bool {
    let dir = directory();
    let (opening, apply, by_command) = builder(concurrency);
    let db = opening.open(dir.path()).unwrap();
    populate(&db);
    std::thread::scope(|scope| {
        for thread in 0..SESSIONS {
            let db = &db;
            scope.spawn(move || {
                let (mut session, mut queue) = (db.session().unwrap(), db.commit_queue());
                for round in 0..4 {
                    for n in 0..CALLS {
                        let (result, ticket) = session.call(apply, &(thread, n % ROWS)).unwrap();
                        result.unwrap();
                        queue.push(ticket, ());
                        queue.drain(|()| ()).unwrap();
                    }
                    if thread == 0 {
                        for rate in 0..ROWS {
                            let value = (rate, round * 1000 + rate + 1);
                            let (result, ticket) = match record {
                                RecordKind::Command => session.call(by_command, &value).unwrap(),
                                _ => session.try_submit(|tx| change(tx, value)).unwrap(),
                            };
                            result.unwrap();
                            queue.push(ticket, ());
                        }
                    }
                }
                while !queue.is_empty() {
                    queue.wait_for_one().unwrap();
                    queue.drain(|()| ()).unwrap();
                }
            });
        }
    });
    let digest = db.digest();
    drop(db);
    (0..4).all(|_| {
        let again = builder(concurrency).0.recovery_threads(3).open(dir.path()).unwrap();
        again.digest() == digest
    })
}

#[test]
fn who_writes_to_a_table_is_replayed_after_who_read_it() {
    let _alone = alone();
    for concurrency in all_controls() {
        for record in [RecordKind::Command, RecordKind::Data] {
            assert!(is_recovered(concurrency, record), "{concurrency:?}, changes as {record:?}");
        }
    }
}

/// One session only reads, then another, usually on another stream, writes. Only the table's floor
/// (the stream positions that a first writer follows) keeps replay from running the writer first.
#[cfg(feature = "mutations")]
fn is_recovered_apart(concurrency: Concurrency) -> bool {
    let dir = directory();
    let db = builder(concurrency).0.open(dir.path()).unwrap();
    populate(&db);
    db.close().unwrap();
    let (opening, apply, change) = builder(concurrency);
    let db = opening.open(dir.path()).unwrap();
    let mut reader = db.session().unwrap();
    for n in 0..20_000 {
        reader.call(apply, &(0i64, n % ROWS)).unwrap().0.unwrap();
    }
    let mut writer = db.session().unwrap();
    for rate in 0..ROWS {
        writer.call(change, &(rate, rate + 1)).unwrap().0.unwrap();
    }
    drop((reader, writer));
    let digest = db.digest();
    db.close().unwrap();
    // In the wrong order a command may write what it did not write then, which is refused.
    let again = builder(concurrency).0.recovery_threads(3).open(dir.path());
    again.inspect_err(|error| eprintln!("{error}")).is_ok_and(|again| again.digest() == digest)
}

/// Mutation test: without the floor, recovery differs.
#[cfg(feature = "mutations")]
#[test]
fn without_the_floor_it_is_not() {
    use Concurrency::Hekaton;
    use hyades_platform::mutation::{self, Mutation};
    use hyades_schemes::{PARTITIONED, TIMESTAMP_ORDER};
    let _alone = alone();
    // Where replay keeps several versions, readers need not precede writers. Under partitioned
    // execution the partition's stamp orders them.
    let floorless = [Hekaton, PARTITIONED, TIMESTAMP_ORDER];
    for concurrency in all_controls().filter(|control| !floorless.contains(control)) {
        assert!((0..4).all(|_| is_recovered_apart(concurrency)), "{concurrency:?}");
        mutation::set(Some(Mutation::ForgetUnmarkedReaders));
        let unnoticed = (0..20).all(|_| is_recovered_apart(concurrency));
        mutation::set(None);
        assert!(!unnoticed, "{concurrency:?}");
    }
}
