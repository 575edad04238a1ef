//! The rules of the house that a compiler does not check, held against every source file.
#![allow(missing_docs)]

mod source_tree;

use source_tree::{Source, collect, root};
use std::collections::BTreeMap;
use std::fs;

const LONGEST_FILE_LINES: usize = 520;
const LONGEST_LINE_COLUMNS: usize = 100;
const LONGEST_FUNCTION_LINES: usize = 70;

/// Functions that may be longer. The list may only shrink.
const LONG_FUNCTIONS: &[(&str, &str)] = &[
    // Tables of experiments: runs, texts and checks of one figure.
    ("crates/report/src/table/taurus_2020_more.rs", "accesses"),
];

/// Words that no comment uses: threads, transactions and records are things, and each has a name of
/// its own. docs/glossary.md has the terms.
const BANNED_IN_COMMENTS: &[&str] = &[
    "who",
    "whoever",
    "whom",
    "somebody",
    "someone",
    "nobody",
    "no one",
    "anybody",
    "anyone",
    "everybody",
    "everyone",
    "so many",
    "so much",
    "given up",
    "gives up",
    "give up",
    "come to",
    "comes to",
    "came to",
    "put down",
    "puts down",
];

/// The pages are read by people, so "who" may stand for them there.
const BANNED_IN_PAGES: &[&str] = &[
    "whoever",
    "somebody",
    "nobody",
    "anybody",
    "everybody",
    "so many",
    "given up",
    "gives up",
    "give up",
    "come to",
    "comes to",
    "put down",
    "puts down",
];

/// The only files that may hold `unsafe`. Before a new one is added: can it be done without, or in
/// one of these?
const UNSAFE_FILES: &[&str] = &[
    "crates/cli/src/bench/stores/lmdb.rs",
    "crates/cli/src/memory.rs",
    "crates/hyades/benches/index.rs",
    "crates/hyades/src/storage/hash_index.rs",
    "crates/hyades/src/storage/hash_index/growth.rs",
    "crates/hyades/src/storage/hash_index/shrinking.rs",
    "crates/hyades/src/storage/hash_index/shrinking_tests.rs",
    "crates/hyades/src/storage/hash_index/tests.rs",
    "crates/hyades/src/storage/hash_index/walk.rs",
    "crates/hyades/src/storage/kept.rs",
    "crates/hyades/src/storage/old_versions/chunks.rs",
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
    "crates/platform/src/prefetch.rs",
    "crates/platform/src/reclaim.rs",
    "crates/platform/src/reclaim/tests.rs",
    "crates/wal/src/checksum.rs",
    "crates/wal/src/flusher.rs",
    "crates/wal/src/lsn_vector.rs",
    "crates/wal/src/order.rs",
    "crates/wal/src/ring.rs",
    "crates/wal/src/stream.rs",
    "crates/wal/src/writer.rs",
];

/// Names of logging protocols. "Serial" is looked for as a word of its own: serializability and
/// serialization are everyone's.
const PROTOCOLS: &[&str] =
    &["taurus", "serial", "silor", "gsn", "plover", "poplar", "physiological", "arrival"];

/// Where protocols may be named in code: their own files, the list of modules, the table of pairs,
/// the readers of stamps, and where people choose. One way of replay is serial too.
const PROTOCOL_FILES: &[&str] = &[
    "crates/hyades/src/config.rs",
    "crates/hyades/src/logging/arrival.rs",
    "crates/hyades/src/logging/gsn.rs",
    "crates/hyades/src/logging/mod.rs",
    "crates/hyades/src/logging/physiological.rs",
    "crates/hyades/src/logging/plover.rs",
    "crates/hyades/src/logging/poplar.rs",
    "crates/hyades/src/logging/serial.rs",
    "crates/hyades/src/logging/silo_r.rs",
    "crates/hyades/src/logging/stamp_readers.rs",
    "crates/hyades/src/logging/taurus.rs",
    "crates/hyades/src/logging/taurus_2016.rs",
    "crates/hyades/src/opening/pairs.rs",
    "crates/hyades/src/recovery/mod.rs",
    "crates/hyades/src/recovery/plan.rs",
];

