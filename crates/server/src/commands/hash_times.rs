//! Times at which fields of hashes expire.

use super::{Done, integer, is, wrong_arity};
use crate::data::field_times::LATEST_MS;
use crate::data::head::{Form, Head, Kind};
use crate::data::keyspace::{Entry, Keyspace, Stop};
use crate::data::values::hash::StoredHash;
use crate::data::values::timed_hash::FieldEdit;
use crate::resp::reply::Reply;
use std::borrow::Cow;

const NO_FIELDS: &str = "ERR Mandatory argument FIELDS is missing or not at the right position";
const NOT_POSITIVE: &str = "ERR Number of fields must be a positive integer";

/// Replies for a field.
const NO_FIELD: i64 = -2;
const NO_TIME: i64 = -1;
const REFUSED: i64 = 0;
const DONE: i64 = 1;
const REMOVED: i64 = 2;

/// The fields behind FIELDS, expected at place `at`, and their number.
fn fields<'a, 'b>(
    args: &'a [&'b [u8]],
    at: usize,
    not_positive: &'static str,
) -> Result<&'a [&'b [u8]], Stop> {
    if !args.get(at).is_some_and(|word| is(word, "FIELDS")) {
        return Err(NO_FIELDS.into());
    }
    let count = args.get(at + 1).and_then(|count| integer(count).ok());
    let count = count.filter(|count| *count > 0).ok_or(not_positive)?;
    let fields = &args[at + 2..];
    match usize::try_from(count).is_ok_and(|count| count == fields.len()) {
        true => Ok(fields),
        false => Err("ERR The `numfields` parameter must match the number of arguments".into()),
    }
}

/// A time as stated by a command.
#[derive(Clone, Copy)]
struct TimeUnit {
    unit_ms: i64,
    /// From now on, not from 1970 on.
    is_relative: bool,
}

const SECONDS: TimeUnit = TimeUnit { unit_ms: 1_000, is_relative: true };
const MILLISECONDS: TimeUnit = TimeUnit { unit_ms: 1, is_relative: true };
const UNIX_SECONDS: TimeUnit = TimeUnit { unit_ms: 1_000, is_relative: false };
const UNIX_MILLISECONDS: TimeUnit = TimeUnit { unit_ms: 1, is_relative: false };

impl TimeUnit {
    /// The unit of an option.
    fn named(option: &[u8]) -> Option<TimeUnit> {
        let units = [
            ("EX", SECONDS),
            ("PX", MILLISECONDS),
            ("EXAT", UNIX_SECONDS),
            ("PXAT", UNIX_MILLISECONDS),
        ];
        units.into_iter().find(|(name, _)| is(option, name)).map(|(_, unit)| unit)
    }

    /// The time in milliseconds since 1970.
    fn read(self, space: &Keyspace<'_>, text: &[u8], name: &str) -> Result<i64, Stop> {
        let given = integer(text)?;
        if given < 0 {
            return Err("ERR invalid expire time, must be >= 0".into());
        }
        let base = if self.is_relative { space.now_ms() } else { 0 };
        let at = given.checked_mul(self.unit_ms).and_then(|ms| ms.checked_add(base));
        let at = at.filter(|at| *at <= LATEST_MS);
        at.ok_or_else(|| format!("ERR invalid expire time in '{name}' command").into())
    }
}

/// Conditions for setting a field's time, compared with the field's current time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnlyIf {
    Always,
    None,
    Some,
    Later,
    Earlier,
}

impl OnlyIf {
    fn named(option: &[u8]) -> Option<OnlyIf> {
        let all = [
            ("NX", OnlyIf::None),
            ("XX", OnlyIf::Some),
            ("GT", OnlyIf::Later),
            ("LT", OnlyIf::Earlier),
        ];
        all.into_iter().find(|(name, _)| is(option, name)).map(|(_, only_if)| only_if)
    }

    /// A missing time is later than all others.
    fn allows(self, at: i64, before: Option<i64>) -> bool {
        match self {
            OnlyIf::Always => true,
            OnlyIf::None => before.is_none(),
            OnlyIf::Some => before.is_some(),
            OnlyIf::Later => before.is_some_and(|before| at > before),
            OnlyIf::Earlier => before.is_none_or(|before| at < before),
        }
    }
}

/// Tells an event of a hash, whether the command leaves the key there or not.
fn tell(entry: &Entry<'_, '_>, event: &'static str) {
    entry.tell(entry.head().unwrap_or(Head::new(Kind::Hash, Form::Plain)), event);
}

