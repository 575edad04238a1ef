//! Promise: a service that fails soon after each start, again and again, does not start more slowly
//! each time, and the reported growth of its log is the real growth.

use hyades::{Builder, Database, Schema, Table, Type};
use std::path::Path;
use std::time::Duration;

const NUMBERS: Table = Table::nth(0);

fn builder() -> Builder {
    let mut builder = Database::builder().streams(2);
    let schema = Schema::new("numbers").column("n", Type::I64).column("text", Type::Text);
    builder.table(schema.primary_key(&["n"]));
    builder
}

fn manifest_bytes(dir: &Path) -> u64 {
    std::fs::metadata(dir.join("MANIFEST")).unwrap().len()
}

#[test]
fn openings_without_a_checkpoint_leave_a_manifest_of_bounded_size() {
    let dir = tempfile::tempdir().unwrap();
    let mut sizes = Vec::new();
    for life in 0..80i64 {
        let db = builder().open(dir.path()).unwrap();
        assert_eq!(db.rows(), life as u64, "nothing is lost");
        db.transact(|tx| Ok(tx.insert(NUMBERS, &[life.into(), "x".into()])?)).unwrap();
        drop(db);
        sizes.push(manifest_bytes(dir.path()));
    }
    let (first, most) = (sizes[10], sizes.iter().copied().max().unwrap());
    assert!(most < 16 * first, "from {first} to {most} bytes");
    let again: Vec<u64> = sizes[64..].to_vec();
    assert!(again.iter().any(|size| *size < 2 * first), "it shrinks again: {again:?}");
}

/// The opening finds a log of megabytes, and the first round of the keeper is microseconds later.
#[test]
fn what_an_opening_finds_is_no_growth() {
    let dir = tempfile::tempdir().unwrap();
    let text = "x".repeat(10_000);
    for _ in 0..3 {
        let checkpoints = |builder: Builder| builder.max_recovery(Duration::from_millis(1));
        let db = checkpoints(builder()).open(dir.path()).unwrap();
        let mut missed = None;
        for _ in 0..30 {
            missed = missed.or(db.checkpoints().bound_missed);
            std::thread::sleep(Duration::from_millis(2));
        }
        if let Some(missed) = missed {
            let grows = missed.split("grows by ").nth(1).unwrap().split(' ').next().unwrap();
            assert!(grows.parse::<f64>().unwrap() < 5_000.0, "{missed}");
        }
        drop(db);
        let db = builder().open(dir.path()).unwrap();
        let mut session = db.session().unwrap();
        for n in 0..1_000i64 {
            let row = [n.into(), text.as_str().into()];
            drop(session.submit(|tx| Ok(tx.overwrite(NUMBERS, &row)?)).unwrap());
        }
        db.log().unwrap().flush().unwrap();
    }
}
