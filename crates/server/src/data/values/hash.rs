//! Hashes.

use super::elements::{CollectionType, are_small};
use super::members::{self, MemberType, Members, NamedMembers};
use super::timed_hash::{Field, FieldChange, FieldEdit, TimedHash};
use crate::config::PackedLimits;
use crate::data::blocks::BlockTable;
use crate::data::collections::Collection;
use crate::data::head::Kind;
use crate::data::keyspace::{Entry, Stop};
use crate::data::member_run::{MemberChange, MemberEdit};
use crate::data::member_values::{EditedMember, Member, MemberValues};
use crate::data::packed::TimedValue;
use hyades::Abort;

/// The type of hashes: an element is a field and a value.
pub struct HashType;

/// A hash.
pub enum StoredHash<'t, 's> {
    /// A hash whose fields do not expire.
    Plain(Members<'t, 's, HashType>),
    /// A hash with fields that may expire.
    Timed(TimedHash<'t, 's>),
}

impl<'t, 's> StoredHash<'t, 's> {
    /// The hash of an entry, which holds a hash or no value.
    pub fn of(entry: Entry<'t, 's>) -> Result<StoredHash<'t, 's>, Stop> {
        match entry.head().is_some_and(|head| head.form().is_timed()) {
            true => Ok(StoredHash::Timed(TimedHash::of(entry)?)),
            false => Ok(StoredHash::Plain(Members::of(entry)?)),
        }
    }

    /// The number of fields.
    pub fn count(&self) -> Result<usize, Stop> {
        match self {
            StoredHash::Plain(hash) => hash.count(),
            StoredHash::Timed(hash) => hash.count(),
        }
    }

    /// The value of a field, if the field is present.
    pub fn get(&self, name: &[u8]) -> Result<Option<&'t [u8]>, Stop> {
        match self {
            StoredHash::Plain(hash) => hash.get(name),
            StoredHash::Timed(hash) => Ok(hash.get(name)?.map(|(value, _)| value)),
        }
    }

    /// The values of fields.
    pub fn get_all(&self, names: &[&[u8]]) -> Result<Vec<Option<&'t [u8]>>, Stop> {
        match self {
            StoredHash::Plain(hash) => hash.get_all(names),
            StoredHash::Timed(hash) => {
                let found = hash.get_all(names)?.into_iter();
                Ok(found.map(|value| value.map(|(value, _)| value)).collect())
            }
        }
    }

    /// The values of fields, and the fields' times of expiry.
    pub fn get_timed(&self, names: &[&[u8]]) -> Result<Vec<Option<TimedValue<'t>>>, Stop> {
        match self {
            StoredHash::Plain(hash) => {
                let found = hash.get_all(names)?.into_iter();
                Ok(found.map(|value| value.map(|value| (value, None))).collect())
            }
            StoredHash::Timed(hash) => hash.get_all(names),
        }
    }

    /// All fields with their values.
    pub fn all(self) -> Result<Vec<Member<'t>>, Stop> {
        match self {
            StoredHash::Plain(hash) => hash.all(),
            StoredHash::Timed(hash) => Ok(untimed(hash.all()?)),
        }
    }

    /// The fields with these ranks in an order of their own, each below `total`, the number of
    /// fields.
    pub fn of_ranks(&self, ranks: &[usize], total: usize) -> Result<Vec<Member<'t>>, Stop> {
        match self {
            StoredHash::Plain(hash) => hash.of_ranks(ranks, total),
            StoredHash::Timed(hash) => Ok(untimed(hash.of_ranks(ranks, total)?)),
        }
    }

    /// The fields returned by a call of HSCAN, and the next cursor, as [`members::scan`].
    pub fn scan(&self, cursor: u64, count: usize) -> Result<(Vec<Member<'t>>, u64), Stop> {
        match self {
            StoredHash::Plain(hash) => members::scan(hash.elements(), cursor, count),
            StoredHash::Timed(hash) => {
                let (found, next) = hash.scan(cursor, count)?;
                Ok((untimed(found), next))
            }
        }
    }

    /// Changes fields and stores the result. A field that is set does not expire, unless `keeps`
    /// preserves its time.
    pub fn edit<'a>(
        &self,
        names: &[&'a [u8]],
        keeps: KeepsTime,
        change: MemberChange<'_, 'a>,
    ) -> Result<(), Stop>
    where
        't: 'a,
    {
        match self {
            StoredHash::Plain(hash) => hash.edit(names, change),
            StoredHash::Timed(hash) => hash.edit(names, &mut |number, old| {
                let kept = old.and_then(|(_, expires)| expires).filter(|_| keeps == KeepsTime::Yes);
                Ok(match change(number, old.map(|(value, _)| value))? {
                    MemberEdit::Keep => FieldEdit::Keep,
                    MemberEdit::Set(value) => FieldEdit::Set(value, kept),
                    MemberEdit::Remove => FieldEdit::Remove,
                })
            }),
        }
    }

    /// Changes fields with their times, and stores the result.
    pub fn edit_timed<'a>(
        &self,
        names: &[&'a [u8]],
        change: FieldChange<'_, 'a>,
    ) -> Result<(), Stop>
    where
        't: 'a,
    {
        match self {
            StoredHash::Plain(hash) => TimedHash::of(*hash.elements().entry())?.edit(names, change),
            StoredHash::Timed(hash) => hash.edit(names, change),
        }
    }
}

