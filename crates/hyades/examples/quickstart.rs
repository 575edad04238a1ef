//! A table, two durable transactions, and the same rows after the database is reopened.
//!
//! `cargo run -p hyades --example quickstart`

use hyades::{Database, Error, Table, TypedTable};
use std::path::Path;

#[derive(Table)]
struct Account {
    #[key]
    id: i64,
    balance: i64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let temporary = tempfile::tempdir()?;
    let dir = temporary.path();

    let (db, accounts) = open(dir)?;
    // When `transact` returns, the rows are on disk.
    db.transact(|tx| {
        accounts.insert(tx, &Account { id: 1, balance: 100 })?;
        accounts.insert(tx, &Account { id: 2, balance: 0 })?;
        Ok(())
    })?;

    // Moves money, or fails with an error of its own and changes nothing.
    let move_money = |amount: i64| {
        db.transact(|tx| {
            let (from, to) = (accounts.require(tx, 1)?.balance, accounts.require(tx, 2)?.balance);
            if from < amount {
                return Err(Error::user(format!("there are only {from}")));
            }
            accounts.update(tx, 1, &[Account::BALANCE.set(from - amount)])?;
            accounts.update(tx, 2, &[Account::BALANCE.set(to + amount)])?;
            Ok(from - amount)
        })
    };
    assert_eq!(move_money(30)?, 70);
    assert_eq!(move_money(500).unwrap_err().to_string(), "there are only 70");
    db.close()?;

    let (db, accounts) = open(dir)?;
    let balances: Vec<i64> =
        db.transact(|tx| Ok(accounts.scan(tx).rows()?.map(|account| account.balance).collect()))?;
    assert_eq!(balances, [70, 30]);
    println!("after opening again: {balances:?}, {} transactions replayed", db.recovery().records);
    Ok(())
}

/// Declares the same table at every opening: the log identifies tables by name.
fn open(dir: &Path) -> Result<(Database, TypedTable<Account>), Error> {
    let mut builder = Database::builder();
    let accounts = builder.table_of();
    Ok((builder.open(dir)?, accounts))
}
