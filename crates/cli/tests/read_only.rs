//! Read-only commands work on a read-only file system. The other commands report the read-only file
//! system.
#![allow(missing_docs, reason = "tests are named by what they promise")]

mod common;

use common::{code, hyades, stderr, stdout};
use std::path::Path;
use std::process::{Command, Output};

/// Creates a small database, closed cleanly.
fn bank(root: &Path) -> String {
    let dir = root.join("db").to_str().unwrap().to_string();
    let words = "bench --accounts 100 --streams 3 --record data --seconds 0.2 --workers 2";
    let output = hyades(words, &["--log-dir", &dir]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    dir
}

/// Runs the program in a separate mount namespace, with `dir` mounted read-only. `None` if this
/// process may not mount.
fn with_read_only(dir: &str, words: &str) -> Option<Output> {
    let script = "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\" || exit 99; \
                  shift; exec \"$@\"";
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh", dir, env!("CARGO_BIN_EXE_hyades")])
        .args(words.split_whitespace())
        .output()
        .ok()?;
    let mounted = output.status.code().is_some_and(|code| code != 99)
        && !stderr(&output).starts_with("unshare:");
    mounted.then_some(output)
}

#[test]
fn a_read_only_database_is_verified_described_copied_and_recovered_from() {
    let root = tempfile::tempdir().unwrap();
    let dir = bank(root.path());
    let out = |name: &str| root.path().join(name).to_str().unwrap().to_string();
    for (command, says) in [
        (format!("verify {dir}"), "whole: "),
        (format!("log verify {dir}"), "whole: "),
        (format!("log stat {dir}"), "incarnation 1"),
        (format!("log dump {dir}"), " data "),
        (format!("backup {dir} --out {}", out("copy")), "verified by reading"),
        (format!("recover {dir} --out {}", out("recovered")), "recovered"),
        (format!("recover {dir} --salvage --out {}", out("saved")), "saved"),
    ] {
        let Some(output) = with_read_only(&dir, &command) else {
            eprintln!("this process may not mount: skipped");
            return;
        };
        assert_eq!(code(&output), 0, "{command}: {}{}", stdout(&output), stderr(&output));
        assert!(stdout(&output).contains(says), "{command}: {}", stdout(&output));
    }
    let output = with_read_only(&dir, &format!("checkpoint {dir}")).expect("as before");
    assert_eq!(code(&output), 1, "{}", stdout(&output));
    assert!(stderr(&output).contains("is read-only"), "{}", stderr(&output));
    assert!(!stderr(&output).contains("damaged"), "{}", stderr(&output));
    // The error is about the copy, which cannot be created, not about the source.
    let output =
        with_read_only(&dir, &format!("backup {dir} --out {dir}/copy")).expect("as before");
    assert_eq!(code(&output), 1, "{}", stdout(&output));
    assert!(stderr(&output).contains("Read-only file system"), "{}", stderr(&output));
}
