//! Hashes.

use super::elements::{CollectionType, are_small};
use super::members::{MemberType, Members, NamedMembers};
use crate::config::PackedLimits;
use crate::data::blocks::BlockTable;
use crate::data::collections::Collection;
use crate::data::head::Kind;
use crate::data::keyspace::Stop;
use crate::data::member_run::{EditedMember, Member};
use hyades::Abort;

/// The type of hashes: an element is a field and its value.
pub struct HashType;

/// A hash.
pub type StoredHash<'t, 's> = Members<'t, 's, HashType>;

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
            .members(blocks, true)
            .fill(strings.chunks_exact(2).map(|pair| (pair[0], pair[1])))?;
        Ok(collection.body())
    }

    fn read<'t>(blocks: BlockTable<'t>, body: &'t [u8]) -> Result<Vec<&'t [u8]>, Stop> {
        let all = Collection::from_body(body)?.members(blocks, true).all()?;
        Ok(all.into_iter().flat_map(|(field, value)| [field, value]).collect())
    }

    fn bytes(blocks: BlockTable<'_>, body: &[u8]) -> Result<usize, Stop> {
        Ok(Collection::from_body(body)?.members(blocks, true).bytes()?)
    }

    fn secret(body: &[u8]) -> Result<Option<u64>, Abort> {
        Ok(Some(Collection::from_body(body)?.secret))
    }

    fn small_encoding(strings: &[&[u8]]) -> Option<&'static str> {
        are_small(strings, 2 * 512, 64).then_some("listpack")
    }
}

impl MemberType for HashType {
    const HAS_VALUES: bool = true;

    fn members(strings: Vec<&[u8]>) -> Result<Vec<Member<'_>>, Abort> {
        Ok(strings.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
    }
}

impl NamedMembers for HashType {
    fn strings<'a>(all: &'a [EditedMember<'_>]) -> Vec<&'a [u8]> {
        all.iter().flat_map(|(field, value)| [*field, &value[..]]).collect()
    }
}
