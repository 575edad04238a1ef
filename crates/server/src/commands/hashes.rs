//! Hashes in their packed form, fields and values by turns: a change writes the whole hash.

use super::collections::{Chosen, Named, Places, draw, elements, store};
use super::{Done, SYNTAX, integer, is, wrong_arity};
use crate::data::head::Kind;
use crate::data::keyspace::{Entry, Keyspace, Stop};
use crate::resp::number::{self, Decimal};
use crate::resp::reply::Reply;
use std::borrow::Cow;

/// A hash that is read, and perhaps changed.
struct Hash<'t, 'a> {
    entry: Entry<'t>,
    pairs: Vec<(&'a [u8], Cow<'a, [u8]>)>,
    places: Places<'a>,
}

impl<'t: 'a, 'a> Hash<'t, 'a> {
    fn of(entry: Entry<'t>) -> Result<Hash<'t, 'a>, Stop> {
        let all = elements(&entry, Kind::Hash)?;
        let pairs = all.chunks_exact(2).map(|pair| (pair[0], Cow::Borrowed(pair[1])));
        let places = Places::new(std::iter::empty(), 0);
        Ok(Hash { entry, pairs: pairs.collect(), places })
    }

    /// Prepares for many look-ups.
    fn indexed(mut self, arguments: usize) -> Hash<'t, 'a> {
        self.places = Places::new(self.pairs.iter().map(|(field, _)| *field), arguments);
        self
    }

    fn place(&self, field: &[u8]) -> Option<usize> {
        self.places.find(self.pairs.iter().map(|(field, _)| *field), field)
    }

    fn find(space: &Keyspace<'t>, key: &[u8]) -> Result<Hash<'t, 'a>, Stop> {
        Hash::of(space.find(key)?)
    }

    fn read(space: &Keyspace<'t>, key: &[u8]) -> Result<Hash<'t, 'a>, Stop> {
        Hash::of(space.read(key)?)
    }

    fn get(&self, field: &[u8]) -> Option<&[u8]> {
        self.place(field).map(|at| &self.pairs[at].1[..])
    }

    /// Sets a field; whether it is new.
    fn set(&mut self, field: &'a [u8], value: Cow<'a, [u8]>) -> bool {
        match self.place(field) {
            Some(at) => {
                self.pairs[at].1 = value;
                false
            }
            None => {
                self.places.add(field, self.pairs.len());
                self.pairs.push((field, value));
                true
            }
        }
    }

    fn store(&self, space: &Keyspace<'_>, key: &[u8]) -> Done {
        let all = self.pairs.iter().flat_map(|(field, value)| [*field, &value[..]]);
        store(space, key, &self.entry, Kind::Hash, all)
    }
}

fn set_all(space: &Keyspace<'_>, args: &[&[u8]], name: &str) -> Result<usize, Stop> {
    if !args.len().is_multiple_of(2) {
        return Err(wrong_arity(name));
    }
    let mut hash = Hash::find(space, args[1])?.indexed(args.len());
    let mut added = 0;
    for pair in args[2..].chunks_exact(2) {
        added += usize::from(hash.set(pair[0], Cow::Borrowed(pair[1])));
    }
    hash.store(space, args[1])?;
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
    let mut hash = Hash::find(space, args[1])?;
    let is_new = hash.get(args[2]).is_none();
    if is_new {
        hash.set(args[2], Cow::Borrowed(args[3]));
        hash.store(space, args[1])?;
    }
    reply.integer(i64::from(is_new));
    Ok(())
}

pub fn hget(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    reply.bulk_or_null(Hash::read(space, args[1])?.get(args[2]));
    Ok(())
}

pub fn hmget(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let hash = Hash::read(space, args[1])?.indexed(args.len());
    reply.array(args.len() - 2);
    args[2..].iter().for_each(|field| reply.bulk_or_null(hash.get(field)));
    Ok(())
}

pub fn hdel(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let mut hash = Hash::find(space, args[1])?;
    let (named, before) = (Named::new(&args[2..]), hash.pairs.len());
    hash.pairs.retain(|(field, _)| !named.has(field));
    let removed = before - hash.pairs.len();
    if removed > 0 {
        hash.store(space, args[1])?;
    }
    reply.count(removed);
    Ok(())
}

pub fn hlen(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    reply.count(Hash::read(space, args[1])?.pairs.len());
    Ok(())
}

pub fn hstrlen(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    reply.count(Hash::read(space, args[1])?.get(args[2]).map_or(0, <[u8]>::len));
    Ok(())
}

pub fn hexists(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    reply.integer(i64::from(Hash::read(space, args[1])?.get(args[2]).is_some()));
    Ok(())
}

pub fn hkeys(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let hash = Hash::read(space, args[1])?;
    reply.array(hash.pairs.len());
    hash.pairs.iter().for_each(|(field, _)| reply.bulk(field));
    Ok(())
}

pub fn hvals(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let hash = Hash::read(space, args[1])?;
    reply.array(hash.pairs.len());
    hash.pairs.iter().for_each(|(_, value)| reply.bulk(value));
    Ok(())
}

pub fn hgetall(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let hash = Hash::read(space, args[1])?;
    reply.map(hash.pairs.len());
    for (field, value) in &hash.pairs {
        reply.bulk(field);
        reply.bulk(value);
    }
    Ok(())
}

pub fn hincrby(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let by = integer(args[3])?;
    let mut hash = Hash::find(space, args[1])?;
    let old = match hash.get(args[2]) {
        None => 0,
        Some(text) => number::integer(text).ok_or("ERR hash value is not an integer")?,
    };
    let new = old.checked_add(by).ok_or("ERR increment or decrement would overflow")?;
    hash.set(args[2], Cow::Owned(number::integer_text(new)));
    hash.store(space, args[1])?;
    reply.integer(new);
    Ok(())
}

/// Exact to 17 decimal places, as INCRBYFLOAT.
pub fn hincrbyfloat(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let by = match number::decimal(args[3]).ok_or("ERR value is not a valid float")? {
        Decimal::Finite(by) => by,
        Decimal::Infinite => return Err("ERR value is NaN or Infinity".into()),
    };
    let mut hash = Hash::find(space, args[1])?;
    let old = hash.get(args[2]).unwrap_or(b"0");
    let old = match number::decimal(old).ok_or("ERR hash value is not a float")? {
        Decimal::Finite(old) => old,
        Decimal::Infinite => return Err("ERR increment would produce NaN or Infinity".into()),
    };
    let text = number::decimal_sum(&old, &by);
    hash.set(args[2], Cow::Owned(text.clone()));
    hash.store(space, args[1])?;
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
    let hash = Hash::read(space, args[1])?;
    let Some(count) = count else {
        let one =
            (!hash.pairs.is_empty()).then(|| hash.pairs[fastrand::usize(..hash.pairs.len())].0);
        reply.bulk_or_null(one);
        return Ok(());
    };
    let Chosen(chosen) = draw(hash.pairs.len(), count, with_values)?;
    let is_nested = with_values && reply.is_resp3();
    reply.array(chosen.len() * if with_values && !is_nested { 2 } else { 1 });
    for (field, value) in chosen.into_iter().map(|at| &hash.pairs[at]) {
        if is_nested {
            reply.array(2);
        }
        reply.bulk(field);
        if with_values {
            reply.bulk(value);
        }
    }
    Ok(())
}
