//! XINFO: facts about streams, groups and consumers.

use super::stream_arguments::{count, read, reply_entry, reply_range};
use super::{Done, help, is, subcommand_error, unknown_subcommand};
use crate::base::stream_id::StreamId;
use crate::data::keyspace::{Keyspace, Stop};
use crate::data::stream_groups::{Consumer, Group};
use crate::data::values::stream::StoredStream;
use crate::resp::reply::Reply;

const XINFO_HELP: &[&str] = &[
    "XINFO <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CONSUMERS <key> <groupname>",
    "    Show consumers of <groupname>.",
    "GROUPS <key>",
    "    Show the stream consumer groups.",
    "STREAM <key> [FULL [COUNT <count>]",
    "    Show information about the stream.",
    "HELP",
    "    Print this help.",
];

/// Entries, and pending entries of each group and consumer, shown by FULL without a number.
const SHOWN: usize = 10;

fn integer_or_null(reply: &mut Reply<'_>, value: Option<i64>) {
    match value {
        Some(value) => reply.integer(value),
        None => reply.null(),
    }
}

fn name(reply: &mut Reply<'_>, name: &str) {
    reply.bulk(name.as_bytes());
}

fn named_count(reply: &mut Reply<'_>, text: &str, count: u64) {
    name(reply, text);
    reply.integer(count as i64);
}

fn named_id(reply: &mut Reply<'_>, text: &str, id: StreamId) {
    name(reply, text);
    reply.bulk(&id.text());
}

/// The common beginning of both forms of XINFO STREAM.
fn reply_head(stream: &StoredStream<'_, '_>, reply: &mut Reply<'_>) -> Done {
    let (head, nodes) = (stream.head(), stream.nodes()? as u64);
    named_count(reply, "length", head.length);
    named_count(reply, "radix-tree-keys", nodes);
    // As in a tree with one node for each key below its root.
    named_count(reply, "radix-tree-nodes", nodes + 1);
    named_id(reply, "last-generated-id", head.last);
    named_id(reply, "max-deleted-entry-id", head.deleted);
    named_count(reply, "entries-added", head.added);
    named_id(reply, "recorded-first-entry-id", head.first);
    Ok(())
}

fn reply_stream(stream: &StoredStream<'_, '_>, reply: &mut Reply<'_>) -> Done {
    reply.map(10);
    reply_head(stream, reply)?;
    named_count(reply, "groups", stream.groups()?.len() as u64);
    name(reply, "first-entry");
    let mut is_any = false;
    stream.ascend(StreamId::ZERO, &mut |entry| {
        is_any = true;
        reply_entry(reply, &entry);
        false
    })?;
    if !is_any {
        reply.null();
    }
    name(reply, "last-entry");
    stream.descend(StreamId::MAX, &mut |entry| {
        reply_entry(reply, &entry);
        false
    })?;
    if !is_any {
        reply.null();
    }
    Ok(())
}

/// The position of a group in its stream.
fn reply_position(stream: &StoredStream<'_, '_>, group: &Group<'_>, reply: &mut Reply<'_>) {
    named_id(reply, "last-delivered-id", group.last);
    name(reply, "entries-read");
    integer_or_null(reply, group.read.map(|read| read as i64));
    name(reply, "lag");
    integer_or_null(reply, stream.head().lag(group.last, group.read));
}

/// Replies pending entries of a group, or of a consumer of the group; `most` at most, 0 for any
/// number.
fn reply_pending(
    group: &Group<'_>,
    of_consumer: Option<(&[u8], &Consumer)>,
    most: usize,
    reply: &mut Reply<'_>,
) -> Done {
    let (position, mut shown) = (reply.position(), 0);
    let owned = of_consumer.map_or(u64::MAX, |(_, consumer)| consumer.pending) as usize;
    let most = if most == 0 { owned } else { most.min(owned) };
    if most > 0 {
        group.pending_from(StreamId::ZERO, &mut |id, pending| {
            let is_wanted = of_consumer.is_none_or(|(name, _)| *name == *pending.consumer);
            if is_wanted {
                reply.array(if of_consumer.is_some() { 3 } else { 4 });
                reply.bulk(&id.text());
                if of_consumer.is_none() {
                    reply.bulk(&pending.consumer);
                }
                reply.integer(pending.time);
                reply.integer(pending.count as i64);
                shown += 1;
            }
            shown < most && !reply.is_too_long()
        })?;
    }
    reply.array_before(position, shown);
    Ok(())
}

