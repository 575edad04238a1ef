//! A table, two durable transactions, and the same rows after the database is reopened.
//!
//! `cargo run -p hyades --example quickstart`

use hyades::{Abort, Column, Database, Schema, Type};
use std::error::Error;
use std::path::Path;

const BALANCE: Column<i64> = Column::at(1);

fn main() -> Result<(), Box<dyn Error>> {
    let temporary = tempfile::tempdir()?;
    let dir = temporary.path();

    let (db, accounts) = open(dir)?;
    // When `transact` returns, the rows are on disk.
    db.transact(|tx| {
        tx.insert(accounts, &[1i64.into(), 100i64.into()])?;
        tx.insert(accounts, &[2i64.into(), 0i64.into()])?;
        Ok::<_, Abort>(())
    })??;

    // Moves money, or aborts with a value of its own and changes nothing.
    let move_money = |amount: i64| {
        db.transact(|tx| {
            let from = tx.get(accounts, 1i64)?.ok_or(Abort::User(1))?.get(BALANCE);
            let to = tx.get(accounts, 2i64)?.ok_or(Abort::User(2))?.get(BALANCE);
            if from < amount {
                return Err(Abort::User(from));
            }
            tx.update(accounts, 1i64, &[BALANCE.set(from - amount)])?;
            tx.update(accounts, 2i64, &[BALANCE.set(to + amount)])?;
            Ok(from - amount)
        })
    };
    assert_eq!(move_money(30)?, Ok(70));
    assert_eq!(move_money(500)?, Err(Abort::User(70)));
    db.close()?;

    let (db, accounts) = open(dir)?;
    let balances = db.transact(|tx| {
        let rows = tx.scan(accounts).rows()?;
        Ok::<_, Abort>(rows.iter().map(|row| row.get(BALANCE)).collect::<Vec<_>>())
    })??;
    assert_eq!(balances, [70, 30]);
    println!("after opening again: {balances:?}, {} transactions replayed", db.recovery().records);
    Ok(())
}

/// Declares the same table at every opening: the log identifies tables by name.
fn open(dir: &Path) -> Result<(Database, hyades::Table), hyades::Error> {
    let mut builder = Database::builder();
    let accounts = builder.table(
        Schema::new("accounts")
            .column("id", Type::I64)
            .column("balance", Type::I64)
            .primary_key(&["id"]),
    );
    Ok((builder.open(dir)?, accounts))
}
