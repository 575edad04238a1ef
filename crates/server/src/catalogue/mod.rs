//! The commands: a row for each; everything else that the server reports and checks of a command is
//! derived from the row.
//!
//! A row has the function as well. Functions are above this module: `commands` expands the rows a
//! second time, see [`each_row`].

mod categories;
mod events;
mod finders;
mod flags;
mod keys;
pub mod names;
pub(crate) mod rows;
mod slots;
mod subcommands;
mod unbuilt;

pub use categories::{CATEGORIES, category};
pub use events::EventRule;
pub use flags::{
    ADMIN, ALLOW_BUSY, ALONE, ANY_ARITY, ASKING, BLOCKS, DENY_OOM, FAST, MAY_WRITE,
    NO_ASYNC_LOADING, NO_AUTH, NO_MULTI, NOSCRIPT, PUBSUB, READ, RUNS_SCRIPTS, SKIP_SLOWLOG, WRITE,
};
pub use keys::{
    ACCESS, KeyAccess, KeyFlags, KeySpec, KeysBegin, KeysFound, NamedChannels, RO, RW, RequestKeys,
    UPDATE, flag_names,
};
pub(crate) use rows::each_row;
pub use slots::{out_of_cluster, slots_of};
pub use subcommands::{Subcommand, find as subcommand, subcommands_of};

use std::sync::OnceLock;

/// When a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// In a transaction, together with its neighbours.
    Data,
    /// Outside of transactions, before the database is open as well.
    Local,
    /// Outside of transactions, once the database is open.
    Open,
    /// By the conversation itself: MULTI, EXEC, DISCARD.
    Multi,
}

impl Phase {
    /// As [`Phase::Data`], for a function with its client as an argument.
    #[allow(non_upper_case_globals, reason = "rows name phases as functions are named")]
    const Script: Phase = Phase::Data;
}

/// The row of a command, as written.
struct Row {
    name: &'static str,
    arity: i32,
    phase: Phase,
    flags: u32,
    keys: &'static [KeySpec],
    categories: &'static str,
    event: EventRule,
    since: &'static str,
    complexity: &'static str,
    summary: &'static str,
    arguments: &'static str,
}

/// A command.
pub struct Command {
    /// The name, in lower case.
    pub name: &'static str,
    /// Number of arguments with the name; at least as many if negative.
    pub arity: i32,
    /// When the command runs.
    pub phase: Phase,
    /// [`WRITE`] and other flags.
    pub flags: u32,
    /// First key, last key and step, without keys that only a search of the request finds.
    key_range: (i32, i32, i32),
    /// The specifications of the keys.
    pub keys: &'static [KeySpec],
    /// The group in the documentation.
    pub group: &'static str,
    /// A bit for each of [`CATEGORIES`].
    categories: u32,
    /// The keyspace event of a key that the command has written.
    pub event: EventRule,
    /// Whether the command has subcommands, and does nothing without a subcommand.
    pub is_container: bool,
    /// The version that brought the command: of Redis or Valkey, or of Hyades for its own commands.
    pub since: &'static str,
    /// How the time grows with the data; `-` for nothing to say.
    pub complexity: &'static str,
    /// The purpose, in a sentence.
    pub summary: &'static str,
    /// The arguments, in the notation of COMMAND DOCS.
    pub arguments: &'static str,
}

impl Command {
    fn new(group: &'static str, row: &Row) -> Command {
        // COMMAND alone is a command as well.
        let is_container = row.name != "command" && !subcommands_of(row.name).is_empty();
        let categories = match is_container {
            true => categories::of_container(row.categories),
            false => categories::of(row.flags, row.categories),
        };
        Command {
            name: row.name,
            arity: row.arity,
            phase: row.phase,
            flags: row.flags,
            key_range: keys::range(row.keys.iter().filter(|spec| spec.finds_keys())),
            keys: row.keys,
            group,
            categories,
            event: row.event,
            is_container,
            since: row.since,
            complexity: row.complexity,
            summary: row.summary,
            arguments: row.arguments,
        }
    }

    /// A bit for each of [`CATEGORIES`].
    pub fn categories(&self) -> u32 {
        self.categories
    }

    /// Whether the command has a flag.
    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Whether the command changes data, or may.
    pub fn writes(&self) -> bool {
        self.has(WRITE | MAY_WRITE)
    }

    /// Whether the command runs before the database is open.
    pub fn runs_while_loading(&self) -> bool {
        matches!(self.phase, Phase::Local | Phase::Multi)
    }

    /// Whether the command may have this number of arguments.
    pub fn takes(&self, arguments: usize) -> bool {
        match usize::try_from(self.arity) {
            Ok(exactly) => arguments == exactly,
            Err(_) => arguments >= self.arity.unsigned_abs() as usize,
        }
    }

    /// Places of the keys among the arguments, without places that depend on the arguments.
    pub fn key_places(&self, arguments: usize) -> impl Iterator<Item = usize> + use<> {
        let (first, last, step) = self.key_range;
        let last = if last < 0 { arguments as i32 + last } else { last };
        // A subcommand may lack the key of other subcommands.
        let last = last.min(arguments as i32 - 1);
        let places = if first > 0 { first..last + 1 } else { 0..0 };
        places.step_by(step.max(1) as usize).map(|at| at as usize)
    }

    /// First key, last key and step, as in COMMAND. Channels of a shard count as keys, for clients
    /// that choose a server by channel.
    pub fn shown_range(&self) -> (i32, i32, i32) {
        keys::range(self.shown_keys())
    }

