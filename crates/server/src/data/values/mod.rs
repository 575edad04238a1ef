//! The values of keys, a file for each type. A command reads an entry as the type it works on. A
//! command on any type matches on [`Value`], and no match on types has a wildcard: a new type does
//! not compile before each such place handles it.
//!
//! A function that changes a value stores the value as well, or returns an argument for its
//! `store`.

pub mod elements;
pub mod hash;
pub mod hyperloglog;
pub mod list;
pub mod members;
pub mod set;
pub mod sorted_set;
pub mod stream;
pub mod stream_image;
pub mod string;
pub mod timed_hash;

use super::chunks::StoredString;
use super::head::{Head, Kind};
use super::keyspace::{Entry, Stop};
use elements::Elements;
use hash::HashType;
use list::ListType;
use set::SetType;
use sorted_set::SortedSetType;
use stream::StoredStream;
use timed_hash::TimedHash;

/// A value as stored.
pub enum Value<'t, 's> {
    /// Bytes.
    String(StoredString<'t>),
    /// A list of strings.
    List(Elements<'t, 's, ListType>),
    /// A set of strings.
    Set(Elements<'t, 's, SetType>),
    /// Fields with values.
    Hash(Elements<'t, 's, HashType>),
    /// Fields with values, of which some expire.
    TimedHash(TimedHash<'t, 's>),
    /// Members by score.
    SortedSet(Elements<'t, 's, SortedSetType>),
    /// Entries by id, and groups of consumers.
    Stream(StoredStream<'t, 's>),
}

impl<'t, 's> Entry<'t, 's> {
    /// Head and value, if the key exists. The entry was read with the body.
    pub fn value(&self) -> Result<Option<(Head, Value<'t, 's>)>, Stop> {
        let Some((head, body)) = self.row() else { return Ok(None) };
        let value = match head.kind() {
            Kind::String => Value::String(self.string_in(head.form(), body)?),
            Kind::List => Value::List(Elements::of(*self)?),
            Kind::Set => Value::Set(Elements::of(*self)?),
            Kind::Hash if head.form().is_timed() => Value::TimedHash(TimedHash::of(*self)?),
            Kind::Hash => Value::Hash(Elements::of(*self)?),
            Kind::SortedSet => Value::SortedSet(Elements::of(*self)?),
            Kind::Stream => Value::Stream(StoredStream::of(*self)?),
        };
        Ok(Some((head, value)))
    }
}

impl Value<'_, '_> {
    /// Bytes of the value's blocks or chunks, including their overhead; 0 if the value has none.
    pub fn bytes_beside_row(&self) -> Result<usize, Stop> {
        match self {
            Value::String(StoredString::InRow(_)) => Ok(0),
            Value::String(StoredString::InChunks(string)) => Ok(string.bytes()?),
            Value::List(all) => all.bytes_in_blocks(),
            Value::Set(all) => all.bytes_in_blocks(),
            Value::Hash(all) => all.bytes_in_blocks(),
            Value::TimedHash(hash) => hash.bytes_in_blocks(),
            Value::SortedSet(all) => all.bytes_in_blocks(),
            Value::Stream(stream) => stream.bytes_in_blocks(),
        }
    }

    /// Stores a copy under this head, in the place of any earlier value.
    pub fn copy_to(&self, target: &Entry<'_, '_>, head: Head) -> Result<(), Stop> {
        match self {
            Value::String(StoredString::InRow(text)) => target.put(head, text),
            Value::String(StoredString::InChunks(string)) => target.put_copy(head, string),
            Value::List(all) => all.copy_to(target, head),
            Value::Set(all) => all.copy_to(target, head),
            Value::Hash(all) => all.copy_to(target, head),
            Value::TimedHash(hash) => hash.copy_to(target, head),
            Value::SortedSet(all) => all.copy_to(target, head),
            Value::Stream(stream) => stream.copy_to(target, head),
        }
    }

    /// The reply of OBJECT ENCODING for a value with this head.
    pub fn encoding(&self, head: Head) -> Result<&'static str, Stop> {
        match self {
            Value::String(text) => Ok(string::encoding(text, head.form())),
            Value::List(all) => all.encoding(),
            Value::Set(all) => all.encoding(),
            Value::Hash(all) => all.encoding(),
            Value::TimedHash(hash) => hash.encoding(),
            Value::SortedSet(all) => all.encoding(),
            Value::Stream(_) => Ok("stream"),
        }
    }
}
