//! Changes inside of lists, and moves between them.

use super::collections::numbered_keys;
use super::sorted_sets::count_option;
use super::{Done, SYNTAX, integer, is};
use crate::data::keyspace::{Keyspace, Stop};
use crate::data::long_list::End;
use crate::data::values::list::StoredList;
use crate::resp::reply::Reply;

/// The place of an element; negative places count from the end.
fn place(length: usize, at: i64) -> Option<usize> {
    let at = if at < 0 { at.checked_add(length as i64)? } else { at };
    usize::try_from(at).ok().filter(|at| *at < length)
}

pub fn lset(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let mut list = StoredList::of(space.find(args[1])?)?;
    if !list.exists() {
        return Err("ERR no such key".into());
    }
    let at = place(list.count(), integer(args[2])?).ok_or("ERR index out of range")?;
    let change = list.set(at, args[3])?;
    list.store(change)?;
    reply.ok();
    Ok(())
}

pub fn linsert(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let behind = match args[2] {
        word if is(word, "AFTER") => 1,
        word if is(word, "BEFORE") => 0,
        _ => return Err(SYNTAX.into()),
    };
    let mut list = StoredList::of(space.find(args[1])?)?;
    if !list.exists() {
        reply.integer(0);
        return Ok(());
    }
    let all = list.range(0, list.count())?;
    let Some(at) = all.iter().position(|element| *element == args[3]) else {
        reply.integer(-1);
        return Ok(());
    };
    let change = list.insert(at + behind, args[4])?;
    reply.count(list.count());
    list.store(change)
}

pub fn lrem(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let count = integer(args[2])?;
    let mut list = StoredList::of(space.find(args[1])?)?;
    let mut left = if count == 0 { u64::MAX } else { count.unsigned_abs() };
    let from = if count < 0 { End::Right } else { End::Left };
    let (removed, change) = list.remove(from, |element| {
        let goes = left > 0 && element == args[3];
        left -= u64::from(goes);
        goes
    })?;
    if removed > 0 {
        list.store(change)?;
    }
    reply.count(removed);
    Ok(())
}

pub fn ltrim(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let (from, to) = (integer(args[2])?, integer(args[3])?);
    let entry = space.find(args[1])?;
    let mut list = StoredList::of(entry)?;
    let kept = super::lists::part(list.count(), from, to);
    if kept.len() < list.count() {
        if !kept.is_empty() {
            let change = list.keep(kept)?;
            list.store(change)?;
        } else {
            entry.remove()?;
        }
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
    let list = StoredList::of(space.read(args[1])?)?;
    let all = list.range(0, list.count())?;
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
    let side = |is_left: bool| if is_left { End::Left } else { End::Right };
    let mut source = StoredList::of(space.read(from)?)?;
    let (popped, change) = source.pop(side(from_left), 1)?;
    let Some(&moved) = popped.first() else {
        reply.null();
        return Ok(());
    };
    if from == to {
        let change = change.and(source.push(side(to_left), &[moved])?);
        source.store(change)?;
    } else {
        let mut target = StoredList::of(space.find(to)?)?;
        let filled = target.push(side(to_left), &[moved])?;
        target.store(filled)?;
        source.store(change)?;
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
        let mut list = StoredList::of(space.find(key)?)?;
        if !list.exists() {
            continue;
        }
        let (popped, change) = list.pop(if from_left { End::Left } else { End::Right }, count)?;
        list.store(change)?;
        reply.array(2);
        reply.bulk(key);
        reply.array(popped.len());
        popped.iter().for_each(|element| reply.bulk(element));
        return Ok(());
    }
    reply.null_array();
    Ok(())
}
