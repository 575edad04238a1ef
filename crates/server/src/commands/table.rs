//! The commands that are built, with what clients are told of them.

mod rows;

use super::{DataCommand, LocalCommand};
use rows::{
    bitmap_rows, connection_rows, generic_rows, hash_rows, list_rows, pubsub_rows, server_rows,
    set_rows, sort_rows, sorted_set_rows, string_rows, transaction_rows,
};
use std::sync::OnceLock;

/// How a command runs.
#[derive(Clone, Copy)]
pub enum Run {
    /// In a transaction, together with its neighbours.
    Data(DataCommand),
    /// Outside of transactions, before the database is open as well.
    Local(LocalCommand),
    /// Outside of transactions, once the database is open.
    Open(LocalCommand),
    /// By the conversation itself: MULTI, EXEC, DISCARD.
    Multi,
}

/// The command writes.
pub const WRITE: u32 = 1;
/// The command reads keys.
pub const READ: u32 = 2;
/// It takes a time that does not depend on the data.
pub const FAST: u32 = 4;
/// It is for operators.
pub const ADMIN: u32 = 8;
/// It is a transaction of its own, outside of EXEC, and no other thread runs it.
pub const ALONE: u32 = 16;
/// It may wait for an element; outside of EXEC it is a transaction of its own.
pub const BLOCKS: u32 = 32;

/// It may use more memory: it is refused when there is none left (Redis's flag `denyoom`).
pub const DENY_OOM: u32 = 64;
/// The command writes, and may use more memory.
pub const GROW: u32 = WRITE | DENY_OOM;

/// A command.
pub struct Command {
    /// Its name, in lower case.
    pub name: &'static str,
    /// Number of arguments with its name; at least that many if negative.
    pub arity: i32,
    /// [`WRITE`] and others.
    pub flags: u32,
    /// First key, last key, and step, as COMMAND shows them.
    pub keys: (i32, i32, i32),
    /// Its group in the documentation.
    pub group: &'static str,
    /// How it runs.
    pub run: Run,
}

impl Command {
    /// Whether it changes data.
    pub fn writes(&self) -> bool {
        self.flags & WRITE != 0
    }

    /// Whether it may use more memory.
    pub fn grows(&self) -> bool {
        self.flags & DENY_OOM != 0
    }

    /// Whether it may have this number of arguments.
    pub fn takes(&self, arguments: usize) -> bool {
        match usize::try_from(self.arity) {
            Ok(exactly) => arguments == exactly,
            Err(_) => arguments >= self.arity.unsigned_abs() as usize,
        }
    }

    /// Places of the keys among its arguments.
    pub fn key_places(&self, arguments: usize) -> impl Iterator<Item = usize> + use<> {
        let (first, last, step) = self.keys;
        let last = if last < 0 { arguments as i32 + last } else { last };
        // A subcommand may be without the key that others have.
        let last = last.min(arguments as i32 - 1);
        let places = if first > 0 { first..last + 1 } else { 0..0 };
        places.step_by(step.max(1) as usize).map(|at| at as usize)
    }
}

/// All commands by name.
pub fn all() -> &'static [Command] {
    static ALL_COMMANDS: OnceLock<Vec<Command>> = OnceLock::new();
    ALL_COMMANDS.get_or_init(|| {
        let groups = [
            ("string", string_rows()),
            ("bitmap", bitmap_rows()),
            ("list", list_rows()),
            ("set", set_rows()),
            ("hash", hash_rows()),
            ("sorted-set", sorted_set_rows()),
            ("generic", generic_rows()),
            ("generic", sort_rows()),
            ("connection", connection_rows()),
            ("pubsub", pubsub_rows()),
            ("transactions", transaction_rows()),
            ("server", server_rows()),
        ];
        let mut all = Vec::new();
        for (group, rows) in groups {
            all.extend(rows.into_iter().map(|(name, arity, flags, keys, run)| Command {
                name,
                arity,
                flags,
                keys,
                group,
                run,
            }));
        }
        all.sort_by_key(|command| command.name);
        all
    })
}

/// The place of a command in the table; its name may be in any case.
pub fn find(name: &[u8]) -> Option<usize> {
    let mut lower = [0; 20];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    all().binary_search_by(|command| command.name.as_bytes().cmp(lower)).ok()
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
        let of = |name: &str| &all()[find(name.as_bytes()).unwrap()];
        assert!(of("get").takes(2) && !of("get").takes(3) && of("set").takes(9));
        assert_eq!(of("mset").key_places(5).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(of("ping").key_places(1).count(), 0);
        for command in all() {
            for arguments in (1..6).filter(|arguments| command.takes(*arguments)) {
                let is_there = |at: usize| at < arguments;
                assert!(command.key_places(arguments).all(is_there), "{}", command.name);
            }
        }
    }
}
