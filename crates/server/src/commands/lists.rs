//! Lists in their packed form: a change writes the whole list.

use super::collections::{elements, store};
use super::numbers::unsigned;
use super::{Done, integer, strings};
use crate::data::head::Kind;
use crate::data::keyspace::Keyspace;
use crate::resp::reply::Reply;

/// The end of a list that a command works on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Left,
    Right,
}

fn push(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>, end: End, new: bool) -> Done {
    let entry = space.find(args[1])?;
    let old = elements(&entry, Kind::List)?;
    if old.is_empty() && !new {
        reply.integer(0);
        return Ok(());
    }
    let given = &args[2..];
    let all: Vec<&[u8]> = match end {
        End::Left => given.iter().rev().copied().chain(old).collect(),
        End::Right => old.into_iter().chain(given.iter().copied()).collect(),
    };
    let length = all.len();
    store(space, args[1], &entry, Kind::List, all)?;
    reply.count(length);
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
    let entry = space.read(args[1])?;
    let mut all = elements(&entry, Kind::List)?;
    if all.is_empty() {
        match count {
            None => reply.null(),
            Some(_) => reply.null_array(),
        }
        return Ok(());
    }
    let taken = count.unwrap_or(1).min(all.len());
    let popped: Vec<&[u8]> = match end {
        End::Left => all.drain(..taken).collect(),
        End::Right => all.drain(all.len() - taken..).rev().collect(),
    };
    if taken > 0 {
        store(space, args[1], &entry, Kind::List, all)?;
    }
    if count.is_some() {
        reply.array(taken);
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

/// The part of a list from `from` to `to`, which count from the end if negative. An end before the
/// first element leaves nothing; in a string it is the first byte.
pub fn part<'a, 'b>(all: &'a [&'b [u8]], from: i64, to: i64) -> &'a [&'b [u8]] {
    let length = all.len() as i64;
    let to = if to < 0 { to.saturating_add(length) } else { to };
    if to < 0 { &[] } else { strings::part(all, from, to) }
}

pub fn llen(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    reply.count(elements(&space.read(args[1])?, Kind::List)?.len());
    Ok(())
}

pub fn lrange(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let (from, to) = (integer(args[2])?, integer(args[3])?);
    let all = elements(&space.read(args[1])?, Kind::List)?;
    let shown = part(&all, from, to);
    reply.array(shown.len());
    shown.iter().for_each(|element| reply.bulk(element));
    Ok(())
}

pub fn lindex(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let at = integer(args[2])?;
    let all = elements(&space.read(args[1])?, Kind::List)?;
    let at = if at < 0 { at.saturating_add(all.len() as i64) } else { at };
    let found = usize::try_from(at).ok().and_then(|at| all.get(at).copied());
    reply.bulk_or_null(found);
    Ok(())
}
