//! Sorted sets in their packed form: each element is a score, in eight bytes that sort as it does,
//! and a member; they lie in this order. A change writes the whole set.

use super::collections::{self, Chosen, Named, Places, draw, elements, numbered_keys};
use super::{Done, SYNTAX, integer, is};
use crate::data::head::Kind;
use crate::data::keyspace::{Entry, Keyspace, Stop};
use crate::resp::number;
use crate::resp::reply::Reply;
use hyades::Abort;
use std::collections::HashMap;

pub const NOT_A_FLOAT: &str = "ERR value is not a valid float";

/// Members with their scores, in the order of scores, then of members.
pub type Scored<'a> = Vec<(f64, &'a [u8])>;

/// Bytes that sort as the score does. No score is NaN, and -0 is 0.
fn score_bytes(score: f64) -> [u8; 8] {
    let bits = (score + 0.0).to_bits();
    let sign = 1 << 63;
    (if bits & sign == 0 { bits | sign } else { !bits }).to_be_bytes()
}

fn score_of(bytes: [u8; 8]) -> f64 {
    let (bits, sign) = (u64::from_be_bytes(bytes), 1 << 63);
    f64::from_bits(if bits & sign == 0 { !bits } else { bits & !sign })
}

/// Reads packed elements.
pub fn decode<'a>(all: &[&'a [u8]]) -> Result<Scored<'a>, Abort> {
    let one = |element: &&'a [u8]| {
        let (score, member) = element.split_first_chunk::<8>()?;
        Some((score_of(*score), member))
    };
    // An element without a score is a torn view.
    all.iter().map(|element| one(element).ok_or(Abort::Conflict)).collect()
}

/// The members of a sorted set; none if the key does not exist.
pub fn scored<'t>(entry: &Entry<'t>) -> Result<Scored<'t>, Stop> {
    Ok(decode(&elements(entry, Kind::SortedSet)?)?)
}

fn encode(all: &[(f64, &[u8])]) -> Vec<Vec<u8>> {
    all.iter().map(|(score, member)| [&score_bytes(*score)[..], member].concat()).collect()
}

/// Stores a sorted set that has changed.
pub fn store(space: &Keyspace<'_>, key: &[u8], entry: &Entry<'_>, all: &[(f64, &[u8])]) -> Done {
    let all = encode(all);
    collections::store(space, key, entry, Kind::SortedSet, all.iter().map(Vec::as_slice))
}

/// Stores a sorted set in the place of whatever is there.
pub fn replace(space: &Keyspace<'_>, key: &[u8], all: &[(f64, &[u8])]) -> Done {
    let all = encode(all);
    collections::replace(space, key, Kind::SortedSet, all.iter().map(Vec::as_slice))
}

/// Brings members into their order.
pub fn sort(all: &mut Scored<'_>) {
    all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(b.1)));
}

/// Reads a score: a number that is not too large or too small, or an infinity.
pub fn score(text: &[u8]) -> Option<f64> {
    let is_blank = text.first().is_some_and(|byte| byte.is_ascii_whitespace() || *byte == 0x0b);
    let read = number::float(text).filter(|of| !of.value.is_nan() && !of.is_out_of_range);
    read.filter(|_| !is_blank).map(|of| of.value + 0.0)
}

fn score_argument(text: &[u8]) -> Result<f64, Stop> {
    score(text).ok_or_else(|| NOT_A_FLOAT.into())
}

#[derive(Default)]
struct AddOptions {
    only_new: bool,
    only_known: bool,
    greater: bool,
    less: bool,
    changed: bool,
    increment: bool,
}

/// The options of ZADD, and how many there are.
fn add_options(args: &[&[u8]]) -> Result<(AddOptions, usize), Stop> {
    let (mut of, mut at) = (AddOptions::default(), 0);
    while let Some(option) = args.get(at) {
        match option {
            _ if is(option, "NX") => of.only_new = true,
            _ if is(option, "XX") => of.only_known = true,
            _ if is(option, "GT") => of.greater = true,
            _ if is(option, "LT") => of.less = true,
            _ if is(option, "CH") => of.changed = true,
            _ if is(option, "INCR") => of.increment = true,
            _ => break,
        }
        at += 1;
    }
    if of.only_new && of.only_known {
        return Err("ERR XX and NX options at the same time are not compatible".into());
    }
    if of.greater && (of.less || of.only_new) || of.less && of.only_new {
        return Err("ERR GT, LT, and/or NX options at the same time are not compatible".into());
    }
    Ok((of, at))
}

fn add(
    space: &Keyspace<'_>,
    (key, of, pairs): (&[u8], &AddOptions, &[&[u8]]),
    reply: &mut Reply<'_>,
) -> Done {
    if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
        return Err(SYNTAX.into());
    }
    if of.increment && pairs.len() > 2 {
        return Err("ERR INCR option supports a single increment-element pair".into());
    }
    let scores = pairs.chunks_exact(2).map(|pair| score_argument(pair[0]));
    let scores = scores.collect::<Result<Vec<_>, _>>()?;
    let entry = space.find(key)?;
    let mut all = scored(&entry)?;
    let (mut added, mut changed, mut last) = (0, 0, None);
    let mut places = Places::new(all.iter().map(|(_, member)| *member), pairs.len());
    for (given, pair) in scores.into_iter().zip(pairs.chunks_exact(2)) {
        let member = pair[1];
        let place = places.find(all.iter().map(|(_, member)| *member), member);
        let old = place.map(|at| all[at].0);
        if old.is_some() && of.only_new || old.is_none() && of.only_known {
            continue;
        }
        let new = match old {
            Some(old) if of.increment => old + given,
            _ => given,
        };
        if new.is_nan() {
            return Err("ERR resulting score is not a number (NaN)".into());
        }
        let is_refused = |old: f64| of.greater && new <= old || of.less && new >= old;
        if old.is_some_and(is_refused) {
            continue;
        }
        last = Some(new);
        if old == Some(new) {
            continue;
        }
        match place {
            Some(at) => {
                all[at].0 = new + 0.0;
                changed += 1;
            }
            None => {
                places.add(member, all.len());
                all.push((new + 0.0, member));
                added += 1;
            }
        }
    }
    if added + changed > 0 {
        sort(&mut all);
        store(space, key, &entry, &all)?;
    }
    match (of.increment, last) {
        (true, Some(score)) => reply.double(score),
        (true, None) => reply.null(),
        (false, _) => reply.count(if of.changed { added + changed } else { added }),
    }
    Ok(())
}

