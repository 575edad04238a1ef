//! The layers of the engine: imports go down, and few files import each other in circles.
//!
//! An import is a `use`, or a path spelled out in code, that begins with `crate`, `self`, `super`
//! or a module below the file. Tests and comments, with their links, do not count.
#![allow(missing_docs)]

mod source_tree;

use source_tree::{Source, collect, root};
use std::collections::BTreeMap;

/// The modules of the engine from the bottom up. A file imports from the layers below its own, and
/// from its own layer. A new module takes its place here.
const LAYERS: &[&[&str]] = &[
    &["calendar", "error", "metrics", "transaction_id"],
    &["storage"],
    &["logging"],
    &["engine"],
    &["concurrency"],
    &["garbage"],
    &["transaction"],
    &["checkpoint"],
    &["recovery"],
    &["digest", "retry", "tally", "typed"],
    &["config"],
    &["erased", "inspect", "origin", "ranges"],
    &["backup", "pool", "posted", "session", "ticket"],
    &["database"],
    &["opening"],
    &["fuzzing", "restore"],
];

/// Files that import each other in a circle can only be understood together: at most this many may.
const LARGEST_CYCLE: usize = 5;

/// A word, `::`, or a single character, with its line, counted from 1.
type Token<'t> = (usize, &'t str);

/// Names of modules, from the crate's root down.
type Path = Vec<String>;

#[derive(Debug, PartialEq)]
struct Import {
    line: usize,
    path: Path,
}

struct File {
    source: Source,
    imports: Vec<Import>,
}

/// The engine's files by module; the crate's root has the empty path.
type Files = BTreeMap<Path, File>;

/// The code of a file without comments and literals.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || !b.is_ascii();
    let (mut rest, mut line, mut out) = (text, 1, Vec::new());
    while let Some(first) = rest.bytes().next() {
        let skipped = literal_or_comment(rest);
        let length = match first {
            _ if skipped > 0 => skipped,
            first if is_word(first) => rest.bytes().take_while(|&b| is_word(b)).count(),
            b':' if rest.starts_with("::") => 2,
            _ => 1,
        };
        let token = &rest[..length];
        if skipped == 0 && !token.trim().is_empty() {
            out.push((line, token));
        }
        line += token.matches('\n').count();
        rest = &rest[length..];
    }
    out
}

