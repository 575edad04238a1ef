//! What lists, sets, hashes and sorted sets share: a value that is packed in its key's row, random
//! choices, and the SCAN of a collection.

use super::{Done, NOT_AN_INTEGER, SYNTAX, integer, is};
use crate::base::glob;
use crate::data::chunks::StoredString;
use crate::data::collections::{Collection, MOST_PACKED_BYTES};
use crate::data::head::{Form, Head, Kind};
use crate::data::keyspace::{Entry, Keyspace, Stop};
use crate::data::long_list::LongList;
use crate::data::member_hash::PLACES;
use crate::data::member_run::EditedMember;
use crate::data::packed;
use crate::resp::number::push_float;
use crate::resp::reply::Reply;
use hyades::Abort;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// Keys without repetitions, in the order in which they are first named.
pub fn distinct<'a>(keys: &[&'a [u8]]) -> Vec<&'a [u8]> {
    let mut known = HashSet::new();
    keys.iter().copied().filter(|key| known.insert(*key)).collect()
}

/// The elements of a collection, as they are packed; none if the key does not exist.
pub fn elements<'t>(entry: &Entry<'t>, kind: Kind) -> Result<Vec<&'t [u8]>, Stop> {
    let body = entry.body_of(kind)?.unwrap_or_default();
    let blocks = entry.blocks();
    if !entry.lies_in_blocks() {
        return Ok(packed::elements(body)?);
    }
    if kind == Kind::List {
        return LongList::from_body(blocks, body)?.all();
    }
    let of = Collection::from_body(body)?;
    Ok(match kind {
        Kind::SortedSet => of.by_score(blocks).all()?.into_iter().map(|(name, _)| name).collect(),
        Kind::Hash => {
            let all = of.members(blocks, kind).all()?;
            all.into_iter().flat_map(|(name, value)| [name, value]).collect()
        }
        _ => of.members(blocks, kind).all()?.into_iter().map(|(name, _)| name).collect(),
    })
}

/// Whether elements are too many or too large for the row of their key.
fn is_large(space: &Keyspace<'_>, kind: Kind, count: usize, bytes: usize) -> bool {
    bytes > MOST_PACKED_BYTES || count > space.context().packed.of(kind)
}

/// Writes elements into blocks that no other collection has. Returns the body of the key's row.
fn write_blocks(
    space: &Keyspace<'_>,
    kind: Kind,
    secret: u64,
    elements: &[&[u8]],
) -> Result<Vec<u8>, Stop> {
    let (number, blocks) = (space.number_collection(kind)?, space.blocks());
    if kind == Kind::List {
        return LongList::write(blocks, number, elements);
    }
    let of = Collection { number, secret };
    let members = of.members(blocks, kind);
    match kind {
        Kind::Hash => members.fill(elements.chunks_exact(2).map(|pair| (pair[0], pair[1])))?,
        Kind::SortedSet => {
            members.fill(elements.iter().map(|element| {
                let (score, member) = element.split_at(8);
                (member, score)
            }))?;
            of.by_score(blocks).fill(elements.iter().map(|element| (*element, &[][..])))?;
        }
        _ => members.fill(elements.iter().map(|name| (*name, &[][..])))?,
    }
    Ok(of.body())
}

/// A secret for the places of a collection's members.
fn new_secret() -> u64 {
    fastrand::u64(..)
}

/// Form and body of a collection: whether it lies in blocks in any case, and the secret of the one
/// whose place it takes.
fn encoded(
    space: &Keyspace<'_>,
    kind: Kind,
    elements: &[&[u8]],
    (stays, secret): (bool, Option<u64>),
) -> Result<(Form, Vec<u8>), Stop> {
    let bytes = elements.iter().map(|element| packed::size(element.len())).sum();
    let count = if kind == Kind::Hash { elements.len() / 2 } else { elements.len() };
    Ok(match stays || is_large(space, kind, count, bytes) {
        true => {
            let secret = secret.unwrap_or_else(new_secret);
            (Form::Blocks, write_blocks(space, kind, secret, elements)?)
        }
        false => (Form::Plain, packed::pack(elements.iter().copied())),
    })
}

