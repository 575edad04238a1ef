//! Verifying, backing up and recovering from the command line.
#![allow(missing_docs, reason = "tests are named by what they promise")]

mod common;

use common::{code, hyades, stderr, stdout};
use std::path::{Path, PathBuf};

/// Creates a bank database in two directories, closed cleanly. Returns the directories.
fn bank(root: &Path) -> [String; 2] {
    let dirs = ["a", "b"].map(|name| root.join(name).to_str().unwrap().to_string());
    let words = "bench --accounts 1000 --streams 3 --record adaptive --seconds 0.2 --workers 2";
    let output = hyades(words, &["--log-dir", &dirs[0], "--log-dir", &dirs[1]]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    dirs
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_string()
}

/// Finds a segment with batches written by this incarnation.
fn segment(root: &Path, incarnation: u32) -> PathBuf {
    let mut found = Vec::new();
    for dir in ["a", "b"] {
        for stream in std::fs::read_dir(root.join(dir)).unwrap() {
            let stream = stream.unwrap().path();
            if stream.is_dir() {
                found.extend(std::fs::read_dir(stream).unwrap().map(|f| f.unwrap().path()));
            }
        }
    }
    let of_it = |path: &PathBuf| {
        let bytes = std::fs::read(path).unwrap();
        &bytes[4096..4100] == b"HYB1" && u32::from(bytes[36]) == incarnation
    };
    found.into_iter().find(of_it).expect("some stream was written to")
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 4;
    std::fs::write(path, bytes).unwrap();
}

/// The ids of the bank's transactions, as printed by `log dump`.
fn ids(dirs: &[&str]) -> Vec<String> {
    let output = hyades("log dump", dirs);
    let all = stdout(&output);
    let of_run = |line: &&str| line.contains("bank_transfer") || line.contains(" data ");
    let lines = all.lines().filter(of_run);
    lines
        .filter_map(|line| Some(line.split_once(" id ")?.1.split(';').next()?.to_string()))
        .collect()
}

#[test]
fn a_backup_is_whole_and_goes_back_to_any_transaction() {
    let root = tempfile::tempdir().unwrap();
    let [a, b] = bank(root.path());
    let copy = text(&root.path().join("copy"));
    let output = hyades("backup --json", &[&a, &b, "--out", &copy]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert!(report["files"].as_u64().unwrap() > 0, "{report}");
    // A second backup to the same directory is refused.
    let output = hyades("backup", &[&a, &b, "--out", &copy]);
    assert_eq!(code(&output), 1, "{}", stdout(&output));
    assert!(stderr(&output).contains("is not empty"), "{}", stderr(&output));
    for command in ["verify", "log verify"] {
        let output = hyades(command, &[&copy]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        assert!(stdout(&output).contains("whole: "), "{}", stdout(&output));
    }
    let all = ids(&[&copy]);
    let id = &all[all.len() / 2];
    let mut rows = Vec::new();
    for (at, more) in [&["--until", id, "--before"][..], &["--until", id], &[]].iter().enumerate() {
        let new = text(&root.path().join(format!("new-{at}")));
        let output = hyades("recover --json", &[&[&copy[..], "--out", &new], *more].concat());
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        rows.push(report["transactions"].as_u64().unwrap());
        assert_eq!(report["losses"].as_array().unwrap().len(), 0);
        let streams = report["streams"].as_array().unwrap();
        assert!(streams.iter().any(|stream| stream["bytes"].as_u64() > Some(0)), "{report}");
        for stream in streams {
            let seconds = |key: &str| stream[key].as_f64().unwrap();
            assert!(seconds("read_seconds") >= 0.0 && seconds("wait_seconds") >= 0.0, "{report}");
        }
        assert!(report["replay_seconds"].as_f64() > Some(0.0), "{report}");
        if at < 2 {
            let epoch: u64 = id.split('.').next().unwrap().parse().unwrap();
            assert_eq!(report["cut_epoch"].as_u64(), Some(epoch - 1 + at as u64));
        }
        let output = hyades("verify", &[&new]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        // The copy opens, and takes a checkpoint like any other database.
        assert_eq!(code(&hyades("checkpoint", &[&new])), 0);
    }
    assert!(rows[0] < rows[1] && rows[1] <= rows[2], "{rows:?}");
}

#[test]
fn a_moment_that_the_log_does_not_know_is_refused_with_what_it_knows() {
    let root = tempfile::tempdir().unwrap();
    let [a, b] = bank(root.path());
    let id = ids(&[&a, &b]).remove(0);
    let new = text(&root.path().join("new"));
    let output = hyades("recover --until 2001-02-03T04:05Z", &[&a, &b, "--out", &new]);
    assert_eq!(code(&output), 2, "{}", stdout(&output));
    assert!(stderr(&output).contains("first transaction is of epoch"), "{}", stderr(&output));
    assert_eq!(code(&hyades("checkpoint", &[&a, &b])), 0);
    let output = hyades("recover", &[&a, &b, "--out", &new, "--until", &id]);
    assert_eq!(code(&output), 2, "{}", stdout(&output));
    assert!(stderr(&output).contains("history begins with its checkpoint"), "{}", stderr(&output));
    assert!(!Path::new(&new).exists(), "the directory was created");
    for wrong in ["yesterday", "1.2", "2026-02-30 00:00"] {
        let output = hyades("recover", &[&a, &b, "--out", &new, "--until", wrong]);
        assert_eq!(code(&output), 2, "{wrong}: {}", stdout(&output));
    }
    let output = hyades("recover --before", &[&a, &b, "--out", &new]);
    assert_eq!(code(&output), 2, "{}", stdout(&output));
}

#[test]
fn all_that_is_damaged_is_named_and_the_rest_is_saved() {
    let root = tempfile::tempdir().unwrap();
    let [a, b] = bank(root.path());
    assert_eq!(code(&hyades("checkpoint", &[&a, &b])), 0);
    // One of the two files may have no rows: the writing threads share the rows out.
    let parts = [("a", 0), ("b", 1)]
        .map(|(dir, at)| root.path().join(dir).join(format!("checkpoint-00000001-{at:03}")));
    let part = parts.into_iter().max_by_key(|part| part.metadata().unwrap().len()).unwrap();
    let segment = segment_after_checkpoint(root.path(), &a, &b);
    flip(&segment, 4096 + 40 + 9);
    let new = text(&root.path().join("new"));
    for command in ["verify", "log verify"] {
        let output = hyades(command, &[&a, &b]);
        assert_eq!(code(&output), 1, "{}", stdout(&output));
        let said = stdout(&output);
        assert!(said.contains("DAMAGED: ") && said.contains(segment.to_str().unwrap()), "{said}");
        assert!(said.contains("--salvage"), "{said}");
    }
    let output = hyades("recover", &[&a, &b, "--out", &new]);
    assert_eq!(code(&output), 1, "{}", stdout(&output));
    let _ = std::fs::remove_dir_all(&new);
    let output = hyades("recover --salvage", &[&a, &b, "--out", &new]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(stdout(&output).contains("SALVAGED"), "{}", stdout(&output));
    let note = std::fs::read_to_string(Path::new(&new).join("RECOVERED.txt")).unwrap();
    assert!(note.contains(segment.to_str().unwrap()), "{note}");
    assert_eq!(code(&hyades("verify", &[&new])), 0);
    // Two damaged places: both are named.
    flip(&part, 100);
    let output = hyades("verify", &[&a, &b]);
    assert_eq!(code(&output), 1);
    let said = stdout(&output);
    assert!(
        said.contains(part.to_str().unwrap()) && said.contains(segment.to_str().unwrap()),
        "{said}"
    );
    assert!(stderr(&output).contains("2 places are damaged"), "{}", stderr(&output));
}

/// Opens the database once more, and returns a segment written after the checkpoint.
fn segment_after_checkpoint(root: &Path, a: &str, b: &str) -> PathBuf {
    let dirs = [a, b].map(PathBuf::from);
    let manifest = {
        let options = hyades_wal::LogOptions::new(dirs.to_vec(), 1);
        hyades_wal::open(options).unwrap().manifest().clone()
    };
    let mut builder = hyades::inspect::builder(&manifest).unwrap();
    let table = builder.table(hyades::Schema::new("more").column("n", hyades::Type::I64));
    let db = builder.log_dir(&dirs[1]).open(&dirs[0]).unwrap();
    for n in 0..200i64 {
        db.try_transact(|tx| tx.insert(table, &[n.into()])).unwrap().unwrap();
    }
    let incarnation = db.log().unwrap().incarnation();
    db.close().unwrap();
    segment(root, incarnation)
}
