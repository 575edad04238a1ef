//! Sorted sets.

use super::collections::{Chosen, draw, numbered_keys, write_many};
use super::{Done, SYNTAX, integer, is};
use crate::data::keyspace::{Keyspace, Stop};
use crate::data::values::sorted_set::{Interval, ScoreEdit, Scored, StoredSortedSet};
use crate::resp::number;
use crate::resp::reply::Reply;
use std::collections::HashMap;

pub const NOT_A_FLOAT: &str = "ERR value is not a valid float";

/// Reads a score: a number within the range of scores, or an infinity.
pub fn score(text: &[u8]) -> Option<f64> {
    let is_blank = text.first().is_some_and(|byte| byte.is_ascii_whitespace() || *byte == 0x0b);
    let read = number::float(text).filter(|float| !float.value.is_nan() && !float.is_out_of_range);
    read.filter(|_| !is_blank).map(|float| float.value + 0.0)
}

fn score_argument(text: &[u8]) -> Result<f64, Stop> {
    score(text).ok_or_else(|| NOT_A_FLOAT.into())
}

/// The options of ZADD.
#[derive(Default)]
pub struct AddOptions {
    /// Existing members stay as they are.
    pub only_new: bool,
    /// No members are added.
    pub only_known: bool,
    greater: bool,
    less: bool,
    /// Changed members are counted as well.
    pub changed: bool,
    increment: bool,
}

/// The options of ZADD, and their number.
fn add_options(args: &[&[u8]]) -> Result<(AddOptions, usize), Stop> {
    let (mut options, mut at) = (AddOptions::default(), 0);
    while let Some(option) = args.get(at) {
        match option {
            _ if is(option, "NX") => options.only_new = true,
            _ if is(option, "XX") => options.only_known = true,
            _ if is(option, "GT") => options.greater = true,
            _ if is(option, "LT") => options.less = true,
            _ if is(option, "CH") => options.changed = true,
            _ if is(option, "INCR") => options.increment = true,
            _ => break,
        }
        at += 1;
    }
    if options.only_new && options.only_known {
        return Err("ERR XX and NX options at the same time are not compatible".into());
    }
    if options.greater && (options.less || options.only_new) || options.less && options.only_new {
        return Err("ERR GT, LT, and/or NX options at the same time are not compatible".into());
    }
    Ok((options, at))
}

fn add(
    space: &Keyspace<'_>,
    (key, options, pairs): (&[u8], &AddOptions, &[&[u8]]),
    reply: &mut Reply<'_>,
) -> Done {
    if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
        return Err(SYNTAX.into());
    }
    if options.increment && pairs.len() > 2 {
        return Err("ERR INCR option supports a single increment-element pair".into());
    }
    let scores = pairs.chunks_exact(2).map(|pair| score_argument(pair[0]));
    let scores = scores.collect::<Result<Vec<_>, _>>()?;
    let members: Vec<&[u8]> = pairs.chunks_exact(2).map(|pair| pair[1]).collect();
    add_scored(space, (key, options), (&scores, &members), reply)
}

/// Adds members with the given scores, and replies like ZADD.
pub fn add_scored(
    space: &Keyspace<'_>,
    (key, options): (&[u8], &AddOptions),
    (scores, members): (&[f64], &[&[u8]]),
    reply: &mut Reply<'_>,
) -> Done {
    let (mut added, mut changed, mut last) = (0, 0, None);
    StoredSortedSet::of(space.find(key)?)?.edit(members, &mut |at, old| {
        if old.is_some() && options.only_new || old.is_none() && options.only_known {
            return Ok(ScoreEdit::Keep);
        }
        let new = match old {
            Some(old) if options.increment => old + scores[at],
            _ => scores[at],
        };
        if new.is_nan() {
            return Err("ERR resulting score is not a number (NaN)".into());
        }
        let is_refused = |old: f64| options.greater && new <= old || options.less && new >= old;
        if old.is_some_and(is_refused) {
            return Ok(ScoreEdit::Keep);
        }
        last = Some(new);
        if old == Some(new) {
            return Ok(ScoreEdit::Keep);
        }
        added += usize::from(old.is_none());
        changed += usize::from(old.is_some());
        Ok(ScoreEdit::Set(new + 0.0))
    })?;
    match (options.increment, last) {
        (true, Some(score)) => reply.double(score),
        (true, None) => reply.null(),
        (false, _) => reply.count(if options.changed { added + changed } else { added }),
    }
    Ok(())
}

pub fn zadd(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let (wanted, options) = add_options(&args[2..])?;
    add(space, (args[1], &wanted, &args[2 + options..]), reply)
}

pub fn zincrby(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let options = AddOptions { increment: true, ..AddOptions::default() };
    add(space, (args[1], &options, &args[2..]), reply)
}

pub fn zrem(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let all = StoredSortedSet::of(space.find(args[1])?)?;
    reply.count(all.remove(&args[2..])?);
    Ok(())
}

pub fn zcard(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    reply.count(StoredSortedSet::of(space.read(args[1])?)?.count()?);
    Ok(())
}

/// Replies the score of each named member.
fn show_scores(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    for score in StoredSortedSet::of(space.read(args[1])?)?.scores(&args[2..])? {
        match score {
            Some(score) => reply.double(score),
            None => reply.null(),
        }
    }
    Ok(())
}

pub fn zscore(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    show_scores(space, args, reply)
}

pub fn zmscore(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    reply.array(args.len() - 2);
    show_scores(space, args, reply)
}

