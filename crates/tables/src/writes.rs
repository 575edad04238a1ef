//! The writes of an operation: all of them, or none.

use crate::bytes::Bytes;
use crate::error::Error;
use hyades_deuteronomy::Transaction;

/// What stood under a key before a write.
pub(crate) enum Before {
    Absent,
    Value(Bytes),
    /// Not read: the write cannot be taken back.
    Unknown,
}

impl From<Option<Bytes>> for Before {
    fn from(value: Option<Bytes>) -> Self {
        value.map_or(Self::Absent, Self::Value)
    }
}

/// The writes of an operation in a transaction, to be taken back if a later write fails.
pub(crate) struct Writes<'w, 's> {
    tx: &'w mut Transaction<'s>,
    done: Vec<(Vec<u8>, Before)>,
}

impl<'w, 's> Writes<'w, 's> {
    /// Runs an operation. If the operation fails, and the transaction has not ended, the
    /// operation's writes are taken back.
    ///
    /// # Errors
    /// The error of the operation; [`Error::Partial`] if a write could not be taken back.
    pub fn run<T>(
        tx: &'w mut Transaction<'s>,
        operation: impl FnOnce(&mut Writes<'w, 's>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut writes = Writes { tx, done: Vec::new() };
        let result = operation(&mut writes);
        match result {
            Err(error) if !error.has_ended_transaction() => match writes.take_back() {
                true => Err(error),
                false => Err(Error::Partial(Box::new(error))),
            },
            result => result,
        }
    }

    /// Takes the writes back, the last first. Returns whether all were.
    fn take_back(mut self) -> bool {
        while let Some((key, before)) = self.done.pop() {
            let written = match before {
                Before::Absent => self.tx.delete(&key),
                Before::Value(value) => self.tx.put(&key, &value),
                Before::Unknown => return false,
            };
            if written.is_err() {
                return false;
            }
        }
        true
    }

    /// The transaction, for reads.
    pub fn tx(&mut self) -> &mut Transaction<'s> {
        self.tx
    }

    pub fn put(&mut self, key: &[u8], value: &[u8], before: Before) -> Result<(), Error> {
        self.tx.put(key, value)?;
        self.done.push((key.to_vec(), before));
        Ok(())
    }

    pub fn delete(&mut self, key: &[u8], before: Before) -> Result<(), Error> {
        self.tx.delete(key)?;
        self.done.push((key.to_vec(), before));
        Ok(())
    }
}
