//! The commands that wait for an element if there is none. In MULTI they do not wait.

use super::collections::numbered_keys;
use super::list_edits::{is_left, lmpop, move_one};
use super::sorted_sets::{score, take, zmpop};
use super::{DataCommand, Done, SYNTAX};
use crate::data::head::Kind;
use crate::data::keyspace::{Keyspace, Stop, Wait};
use crate::data::long_list::End;
use crate::data::values::list::StoredList;
use crate::data::waiting::WaitLine;
use crate::resp::reply::Reply;
use std::collections::HashSet;
use std::time::Duration;

/// A time in seconds; 0 is for ever.
fn timeout(text: &[u8]) -> Result<Option<Duration>, Stop> {
    const WRONG: &str = "ERR timeout is not a float or out of range";
    let seconds = score(text).ok_or(WRONG)?;
    if seconds < 0.0 {
        return Err("ERR timeout is negative".into());
    }
    if seconds > i64::MAX as f64 / 1_000.0 {
        return Err("ERR timeout is out of range".into());
    }
    // Rounded up, so that a short time does not become an endless wait.
    let time = Duration::from_millis((seconds * 1_000.0).ceil() as u64);
    Ok(Some(time).filter(|time| !time.is_zero()))
}

/// The subject of a command's wait.
struct WaitedFor<'a> {
    keys: &'a [&'a [u8]],
    kind: Kind,
    timeout: Option<Duration>,
    /// The reply is an array: null in MULTI, too.
    is_array: bool,
}

/// The command has found nothing to take.
fn nothing(
    space: &Keyspace<'_>,
    args: &[&[u8]],
    wanted: &WaitedFor<'_>,
    reply: &mut Reply<'_>,
) -> Done {
    let WaitedFor { keys, kind, timeout, is_array } = *wanted;
    let keys = keys.iter().map(|key| space.wait_key(kind, key)).collect();
    let request = args.iter().map(|arg| arg.to_vec()).collect();
    let wait = Wait { keys, line: WaitLine::Common, timeout, request, is_silent: false };
    nothing_yet(space, wait, is_array, reply);
    Ok(())
}

/// Has the command wait, or reply in MULTI that there is nothing. Keys may be named several times.
pub fn nothing_yet(space: &Keyspace<'_>, wait: Wait, is_array: bool, reply: &mut Reply<'_>) {
    let mut known = HashSet::new();
    match (space.context().is_exec, is_array) {
        (true, true) => reply.null_array(),
        (true, false) => reply.null(),
        (false, _) => {
            let keys = wait.keys.into_iter().filter(|key| known.insert(key.key.clone()));
            space.wait(Wait { keys: keys.collect(), ..wait });
        }
    }
}

/// Whether the key holds another type, for a command that has waited: not an error then, and the
/// command goes on waiting.
pub fn is_passed_over(space: &Keyspace<'_>, key: &[u8], kind: Kind) -> Result<bool, Stop> {
    let holds_other = || Ok(space.find_head(key)?.head().is_some_and(|head| head.kind() != kind));
    if space.context().has_waited { holds_other() } else { Ok(false) }
}

fn pop(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>, end: End) -> Done {
    let (time, keys) = args[1..].split_last().ok_or(SYNTAX)?;
    let timeout = timeout(time)?;
    for key in keys {
        if is_passed_over(space, key, Kind::List)? {
            continue;
        }
        let mut list = StoredList::of(space.find(key)?)?;
        let (popped, change) = list.pop(end, 1)?;
        if let Some(popped) = popped.first() {
            list.store(change)?;
            reply.array(2);
            reply.bulk(key);
            reply.bulk(popped);
            return Ok(());
        }
    }
    nothing(space, args, &WaitedFor { keys, kind: Kind::List, timeout, is_array: true }, reply)
}

pub fn blpop(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    pop(space, args, reply, End::Left)
}

pub fn brpop(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    pop(space, args, reply, End::Right)
}

fn pop_scored(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>, highest: bool) -> Done {
    let (time, keys) = args[1..].split_last().ok_or(SYNTAX)?;
    let timeout = timeout(time)?;
    for key in keys {
        if is_passed_over(space, key, Kind::SortedSet)? {
            continue;
        }
        if let Some((score, member)) = take(space, key, 1, highest)?.first() {
            reply.array(3);
            reply.bulk(key);
            reply.bulk(member);
            reply.double(*score);
            return Ok(());
        }
    }
    nothing(space, args, &WaitedFor { keys, kind: Kind::SortedSet, timeout, is_array: true }, reply)
}

pub fn bzpopmin(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    pop_scored(space, args, reply, false)
}

pub fn bzpopmax(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    pop_scored(space, args, reply, true)
}

/// Moves an element from an end of the list of the first key to an end of the list of the second.
fn transfer(
    space: &Keyspace<'_>,
    args: &[&[u8]],
    (from_left, to_left): (bool, bool),
    reply: &mut Reply<'_>,
) -> Done {
    let timeout = timeout(args[args.len() - 1])?;
    let passed_over = is_passed_over(space, args[1], Kind::List)?;
    if !passed_over && StoredList::of(space.find(args[1])?)?.exists() {
        return move_one(space, (args[1], from_left), (args[2], to_left), reply);
    }
    let keys = &args[1..2];
    nothing(space, args, &WaitedFor { keys, kind: Kind::List, timeout, is_array: false }, reply)
}

pub fn brpoplpush(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    transfer(space, args, (false, true), reply)
}

pub fn blmove(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    transfer(space, args, (is_left(args[3])?, is_left(args[4])?), reply)
}

/// As the command without B and without the timeout, if the plain command finds an element.
fn pop_many(
    space: &Keyspace<'_>,
    args: &[&[u8]],
    (name, kind, run): (&str, Kind, DataCommand),
    reply: &mut Reply<'_>,
) -> Done {
    let timeout = timeout(args[1])?;
    let mut plain = vec![name.as_bytes()];
    plain.extend(&args[2..]);
    let count;
    if space.context().has_waited {
        let (keys, options) = numbered_keys(&args[2..], name)?;
        plain.truncate(1);
        for key in keys {
            if !is_passed_over(space, key, kind)? {
                plain.push(key);
            }
        }
        count = (plain.len() - 1).to_string();
        plain.insert(1, count.as_bytes());
        plain.extend(options);
    }
    let position = reply.position();
    // Without keys there is nothing to look for.
    if plain[1] != b"0" || !space.context().has_waited {
        run(space, &plain, reply)?;
        if !reply.is_null_array_at(position) {
            return Ok(());
        }
        reply.truncate(position);
    }
    let (keys, _) = numbered_keys(&args[2..], name)?;
    nothing(space, args, &WaitedFor { keys, kind, timeout, is_array: true }, reply)
}

pub fn blmpop(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    pop_many(space, args, ("lmpop", Kind::List, lmpop), reply)
}

pub fn bzmpop(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    pop_many(space, args, ("zmpop", Kind::SortedSet, zmpop), reply)
}
