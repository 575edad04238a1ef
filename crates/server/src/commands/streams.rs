//! Streams: commands that add, remove and read entries without groups.

use super::stream_arguments::{
    NewId, add_options, count, end, find, new_id, read, reply_entry, reply_range, start, strict_id,
};
use super::{Done, SYNTAX, integer, is, wrong_arity};
use crate::base::stream_id::StreamId;
use crate::data::head::{Form, Head, Kind};
use crate::data::keyspace::{Entry, Keyspace, Stop};
use crate::data::stream_head::StreamHead;
use crate::resp::reply::Reply;

/// Tells an event of a stream.
pub fn tell(entry: &Entry<'_, '_>, event: &'static str) {
    entry.tell(Head::new(Kind::Stream, Form::Plain), event);
}

const NOT_ABOVE: &str =
    "ERR The ID specified in XADD is equal or smaller than the target stream top item";

/// The id of a new entry, above the last id.
fn id_of_new(id: NewId, head: &StreamHead, now_ms: i64) -> Result<StreamId, Stop> {
    let (last, now) = (head.last, now_ms.max(0) as u64);
    let id = match id {
        NewId::Auto if now > last.ms => StreamId { ms: now, seq: 0 },
        NewId::Auto => last.next().ok_or(NOT_ABOVE)?,
        NewId::AtTime(ms) if ms == last.ms => {
            StreamId { ms, seq: last.seq.checked_add(1).ok_or(NOT_ABOVE)? }
        }
        NewId::AtTime(ms) => StreamId { ms, seq: 0 },
        NewId::Given(id) => id,
    };
    if id <= last { Err(NOT_ABOVE.into()) } else { Ok(id) }
}

pub fn xadd(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let options = add_options(space, args, true)?;
    let strings = args.get(options.id_at + 1..).unwrap_or_default();
    if strings.is_empty() || !strings.len().is_multiple_of(2) {
        return Err(wrong_arity("xadd"));
    }
    let id = new_id(args[options.id_at])?;
    if id == NewId::Given(StreamId::ZERO) {
        return Err("ERR The ID specified in XADD must be greater than 0-0".into());
    }
    let mut stream = find(space, args[1])?;
    if !stream.exists() && options.keeps_absent {
        reply.null();
        return Ok(());
    }
    if stream.head().last == StreamId::MAX {
        let text = "ERR The stream has exhausted the last possible ID, unable to add more items";
        return Err(text.into());
    }
    let id = id_of_new(id, stream.head(), space.now_ms())?;
    stream.append(id, strings)?;
    let trimmed = options.trim.map_or(Ok(0), |trim| stream.trim(&trim))?;
    stream.store()?;
    tell(stream.entry(), "xadd");
    if trimmed > 0 {
        tell(stream.entry(), "xtrim");
    }
    reply.bulk(&id.text());
    Ok(())
}

pub fn xlen(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    reply.count(read(space, args[1])?.head().length as usize);
    Ok(())
}

pub fn xdel(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let mut stream = find(space, args[1])?;
    let mut removed = 0;
    if stream.exists() {
        let ids: Vec<StreamId> =
            args[2..].iter().map(|id| strict_id(id)).collect::<Result<_, _>>()?;
        removed = stream.delete(&ids)?;
        if removed > 0 {
            stream.store()?;
            tell(stream.entry(), "xdel");
        }
    }
    reply.count(removed as usize);
    Ok(())
}

pub fn xtrim(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let trim = add_options(space, args, false)?.trim;
    let text = "ERR syntax error, XTRIM must be called with a trimming strategy";
    let (trim, mut removed) = (trim.ok_or(text)?, 0);
    let mut stream = find(space, args[1])?;
    if stream.exists() {
        removed = stream.trim(&trim)?;
    }
    if removed > 0 {
        stream.store()?;
        tell(stream.entry(), "xtrim");
    }
    reply.count(removed as usize);
    Ok(())
}

/// The options of XSETID: the number of entries ever added, and the highest deleted id.
fn setid_options(args: &[&[u8]], id: StreamId) -> Result<(Option<u64>, StreamId), Stop> {
    let (mut added, mut deleted, mut rest) = (None, StreamId::ZERO, &args[3..]);
    while let [option, more @ ..] = rest {
        match more {
            [value, behind @ ..] if is(option, "ENTRIESADDED") => {
                let value = integer(value)?;
                added = Some(
                    u64::try_from(value)
                        .map_err(|_| Stop::from("ERR entries_added must be positive"))?,
                );
                rest = behind;
            }
            [value, behind @ ..] if is(option, "MAXDELETEDID") => {
                deleted = strict_id(value)?;
                if id < deleted {
                    let text = "ERR The ID specified in XSETID is smaller than the provided \
                                max_deleted_entry_id";
                    return Err(text.into());
                }
                rest = behind;
            }
            _ => return Err(SYNTAX.into()),
        }
    }
    Ok((added, deleted))
}

pub fn xsetid(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let id = strict_id(args[2])?;
    let (added, deleted) = setid_options(args, id)?;
    let mut stream = find(space, args[1])?;
    if !stream.exists() {
        return Err("ERR no such key".into());
    }
    let head = *stream.head();
    if id < head.deleted {
        let text = "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id";
        return Err(text.into());
    }
    if stream.last_entry()?.is_some_and(|last| id < last) {
        let text = "ERR The ID specified in XSETID is smaller than the target stream top item";
        return Err(text.into());
    }
    if head.length > 0 && added.is_some_and(|added| added < head.length) {
        let text = "ERR The entries_added specified in XSETID is smaller than the target stream \
                    length";
        return Err(text.into());
    }
    let head = stream.head_mut();
    head.last = id;
    head.added = added.unwrap_or(head.added);
    if deleted > StreamId::ZERO {
        head.deleted = deleted;
    }
    stream.store()?;
    tell(stream.entry(), "xsetid");
    reply.ok();
    Ok(())
}

/// The option COUNT of a range.
fn range_count(args: &[&[u8]]) -> Result<Option<usize>, Stop> {
    let (mut most, mut rest) = (None, &args[4..]);
    while let [option, more @ ..] = rest {
        match more {
            [value, behind @ ..] if is(option, "COUNT") => {
                (most, rest) = (Some(count(value)?), behind)
            }
            _ => return Err(SYNTAX.into()),
        }
    }
    Ok(most)
}

pub fn xrange(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let (from, to) = (start(args[2])?, end(args[3])?);
    let most = range_count(args)?;
    let stream = read(space, args[1])?;
    match most {
        _ if !stream.exists() => reply.array(0),
        Some(0) => reply.null_array(),
        most => drop(reply_range(reply, &stream, (from, to), most.unwrap_or(0), |_| {})?),
    }
    Ok(())
}

pub fn xrevrange(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let (to, from) = (end(args[2])?, start(args[3])?);
    let most = range_count(args)?;
    let stream = read(space, args[1])?;
    match most {
        _ if !stream.exists() => reply.array(0),
        Some(0) => reply.null_array(),
        most => {
            let (position, mut count, most) = (reply.position(), 0, most.unwrap_or(0));
            stream.descend(to, &mut |entry| {
                if entry.id < from {
                    return false;
                }
                reply_entry(reply, &entry);
                count += 1;
                count != most && !reply.is_too_long()
            })?;
            reply.array_before(position, count);
        }
    }
    Ok(())
}
