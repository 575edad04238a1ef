//! The common parts of hashes, sets and sorted sets: members found by name.

use super::elements::{CollectionType, Elements};
use crate::data::collections::Collection;
use crate::data::keyspace::{Entry, Stop};
use crate::data::member_hash::PLACES;
use crate::data::member_run::{MemberChange, MemberEdit, MemberRun, edit_members};
use crate::data::member_values::{EditedMember, Member, MemberValues};
use hyades::Abort;
use std::collections::HashMap;

/// Beyond this number of names to look up, packed members are looked up in a map.
pub const FEW: usize = 16;

/// A type of collections whose members have names.
pub trait MemberType: CollectionType {
    /// The values beside the names.
    const VALUES: MemberValues;

    /// The members packed as these strings.
    ///
    /// # Errors
    /// The strings are no members: a torn view.
    fn members(strings: Vec<&[u8]>) -> Result<Vec<Member<'_>>, Abort>;
}

/// A type whose members have no other order.
pub trait NamedMembers: MemberType {
    /// The strings of packed members.
    fn strings<'a>(all: &'a [EditedMember<'_>]) -> Vec<&'a [u8]>;
}

/// The run of the members of a collection in blocks.
fn run<'t, T: MemberType>(elements: &Elements<'t, '_, T>) -> Result<MemberRun<'t>, Abort> {
    Ok(Collection::from_body(elements.body())?.members(elements.entry().blocks(), T::VALUES))
}

/// The members, with values, returned by a call of HSCAN, SSCAN or ZSCAN, and the next cursor.
/// Packed members are returned at once. Members in blocks are returned in the order of their
/// places: a member present throughout is returned exactly once.
pub fn scan<'t, T: MemberType>(
    elements: &Elements<'t, '_, T>,
    cursor: u64,
    count: usize,
) -> Result<(Vec<Member<'t>>, u64), Stop> {
    if !elements.entry().lies_in_blocks() {
        return Ok((T::members(elements.all()?)?, 0));
    }
    if cursor >= PLACES {
        return Ok((Vec::new(), 0));
    }
    let (found, next) = run(elements)?.scan_from(cursor, count)?;
    Ok((found, next.unwrap_or(0)))
}

enum MembersForm<'t> {
    Packed(Vec<Member<'t>>),
    Blocks(MemberRun<'t>),
}

/// A collection of members found by name.
pub struct Members<'t, 's, T> {
    elements: Elements<'t, 's, T>,
    form: MembersForm<'t>,
}

impl<'t, 's, T: NamedMembers> Members<'t, 's, T> {
    /// The members of a key with this type, or without a value.
    pub fn of(entry: Entry<'t, 's>) -> Result<Members<'t, 's, T>, Stop> {
        let elements = Elements::<T>::of(entry)?;
        let form = match entry.lies_in_blocks() {
            true => MembersForm::Blocks(run(&elements)?),
            false => MembersForm::Packed(T::members(elements.all()?)?),
        };
        Ok(Members { elements, form })
    }

    /// The elements of the key.
    pub fn elements(&self) -> &Elements<'t, 's, T> {
        &self.elements
    }

    /// Whether the key exists.
    pub fn exists(&self) -> bool {
        self.elements.entry().exists()
    }

    /// The number of members.
    pub fn count(&self) -> Result<usize, Stop> {
        Ok(match &self.form {
            MembersForm::Packed(all) => all.len(),
            MembersForm::Blocks(run) => run.count()?,
        })
    }

    /// The value of a member, if present.
    pub fn get(&self, name: &[u8]) -> Result<Option<&'t [u8]>, Stop> {
        Ok(match &self.form {
            MembersForm::Packed(all) => {
                all.iter().find(|member| member.0 == name).map(|member| member.1)
            }
            MembersForm::Blocks(run) => run.get(name)?,
        })
    }

    /// The values of members.
    pub fn get_all(&self, names: &[&[u8]]) -> Result<Vec<Option<&'t [u8]>>, Stop> {
        match &self.form {
            MembersForm::Packed(all) if names.len() > FEW => {
                let all: HashMap<&[u8], &'t [u8]> = all.iter().copied().collect();
                Ok(names.iter().map(|name| all.get(name).copied()).collect())
            }
            MembersForm::Packed(_) => names.iter().map(|name| self.get(name)).collect(),
            MembersForm::Blocks(run) => Ok(run.get_all(names)?),
        }
    }

    /// All members.
    pub fn all(self) -> Result<Vec<Member<'t>>, Stop> {
        match self.form {
            MembersForm::Packed(all) => Ok(all),
            MembersForm::Blocks(run) => Ok(run.all()?),
        }
    }

    /// The members with these ranks in an order of their own, each below `total`, the number of
    /// members.
    pub fn of_ranks(&self, ranks: &[usize], total: usize) -> Result<Vec<Member<'t>>, Stop> {
        Ok(match &self.form {
            MembersForm::Packed(all) => ranks.iter().map(|rank| all[*rank]).collect(),
            MembersForm::Blocks(run) => run.of_ranks(ranks, total)?,
        })
    }

    /// Changes members and stores the result: `change` gets the number of a name and the member's
    /// value, if present, and returns the change.
    pub fn edit<'a>(&self, names: &[&'a [u8]], change: MemberChange<'_, 'a>) -> Result<(), Stop>
    where
        't: 'a,
    {
        let run = match &self.form {
            MembersForm::Blocks(run) => run,
            MembersForm::Packed(all) => {
                let numbers: Vec<usize> = (0..names.len()).collect();
                let Some(all) = edit_members(all, names, &numbers, change)? else { return Ok(()) };
                return self.elements.store(T::strings(&all));
            }
        };
        let (mut is_written, mut is_removed) = (false, false);
        run.edit(names, &mut |number, old| {
            let edit = change(number, old)?;
            is_written |= !matches!(edit, MemberEdit::Keep);
            is_removed |= matches!(edit, MemberEdit::Remove);
            Ok(edit)
        })?;
        if is_removed && !run.has_any()? {
            self.elements.entry().remove()?;
        } else if is_written {
            self.elements.entry().touch()?;
        }
        Ok(())
    }
}
