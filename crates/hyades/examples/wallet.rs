//! A wallet: payments between accounts, each done once, however often requested.
//!
//! `cargo run -p hyades --example wallet`

use hyades::{Database, Error, Table, Transaction, TypedTable};
use std::path::Path;

const ACCOUNTS: u64 = 10;

#[derive(Table)]
struct Account {
    #[key]
    id: u64,
    balance: i64,
}

#[derive(Table)]
struct Payment {
    #[key]
    number: u64,
}

type Wallet = (Database, TypedTable<Account>, TypedTable<Payment>);

fn open(dir: &Path) -> Result<Wallet, Error> {
    let mut builder = Database::builder();
    let (accounts, payments) = (builder.table_of::<Account>(), builder.table_of::<Payment>());
    let db = builder.open(dir)?;
    if db.rows() == 0 {
        let new = |id| Account { id, balance: 1000 };
        let open_account = |tx: &Transaction<'_>, id| accounts.insert(tx, &new(id)).map(drop);
        db.transact(|tx| Ok((0..ACCOUNTS).try_for_each(|id| open_account(tx, id))?))?;
    }
    Ok((db, accounts, payments))
}

fn pay(wallet: &Wallet, number: u64, (from, to): (u64, u64), cents: i64) -> Result<(), Error> {
    let (db, accounts, payments) = wallet;
    db.transact(|tx| {
        if payments.get(tx, number)?.is_some() {
            return Ok(());
        }
        let balance = accounts.require(tx, from)?.balance;
        if balance < cents {
            return Err(Error::user("the account has not enough money"));
        }
        accounts.update(tx, from, &[Account::BALANCE.set(balance - cents)])?;
        accounts.modify(tx, to, |account| account.balance += cents)?;
        payments.insert(tx, &Payment { number })?;
        Ok(())
    })
}

/// Pays until `go_on` says no; `go_on` gets the number of acknowledged payments.
pub fn run(dir: &Path, go_on: &mut dyn FnMut(u64) -> bool) -> Result<(), Error> {
    let (mut number, wallet) = (check(dir)?, open(dir)?);
    while go_on(number) {
        pay(&wallet, number, (number % ACCOUNTS, (number + 1) % ACCOUNTS), 1)?;
        number += 1;
    }
    Ok(())
}

/// The number of payments; fails if money was made or lost.
pub fn check(dir: &Path) -> Result<u64, Error> {
    let (db, accounts, payments) = open(dir)?;
    db.transact(|tx| {
        let sum: i64 = accounts.scan(tx).rows()?.map(|account| account.balance).sum();
        assert_eq!(sum, 1000 * ACCOUNTS as i64, "money was made or lost");
        Ok(payments.scan(tx).rows()?.len() as u64)
    })
}

fn main() -> Result<(), Error> {
    let temporary = tempfile::tempdir().map_err(Error::user)?;
    run(temporary.path(), &mut |paid| paid < 100)?;
    println!("{} payments, and not a cent made or lost", check(temporary.path())?);
    Ok(())
}
