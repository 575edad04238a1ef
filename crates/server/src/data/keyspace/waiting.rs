//! Commands that wait for an element, and the writes that they wait for.

use super::{Entry, Keyspace};
use crate::data::head::{Head, Kind};
use crate::data::waiting::{WaitKey, WaitLine};
use std::time::Duration;

/// What a command waits for that has found nothing to take.
#[derive(Clone, Debug)]
pub struct Wait {
    /// Keys of this type that hold nothing.
    pub keys: Vec<WaitKey>,
    /// The clients among which it waits.
    pub line: WaitLine,
    /// How long it waits; `None`: until there is something.
    pub timeout: Option<Duration>,
    /// The command with its arguments.
    pub request: Vec<Vec<u8>>,
    /// Its reply is dropped.
    pub is_silent: bool,
}

/// Most keys that a transaction names: beyond them all clients are called that wait.
const MOST_NAMED: usize = 4_096;

/// What a transaction does for clients that wait.
#[derive(Clone, Debug, Default)]
pub struct Fills {
    /// Keys that have elements and had none, or whose streams have changed.
    pub keys: Vec<WaitKey>,
    /// There are such keys, and they were not noted.
    pub unnamed: bool,
    /// Databases that have other keys now.
    pub databases: Vec<u32>,
}

impl Fills {
    /// Whether there is anything to tell to clients that wait.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && !self.unnamed && self.databases.is_empty()
    }

    /// A database has other keys now. Each is named once.
    pub(super) fn add_database(&mut self, number: u32) {
        if !self.databases.contains(&number) {
            self.databases.push(number);
        }
    }
}

impl Entry<'_, '_> {
    /// Notes a key that a client may wait for: it has elements, and held nothing of their type. Of
    /// a stream clients wait for more entries, and for its end.
    pub(super) fn note_filled(&self, now: Option<Head>) {
        let (before, now) = (self.head().map(Head::kind), now.map(Head::kind));
        let filled = now.filter(|kind| kind.is_waited_for() && before != Some(*kind));
        let stream = [before, now].contains(&Some(Kind::Stream)).then_some(Kind::Stream);
        let context = self.space().context();
        for kind in filled.filter(|kind| *kind != Kind::Stream).into_iter().chain(stream) {
            let fills = &mut context.effects.borrow_mut().fills;
            match context.names_filled && fills.keys.len() < MOST_NAMED {
                true => fills.keys.push(self.space().wait_key(kind, self.key())),
                false => fills.unnamed = true,
            }
        }
    }
}

impl Keyspace<'_> {
    /// A key that a client waits for.
    pub fn wait_key(&self, kind: Kind, key: &[u8]) -> WaitKey {
        WaitKey { database: self.database, kind, key: key.to_vec() }
    }

    /// The command waits: it has replied nothing.
    pub fn wait(&self, wait: Wait) {
        self.context.effects.borrow_mut().wait = Some(wait);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_named_once() {
        let mut fills = Fills::default();
        for number in [0, 1, 1, 2, 2, 0, 0, 1] {
            fills.add_database(number);
        }
        assert_eq!(fills.databases, [0, 1, 2]);
    }
}