/// Names of concurrency controls.
const CONTROLS: &[&str] = &[
    "NoWait",
    "no_wait",
    "Silo",
    "silo",
    "TicToc",
    "tictoc",
    "Hekaton",
    "hekaton",
    "TimestampOrder",
    "timestamp_order",
    "Partitioned",
];

/// Where concurrency controls may be named in code: their own files, the list of modules, the table
/// of pairs, and where people choose.
const CONTROL_FILES: &[&str] = &[
    "crates/hyades/src/concurrency/hekaton.rs",
    "crates/hyades/src/concurrency/mod.rs",
    "crates/hyades/src/concurrency/no_wait.rs",
    "crates/hyades/src/concurrency/partitioned.rs",
    "crates/hyades/src/concurrency/silo.rs",
    "crates/hyades/src/concurrency/tictoc.rs",
    "crates/hyades/src/concurrency/timestamp_order.rs",
    "crates/hyades/src/config.rs",
    "crates/hyades/src/opening/pairs.rs",
    "crates/hyades/src/session/tests.rs",
];

/// Every Rust source but this one, which has to name what it forbids.
fn sources() -> Vec<Source> {
    let mut out = Vec::new();
    collect(&root().join("crates"), &[".rs"], &mut out);
    out.retain(|source| source.path != "crates/hyades/tests/house.rs");
    assert!(out.len() > 50, "the sources were found");
    out
}

/// The code of a line: what stands before a comment. A `//` in a string cuts it too early, which
/// only makes these tests milder there.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or("")
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Lines of all sources whose code is `bad`, as "path:line: text".
fn offences(sources: &[Source], bad: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let mut out = Vec::new();
    for source in sources {
        for (at, line) in source.text.lines().enumerate() {
            if bad(&source.path, code(line)) {
                out.push(format!("{}:{}: {}", source.path, at + 1, line.trim()));
            }
        }
    }
    out
}

fn expect_none(offences: Vec<String>, rule: &str) {
    assert!(offences.is_empty(), "{rule}:\n{}", offences.join("\n"));
}

/// The name of the type that a line of code at the edge defines.
fn type_defined(line: &str) -> Option<&str> {
    if line.starts_with(char::is_whitespace) {
        return None;
    }
    let mut words = words(code(line)).skip_while(|word| matches!(*word, "pub" | "crate" | "super"));
    let is_kind = |kind| matches!(kind, "struct" | "enum" | "trait" | "type" | "union");
    words.next().filter(|kind| is_kind(*kind)).and_then(|_| words.next())
}

/// Tests may have a `Row` of their own. Each module of the models is a model, with the same parts
/// as all others.
#[test]
fn a_type_name_has_one_meaning_in_a_crate() {
    let mut places: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    let sources = sources();
    for source in &sources {
        let Some((krate, file)) = source.path.split_once("/src/") else { continue };
        let is_test =
            |name: &str| matches!(name, "tests" | "tests.rs" | "loom_tests.rs" | "stress.rs");
        if krate == "crates/model" || file.split('/').any(is_test) {
            continue;
        }
        let is_test =
            |line: &&str| line.starts_with("mod tests {") || line.starts_with("mod loom_tests {");
        for (at, line) in source.text.lines().take_while(|line| !is_test(line)).enumerate() {
            if let Some(name) = type_defined(line) {
                places.entry((krate, name)).or_default().push(format!("{file}:{}", at + 1));
            }
        }
    }
    assert!(places.len() > 500, "types were found: {}", places.len());
    places.retain(|_, places| places.len() > 1);
    assert!(places.is_empty(), "say what of, so that each name has one meaning: {places:#?}");
}

#[test]
fn no_file_is_too_long() {
    for source in sources() {
        let lines = source.text.lines().count();
        assert!(
            lines <= LONGEST_FILE_LINES,
            "{} has {lines} lines, more than {LONGEST_FILE_LINES}: split it by thought",
            source.path
        );
    }
}

