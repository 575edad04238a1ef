//! Shared parts of commands on lists, sets, hashes and sorted sets: random choices, and the SCAN of
//! a collection.

use super::{Done, NOT_AN_INTEGER, SYNTAX, integer, is};
use crate::base::glob;
use crate::data::keyspace::{Keyspace, Stop};
use crate::data::member_values::Member;
use crate::data::values::elements::Elements;
use crate::data::values::hash::StoredHash;
use crate::data::values::members;
use crate::data::values::set::SetType;
use crate::data::values::sorted_set::{SortedSetType, decode_score};
use crate::resp::number::push_float;
use crate::resp::reply::Reply;
use hyades::Abort;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// Keys without repetitions, in the order of their first occurrence.
pub fn distinct<'a>(keys: &[&'a [u8]]) -> Vec<&'a [u8]> {
    let mut known = HashSet::new();
    keys.iter().copied().filter(|key| known.insert(*key)).collect()
}

/// With a negative count beyond this number, elements are drawn as they are replied.
const MOST_DRAWN: u64 = 1 << 20;

/// Elements drawn between two checks of the bounds.
const DRAWN_AT_ONCE: usize = 4_096;

/// Drawn elements of a collection.
pub enum Chosen {
    /// The elements at the given places.
    Places(Vec<usize>),
    /// The given number of any elements, for [`write_many`]. There is an element.
    Many(usize),
}

/// Writes elements drawn from `all`, each as often as it is drawn: `wanted` elements, or until the
/// reply becomes too long, or the transaction too much.
pub fn write_many<T: Copy>(
    space: &Keyspace<'_>,
    (all, wanted): (&[T], usize),
    reply: &mut Reply<'_>,
    mut write: impl FnMut(&mut Reply<'_>, T),
) -> Done {
    if all.is_empty() {
        // There was an element.
        return Err(Abort::Conflict.into());
    }
    let mut left = wanted;
    while left > 0 && !reply.is_too_long() {
        let now = left.min(DRAWN_AT_ONCE);
        space.charge(now)?;
        (0..now).for_each(|_| write(reply, all[fastrand::usize(..all.len())]));
        left -= now;
    }
    Ok(())
}

/// Draws from `length` elements: `count` different elements, or, if `count` is negative, its amount
/// with repetitions. `is_pairs`: each element has a partner.
pub fn draw(length: usize, count: i64, is_pairs: bool) -> Result<Chosen, Stop> {
    let wanted = count.unsigned_abs();
    if is_pairs && wanted > i64::MAX as u64 / 2 || count == i64::MIN {
        return Err("ERR value is out of range".into());
    }
    if count < 0 && wanted > MOST_DRAWN && length > 0 {
        return Ok(Chosen::Many(usize::try_from(wanted).unwrap_or(usize::MAX)));
    }
    Ok(Chosen::Places(match (length, count) {
        (0, _) | (_, 0) => Vec::new(),
        (_, count) if count < 0 => (0..wanted).map(|_| fastrand::usize(..length)).collect(),
        _ => different_places(length, usize::try_from(wanted).unwrap_or(length).min(length)),
    }))
}

/// `wanted` different places below `length`, in any order: a shuffle, as far as needed. If `wanted`
/// is small, only changed places are kept.
fn different_places(length: usize, wanted: usize) -> Vec<usize> {
    if wanted > length / 16 {
        let mut all: Vec<usize> = (0..length).collect();
        (0..wanted).for_each(|at| all.swap(at, fastrand::usize(at..length)));
        all.truncate(wanted);
        return all;
    }
    let mut changed: HashMap<usize, usize> = HashMap::new();
    let next = |at: usize| {
        let other = fastrand::usize(at..length);
        let here = changed.get(&at).copied().unwrap_or(at);
        changed.insert(other, here).unwrap_or(other)
    };
    (0..wanted).map(next).collect()
}

/// How the value of a member is shown, if at all.
type ShownValue = Option<for<'t> fn(&'t [u8]) -> Result<Cow<'t, [u8]>, Abort>>;

/// The members returned by a call, and the next cursor.
type FoundMembers<'t> = Result<(Vec<Member<'t>>, u64), Stop>;

