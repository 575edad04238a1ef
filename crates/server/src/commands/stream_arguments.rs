//! Shared parts of the commands for streams: ids and ranges of ids, the trimming of a stream, and
//! the reply of an entry.

use super::{SYNTAX, integer, is};
use crate::base::stream_id::{StreamId, part};
use crate::data::keyspace::{Keyspace, Stop};
use crate::data::stream_groups::Group;
use crate::data::stream_node::StreamEntry;
use crate::data::values::stream::{StoredStream, Trim, TrimTo};
use crate::resp::reply::Reply;

const INVALID_ID: &str = "ERR Invalid stream ID specified as stream command argument";

/// A stream to be changed, or a missing stream.
pub fn find<'t, 's>(space: &'s Keyspace<'t>, key: &'s [u8]) -> Result<StoredStream<'t, 's>, Stop> {
    StoredStream::of(space.find(key)?)
}

/// A stream to be read, or a missing stream.
pub fn read<'t, 's>(space: &'s Keyspace<'t>, key: &'s [u8]) -> Result<StoredStream<'t, 's>, Stop> {
    StoredStream::of(space.read(key)?)
}

/// Reads an id; a missing second part is 0.
pub fn strict_id(text: &[u8]) -> Result<StreamId, Stop> {
    StreamId::parse(text, 0).ok_or_else(|| INVALID_ID.into())
}

/// The id of a new entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewId {
    /// By the time.
    Auto,
    /// With the given time, and the next number.
    AtTime(u64),
    /// The given id.
    Given(StreamId),
}

/// Reads the id of a new entry.
pub fn new_id(text: &[u8]) -> Result<NewId, Stop> {
    match text {
        b"*" => Ok(NewId::Auto),
        [ms @ .., b'-', b'*'] if !ms.contains(&b'-') => {
            Ok(NewId::AtTime(part(ms).ok_or(INVALID_ID)?))
        }
        text => Ok(NewId::Given(strict_id(text)?)),
    }
}

/// Reads an end of a range of ids: `-`, `+`, an id, or `(` and an excluded id. Returns whether the
/// id is excluded. A missing second part is `seq`.
fn bound(text: &[u8], seq: u64) -> Result<(StreamId, bool), Stop> {
    match text {
        b"-" => Ok((StreamId::ZERO, false)),
        b"+" => Ok((StreamId::MAX, false)),
        [b'(', id @ ..] if !id.is_empty() => {
            Ok((StreamId::parse(id, seq).ok_or(INVALID_ID)?, true))
        }
        id => Ok((StreamId::parse(id, seq).ok_or(INVALID_ID)?, false)),
    }
}

/// The first id of a range.
pub fn start(text: &[u8]) -> Result<StreamId, Stop> {
    match bound(text, 0)? {
        (id, false) => Ok(id),
        (id, true) => id.next().ok_or_else(|| "ERR invalid start ID for the interval".into()),
    }
}

/// The last id of a range.
pub fn end(text: &[u8]) -> Result<StreamId, Stop> {
    match bound(text, u64::MAX)? {
        (id, false) => Ok(id),
        (id, true) => id.previous().ok_or_else(|| "ERR invalid end ID for the interval".into()),
    }
}

/// A number of entries: a negative number is 0.
pub fn count(text: &[u8]) -> Result<usize, Stop> {
    Ok(integer(text)?.max(0) as usize)
}

/// The options of XADD and XTRIM.
#[derive(Default)]
pub struct StreamAddOptions {
    /// XADD creates no stream.
    pub keeps_absent: bool,
    /// How the stream is trimmed.
    pub trim: Option<Trim>,
    /// The place of the id of XADD.
    pub id_at: usize,
}

/// Most entries that `~` removes without a limit, for each possible entry of a node, and at all.
const NODES_OF_LIMIT: u64 = 100;
const LEAST_LIMIT: u64 = 10_000;
const MOST_LIMIT: u64 = 1_000_000;

/// The options of MAXLEN or MINID.
#[derive(Default)]
struct TrimOptions {
    to: Option<TrimTo>,
    is_approximate: bool,
    limit: Option<u64>,
}

