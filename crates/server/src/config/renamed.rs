//! `rename-command`: commands with new names for clients, or without a name.

use crate::catalogue;
use crate::catalogue::names;
use std::collections::HashMap;

/// The renamed commands.
#[derive(Clone, Debug, Default)]
pub struct RenamedCommands {
    /// The meanings of names, in lower case: the place of a command in the table, or nothing.
    names: HashMap<Vec<u8>, Option<usize>>,
}

/// Longest new name, in bytes.
const LONGEST: usize = 128;

impl RenamedCommands {
    /// The meaning of a name, if different from the table.
    #[inline]
    pub fn find(&self, name: &[u8]) -> Option<Option<usize>> {
        if self.names.is_empty() || name.len() > LONGEST {
            return None;
        }
        self.names.get(&name.to_ascii_lowercase()).copied()
    }

    /// Gives a command another name; an empty name removes the command's name.
    ///
    /// # Errors
    /// There is no command of the old name, or there is one of the new name.
    pub fn rename(&mut self, old: &str, new: &str) -> Result<(), String> {
        let own = |name: &str| catalogue::find(name.as_bytes());
        let given = self.find(old.as_bytes());
        let place = given.unwrap_or_else(|| own(old));
        // A command that only Redis has is refused by any name.
        let is_unbuilt = || {
            let is_named = names::find(old.as_bytes()).is_some() && !old.contains('|');
            given.is_none() && is_named
        };
        if place.is_none() && !is_unbuilt() {
            return Err(format!("there is no command {old:?}"));
        }
        if new.len() > LONGEST {
            return Err(format!("the new name of {old:?} is longer than {LONGEST} bytes"));
        }
        if self.find(new.as_bytes()).unwrap_or_else(|| own(new)).is_some() {
            return Err(format!("there is a command {new:?} already"));
        }
        self.names.insert(old.to_ascii_lowercase().into_bytes(), None);
        if !new.is_empty() {
            self.names.insert(new.to_ascii_lowercase().into_bytes(), place);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_for_one_command_at_a_time() {
        let mut renamed = RenamedCommands::default();
        let place = |name: &str| catalogue::find(name.as_bytes());
        assert_eq!(renamed.find(b"get"), None);
        renamed.rename("FlushDB", "Badger").unwrap();
        assert_eq!(renamed.find(b"BADGER"), Some(place("flushdb")));
        assert_eq!((renamed.find(b"flushdb"), renamed.find(b"get")), (Some(None), None));
        renamed.rename("keys", "").unwrap();
        assert_eq!((renamed.find(b"KEYS"), renamed.find(b"")), (Some(None), None));
        // A name that is free again, and a given name.
        renamed.rename("get", "keys").unwrap();
        renamed.rename("badger", "weasel").unwrap();
        assert_eq!(renamed.find(b"keys"), Some(place("get")));
        assert_eq!(renamed.find(b"badger"), Some(None));
        assert_eq!(renamed.find(b"weasel"), Some(place("flushdb")));
        for new in ["keys", "SET", "del"] {
            let error = renamed.rename("set", new).unwrap_err();
            assert_eq!(error, format!("there is a command {new:?} already"));
        }
        for old in ["none", "get", "config|get", ""] {
            let error = renamed.rename(old, "x").unwrap_err();
            assert_eq!(error, format!("there is no command {old:?}"));
        }
        let longest = "x".repeat(LONGEST);
        assert!(renamed.rename("set", &(longest.clone() + "x")).is_err());
        renamed.rename("set", &longest).unwrap();
        assert_eq!(renamed.find(longest.to_uppercase().as_bytes()), Some(place("set")));
        // Commands not built.
        renamed.rename("eval", "").unwrap();
        renamed.rename("psync", "x").unwrap();
        assert_eq!((renamed.find(b"eval"), renamed.find(b"x")), (Some(None), Some(None)));
    }
}