/// Stores a copy of a collection that lies in blocks, in the place of whatever is there.
pub fn copy_blocks(
    space: &Keyspace<'_>,
    (key, entry): (&[u8], &Entry<'_>),
    head: Head,
    elements: &[&[u8]],
) -> Done {
    let body = write_blocks(space, head.kind(), new_secret(), elements)?;
    space.put(key, entry, head, &body)
}

/// Bytes of the blocks or chunks of a value, and of what they take beside; 0 if it has none.
pub fn bytes_in_blocks(entry: &Entry<'_>) -> Result<usize, Stop> {
    if entry.head().is_some_and(|head| head.form() == Form::Chunks) {
        return Ok(match entry.string()? {
            Some(StoredString::InChunks(of)) => of.bytes()?,
            _ => 0,
        });
    }
    let (true, Some((head, body))) = (entry.lies_in_blocks(), entry.value()) else { return Ok(0) };
    if head.kind() == Kind::List {
        return Ok(LongList::from_body(entry.blocks(), body)?.bytes()?);
    }
    let of = Collection::from_body(body)?;
    let members = of.members(entry.blocks(), head.kind()).bytes()?;
    Ok(match head.kind() {
        Kind::SortedSet => members + of.by_score(entry.blocks()).bytes()?,
        _ => members,
    })
}

/// Stores a collection that has changed. An empty one does not exist.
pub fn store<'a>(
    space: &Keyspace<'_>,
    key: &[u8],
    entry: &Entry<'_>,
    kind: Kind,
    elements: impl IntoIterator<Item = &'a [u8]>,
) -> Done {
    let elements: Vec<&[u8]> = elements.into_iter().collect();
    if elements.is_empty() {
        return Ok(space.remove(key, entry).map(drop)?);
    }
    let Some((head, body)) = entry.value() else {
        return put(space, (key, entry), kind, &elements, None);
    };
    // What lies in blocks stays there, as Redis has it.
    let stays = entry.lies_in_blocks();
    let secret = match stays && kind != Kind::List {
        true => Some(Collection::from_body(body)?.secret),
        false => None,
    };
    let (form, body) = encoded(space, kind, &elements, (stays, secret))?;
    space.free(key, entry)?;
    space.change(key, entry, head.with_form(form), Some(&body))
}

/// Stores a collection in the place of whatever is there. It has an element, and does not expire
/// at once.
pub fn put(
    space: &Keyspace<'_>,
    (key, entry): (&[u8], &Entry<'_>),
    kind: Kind,
    elements: &[&[u8]],
    expires: Option<i64>,
) -> Done {
    let (form, body) = encoded(space, kind, elements, (false, None))?;
    space.put(key, entry, Head::new(kind, form).with_expiry(expires), &body)
}

/// Stores a collection in the place of whatever is there. An empty one does not exist.
pub fn replace<'a>(
    space: &Keyspace<'_>,
    key: &[u8],
    kind: Kind,
    elements: impl IntoIterator<Item = &'a [u8]>,
) -> Done {
    let (entry, elements) = (space.find_head(key)?, elements.into_iter().collect::<Vec<_>>());
    if elements.is_empty() {
        return Ok(space.remove(key, &entry).map(drop)?);
    }
    // Members keep their places, so that a scan goes on as if the others had been removed.
    let is_same = |head: Head| head.kind() == kind && kind != Kind::List;
    let stays = entry.lies_in_blocks() && entry.head().is_some_and(is_same);
    let old = if stays { Some(space.find(key)?) } else { None };
    let secret = match old.as_ref().and_then(Entry::value) {
        Some((_, body)) => Some(Collection::from_body(body)?.secret),
        None => None,
    };
    let (form, body) = encoded(space, kind, &elements, (false, secret))?;
    space.put(key, &entry, Head::new(kind, form), &body)
}

