//! What stores with files have in common: snapshots that are only read, and failures.

use crate::bench::choices::Engine;
use crate::bench::deuteronomy::KeysAndValues;
use hyades_cli::failure::Failure;

/// A state of a store that does not change.
pub trait SnapshotReads {
    /// Whether a key has a value, which is read.
    fn read(&self, key: &[u8]) -> Result<bool, Failure>;

    /// Reads the first keys from one on, up to another that is not among them; how many.
    fn scan(&self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Result<usize, Failure>;
}

/// Such a state, on which a write is an error.
pub struct ReadOnly<R>(pub R);

fn is_read_only<T>() -> Result<T, Failure> {
    Err(Failure::Failed("a transaction that only reads is about to write".to_string()))
}

impl<R: SnapshotReads> KeysAndValues for ReadOnly<R> {
    type Error = Failure;

    fn read(&mut self, key: &[u8]) -> Result<bool, Failure> {
        self.0.read(key)
    }

    fn write(&mut self, _: &[u8], _: &[u8]) -> Result<(), Failure> {
        is_read_only()
    }

    fn modify(&mut self, _: &[u8], _: &[u8]) -> Result<(), Failure> {
        is_read_only()
    }

    fn insert(&mut self, _: &[u8], _: &[u8]) -> Result<(), Failure> {
        is_read_only()
    }

    fn scan(&mut self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Result<usize, Failure> {
        self.0.scan(from, to, limit)
    }
}

/// A failure of a store.
pub fn failed(engine: Engine, error: &dyn std::fmt::Display) -> Failure {
    Failure::Failed(format!("{} failed: {error}", engine.word()))
}
