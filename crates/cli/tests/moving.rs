//! Files of Redis in and out, from the command line.
#![allow(missing_docs, reason = "tests are named by what they promise")]

mod common;

use common::{code, hyades, stderr, stdout};

#[test]
fn files_of_redis_move_in_and_out() {
    let root = tempfile::tempdir().unwrap();
    let text = |name: &str| root.path().join(name).to_str().unwrap().to_string();
    let commands =
        "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n*3\r\n$5\r\nRPUSH\r\n$1\r\nl\r\n$1\r\nx\r\n";
    std::fs::write(text("all.aof"), commands).unwrap();
    let (source, dir, file) = (text("all.aof"), text("db"), text("out.rdb"));
    let output = hyades("import", &[&source, "--dir", &dir, "--streams", "2"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let said = stdout(&output);
    assert!(said.starts_with("2 keys from "), "{said}");
    assert!(said.contains("  list     1\n  string   1\n"), "{said}");
    assert!(said.contains("2 commands of append-only files were run"), "{said}");
    assert!(said.ends_with(&format!("next: hyades serve --dir {dir}\n")), "{said}");
    // The database is there already.
    let output = hyades("import", &[&source, "--dir", &dir]);
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("before, whole"), "{}", stderr(&output));
    let output = hyades("export --rdb", &[&file, "--dir", &dir]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(stdout(&output).starts_with("2 keys and 0 libraries"), "{}", stdout(&output));
    let output = hyades("import", &[&file, "--dir", &text("second")]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    // Left-out parts are printed, and the exit code reports the fact.
    std::fs::write(
        text("bad.aof"),
        format!("{commands}*1\r\n$5\r\nNOSUCH\r\n").replace("$5\r\nN", "$6\r\nN"),
    )
    .unwrap();
    let output = hyades("import", &[&text("bad.aof"), "--dir", &text("third")]);
    assert_eq!(code(&output), 1);
    let said = stdout(&output);
    assert!(said.contains("1 parts were left out:\n") && said.contains("NOSUCH"), "{said}");
    // A directory without a database does not get a database.
    let output = hyades("export --rdb", &[&text("none.rdb"), "--dir", &text("none")]);
    assert_eq!(code(&output), 2, "{}", stdout(&output));
    assert!(!root.path().join("none").exists() && !root.path().join("none.rdb").exists());
    let output = hyades("import", &[&text("no-file"), "--dir", &text("fourth")]);
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("no-file cannot be read"), "{}", stderr(&output));
}
