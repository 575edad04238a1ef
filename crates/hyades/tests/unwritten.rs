//! Tables that are looked up by many and written now and then: who writes is replayed after all who read, although
//! these leave no mark on the rows.
#![allow(missing_docs)]

mod common;
use common::directory;
use hyades::{
    Abort, Builder, Column, Concurrency, Database, ProcedureId, Protocol, Record, Schema, Table,
    Transaction, Type,
};
use std::sync::{Mutex, MutexGuard};

const RATES: Table = Table::nth(0);
const ACCOUNTS: Table = Table::nth(1);
const VALUE: Column<i64> = Column::at(1);
const ROWS: i64 = 8;
const SESSIONS: i64 = 3;
/// Between two changes each session makes so many calls: enough for the table to be unwritten again.
const CALLS: i64 = 1200;

/// A broken rule is broken in the whole process.
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

/// With the procedures `apply` and `change`.
fn builder(concurrency: Concurrency) -> (Builder, ProcedureId, ProcedureId) {
    let mut builder = Database::builder()
        .protocol(Protocol::Taurus)
        .streams(4)
        .concurrency(concurrency)
        .record(Record::Command)
        .log_settings(|log| log.anchor_interval_bytes = 300);
    for name in ["rates", "accounts"] {
        let table = Schema::new(name).column("id", Type::I64).column("value", Type::I64);
        builder.table(table.primary_key(&["id"]).hash());
    }
    let apply = builder.procedure("apply", 1, apply);
    let change = builder.procedure("change", 1, change);
    (builder, apply, change)
}

/// Whether the state is the same after each of some recoveries.
fn is_recovered(concurrency: Concurrency, record: Record) -> bool {
    let dir = directory();
    let (opening, apply, by_command) = builder(concurrency);
    let db = opening.open(dir.path()).unwrap();
    for id in 0..ROWS.max(SESSIONS) {
        let row = |table| {
            move |tx: &Transaction<'_>| tx.insert(table, &[id.into(), 0i64.into()]).map(drop)
        };
        db.transact(row(RATES)).unwrap().unwrap();
        db.transact(row(ACCOUNTS)).unwrap().unwrap();
    }
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
                                Record::Command => session.call(by_command, &value).unwrap(),
                                _ => session.submit(|tx| change(tx, value)).unwrap(),
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
    for concurrency in [Concurrency::NoWait, Concurrency::Silo] {
        for record in [Record::Command, Record::Data] {
            assert!(is_recovered(concurrency, record), "{concurrency:?}, changes as {record:?}");
        }
    }
}

/// And the test would notice if that were not so.
#[cfg(feature = "mutations")]
#[test]
fn without_the_floor_it_is_not() {
    use hyades_platform::mutation::{self, Mutation};
    let _alone = alone();
    mutation::set(Some(Mutation::ForgetUnmarkedReaders));
    let noticed = [Concurrency::NoWait, Concurrency::Silo].map(|concurrency| {
        let mut rounds = [Record::Command, Record::Data].into_iter().cycle().take(20);
        rounds.any(|record| !is_recovered(concurrency, record))
    });
    mutation::set(None);
    assert_eq!(noticed, [true, true]);
}