/// The length of the comment or the literal that `text` begins with, or 0.
fn literal_or_comment(text: &str) -> usize {
    let until = |from: usize, end: &str| {
        text[from..].find(end).map_or(text.len(), |at| from + at + end.len())
    };
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if text.starts_with("/*") {
        return until(2, "*/");
    }
    if let Some(raw) = text.strip_prefix("br").or_else(|| text.strip_prefix('r')) {
        let hashes = raw.bytes().take_while(|&b| b == b'#').count();
        if raw[hashes..].starts_with('"') {
            let start = text.len() - raw.len() + hashes + 1;
            return until(start, &format!("\"{}", "#".repeat(hashes)));
        }
    }
    let quoted = |quote: char| {
        let mut escaped = false;
        let end = text[1..].find(|c| {
            let ends = c == quote && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        end.map_or(text.len(), |at| at + 2)
    };
    let mut chars = text.chars();
    match (chars.next(), chars.next(), chars.next()) {
        (Some('"'), ..) => quoted('"'),
        // A lifetime has no second quote.
        (Some('\''), Some('\\'), _) | (Some('\''), _, Some('\'')) => quoted('\''),
        _ => 0,
    }
}

/// Where the item that begins at `at` ends, with its attributes.
fn item_end(tokens: &[Token<'_>], at: usize) -> usize {
    let mut depth = 0;
    for (i, (_, token)) in tokens.iter().enumerate().skip(at) {
        match *token {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 && (*token == "}" || *token == ";") {
            return i + 1;
        }
        if depth < 0 {
            return i;
        }
    }
    tokens.len()
}

/// Takes out what is compiled only for tests. Returns those of it that are modules in other files.
fn take_tests_out<'t>(tokens: &mut Vec<Token<'t>>) -> Vec<&'t str> {
    let (mut modules, mut at) = (Vec::new(), 0);
    while at < tokens.len() {
        let words = |from: usize, n: usize| tokens[from..].iter().take(n).map(|t| t.1);
        if !words(at, 4).eq(["#", "[", "cfg", "("]) {
            at += 1;
            continue;
        }
        let end = at + words(at, tokens.len()).position(|word| word == "]").expect("its end");
        let is_test = |i: usize| tokens[i].1 == "test" && !words(i - 2, 2).eq(["not", "("]);
        if !(at..end).any(is_test) {
            at = end;
            continue;
        }
        let end = item_end(tokens, end + 1);
        if words(end - 3, 3).eq(["mod", tokens[end - 2].1, ";"]) {
            modules.push(tokens[end - 2].1);
        }
        tokens.drain(at..end);
    }
    modules
}

/// The imports of a file; `children` are the modules below it that are files.
fn imports(module: &[String], children: &[&str], tokens: &[Token<'_>]) -> Vec<Import> {
    let word = |i: usize| tokens.get(i).map_or("", |t| t.1);
    let mut out = Vec::new();
    // Modules that stand in the file itself, with the depth of their braces.
    let (mut inner, mut depth) = (Vec::<(&str, usize)>::new(), 0);
    for at in 0..tokens.len() {
        let before = |n: usize| at.checked_sub(n).map_or("", word);
        match word(at) {
            "{" => {
                depth += 1;
                if before(2) == "mod" {
                    inner.push((before(1), depth));
                }
            }
            "}" => {
                inner.retain(|&(_, opened)| opened < depth);
                depth -= 1;
            }
            "crate" | "self" | "super" => {}
            name if inner.is_empty() && children.contains(&name) => {}
            _ => continue,
        }
        // `pub(in crate::..)` imports nothing.
        let is_visibility = before(1) == "in" && before(2) == "(";
        if word(at + 1) == "::" && before(1) != "::" && !is_visibility {
            let names = inner.iter().map(|(name, _)| (*name).to_string());
            let here = module.iter().cloned().chain(names).collect();
            add_tree(tokens, at, here, &mut out);
        }
    }
    out
}

/// Adds the path at `at`, or each path of a tree in braces; `prefix` is where it begins. Returns
/// where it ends.
fn add_tree(tokens: &[Token<'_>], mut at: usize, mut prefix: Path, out: &mut Vec<Import>) -> usize {
    let word = |i: usize| tokens.get(i).map_or("", |t| t.1);
    let line = tokens.get(at).map_or(0, |t| t.0);
    loop {
        match word(at) {
            "{" => {
                at += 1;
                while word(at) != "}" {
                    at = add_tree(tokens, at, prefix.clone(), out);
                    // Behind `as`, and the comma.
                    while !["}", ","].contains(&word(at)) {
                        at += 1;
                    }
                    at += usize::from(word(at) == ",");
                }
                return at + 1;
            }
            "crate" => prefix.clear(),
            "super" => drop(prefix.pop()),
            "self" | "*" | "<" => {}
            name => prefix.push(name.to_string()),
        }
        if word(at + 1) != "::" {
            break;
        }
        at += 2;
    }
    out.push(Import { line, path: prefix });
    at + 1
}

/// The module that a file is.
fn module_of(path: &str) -> Path {
    let path = path.strip_prefix("crates/hyades/src/").expect("a file of the engine");
    let path = path.strip_suffix(".rs").expect("a source file");
    let path = path.strip_suffix("/mod").unwrap_or(path);
    if path == "lib" { Vec::new() } else { path.split('/').map(str::to_string).collect() }
}

/// The engine's files but those that are only tests.
fn files() -> Files {
    let mut sources = Vec::new();
    collect(&root().join("crates/hyades/src"), &[".rs"], &mut sources);
    let modules: Vec<_> = sources.iter().map(|source| module_of(&source.path)).collect();
    let (mut tests, mut files) = (Vec::new(), Files::new());
    for (source, module) in sources.into_iter().zip(&modules) {
        let mut tokens = tokens(&source.text);
        for name in take_tests_out(&mut tokens) {
            tests.push([&module[..], &[name.to_string()]].concat());
        }
        let below = modules.iter().filter(|m| m.len() == module.len() + 1 && m.starts_with(module));
        let children: Vec<_> = below.map(|m| &m[module.len()][..]).collect();
        let imports = imports(module, &children, &tokens);
        files.insert(module.clone(), File { source, imports });
    }
    files.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
    assert!(files.len() > 50, "the sources were found");
    files
}

/// The module that a path leads to: the longest that it begins with.
fn target<'f>(files: &'f Files, path: &[String]) -> &'f Path {
    let module = |n| files.get_key_value(&path[..n]);
    (0..=path.len()).rev().find_map(module).expect("the crate's root is a file").0
}

/// All modules that a module's imports lead to, and theirs; itself only if they lead back.
fn reachable<'f>(files: &'f Files, from: &'f Path) -> Vec<&'f Path> {
    let (mut reached, mut open) = (Vec::new(), vec![from]);
    while let Some(module) = open.pop() {
        for import in &files[module].imports {
            let to = target(files, &import.path);
            if to != module && !reached.contains(&to) {
                reached.push(to);
                open.push(to);
            }
        }
    }
    reached
}

fn say(file: &File, import: &Import) -> String {
    format!("{}:{}: crate::{}", file.source.path, import.line, import.path.join("::"))
}

#[test]
fn every_module_has_a_layer() {
    let files = files();
    for (module, file) in files.iter().filter(|(module, _)| module.len() == 1) {
        let places = LAYERS.iter().flat_map(|layer| layer.iter()).filter(|m| **m == module[0]);
        assert_eq!(places.count(), 1, "{}: LAYERS names each module once", file.source.path);
    }
    for module in LAYERS.iter().flat_map(|layer| layer.iter()) {
        assert!(files.contains_key(&[module.to_string()][..]), "LAYERS: there is no {module}");
    }
}

#[test]
fn imports_go_down() {
    let layer = |module: &[String]| match module {
        // The root, which exports what is public, stands above all.
        [] => Some(LAYERS.len()),
        [top, ..] => LAYERS.iter().position(|layer| layer.contains(&&top[..])),
    };
    let files = files();
    let mut found = Vec::new();
    for (module, file) in &files {
        for import in &file.imports {
            if layer(module) < layer(target(&files, &import.path)) {
                found.push(say(file, import));
            }
        }
    }
    assert!(found.is_empty(), "imports from a higher layer (see LAYERS):\n{}", found.join("\n"));
}

#[test]
fn few_files_import_each_other_in_circles() {
    let files = files();
    let reached: BTreeMap<_, _> =
        files.keys().map(|module| (module, reachable(&files, module))).collect();
    let (mut seen, mut found) = (Vec::new(), Vec::new());
    for (module, to) in &reached {
        let cycle: Vec<_> = to.iter().filter(|to| reached[*to].contains(module)).copied().collect();
        if seen.contains(module) || cycle.len() <= LARGEST_CYCLE {
            continue;
        }
        found.push(format!("a circle of {} files:", cycle.len()));
        for from in &cycle {
            let file = &files[*from];
            let within = |import: &&Import| {
                let to = target(&files, &import.path);
                to != *from && cycle.contains(&to)
            };
            found.extend(file.imports.iter().filter(within).map(|import| say(file, import)));
        }
        seen.extend(cycle);
    }
    assert!(found.is_empty(), "more than {LARGEST_CYCLE} may not be:\n{}", found.join("\n"));
}

#[test]
fn every_kind_of_import_is_seen() {
    let text = r##"
        use crate::a::{self, b::{C as D, *}, e};
        pub(in crate::hidden) use super::f::G;
        use child::H; // use crate::hidden;
        /* use crate::hidden; */
        mod inner {
            const QUOTES: (&str, char) = ("\" crate::hidden", '"');
            fn i<'a>() -> crate::j::K<'a> { for _ in super::super::l::<u8>() {} }
        }
        #[cfg(not(test))]
        use self::child::m;
        #[cfg(all(test, not(loom)))]
        mod tests { use crate::hidden; }
        const RAW: &str = r#"" crate::hidden"#;
        #[cfg(test)]
        mod loom_tests;
    "##;
    let mut tokens = tokens(text);
    assert_eq!(take_tests_out(&mut tokens), ["loom_tests"]);
    let module = ["outer".to_string(), "here".to_string()];
    let seen: Vec<_> = imports(&module, &["child"], &tokens)
        .iter()
        .map(|import| format!("{} {}", import.line, import.path.join("::")))
        .collect();
    let expected = [
        "2 a",
        "2 a::b::C",
        "2 a::b",
        "2 a::e",
        "3 outer::f::G",
        "4 outer::here::child::H",
        "8 j::K",
        "8 outer::l",
        "11 outer::here::child::m",
    ];
    assert_eq!(seen, expected);
}