/// Whether a field that is set keeps the time of expiry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum KeepsTime {
    /// The field does not expire any more.
    No,
    /// The field keeps its time of expiry.
    Yes,
}

fn untimed(all: Vec<Field<'_>>) -> Vec<Member<'_>> {
    all.into_iter().map(|(name, value, _)| (name, value)).collect()
}

impl CollectionType for HashType {
    const KIND: Kind = Kind::Hash;
    const STRINGS: usize = 2;
    const LARGE_ENCODING: &'static str = "hashtable";

    fn most_packed(limits: PackedLimits) -> usize {
        limits.hash
    }

    fn write(
        blocks: BlockTable<'_>,
        number: u64,
        secret: u64,
        strings: &[&[u8]],
    ) -> Result<Vec<u8>, Stop> {
        let collection = Collection { number, secret };
        collection
            .members(blocks, Self::VALUES)
            .fill(strings.chunks_exact(2).map(|pair| (pair[0], pair[1])))?;
        Ok(collection.body())
    }

    fn read<'t>(blocks: BlockTable<'t>, body: &'t [u8]) -> Result<Vec<&'t [u8]>, Stop> {
        let all = Collection::from_body(body)?.members(blocks, Self::VALUES).all()?;
        Ok(all.into_iter().flat_map(|(field, value)| [field, value]).collect())
    }

    fn bytes(blocks: BlockTable<'_>, body: &[u8]) -> Result<usize, Stop> {
        Ok(Collection::from_body(body)?.members(blocks, Self::VALUES).bytes()?)
    }

    fn secret(body: &[u8]) -> Result<Option<u64>, Abort> {
        Ok(Some(Collection::from_body(body)?.secret))
    }

    fn small_encoding(strings: &[&[u8]]) -> Option<&'static str> {
        are_small(strings, 2 * 512, 64).then_some("listpack")
    }
}

impl MemberType for HashType {
    const VALUES: MemberValues = MemberValues::Strings;

    fn members(strings: Vec<&[u8]>) -> Result<Vec<Member<'_>>, Abort> {
        Ok(strings.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
    }
}

impl NamedMembers for HashType {
    fn strings<'a>(all: &'a [EditedMember<'_>]) -> Vec<&'a [u8]> {
        all.iter().flat_map(|(field, value)| [*field, &value[..]]).collect()
    }
}
