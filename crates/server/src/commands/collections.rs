//! What lists, sets, hashes and sorted sets share: a value that is packed in its key's row, random
//! choices, and the SCAN of a collection.

use super::{Done, NOT_AN_INTEGER, SYNTAX, integer, is};
use crate::data::head::{Form, Head, Kind};
use crate::data::keyspace::{Entry, Keyspace, Stop};
use crate::data::packed;
use crate::glob;
use crate::resp::number::push_float;
use crate::resp::reply::Reply;
use std::collections::{HashMap, HashSet};

/// With more arguments than these, members are looked up in a map of all.
const FEW: usize = 16;

/// Where the members of a collection are, so that many arguments do not each walk over all of them.
pub struct Places<'a>(Option<HashMap<&'a [u8], usize>>);

impl<'a> Places<'a> {
    /// Of these members, for a command with a number of arguments.
    pub fn new(members: impl Iterator<Item = &'a [u8]>, arguments: usize) -> Places<'a> {
        let all = || members.enumerate().map(|(at, member)| (member, at)).collect();
        Places((arguments > FEW).then(all))
    }

    /// The place of a member among all of them.
    pub fn find<'b>(
        &self,
        mut members: impl Iterator<Item = &'b [u8]>,
        member: &[u8],
    ) -> Option<usize> {
        match &self.0 {
            Some(places) => places.get(member).copied(),
            None => members.position(|known| known == member),
        }
    }

    /// A member was appended.
    pub fn add(&mut self, member: &'a [u8], place: usize) {
        if let Some(places) = &mut self.0 {
            places.insert(member, place);
        }
    }
}

/// The members that a command names.
pub enum Named<'a> {
    /// Few enough to compare each with them.
    Few(&'a [&'a [u8]]),
    /// The others.
    Many(HashSet<&'a [u8]>),
}

impl<'a> Named<'a> {
    /// By these arguments.
    pub fn new(arguments: &'a [&'a [u8]]) -> Named<'a> {
        match arguments.len() <= FEW {
            true => Named::Few(arguments),
            false => Named::Many(arguments.iter().copied().collect()),
        }
    }

    /// Whether a member is among them.
    pub fn has(&self, member: &[u8]) -> bool {
        match self {
            Named::Few(all) => all.contains(&member),
            Named::Many(all) => all.contains(member),
        }
    }
}

/// Keys without repetitions, in the order in which they are first named.
pub fn distinct<'a>(keys: &[&'a [u8]]) -> Vec<&'a [u8]> {
    let mut known = HashSet::new();
    keys.iter().copied().filter(|key| known.insert(*key)).collect()
}

/// The elements of a collection; none if the key does not exist.
pub fn elements<'t>(entry: &Entry<'t>, kind: Kind) -> Result<Vec<&'t [u8]>, Stop> {
    Ok(packed::elements(entry.body_of(kind)?.unwrap_or_default())?)
}

/// Stores a collection that has changed. An empty one does not exist.
pub fn store<'a>(
    space: &Keyspace<'_>,
    key: &[u8],
    entry: &Entry<'_>,
    kind: Kind,
    elements: impl IntoIterator<Item = &'a [u8]>,
) -> Done {
    let body = packed::pack(elements);
    match entry.head() {
        _ if body.is_empty() => space.remove(key, entry).map(drop)?,
        Some(head) => space.change(key, entry, head, Some(&body))?,
        None => space.put(key, entry, Head::new(kind, Form::Plain), &body)?,
    }
    Ok(())
}

/// Stores a collection in the place of whatever is there. An empty one does not exist.
pub fn replace<'a>(
    space: &Keyspace<'_>,
    key: &[u8],
    kind: Kind,
    elements: impl IntoIterator<Item = &'a [u8]>,
) -> Done {
    let (entry, body) = (space.find_head(key)?, packed::pack(elements));
    match body.is_empty() {
        true => space.remove(key, &entry).map(drop)?,
        false => space.put(key, &entry, Head::new(kind, Form::Plain), &body)?,
    }
    Ok(())
}

/// Most elements that a negative count may ask for.
const MOST_DRAWN: u64 = 1 << 20;

/// Places in a collection.
pub struct Chosen(pub Vec<usize>);

/// Draws from `length` elements: `count` different ones, or, if that is negative, its amount with
/// repetitions. `is_pairs`: each comes with a second one.
pub fn draw(length: usize, count: i64, is_pairs: bool) -> Result<Chosen, Stop> {
    let wanted = count.unsigned_abs();
    if is_pairs && wanted > i64::MAX as u64 / 2 || count == i64::MIN {
        return Err("ERR value is out of range".into());
    }
    if count < 0 && wanted > MOST_DRAWN && length > 0 {
        return Err("ERR value is out of range".into());
    }
    Ok(Chosen(match (length, count) {
        (0, _) | (_, 0) => Vec::new(),
        (_, count) if count < 0 => (0..wanted).map(|_| fastrand::usize(..length)).collect(),
        _ => {
            let mut all: Vec<usize> = (0..length).collect();
            let wanted = usize::try_from(wanted).unwrap_or(length).min(length);
            // As a shuffle, up to where it is needed.
            (0..wanted).for_each(|at| all.swap(at, fastrand::usize(at..length)));
            all.truncate(wanted);
            all
        }
    }))
}

/// HSCAN, SSCAN and ZSCAN: a packed collection is returned at once.
fn scan(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>, kind: Kind) -> Done {
    let cursor = std::str::from_utf8(args[2]).ok().and_then(|text| text.parse::<u64>().ok());
    cursor.ok_or("ERR invalid cursor")?;
    let mut pattern = None;
    for option in args[3..].chunks(2) {
        let &[option, value] = option else { return Err(SYNTAX.into()) };
        if is(option, "COUNT") {
            integer(value)?.checked_sub(1).filter(|n| *n >= 0).ok_or(SYNTAX)?;
        } else if is(option, "MATCH") {
            pattern = Some(value);
        } else {
            return Err(SYNTAX.into());
        }
    }
    let all = elements(&space.read(args[1])?, kind)?;
    let fits = |name: &[u8]| pattern.is_none_or(|pattern| glob::matches(pattern, name, false));
    let mut shown: Vec<Vec<u8>> = Vec::new();
    match kind {
        Kind::Hash => {
            for pair in all.chunks_exact(2).filter(|pair| fits(pair[0])) {
                shown.extend([pair[0].to_vec(), pair[1].to_vec()]);
            }
        }
        Kind::SortedSet => {
            for (score, member) in super::sorted_sets::decode(&all)? {
                if fits(member) {
                    let mut text = Vec::new();
                    push_float(&mut text, score);
                    shown.extend([member.to_vec(), text]);
                }
            }
        }
        _ => shown.extend(all.iter().filter(|member| fits(member)).map(|member| member.to_vec())),
    }
    reply.array(2);
    reply.bulk(b"0");
    reply.array(shown.len());
    shown.iter().for_each(|text| reply.bulk(text));
    Ok(())
}

pub fn hscan(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    scan(space, args, reply, Kind::Hash)
}

pub fn sscan(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    scan(space, args, reply, Kind::Set)
}

pub fn zscan(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    scan(space, args, reply, Kind::SortedSet)
}

/// Keys, and the arguments behind them.
type Split<'a, 'b> = (&'a [&'b [u8]], &'a [&'b [u8]]);

/// The keys of a command that says how many there are, and what follows them. The number is the
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
