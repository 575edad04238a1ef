//! Strings.

use super::comparing::{Comparison, counted_pairs};
use super::{Done, SYNTAX, integer, is, wrong_arity};
use crate::data::chunks::StoredString;
use crate::data::head::Head;
use crate::data::keyspace::{Keyspace, Stop};
use crate::data::values::string::{STRING, Written, length_of};
use crate::resp::reply::Reply;
use std::ops::Range;

/// The time of expiry set by an option such as EX.
fn expiry(space: &Keyspace<'_>, unit: &str, text: &[u8], command: &str) -> Result<i64, Stop> {
    let invalid = || Stop::from(format!("ERR invalid expire time in '{command}' command"));
    let value = integer(text)?;
    if value <= 0 {
        return Err(invalid());
    }
    let ms = if unit.starts_with("EX") { value.checked_mul(1_000) } else { Some(value) };
    let at = match unit {
        "EX" | "PX" => ms.and_then(|ms| ms.checked_add(space.now_ms())),
        _ => ms,
    };
    at.ok_or_else(invalid)
}

const UNITS: [&str; 4] = ["EX", "PX", "EXAT", "PXAT"];

/// The options of SET.
#[derive(Default)]
struct SetOptions<'a> {
    only_if_absent: bool,
    only_if_present: bool,
    /// Only if the comparison holds.
    only_if: Option<Comparison<'a>>,
    get: bool,
    keep: bool,
    expires: Option<i64>,
}

fn set_options<'a>(
    space: &Keyspace<'_>,
    args: &[&'a [u8]],
    name: &str,
) -> Result<SetOptions<'a>, Stop> {
    let (mut options, mut at) = (SetOptions::default(), 0);
    while let Some(&option) = args.get(at) {
        at += 1;
        let has_time = options.keep || options.expires.is_some();
        let (absent, present) = (options.only_if_absent, options.only_if_present);
        if is(option, "NX") && !present && options.only_if.is_none() {
            options.only_if_absent = true;
        } else if is(option, "XX") && !absent && options.only_if.is_none() {
            options.only_if_present = true;
        } else if Comparison::is_named(option) && !(absent || present || options.only_if.is_some())
        {
            let with = args.get(at).ok_or(SYNTAX)?;
            options.only_if = Some(Comparison::new(option, with)?);
            at += 1;
        } else if is(option, "GET") {
            options.get = true;
        } else if is(option, "KEEPTTL") && !has_time {
            options.keep = true;
        } else if let Some(unit) = UNITS.iter().find(|unit| is(option, unit) && !has_time) {
            let time = args.get(at).ok_or(SYNTAX)?;
            options.expires = Some(expiry(space, unit, time, name)?);
            at += 1;
        } else {
            return Err(SYNTAX.into());
        }
    }
    Ok(options)
}

/// Replies a range of a string.
fn reply_part(text: &StoredString<'_>, range: Range<usize>, reply: &mut Reply<'_>) -> Done {
    match text {
        StoredString::InRow(text) => reply.bulk(&text[range]),
        StoredString::InChunks(string) => {
            string.check_loop(&range)?;
            reply.bulk_of(range.len(), |out| string.read(range, out))?;
        }
    }
    Ok(())
}

/// Replies a string, or null.
fn reply_string(text: Option<StoredString<'_>>, reply: &mut Reply<'_>) -> Done {
    match text {
        Some(text) => reply_part(&text, 0..text.len(), reply),
        None => {
            reply.null();
            Ok(())
        }
    }
}

pub fn set(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let (key, value) = (args[1], args[2]);
    let options = set_options(space, &args[3..], "set")?;
    let entry = match (options.get, options.only_if) {
        (true, _) => space.read(key)?,
        (false, Some(_)) => space.find(key)?,
        (false, None) => space.find_head(key)?,
    };
    let old = if options.get || options.only_if.is_some() { entry.string()? } else { None };
    let differs = match options.only_if {
        Some(comparison) => !comparison.holds(old)?,
        None => false,
    };
    let is_refused = differs
        || options.only_if_absent && entry.exists()
        || options.only_if_present && !entry.exists();
    if !is_refused {
        let kept = entry.head().and_then(Head::expires).filter(|_| options.keep);
        entry.put(STRING.with_expiry(options.expires.or(kept)), value)?;
    }
    match (options.get, is_refused) {
        (true, _) => reply_string(old, reply)?,
        (false, true) => reply.null(),
        (false, false) => reply.ok(),
    }
    Ok(())
}

pub fn get(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    reply_string(space.read(args[1])?.string()?, reply)
}

pub fn setnx(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let entry = space.find_head(args[1])?;
    if !entry.exists() {
        entry.put_string(args[2])?;
    }
    reply.integer(i64::from(!entry.exists()));
    Ok(())
}

fn set_for(space: &Keyspace<'_>, args: &[&[u8]], unit: &str, name: &str) -> Result<(), Stop> {
    let at = expiry(space, unit, args[2], name)?;
    let entry = space.find_head(args[1])?;
    entry.put(STRING.with_expiry(Some(at)), args[3])
}

pub fn setex(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    set_for(space, args, "EX", "setex")?;
    reply.ok();
    Ok(())
}

pub fn psetex(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    set_for(space, args, "PX", "psetex")?;
    reply.ok();
    Ok(())
}

pub fn getset(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let entry = space.read(args[1])?;
    let old = entry.string()?;
    entry.put_string(args[2])?;
    reply_string(old, reply)
}

