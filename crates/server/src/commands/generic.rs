//! Commands on keys of any type, and on whole databases.

use super::{Done, SYNTAX, database, integer, is, unknown_subcommand};
use crate::data::keyspace::{Keyspace, Stop, TOO_MUCH_FOR_LOOP};
use crate::resp::reply::Reply;
use hyades_platform::resident::{most_resident_bytes, resident_bytes};

pub fn del(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let mut removed = 0;
    for key in &args[1..] {
        let entry = space.find_head(key)?;
        removed += i64::from(entry.remove()?);
    }
    reply.integer(removed);
    Ok(())
}

pub fn exists(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let mut found = 0;
    for key in &args[1..] {
        found += i64::from(space.read_head(key)?.exists());
    }
    reply.integer(found);
    Ok(())
}

pub fn type_of(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    reply.simple(space.read_head(args[1])?.head().map_or("none", |head| head.kind().name()));
    Ok(())
}

/// Moves a value; returns whether the value was moved.
fn rename_to(space: &Keyspace<'_>, args: &[&[u8]], replaces: bool) -> Result<bool, Stop> {
    let (from, to) = (args[1], args[2]);
    let entry = space.find(from)?;
    let Some((head, body)) = entry.row() else { return Err("ERR no such key".into()) };
    if from == to {
        return Ok(replaces);
    }
    let other = space.find_head(to)?;
    if other.exists() && !replaces {
        return Ok(false);
    }
    other.put(head, body)?;
    entry.remove_moved()?;
    Ok(true)
}

pub fn rename(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    rename_to(space, args, true)?;
    reply.ok();
    Ok(())
}

pub fn renamenx(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    reply.integer(i64::from(rename_to(space, args, false)?));
    Ok(())
}

const SAME_OBJECT: &str = "ERR source and destination objects are the same";

pub fn copy(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let (mut to, mut replaces, mut at) = (space.database(), false, 3);
    while let Some(option) = args.get(at) {
        if is(option, "REPLACE") {
            replaces = true;
        } else if is(option, "DB") && at + 1 < args.len() {
            to = database(args[at + 1], space.context().databases)?;
            at += 1;
        } else {
            return Err(SYNTAX.into());
        }
        at += 1;
    }
    if to == space.database() && args[1] == args[2] {
        return Err(SAME_OBJECT.into());
    }
    let other = space.of_database(to)?;
    let (source, target) = (space.read(args[1])?, other.find_head(args[2])?);
    let is_copied = match source.value()? {
        Some((head, value)) if replaces || !target.exists() => {
            value.copy_to(&target, head)?;
            true
        }
        _ => false,
    };
    reply.integer(i64::from(is_copied));
    Ok(())
}

pub fn move_to(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let to = database(args[2], space.context().databases)?;
    if to == space.database() {
        return Err(SAME_OBJECT.into());
    }
    let other = space.of_database(to)?;
    let (source, target) = (space.find(args[1])?, other.find_head(args[1])?);
    let is_moved = match source.row() {
        Some((head, body)) if !target.exists() => {
            target.put(head, body)?;
            source.remove_moved()?;
            true
        }
        _ => false,
    };
    reply.integer(i64::from(is_moved));
    Ok(())
}

pub fn dbsize(space: &Keyspace<'_>, _: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    if !space.counts().is_exact() {
        return count_by_walk(space, reply);
    }
    reply.integer(space.count_keys());
    Ok(())
}

/// DBSIZE of a member that has not counted its keys, in a script or an EXEC.
#[cold]
fn count_by_walk(space: &Keyspace<'_>, reply: &mut Reply<'_>) -> Done {
    if !space.context().is_patient {
        return Err(TOO_MUCH_FOR_LOOP.into());
    }
    let (mut keys, mut cursor) = (0, 0);
    loop {
        cursor = space.walk(cursor, usize::MAX, |_, _| keys += 1)?;
        if cursor == 0 {
            reply.integer(keys);
            return Ok(());
        }
    }
}

/// Whether nothing or one of the modes of flushing follows; the text is the error.
pub(super) fn check_flush_mode(rest: &[&[u8]], error: &'static str) -> Result<(), Stop> {
    match rest {
        [] => Ok(()),
        [how] if is(how, "ASYNC") || is(how, "SYNC") => Ok(()),
        _ => Err(error.into()),
    }
}

pub fn flushdb(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    check_flush_mode(&args[1..], SYNTAX)?;
    space.flush(std::iter::once(space.database()))?;
    reply.ok();
    Ok(())
}

