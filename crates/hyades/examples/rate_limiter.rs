//! A rate limiter: a bucket of tokens for each client, which no restart fills again.
//!
//! `cargo run -p hyades --example rate_limiter`

use hyades::{Database, Error, Table, TypedTable};
use std::path::Path;

/// Tokens that a client may save up, and tokens a second.
const BURST: f64 = 50.0;
const RATE: f64 = 1000.0;

#[derive(Table)]
#[table(hash)]
struct Bucket {
    #[key]
    client: String,
    tokens: f64,
    filled_us: i64,
    granted: u64,
}

fn open(dir: &Path) -> Result<(Database, TypedTable<Bucket>), Error> {
    let mut builder = Database::builder();
    let buckets = builder.table_of();
    Ok((builder.open(dir)?, buckets))
}

/// Takes a token of the client, if there is one. Returns the number of tokens granted so far.
fn take(
    (db, buckets): &(Database, TypedTable<Bucket>),
    client: &str,
) -> Result<Option<u64>, Error> {
    db.transact(|tx| {
        let now = tx.now_us();
        let full = Bucket { client: client.into(), tokens: BURST, filled_us: now, granted: 0 };
        let mut bucket = buckets.get(tx, client)?.unwrap_or(full);
        let seconds = (now - bucket.filled_us).max(0) as f64 / 1e6;
        bucket.tokens = (bucket.tokens + seconds * RATE).min(BURST);
        bucket.filled_us = now;
        let granted = bucket.tokens >= 1.0;
        if granted {
            bucket.tokens -= 1.0;
            bucket.granted += 1;
        }
        buckets.upsert(tx, &bucket)?;
        Ok(granted.then_some(bucket.granted))
    })
}

/// Takes tokens until `go_on` says no; `go_on` gets the number of granted tokens.
pub fn run(dir: &Path, go_on: &mut dyn FnMut(u64) -> bool) -> Result<(), Error> {
    let limiter = open(dir)?;
    loop {
        if let Some(granted) = take(&limiter, "ada")?
            && !go_on(granted)
        {
            return Ok(());
        }
    }
}

/// The number of tokens granted; fails if a bucket holds an impossible number.
pub fn check(dir: &Path) -> Result<u64, Error> {
    let (db, buckets) = open(dir)?;
    db.transact(|tx| {
        let bucket = buckets.get(tx, "ada")?;
        let tokens = bucket.as_ref().map_or(0.0, |bucket| bucket.tokens);
        assert!((0.0..=BURST).contains(&tokens), "{tokens} tokens");
        Ok(bucket.map_or(0, |bucket| bucket.granted))
    })
}

fn main() -> Result<(), Error> {
    let temporary = tempfile::tempdir().map_err(Error::user)?;
    run(temporary.path(), &mut |granted| granted < 100)?;
    println!("{} tokens granted, at {RATE} a second", check(temporary.path())?);
    Ok(())
}
