//! The places where `unsafe` may stand, and the argument required above it.

use super::{code, expect_none, offences, root, sources, words};
use std::fs;

/// The only files that may hold `unsafe`. Before a new file is added: can the code do without, or
/// move to a file of this list?
const UNSAFE_FILES: &[&str] = &[
    "research/lab/src/bench/stores/lmdb.rs",
    "crates/cli/src/memory.rs",
    "crates/hyades/benches/index.rs",
    "crates/hyades/src/recovery/graph.rs",
    "crates/hyades/src/recovery/graph/slab.rs",
    "crates/hyades/src/recovery/pause.rs",
    "crates/hyades/src/recovery/standing_threads.rs",
    "crates/hyades/src/session/open.rs",
    "crates/hyades/src/storage/hash_index.rs",
    "crates/hyades/src/storage/hash_index/growth.rs",
    "crates/hyades/src/storage/hash_index/shrinking.rs",
    "crates/hyades/src/storage/hash_index/shrinking_tests.rs",
    "crates/hyades/src/storage/hash_index/tests.rs",
    "crates/hyades/src/storage/hash_index/walk.rs",
    "crates/hyades/src/storage/kept.rs",
    "crates/hyades/src/storage/old_versions/chunks.rs",
    "crates/hyades/src/storage/old_versions/listed_tests.rs",
    "crates/hyades/src/storage/old_versions/tests.rs",
    "crates/hyades/src/storage/record.rs",
    "crates/hyades/src/storage/record/block.rs",
    "crates/hyades/src/storage/record/tests.rs",
    "crates/hyades/src/storage/secondary.rs",
    "crates/hyades/src/storage/table.rs",
    "crates/hyades/tests/common/watched.rs",
    "crates/index/src/descent.rs",
    "crates/index/src/leaf.rs",
    "crates/index/src/lib.rs",
    "crates/index/src/node.rs",
    "crates/index/src/scan.rs",
    "crates/index/src/shrink.rs",
    "crates/index/src/tests.rs",
    "crates/index/src/tree.rs",
    "crates/platform/src/device/nvm/lines.rs",
    "crates/platform/src/device/nvm/mapping.rs",
    "crates/platform/src/prefetch.rs",
    "crates/platform/src/reclaim.rs",
    "crates/platform/src/reclaim/tests.rs",
    "crates/wal/src/checksum.rs",
    "crates/wal/src/flusher.rs",
    "crates/wal/src/flusher/batch.rs",
    "crates/wal/src/lsn_vector.rs",
    "crates/wal/src/order.rs",
    "crates/wal/src/ring.rs",
    "crates/wal/src/stream.rs",
    "crates/wal/src/writer.rs",
];

#[test]
fn unsafe_stands_only_in_named_files() {
    let sources = sources();
    let is_unsafe = |code: &str| words(code).any(|word| word == "unsafe");
    let bad = |path: &str, code: &str| is_unsafe(code) && !UNSAFE_FILES.contains(&path);
    expect_none(offences(&sources, bad), "unsafe outside the files that may hold it");
    // A file without `unsafe` leaves the list.
    for file in UNSAFE_FILES {
        let source = sources.iter().find(|source| source.path == *file);
        assert!(
            source.is_some_and(|source| source.text.lines().any(|line| is_unsafe(code(line)))),
            "{file} holds no unsafe: take it off the list"
        );
    }
}

/// Clippy looks at every unsafe block and impl (`undocumented_unsafe_blocks`), in all crates and
/// nowhere silenced; this test checks the lint settings, the argument just above, and the contract
/// of every unsafe function, also of private functions.
#[test]
fn every_unsafe_block_has_its_argument() {
    let workspace = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    assert!(workspace.contains("undocumented_unsafe_blocks = \"deny\""));
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let path = entry.unwrap().path().join("Cargo.toml");
        let manifest = fs::read_to_string(&path).unwrap();
        assert!(manifest.contains("[lints]\nworkspace = true"), "{}", path.display());
    }
    let silenced = |_: &str, code: &str| code.contains("undocumented_unsafe_blocks");
    expect_none(offences(&sources(), silenced), "a lint that is silenced");
    let (mut found, mut seen) = (Vec::new(), 0);
    for source in sources() {
        let lines: Vec<&str> = source.text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let opens = code(line).contains("unsafe {") || code(line).contains("unsafe impl");
            let declares = code(line).contains("unsafe fn ") && !is_of_unsafe_impl(&lines, at);
            seen += usize::from(opens);
            let has = |words: &str| comments_above(&lines, at).iter().any(|l| l.contains(words));
            if opens && !has("// SAFETY:") || declares && !has("/// # Safety") {
                found.push(format!("{}:{}: {}", source.path, at + 1, line.trim()));
            }
        }
    }
    assert!(seen > 100, "blocks were found: {seen}");
    expect_none(found, "unsafe without a SAFETY argument, or a contract, just above it");
}

/// The comments and attributes just above a line, or above the line in which its statement begins.
fn comments_above<'l>(lines: &[&'l str], at: usize) -> Vec<&'l str> {
    let above = lines[..at].iter().rev().map(|line| line.trim());
    let above = above.skip_while(|line| line.ends_with('='));
    above.take_while(|line| line.starts_with("//") || line.starts_with("#[")).collect()
}

/// Whether a line is in the body of an `unsafe impl`: the trait states the contract of its methods.
fn is_of_unsafe_impl(lines: &[&str], at: usize) -> bool {
    let indentation = |line: &str| line.len() - line.trim_start().len();
    let is_outside =
        |line: &&&str| !line.trim().is_empty() && indentation(line) < indentation(lines[at]);
    lines[..at].iter().rev().find(is_outside).is_some_and(|line| line.starts_with("unsafe impl"))
}

#[test]
fn an_argument_stands_just_above_what_it_is_about() {
    let text = "// SAFETY: a\n// b\n#[cfg]\nlet x =\n    unsafe { y };\n\nunsafe { z };";
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(comments_above(&lines, 4), ["#[cfg]", "// b", "// SAFETY: a"]);
    assert!(comments_above(&lines, 6).is_empty());
    let lines = ["unsafe impl A for B {", "", "    unsafe fn c() {}", "}", "unsafe fn d() {}"];
    assert!(is_of_unsafe_impl(&lines, 2) && !is_of_unsafe_impl(&lines, 4));
}
