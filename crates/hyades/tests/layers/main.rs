//! The rooms of each crate: imports go down, and few files import each other in circles.
//!
//! An import is a `use`, or a path spelled out in code, that begins with `crate`, `self`, `super`
//! or a module below the file. A name that a module exports again leads to the module of the name.
//! Tests and comments, with their links, do not count.
#![allow(missing_docs)]

mod imports;
mod rooms;
#[path = "../source_tree/mod.rs"]
mod source_tree;

use imports::{Import, Path, imports, take_tests_out, tokens};
use rooms::{CRATES, CrateRooms};
use source_tree::{HOUSES, Source, collect, root};
use std::collections::BTreeMap;

struct File {
    source: Source,
    imports: Vec<Import>,
}

/// The files of a crate by module; the crate's root has the empty path.
type Files = BTreeMap<Path, File>;

/// An exported name is looked for through at most this many modules.
const EXPORTS_FOLLOWED: usize = 8;

/// Files that stand in for modules left out by a feature.
const SUBSTITUTES: &[&str] = &["tls_off"];

/// The module of a file.
fn module_of(path: &str) -> Path {
    let (_, path) = path.split_once("/src/").expect("a file of a crate");
    let path = path.strip_suffix(".rs").expect("a source file");
    let path = path.strip_suffix("/mod").unwrap_or(path);
    if path == "lib" || path == "main" {
        return Vec::new();
    }
    path.split('/').map(str::to_string).collect()
}

/// The files of a crate without files of tests only.
fn files(name: &str) -> Files {
    let mut sources = Vec::new();
    let mut houses = HOUSES.iter().map(|house| root().join(house).join(name));
    let house = houses.find(|dir| dir.is_dir()).expect("a crate of CRATES is there");
    collect(&house.join("src"), &[".rs"], &mut sources);
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
    // Some modules of tests name their files, with this ending.
    let is_test = |module: &Path| module.last().is_some_and(|name| name.ends_with("tests"));
    files
        .retain(|module, _| !is_test(module) && !tests.iter().any(|test| module.starts_with(test)));
    assert!(!files.is_empty(), "{name}: the sources were found");
    files
}

/// The module to which a path leads: the longest prefix of the path, or the module from which that
/// module exports the name.
fn target<'f>(files: &'f Files, path: &[String]) -> &'f Path {
    let mut path = path.to_vec();
    let module = |path: &[String]| {
        let module = |n| files.get_key_value(&path[..n]);
        (0..=path.len()).rev().find_map(module).expect("the crate's root is a file").0
    };
    for _ in 0..EXPORTS_FOLLOWED {
        let found = module(&path);
        let Some(name) = path.get(found.len()) else { break };
        let exports = files[found].imports.iter();
        let Some(export) = exports.into_iter().find(|i| i.exported.as_ref() == Some(name)) else {
            break;
        };
        path = [&export.path[..], &path[found.len() + 1..]].concat();
    }
    module(&path)
}

/// All modules reached, directly or not, through the imports of a module; the module itself only if
/// imports lead back.
fn reachable<'f>(files: &'f Files, from: &'f Path) -> Vec<&'f Path> {
    let (mut reached, mut open) = (Vec::new(), vec![from]);
    while let Some(module) = open.pop() {
        for import in files[module].imports.iter().filter(|import| import.exported.is_none()) {
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
fn every_crate_has_rooms_and_every_module_a_layer() {
    let dirs = HOUSES.iter().flat_map(|house| std::fs::read_dir(root().join(house)).unwrap());
    let mut dirs: Vec<_> =
        dirs.map(|dir| dir.unwrap().file_name().into_string().unwrap()).collect();
    let mut named: Vec<_> = CRATES.iter().map(|rooms| rooms.name.to_string()).collect();
    dirs.sort();
    named.sort();
    assert_eq!(named, dirs, "CRATES names each crate once");
    for CrateRooms { name, layers, .. } in CRATES {
        let files = files(name);
        let named = |module: &Path| module.len() == 1 && !SUBSTITUTES.contains(&&module[0][..]);
        for (module, file) in files.iter().filter(|(module, _)| named(module)) {
            let places = layers.iter().flat_map(|layer| layer.iter()).filter(|m| **m == module[0]);
            assert_eq!(places.count(), 1, "{}: the layers name it once", file.source.path);
        }
        for module in layers.iter().flat_map(|layer| layer.iter()) {
            assert!(files.contains_key(&[module.to_string()][..]), "{name} has no {module}");
        }
    }
}

#[test]
fn imports_go_down() {
    let mut found = Vec::new();
    for CrateRooms { name, layers, .. } in CRATES {
        let layer = |module: &[String]| match module {
            // The root, which exports the public names, stands above all, and so do substitutes.
            [] => Some(layers.len()),
            [top, ..] if SUBSTITUTES.contains(&&top[..]) => Some(layers.len()),
            [top, ..] => layers.iter().position(|layer| layer.contains(&&top[..])),
        };
        let files = files(name);
        for (module, file) in &files {
            for import in &file.imports {
                if layer(module) < layer(target(&files, &import.path)) {
                    found.push(say(file, import));
                }
            }
        }
    }
    assert!(found.is_empty(), "imports from a higher layer (see rooms.rs):\n{}", found.join("\n"));
}

#[test]
fn few_files_import_each_other_in_circles() {
    let mut found = Vec::new();
    for CrateRooms { name, largest_circle, .. } in CRATES {
        let files = files(name);
        let reached: BTreeMap<_, _> =
            files.keys().map(|module| (module, reachable(&files, module))).collect();
        let (mut seen, mut largest) = (Vec::new(), 0);
        for (module, to) in &reached {
            let is_within = |to: &&&Path| reached[**to].contains(module);
            let circle: Vec<_> = to.iter().filter(is_within).copied().collect();
            largest = largest.max(circle.len());
            if seen.contains(module) || circle.len() <= *largest_circle {
                continue;
            }
            found.push(format!("{name}: a circle of {} files:", circle.len()));
            for from in &circle {
                let file = &files[*from];
                let within = |import: &&Import| {
                    let to = target(&files, &import.path);
                    import.exported.is_none() && to != *from && circle.contains(&to)
                };
                found.extend(file.imports.iter().filter(within).map(|import| say(file, import)));
            }
            seen.extend(circle);
        }
        println!("{name}: the largest circle has {largest} files");
    }
    assert!(found.is_empty(), "more than may be (see rooms.rs):\n{}", found.join("\n"));
}

#[test]
fn every_kind_of_import_is_seen() {
    let text = r##"
        use crate::a::{self, b::{C as D, *}, e};
        pub(in crate::hidden) use super::f::G;
        pub use child::H as I; // use crate::hidden;
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
        .map(|Import { line, path, exported }| {
            let name = exported.as_ref().map_or(String::new(), |name| format!(" as {name}"));
            format!("{line} {}{name}", path.join("::"))
        })
        .collect();
    let expected = [
        "2 a",
        "2 a::b::C",
        "2 a::b",
        "2 a::e",
        "3 outer::f::G as G",
        "4 outer::here::child::H as I",
        "8 j::K",
        "8 outer::l",
        "11 outer::here::child::m",
    ];
    assert_eq!(seen, expected);
}
