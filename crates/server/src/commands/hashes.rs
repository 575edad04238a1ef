//! Hashes.

use super::collections::{Chosen, draw, write_many};
use super::{Done, SYNTAX, integer, is, wrong_arity};
use crate::data::keyspace::{Keyspace, Stop};
use crate::data::member_run::MemberEdit;
use crate::data::member_values::Member;
use crate::data::values::hash::{KeepsTime, StoredHash};
use crate::resp::number::{self, Decimal};
use crate::resp::reply::Reply;
use std::borrow::Cow;

fn find<'t, 's>(space: &'s Keyspace<'t>, key: &'s [u8]) -> Result<StoredHash<'t, 's>, Stop> {
    StoredHash::of(space.find(key)?)
}

fn read<'t, 's>(space: &'s Keyspace<'t>, key: &'s [u8]) -> Result<StoredHash<'t, 's>, Stop> {
    StoredHash::of(space.read(key)?)
}

fn set_all(space: &Keyspace<'_>, args: &[&[u8]], name: &str) -> Result<usize, Stop> {
    if !args.len().is_multiple_of(2) {
        return Err(wrong_arity(name));
    }
    let (hash, mut added) = (find(space, args[1])?, 0);
    let fields: Vec<&[u8]> = args[2..].chunks_exact(2).map(|pair| pair[0]).collect();
    hash.edit(&fields, KeepsTime::No, &mut |at, old| {
        added += usize::from(old.is_none());
        Ok(MemberEdit::Set(Cow::Borrowed(args[2 * at + 3])))
    })?;
    Ok(added)
}

pub fn hset(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    reply.count(set_all(space, args, "hset")?);
    Ok(())
}

pub fn hmset(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    set_all(space, args, "hmset")?;
    reply.ok();
    Ok(())
}

pub fn hsetnx(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let mut is_new = false;
    find(space, args[1])?.edit(&[args[2]], KeepsTime::No, &mut |_, old| {
        is_new = old.is_none();
        Ok(if is_new { MemberEdit::Set(Cow::Borrowed(args[3])) } else { MemberEdit::Keep })
    })?;
    reply.integer(i64::from(is_new));
    Ok(())
}

pub fn hget(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    reply.bulk_or_null(read(space, args[1])?.get(args[2])?);
    Ok(())
}

pub fn hmget(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let values = read(space, args[1])?.get_all(&args[2..])?;
    reply.array(values.len());
    values.into_iter().for_each(|value| reply.bulk_or_null(value));
    Ok(())
}

pub fn hdel(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let mut removed = 0;
    find(space, args[1])?.edit(&args[2..], KeepsTime::No, &mut |_, old| {
        removed += usize::from(old.is_some());
        Ok(if old.is_some() { MemberEdit::Remove } else { MemberEdit::Keep })
    })?;
    reply.count(removed);
    Ok(())
}

pub fn hlen(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    reply.count(read(space, args[1])?.count()?);
    Ok(())
}

pub fn hstrlen(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    reply.count(read(space, args[1])?.get(args[2])?.map_or(0, <[u8]>::len));
    Ok(())
}

pub fn hexists(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    reply.integer(i64::from(read(space, args[1])?.get(args[2])?.is_some()));
    Ok(())
}

pub fn hkeys(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let all = read(space, args[1])?.all()?;
    reply.array(all.len());
    all.iter().for_each(|(field, _)| reply.bulk(field));
    Ok(())
}

pub fn hvals(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let all = read(space, args[1])?.all()?;
    reply.array(all.len());
    all.iter().for_each(|(_, value)| reply.bulk(value));
    Ok(())
}

pub fn hgetall(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let all = read(space, args[1])?.all()?;
    reply.map(all.len());
    for (field, value) in all {
        reply.bulk(field);
        reply.bulk(value);
    }
    Ok(())
}

pub fn hincrby(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let (by, mut new) = (integer(args[3])?, 0);
    find(space, args[1])?.edit(&[args[2]], KeepsTime::Yes, &mut |_, old| {
        let old = match old {
            None => 0,
            Some(text) => number::integer(text).ok_or("ERR hash value is not an integer")?,
        };
        new = old.checked_add(by).ok_or("ERR increment or decrement would overflow")?;
        Ok(MemberEdit::Set(Cow::Owned(number::integer_text(new))))
    })?;
    reply.integer(new);
    Ok(())
}

/// Exact to 17 decimal places, as INCRBYFLOAT.
pub fn hincrbyfloat(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let by = match number::decimal(args[3]).ok_or("ERR value is not a valid float")? {
        Decimal::Finite(by) => by,
        Decimal::Infinite => return Err("ERR value is NaN or Infinity".into()),
    };
    let mut text = Vec::new();
    find(space, args[1])?.edit(&[args[2]], KeepsTime::Yes, &mut |_, old| {
        let old = number::decimal(old.unwrap_or(b"0")).ok_or("ERR hash value is not a float")?;
        let Decimal::Finite(old) = old else {
            return Err("ERR increment would produce NaN or Infinity".into());
        };
        text = number::decimal_sum(&old, &by);
        Ok(MemberEdit::Set(Cow::Owned(text.clone())))
    })?;
    reply.bulk(&text);
    Ok(())
}

pub fn hrandfield(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let count = args.get(2).map(|count| integer(count)).transpose()?;
    let with_values = match &args[2.min(args.len())..] {
        [] | [_] => false,
        [_, option] if is(option, "WITHVALUES") => true,
        _ => return Err(SYNTAX.into()),
    };
    let hash = read(space, args[1])?;
    let total = hash.count()?;
    let is_nested = with_values && reply.is_resp3();
    let parts = if with_values && !is_nested { 2 } else { 1 };
    let write = |reply: &mut Reply<'_>, (field, value): Member<'_>| {
        if is_nested {
            reply.array(2);
        }
        reply.bulk(field);
        if with_values {
            reply.bulk(value);
        }
    };
    let ranks = match draw(total, count.unwrap_or(1), with_values)? {
        Chosen::Places(ranks) => ranks,
        Chosen::Many(wanted) => {
            reply.array(wanted * parts);
            return write_many(space, (&hash.all()?[..], wanted), reply, write);
        }
    };
    let chosen = hash.of_ranks(&ranks, total)?;
    if count.is_none() {
        reply.bulk_or_null(chosen.first().map(|(field, _)| *field));
        return Ok(());
    }
    reply.array(chosen.len() * parts);
    chosen.into_iter().for_each(|member| write(reply, member));
    Ok(())
}
