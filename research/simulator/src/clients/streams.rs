//! The effects of commands for streams on the model, and their replies.

use super::commands::{Circumstances, Done};
use super::model::streams::{EntryId, StreamLog};
use super::model::{Model, WrongType};
use super::reply::{Answer, Expected};

const NO_GROUP: Expected = Expected::Error("NOGROUP");
const NOT_ABOVE: Expected = Expected::Error("ERR The ID specified in XADD is equal or smaller");

fn same(answer: Answer) -> Done {
    Ok(Expected::Same(answer))
}

fn count(count: usize) -> Done {
    same(Answer::Integer(count as i64))
}

fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| unreachable!("{text} is a number"))
}

/// An entry as shown in a reply; a deleted entry has no fields.
fn entry(id: EntryId, fields: Option<&Vec<String>>) -> Answer {
    let fields = fields.map(|fields| fields.iter().map(Answer::text).collect());
    Answer::Array(Some(vec![Answer::text(id.to_string()), Answer::Array(fields)]))
}

/// Runs a command for streams, if the request is one.
pub(crate) fn streams(model: &mut Model, at: Circumstances, args: &[&str]) -> Option<Done> {
    let found = |model: &mut Model, key: &str| -> Result<StreamLog, WrongType> {
        let stream = model.stream(at.database, key, at.now_ms)?;
        Ok(stream.map(|stream| model.log(stream)).unwrap_or_default())
    };
    Some(match args {
        ["XADD", key, rest @ ..] => add(model, at, key, rest),
        ["XLEN", key] => found(model, key).and_then(|log| count(log.entries.len())),
        ["XRANGE", key, "-", "+"] => found(model, key).and_then(|log| {
            let all = log.entries.iter().map(|(id, fields)| entry(*id, Some(fields)));
            same(Answer::Array(Some(all.collect())))
        }),
        ["XRANGE", key, from, "+", "COUNT", most] => found(model, key).and_then(|log| {
            let wanted = log.entries.range(EntryId::parse(from)..).take(number(most));
            let all = wanted.map(|(id, fields)| entry(*id, Some(fields)));
            same(Answer::Array(Some(all.collect())))
        }),
        ["XDEL", key, ids @ ..] => change(model, at, key, |log| {
            for id in ids.iter().map(|id| EntryId::parse(id)) {
                if log.entries.remove(&id).is_some() {
                    log.deleted = log.deleted.max(id);
                }
            }
        }),
        ["XTRIM", key, "MAXLEN", most] => change(model, at, key, |log| trim(log, number(most))),
        ["XTRIM", key, "MINID", id] => change(model, at, key, |log| {
            log.entries = log.entries.split_off(&EntryId::parse(id));
        }),
        ["XGROUP", "CREATE", key, name, id, options @ ..] => {
            create_group(model, at, (key, name), id, !options.is_empty())
        }
        ["XGROUP", "DESTROY", key, name] => destroy_group(model, at, key, name),
        ["XREADGROUP", "GROUP", name, consumer, "COUNT", most, rest @ ..] => {
            let (has_noack, rest) = match rest {
                ["NOACK", rest @ ..] => (true, rest),
                rest => (false, rest),
            };
            let ["STREAMS", key, id] = rest else { unreachable!("one stream is read") };
            let read = GroupRead { key, name, consumer, most: number(most), has_noack };
            match *id {
                ">" => read.deliver(model, at),
                _ => read.history(model, at),
            }
        }
        ["XACK", key, name, ids @ ..] => acknowledge(model, at, (key, name), ids),
        ["XCLAIM", key, name, consumer, "0", rest @ ..] => {
            claim(model, at, (key, name, consumer), rest)
        }
        _ => return None,
    })
}

fn trim(log: &mut StreamLog, most: usize) {
    while log.entries.len() > most {
        log.entries.pop_first();
    }
}

