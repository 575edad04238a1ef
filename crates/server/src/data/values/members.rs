//! What hashes, sets and sorted sets share: members that are found by their names.

use super::elements::{CollectionType, Elements};
use crate::data::collections::Collection;
use crate::data::keyspace::{Entry, Stop};
use crate::data::member_hash::PLACES;
use crate::data::member_run::{MemberChange, MemberEdit, MemberRun, edit_members};
use crate::data::member_values::{EditedMember, Member, MemberValues};
use hyades::Abort;
use std::collections::HashMap;

/// With more names than these to look up, packed members are looked up in a map.
pub const FEW: usize = 16;

/// A type of collections whose members have names.
pub trait MemberType: CollectionType {
    /// What is beside the names.
    const VALUES: MemberValues;

    /// The members that are packed as these strings.
    ///
    /// # Errors
    /// They are none: a torn view.
    fn members(strings: Vec<&[u8]>) -> Result<Vec<Member<'_>>, Abort>;
}

/// One whose members have no other order.
pub trait NamedMembers: MemberType {
    /// The strings as which members are packed.
    fn strings<'a>(all: &'a [EditedMember<'_>]) -> Vec<&'a [u8]>;
}

/// The run of the members of a collection in blocks.
fn run<'t, T: MemberType>(elements: &Elements<'t, '_, T>) -> Result<MemberRun<'t>, Abort> {
    Ok(Collection::from_body(elements.body())?.members(elements.entry().blocks(), T::VALUES))
}

/// The members, with their values, that a call of HSCAN, SSCAN or ZSCAN returns, and the next
/// cursor. What is packed is returned at once. What lies in blocks is returned in the order of the
/// places of its members: one that is there throughout is returned exactly once.
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

/// A collection of members that are found by their names.
pub struct Members<'t, 's, T> {
    elements: Elements<'t, 's, T>,
    form: MembersForm<'t>,
}

impl<'t, 's, T: NamedMembers> Members<'t, 's, T> {
    /// Of a key that holds this type, or none.
    pub fn of(entry: Entry<'t, 's>) -> Result<Members<'t, 's, T>, Stop> {
        let elements = Elements::<T>::of(entry)?;
        let form = match entry.lies_in_blocks() {
            true => MembersForm::Blocks(run(&elements)?),
            false => MembersForm::Packed(T::members(elements.all()?)?),
        };
        Ok(Members { elements, form })
    }

    /// What was found under the key.
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

    /// The value of a member, if it is there.
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

    /// The members of these ranks in an order of their own, each below `total`, the number of
    /// members.
    pub fn of_ranks(&self, ranks: &[usize], total: usize) -> Result<Vec<Member<'t>>, Stop> {
        Ok(match &self.form {
            MembersForm::Packed(all) => ranks.iter().map(|rank| all[*rank]).collect(),
            MembersForm::Blocks(run) => run.of_ranks(ranks, total)?,
        })
    }

    /// Changes members and stores what results: `change` is told the number of a name and the value
    /// that it has, if it is there, and says what becomes of it.
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
