//! The position of an import: a row for each thread, written by the importing transactions, so that
//! an interrupted import continues there.

use crate::data::keyspace::Keyspace;
use hyades::Abort;

/// The position of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The identity of the files.
    pub identity: u64,
    /// The number of threads. Batches are dealt to the threads in turn.
    pub threads: u8,
    /// The part of the files read by the thread, see [`values_of`] and [`commands_of`].
    pub part: u32,
    /// Batches of the part up to the last batch of the thread.
    pub batches: u64,
}

/// The part of a finished import.
pub const OVER: u32 = u32::MAX;

/// The values at the beginning of a file.
pub fn values_of(file: u32) -> u32 {
    2 * file
}

/// The commands of a file.
pub fn commands_of(file: u32) -> u32 {
    2 * file + 1
}

impl Position {
    fn write(&self) -> Vec<u8> {
        let mut text = self.identity.to_le_bytes().to_vec();
        text.push(self.threads);
        text.extend(self.part.to_le_bytes());
        text.extend(self.batches.to_le_bytes());
        text
    }

    fn read(text: &[u8]) -> Option<Position> {
        let (identity, rest) = text.split_first_chunk()?;
        let (threads, rest) = rest.split_first()?;
        let (part, rest) = rest.split_first_chunk()?;
        let (batches, _) = rest.split_first_chunk()?;
        Some(Position {
            identity: u64::from_le_bytes(*identity),
            threads: *threads,
            part: u32::from_le_bytes(*part),
            batches: u64::from_le_bytes(*batches),
        })
    }

    /// Whether a batch of a part was imported by the thread before.
    pub fn is_behind(&self, part: u32, batch: u64) -> bool {
        (self.part, self.batches) > (part, batch)
    }

    /// Stores the position of a thread.
    ///
    /// # Errors
    /// The errors of a write.
    pub fn keep(&self, space: &Keyspace<'_>, thread: u8) -> Result<(), Abort> {
        space.put_import_position(thread, &self.write())
    }

    /// The positions of all threads; none before an import has begun.
    ///
    /// # Errors
    /// The errors of a read.
    pub fn all(space: &Keyspace<'_>) -> Result<Vec<Position>, Abort> {
        let rows = space.import_positions()?;
        Ok(rows.iter().filter_map(|(_, text)| Position::read(text)).collect())
    }
}
