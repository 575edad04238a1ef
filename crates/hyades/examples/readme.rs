//! The program of README.md. It counts its own runs: each run reads what the one before committed.
//!
//! `cargo run -p hyades --example readme`

use hyades::{Abort, Column, Database, Schema, Type};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut builder = Database::builder();
    let table = Schema::new("counters").column("name", Type::Text).column("count", Type::I64);
    let counters = builder.table(table.primary_key(&["name"]));
    let db = builder.open(std::env::temp_dir().join("hyades-counters"))?;
    let runs = db.transact(|tx| {
        let runs = tx.get(counters, "runs")?.map_or(0, |row| row.get(Column::<i64>::at(1))) + 1;
        tx.upsert(counters, &["runs".into(), runs.into()])?;
        Ok::<_, Abort>(runs)
    })??;
    println!("run {runs}: on disk before this line was printed");
    Ok(())
}
