//! The commands that wait for an element, as far as they need not wait: there is one, or they run
//! in MULTI, where nothing waits. Otherwise they are refused: waiting is not built yet.

use super::collections::{elements, store};
use super::list_edits::{is_left, lmpop, move_one};
use super::sorted_sets::{scored, store as store_scored, zmpop};
use super::{Done, SYNTAX, integer};
use crate::data::head::Kind;
use crate::data::keyspace::{Keyspace, Stop};
use crate::resp::reply::Reply;

/// Checks a timeout in seconds.
fn check_timeout(text: &[u8]) -> Result<(), Stop> {
    let seconds = super::sorted_sets::score(text).filter(|seconds| *seconds <= 9e15);
    match seconds.ok_or("ERR timeout is not a float or out of range")? {
        seconds if seconds < 0.0 => Err("ERR timeout is negative".into()),
        _ => Ok(()),
    }
}

/// Replies that there is nothing, if the command may not wait for it.
fn nothing(space: &Keyspace<'_>, reply: &mut Reply<'_>, is_array: bool) -> Done {
    if !space.context().is_exec {
        return Err(
            "ERR there is nothing to take, and waiting for it is not built yet: ask again \
                    after a while, or use the command without B"
                .into(),
        );
    }
    match is_array {
        true => reply.null_array(),
        false => reply.null(),
    }
    Ok(())
}

fn pop(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>, from_left: bool) -> Done {
    let (timeout, keys) = args[1..].split_last().ok_or(SYNTAX)?;
    check_timeout(timeout)?;
    for key in keys {
        let entry = space.find(key)?;
        let mut all = elements(&entry, Kind::List)?;
        if all.is_empty() {
            continue;
        }
        let popped = if from_left { all.remove(0) } else { all.remove(all.len() - 1) };
        store(space, key, &entry, Kind::List, all)?;
        reply.array(2);
        reply.bulk(key);
        reply.bulk(popped);
        return Ok(());
    }
    nothing(space, reply, true)
}

pub fn blpop(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    pop(space, args, reply, true)
}

pub fn brpop(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    pop(space, args, reply, false)
}

fn pop_scored(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>, highest: bool) -> Done {
    let (timeout, keys) = args[1..].split_last().ok_or(SYNTAX)?;
    check_timeout(timeout)?;
    for key in keys {
        let entry = space.find(key)?;
        let mut all = scored(&entry)?;
        if all.is_empty() {
            continue;
        }
        let (score, member) = if highest { all.remove(all.len() - 1) } else { all.remove(0) };
        store_scored(space, key, &entry, &all)?;
        reply.array(3);
        reply.bulk(key);
        reply.bulk(member);
        reply.double(score);
        return Ok(());
    }
    nothing(space, reply, true)
}

pub fn bzpopmin(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    pop_scored(space, args, reply, false)
}

pub fn bzpopmax(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    pop_scored(space, args, reply, true)
}

fn transfer(
    space: &Keyspace<'_>,
    (from, from_left): (&[u8], bool),
    to: (&[u8], bool),
    reply: &mut Reply<'_>,
) -> Done {
    let entry = space.find(from)?;
    match elements(&entry, Kind::List)?.is_empty() {
        true => nothing(space, reply, false),
        false => move_one(space, (from, from_left), to, reply),
    }
}

pub fn brpoplpush(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    check_timeout(args[3])?;
    transfer(space, (args[1], false), (args[2], true), reply)
}

pub fn blmove(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let (from_left, to_left) = (is_left(args[3])?, is_left(args[4])?);
    check_timeout(args[5])?;
    transfer(space, (args[1], from_left), (args[2], to_left), reply)
}

/// As the command without B and without the timeout, if that finds something.
fn pop_many(
    space: &Keyspace<'_>,
    (args, name): (&[&[u8]], &str),
    reply: &mut Reply<'_>,
    run: super::DataCommand,
) -> Done {
    check_timeout(args[1])?;
    if !integer(args[2]).is_ok_and(|count| count > 0) {
        return Err("ERR numkeys should be greater than 0".into());
    }
    let plain: Vec<&[u8]> =
        std::iter::once(name.as_bytes()).chain(args[2..].iter().copied()).collect();
    let position = reply.position();
    run(space, &plain, reply)?;
    if reply.is_null_array_at(position) {
        reply.truncate(position);
        return nothing(space, reply, true);
    }
    Ok(())
}

pub fn blmpop(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    pop_many(space, (args, "lmpop"), reply, lmpop)
}

pub fn bzmpop(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    pop_many(space, (args, "zmpop"), reply, zmpop)
}
