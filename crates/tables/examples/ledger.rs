//! A ledger larger than memory: accounts and entries with indexes, transfers by two threads, and a
//! report on a long snapshot beside them.
//!
//! `cargo run --release -p hyades-tables --features redb --example ledger [directory]`

use hyades::Table;
use hyades_deuteronomy::{Database, LogOptions, Options, RedbData};
use hyades_tables::{Error, Tables, TypedTable};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

const ACCOUNTS: u64 = 16_000;
const BALANCE: i64 = 1_000;
const TRANSFERS: u64 = 2_500;
const THREADS: u64 = 2;
/// The bytes of memory for versions, and of redb's cache.
const BUDGET: usize = 8 << 20;

#[derive(Table)]
struct Account {
    #[key]
    id: u64,
    #[unique]
    number: String,
    #[index]
    balance: i64,
    terms: String,
}

#[derive(Table)]
#[table(index(by_payer(payer, id)))]
struct Entry {
    #[key]
    id: u64,
    payer: u64,
    payee: u64,
    amount: i64,
}

fn account(id: u64) -> Account {
    let terms = format!("Terms of account {id}. ").repeat(80);
    Account { id, number: format!("DE{id:08}"), balance: BALANCE, terms }
}

/// Fills the table: each transaction has 100 rows.
fn load(database: &Database, accounts: &TypedTable<Account>) -> Result<(), Error> {
    let mut session = database.session()?;
    for start in (0..ACCOUNTS).step_by(100) {
        let (_, ticket) = session.submit(|tx| {
            (start..start + 100).try_for_each(|id| accounts.insert(tx, &account(id)))
        })?;
        if start + 100 == ACCOUNTS {
            ticket.wait()?;
        }
    }
    Ok(())
}

/// Moves money. Returns the number of transfers refused for want of money.
fn transfer(
    database: &Database,
    accounts: &TypedTable<Account>,
    entries: &TypedTable<Entry>,
    thread: u64,
) -> Result<u64, Error> {
    let mut session = database.session()?;
    let (mut rng, mut refused) = (fastrand::Rng::with_seed(thread), 0);
    for n in 0..TRANSFERS {
        let (payer, payee) = (rng.u64(0..ACCOUNTS), rng.u64(0..ACCOUNTS));
        let (id, amount) = (n * THREADS + thread, rng.i64(1..1_100));
        let (has_paid, ticket) = session.submit(|tx| {
            if accounts.require(tx, payer)?.balance < amount {
                return Ok(false);
            }
            accounts.modify(tx, payer, |account| account.balance -= amount)?;
            accounts.modify(tx, payee, |account| account.balance += amount)?;
            entries.insert(tx, &Entry { id, payer, payee, amount })?;
            Ok::<_, Error>(true)
        })?;
        refused += u64::from(!has_paid);
        if n + 1 == TRANSFERS {
            ticket.wait()?;
        }
    }
    Ok(refused)
}

/// Adds up all balances as of a moment, beside the transfers. Returns the bytes read, too.
fn report(database: &Database, accounts: &TypedTable<Account>) -> Result<(i64, usize), Error> {
    let mut snapshot = database.long_snapshot()?;
    let (mut sum, mut bytes) = (0, 0);
    accounts.scan(&mut snapshot).each(|account| {
        sum += account.balance;
        bytes += account.terms.len();
        ControlFlow::Continue(())
    })?;
    Ok((sum, bytes))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let temporary = tempfile::tempdir()?;
    let dir = std::env::args_os().nth(1).map_or(temporary.path().to_owned(), Into::into);
    let mut options = Options::new(LogOptions::new(vec![dir.clone()], 2));
    options.memory_bytes = BUDGET;
    let data = RedbData::open(&dir.join("data.redb"), BUDGET)?;
    let database = Database::open(options, Arc::new(data))?;
    let tables = Tables::builder().table_of::<Account>().table_of::<Entry>().open(&database)?;
    let (accounts, entries) = (tables.table_of::<Account>()?, tables.table_of::<Entry>()?);

    let start = Instant::now();
    load(&database, &accounts)?;
    println!("{ACCOUNTS} accounts loaded in {:.1?}", start.elapsed());

    let start = Instant::now();
    let refused = std::thread::scope(|scope| {
        let run = |thread| transfer(&database, &accounts, &entries, thread);
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || run(thread))).collect();
        let (sum, bytes) = report(&database, &accounts)?;
        println!("while transfers run: {sum} in all accounts, {} MB of rows", bytes / 1_000_000);
        assert_eq!(sum, ACCOUNTS as i64 * BALANCE, "money was made or lost");
        assert!(bytes > 3 * BUDGET, "the ledger fits into memory");
        let refused = threads.into_iter().map(|thread| thread.join().expect("no thread panics"));
        refused.sum::<Result<u64, Error>>()
    })?;
    let transfers = THREADS * TRANSFERS;
    println!("{transfers} transfers in {:.1?}, {refused} of them refused", start.elapsed());

    let (sum, _) = report(&database, &accounts)?;
    assert_eq!(sum, ACCOUNTS as i64 * BALANCE);
    let mut snapshot = database.long_snapshot()?;
    let checked = tables.check(&mut snapshot)?;
    assert_eq!(checked.rows, ACCOUNTS + transfers - refused);
    println!("{} rows and {} index entries agree", checked.rows, checked.entries);
    println!("the richest accounts:");
    let richest = accounts.index(&mut snapshot, Account::BY_BALANCE).descending().limit(3);
    for account in richest.rows()?.collect::<Result<Vec<_>, _>>()? {
        let paid = entries.index(&mut snapshot, Entry::BY_PAYER).prefix(account.id).rows()?;
        let paid = paid.map(|entry| Ok(entry?.amount)).sum::<Result<i64, Error>>()?;
        println!("    {} has {}, and has paid {paid}", account.number, account.balance);
    }
    database.close()?;
    Ok(())
}
