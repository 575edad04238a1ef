//! The permanent name of a stream.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The id of a stream, never reused for another stream of the database. Within an incarnation a
/// stream has an index too, its component in vectors; the next incarnation may give the index to
/// another stream: the index is a `usize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
#[repr(transparent)]
pub struct StreamId(pub u32);

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
