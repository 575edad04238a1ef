//! Lists.

use super::numbers::unsigned;
use super::{Done, integer, strings};
use crate::data::keyspace::Keyspace;
use crate::data::long_list::End;
use crate::data::values::list::StoredList;
use crate::resp::reply::Reply;

fn push(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>, end: End, new: bool) -> Done {
    let mut list = StoredList::of(space.find(args[1])?)?;
    if !list.exists() && !new {
        reply.integer(0);
        return Ok(());
    }
    let change = list.push(end, &args[2..])?;
    list.store(change)?;
    reply.count(list.count());
    Ok(())
}

pub fn lpush(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    push(space, args, reply, End::Left, true)
}

pub fn rpush(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    push(space, args, reply, End::Right, true)
}

pub fn lpushx(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    push(space, args, reply, End::Left, false)
}

pub fn rpushx(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    push(space, args, reply, End::Right, false)
}

fn pop(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>, end: End) -> Done {
    let count = match &args[2..] {
        [] => None,
        [count] => {
            Some(unsigned(count).map_err(|_| "ERR value is out of range, must be positive")?)
        }
        _ => return Err(super::wrong_arity(if end == End::Left { "lpop" } else { "rpop" })),
    };
    let mut list = StoredList::of(space.read(args[1])?)?;
    if !list.exists() {
        match count {
            None => reply.null(),
            Some(_) => reply.null_array(),
        }
        return Ok(());
    }
    let (popped, change) = list.pop(end, count.unwrap_or(1))?;
    if !popped.is_empty() {
        list.store(change)?;
    }
    if count.is_some() {
        reply.array(popped.len());
    }
    popped.iter().for_each(|element| reply.bulk(element));
    Ok(())
}

pub fn lpop(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    pop(space, args, reply, End::Left)
}

pub fn rpop(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    pop(space, args, reply, End::Right)
}

/// The places of a list with `length` elements from `from` to `to`, which count from the end if
/// negative. An end before the first element leaves nothing; in a string it is the first byte.
pub fn part(length: usize, from: i64, to: i64) -> std::ops::Range<usize> {
    let length = length as i64;
    let to = if to < 0 { to.saturating_add(length) } else { to };
    if to < 0 { 0..0 } else { strings::places(length as usize, from, to) }
}

pub fn llen(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    reply.count(StoredList::of(space.read(args[1])?)?.count());
    Ok(())
}

pub fn lrange(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let (from, to) = (integer(args[2])?, integer(args[3])?);
    let list = StoredList::of(space.read(args[1])?)?;
    let places = part(list.count(), from, to);
    let shown = list.range(places.start, places.len())?;
    reply.array(shown.len());
    shown.iter().for_each(|element| reply.bulk(element));
    Ok(())
}

pub fn lindex(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let at = integer(args[2])?;
    let list = StoredList::of(space.read(args[1])?)?;
    let at = if at < 0 { at.saturating_add(list.count() as i64) } else { at };
    let found = usize::try_from(at).map_or(Ok(Vec::new()), |at| list.range(at, 1))?;
    reply.bulk_or_null(found.first().copied());
    Ok(())
}