/// A negative count that asks for more elements has them drawn as they are replied.
const MOST_DRAWN: u64 = 1 << 20;

/// Elements that are drawn before it is looked at how many there may be.
const DRAWN_AT_ONCE: usize = 4_096;

/// Elements of a collection that were drawn.
pub enum Chosen {
    /// Those at these places.
    Places(Vec<usize>),
    /// This number of any elements, for [`write_many`]. There is an element.
    Many(usize),
}

/// Writes elements that are drawn from all, each as often as it comes: as many as are wanted, or
/// until the reply becomes too long, or the transaction too much.
pub fn write_many<T: Copy>(
    space: &Keyspace<'_>,
    (all, wanted): (&[T], usize),
    reply: &mut Reply<'_>,
    mut write: impl FnMut(&mut Reply<'_>, T),
) -> Done {
    if all.is_empty() {
        // There was one.
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

/// Draws from `length` elements: `count` different ones, or, if that is negative, its amount with
/// repetitions. `is_pairs`: each comes with a second one.
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

/// As many different places below `length` as are wanted, in any order: a shuffle up to where it
/// is needed. If they are few, only places that have changed are kept.
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

/// The members that a call of HSCAN, SSCAN or ZSCAN returns, with their values or scores, and the
/// next cursor. What is packed is returned at once. What lies in blocks is returned in the order
/// of the places of its members: one that is there throughout is returned exactly once.
fn scanned<'t>(
    entry: &Entry<'t>,
    kind: Kind,
    cursor: u64,
    count: usize,
) -> Result<(Vec<EditedMember<'t>>, u64), Stop> {
    let body = entry.body_of(kind)?.unwrap_or_default();
    let (found, next) = match entry.lies_in_blocks() {
        true if cursor >= PLACES => (Vec::new(), None),
        true => {
            let members = Collection::from_body(body)?.members(entry.blocks(), kind);
            members.scan_from(cursor, count)?
        }
        false => {
            let all = packed::elements(body)?;
            let pair = |of: &[&'t [u8]]| (of[0], of[1]);
            let found = match kind {
                Kind::Hash => all.chunks_exact(2).map(pair).collect(),
                Kind::SortedSet => {
                    let split = all.iter().map(|of| of.split_at_checked(8).map(|(s, m)| (m, s)));
                    split.collect::<Option<_>>().ok_or(Abort::Conflict)?
                }
                _ => all.into_iter().map(|member| (member, &[][..])).collect(),
            };
            (found, None)
        }
    };
    let shown = |value: &'t [u8]| match kind {
        Kind::SortedSet => {
            let mut text = Vec::new();
            push_float(&mut text, super::ranking::decode_score(value)?);
            Ok(Cow::Owned(text))
        }
        _ => Ok(Cow::Borrowed(value)),
    };
    let found = found.into_iter().map(|(name, value)| Ok((name, shown(value)?)));
    Ok((found.collect::<Result<_, Abort>>()?, next.unwrap_or(0)))
}

fn scan(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>, kind: Kind) -> Done {
    let cursor = std::str::from_utf8(args[2]).ok().and_then(|text| text.parse::<u64>().ok());
    let cursor = cursor.ok_or("ERR invalid cursor")?;
    let (mut pattern, mut count) = (None, 10);
    for option in args[3..].chunks(2) {
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
    let (mut found, next) = scanned(&space.read(args[1])?, kind, cursor, count)?;
    found.retain(|(name, _)| pattern.is_none_or(|pattern| glob::matches(pattern, name, false)));
    reply.array(2);
    reply.bulk(next.to_string().as_bytes());
    reply.array(found.len() * if kind == Kind::Set { 1 } else { 2 });
    for (name, value) in found {
        reply.bulk(name);
        if kind != Kind::Set {
            reply.bulk(&value);
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// However many there are: those that are not drawn take no memory.
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
            seen.iter_mut().zip(places).for_each(|(of, place)| of[place] += 1);
        }
        assert!(seen.iter().flatten().all(|times| *times > 0), "{seen:?}");
    }
}
