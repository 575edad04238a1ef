//! Collections of any type as their elements: packed in the row of the key while few and short,
//! else in blocks.

use crate::config::PackedLimits;
use crate::data::blocks::BlockTable;
use crate::data::collections::MOST_PACKED_BYTES;
use crate::data::head::{Form, Head, Kind};
use crate::data::keyspace::{Entry, Keyspace, Stop};
use crate::data::packed;
use hyades::Abort;
use std::marker::PhantomData;

/// Most bytes of a collection packed by Redis.
pub(super) const MOST_PACKED_BY_REDIS: usize = 2 * 512 * 66;

/// A type of collections. The elements are passed as strings, one or more for each, in packed
/// order.
pub trait CollectionType {
    /// The type.
    const KIND: Kind;
    /// The number of strings of an element.
    const STRINGS: usize;
    /// The reply of OBJECT ENCODING for a large collection.
    const LARGE_ENCODING: &'static str;

    /// Most packed elements.
    fn most_packed(limits: PackedLimits) -> usize;

    /// Writes elements into the blocks of a new number. Returns the body of the key's row.
    fn write(
        blocks: BlockTable<'_>,
        number: u64,
        secret: u64,
        strings: &[&[u8]],
    ) -> Result<Vec<u8>, Stop>;

    /// All elements of a collection in blocks.
    fn read<'t>(blocks: BlockTable<'t>, body: &'t [u8]) -> Result<Vec<&'t [u8]>, Stop>;

    /// Bytes of the blocks, including their overhead.
    fn bytes(blocks: BlockTable<'_>, body: &[u8]) -> Result<usize, Stop>;

    /// The secret of the members' places, if there is one.
    fn secret(body: &[u8]) -> Result<Option<u64>, Abort>;

    /// The reply of OBJECT ENCODING, by the default thresholds of Redis 7.2; `None` for a large
    /// collection.
    fn small_encoding(strings: &[&[u8]]) -> Option<&'static str>;
}

/// A key with a collection of a type, or without a value.
pub struct Elements<'t, 's, T> {
    entry: Entry<'t, 's>,
    body: &'t [u8],
    collection_type: PhantomData<T>,
}

impl<'t, 's, T: CollectionType> Elements<'t, 's, T> {
    /// The elements of an entry that was read with the body.
    ///
    /// # Errors
    /// The entry holds another type.
    pub fn of(entry: Entry<'t, 's>) -> Result<Elements<'t, 's, T>, Stop> {
        let body = entry.body_of(T::KIND)?.unwrap_or_default();
        Ok(Elements { entry, body, collection_type: PhantomData })
    }

    /// The entry of the key.
    pub fn entry(&self) -> &Entry<'t, 's> {
        &self.entry
    }

    /// The body of the key's row, empty if there is none.
    pub fn body(&self) -> &'t [u8] {
        self.body
    }