pub fn zadd(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let (of, options) = add_options(&args[2..])?;
    add(space, (args[1], &of, &args[2 + options..]), reply)
}

pub fn zincrby(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let of = AddOptions { increment: true, ..AddOptions::default() };
    add(space, (args[1], &of, &args[2..]), reply)
}

pub fn zrem(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let entry = space.find(args[1])?;
    let mut all = scored(&entry)?;
    let (named, before) = (Named::new(&args[2..]), all.len());
    all.retain(|(_, member)| !named.has(member));
    let removed = before - all.len();
    if removed > 0 {
        store(space, args[1], &entry, &all)?;
    }
    reply.count(removed);
    Ok(())
}

pub fn zcard(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    reply.count(elements(&space.read(args[1])?, Kind::SortedSet)?.len());
    Ok(())
}

/// Replies the score of each member that is named.
fn show_scores(reply: &mut Reply<'_>, all: &Scored<'_>, named: &[&[u8]]) {
    let members = || all.iter().map(|(_, member)| *member);
    let places = Places::new(members(), named.len());
    for member in named {
        match places.find(members(), member) {
            Some(at) => reply.double(all[at].0),
            None => reply.null(),
        }
    }
}

pub fn zscore(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    show_scores(reply, &scored(&space.read(args[1])?)?, &args[2..]);
    Ok(())
}

pub fn zmscore(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let all = scored(&space.read(args[1])?)?;
    reply.array(args.len() - 2);
    show_scores(reply, &all, &args[2..]);
    Ok(())
}

fn rank(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>, reversed: bool) -> Done {
    let with_score = match &args[3..] {
        [] => false,
        [option] if is(option, "WITHSCORE") => true,
        _ => return Err(SYNTAX.into()),
    };
    let all = scored(&space.read(args[1])?)?;
    let found = all.iter().position(|(_, member)| *member == args[2]);
    let Some(at) = found else {
        match with_score {
            true => reply.null_array(),
            false => reply.null(),
        }
        return Ok(());
    };
    if with_score {
        reply.array(2);
    }
    reply.count(if reversed { all.len() - 1 - at } else { at });
    if with_score {
        reply.double(all[at].0);
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
    let is_nested = with_scores && reply.is_resp3();
    reply.array(members.len() * if with_scores && !is_nested { 2 } else { 1 });
    for (score, member) in members {
        if is_nested {
            reply.array(2);
        }
        reply.bulk(member);
        if with_scores {
            reply.double(*score);
        }
    }
}

/// Takes the lowest or the highest members off.
fn take<'a>(all: &mut Scored<'a>, count: usize, highest: bool) -> Scored<'a> {
    let count = count.min(all.len());
    match highest {
        false => all.drain(..count).collect(),
        true => all.drain(all.len() - count..).rev().collect(),
    }
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
    let entry = space.find(args[1])?;
    let mut all = scored(&entry)?;
    let popped = take(&mut all, count.unwrap_or(1), highest);
    if !popped.is_empty() {
        store(space, args[1], &entry, &all)?;
    }
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
        let entry = space.find(key)?;
        let mut all = scored(&entry)?;
        if all.is_empty() {
            continue;
        }
        let popped = take(&mut all, count, highest);
        store(space, key, &entry, &all)?;
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
    let all = scored(&space.read(args[1])?)?;
    let Some(count) = count else {
        let one = (!all.is_empty()).then(|| all[fastrand::usize(..all.len())].1);
        reply.bulk_or_null(one);
        return Ok(());
    };
    let Chosen(chosen) = draw(all.len(), count, with_scores)?;
    let chosen: Scored<'_> = chosen.into_iter().map(|at| all[at]).collect();
    show(reply, &chosen, with_scores);
    Ok(())
}

/// Scores by member.
pub type ByMember<'a> = HashMap<&'a [u8], f64>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_scores_sort_as_they_do() {
        let all = [f64::NEG_INFINITY, -1e300, -1.5, -1e-300, 0.0, 1e-300, 2.0, f64::INFINITY];
        for pair in all.windows(2) {
            assert!(score_bytes(pair[0]) < score_bytes(pair[1]), "{pair:?}");
        }
        all.iter().for_each(|score| assert_eq!(score_of(score_bytes(*score)), *score));
        assert_eq!(score_bytes(-0.0), score_bytes(0.0));
        assert_eq!((score(b"1e400"), score(b"1e-400"), score(b"0x10")), (None, None, Some(16.0)));
        assert_eq!(score(b"-inf"), Some(f64::NEG_INFINITY));
        assert_eq!((score(b"nan"), score(b""), score(b" 1")), (None, None, None));
    }
}