fn add(model: &mut Model, at: Circumstances, key: &str, args: &[&str]) -> Done {
    let (mut rest, mut creates, mut most) = (args, true, usize::MAX);
    loop {
        match rest {
            ["NOMKSTREAM", more @ ..] => (creates, rest) = (false, more),
            ["MAXLEN", length, more @ ..] => (most, rest) = (number(length), more),
            _ => break,
        }
    }
    let [id, fields @ ..] = rest else { unreachable!("an entry has an id") };
    let stream = model.stream(at.database, key, at.now_ms)?;
    if stream.is_none() && !creates {
        return same(Answer::Text(None));
    }
    let last = stream.map(|stream| model.log(stream).last).unwrap_or_default();
    let now = at.now_ms as u64;
    let behind = EntryId { seq: last.seq + 1, ..last };
    let id = match id.strip_suffix("-*") {
        _ if *id == "*" && now > last.ms => EntryId { ms: now, seq: 0 },
        _ if *id == "*" => behind,
        Some(ms) if number::<u64>(ms) == last.ms => behind,
        Some(ms) => EntryId { ms: number(ms), seq: 0 },
        None => EntryId::parse(id),
    };
    if id <= last {
        return Ok(NOT_ABOVE);
    }
    let stream = model.open_stream(at.database, key, at.now_ms)?;
    let mut log = model.log(stream);
    log.entries.insert(id, fields.iter().map(|field| field.to_string()).collect());
    (log.last, log.added) = (id, log.added + 1);
    trim(&mut log, most);
    model.changed(at.database, key, true);
    model.set_log(stream, log);
    same(Answer::text(id.to_string()))
}

/// Takes entries out of a stream. The reply is how many.
fn change(
    model: &mut Model,
    at: Circumstances,
    key: &str,
    edit: impl FnOnce(&mut StreamLog),
) -> Done {
    let Some(stream) = model.stream(at.database, key, at.now_ms)? else { return count(0) };
    let mut log = model.log(stream);
    let before = log.entries.len();
    edit(&mut log);
    let removed = before - log.entries.len();
    if removed > 0 {
        model.changed(at.database, key, true);
        model.set_log(stream, log);
    }
    count(removed)
}

const NO_STREAM: Expected = Expected::Error("ERR The XGROUP subcommand requires the key to exist");

fn create_group(
    model: &mut Model,
    at: Circumstances,
    (key, name): (&str, &str),
    id: &str,
    makes_stream: bool,
) -> Done {
    if model.stream(at.database, key, at.now_ms)?.is_none() && !makes_stream {
        return Ok(NO_STREAM);
    }
    let stream = model.open_stream(at.database, key, at.now_ms)?;
    let log = model.log(stream);
    if model.group(stream, name).is_some() {
        return Ok(Expected::Error("BUSYGROUP"));
    }
    let last = if id == "$" { log.last } else { EntryId::parse(id) };
    let group = model.new_group(last);
    model.set_group(stream, name, Some(group));
    model.changed(at.database, key, true);
    same(Answer::ok())
}

fn destroy_group(model: &mut Model, at: Circumstances, key: &str, name: &str) -> Done {
    let Some(stream) = model.stream(at.database, key, at.now_ms)? else { return Ok(NO_STREAM) };
    let is_there = model.group(stream, name).is_some();
    if is_there {
        model.set_group(stream, name, None);
        model.changed(at.database, key, true);
    }
    count(usize::from(is_there))
}

/// XREADGROUP of one stream.
struct GroupRead<'a> {
    key: &'a str,
    name: &'a str,
    consumer: &'a str,
    most: usize,
    has_noack: bool,
}

