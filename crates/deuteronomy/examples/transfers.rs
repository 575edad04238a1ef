//! Threads transfer money between accounts; then the database is opened again and counted.
//!
//! `cargo run --release -p hyades-deuteronomy --example transfers [directory]`

use hyades_deuteronomy::{Database, Error, LogOptions, MemoryData, Options, Value};
use std::ops::Bound::{Included, Unbounded};
use std::sync::Arc;

const ACCOUNTS: u64 = 100;
const THREADS: u64 = 4;
const TRANSFERS: u64 = 2_000;

fn balance(value: Option<Value>) -> i64 {
    value.map_or(0, |v| i64::from_le_bytes((*v).try_into().expect("eight bytes")))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let temporary = tempfile::tempdir()?;
    let dir = std::env::args_os().nth(1).map_or(temporary.path().to_owned(), Into::into);
    let open = || {
        let options = Options::new(LogOptions::new(vec![dir.clone()], 2));
        Database::open(options, Arc::new(MemoryData::new()))
    };
    let database = open()?;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let mut session = database.session().expect("few sessions exist");
            scope.spawn(move || {
                for i in 0..TRANSFERS {
                    let from = (thread + i) % ACCOUNTS;
                    let to = (from + 1 + i % 7) % ACCOUNTS;
                    let transfer = session.submit(|tx| {
                        let (from, to) = (from.to_be_bytes(), to.to_be_bytes());
                        let less = balance(tx.get(&from)?) - 1;
                        let more = balance(tx.get(&to)?) + 1;
                        tx.put(&from, &less.to_le_bytes())?;
                        tx.put(&to, &more.to_le_bytes())
                    });
                    // Every hundredth transfer waits; the rest are durable before, or soon.
                    let (_, ticket) = transfer.expect("the log works");
                    if i % 100 == 99 {
                        ticket.wait().expect("the log works");
                    }
                }
            });
        }
    });
    database.close()?;

    let database = open()?;
    let mut session = database.session()?;
    let (accounts, sum) = session.execute(|tx| {
        // A scan instead of a read of each key.
        let rows = tx.scan(Included(&0u64.to_be_bytes()), Unbounded, usize::MAX)?;
        let sum: i64 = rows.iter().map(|(_, value)| balance(Some(value.clone()))).sum();
        Ok::<_, Error>((rows.len(), sum))
    })?;
    println!("{:?}; {accounts} balances add up to {sum}", database.recovered());
    assert_eq!(accounts as u64, ACCOUNTS);
    assert_eq!(sum, 0);
    Ok(())
}
