//! Values as read.

use hyades_deuteronomy::Value;
use std::fmt;
use std::ops::Deref;

/// The bytes of a value: shared with the database's memory, or put together from pieces.
/// Dereferences to a slice.
#[derive(Clone)]
pub struct Bytes {
    held: Held,
    /// The number of bytes in front of the value: the library's own.
    skipped: usize,
}

#[derive(Clone)]
enum Held {
    Shared(Value),
    Owned(Vec<u8>),
}

impl Bytes {
    pub(crate) fn shared(value: Value) -> Self {
        Self { held: Held::Shared(value), skipped: 0 }
    }

    pub(crate) fn owned(bytes: Vec<u8>) -> Self {
        Self { held: Held::Owned(bytes), skipped: 0 }
    }

    /// The same without the first `count` bytes, of which there are as many.
    pub(crate) fn skip(mut self, count: usize) -> Self {
        debug_assert!(count <= self.len(), "more bytes are skipped than there are");
        self.skipped += count;
        self
    }

    /// The bytes as a vector, copied where shared.
    pub fn into_vec(self) -> Vec<u8> {
        match self.held {
            Held::Owned(mut bytes) => {
                bytes.drain(..self.skipped);
                bytes
            }
            Held::Shared(value) => value[self.skipped..].to_vec(),
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let bytes: &[u8] = match &self.held {
            Held::Shared(value) => value,
            Held::Owned(bytes) => bytes,
        };
        &bytes[self.skipped..]
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Bytes {}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