#[test]
fn no_line_is_too_long() {
    let mut found = Vec::new();
    for source in sources() {
        for (at, line) in source.text.lines().enumerate() {
            let columns = line.chars().count();
            if columns > LONGEST_LINE_COLUMNS {
                found.push(format!("{}:{}: {columns} columns", source.path, at + 1));
            }
        }
    }
    expect_none(found, "lines longer than 100 columns");
}

/// The name of the function that begins in this line, if one does.
fn function_begun(line: &str) -> Option<&str> {
    let code = code(line).trim_start();
    let begins = ["fn ", "pub", "const fn", "unsafe fn", "async fn", "extern"];
    if !begins.iter().any(|start| code.starts_with(start)) {
        return None;
    }
    let name = code.split_once("fn ")?.1;
    name.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

/// Name, first line and number of lines of each function. The sources are formatted: a function
/// ends at the first brace that is indented as its first line is.
fn functions(text: &str) -> Vec<(&str, usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let indentation = |line: &str| line.len() - line.trim_start().len();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = function_begun(line) else { continue };
        let is_end = |later: &&str| {
            indentation(later) == indentation(line) && matches!(later.trim(), "}" | "},")
                || later.trim_end().ends_with(';') && indentation(later) == indentation(line)
        };
        let is_one_line = line.trim_end().ends_with('}');
        let length = match is_one_line {
            true => 1,
            false => lines[at..].iter().position(is_end).map_or(1, |end| end + 1),
        };
        found.push((name, at + 1, length));
    }
    found
}

#[test]
fn functions_are_short() {
    let sources = sources();
    let (mut found, mut seen, mut needed) = (Vec::new(), 0, Vec::new());
    for source in &sources {
        for (name, line, length) in functions(&source.text) {
            seen += 1;
            if length > LONGEST_FUNCTION_LINES {
                if LONG_FUNCTIONS.contains(&(&source.path, name)) {
                    needed.push((source.path.as_str(), name));
                } else {
                    found.push(format!("{}:{line}: {name} has {length} lines", source.path));
                }
            }
        }
    }
    assert!(seen > 2000, "functions were found: {seen}");
    expect_none(found, "functions longer than 70 lines");
    for exception in LONG_FUNCTIONS {
        assert!(needed.contains(exception), "{exception:?} is short: take it off the list");
    }
}

/// The comment of a line. A string may hold `//` in an address, which is not looked at.
fn comment(line: &str) -> &str {
    let found = line.find("//").filter(|at| *at == 0 || line.as_bytes()[at - 1] != b':');
    found.map_or("", |at| &line[at..])
}

/// The first of these words, or pairs of words, that the text has.
fn banned_in<'b>(text: &str, banned: &[&'b str]) -> Option<&'b str> {
    let text = text.to_lowercase();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    banned.iter().copied().find(|word| {
        text.match_indices(word).any(|(at, _)| {
            !text[..at].ends_with(is_word) && !text[at + word.len()..].starts_with(is_word)
        })
    })
}

#[test]
fn comments_and_pages_use_plain_words() {
    let mut found = Vec::new();
    let mut look = |source: &Source, banned: &[&str], text: fn(&str) -> &str| {
        for (at, line) in source.text.lines().enumerate() {
            if let Some(word) = banned_in(text(line), banned) {
                found.push(format!("{}:{}: {word:?}: {}", source.path, at + 1, line.trim()));
            }
        }
    };
    for source in sources() {
        look(&source, BANNED_IN_COMMENTS, comment);
    }
    let mut pages = Vec::new();
    collect(&root(), &[".md"], &mut pages);
    assert!(pages.len() > 8, "the pages were found");
    // The glossary names the words that are not used.
    for page in pages.iter().filter(|page| page.path != "docs/glossary.md") {
        look(page, BANNED_IN_PAGES, |line| line);
    }
    expect_none(found, "words that docs/glossary.md has better ones for");
}

#[test]
fn nothing_is_left_to_be_done() {
    let macros = ["todo", "unimplemented"];
    let bad = |_: &str, code: &str| {
        words(code).any(|word| macros.contains(&word)) && code.contains('!')
            || code.contains("dbg!(")
    };
    expect_none(offences(&sources(), bad), "unfinished code");
    let marked = sources()
        .iter()
        .flat_map(|source| {
            source.text.lines().map(move |line| (source.path.clone(), line.to_string()))
        })
        .filter(|(_, line)| ["TODO", "FIXME", "XXX"].iter().any(|mark| line.contains(mark)))
        .map(|(path, line)| format!("{path}: {line}"))
        .collect();
    expect_none(marked, "unfinished thoughts");
}

