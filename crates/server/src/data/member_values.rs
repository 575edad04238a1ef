//! Members as packed in a block or in the row of a key: each with nothing beside the name, with a
//! string, or with a string that may have a time.

use super::packed;
use hyades::Abort;
use std::borrow::Cow;

/// A member and its value.
pub type Member<'t> = (&'t [u8], &'t [u8]);

/// A member and a value, owned or borrowed.
pub type EditedMember<'a> = (&'a [u8], Cow<'a, [u8]>);

/// The values beside the names of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberValues {
    /// Nothing: values are empty.
    None,
    /// A string for each member.
    Strings,
    /// A string for each member, some with times: values are as [`push_timed`](packed::push_timed)
    /// packs them. A run of strings reads as a run with times.
    Timed,
}

impl MemberValues {
    /// Takes the value of a member off; the name was taken before.
    pub(super) fn take<'a>(self, body: &mut &'a [u8]) -> Option<&'a [u8]> {
        match self {
            MemberValues::None => Some(&[]),
            MemberValues::Strings => packed::take(body),
            MemberValues::Timed => packed::take_packed(body),
        }
    }

    /// The bytes of a packed value.
    fn size(self, value: &[u8]) -> usize {
        match self {
            MemberValues::None => 0,
            MemberValues::Strings => packed::size(value.len()),
            MemberValues::Timed => value.len(),
        }
    }

    fn push(self, body: &mut Vec<u8>, value: &[u8]) {
        match self {
            MemberValues::None => {}
            MemberValues::Strings => packed::push(body, value),
            MemberValues::Timed => body.extend_from_slice(value),
        }
    }

    /// The members packed in a body.
    ///
    /// # Errors
    /// The body is a torn view.
    pub fn members(self, body: &[u8]) -> Result<Vec<Member<'_>>, Abort> {
        if self != MemberValues::Timed {
            let all = packed::elements(body)?;
            return match self {
                // An odd number is a torn view.
                MemberValues::Strings if all.len() % 2 == 1 => Err(Abort::Conflict),
                MemberValues::Strings => {
                    Ok(all.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
                }
                _ => Ok(all.into_iter().map(|name| (name, &[][..])).collect()),
            };
        }
        let (mut rest, mut all) = (body, Vec::new());
        while !rest.is_empty() {
            let name = packed::take(&mut rest).ok_or(Abort::Conflict)?;
            all.push((name, packed::take_packed(&mut rest).ok_or(Abort::Conflict)?));
        }
        Ok(all)
    }

    /// A body with these members.
    pub fn pack(self, all: &[EditedMember<'_>]) -> Vec<u8> {
        let mut body = Vec::with_capacity(all.iter().map(|member| self.size_of(member)).sum());
        for (name, value) in all {
            packed::push(&mut body, name);
            self.push(&mut body, value);
        }
        body
    }

    /// The bytes of a packed member.
    pub fn size_of(self, (name, value): &EditedMember<'_>) -> usize {
        packed::size(name.len()) + self.size(value)
    }
}
