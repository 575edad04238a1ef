//! The categories of access: the names in rules like `+@read`.

use super::flags::{ADMIN, BLOCKS, FAST, PUBSUB, READ, RUNS_SCRIPTS, WRITE};

/// The categories, as ACL CAT lists them.
pub const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// The bit of a category.
pub fn category(name: &[u8]) -> Option<u32> {
    let is_it = |category: &&str| category.as_bytes().eq_ignore_ascii_case(name);
    CATEGORIES.iter().position(is_it).map(|at| 1 << at)
}

/// The bits of the categories in a text.
pub fn bits(names: &str) -> u32 {
    let bit = |name: &str| category(name.as_bytes()).expect("CATEGORIES has it");
    names.split_ascii_whitespace().fold(0, |all, name| all | bit(name))
}

/// The categories of a command: the categories in its row, and the categories implied by its flags.
pub fn of(flags: u32, named: &str) -> u32 {
    let implied = [
        (WRITE, "write"),
        (READ, "read"),
        (ADMIN, "admin dangerous"),
        (BLOCKS, "blocking"),
        (PUBSUB, "pubsub"),
        (FAST, "fast"),
    ];
    // The effects of a script have the categories of its commands.
    let own = if flags & RUNS_SCRIPTS == 0 { flags } else { flags & FAST };
    let implied = implied.into_iter().filter(|(flag, _)| own & flag != 0);
    let speed = if flags & FAST == 0 { "slow" } else { "" };
    implied.fold(bits(named) | bits(speed), |all, (_, names)| all | bits(names))
}

/// The categories of a command with subcommands: the rest belongs to the subcommands.
pub fn of_container(named: &str) -> u32 {
    of(0, named)
}
