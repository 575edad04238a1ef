//! Sets.

use super::elements::{CollectionType, are_small};
use super::members::{MemberType, Members, NamedMembers};
use crate::config::PackedLimits;
use crate::data::blocks::BlockTable;
use crate::data::collections::Collection;
use crate::data::head::Kind;
use crate::data::keyspace::Stop;
use crate::data::member_values::{EditedMember, Member, MemberValues};
use crate::resp::number;
use hyades::Abort;

/// The type of sets: an element is a member.
pub struct SetType;

/// A set: its members have empty values.
pub type StoredSet<'t, 's> = Members<'t, 's, SetType>;

impl CollectionType for SetType {
    const KIND: Kind = Kind::Set;
    const STRINGS: usize = 1;
    const LARGE_ENCODING: &'static str = "hashtable";

    fn most_packed(limits: PackedLimits) -> usize {
        limits.set
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
            .fill(strings.iter().map(|name| (*name, &[][..])))?;
        Ok(collection.body())
    }

    fn read<'t>(blocks: BlockTable<'t>, body: &'t [u8]) -> Result<Vec<&'t [u8]>, Stop> {
        let all = Collection::from_body(body)?.members(blocks, Self::VALUES).all()?;
        Ok(all.into_iter().map(|(name, _)| name).collect())
    }

    fn bytes(blocks: BlockTable<'_>, body: &[u8]) -> Result<usize, Stop> {
        Ok(Collection::from_body(body)?.members(blocks, Self::VALUES).bytes()?)
    }

    fn secret(body: &[u8]) -> Result<Option<u64>, Abort> {
        Ok(Some(Collection::from_body(body)?.secret))
    }

    fn small_encoding(strings: &[&[u8]]) -> Option<&'static str> {
        let is_integer = |string: &&[u8]| number::integer(string).is_some();
        match strings.len() <= 512 && strings.iter().all(is_integer) {
            true => Some("intset"),
            false => are_small(strings, 128, 64).then_some("listpack"),
        }
    }
}

impl MemberType for SetType {
    const VALUES: MemberValues = MemberValues::None;

    fn members(strings: Vec<&[u8]>) -> Result<Vec<Member<'_>>, Abort> {
        Ok(strings.into_iter().map(|name| (name, &[][..])).collect())
    }
}

impl NamedMembers for SetType {
    fn strings<'a>(all: &'a [EditedMember<'_>]) -> Vec<&'a [u8]> {
        all.iter().map(|(name, _)| *name).collect()
    }
}
