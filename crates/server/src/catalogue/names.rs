//! The names for rules of access and settings: of commands, of subcommands, and of commands present
//! in Redis only, so that rules for Redis hold.

use super::flags::WRITE;
use super::unbuilt::UNBUILT;
use super::{Command, DENY_OOM, all as commands, categories, subcommands};
use std::sync::OnceLock;

/// A command, or a subcommand.
pub struct NamedCommand {
    /// The name: `get`, `config|set`.
    pub name: &'static str,
    /// A bit for each of [`CATEGORIES`](super::CATEGORIES).
    pub categories: u32,
    /// Whether the command has subcommands, built or not.
    pub is_container: bool,
    /// The flags of a built command.
    pub flags: u32,
    /// Whether the server has the command, not only Redis.
    pub is_built: bool,
}

/// All commands and subcommands by name.
pub fn all() -> &'static [NamedCommand] {
    static ALL_NAMED: OnceLock<Vec<NamedCommand>> = OnceLock::new();
    ALL_NAMED.get_or_init(|| {
        let named = |name, flags, categories| NamedCommand {
            name,
            categories,
            is_container: false,
            flags,
            is_built: true,
        };
        let built = commands().iter().map(|row| named(row.name, row.flags, row.categories));
        let below = subcommands::SUBCOMMANDS.iter();
        let below = below.map(|row| named(row.name, row.flags, row.categories()));
        let unbuilt = UNBUILT.iter().flat_map(|(categories, names)| {
            let bits = categories::bits(categories);
            let names = names.split_ascii_whitespace();
            names.map(move |name| NamedCommand { is_built: false, ..named(name, 0, bits) })
        });
        let mut all: Vec<NamedCommand> = built.chain(below).chain(unbuilt).collect();
        all.sort_by_key(|named| named.name);
        let parents = all.iter().filter_map(|named| named.name.split_once('|'));
        let parents: Vec<&str> = parents.map(|(parent, _)| parent).collect();
        for named in &mut all {
            named.is_container = parents.contains(&named.name);
        }
        all
    })
}

/// Longest name in a search.
const LONGEST: usize = 32;

fn find_parts(command: &[u8], subcommand: Option<&[u8]>) -> Option<usize> {
    let mut lower = [0; LONGEST];
    let mut length = 0;
    let parts = [Some(command), subcommand.map(|_| &b"|"[..]), subcommand];
    for part in parts.into_iter().flatten() {
        let to = lower.get_mut(length..length + part.len())?;
        to.copy_from_slice(part);
        length += part.len();
    }
    lower[..length].make_ascii_lowercase();
    all().binary_search_by(|named| named.name.as_bytes().cmp(&lower[..length])).ok()
}

/// The place of a command, or of a subcommand by its whole name, in any case.
pub fn find(name: &[u8]) -> Option<usize> {
    find_parts(name, None)
}

/// The place of a subcommand of the container at a place, if the name exists.
pub fn subcommand(container: usize, name: &[u8]) -> Option<usize> {
    find_parts(all()[container].name.as_bytes(), Some(name))
}

/// The place of the command of a request: of a subcommand, if the name exists.
pub fn of_request(args: &[&[u8]]) -> Option<usize> {
    let command = find(args.first().filter(|name| !name.contains(&b'|'))?)?;
    match args.get(1).filter(|_| all()[command].is_container) {
        Some(word) => find_parts(args[0], Some(word)).or(Some(command)),
        None => Some(command),
    }
}

/// Whether a request of a command may use more memory: for a command with subcommands, by the row
/// of the subcommand.
pub fn grows(command: &Command, args: &[&[u8]]) -> bool {
    if !command.is_container {
        return command.has(DENY_OOM);
    }
    of_request(args).is_some_and(|at| all()[at].flags & DENY_OOM != 0)
}

/// Whether a request of the command at a place writes, by its subcommand if there is a subcommand.
pub fn writes(place: usize, args: &[&[u8]]) -> bool {
    let command = &commands()[place];
    let subcommand = args.get(1).filter(|_| command.is_container);
    let subcommand = subcommand.and_then(|word| find_parts(command.name.as_bytes(), Some(word)));
    (command.flags | subcommand.map_or(0, |at| all()[at].flags)) & WRITE != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_writes_as_its_subcommand_does() {
        let writes = |line: &str| {
            let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            writes(super::super::find(args[0]).unwrap(), &args)
        };
        assert!(writes("SET a b") && writes("function LOAD x") && writes("XGROUP create"));
        assert!(!writes("GET a") && !writes("FUNCTION LIST") && !writes("EVAL x 0"));
        assert!(!writes("PFCOUNT a") && !writes("SCRIPT LOAD x"));
    }

    #[test]
    fn each_name_is_there_once() {
        assert!(all().windows(2).all(|pair| pair[0].name < pair[1].name));
        assert!(all().iter().all(|named| named.name.len() <= LONGEST));
    }

    #[test]
    fn a_request_is_its_subcommand() {
        let name = |args: &[&[u8]]| of_request(args).map(|at| all()[at].name);
        assert_eq!(name(&[b"GET", b"a"]), Some("get"));
        assert_eq!(name(&[b"Config", b"SET", b"a"]), Some("config|set"));
        assert_eq!(name(&[b"config", b"no-such"]), Some("config"));
        assert_eq!(name(&[b"config"]), Some("config"));
        assert_eq!(name(&[b"config|set"]), None);
        assert_eq!(name(&[&[b'x'; 99]]), None);
        assert_eq!(name(&[b"config", &[b'x'; 99]]), Some("config"));
    }
}
