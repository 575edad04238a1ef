//! The fields of a hash and the members of a set, packed or in blocks.

use super::Done;
use super::collections::store;
use crate::data::collections::Collection;
use crate::data::head::Kind;
use crate::data::keyspace::{Entry, Keyspace, Stop};
use crate::data::member_run::{
    EditedMember, Member, MemberChange, MemberEdit, MemberRun, edit_members,
};
use crate::data::packed;
use std::collections::HashMap;

/// With more names than these to look up, packed members are looked up in a map.
const FEW: usize = 16;

enum MembersForm<'t> {
    Packed(Vec<Member<'t>>),
    Blocks(MemberRun<'t>),
}

/// A hash or a set. A set's members have empty values.
pub struct Members<'t> {
    entry: Entry<'t>,
    kind: Kind,
    form: MembersForm<'t>,
}

impl<'t> Members<'t> {
    /// Of a key that holds this type, or none.
    pub fn of(entry: Entry<'t>, kind: Kind) -> Result<Members<'t>, Stop> {
        let body = entry.body_of(kind)?.unwrap_or_default();
        let form = match entry.lies_in_blocks() {
            true => {
                let of = Collection::from_body(body)?;
                MembersForm::Blocks(of.members(entry.blocks(), kind))
            }
            false => {
                let all = packed::elements(body)?;
                let pairs = || all.chunks_exact(2).map(|pair| (pair[0], pair[1]));
                MembersForm::Packed(match kind {
                    Kind::Hash => pairs().collect(),
                    _ => all.into_iter().map(|name| (name, &[][..])).collect(),
                })
            }
        };
        Ok(Members { entry, kind, form })
    }

    /// Whether the key exists.
    pub fn exists(&self) -> bool {
        self.entry.exists()
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
            MembersForm::Packed(all) => all.iter().find(|of| of.0 == name).map(|of| of.1),
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
    pub fn edit<'a>(
        &self,
        space: &Keyspace<'_>,
        key: &[u8],
        names: &[&'a [u8]],
        change: MemberChange<'_, 'a>,
    ) -> Done
    where
        't: 'a,
    {
        let run = match &self.form {
            MembersForm::Blocks(run) => run,
            MembersForm::Packed(all) => {
                let numbers: Vec<usize> = (0..names.len()).collect();
                let Some(all) = edit_members(all, names, &numbers, change)? else { return Ok(()) };
                return self.store(space, key, &all);
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
            space.remove(key, &self.entry)?;
        } else if is_written {
            space.touch(key, &self.entry)?;
        }
        Ok(())
    }

    /// Stores members that were packed.
    fn store(&self, space: &Keyspace<'_>, key: &[u8], all: &[EditedMember<'_>]) -> Done {
        let pairs = all.iter().flat_map(|(name, value)| [*name, &value[..]]);
        match self.kind {
            Kind::Hash => store(space, key, &self.entry, Kind::Hash, pairs),
            kind => store(space, key, &self.entry, kind, all.iter().map(|of| of.0)),
        }
    }
}
