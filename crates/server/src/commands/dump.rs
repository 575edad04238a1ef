//! DUMP and RESTORE.

use super::collections::{elements, put};
use super::ranking::{self, score_bytes};
use super::{Done, SYNTAX, integer, is};
use crate::data::head::{Form, Head, Kind};
use crate::data::keyspace::{Entry, Keyspace, Stop, TOO_MUCH_FOR_LOOP};
use crate::rdb::{self, BadPayload, Restored};
use crate::resp::reply::Reply;

pub fn dump(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let entry = space.read(args[1])?;
    let Some(head) = entry.head() else {
        reply.null();
        return Ok(());
    };
    reply.bulk(&payload(&entry, head)?);
    Ok(())
}

/// The payload of a value.
pub fn payload(entry: &Entry<'_>, head: Head) -> Result<Vec<u8>, Stop> {
    Ok(match head.kind() {
        Kind::String => match entry.string()? {
            Some(text) => rdb::string(&text.whole()?),
            None => unreachable!("it has a head"),
        },
        Kind::List => rdb::list(&elements(entry, Kind::List)?),
        Kind::Set => rdb::set(&elements(entry, Kind::Set)?),
        Kind::Hash => rdb::hash(&elements(entry, Kind::Hash)?),
        Kind::SortedSet => rdb::sorted_set(&ranking::scored(entry)?),
    })
}

/// Bytes of a value in Redis's files, without its type.
pub fn serialized_length(entry: &Entry<'_>, head: Head) -> Result<usize, Stop> {
    Ok(payload(entry, head)?.len() - rdb::AROUND_VALUE)
}

/// The options of RESTORE.
#[derive(Default)]
struct RestoreOptions {
    replaces: bool,
    is_absolute: bool,
}

/// IDLETIME and FREQ are checked and forgotten: nothing is evicted here.
fn restore_options(args: &[&[u8]]) -> Result<RestoreOptions, Stop> {
    let (mut of, mut has_use, mut at) = (RestoreOptions::default(), false, 0);
    while let Some(&option) = args.get(at) {
        at += 1;
        if is(option, "REPLACE") {
            of.replaces = true;
        } else if is(option, "ABSTTL") {
            of.is_absolute = true;
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
    Ok(of)
}

/// Most bytes that a value takes that an event loop reads: its payload may be a hundred times
/// shorter.
const MOST_ON_LOOP: usize = 4 << 20;

pub fn restore(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let (key, payload) = (args[1], args[3]);
    let of = restore_options(&args[4..])?;
    let entry = space.find_head(key)?;
    if entry.exists() && !of.replaces {
        return Err("BUSYKEY Target key name already exists.".into());
    }
    let ttl = integer(args[2])?;
    if ttl < 0 {
        return Err("ERR Invalid TTL value, must be >= 0".into());
    }
    let expires = match ttl {
        0 => None,
        at if of.is_absolute => Some(at),
        ttl => Some(ttl.saturating_add(space.now_ms())),
    };
    // A large one is read beside the event loops. There a string is copied once, and no more.
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
    match expires.is_some_and(|at| at <= space.now_ms()) {
        // It has expired: its blocks would belong to no key.
        true => drop(space.remove(key, &entry)?),
        false => store(space, (key, &entry), value, expires)?,
    }
    reply.ok();
    Ok(())
}

fn store(
    space: &Keyspace<'_>,
    place: (&[u8], &Entry<'_>),
    value: Restored,
    expires: Option<i64>,
) -> Done {
    let (kind, elements) = match value {
        Restored::String(text) => {
            let head = Head::new(Kind::String, Form::Plain).with_expiry(expires);
            return space.put(place.0, place.1, head, &text);
        }
        Restored::List(all) => (Kind::List, all),
        Restored::Set(all) => (Kind::Set, all),
        Restored::Hash(all) => (Kind::Hash, all),
        Restored::SortedSet(all) => {
            let mut all: Vec<_> = all.into_iter().map(|of| element_of(of.0, &of.1)).collect();
            all.sort_unstable();
            (Kind::SortedSet, all)
        }
    };
    let elements: Vec<&[u8]> = elements.iter().map(Vec::as_slice).collect();
    put(space, place, kind, &elements, expires)
}

/// A member of a sorted set as it is packed: elements sort as score and member do.
fn element_of(score: f64, member: &[u8]) -> Vec<u8> {
    [&score_bytes(score)[..], member].concat()
}
