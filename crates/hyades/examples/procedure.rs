//! A stored procedure that is logged as a command: its name and arguments, not the rows it changes.
//! A first process aborts after its calls are acknowledged. A second one replays the log and checks
//! the result.
//!
//! `cargo run -p hyades --example procedure`

use hyades::{Abort, Column, Database, ProcedureId, RecordKind, Schema, Table, Transaction, Type};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::path::Path;
use std::process::Command;

const COUNTERS: Table = Table::nth(0);
const VISITS: Table = Table::nth(1);
const COUNT: Column<i64> = Column::at(1);

#[derive(Serialize, Deserialize)]
struct Visit {
    page: i64,
    visitor: String,
}

/// Deterministic: time and random numbers are drawn from the transaction, and are the same at
/// replay.
fn visit(tx: &Transaction<'_>, visit: Visit) -> Result<i64, Abort> {
    let count = match tx.get(COUNTERS, visit.page)? {
        Some(row) => row.get(COUNT) + 1,
        None => 1,
    };
    tx.upsert(COUNTERS, &[visit.page.into(), count.into()])?;
    // Without a primary key, a row gets a hidden id.
    tx.insert(VISITS, &[visit.page.into(), visit.visitor[..].into(), tx.now_us().into()])?;
    Ok(count)
}

fn open(dir: &Path) -> Result<(Database, ProcedureId), hyades::Error> {
    let mut builder = Database::builder();
    builder.table(
        Schema::new("counters")
            .column("page", Type::I64)
            .column("count", Type::I64)
            .primary_key(&["page"]),
    );
    builder.table(
        Schema::new("visits")
            .column("page", Type::I64)
            .column("visitor", Type::Text)
            .column("at_us", Type::I64),
    );
    // A changed procedure needs a new version. The old version stays registered as long as the log
    // may contain calls of that version.
    let id = builder.procedure_recorded("visit", 1, RecordKind::Command, visit);
    Ok((builder.open(dir)?, id))
}

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(dir) = std::env::args().nth(1) {
        return run_and_die(Path::new(&dir));
    }
    let temporary = tempfile::tempdir()?;
    let dir = temporary.path();
    let status = Command::new(std::env::current_exe()?).arg(dir).status()?;
    assert!(!status.success(), "the first process dies without closing its database");

    let (db, _) = open(dir)?;
    let (counted, visits) = db.transact(|tx| {
        let counts = tx.scan(COUNTERS).rows()?;
        let counted: i64 = counts.iter().map(|row| row.get(COUNT)).sum();
        Ok((counted, tx.scan(VISITS).rows()?.len() as i64))
    })?;
    assert_eq!(counted, visits, "a transaction is there as a whole or not at all");
    assert!(counted >= 1000, "acknowledged is recovered");
    println!("{counted} visits recovered from {} bytes of log", db.recovery().bytes);
    Ok(())
}

fn run_and_die(dir: &Path) -> Result<(), Box<dyn Error>> {
    let (db, visit) = open(dir)?;
    let mut session = db.session()?;
    let mut queue = db.commit_queue();
    for n in 0..1000 {
        let arguments = Visit { page: n % 10, visitor: format!("visitor {n}") };
        let (result, ticket) = session.call(visit, &arguments)?;
        result?;
        assert_eq!(session.result::<i64>()?, n / 10 + 1);
        queue.push(ticket, ());
    }
    let mut acknowledged = 0;
    while !queue.is_empty() {
        queue.wait_for_one()?;
        acknowledged += queue.drain(|()| ())?;
    }
    assert_eq!(acknowledged, 1000);
    std::process::abort();
}