pub fn getdel(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let entry = space.read(args[1])?;
    let old = entry.string()?;
    entry.remove()?;
    reply_string(old, reply)
}

pub fn getex(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let change = match &args[2..] {
        [] => None,
        [persist] if is(persist, "PERSIST") => Some(None),
        [option, time] => {
            let unit = UNITS.iter().find(|unit| is(option, unit)).ok_or(SYNTAX)?;
            Some(Some(expiry(space, unit, time, "getex")?))
        }
        _ => return Err(SYNTAX.into()),
    };
    let entry = space.read(args[1])?;
    let value = entry.string()?;
    // Where no time of expiry is, none is taken away.
    if let (Some(expires), Some(head)) = (change, entry.head())
        && (expires.is_some() || head.expires().is_some())
    {
        entry.change(head.with_expiry(expires), None)?;
    }
    reply_string(value, reply)
}

/// Refuses strings longer than a client may build.
pub fn check_length(space: &Keyspace<'_>, length: u64) -> Result<(), Stop> {
    match length > space.context().longest as u64 {
        true => Err("ERR string exceeds maximum allowed size (proto-max-bulk-len)".into()),
        false => Ok(()),
    }
}

pub fn append(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let entry = space.find(args[1])?;
    let old = entry.string()?;
    let length = length_of(old);
    check_length(space, length as u64 + args[2].len() as u64)?;
    match old {
        None => entry.put_string(args[2])?,
        Some(_) => {
            entry.write_at(length, args[2], Written::Always)?;
        }
    }
    reply.count(length + args[2].len());
    Ok(())
}

pub fn strlen(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    reply.count(length_of(space.read(args[1])?.string()?));
    Ok(())
}

/// The places of a value of `length` bytes from `from` to `to`, which count from the end if
/// negative.
pub fn places(length: usize, from: i64, to: i64) -> std::ops::Range<usize> {
    let length = length as i64;
    if from < 0 && to < 0 && from > to {
        return 0..0;
    }
    let resolve = |at: i64| if at < 0 { (length + at).max(0) } else { at };
    let (from, to) = (resolve(from), resolve(to).min(length - 1));
    if from > to || length == 0 { 0..0 } else { from as usize..to as usize + 1 }
}

pub fn getrange(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let (from, to) = (integer(args[2])?, integer(args[3])?);
    match space.read(args[1])?.string()? {
        Some(text) => reply_part(&text, places(text.len(), from, to), reply),
        None => {
            reply.bulk(b"");
            Ok(())
        }
    }
}

pub fn setrange(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let offset = u64::try_from(integer(args[2])?).map_err(|_| "ERR offset is out of range")?;
    let entry = space.find(args[1])?;
    let length = length_of(entry.string()?);
    if args[3].is_empty() {
        reply.count(length);
        return Ok(());
    }
    check_length(space, offset.saturating_add(args[3].len() as u64))?;
    let at = offset as usize;
    entry.write_at(at, args[3], Written::Always)?;
    reply.count(length.max(at + args[3].len()));
    Ok(())
}

pub fn mget(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    args[1..].iter().for_each(|key| space.prefetch(key));
    reply.array(args.len() - 1);
    for key in &args[1..] {
        match space.read(key)?.string() {
            Err(Stop::Error(_)) => reply.null(),
            text => reply_string(text?, reply)?,
        }
        if reply.is_too_long() {
            break;
        }
    }
    Ok(())
}

fn set_all(space: &Keyspace<'_>, pairs: &[&[u8]]) -> Result<(), Stop> {
    pairs.chunks(2).for_each(|pair| space.prefetch(pair[0]));
    for pair in pairs.chunks(2) {
        let entry = space.find_head(pair[0])?;
        entry.put_string(pair[1])?;
    }
    Ok(())
}

pub fn mset(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    if args.len().is_multiple_of(2) {
        return Err(wrong_arity("mset"));
    }
    set_all(space, &args[1..])?;
    reply.ok();
    Ok(())
}

pub fn msetnx(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    if args.len().is_multiple_of(2) {
        return Err(wrong_arity("msetnx"));
    }
    for pair in args[1..].chunks(2) {
        if space.find_head(pair[0])?.exists() {
            reply.integer(0);
            return Ok(());
        }
    }
    set_all(space, &args[1..])?;
    reply.integer(1);
    Ok(())
}

pub fn msetex(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let pairs = counted_pairs(args)?;
    let options = set_options(space, &args[2 + pairs.len()..], "msetex")?;
    if options.get || options.only_if.is_some() {
        return Err(SYNTAX.into());
    }
    pairs.chunks_exact(2).for_each(|pair| space.prefetch(pair[0]));
    let (absent, present) = (options.only_if_absent, options.only_if_present);
    for pair in pairs.chunks_exact(2).filter(|_| absent || present) {
        if space.find_head(pair[0])?.exists() != present {
            reply.integer(0);
            return Ok(());
        }
    }
    for pair in pairs.chunks_exact(2) {
        let entry = space.find_head(pair[0])?;
        let kept = entry.head().and_then(Head::expires).filter(|_| options.keep);
        let head = STRING.with_expiry(options.expires.or(kept));
        entry.put(head, pair[1])?;
        // A past time leaves nothing there.
        if !space.context().has_expired(head) {
            entry.tell(head, "set");
            if options.expires.is_some() {
                entry.tell(head, "expire");
            }
        }
    }
    reply.integer(1);
    Ok(())
}