fn rank(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>, reversed: bool) -> Done {
    let with_score = match &args[3..] {
        [] => false,
        [option] if is(option, "WITHSCORE") => true,
        _ => return Err(SYNTAX.into()),
    };
    let all = StoredSortedSet::of(space.read(args[1])?)?;
    let Some((at, score)) = all.rank(args[2])? else {
        match with_score {
            true => reply.null_array(),
            false => reply.null(),
        }
        return Ok(());
    };
    if with_score {
        reply.array(2);
    }
    reply.count(match reversed {
        // Fewer than there are ranks: a torn view.
        true => all.count()?.checked_sub(at + 1).ok_or(hyades::Abort::Conflict)?,
        false => at,
    });
    if with_score {
        reply.double(score);
    }
    Ok(())
}

pub fn zrank(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    rank(space, args, reply, false)
}

pub fn zrevrank(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    rank(space, args, reply, true)
}

/// Shows members, perhaps with scores: pairs in version 3, one after the other in version 2.
pub fn show(reply: &mut Reply<'_>, members: &[(f64, &[u8])], with_scores: bool) {
    let is_nested = show_head(reply, members.len(), with_scores);
    members.iter().for_each(|member| show_member(reply, *member, with_scores, is_nested));
}

/// Writes the head of the members' array; returns whether its elements are pairs.
fn show_head(reply: &mut Reply<'_>, members: usize, with_scores: bool) -> bool {
    let is_nested = with_scores && reply.is_resp3();
    reply.array(members * if with_scores && !is_nested { 2 } else { 1 });
    is_nested
}

fn show_member(
    reply: &mut Reply<'_>,
    (score, member): (f64, &[u8]),
    with_scores: bool,
    is_nested: bool,
) {
    if is_nested {
        reply.array(2);
    }
    reply.bulk(member);
    if with_scores {
        reply.double(score);
    }
}

/// Takes the lowest or the highest members off.
pub fn take<'t>(
    space: &Keyspace<'t>,
    key: &[u8],
    count: usize,
    highest: bool,
) -> Result<Scored<'t>, Stop> {
    let all = StoredSortedSet::of(space.find(key)?)?;
    let taken = all.take(&Interval::Between(Vec::new(), None), highest, 0, count)?;
    let names: Vec<&[u8]> = taken.iter().map(|(_, name)| *name).collect();
    all.remove(&names)?;
    Ok(taken)
}

fn pop(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>, highest: bool) -> Done {
    let count = match &args[2..] {
        [] => None,
        [count] => {
            let count = integer(count).ok().and_then(|count| usize::try_from(count).ok());
            Some(count.ok_or("ERR value is out of range, must be positive")?)
        }
        _ => return Err(SYNTAX.into()),
    };
    let popped = take(space, args[1], count.unwrap_or(1), highest)?;
    match (count, popped.first()) {
        (None, Some((score, member))) => {
            reply.array(2);
            reply.bulk(member);
            reply.double(*score);
        }
        _ => show(reply, &popped, true),
    }
    Ok(())
}

pub fn zpopmin(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    pop(space, args, reply, false)
}

pub fn zpopmax(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    pop(space, args, reply, true)
}

/// COUNT of ZMPOP and LMPOP.
pub fn count_option(options: &[&[u8]]) -> Result<usize, Stop> {
    match options {
        [] => Ok(1),
        [option, count] if is(option, "COUNT") => {
            let count = integer(count).ok().and_then(|count| usize::try_from(count).ok());
            count
                .filter(|count| *count > 0)
                .ok_or_else(|| "ERR count should be greater than 0".into())
        }
        _ => Err(SYNTAX.into()),
    }
}

pub fn zmpop(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    if !integer(args[1]).is_ok_and(|count| count > 0) {
        return Err("ERR numkeys should be greater than 0".into());
    }
    let (keys, options) = numbered_keys(&args[1..], "zmpop")?;
    let highest = match options.first() {
        Some(end) if is(end, "MIN") => false,
        Some(end) if is(end, "MAX") => true,
        _ => return Err(SYNTAX.into()),
    };
    let count = count_option(&options[1..])?;
    for key in keys {
        let popped = take(space, key, count, highest)?;
        if popped.is_empty() {
            continue;
        }
        reply.array(2);
        reply.bulk(key);
        reply.array(popped.len());
        for (score, member) in popped {
            reply.array(2);
            reply.bulk(member);
            reply.double(score);
        }
        return Ok(());
    }
    reply.null_array();
    Ok(())
}

pub fn zrandmember(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let count = args.get(2).map(|count| integer(count)).transpose()?;
    let with_scores = match &args[2.min(args.len())..] {
        [] | [_] => false,
        [_, option] if is(option, "WITHSCORES") => true,
        _ => return Err(SYNTAX.into()),
    };
    let all = StoredSortedSet::of(space.read(args[1])?)?;
    let total = all.count()?;
    let ranks = match draw(total, count.unwrap_or(1), with_scores)? {
        Chosen::Places(ranks) => ranks,
        Chosen::Many(wanted) => {
            let is_nested = show_head(reply, wanted, with_scores);
            let write = |reply: &mut Reply<'_>, member| {
                show_member(reply, member, with_scores, is_nested);
            };
            return write_many(space, (&all.all()?[..], wanted), reply, write);
        }
    };
    let chosen = all.of_ranks(&ranks, total)?;
    if count.is_none() {
        reply.bulk_or_null(chosen.first().map(|(_, member)| *member));
        return Ok(());
    }
    show(reply, &chosen, with_scores);
    Ok(())
}

/// Scores by member.
pub type ByMember<'a> = HashMap<&'a [u8], f64>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_as_redis_reads_them() {
        assert_eq!((score(b"1e400"), score(b"1e-400"), score(b"0x10")), (None, None, Some(16.0)));
        assert_eq!(score(b"-inf"), Some(f64::NEG_INFINITY));
        assert_eq!((score(b"nan"), score(b""), score(b" 1")), (None, None, None));
    }
}