    /// All elements; empty if the key does not exist.
    pub fn all(&self) -> Result<Vec<&'t [u8]>, Stop> {
        match self.entry.lies_in_blocks() {
            true => T::read(self.entry.blocks(), self.body),
            false => Ok(packed::elements(self.body)?),
        }
    }

    /// Bytes of the blocks, including their overhead; 0 without blocks.
    pub fn bytes_in_blocks(&self) -> Result<usize, Stop> {
        match self.entry.lies_in_blocks() {
            true => T::bytes(self.entry.blocks(), self.body),
            false => Ok(0),
        }
    }

    /// The reply of OBJECT ENCODING.
    pub fn encoding(&self) -> Result<&'static str, Stop> {
        // A collection in blocks may be small enough for Redis to pack it.
        if self.bytes_in_blocks()? > 2 * MOST_PACKED_BY_REDIS {
            return Ok(T::LARGE_ENCODING);
        }
        Ok(T::small_encoding(&self.all()?).unwrap_or(T::LARGE_ENCODING))
    }

    /// Stores a copy under this head, in the place of any earlier value.
    pub fn copy_to(&self, target: &Entry<'_, '_>, head: Head) -> Result<(), Stop> {
        match self.entry.lies_in_blocks() {
            true => target.put(head, &write::<T>(target.space(), new_secret(), &self.all()?)?),
            false => target.put(head, self.body),
        }
    }

    /// Stores the elements of a changed collection. An empty collection does not exist.
    pub fn store<'a>(&self, all: impl IntoIterator<Item = &'a [u8]>) -> Result<(), Stop> {
        let all: Vec<&[u8]> = all.into_iter().collect();
        if all.is_empty() {
            return Ok(self.entry.remove().map(drop)?);
        }
        let Some(head) = self.entry.head() else { return put::<T>(&self.entry, &all, None) };
        // A collection in blocks stays there, as in Redis.
        let stays = self.entry.lies_in_blocks();
        let secret = if stays { T::secret(self.body)? } else { None };
        let (form, body) = encoded::<T>(self.entry.space(), &all, stays, secret)?;
        self.entry.free()?;
        self.entry.change(head.with_form(form), Some(&body))
    }
}

/// Stores a collection in the place of any earlier value. The collection has an element, and does
/// not expire at once.
pub fn put<T: CollectionType>(
    entry: &Entry<'_, '_>,
    all: &[&[u8]],
    expires: Option<i64>,
) -> Result<(), Stop> {
    let (form, body) = encoded::<T>(entry.space(), all, false, None)?;
    entry.put(Head::new(T::KIND, form).with_expiry(expires), &body)
}

/// Stores a collection in the place of any earlier value. An empty collection does not exist.
pub fn replace<'a, T: CollectionType>(
    space: &Keyspace<'_>,
    key: &[u8],
    all: impl IntoIterator<Item = &'a [u8]>,
) -> Result<(), Stop> {
    let (entry, all) = (space.find_head(key)?, all.into_iter().collect::<Vec<_>>());
    if all.is_empty() {
        return Ok(entry.remove().map(drop)?);
    }
    // Members keep their places: a scan goes on as if only the missing members had been removed.
    let stays = entry.lies_in_blocks() && entry.head().is_some_and(|head| head.kind() == T::KIND);
    let secret = match stays {
        true => space.find(key)?.row().map_or(Ok(None), |(_, body)| T::secret(body))?,
        false => None,
    };
    let (form, body) = encoded::<T>(space, &all, false, secret)?;
    entry.put(Head::new(T::KIND, form), &body)
}

/// Form and body of a collection. `stays`: it lies in blocks in any case; `secret`: the secret of
/// the collection it replaces.
fn encoded<T: CollectionType>(
    space: &Keyspace<'_>,
    all: &[&[u8]],
    stays: bool,
    secret: Option<u64>,
) -> Result<(Form, Vec<u8>), Stop> {
    let bytes: usize = all.iter().map(|string| packed::size(string.len())).sum();
    let most = T::most_packed(space.context().packed);
    Ok(match stays || bytes > MOST_PACKED_BYTES || all.len() / T::STRINGS > most {
        true => (Form::Blocks, write::<T>(space, secret.unwrap_or_else(new_secret), all)?),
        false => (Form::Plain, packed::pack(all.iter().copied())),
    })
}

/// Writes elements into new blocks. Returns the body of the key's row.
fn write<T: CollectionType>(
    space: &Keyspace<'_>,
    secret: u64,
    all: &[&[u8]],
) -> Result<Vec<u8>, Stop> {
    T::write(space.blocks(), space.number_collection(T::KIND)?, secret, all)
}

/// A secret for the places of a collection's members.
pub(super) fn new_secret() -> u64 {
    fastrand::u64(..)
}

/// Whether strings are few and short enough for the packed forms of Redis.
pub(super) fn are_small(strings: &[&[u8]], most: usize, longest: usize) -> bool {
    strings.len() <= most && strings.iter().all(|string| string.len() <= longest)
}
