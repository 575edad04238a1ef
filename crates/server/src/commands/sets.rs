//! Sets in their packed form: a change writes the whole set.

use super::collections::{Chosen, Places, distinct, draw, elements, numbered_keys, replace, store};
use super::{Done, SYNTAX, integer, is};
use crate::data::head::Kind;
use crate::data::keyspace::{Keyspace, Stop};
use crate::resp::reply::Reply;
use std::collections::HashSet;

pub fn sadd(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let entry = space.find(args[1])?;
    let mut all = elements(&entry, Kind::Set)?;
    let (mut known, before): (HashSet<&[u8]>, _) = (all.iter().copied().collect(), all.len());
    all.extend(args[2..].iter().filter(|member| known.insert(member)));
    let added = all.len() - before;
    if added > 0 {
        store(space, args[1], &entry, Kind::Set, all)?;
    }
    reply.count(added);
    Ok(())
}

pub fn srem(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let entry = space.find(args[1])?;
    let mut all = elements(&entry, Kind::Set)?;
    let (removed, before): (HashSet<&[u8]>, _) = (args[2..].iter().copied().collect(), all.len());
    all.retain(|member| !removed.contains(member));
    let count = before - all.len();
    if count > 0 {
        store(space, args[1], &entry, Kind::Set, all)?;
    }
    reply.count(count);
    Ok(())
}

pub fn scard(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    reply.count(elements(&space.read(args[1])?, Kind::Set)?.len());
    Ok(())
}

fn show(reply: &mut Reply<'_>, members: &[&[u8]]) -> Done {
    reply.set(members.len());
    members.iter().for_each(|member| reply.bulk(member));
    Ok(())
}

pub fn smembers(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    show(reply, &elements(&space.read(args[1])?, Kind::Set)?)
}

pub fn sismember(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let all = elements(&space.read(args[1])?, Kind::Set)?;
    reply.integer(i64::from(all.contains(&args[2])));
    Ok(())
}

pub fn smismember(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let all = elements(&space.read(args[1])?, Kind::Set)?;
    let places = Places::new(all.iter().copied(), args.len());
    reply.array(args.len() - 2);
    for member in &args[2..] {
        let has = places.find(all.iter().copied(), member).is_some();
        reply.integer(i64::from(has));
    }
    Ok(())
}

pub fn srandmember(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let count = match &args[2..] {
        [] => None,
        [count] => Some(integer(count)?),
        _ => return Err(SYNTAX.into()),
    };
    let all = elements(&space.read(args[1])?, Kind::Set)?;
    let Some(count) = count else {
        let chosen = (!all.is_empty()).then(|| all[fastrand::usize(..all.len())]);
        reply.bulk_or_null(chosen);
        return Ok(());
    };
    let Chosen(chosen) = draw(all.len(), count, false)?;
    reply.array(chosen.len());
    chosen.into_iter().for_each(|at| reply.bulk(all[at]));
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
    let entry = space.find(args[1])?;
    let all = elements(&entry, Kind::Set)?;
    let Chosen(chosen) = draw(all.len(), count.unwrap_or(1), false)?;
    if !chosen.is_empty() {
        let gone: HashSet<usize> = chosen.iter().copied().collect();
        let left = all.iter().enumerate().filter(|(at, _)| !gone.contains(at));
        store(space, args[1], &entry, Kind::Set, left.map(|(_, member)| *member))?;
    }
    let popped: Vec<&[u8]> = chosen.into_iter().map(|at| all[at]).collect();
    match (count, popped.first()) {
        (None, first) => reply.bulk_or_null(first.copied()),
        (Some(_), _) => show(reply, &popped)?,
    }
    Ok(())
}

pub fn smove(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let (from, to) = (space.find(args[1])?, space.find(args[2])?);
    let source = elements(&from, Kind::Set)?;
    if from.exists() {
        to.body_of(Kind::Set)?;
    }
    let has = source.contains(&args[3]);
    if has && args[1] != args[2] {
        let left = source.into_iter().filter(|member| *member != args[3]);
        store(space, args[1], &from, Kind::Set, left)?;
        let mut target = elements(&to, Kind::Set)?;
        if !target.contains(&args[3]) {
            target.push(args[3]);
            store(space, args[2], &to, Kind::Set, target)?;
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
    let mut result = elements(&space.read(keys[0])?, Kind::Set)?;
    let mut known: HashSet<&[u8]> = match how {
        SetOperation::Union => result.iter().copied().collect(),
        _ => HashSet::new(),
    };
    for key in distinct(&keys[1..]) {
        let set = elements(&space.read(key)?, Kind::Set)?;
        if how == SetOperation::Union {
            result.extend(set.into_iter().filter(|member| known.insert(member)));
            continue;
        }
        let set: HashSet<&[u8]> = set.into_iter().collect();
        result.retain(|member| set.contains(member) == (how == SetOperation::Intersection));
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
    replace(space, args[1], Kind::Set, result)
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
