//! Where protocols and concurrency controls may be named.

use super::{code, expect_none, offences, sources, words};

/// Names of logging protocols. "Serial" is looked for as a word of its own: serializability and
/// serialization are everyone's.
const PROTOCOLS: &[&str] =
    &["taurus", "serial", "silor", "gsn", "plover", "poplar", "physiological", "arrival"];

/// Where protocols may be named in code: their own files, the list of modules, the table of pairs,
/// the readers of stamps, the seam, and where people choose. One way of replay is serial too.
const PROTOCOL_FILES: &[&str] = &[
    "crates/hyades/src/config.rs",
    "crates/hyades/src/config/choices.rs",
    "crates/hyades/src/logging/mod.rs",
    "crates/hyades/src/logging/serial.rs",
    "crates/hyades/src/logging/stamp_readers.rs",
    "crates/hyades/src/logging/taurus.rs",
    "crates/hyades/src/opening/pairs.rs",
    "crates/hyades/src/origin.rs",
    "crates/hyades/src/plug.rs",
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
    "WaitDie",
    "wait_die",
];

/// Where concurrency controls may be named in code: their own files, the list of modules, the table
/// of pairs, the seam, and where people choose.
const CONTROL_FILES: &[&str] = &[
    "crates/hyades/src/concurrency/hekaton.rs",
    "crates/hyades/src/concurrency/hekaton/speculation.rs",
    "crates/hyades/src/concurrency/mod.rs",
    "crates/hyades/src/concurrency/no_wait.rs",
    "crates/hyades/src/concurrency/silo.rs",
    "crates/hyades/src/config.rs",
    "crates/hyades/src/config/choices.rs",
    "crates/hyades/src/opening/pairs.rs",
    "crates/hyades/src/plug.rs",
    "crates/hyades/src/session/tests.rs",
];

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
    let schemes = ["taurus_2016", "silo_r", "gsn", "plover", "poplar", "physiological", "arrival"]
        .map(|name| format!("research/schemes/src/protocols/{name}.rs"));
    let own = ["taurus", "serial"].map(|name| format!("crates/hyades/src/logging/{name}.rs"));
    for file in own.into_iter().chain(schemes) {
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
