//! Sets.

use super::collections::{Chosen, distinct, draw, numbered_keys, write_many};
use super::{Done, SYNTAX, integer, is};
use crate::data::keyspace::{Keyspace, Stop};
use crate::data::member_run::MemberEdit;
use crate::data::member_values::Member;
use crate::data::values::elements::{Elements, replace};
use crate::data::values::set::{SetType, StoredSet};
use crate::resp::reply::Reply;
use std::borrow::Cow;
use std::collections::HashSet;

fn find<'t, 's>(space: &'s Keyspace<'t>, key: &'s [u8]) -> Result<StoredSet<'t, 's>, Stop> {
    StoredSet::of(space.find(key)?)
}

fn read<'t, 's>(space: &'s Keyspace<'t>, key: &'s [u8]) -> Result<StoredSet<'t, 's>, Stop> {
    StoredSet::of(space.read(key)?)
}

/// The members of a set; none if the key does not exist.
fn members<'t>(space: &Keyspace<'t>, key: &[u8]) -> Result<Vec<&'t [u8]>, Stop> {
    Elements::<SetType>::of(space.read(key)?)?.all()
}

fn add(set: &StoredSet<'_, '_>, names: &[&[u8]]) -> Result<usize, Stop> {
    let mut added = 0;
    set.edit(names, &mut |_, old| {
        added += usize::from(old.is_none());
        Ok(match old {
            None => MemberEdit::Set(Cow::Borrowed(&[])),
            Some(_) => MemberEdit::Keep,
        })
    })?;
    Ok(added)
}

fn remove(set: &StoredSet<'_, '_>, names: &[&[u8]]) -> Result<usize, Stop> {
    let mut removed = 0;
    set.edit(names, &mut |_, old| {
        removed += usize::from(old.is_some());
        Ok(if old.is_some() { MemberEdit::Remove } else { MemberEdit::Keep })
    })?;
    Ok(removed)
}

pub fn sadd(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    reply.count(add(&find(space, args[1])?, &args[2..])?);
    Ok(())
}

pub fn srem(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    reply.count(remove(&find(space, args[1])?, &args[2..])?);
    Ok(())
}

pub fn scard(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    reply.count(read(space, args[1])?.count()?);
    Ok(())
}

fn show(reply: &mut Reply<'_>, members: &[&[u8]]) -> Done {
    reply.set(members.len());
    members.iter().for_each(|member| reply.bulk(member));
    Ok(())
}

pub fn smembers(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    show(reply, &members(space, args[1])?)
}

pub fn sismember(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    reply.integer(i64::from(read(space, args[1])?.get(args[2])?.is_some()));
    Ok(())
}

pub fn smismember(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let found = read(space, args[1])?.get_all(&args[2..])?;
    reply.array(found.len());
    found.iter().for_each(|member| reply.integer(i64::from(member.is_some())));
    Ok(())
}

pub fn srandmember(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let count = match &args[2..] {
        [] => None,
        [count] => Some(integer(count)?),
        _ => return Err(SYNTAX.into()),
    };
    let set = read(space, args[1])?;
    let total = set.count()?;
    let ranks = match draw(total, count.unwrap_or(1), false)? {
        Chosen::Places(ranks) => ranks,
        Chosen::Many(wanted) => {
            reply.array(wanted);
            let write = |reply: &mut Reply<'_>, (member, _): Member<'_>| reply.bulk(member);
            return write_many(space, (&set.all()?[..], wanted), reply, write);
        }
    };
    let chosen = set.of_ranks(&ranks, total)?;
    if count.is_none() {
        reply.bulk_or_null(chosen.first().map(|(member, _)| *member));
        return Ok(());
    }
    reply.array(chosen.len());
    chosen.into_iter().for_each(|(member, _)| reply.bulk(member));
    Ok(())
}