fn reply_full_group(
    stream: &StoredStream<'_, '_>,
    (group_name, group): (&[u8], &Group<'_>),
    most: usize,
    reply: &mut Reply<'_>,
) -> Done {
    reply.map(7);
    name(reply, "name");
    reply.bulk(group_name);
    reply_position(stream, group, reply);
    named_count(reply, "pel-count", group.count_pending()? as u64);
    name(reply, "pending");
    reply_pending(group, None, most, reply)?;
    name(reply, "consumers");
    let consumers = group.consumers()?;
    reply.array(consumers.len());
    for (consumer_name, consumer) in &consumers {
        reply.map(5);
        name(reply, "name");
        reply.bulk(consumer_name);
        named_count(reply, "seen-time", consumer.seen as u64);
        name(reply, "active-time");
        reply.integer(consumer.active.unwrap_or(-1));
        named_count(reply, "pel-count", consumer.pending);
        name(reply, "pending");
        reply_pending(group, Some((consumer_name, consumer)), most, reply)?;
    }
    Ok(())
}

fn reply_full(stream: &StoredStream<'_, '_>, most: usize, reply: &mut Reply<'_>) -> Done {
    reply.map(9);
    reply_head(stream, reply)?;
    name(reply, "entries");
    reply_range(reply, stream, (StreamId::ZERO, StreamId::MAX), most, |_| {})?;
    name(reply, "groups");
    let groups = stream.groups()?;
    reply.array(groups.len());
    groups.iter().try_for_each(|(name, group)| reply_full_group(stream, (name, group), most, reply))
}

fn reply_groups(stream: &StoredStream<'_, '_>, reply: &mut Reply<'_>) -> Done {
    let groups = stream.groups()?;
    reply.array(groups.len());
    for (group_name, group) in &groups {
        reply.map(6);
        name(reply, "name");
        reply.bulk(group_name);
        named_count(reply, "consumers", group.count_consumers()? as u64);
        named_count(reply, "pending", group.count_pending()? as u64);
        reply_position(stream, group, reply);
    }
    Ok(())
}

fn reply_consumers(group: &Group<'_>, now: i64, reply: &mut Reply<'_>) -> Done {
    let consumers = group.consumers()?;
    reply.array(consumers.len());
    for (consumer_name, consumer) in &consumers {
        reply.map(4);
        name(reply, "name");
        reply.bulk(consumer_name);
        named_count(reply, "pending", consumer.pending);
        name(reply, "idle");
        reply.integer((now - consumer.seen).max(0));
        name(reply, "inactive");
        reply.integer(consumer.active.map_or(-1, |active| (now - active).max(0)));
    }
    Ok(())
}

/// The option FULL, and how many are shown.
fn full(args: &[&[u8]]) -> Result<Option<usize>, Stop> {
    match &args[3..] {
        [] => Ok(None),
        [full] if is(full, "FULL") => Ok(Some(SHOWN)),
        [full, word, most] if is(full, "FULL") && is(word, "COUNT") => {
            // As in Redis, a negative number means the default.
            match super::integer(most)? {
                0.. => Ok(Some(count(most)?)),
                _ => Ok(Some(SHOWN)),
            }
        }
        _ => {
            let what = "unknown subcommand or wrong number of arguments for";
            Err(subcommand_error(what, "xinfo", args[1]).into())
        }
    }
}

pub fn xinfo(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let (what, words) = (args[1], args.len());
    match () {
        () if is(what, "HELP") && words == 2 => {
            help(reply, XINFO_HELP);
            return Ok(());
        }
        () if is(what, "STREAM") && words >= 3 => {}
        () if is(what, "GROUPS") && words == 3 => {}
        () if is(what, "CONSUMERS") && words == 4 => {}
        () => return Err(unknown_subcommand("xinfo", what)),
    }
    let stream = read(space, args[2])?;
    if !stream.exists() {
        return Err("ERR no such key".into());
    }
    if is(what, "STREAM") {
        return match full(args)? {
            Some(most) => reply_full(&stream, most, reply),
            None => reply_stream(&stream, reply),
        };
    }
    if is(what, "GROUPS") {
        return reply_groups(&stream, reply);
    }
    let group = stream.group(args[3])?.ok_or_else(|| {
        let (key, name) = (String::from_utf8_lossy(args[2]), String::from_utf8_lossy(args[3]));
        Stop::from(format!("NOGROUP No such consumer group '{name}' for key name '{key}'"))
    })?;
    reply_consumers(&group, space.now_ms(), reply)
}
