//! Checkpoints from the command line: of a closed database, and during a benchmark.
#![allow(missing_docs, reason = "tests are named by what they promise")]

mod common;

use common::{code, lab, stderr, stdout};

#[test]
fn a_closed_database_gets_a_checkpoint_that_is_verified_and_whose_damage_is_named() {
    let root = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(|name| root.path().join(name).to_str().unwrap().to_string());
    let words = "bench bank --accounts 1000 --streams 3 --record adaptive --seconds 0.1 \
                 --warmup 0 --reserve-memory 0 --workers 2";
    let output = lab(words, &["--log-dir", &a, "--log-dir", &b]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    for number in 1..=2 {
        let output = lab("checkpoint --json", &[&a, &b]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!((report["number"].as_u64(), report["parts"].as_u64()), (Some(number), Some(2)));
        assert!(report["rows"].as_u64().unwrap() >= 1000, "{report}");
        let output = lab("log verify", &[&a, &b]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        assert!(stdout(&output).contains(&format!("checkpoint {number} at epoch")));
    }
    let part = root.path().join("a").join("checkpoint-00000002-000");
    let mut bytes = std::fs::read(&part).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&part, bytes).unwrap();
    for command in ["log verify", "checkpoint"] {
        let output = lab(command, &[&a, &b]);
        assert_eq!(code(&output), 1, "{}", stdout(&output));
        assert!(stderr(&output).contains("checkpoint-00000002-000"), "{}", stderr(&output));
    }
}

#[test]
fn a_database_of_each_benchmark_gets_a_checkpoint() {
    for workload in [
        "smallbank --accounts 300 --record command",
        "tatp --subscribers 100 --record command",
        "voter --concurrency partitioned --protocol arrival",
        "ycsb --rows 500 --ordered",
        "ycsb --rows 500 --standard E --record command",
    ] {
        let root = tempfile::tempdir().unwrap();
        let log = root.path().join("log").to_str().unwrap().to_string();
        let words = format!("bench {workload} --seconds 0.1 --warmup 0 --reserve-memory 0");
        let output = lab(&words, &["--log-dir", &log]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        // The log's commands are replayed, so the procedures must be known.
        let output = lab("checkpoint --json", &[&log]);
        assert_eq!(code(&output), 0, "{workload}: {}", stderr(&output));
        let output = lab("log verify", &[&log]);
        assert_eq!(code(&output), 0, "{workload}: {}", stderr(&output));
    }
}

/// The bank of the benchmarks has the same table, without the index, and a second table.
#[test]
fn a_database_that_resembles_that_of_a_benchmark_keeps_its_tables() {
    let root = tempfile::tempdir().unwrap();
    let [dir, new] = ["db", "new"].map(|name| root.path().join(name).to_str().unwrap().to_string());
    let open = |dir: &str| {
        let mut builder = hyades::Database::builder();
        let schema = hyades::Schema::new("accounts")
            .column("id", hyades::Type::U64)
            .column("balance", hyades::Type::I64)
            .primary_key(&["id"])
            .index("by_balance", &["balance"]);
        let accounts = builder.table(schema);
        (builder.open(dir).unwrap(), accounts)
    };
    let (db, accounts) = open(&dir);
    db.transact(|tx| Ok(tx.insert(accounts, &[7u64.into(), 5i64.into()])?)).unwrap();
    db.close().unwrap();
    let commands = [("recover", vec![&dir[..], "--out", &new[..]]), ("checkpoint", vec![&dir[..]])];
    for (command, words) in commands {
        let output = lab(command, &words);
        assert_eq!(code(&output), 0, "{command}: {}", stderr(&output));
    }
    for dir in [&dir, &new] {
        let (db, _) = open(dir);
        assert!(db.recovery().schema_changes.is_empty(), "{:?}", db.recovery().schema_changes);
        assert_eq!(db.rows(), 1);
        db.close().unwrap();
    }
}

#[test]
fn a_run_with_bounded_recovery_recovers_to_the_same_state() {
    let words = "bench ycsb --rows 2000 --seconds 0.5 --warmup 0 --reserve-memory 0 --workers 2 \
                 --record adaptive --max-recovery 5ms --checkpoint-share 1 --recover --json";
    let run = || {
        let output = lab(words, &[]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        serde_json::from_str::<serde_json::Value>(&stdout(&output)).unwrap()
    };
    // On a busy disk none may be complete when the run ends.
    let has_taken = |report: &serde_json::Value| report["checkpoints"]["taken"].as_u64() > Some(0);
    let report = (0..9).map(|_| run()).find(has_taken).unwrap_or_else(run);
    assert!(has_taken(&report), "{report}");
    assert_eq!(report["checkpoints"]["failed"].as_u64(), Some(0), "{report}");
    assert_eq!(report["recovery"]["state_matches"].as_bool(), Some(true), "{report}");
}

#[test]
fn where_there_is_no_log_there_is_no_checkpoint() {
    let output = lab("bench bank --protocol none --max-recovery 1s", &[]);
    assert_eq!(code(&output), 2, "{}", stderr(&output));
    let root = tempfile::tempdir().unwrap();
    let output = lab("checkpoint", &[root.path().to_str().unwrap()]);
    assert_eq!(code(&output), 2, "{}", stderr(&output));
}
