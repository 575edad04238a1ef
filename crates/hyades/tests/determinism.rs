//! Promise: replay detects and names a procedure that is not deterministic, although the procedure
//! commits at replay too.
#![allow(missing_docs)]

mod common;
use common::{broken, directory};
use hyades::{
    Abort, Column, Concurrency, Database, Error, Protocol, RecordKind, Schema, Table, Transaction,
    Type,
};
use hyades_schemes::TAURUS_2016;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

const ROWS: Table = Table::nth(0);
const VALUE: Column<i64> = Column::at(1);

/// The use of the number that the procedure reads from outside the transaction.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Update,
    Insert,
    OtherKey,
    Delete,
    Nothing,
}

fn builder(protocol: Protocol, way: Way, outside: i64) -> hyades::Builder {
    let mut builder = Database::builder()
        .protocol(protocol)
        .concurrency(Concurrency::Silo)
        .record(RecordKind::Command);
    let schema = Schema::new("rows").column("id", Type::I64).column("value", Type::I64);
    builder.table(schema.primary_key(&["id"]));
    let outside = Arc::new(AtomicI64::new(outside));
    builder.procedure("drifts", 1, move |tx: &Transaction<'_>, id: i64| {
        let number = outside.load(Ordering::Relaxed);
        match way {
            Way::Update => drop(tx.update(ROWS, 1i64, &[VALUE.set(number)])?),
            Way::Insert => drop(tx.insert(ROWS, &[(100 + id).into(), number.into()])?),
            Way::OtherKey => drop(tx.insert(ROWS, &[(100 + number).into(), id.into()])?),
            Way::Delete => {
                tx.update(ROWS, 1i64, &[VALUE.set(5i64)])?;
                if number == 2 {
                    tx.delete(ROWS, 1i64)?;
                }
            }
            Way::Nothing => drop(tx.update(ROWS, 1i64, &[VALUE.set(id)])?),
        }
        Ok(())
    });
    builder
}

/// A database whose last call depended on the outside number, then 1.
fn with_a_call(
    dir: &Path,
    protocol: Protocol,
    way: Way,
) -> impl Fn(i64) -> Result<Database, Error> {
    let streams = if protocol == Protocol::Serial { 1 } else { 3 };
    let dir = dir.to_owned();
    let open = move |outside| builder(protocol, way, outside).streams(streams).open(&dir);
    let db = open(1).unwrap();
    let fill = |tx: &Transaction<'_>| tx.insert(ROWS, &[1i64.into(), 0i64.into()]);
    db.try_transact(fill).unwrap().unwrap();
    // The outcome of the first command of a session in an epoch is logged and checked.
    let mut session = db.session().unwrap();
    let (called, ticket) = session.call(db.prepare("drifts").unwrap(), &7i64).unwrap();
    called.unwrap();
    ticket.wait().unwrap();
    drop(session);
    db.close().unwrap();
    open
}

/// Mutation test: without the rule the difference goes unnoticed.
#[cfg(feature = "mutations")]
#[test]
fn without_the_rule_it_goes_unnoticed() {
    use hyades_platform::mutation::{self, Mutation};
    let _alone = broken::alone();
    let dir = directory();
    let open = with_a_call(dir.path(), Protocol::Taurus, Way::Update);
    mutation::set(Some(Mutation::ForgetOutcomes));
    let opened = open(2);
    mutation::set(None);
    assert!(opened.is_ok());
}

#[test]
fn a_command_that_writes_something_else_at_replay_is_named() {
    let _alone = broken::alone();
    for protocol in [Protocol::Serial, Protocol::Taurus, TAURUS_2016] {
        for way in [Way::Update, Way::Insert, Way::OtherKey, Way::Delete, Way::Nothing] {
            let dir = directory();
            let open = with_a_call(dir.path(), protocol, way);
            // The same outside number yields the same outcome.
            drop(open(1).unwrap());
            let again = open(2);
            if way == Way::Nothing {
                assert!(again.is_ok(), "{protocol:?}");
                continue;
            }
            let error = again.err().unwrap_or_else(|| panic!("{protocol:?} {way:?}: unnoticed"));
            let text = error.to_string();
            assert!(matches!(error, Error::Recovery(_)), "{text}");
            assert!(
                text.contains("\"drifts\" version 1 wrote something else than when it ran")
                    && text.contains("Lsn")
                    && text.contains("nothing was changed on disk"),
                "{text}"
            );
            // Nothing is lost: with the original procedure the database opens.
            let db = open(1).unwrap();
            let rows = db.try_transact(|tx| Ok::<_, Abort>(tx.scan(ROWS).rows()?.len()));
            assert!(rows.unwrap().unwrap() >= 1);
        }
    }
}
