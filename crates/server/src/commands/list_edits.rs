//! Changes inside of lists, and moves between them.

use super::collections::{elements, numbered_keys, store};
use super::sorted_sets::count_option;
use super::{Done, SYNTAX, integer, is};
use crate::data::head::Kind;
use crate::data::keyspace::{Keyspace, Stop};
use crate::resp::reply::Reply;

/// The place of an element; negative ones count from the end.
fn place(length: usize, at: i64) -> Option<usize> {
    let at = if at < 0 { at.checked_add(length as i64)? } else { at };
    usize::try_from(at).ok().filter(|at| *at < length)
}

pub fn lset(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let entry = space.find(args[1])?;
    let mut all = elements(&entry, Kind::List)?;
    if !entry.exists() {
        return Err("ERR no such key".into());
    }
    let at = place(all.len(), integer(args[2])?).ok_or("ERR index out of range")?;
    all[at] = args[3];
    store(space, args[1], &entry, Kind::List, all)?;
    reply.ok();
    Ok(())
}

pub fn linsert(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let behind = match args[2] {
        word if is(word, "AFTER") => 1,
        word if is(word, "BEFORE") => 0,
        _ => return Err(SYNTAX.into()),
    };
    let entry = space.find(args[1])?;
    let mut all = elements(&entry, Kind::List)?;
    if !entry.exists() {
        reply.integer(0);
        return Ok(());
    }
    let Some(at) = all.iter().position(|element| *element == args[3]) else {
        reply.integer(-1);
        return Ok(());
    };
    all.insert(at + behind, args[4]);
    reply.count(all.len());
    store(space, args[1], &entry, Kind::List, all)
}

pub fn lrem(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let count = integer(args[2])?;
    let entry = space.find(args[1])?;
    let mut all = elements(&entry, Kind::List)?;
    let before = all.len();
    let mut left = if count == 0 { u64::MAX } else { count.unsigned_abs() };
    let mut keep = |element: &&[u8]| {
        let goes = left > 0 && *element == args[3];
        left -= u64::from(goes);
        !goes
    };
    if count < 0 {
        all.reverse();
        all.retain(&mut keep);
        all.reverse();
    } else {
        all.retain(&mut keep);
    }
    let removed = before - all.len();
    if removed > 0 {
        store(space, args[1], &entry, Kind::List, all)?;
    }
    reply.count(removed);
    Ok(())
}

pub fn ltrim(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let (from, to) = (integer(args[2])?, integer(args[3])?);
    let entry = space.find(args[1])?;
    let all = elements(&entry, Kind::List)?;
    let kept = super::lists::part(&all, from, to);
    if kept.len() < all.len() {
        store(space, args[1], &entry, Kind::List, kept.iter().copied())?;
    }
    reply.ok();
    Ok(())
}

/// RANK, COUNT and MAXLEN of LPOS.
fn position_options(args: &[&[u8]]) -> Result<(i64, Option<usize>, usize), Stop> {
    let (mut rank, mut count, mut most) = (1, None, 0);
    for option in args.chunks(2) {
        let &[option, value] = option else { return Err(SYNTAX.into()) };
        let unsigned = |error: &'static str| {
            integer(value).ok().and_then(|n| usize::try_from(n).ok()).ok_or(Stop::from(error))
        };
        if is(option, "RANK") {
            rank = integer(value)?;
            if rank == 0 {
                return Err("ERR RANK can't be zero: use 1 to start from the first match, 2 from \
                            the second ... or use negative to start from the end of the list"
                    .into());
            }
            if rank == i64::MIN {
                return Err("ERR value is out of range".into());
            }
        } else if is(option, "COUNT") {
            count = Some(unsigned("ERR COUNT can't be negative")?);
        } else if is(option, "MAXLEN") {
            most = unsigned("ERR MAXLEN can't be negative")?;
        } else {
            return Err(SYNTAX.into());
        }
    }
    Ok((rank, count, most))
}

pub fn lpos(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let (rank, count, most) = position_options(&args[3..])?;
    let all = elements(&space.read(args[1])?, Kind::List)?;
    let most = if most == 0 { all.len() } else { most };
    let matches = |at: &usize| all[*at] == args[2];
    let skipped = (rank.unsigned_abs() - 1) as usize;
    let wanted = match count {
        None => 1,
        Some(0) => usize::MAX,
        Some(count) => count,
    };
    let found: Vec<usize> = match rank > 0 {
        true => (0..all.len()).take(most).filter(matches).skip(skipped).take(wanted).collect(),
        false => {
            (0..all.len()).rev().take(most).filter(matches).skip(skipped).take(wanted).collect()
        }
    };
    match (count, found.first()) {
        (None, Some(at)) => reply.count(*at),
        (None, None) => reply.null(),
        (Some(_), _) => {
            reply.array(found.len());
            found.iter().for_each(|at| reply.count(*at));
        }
    }
    Ok(())
}

/// Whether a word names the left end.
pub fn is_left(word: &[u8]) -> Result<bool, Stop> {
    match word {
        word if is(word, "LEFT") => Ok(true),
        word if is(word, "RIGHT") => Ok(false),
        _ => Err(SYNTAX.into()),
    }
}

/// Moves an element from an end of a list to an end of another.
pub fn move_one(
    space: &Keyspace<'_>,
    (from, from_left): (&[u8], bool),
    (to, to_left): (&[u8], bool),
    reply: &mut Reply<'_>,
) -> Done {
    let source = space.read(from)?;
    let mut all = elements(&source, Kind::List)?;
    if all.is_empty() {
        reply.null();
        return Ok(());
    }
    let moved = if from_left { all.remove(0) } else { all.remove(all.len() - 1) };
    let put = |list: &mut Vec<_>| match to_left {
        true => list.insert(0, moved),
        false => list.push(moved),
    };
    if from == to {
        put(&mut all);
        store(space, from, &source, Kind::List, all)?;
    } else {
        let target = space.find(to)?;
        let mut other = elements(&target, Kind::List)?;
        put(&mut other);
        store(space, to, &target, Kind::List, other)?;
        store(space, from, &source, Kind::List, all)?;
    }
    reply.bulk(moved);
    Ok(())
}

pub fn rpoplpush(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    move_one(space, (args[1], false), (args[2], true), reply)
}

pub fn lmove(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    move_one(space, (args[1], is_left(args[3])?), (args[2], is_left(args[4])?), reply)
}

pub fn lmpop(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    if !integer(args[1]).is_ok_and(|count| count > 0) {
        return Err("ERR numkeys should be greater than 0".into());
    }
    let (keys, options) = numbered_keys(&args[1..], "lmpop")?;
    let from_left = is_left(options.first().ok_or(SYNTAX)?)?;
    let count = count_option(&options[1..])?;
    for key in keys {
        let entry = space.find(key)?;
        let mut all = elements(&entry, Kind::List)?;
        if all.is_empty() {
            continue;
        }
        let count = count.min(all.len());
        let popped: Vec<&[u8]> = match from_left {
            true => all.drain(..count).collect(),
            false => all.drain(all.len() - count..).rev().collect(),
        };
        store(space, key, &entry, Kind::List, all)?;
        reply.array(2);
        reply.bulk(key);
        reply.array(popped.len());
        popped.iter().for_each(|element| reply.bulk(element));
        return Ok(());
    }
    reply.null_array();
    Ok(())
}
