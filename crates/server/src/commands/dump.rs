//! DUMP and RESTORE.

use super::{Done, SYNTAX, integer, is};
use crate::data::field_times::has_come;
use crate::data::keyspace::{Entry, Keyspace, Stop, TOO_MUCH_FOR_LOOP};
use crate::data::values::Value;
use crate::data::values::elements::put;
use crate::data::values::hash::HashType;
use crate::data::values::list::ListType;
use crate::data::values::set::SetType;
use crate::data::values::sorted_set::{self, SortedSetType};
use crate::data::values::stream_image;
use crate::data::values::string::STRING;
use crate::data::values::timed_hash::{self, Field};
use crate::rdb::{self, BadPayload, Restored};
use crate::resp::reply::Reply;

pub fn dump(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let entry = space.read(args[1])?;
    match entry.value()? {
        Some((_, value)) => reply.bulk(&payload(&value)?),
        None => reply.null(),
    }
    Ok(())
}

/// The payload of a value.
pub fn payload(value: &Value<'_, '_>) -> Result<Vec<u8>, Stop> {
    Ok(match value {
        Value::String(text) => rdb::string(&text.whole()?),
        Value::List(all) => rdb::list(&all.all()?),
        Value::Set(all) => rdb::set(&all.all()?),
        Value::Hash(all) => rdb::hash(&all.all()?),
        Value::TimedHash(hash) => {
            let all = hash.all()?;
            match all.iter().any(|field| field.2.is_some()) {
                true => rdb::timed_hash(&all),
                false => {
                    let strings: Vec<&[u8]> = all.iter().flat_map(|all| [all.0, all.1]).collect();
                    rdb::hash(&strings)
                }
            }
        }
        Value::SortedSet(all) => rdb::sorted_set(&all.scored()?),
        Value::Stream(stream) => rdb::stream(&stream_image::image(stream)?),
    })
}

/// Bytes of a value in Redis's files, without its type.
pub fn serialized_length(value: &Value<'_, '_>) -> Result<usize, Stop> {
    Ok(payload(value)?.len() - rdb::AROUND_VALUE)
}

/// The options of RESTORE.
#[derive(Default)]
struct RestoreOptions {
    replaces: bool,
    is_absolute: bool,
}

/// IDLETIME and FREQ are checked and forgotten: nothing is evicted here.
fn restore_options(args: &[&[u8]]) -> Result<RestoreOptions, Stop> {
    let (mut options, mut has_use, mut at) = (RestoreOptions::default(), false, 0);
    while let Some(&option) = args.get(at) {
        at += 1;
        if is(option, "REPLACE") {
            options.replaces = true;
        } else if is(option, "ABSTTL") {
            options.is_absolute = true;
        } else if (is(option, "IDLETIME") || is(option, "FREQ")) && at < args.len() && !has_use {
            let value = integer(args[at])?;
            if is(option, "IDLETIME") && value < 0 {
                return Err("ERR Invalid IDLETIME value, must be >= 0".into());
            }
            if is(option, "FREQ") && !(0..=255).contains(&value) {
                return Err("ERR Invalid FREQ value, must be >= 0 and <= 255".into());
            }
            (has_use, at) = (true, at + 1);
        } else {
            return Err(SYNTAX.into());
        }
    }
    Ok(options)
}

/// Most bytes of a value that an event loop reads: the payload may be a hundred times shorter.
const MOST_ON_LOOP: usize = 4 << 20;

pub fn restore(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let (key, payload) = (args[1], args[3]);
    let options = restore_options(&args[4..])?;
    let entry = space.find_head(key)?;
    if entry.exists() && !options.replaces {
        return Err("BUSYKEY Target key name already exists.".into());
    }
    let ttl = integer(args[2])?;
    if ttl < 0 {
        return Err("ERR Invalid TTL value, must be >= 0".into());
    }
    let expires = match ttl {
        0 => None,
        at if options.is_absolute => Some(at),
        ttl => Some(ttl.saturating_add(space.now_ms())),
    };
    // A large value is read beside the event loops. There a string is copied only once.
    let is_string = payload.first() == Some(&rdb::STRING);
    let is_patient = space.context().is_patient;
    if !(is_string && is_patient) {
        space.charge(payload.len() / 8)?;
    }
    let most = if is_patient { rdb::MOST_BYTES } else { MOST_ON_LOOP };
    let value = match rdb::restore(payload, most) {
        Err(BadPayload::TooLarge) if !is_patient => return Err(TOO_MUCH_FOR_LOOP.into()),
        read => read.map_err(|bad| Stop::from(bad.text()))?,
    };
    match expires.is_some_and(|at| space.context().has_passed(at)) {
        // The value has expired: its blocks would belong to no key.
        true => drop(entry.remove()?),
        false => store_restored(&entry, value, expires)?,
    }
    reply.ok();
    Ok(())
}

/// Stores a restored value, in place of the key's old value.
pub fn store_restored(entry: &Entry<'_, '_>, value: Restored, expires: Option<i64>) -> Done {
    fn parts(all: &[Vec<u8>]) -> Vec<&[u8]> {
        all.iter().map(Vec::as_slice).collect()
    }
    match value {
        Restored::String(text) => entry.put(STRING.with_expiry(expires), &text),
        Restored::List(all) => put::<ListType>(entry, &parts(&all), expires),
        Restored::Set(all) => put::<SetType>(entry, &parts(&all), expires),
        Restored::Hash(all) => put::<HashType>(entry, &parts(&all), expires),
        Restored::TimedHash(all) => {
            let until = entry.space().context().expired_until_ms();
            let all: Vec<Field<'_>> = all
                .iter()
                .map(|(field, value, at)| (&field[..], &value[..], *at))
                .filter(|field| !has_come(field.2, until))
                .collect();
            match all.is_empty() {
                true => Ok(entry.remove().map(drop)?),
                false => timed_hash::put(entry, &all, expires),
            }
        }
        Restored::SortedSet(all) => {
            let element = |(score, member): (f64, Vec<u8>)| sorted_set::element(score, &member);
            let mut all: Vec<_> = all.into_iter().map(element).collect();
            all.sort_unstable();
            put::<SortedSetType>(entry, &parts(&all), expires)
        }
        Restored::Stream(image) => stream_image::put(*entry, &image, expires),
    }
}
