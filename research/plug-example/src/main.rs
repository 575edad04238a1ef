//! `plug-example DIRECTORY TRANSFERS`: runs as many transfers on each client, in the database in
//! the directory, and prints client and number of each acknowledged transfer.

use hyades_plug_example::transfers::{self, CLIENT_COUNT};
use hyades_plug_example::{ALL_STREAMS, EXCLUSIVE_LOCKS};
use std::error::Error;
use std::path::PathBuf;
use std::thread;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "plug-example DIRECTORY TRANSFERS";
    let dir = PathBuf::from(arguments.next().ok_or(usage)?);
    let count: usize = arguments.next().ok_or(usage)?.parse()?;
    let db = transfers::open(&dir, ALL_STREAMS, EXCLUSIVE_LOCKS)?;
    thread::scope(|scope| {
        let client = |client| {
            let db = &db;
            let told = move |number| println!("{client} {number}");
            scope.spawn(move || transfers::run(db, client, count, told))
        };
        let clients: Vec<_> = (0..CLIENT_COUNT).map(client).collect();
        clients.into_iter().try_for_each(|client| client.join().expect("no client panics"))
    })?;
    let there = transfers::check(&db)?;
    db.close()?;
    println!("transfers of each client: {there:?}");
    Ok(())
}