pub fn spop(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let count = match &args[2..] {
        [] => None,
        [count] => Some(
            integer(count)
                .ok()
                .filter(|count| *count >= 0)
                .ok_or("ERR value is out of range, must be positive")?,
        ),
        _ => return Err(SYNTAX.into()),
    };
    let set = find(space, args[1])?;
    let total = set.count()?;
    let Chosen::Places(ranks) = draw(total, count.unwrap_or(1), false)? else {
        unreachable!("the count is not negative");
    };
    let popped: Vec<&[u8]> =
        set.of_ranks(&ranks, total)?.into_iter().map(|(member, _)| member).collect();
    remove(&set, &popped)?;
    match (count, popped.first()) {
        (None, first) => reply.bulk_or_null(first.copied()),
        (Some(_), _) => show(reply, &popped)?,
    }
    Ok(())
}

pub fn smove(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let (from, target) = (find(space, args[1])?, space.find(args[2])?);
    let has = from.get(args[3])?.is_some();
    // A missing key moves nothing, whatever the other key holds.
    if from.exists() {
        let to = StoredSet::of(target)?;
        if has && args[1] != args[2] {
            remove(&from, &args[3..])?;
            add(&to, &args[3..])?;
        }
    }
    reply.integer(i64::from(has));
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SetOperation {
    Union,
    Intersection,
    Difference,
}

fn combine<'t>(
    space: &Keyspace<'t>,
    keys: &[&[u8]],
    how: SetOperation,
    most: usize,
) -> Result<Vec<&'t [u8]>, Stop> {
    // One set at a time: each may be as long as a value can be.
    let mut result = members(space, keys[0])?;
    let mut known: HashSet<&[u8]> = match how {
        SetOperation::Intersection => HashSet::new(),
        _ => result.iter().copied().collect(),
    };
    for key in distinct(&keys[1..]) {
        let set = members(space, key)?;
        match how {
            SetOperation::Union => {
                result.extend(set.into_iter().filter(|member| known.insert(member)));
            }
            SetOperation::Intersection => {
                let set: HashSet<&[u8]> = set.into_iter().collect();
                result.retain(|member| set.contains(member));
            }
            // However many keys there are, the first set is not looked through for each.
            SetOperation::Difference => {
                for member in set {
                    known.remove(member);
                }
            }
        }
    }
    if how == SetOperation::Difference {
        result.retain(|member| known.contains(member));
    }
    result.truncate(most);
    Ok(result)
}

fn combined(
    space: &Keyspace<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
    how: SetOperation,
) -> Done {
    show(reply, &combine(space, &args[1..], how, usize::MAX)?)
}

fn combined_and_stored(
    space: &Keyspace<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
    how: SetOperation,
) -> Done {
    let result = combine(space, &args[2..], how, usize::MAX)?;
    reply.count(result.len());
    replace::<SetType>(space, args[1], result)
}

pub fn sunion(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    combined(space, args, reply, SetOperation::Union)
}

pub fn sinter(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    combined(space, args, reply, SetOperation::Intersection)
}

pub fn sdiff(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    combined(space, args, reply, SetOperation::Difference)
}

pub fn sunionstore(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    combined_and_stored(space, args, reply, SetOperation::Union)
}

pub fn sinterstore(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    combined_and_stored(space, args, reply, SetOperation::Intersection)
}

pub fn sdiffstore(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    combined_and_stored(space, args, reply, SetOperation::Difference)
}

/// LIMIT of SINTERCARD and ZINTERCARD; 0 is none.
pub fn limit_option(options: &[&[u8]]) -> Result<usize, Stop> {
    match options {
        [] => Ok(usize::MAX),
        [option, limit] if is(option, "LIMIT") => {
            let limit = integer(limit).ok().and_then(|limit| usize::try_from(limit).ok());
            let limit = limit.ok_or("ERR LIMIT can't be negative")?;
            Ok(if limit == 0 { usize::MAX } else { limit })
        }
        _ => Err(SYNTAX.into()),
    }
}

pub fn sintercard(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    if !integer(args[1]).is_ok_and(|count| count > 0) {
        return Err("ERR numkeys should be greater than 0".into());
    }
    let (keys, options) = numbered_keys(&args[1..], "sintercard")?;
    let limit = limit_option(options)?;
    reply.count(combine(space, keys, SetOperation::Intersection, limit)?.len());
    Ok(())
}
