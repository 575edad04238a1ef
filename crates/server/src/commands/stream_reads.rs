//! XREAD and XREADGROUP: new entries, or entries not acknowledged by a consumer.

use super::blocking::nothing_yet;
use super::stream_arguments::{count, no_group, read, reply_entry, reply_range, strict_id};
use super::streams::tell;
use super::{Done, SYNTAX, integer, is};
use crate::base::stream_id::StreamId;
use crate::data::head::Kind;
use crate::data::keyspace::{Keyspace, Stop, Wait};
use crate::data::stream_groups::{Group, Pending, PendingEdit, Seen, Shifts};
use crate::data::values::stream::StoredStream;
use crate::data::waiting::WaitLine;
use crate::resp::reply::Reply;
use hyades::Abort;
use std::time::Duration;

/// A consumer without new entries is noted as seen again after this time, in milliseconds.
const SEEN_AGAIN_MS: i64 = 100;

/// The request of a read.
#[derive(Default)]
struct ReadOptions<'a> {
    /// Most entries of each stream; 0: any number.
    count: usize,
    /// The command waits, for the given time or for ever.
    block: Option<Option<Duration>>,
    /// The group and the consumer.
    group: Option<(&'a [u8], &'a [u8])>,
    /// Entries are acknowledged as they are read.
    acknowledges: bool,
    keys: &'a [&'a [u8]],
    ids: &'a [&'a [u8]],
}

fn timeout(text: &[u8]) -> Result<Option<Duration>, Stop> {
    let wrong = || Stop::from("ERR timeout is not an integer or out of range");
    match integer(text).map_err(|_| wrong())? {
        ms @ 0.. => Ok(Some(Duration::from_millis(ms as u64)).filter(|time| !time.is_zero())),
        _ => Err("ERR timeout is negative".into()),
    }
}

/// Whether a request to read has the option BLOCK.
pub fn blocks(args: &[&[u8]]) -> bool {
    let mut rest = args.iter().skip(1);
    while let Some(option) = rest.next() {
        match () {
            () if is(option, "BLOCK") => return true,
            () if is(option, "STREAMS") => return false,
            () if is(option, "COUNT") => drop(rest.next()),
            () if is(option, "GROUP") => drop(rest.nth(1)),
            () => {}
        }
    }
    false
}