    /// The specifications that COMMAND shows.
    pub fn shown_keys(&self) -> impl Iterator<Item = &'static KeySpec> + use<> {
        self.keys.iter().filter(|spec| spec.is_shown())
    }

    /// Whether [`Command::key_places`] does not know all keys, or patterns among the arguments
    /// stand for keys: Redis's flag `movablekeys`.
    pub fn has_movable_keys(&self) -> bool {
        self.keys.iter().any(|spec| !spec.is_range())
    }
}

/// The rows of a group.
macro_rules! rows {
    ($group:literal; $(
        $(#[$attribute:meta])*
        $name:literal, $arity:literal, $phase:ident($($function:path)?), $flags:expr,
        [$($key:expr),*], $categories:literal, $event:expr,
        $since:literal, $complexity:literal, $summary:literal,
        $arguments:literal;
    )*) => {
        ($group, &[$(
            $(#[$attribute])*
            Row {
                name: $name,
                arity: $arity,
                phase: Phase::$phase,
                flags: $flags,
                keys: const { &[$($key),*] },
                categories: $categories,
                event: $event,
                since: $since,
                complexity: $complexity,
                summary: $summary,
                arguments: $arguments,
            }
        ),*])
    };
}

/// Notes of a key whose flags depend on the request.
const DEPENDS: &str = "Whether it is read, and whether it is written, depends on the options";

/// All commands by name.
pub fn all() -> &'static [Command] {
    use EventRule as Event;
    use flags::{GROW, NO_FLAGS};
    use keys::{
        DELETE, INCOMPLETE, INSERT, NO_KEY_FLAGS, NOT_KEY, OW, RM, VARIABLE, all_from, at, behind,
        behind_half, channels, counted, counted_pairs, first, one_behind, patterns, range_of,
        somewhere,
    };

    static ALL_COMMANDS: OnceLock<Vec<Command>> = OnceLock::new();
    ALL_COMMANDS.get_or_init(|| {
        let groups: &[(&str, &[Row])] = &each_row!(rows);
        let commands =
            groups.iter().flat_map(|(group, rows)| rows.iter().map(|row| Command::new(group, row)));
        let mut all: Vec<Command> = commands.collect();
        all.sort_by_key(|command| command.name);
        all
    })
}

/// The place of a command in [`all`]; the name may be in any case.
pub fn find(name: &[u8]) -> Option<usize> {
    static NAME_INDEX: OnceLock<NameIndex> = OnceLock::new();
    NAME_INDEX.get_or_init(NameIndex::new).find(name)
}

/// The places of commands in a hash table: each request looks for its name.
struct NameIndex {
    /// The places in [`all`], or [`NO_COMMAND`]; at most half of the slots are taken.
    slots: Box<[u16]>,
}

const NO_COMMAND: u16 = u16::MAX;

/// No command has a longer name, in bytes.
const LONGEST_NAME: usize = 32;

impl NameIndex {
    fn new() -> NameIndex {
        let commands = all();
        debug_assert!(commands.iter().all(|command| command.name.len() <= LONGEST_NAME));
        let mut index =
            NameIndex { slots: vec![NO_COMMAND; (2 * commands.len()).next_power_of_two()].into() };
        for (place, command) in commands.iter().enumerate() {
            let free = index.probe(command.name.as_bytes(), |place| place == NO_COMMAND);
            index.slots[free] = place as u16;
        }
        index
    }

    /// The first slot that is accepted, in the order of slots for a name in any case.
    fn probe(&self, name: &[u8], accepts: impl Fn(u16) -> bool) -> usize {
        let hash = name.iter().fold(name.len() as u32, |hash, byte| {
            (hash ^ u32::from(byte.to_ascii_lowercase())).wrapping_mul(0x0100_0193)
        });
        let mask = self.slots.len() - 1;
        let mut slot = (hash ^ hash >> 15) as usize & mask;
        while !accepts(self.slots[slot]) {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn find(&self, name: &[u8]) -> Option<usize> {
        if name.len() > LONGEST_NAME {
            return None;
        }
        let is_named =
            |place: u16| all()[place as usize].name.as_bytes().eq_ignore_ascii_case(name);
        let slot = self.probe(name, |place| place == NO_COMMAND || is_named(place));
        Some(self.slots[slot]).filter(|place| *place != NO_COMMAND).map(usize::from)
    }
}

/// The command of a name, in any case.
pub fn command(name: &[u8]) -> Option<&'static Command> {
    find(name).map(|at| &all()[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_in_any_case() {
        for (at, command) in all().iter().enumerate() {
            assert_eq!(find(command.name.as_bytes()), Some(at));
            assert_eq!(find(command.name.to_uppercase().as_bytes()), Some(at));
        }
        assert_eq!(find(b"gett"), None);
        assert_eq!(find(&[b'g'; 100]), None);
    }

    #[test]
    fn arities_and_keys() {
        let entry = |name: &str| command(name.as_bytes()).unwrap();
        assert!(entry("get").takes(2) && !entry("get").takes(3) && entry("set").takes(9));
        assert_eq!(entry("mset").key_places(5).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(entry("ping").key_places(1).count(), 0);
        for command in all() {
            for arguments in (1..6).filter(|arguments| command.takes(*arguments)) {
                let is_there = |at: usize| at < arguments;
                assert!(command.key_places(arguments).all(is_there), "{}", command.name);
            }
        }
    }
}
