//! Groups of consumers: XGROUP, XACK and XPENDING.

use super::stream_arguments::{count, end, find, no_group, start, strict_id};
use super::streams::tell;
use super::{Done, SYNTAX, help, integer, is, subcommand_error, unknown_subcommand};
use crate::base::stream_id::StreamId;
use crate::data::keyspace::{Keyspace, Stop};
use crate::data::stream_groups::{Group, Pending, PendingEdit, Seen, Shifts, group_of};
use crate::data::values::stream::StoredStream;
use crate::resp::reply::Reply;

const XGROUP_HELP: &[&str] = &[
    "XGROUP <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CREATE <key> <groupname> <id|$> [option]",
    "    Create a new consumer group. Options are:",
    "    * MKSTREAM",
    "      Create the empty stream if it does not exist.",
    "    * ENTRIESREAD entries_read",
    "      Set the group's entries_read counter (internal use).",
    "CREATECONSUMER <key> <groupname> <consumer>",
    "    Create a new consumer in the specified group.",
    "DELCONSUMER <key> <groupname> <consumer>",
    "    Remove the specified consumer.",
    "DESTROY <key> <groupname>",
    "    Remove the specified group.",
    "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
    "    Set the current group ID and entries_read counter.",
    "HELP",
    "    Print this help.",
];

/// The options of XGROUP CREATE and SETID.
#[derive(Default)]
struct GroupOptions {
    makes_stream: bool,
    read: Option<u64>,
}

fn group_options(args: &[&[u8]], creates: bool) -> Result<GroupOptions, Stop> {
    let (mut options, mut at) = (GroupOptions::default(), 5);
    while let Some(&option) = args.get(at) {
        if creates && is(option, "MKSTREAM") {
            options.makes_stream = true;
            at += 1;
        } else if is(option, "ENTRIESREAD") && at + 1 < args.len() {
            options.read = match integer(args[at + 1])? {
                -1 => None,
                read @ 0.. => Some(read as u64),
                _ => return Err("ERR value for ENTRIESREAD must be positive or -1".into()),
            };
            at += 2;
        } else {
            let what = "unknown subcommand or wrong number of arguments for";
            return Err(subcommand_error(what, "xgroup", args[1]).into());
        }
    }
    Ok(options)
}

fn group_id(text: &[u8], stream: &StoredStream<'_, '_>) -> Result<StreamId, Stop> {
    if text == b"$" { Ok(stream.head().last) } else { strict_id(text) }
}

fn create(
    stream: &mut StoredStream<'_, '_>,
    args: &[&[u8]],
    options: &GroupOptions,
    reply: &mut Reply<'_>,
) -> Done {
    let last = group_id(args[4], stream)?;
    if stream.group(args[3])?.is_some() {
        return Err("BUSYGROUP Consumer Group name already exists".into());
    }
    stream.create_group(args[3], last, options.read)?;
    stream.store()?;
    tell(stream.entry(), "xgroup-create");
    reply.ok();
    Ok(())
}

/// Removes a consumer, and returns the number of entries pending for it.
fn delete_consumer(group: &Group<'_>, name: &[u8]) -> Result<Option<u64>, Stop> {
    let Some(consumer) = group.consumer(name)? else { return Ok(None) };
    let mut ids = Vec::new();
    if consumer.pending > 0 {
        group.pending_from(StreamId::ZERO, &mut |id, pending| {
            if *pending.consumer == *name {
                ids.push(id);
            }
            true
        })?;
    }
    group.edit_pending(&ids, &mut |_, _| Ok(PendingEdit::Remove))?;
    group.edit_consumers(&[name], &mut |_, _| Ok(None))?;
    Ok(Some(consumer.pending))
}

/// XGROUP on an existing group, except DESTROY.
fn change_group(
    stream: &StoredStream<'_, '_>,
    args: &[&[u8]],
    options: &GroupOptions,
    reply: &mut Reply<'_>,
) -> Done {
    let (name, group) = (args[3], stream.group(args[3])?);
    if is(args[1], "DESTROY") {
        if let Some(group) = &group {
            stream.destroy_group(name, group)?;
            stream.entry().touch()?;
            tell(stream.entry(), "xgroup-destroy");
        }
        reply.integer(i64::from(group.is_some()));
        return Ok(());
    }
    let mut group = group.ok_or_else(|| {
        let (key, name) = (String::from_utf8_lossy(args[2]), String::from_utf8_lossy(name));
        Stop::from(format!("NOGROUP No such consumer group '{name}' for key name '{key}'"))
    })?;
    let event = if is(args[1], "SETID") {
        let last = match args[4] {
            b"-" => StreamId::ZERO,
            b"+" => StreamId::MAX,
            id => group_id(id, stream)?,
        };
        (group.last, group.read) = (last, options.read);
        stream.store_group(name, &group)?;
        reply.ok();
        Some("xgroup-setid")
    } else if is(args[1], "CREATECONSUMER") {
        let (now, is_active) = (stream.entry().space().now_ms(), false);
        let is_new = group.consumer(args[4])?.is_none();
        if is_new {
            group.settle(&Shifts::new(), Some(Seen { name: args[4], now, is_active }))?;
        }
        reply.integer(i64::from(is_new));
        is_new.then_some("xgroup-createconsumer")
    } else {
        let pending = delete_consumer(&group, args[4])?;
        reply.integer(pending.unwrap_or(0) as i64);
        pending.map(|_| "xgroup-delconsumer")
    };
    if let Some(event) = event {
        stream.entry().touch()?;
        tell(stream.entry(), event);
    }
    Ok(())
}