#[test]
fn no_path_of_a_machine_is_named() {
    let mut all = sources();
    collect(&root(), &[".md", ".toml"], &mut all);
    let mut found = Vec::new();
    for source in &all {
        for (at, line) in source.text.lines().enumerate() {
            let names = ["/work/", "/home/", "/Users/", "/root/", "C:\\"];
            if names.iter().any(|name| line.contains(name)) {
                found.push(format!("{}:{}: {}", source.path, at + 1, line.trim()));
            }
        }
    }
    expect_none(found, "paths of one machine");
}

#[test]
fn unsafe_stands_only_in_named_files() {
    let sources = sources();
    let is_unsafe = |code: &str| words(code).any(|word| word == "unsafe");
    let bad = |path: &str, code: &str| is_unsafe(code) && !UNSAFE_FILES.contains(&path);
    expect_none(offences(&sources, bad), "unsafe outside the files that may hold it");
    // A file that no longer needs it leaves the list.
    for file in UNSAFE_FILES {
        let source = sources.iter().find(|source| source.path == *file);
        assert!(
            source.is_some_and(|source| source.text.lines().any(|line| is_unsafe(code(line)))),
            "{file} holds no unsafe: take it off the list"
        );
    }
}

/// Clippy looks at every unsafe block and impl (`undocumented_unsafe_blocks`), in all crates and
/// nowhere silenced; here, that it is asked to, that the argument stands just above, and that every
/// unsafe function states its contract, also those that are not public.
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

#[test]
fn a_protocol_is_named_only_where_it_lives() {
    let names = |code: &str| {
        words(code).any(|word| {
            let lower = word.to_lowercase();
            lower.split('_').any(|part| PROTOCOLS.contains(&part))
                || lower.starts_with("taurus")
                || lower.ends_with("taurus")
        })
    };
    let bad = |path: &str, code: &str| {
        let engine = path.starts_with("crates/hyades/src/") || path.starts_with("crates/wal/src/");
        engine && !PROTOCOL_FILES.contains(&path) && names(code)
    };
    let sources = sources();
    // The log's own unit tests write a protocol's name into a manifest.
    let bad = |path: &str, code: &str| bad(path, code) && path != "crates/wal/src/manifest.rs";
    expect_none(offences(&sources, bad), "a protocol named outside its place");
    for file in [
        "taurus",
        "taurus_2016",
        "serial",
        "silo_r",
        "gsn",
        "plover",
        "poplar",
        "physiological",
        "arrival",
    ]
    .map(|name| format!("crates/hyades/src/logging/{name}.rs"))
    {
        let source = sources.iter().find(|source| source.path == file).expect("a protocol's file");
        assert!(source.text.lines().any(|line| names(code(line))), "the search finds nothing");
    }
}

#[test]
fn a_concurrency_control_is_named_only_where_it_lives() {
    // "silo-r" is a protocol.
    let names =
        |code: &str| words(&code.replace("silo-r", "")).any(|word| CONTROLS.contains(&word));
    let bad = |path: &str, code: &str| {
        path.starts_with("crates/hyades/src/") && !CONTROL_FILES.contains(&path) && names(code)
    };
    let sources = sources();
    expect_none(offences(&sources, bad), "a concurrency control named outside its place");
    for file in CONTROL_FILES {
        let source = sources.iter().find(|source| source.path == *file).expect("a listed file");
        assert!(source.text.lines().any(|line| names(code(line))), "{file} names none");
    }
}

#[test]
fn the_program_in_the_readme_is_the_example() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let example = fs::read_to_string(root().join("crates/hyades/examples/readme.rs")).unwrap();
    let program = example.split_once("\n\n").expect("a program below its description").1;
    assert!(readme.contains(program), "README.md and examples/readme.rs differ");
}
