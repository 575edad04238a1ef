//! The rules of the house that a compiler does not check, held against every source file.
#![allow(missing_docs)]

mod places;
mod pronouns;
#[path = "../source_tree/mod.rs"]
mod source_tree;
mod unsafe_code;
mod words;

use source_tree::{HOUSES, Source, collect, root};
use std::collections::BTreeMap;
use std::fs;

const LONGEST_FILE_LINES: usize = 520;
const LONGEST_LINE_COLUMNS: usize = 100;
const LONGEST_FUNCTION_LINES: usize = 70;

/// Every Rust source except these tests, which have to name the forbidden text.
fn sources() -> Vec<Source> {
    let mut out = Vec::new();
    for house in HOUSES {
        collect(&root().join(house), &[".rs"], &mut out);
    }
    out.retain(|source| !source.path.starts_with("crates/hyades/tests/house/"));
    assert!(out.len() > 50, "the sources were found");
    out
}

/// The code of a line: the text before a comment. A `//` in a string cuts the code too early, which
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
/// as all other models.
#[test]
fn a_type_name_has_one_meaning_in_a_crate() {
    let mut places: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    let sources = sources();
    for source in &sources {
        let Some((krate, file)) = source.path.split_once("/src/") else { continue };
        let is_test =
            |name: &str| matches!(name, "tests" | "tests.rs" | "loom_tests.rs" | "stress.rs");
        if krate == "research/model" || file.split('/').any(is_test) {
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

/// The name of the function that begins in a line, if a function does.
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
/// ends at the first brace indented like its first line.
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
    let (mut found, mut seen) = (Vec::new(), 0);
    for source in &sources {
        for (name, line, length) in functions(&source.text) {
            seen += 1;
            if length > LONGEST_FUNCTION_LINES {
                found.push(format!("{}:{line}: {name} has {length} lines", source.path));
            }
        }
    }
    assert!(seen > 2000, "functions were found: {seen}");
    expect_none(found, "functions longer than 70 lines");
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
fn the_program_in_the_readme_is_the_example() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let example = fs::read_to_string(root().join("crates/hyades/examples/readme.rs")).unwrap();
    let program = example.split_once("\n\n").expect("a program below its description").1;
    assert!(readme.contains(program), "README.md and examples/readme.rs differ");
}