/// An edit that gives a field another time.
fn with_time(value: &[u8], at: Option<i64>) -> FieldEdit<'static> {
    FieldEdit::Set(Cow::Owned(value.to_vec()), at)
}

fn set_times(
    space: &Keyspace<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
    (unit, name): (TimeUnit, &str),
) -> Done {
    let entry = space.find(args[1])?;
    let hash = StoredHash::of(entry)?;
    let at = unit.read(space, args[2], name)?;
    let only_if = OnlyIf::named(args[3]);
    let place = if only_if.is_some() { 4 } else { 3 };
    let not_positive = "ERR Parameter `numFields` should be greater than 0";
    let fields = fields(args, place, not_positive)?;
    let only_if = only_if.unwrap_or(OnlyIf::Always);
    let mut results = vec![NO_FIELD; fields.len()];
    hash.edit_timed(fields, &mut |number, old| {
        let Some((value, before)) = old else { return Ok(FieldEdit::Keep) };
        let has_come = space.context().has_passed(at);
        results[number] = match only_if.allows(at, before) {
            false => REFUSED,
            true if has_come => REMOVED,
            true => DONE,
        };
        Ok(match results[number] {
            DONE => with_time(value, Some(at)),
            REMOVED => FieldEdit::Remove,
            _ => FieldEdit::Keep,
        })
    })?;
    if results.contains(&REMOVED) {
        tell(&entry, "hdel");
    } else if results.contains(&DONE) {
        tell(&entry, "hexpire");
    }
    reply.array(results.len());
    results.into_iter().for_each(|result| reply.integer(result));
    Ok(())
}

pub fn hexpire(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    set_times(space, args, reply, (SECONDS, "hexpire"))
}

pub fn hpexpire(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    set_times(space, args, reply, (MILLISECONDS, "hpexpire"))
}

pub fn hexpireat(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    set_times(space, args, reply, (UNIX_SECONDS, "hexpireat"))
}

pub fn hpexpireat(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    set_times(space, args, reply, (UNIX_MILLISECONDS, "hpexpireat"))
}

pub fn hpersist(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let entry = space.find(args[1])?;
    let hash = StoredHash::of(entry)?;
    let fields = fields(args, 2, NOT_POSITIVE)?;
    let mut results = vec![NO_FIELD; fields.len()];
    hash.edit_timed(fields, &mut |number, old| {
        let Some((value, before)) = old else { return Ok(FieldEdit::Keep) };
        results[number] = if before.is_some() { DONE } else { NO_TIME };
        Ok(if before.is_some() { with_time(value, None) } else { FieldEdit::Keep })
    })?;
    if results.contains(&DONE) {
        tell(&entry, "hpersist");
    }
    reply.array(results.len());
    results.into_iter().for_each(|result| reply.integer(result));
    Ok(())
}

/// Replies the result of `show` for the time of each field.
fn show(
    space: &Keyspace<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
    show: impl Fn(i64) -> i64,
) -> Done {
    let hash = StoredHash::of(space.read(args[1])?)?;
    let found = hash.get_timed(fields(args, 2, NOT_POSITIVE)?)?;
    reply.array(found.len());
    for value in found {
        reply.integer(match value {
            None => NO_FIELD,
            Some((_, None)) => NO_TIME,
            Some((_, Some(at))) => show(at),
        });
    }
    Ok(())
}

pub fn httl(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    show(space, args, reply, |at| (at - space.now_ms() + 999) / 1_000)
}

pub fn hpttl(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    show(space, args, reply, |at| at - space.now_ms())
}

pub fn hexpiretime(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    show(space, args, reply, |at| (at + 999) / 1_000)
}

pub fn hpexpiretime(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    show(space, args, reply, |at| at)
}

fn reply_values(values: &[Option<(&[u8], Option<i64>)>], reply: &mut Reply<'_>) {
    reply.array(values.len());
    values.iter().for_each(|value| reply.bulk_or_null(value.map(|(value, _)| value)));
}

pub fn hgetdel(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let entry = space.find(args[1])?;
    let hash = StoredHash::of(entry)?;
    let fields = fields(args, 2, NOT_POSITIVE)?;
    // Only the first occurrence of a repeated field finds the value.
    let (mut values, mut removed) = (hash.get_timed(fields)?, false);
    hash.edit_timed(fields, &mut |number, old| {
        if old.is_none() {
            values[number] = None;
            return Ok(FieldEdit::Keep);
        }
        removed = true;
        Ok(FieldEdit::Remove)
    })?;
    if removed {
        tell(&entry, "hdel");
    }
    reply_values(&values, reply);
    Ok(())
}