fn scan<'t>(
    args: &[&[u8]],
    reply: &mut Reply<'_>,
    mut show: ShownValue,
    find: impl FnOnce(u64, usize) -> FoundMembers<'t>,
) -> Done {
    let cursor = std::str::from_utf8(args[2]).ok().and_then(|text| text.parse::<u64>().ok());
    let cursor = cursor.ok_or("ERR invalid cursor")?;
    let (mut pattern, mut count) = (None, 10);
    let (mut options, rest);
    options = &args[3..];
    // The one option without a value, of HSCAN alone.
    if show.is_some() && is(args[0], "HSCAN") {
        let is_option = |at: &usize| at.is_multiple_of(2) && is(options[*at], "NOVALUES");
        if let Some(at) = (0..options.len()).find(is_option) {
            (rest, show) = ([&options[..at], &options[at + 1..]].concat(), None);
            options = &rest;
        }
    }
    for option in options.chunks(2) {
        let &[option, value] = option else { return Err(SYNTAX.into()) };
        if is(option, "COUNT") {
            let given = usize::try_from(integer(value)?).ok().filter(|count| *count > 0);
            count = given.ok_or(SYNTAX)?;
        } else if is(option, "MATCH") {
            pattern = Some(value);
        } else {
            return Err(SYNTAX.into());
        }
    }
    let (mut found, next) = find(cursor, count)?;
    found.retain(|(name, _)| pattern.is_none_or(|pattern| glob::matches(pattern, name, false)));
    reply.array(2);
    reply.bulk(next.to_string().as_bytes());
    reply.array(found.len() * if show.is_some() { 2 } else { 1 });
    for (name, value) in found {
        reply.bulk(name);
        if let Some(show) = show {
            reply.bulk(&show(value)?);
        }
    }
    Ok(())
}

pub fn hscan(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let find = |cursor, count| StoredHash::of(space.read(args[1])?)?.scan(cursor, count);
    scan(args, reply, Some(|value| Ok(Cow::Borrowed(value))), find)
}

pub fn sscan(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    scan(args, reply, None, |cursor, count| {
        members::scan(&Elements::<SetType>::of(space.read(args[1])?)?, cursor, count)
    })
}

pub fn zscan(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let text = |score: &[u8]| {
        let mut text = Vec::new();
        push_float(&mut text, decode_score(score)?);
        Ok(Cow::Owned(text))
    };
    scan(args, reply, Some(text), |cursor, count| {
        members::scan(&Elements::<SortedSetType>::of(space.read(args[1])?)?, cursor, count)
    })
}

/// Keys, and the arguments behind them.
type Split<'a, 'b> = (&'a [&'b [u8]], &'a [&'b [u8]]);

/// The keys of a command with a number of keys, and the arguments behind them. The number is the
/// first of `args`.
pub fn numbered_keys<'a, 'b>(args: &'a [&'b [u8]], name: &str) -> Result<Split<'a, 'b>, Stop> {
    let count = integer(args[0]).map_err(|_| Stop::from(NOT_AN_INTEGER))?;
    let Some(count) = usize::try_from(count).ok().filter(|count| *count > 0) else {
        return Err(match name.starts_with('z') && name != "zmpop" {
            true => format!("ERR at least 1 input key is needed for '{name}' command").into(),
            false => "ERR numkeys should be greater than 0".into(),
        });
    };
    args[1..].split_at_checked(count).ok_or_else(|| match name {
        "sintercard" => "ERR Number of keys can't be greater than number of args".into(),
        _ => SYNTAX.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However many elements there are: elements not drawn take no memory.
    #[test]
    fn different_elements_are_drawn() {
        for (length, count) in [(1, 1), (40, 40), (40, 3), (40, 2), (40, 41), (1 << 60, 1_000)] {
            let Ok(Chosen::Places(mut drawn)) = draw(length, count, false) else {
                panic!("{count} of {length}");
            };
            assert_eq!(drawn.len(), (count as usize).min(length));
            assert!(drawn.iter().all(|place| *place < length));
            drawn.sort();
            assert!(drawn.windows(2).all(|two| two[0] < two[1]), "{count} of {length}");
        }
    }

    /// Each of a few places comes first, and comes second.
    #[test]
    fn each_element_is_drawn() {
        let mut seen = [[0; 40]; 2];
        for _ in 0..4_000 {
            let places = different_places(40, 2);
            seen.iter_mut().zip(places).for_each(|(counts, place)| counts[place] += 1);
        }
        assert!(seen.iter().flatten().all(|times| *times > 0), "{seen:?}");
    }
}