pub fn flushall(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    check_flush_mode(&args[1..], SYNTAX)?;
    space.flush(0..space.context().databases)?;
    space.context().effects.borrow_mut().flush_all();
    reply.ok();
    Ok(())
}

pub fn swapdb(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let number = |text, which| {
        let error = match which {
            1 => "ERR invalid first DB index",
            _ => "ERR invalid second DB index",
        };
        integer(text).map_err(|_| Stop::from(error))?;
        database(text, space.context().databases)
    };
    let (a, b) = (number(args[1], 1)?, number(args[2], 2)?);
    if a != b {
        space.swap(a, b)?;
    }
    reply.ok();
    Ok(())
}

const OBJECT_HELP: &[&str] = &[
    "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "ENCODING <key>",
    "    How Redis would represent the value.",
    "FREQ <key>",
    "    An error: accesses are not counted.",
    "IDLETIME <key>",
    "    0: reads write nothing down.",
    "REFCOUNT <key>",
    "    1: values are not shared.",
    "HELP",
    "    This help.",
];

pub fn object(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let [_, what, key] = args else {
        return match args {
            [_, what] if is(what, "HELP") => {
                super::help(reply, OBJECT_HELP);
                Ok(())
            }
            _ => Err(unknown_subcommand("object", args[1])),
        };
    };
    let known = ["ENCODING", "FREQ", "IDLETIME", "REFCOUNT"];
    let Some(what) = known.iter().find(|word| is(what, word)) else {
        return Err(unknown_subcommand("object", what));
    };
    let entry = space.find(key)?;
    let Some((head, value)) = entry.value()? else {
        reply.null();
        return Ok(());
    };
    match *what {
        "ENCODING" => reply.bulk(value.encoding(head)?.as_bytes()),
        "IDLETIME" => reply.integer(0),
        "REFCOUNT" => reply.integer(1),
        _ => {
            let text = "ERR An LFU maxmemory policy is not selected, access frequency not tracked. \
                        Please note that when switching between policies at runtime LRU and LFU \
                        data will take some time to adjust.";
            return Err(text.into());
        }
    }
    Ok(())
}

const MEMORY_HELP: &[&str] = &[
    "MEMORY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "DOCTOR",
    "    The same as STATS, in a sentence.",
    "STATS",
    "    Bytes of the process in memory, now and at most so far, and the number of all keys.",
    "USAGE <key> [SAMPLES <count>]",
    "    The bytes that a key takes, with all of its elements.",
    "HELP",
    "    This help.",
];

pub fn memory(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    if args.len() >= 3 && is(args[1], "USAGE") {
        // All are counted, however many samples are asked for.
        match &args[3..] {
            [] => {}
            [word, count] if is(word, "SAMPLES") && super::integer(count)? >= 0 => {}
            _ => return Err(SYNTAX.into()),
        }
        let entry = space.read(args[2])?;
        // The record of a row has 48 bytes beside its columns, and its place in the index 16.
        let bytes = entry.row().map(|(_, body)| args[2].len() + body.len() + 48 + 16 + 16);
        match bytes.zip(entry.value()?) {
            Some((bytes, (_, value))) => reply.count(bytes + value.bytes_beside_row()?),
            None => reply.null(),
        }
        return Ok(());
    }
    match &args[1..] {
        [what] if is(what, "HELP") => super::help(reply, MEMORY_HELP),
        [what] if is(what, "STATS") => {
            let stats = [
                ("process.resident", resident_bytes()),
                ("process.resident.peak", most_resident_bytes()),
                ("keys.count", space.counts().all() as u64),
            ];
            reply.map(stats.len());
            for (name, number) in stats {
                reply.bulk(name.as_bytes());
                reply.integer(number as i64);
            }
        }
        [what] if is(what, "DOCTOR") => {
            let mib = |bytes: u64| bytes >> 20;
            let (now, peak) = (resident_bytes(), most_resident_bytes());
            reply.verbatim(&format!(
                "The process has {} MiB in memory, {} MiB at most so far, and the databases have \
                 {} keys. Nothing is measured here of what they are made of: the allocator gives \
                 freed memory back late, so a peak long ago is no fault.",
                mib(now),
                mib(peak),
                space.counts().all()
            ));
        }
        [what] if ["MALLOC-STATS", "PURGE"].iter().any(|name| is(what, name)) => {
            let what = String::from_utf8_lossy(what).to_uppercase();
            let text = format!("ERR MEMORY {what} is not built: see MEMORY STATS");
            return Err(text.into());
        }
        _ => return Err(unknown_subcommand("memory", args[1])),
    }
    Ok(())
}
