//! Commands that wait for an element, and the writes that end the waits.

use super::{Entry, Keyspace};
use crate::data::head::{Head, Kind};
use crate::data::waiting::{WaitKey, WaitLine};
use std::time::Duration;

/// The wait of a command that has found nothing to take.
#[derive(Clone, Debug)]
pub struct Wait {
    /// The awaited keys of a type, with nothing to take.
    pub keys: Vec<WaitKey>,
    /// The line of clients in which the command waits.
    pub line: WaitLine,
    /// The longest wait; `None`: until there is something to take.
    pub timeout: Option<Duration>,
    /// The command with its arguments.
    pub request: Vec<Vec<u8>>,
    /// The reply is dropped.
    pub is_silent: bool,
}

/// Most keys named by a transaction: beyond this number all waiting clients are called.
const MOST_NAMED: usize = 4_096;

/// The effects of a transaction on waiting clients.
#[derive(Clone, Debug, Default)]
pub struct Fills {
    /// Keys that have elements and had none, or with changed streams.
    pub keys: Vec<WaitKey>,
    /// At least one filled key was not noted in `keys`.
    pub unnamed: bool,
    /// Databases with other keys now.
    pub databases: Vec<u32>,
}

impl Fills {
    /// Whether waiting clients need no call.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && !self.unnamed && self.databases.is_empty()
    }

    /// Notes a database with other keys now. Each database is named once.
    pub(super) fn add_database(&mut self, number: u32) {
        if !self.databases.contains(&number) {
            self.databases.push(number);
        }
    }
}

impl Entry<'_, '_> {
    /// Notes a key for which a client may wait: the key has elements, and held nothing of this type
    /// before. Clients of a stream wait for more entries, and for the stream's end.
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
    /// A key to wait for.
    pub fn wait_key(&self, kind: Kind, key: &[u8]) -> WaitKey {
        WaitKey { database: self.database, kind, key: key.to_vec() }
    }

    /// Makes the command wait, without a reply so far.
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