pub fn xgroup(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let (what, words) = (args[1], args.len());
    let creates = is(what, "CREATE");
    match () {
        () if is(what, "HELP") && words == 2 => {
            help(reply, XGROUP_HELP);
            return Ok(());
        }
        () if (creates || is(what, "SETID")) && words >= 5 => {}
        () if is(what, "DESTROY") && words == 4 => {}
        () if (is(what, "CREATECONSUMER") || is(what, "DELCONSUMER")) && words == 5 => {}
        () => return Err(unknown_subcommand("xgroup", what)),
    }
    let takes_options = creates || is(what, "SETID");
    let options = if takes_options { group_options(args, creates)? } else { Default::default() };
    let mut stream = find(space, args[2])?;
    if !stream.exists() && !options.makes_stream {
        let text = "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you \
                    may want to use the MKSTREAM option to create an empty stream automatically.";
        return Err(text.into());
    }
    match creates {
        true => create(&mut stream, args, &options, reply),
        false => change_group(&stream, args, &options, reply),
    }
}

pub fn xack(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let Some(group) = group_of(&space.read(args[1])?, args[2])? else {
        reply.integer(0);
        return Ok(());
    };
    let ids: Vec<StreamId> = args[3..].iter().map(|id| strict_id(id)).collect::<Result<_, _>>()?;
    let mut acknowledged = 0;
    let shifts = group.edit_pending(&ids, &mut |_, old| {
        acknowledged += usize::from(old.is_some());
        Ok(PendingEdit::Remove)
    })?;
    group.settle(&shifts, None)?;
    reply.count(acknowledged);
    Ok(())
}

/// The entries listed by XPENDING.
struct PendingRange<'a> {
    idle: i64,
    from: StreamId,
    to: StreamId,
    most: usize,
    consumer: Option<&'a [u8]>,
}

fn pending_range<'a>(args: &[&'a [u8]]) -> Result<Option<PendingRange<'a>>, Stop> {
    let (mut idle, mut rest) = (0, &args[3..]);
    if rest.is_empty() {
        return Ok(None);
    }
    if !(6..=9).contains(&args.len()) {
        return Err(SYNTAX.into());
    }
    if is(rest[0], "IDLE") {
        idle = integer(rest[1])?;
        rest = &rest[2..];
    }
    let [from, to, most, consumer @ ..] = rest else { return Err(SYNTAX.into()) };
    let most = count(most)?;
    let (from, to, consumer) = (start(from)?, end(to)?, consumer.first().copied());
    Ok(Some(PendingRange { idle, from, to, most, consumer }))
}

/// Replies the number of pending entries, the first and the last id, and the numbers by consumer.
fn reply_summary(group: &Group<'_>, reply: &mut Reply<'_>) -> Done {
    let mut first = None;
    group.pending_from(StreamId::ZERO, &mut |id, _| {
        first = Some(id);
        false
    })?;
    reply.array(4);
    reply.count(group.count_pending()?);
    let Some((first, last)) = first.zip(group.last_pending()?) else {
        reply.null();
        reply.null();
        reply.null_array();
        return Ok(());
    };
    reply.bulk(&first.text());
    reply.bulk(&last.text());
    let all = group.consumers()?;
    let busy: Vec<_> = all.iter().filter(|(_, consumer)| consumer.pending > 0).collect();
    reply.array(busy.len());
    for (name, consumer) in busy {
        reply.array(2);
        reply.bulk(name);
        reply.bulk(consumer.pending.to_string().as_bytes());
    }
    Ok(())
}

pub fn xpending(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let range = pending_range(args)?;
    let group = group_of(&space.read(args[1])?, args[2])?
        .ok_or_else(|| Stop::from(no_group(args[1], args[2])))?;
    let Some(range) = range else { return reply_summary(&group, reply) };
    let owned = match range.consumer {
        // A missing consumer has no pending entries.
        Some(name) => group.consumer(name)?.map_or(0, |consumer| consumer.pending),
        None => u64::MAX,
    };
    let (position, now) = (reply.position(), space.now_ms());
    let (mut listed, mut passed) = (0, 0);
    if owned > 0 && range.most > 0 {
        group.pending_from(range.from, &mut |id, Pending { consumer, time, count }| {
            if id > range.to {
                return false;
            }
            let is_wanted = range.consumer.is_none_or(|wanted| *consumer == *wanted);
            passed += u64::from(is_wanted);
            if is_wanted && (range.idle <= 0 || now - time >= range.idle) {
                reply.array(4);
                reply.bulk(&id.text());
                reply.bulk(&consumer);
                reply.integer((now - time).max(0));
                reply.integer(count as i64);
                listed += 1;
            }
            listed < range.most && passed < owned && !reply.is_too_long()
        })?;
    }
    reply.array_before(position, listed);
    Ok(())
}