impl TrimOptions {
    /// Takes MAXLEN or MINID with its arguments, and returns the place behind.
    fn take(&mut self, args: &[&[u8]], at: usize) -> Result<usize, Stop> {
        if self.to.is_some() {
            let text = "ERR syntax error, MAXLEN and MINID options at the same time are not \
                        compatible";
            return Err(text.into());
        }
        let mut value = at + 1;
        if value + 1 < args.len() && [&b"~"[..], b"="].contains(&args[value]) {
            self.is_approximate = args[value] == b"~";
            value += 1;
        }
        self.to = Some(match is(args[at], "MAXLEN") {
            true => match integer(args[value])? {
                length @ 0.. => TrimTo::Length(length as u64),
                _ => return Err("ERR The MAXLEN argument must be >= 0.".into()),
            },
            false => TrimTo::Id(strict_id(args[value])?),
        });
        Ok(value + 1)
    }

    fn finish(self, space: &Keyspace<'_>) -> Result<Option<Trim>, Stop> {
        let Some(to) = self.to else {
            return match self.limit {
                Some(limit) if limit > 0 => Err("ERR syntax error, LIMIT cannot be used without \
                                                 specifying a trimming strategy"
                    .into()),
                _ => Ok(None),
            };
        };
        let limit = match self.limit {
            Some(_) if !self.is_approximate => {
                return Err(
                    "ERR syntax error, LIMIT cannot be used without the special ~ option".into()
                );
            }
            Some(limit) => limit,
            None if self.is_approximate => match space.context().packed.node_entries as u64 {
                u64::MAX => LEAST_LIMIT,
                most => most.saturating_mul(NODES_OF_LIMIT).min(MOST_LIMIT),
            },
            None => 0,
        };
        Ok(Some(Trim { to, is_approximate: self.is_approximate, limit }))
    }
}

/// The options of XADD, up to its id, or of XTRIM.
pub fn add_options(
    space: &Keyspace<'_>,
    args: &[&[u8]],
    adds: bool,
) -> Result<StreamAddOptions, Stop> {
    let (mut options, mut trim, mut at) = (StreamAddOptions::default(), TrimOptions::default(), 2);
    while let Some(&option) = args.get(at) {
        let has_value = at + 1 < args.len();
        if adds && option == b"*" {
            break;
        }
        if has_value && (is(option, "MAXLEN") || is(option, "MINID")) {
            at = trim.take(args, at)?;
        } else if has_value && is(option, "LIMIT") {
            match integer(args[at + 1])? {
                limit @ 0.. => trim.limit = Some(limit as u64),
                _ => return Err("ERR The LIMIT argument must be >= 0.".into()),
            }
            at += 2;
        } else if adds && is(option, "NOMKSTREAM") {
            options.keeps_absent = true;
            at += 1;
        } else if adds {
            new_id(option)?;
            break;
        } else {
            return Err(SYNTAX.into());
        }
    }
    options.id_at = at;
    options.trim = trim.finish(space)?;
    Ok(options)
}

/// The error where a command needs a group.
pub fn no_group(key: &[u8], group: &[u8]) -> String {
    let (key, group) = (String::from_utf8_lossy(key), String::from_utf8_lossy(group));
    format!("NOGROUP No such key '{key}' or consumer group '{group}'")
}

/// A stream with a group, for commands that need both.
pub fn find_group<'t, 's>(
    space: &'s Keyspace<'t>,
    key: &'s [u8],
    name: &[u8],
) -> Result<(StoredStream<'t, 's>, Group<'t>), Stop> {
    let stream = read(space, key)?;
    let group = stream.group(name)?.ok_or_else(|| Stop::from(no_group(key, name)))?;
    Ok((stream, group))
}

/// Replies an entry.
pub fn reply_entry(reply: &mut Reply<'_>, entry: &StreamEntry<'_>) {
    reply.array(2);
    reply.bulk(&entry.id.text());
    reply.array(entry.strings.len());
    entry.strings.iter().for_each(|string| reply.bulk(string));
}

/// Replies the entries between two ids, `most` at most, 0 for any number. Returns how many.
pub fn reply_range(
    reply: &mut Reply<'_>,
    stream: &StoredStream<'_, '_>,
    (from, to): (StreamId, StreamId),
    most: usize,
    mut visit: impl FnMut(StreamId),
) -> Result<usize, Stop> {
    let (position, mut count) = (reply.position(), 0);
    stream.ascend(from, &mut |entry| {
        if entry.id > to {
            return false;
        }
        reply_entry(reply, &entry);
        visit(entry.id);
        count += 1;
        count != most && !reply.is_too_long()
    })?;
    reply.array_before(position, count);
    Ok(count)
}
