//! Promise: a database that was written with a scheme of a paper is named as such, with the program
//! that has the scheme, and nothing is changed or created.
#![allow(missing_docs, reason = "tests are named by what they promise")]

mod common;

use common::{code, hyades, stderr, stdout};
use hyades::{Builder, Database, Schema, Table, Type};
use std::path::Path;

const NUMBERS: Table = Table::nth(0);

fn open(dir: &Path, builder: Builder) -> Database {
    let mut builder = builder;
    builder.table(Schema::new("numbers").column("n", Type::I64).primary_key(&["n"]));
    builder.open(dir).unwrap()
}

fn create(dir: &Path, builder: Builder) {
    let db = open(dir, builder);
    db.transact(|tx| Ok(tx.insert(NUMBERS, &[7i64.into()])?)).unwrap();
    db.close().unwrap();
}

/// Runs a command, which must refuse.
fn refused(words: &str) -> String {
    let output = hyades(words, &[]);
    assert_eq!(code(&output), 1, "{words}: {}{}", stdout(&output), stderr(&output));
    stderr(&output)
}

#[test]
fn a_log_of_a_scheme_is_refused_by_name() {
    let root = tempfile::tempdir().unwrap();
    let (dir, out) = (root.path().join("db"), root.path().join("out"));
    let with_scheme = || Database::builder().protocol(hyades_schemes::GSN).streams(2);
    create(&dir, with_scheme());
    let (path, to) = (dir.display(), out.display());
    for words in [
        format!("verify {path}"),
        format!("log stat {path}"),
        format!("log dump {path}"),
        format!("backup {path} --out {to}"),
        format!("recover {path} --until newest --out {to}"),
        format!("recover {path} --salvage --out {to}"),
        format!("checkpoint {path}"),
    ] {
        let said = refused(&words);
        assert!(said.contains("protocol \"gsn\", a scheme of a paper"), "{words}: {said}");
        assert!(said.contains("`hyades-lab`"), "{words}: {said}");
        assert!(!out.exists(), "{words}: nothing is created");
    }
    let db = open(&dir, with_scheme());
    assert!(db.transact(|tx| Ok(tx.get(NUMBERS, 7i64)?.is_some())).unwrap(), "nothing is lost");
}

/// The log is one of the product's: only what would open the database refuses.
#[test]
fn a_concurrency_control_of_a_scheme_is_refused_by_name() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("db");
    create(&dir, Database::builder().concurrency(hyades_schemes::TICTOC));
    let path = dir.display();
    for words in [format!("verify {path}"), format!("log stat {path}")] {
        let output = hyades(&words, &[]);
        assert_eq!(code(&output), 0, "{words}: {}{}", stdout(&output), stderr(&output));
    }
    let said = refused(&format!("checkpoint {path}"));
    assert!(said.contains("\"tictoc\"") && said.contains("`hyades-lab`"), "{said}");
}