fn read_options<'a>(args: &'a [&'a [u8]], name: &str) -> Result<ReadOptions<'a>, Stop> {
    let (mut options, mut at) = (ReadOptions::default(), 1);
    let has_group = name == "xreadgroup";
    let only_group = |option: &str| -> Result<(), Stop> {
        let text = format!(
            "ERR The {option} option is only supported by XREADGROUP. You called XREAD instead."
        );
        if has_group { Ok(()) } else { Err(text.into()) }
    };
    while let Some(&option) = args.get(at) {
        let more = args.len() - at - 1;
        at += match () {
            () if is(option, "BLOCK") && more > 0 => {
                options.block = Some(timeout(args[at + 1])?);
                2
            }
            () if is(option, "COUNT") && more > 0 => {
                options.count = count(args[at + 1])?;
                2
            }
            () if is(option, "STREAMS") && more > 0 => {
                let streams = &args[at + 1..];
                if !streams.len().is_multiple_of(2) {
                    let sign = if has_group { '>' } else { '$' };
                    return Err(format!(
                        "ERR Unbalanced '{name}' list of streams: for each stream key an ID or \
                         '{sign}' must be specified."
                    )
                    .into());
                }
                (options.keys, options.ids) = streams.split_at(streams.len() / 2);
                break;
            }
            () if is(option, "GROUP") && more >= 2 => {
                only_group("GROUP")?;
                options.group = Some((args[at + 1], args[at + 2]));
                3
            }
            () if is(option, "NOACK") => {
                only_group("NOACK")?;
                options.acknowledges = true;
                1
            }
            () => return Err(SYNTAX.into()),
        };
    }
    if options.keys.is_empty() {
        return Err(SYNTAX.into());
    }
    if has_group && options.group.is_none() {
        return Err("ERR Missing GROUP option for XREADGROUP".into());
    }
    Ok(options)
}

/// From where a stream is read.
#[derive(Clone, Copy)]
enum ReadFrom {
    /// Behind an id.
    Behind(StreamId),
    /// The entries not yet delivered to the group.
    New,
}

fn read_from(id: &[u8], stream: &StoredStream<'_, '_>, has_group: bool) -> Result<ReadFrom, Stop> {
    Ok(match id {
        b"$" if has_group => {
            return Err("ERR The $ ID is meaningless in the context of XREADGROUP: you want to \
                        read the history of this consumer by specifying a proper ID, or use the > \
                        ID to get new messages. The $ ID would just return an empty result set."
                .into());
        }
        b"$" => ReadFrom::Behind(stream.head().last),
        b">" if has_group => ReadFrom::New,
        b">" => {
            return Err("ERR The > ID can be specified only when calling XREADGROUP using the \
                        GROUP <group> <consumer> option."
                .into());
        }
        id => match strict_id(id)? {
            // As in Redis, which has this id for `>`.
            StreamId::MAX if has_group => ReadFrom::New,
            id => ReadFrom::Behind(id),
        },
    })
}

/// A key, and the position of the read.
struct ReadSource<'t, 's> {
    key: &'s [u8],
    stream: StoredStream<'t, 's>,
    from: ReadFrom,
}

/// The streams to read; without keys of other types, if the command has waited.
fn sources<'t, 's>(
    space: &'s Keyspace<'t>,
    options: &ReadOptions<'s>,
) -> Result<Vec<ReadSource<'t, 's>>, Stop> {
    let mut all = Vec::new();
    for (&key, id) in options.keys.iter().zip(options.ids) {
        if options.group.is_none() && super::blocking::is_passed_over(space, key, Kind::Stream)? {
            continue;
        }
        let stream = read(space, key)?;
        if let Some((name, _)) = options.group
            && stream.group(name)?.is_none()
        {
            return Err(format!("{} in XREADGROUP with GROUP option", no_group(key, name)).into());
        }
        let from = read_from(id, &stream, options.group.is_some())?;
        all.push(ReadSource { key, stream, from });
    }
    Ok(all)
}

/// The head of the entries of a key.
fn reply_key(reply: &mut Reply<'_>, key: &[u8]) {
    if !reply.is_resp3() {
        reply.array(2);
    }
    reply.bulk(key);
}

impl ReadSource<'_, '_> {
    /// Replies the entries behind an id, if there are any.
    fn reply_behind(
        &self,
        id: StreamId,
        most: usize,
        reply: &mut Reply<'_>,
        mut visit: impl FnMut(StreamId),
    ) -> Result<bool, Stop> {
        let Some(next) = id.next().filter(|_| self.stream.head().last > id) else {
            return Ok(false);
        };
        let position = reply.position();
        reply_key(reply, self.key);
        let range = (next, StreamId::MAX);
        let is_any = reply_range(reply, &self.stream, range, most, &mut visit)? > 0;
        if !is_any {
            reply.truncate(position);
        }
        Ok(is_any)
    }

    /// Replies the entries not yet delivered to a group, to a consumer.
    fn deliver(
        &self,
        group: &mut Group<'_>,
        options: &ReadOptions<'_>,
        now: i64,
        reply: &mut Reply<'_>,
    ) -> Result<Option<Shifts>, Stop> {
        let (mut ids, (name, consumer)) = (Vec::new(), options.group.expect("it has a group"));
        if !self.reply_behind(group.last, options.count, reply, |id| ids.push(id))? {
            return Ok(None);
        }
        let head = self.stream.head();
        for id in &ids {
            group.read = match group.read.filter(|_| !head.has_gaps_from(*id)) {
                Some(read) => Some(read.saturating_add(1)),
                None => head.added_up_to(*id),
            };
            group.last = *id;
        }
        self.stream.store_group(name, group)?;
        let mut shifts = Shifts::new();
        if !options.acknowledges {
            shifts = group.edit_pending(&ids, &mut |_, _| {
                let consumer = consumer.into();
                Ok(PendingEdit::Set(Pending { consumer, time: now, count: 1 }))
            })?;
        }
        Ok(Some(shifts))
    }

    /// Replies the entries not acknowledged by a consumer, from behind an id on.
    fn reply_history(
        &self,
        group: &Group<'_>,
        options: &ReadOptions<'_>,
        (behind, now): (StreamId, i64),
        reply: &mut Reply<'_>,
    ) -> Result<(), Stop> {
        let (_, consumer) = options.group.expect("it has a group");
        let owned = group.consumer(consumer)?.map_or(0, |consumer| consumer.pending as usize);
        let most = if options.count == 0 { owned } else { owned.min(options.count) };
        let (mut ids, mut found) = (Vec::new(), Vec::new());
        if let Some(from) = behind.next().filter(|_| most > 0) {
            group.pending_from(from, &mut |id, pending| {
                if *pending.consumer == *consumer {
                    ids.push(id);
                }
                ids.len() < most
            })?;
        }
        reply_key(reply, self.key);
        reply.array(ids.len());
        self.stream.each(&ids, &mut |id, entry| match entry {
            Some(entry) => {
                found.push(id);
                reply_entry(reply, entry);
            }
            None => {
                reply.array(2);
                reply.bulk(&id.text());
                reply.null_array();
            }
        })?;
        group.edit_pending(&found, &mut |_, old| {
            Ok(match old {
                Some(Pending { consumer, count, .. }) => PendingEdit::Set(Pending {
                    consumer: consumer.into_owned().into(),
                    time: now,
                    count: count.saturating_add(1),
                }),
                None => PendingEdit::Keep,
            })
        })?;
        Ok(())
    }

    /// Replies the entries for a consumer of a group, if there are any.
    fn reply_to_consumer(
        &self,
        (group, name): (&[u8], &[u8]),
        options: &ReadOptions<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<bool, Stop> {
        let now = self.stream.entry().space().now_ms();
        // The same key may have been read before.
        let mut group = self.stream.group(group)?.ok_or(Abort::Conflict)?;
        let (mut shifts, mut is_any, mut is_active) = (Shifts::new(), true, false);
        match self.from {
            ReadFrom::New => match self.deliver(&mut group, options, now, reply)? {
                Some(delivered) => (shifts, is_active) = (delivered, !options.acknowledges),
                None => is_any = false,
            },
            ReadFrom::Behind(id) => self.reply_history(&group, options, (id, now), reply)?,
        }
        if !is_any {
            let known = group.consumer(name)?;
            if known.is_some_and(|known| now - known.seen < SEEN_AGAIN_MS) {
                return Ok(false);
            }
        }
        if group.settle(&shifts, Some(Seen { name, now, is_active }))? {
            tell(self.stream.entry(), "xgroup-createconsumer");
        }
        Ok(is_any)
    }
}

/// The request, with `$` replaced by the ids at the time of the run.
fn resolved(
    args: &[&[u8]],
    sources: &[ReadSource<'_, '_>],
    options: &ReadOptions<'_>,
) -> Vec<Vec<u8>> {
    let mut request: Vec<Vec<u8>> = args.iter().map(|arg| arg.to_vec()).collect();
    let begin = args.len() - options.ids.len();
    for (at, id) in options.ids.iter().enumerate().filter(|(_, id)| **id == b"$") {
        let source = sources.iter().find(|source| source.key == options.keys[at]);
        let last = source.map_or(StreamId::ZERO, |source| source.stream.head().last);
        debug_assert_eq!(*id, b"$");
        request[begin + at] = last.text();
    }
    request
}

fn read_all(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>, name: &str) -> Done {
    let options = read_options(args, name)?;
    let sources = sources(space, &options)?;
    let (position, mut pairs) = (reply.position(), 0);
    for source in &sources {
        let is_any = match (source.from, options.group) {
            (_, Some(names)) => source.reply_to_consumer(names, &options, reply)?,
            (ReadFrom::Behind(id), None) => {
                source.reply_behind(id, options.count, reply, |_| {})?
            }
            (ReadFrom::New, None) => false,
        };
        pairs += usize::from(is_any);
    }
    if pairs > 0 {
        reply.pairs_before(position, pairs);
        return Ok(());
    }
    let Some(timeout) = options.block else {
        reply.null_array();
        return Ok(());
    };
    let line = match options.group {
        Some((group, _)) => WaitLine::Group(group.to_vec()),
        None => WaitLine::Free,
    };
    let request = resolved(args, &sources, &options);
    let keys = options.keys.iter().map(|key| space.wait_key(Kind::Stream, key)).collect();
    nothing_yet(space, Wait { keys, line, timeout, request, is_silent: false }, true, reply);
    Ok(())
}

pub fn xread(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    read_all(space, args, reply, "xread")
}

pub fn xreadgroup(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    read_all(space, args, reply, "xreadgroup")
}
