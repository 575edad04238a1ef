//! Transfers between accounts, on a database with a given protocol and concurrency control: clients
//! that tell each acknowledged transfer, and the invariants after a crash.

use hyades::{Abort, Column, Concurrency, Database, Error, Protocol, Schema, Table, Type};
use std::path::Path;

const ACCOUNTS: Table = Table::nth(0);
const CLIENTS: Table = Table::nth(1);
const VALUE: Column<i64> = Column::at(1);

/// Few, so that transfers meet.
const ACCOUNT_COUNT: i64 = 20;
const FIRST_BALANCE: i64 = 100;

/// The number of clients.
pub const CLIENT_COUNT: i64 = 4;

/// Opens the database in `dir`; a new database gets its accounts.
///
/// # Errors
/// As [`hyades::Builder::open`].
pub fn open(dir: &Path, protocol: Protocol, concurrency: Concurrency) -> Result<Database, Error> {
    let mut builder = Database::builder().protocol(protocol).concurrency(concurrency).streams(2);
    for name in ["accounts", "clients"] {
        let schema = Schema::new(name).column("id", Type::I64).column("value", Type::I64);
        builder.table(schema.primary_key(&["id"]));
    }
    let db = builder.open(dir)?;
    let is_new = db.transact(|tx| Ok(tx.get(CLIENTS, 0i64)?.is_none()))?;
    if is_new {
        db.transact(|tx| {
            (0..ACCOUNT_COUNT)
                .try_for_each(|id| tx.overwrite(ACCOUNTS, &[id.into(), FIRST_BALANCE.into()]))?;
            Ok((0..CLIENT_COUNT)
                .try_for_each(|id| tx.overwrite(CLIENTS, &[id.into(), 0i64.into()]))?)
        })?;
    }
    Ok(db)
}

/// Runs `count` transfers of a client. Calls `acknowledged` with the client's number of transfers
/// once each is on disk.
///
/// # Errors
/// As [`Database::transact`].
pub fn run(
    db: &Database,
    client: i64,
    count: usize,
    mut acknowledged: impl FnMut(i64),
) -> Result<(), Error> {
    for _ in 0..count {
        let account = || fastrand::i64(0..ACCOUNT_COUNT);
        let (from, to, amount) = (account(), account(), fastrand::i64(1..5));
        let done = db.transact(|tx| {
            let value = |table, id: i64| {
                Ok::<_, Abort>(tx.get(table, id)?.expect("the row is there").get(VALUE))
            };
            let number = value(CLIENTS, client)? + 1;
            tx.update(CLIENTS, client, &[VALUE.set(number)])?;
            for (account, added) in [(from, -amount), (to, amount)] {
                let balance = value(ACCOUNTS, account)?;
                tx.update(ACCOUNTS, account, &[VALUE.set(balance + added)])?;
            }
            Ok(number)
        })?;
        acknowledged(done);
    }
    Ok(())
}

/// Checks that no transfer is there by half, and returns the number of each client's transfers.
///
/// # Errors
/// As [`Database::transact`].
///
/// # Panics
/// The sum of the accounts has changed.
pub fn check(db: &Database) -> Result<Vec<i64>, Error> {
    db.transact(|tx| {
        let value = |table, id: i64| {
            Ok::<_, Abort>(tx.get(table, id)?.expect("the row is there").get(VALUE))
        };
        let balances = (0..ACCOUNT_COUNT).map(|id| value(ACCOUNTS, id));
        let sum: i64 = balances.sum::<Result<_, _>>()?;
        assert_eq!(sum, ACCOUNT_COUNT * FIRST_BALANCE, "a transfer is there by half");
        Ok((0..CLIENT_COUNT).map(|id| value(CLIENTS, id)).collect::<Result<_, _>>()?)
    })
}