pub fn hgetex(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let entry = space.read(args[1])?;
    let hash = StoredHash::of(entry)?;
    let (change, place) = match TimeUnit::named(args[2]) {
        Some(unit) => (Some(Some(unit.read(space, args[3], "hgetex")?)), 4),
        None if is(args[2], "PERSIST") => (Some(None), 3),
        None => (None, 2),
    };
    let fields = fields(args, place, NOT_POSITIVE)?;
    let mut values = hash.get_timed(fields)?;
    let (mut is_changed, mut has_come) = (false, false);
    if let Some(at) = change {
        has_come = at.is_some_and(|at| space.context().has_passed(at));
        hash.edit_timed(fields, &mut |number, old| {
            let Some((value, before)) = old else {
                values[number] = None;
                return Ok(FieldEdit::Keep);
            };
            // Where no time is, none is taken away.
            if at.is_none() && before.is_none() {
                return Ok(FieldEdit::Keep);
            }
            is_changed = true;
            Ok(with_time(value, at))
        })?;
    }
    match (is_changed, change) {
        (true, Some(Some(_))) if has_come => tell(&entry, "hdel"),
        (true, Some(Some(_))) => tell(&entry, "hexpire"),
        (true, Some(None)) => tell(&entry, "hpersist"),
        _ => {}
    }
    reply_values(&values, reply);
    Ok(())
}

/// The change of the times of fields set by HSETEX.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SetTime {
    Removed,
    Kept,
    At(i64),
}

/// The arguments of HSETEX.
struct SetFields<'a, 'b> {
    /// Only if all of the fields are there, or none.
    only_if_present: Option<bool>,
    time: SetTime,
    /// Fields and values in turn.
    pairs: &'a [&'b [u8]],
}

fn set_fields<'a, 'b>(
    space: &Keyspace<'_>,
    args: &'a [&'b [u8]],
) -> Result<SetFields<'a, 'b>, Stop> {
    let (mut only_if_present, mut time, mut at) = (None, None, 2);
    while let Some(option) = args.get(at) {
        at += 1;
        if is(option, "FIELDS") {
            let count = args.get(at).ok_or_else(|| wrong_arity("hsetex"))?;
            let count =
                integer(count).ok().filter(|count| (1..=i64::from(i32::MAX)).contains(count));
            let count = count.ok_or("ERR invalid number of fields")?;
            let pairs = &args[at + 1..];
            if pairs.len() as i64 != 2 * count {
                return Err(wrong_arity("hsetex"));
            }
            let time = time.unwrap_or(SetTime::Removed);
            return Ok(SetFields { only_if_present, time, pairs });
        }
        let unit = TimeUnit::named(option);
        if unit.is_some() || is(option, "KEEPTTL") {
            let set = match unit {
                None => SetTime::Kept,
                Some(_) if time.is_some() => SetTime::Kept,
                Some(unit) => {
                    let text = args.get(at).ok_or("ERR missing expire time")?;
                    at += 1;
                    SetTime::At(unit.read(space, text, "hsetex")?)
                }
            };
            if time.replace(set).is_some() {
                let text =
                    "ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified";
                return Err(text.into());
            }
        } else if is(option, "FXX") || is(option, "FNX") {
            if only_if_present.replace(is(option, "FXX")).is_some() {
                return Err("ERR Only one of FXX or FNX arguments can be specified".into());
            }
        } else {
            return Err(format!("ERR unknown argument: {}", String::from_utf8_lossy(option)).into());
        }
    }
    Err(wrong_arity("hsetex"))
}

pub fn hsetex(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let SetFields { only_if_present, time, pairs } = set_fields(space, args)?;
    let entry = space.find(args[1])?;
    let hash = StoredHash::of(entry)?;
    let fields: Vec<&[u8]> = pairs.chunks_exact(2).map(|pair| pair[0]).collect();
    if let Some(is_present) = only_if_present {
        let found = hash.get_timed(&fields)?;
        if found.iter().any(|value| value.is_some() != is_present) {
            reply.integer(0);
            return Ok(());
        }
    }
    hash.edit_timed(&fields, &mut |number, old| {
        let at = match time {
            SetTime::Removed => None,
            SetTime::Kept => old.and_then(|(_, before)| before),
            SetTime::At(at) => Some(at),
        };
        Ok(FieldEdit::Set(Cow::Borrowed(pairs[2 * number + 1]), at))
    })?;
    tell(&entry, "hset");
    if let SetTime::At(at) = time {
        tell(&entry, if space.context().has_passed(at) { "hdel" } else { "hexpire" });
    }
    reply.integer(1);
    Ok(())
}