impl GroupRead<'_> {
    fn reply(&self, entries: Vec<Answer>) -> Done {
        let pair = vec![Answer::text(self.key), Answer::Array(Some(entries))];
        same(Answer::Array(Some(vec![Answer::Array(Some(pair))])))
    }

    /// Entries not yet delivered to the group.
    fn deliver(&self, model: &mut Model, at: Circumstances) -> Done {
        let Some(stream) = model.stream(at.database, self.key, at.now_ms)? else {
            return Ok(NO_GROUP);
        };
        let log = model.log(stream);
        let Some(mut group) = model.group(stream, self.name) else { return Ok(NO_GROUP) };
        let mut pending = model.peek_pending(stream, group.number);
        let is_new = |(id, _): &(&EntryId, &Vec<String>)| **id > group.last;
        let wanted: Vec<_> = log.entries.iter().filter(is_new).take(self.most).collect();
        pending.consumers.insert(self.consumer.to_string());
        let Some((last, _)) = wanted.last() else {
            model.set_pending(stream, group.number, pending);
            model.changed(at.database, self.key, false);
            return same(Answer::Array(None));
        };
        group.last = **last;
        if !self.has_noack {
            let own = |(id, _): &(&EntryId, _)| (**id, (self.consumer.to_string(), 1));
            pending.entries.extend(wanted.iter().map(own));
        }
        model.set_group(stream, self.name, Some(group));
        model.set_pending(stream, group.number, pending);
        model.changed(at.database, self.key, false);
        self.reply(wanted.into_iter().map(|(id, fields)| entry(*id, Some(fields))).collect())
    }

    /// Entries not acknowledged by the consumer.
    fn history(&self, model: &mut Model, at: Circumstances) -> Done {
        let Some(stream) = model.stream(at.database, self.key, at.now_ms)? else {
            return Ok(NO_GROUP);
        };
        let log = model.log(stream);
        let Some(group) = model.group(stream, self.name) else { return Ok(NO_GROUP) };
        let mut pending = model.peek_pending(stream, group.number);
        pending.consumers.insert(self.consumer.to_string());
        let own = pending.entries.iter_mut().filter(|(_, (owner, _))| owner == self.consumer);
        let mut all = Vec::new();
        for (id, (_, times)) in own.take(self.most) {
            let fields = log.entries.get(id);
            *times += u64::from(fields.is_some());
            all.push(entry(*id, fields));
        }
        model.set_pending(stream, group.number, pending);
        model.changed(at.database, self.key, false);
        self.reply(all)
    }
}

fn acknowledge(
    model: &mut Model,
    at: Circumstances,
    (key, name): (&str, &str),
    ids: &[&str],
) -> Done {
    let Some(stream) = model.stream(at.database, key, at.now_ms)? else { return count(0) };
    let Some(group) = model.group(stream, name) else { return count(0) };
    let mut pending = model.peek_pending(stream, group.number);
    let before = pending.entries.len();
    ids.iter().for_each(|id| drop(pending.entries.remove(&EntryId::parse(id))));
    let removed = before - pending.entries.len();
    model.set_pending(stream, group.number, pending);
    model.changed(at.database, key, false);
    count(removed)
}

fn claim(
    model: &mut Model,
    at: Circumstances,
    (key, name, consumer): (&str, &str, &str),
    rest: &[&str],
) -> Done {
    let Some(stream) = model.stream(at.database, key, at.now_ms)? else { return Ok(NO_GROUP) };
    let log = model.log(stream);
    let Some(group) = model.group(stream, name) else { return Ok(NO_GROUP) };
    let (mut pending, mut all) = (model.peek_pending(stream, group.number), Vec::new());
    pending.consumers.insert(consumer.to_string());
    let (forces, only_ids) = (rest.contains(&"FORCE"), rest.contains(&"JUSTID"));
    for word in rest.iter().filter(|word| word.contains('-')) {
        let id = EntryId::parse(word);
        let before = pending.entries.get(&id).map(|(_, times)| *times);
        let Some(fields) = log.entries.get(&id) else {
            pending.entries.remove(&id);
            continue;
        };
        if before.is_none() && !forces {
            continue;
        }
        let times = before.unwrap_or(1) + u64::from(!only_ids);
        pending.entries.insert(id, (consumer.to_string(), times));
        all.push(match only_ids {
            true => Answer::text(id.to_string()),
            false => entry(id, Some(fields)),
        });
    }
    model.set_pending(stream, group.number, pending);
    model.changed(at.database, key, false);
    same(Answer::Array(Some(all)))
}
