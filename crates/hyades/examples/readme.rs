//! The program of README.md. It counts its own runs: each run reads the commit of the run before.
//!
//! `cargo run -p hyades --example readme`

use hyades::{Database, Table};

#[derive(Table)]
struct Counter {
    #[key]
    name: String,
    count: i64,
}

fn main() -> Result<(), hyades::Error> {
    let mut builder = Database::builder();
    let counters = builder.table_of::<Counter>();
    let db = builder.open(std::env::temp_dir().join("hyades-runs"))?;
    let runs = db.transact(|tx| {
        let count = counters.get(tx, "runs")?.map_or(0, |runs| runs.count) + 1;
        counters.upsert(tx, &Counter { name: "runs".into(), count })?;
        Ok(count)
    })?;
    println!("run {runs}: on disk before this line was printed");
    Ok(())
}
