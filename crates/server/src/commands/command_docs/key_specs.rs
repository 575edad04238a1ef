//! Key specifications, as in COMMAND INFO.

use crate::catalogue::{self, KeySpec, KeysBegin, KeysFound, READ, Subcommand, WRITE, flag_names};
use crate::resp::reply::Reply;

/// The specifications of a subcommand: a subcommand on data has the keys of its command.
pub fn of_subcommand(subcommand: &Subcommand) -> Vec<KeySpec> {
    if subcommand.flags & (READ | WRITE) == 0 {
        return Vec::new();
    }
    let words: Vec<&[u8]> = subcommand.name.split('|').map(str::as_bytes).collect();
    let command = catalogue::command(words[0]).expect("subcommands are those of commands");
    command.shown_keys().map(|spec| spec.of_subcommand(&words)).collect()
}

fn pairs(reply: &mut Reply<'_>, pairs: &[(&str, i32)]) {
    reply.map(pairs.len());
    for (name, value) in pairs {
        reply.bulk(name.as_bytes());
        reply.integer(i64::from(*value));
    }
}

/// The head of a part of a specification.
fn part(reply: &mut Reply<'_>, name: &str, kind: &str) {
    reply.bulk(name.as_bytes());
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(kind.as_bytes());
    reply.bulk(b"spec");
}

pub fn write(spec: &KeySpec, reply: &mut Reply<'_>) {
    reply.map(3 + usize::from(spec.notes.is_some()));
    if let Some(notes) = spec.notes {
        reply.bulk(b"notes");
        reply.bulk(notes.as_bytes());
    }
    reply.bulk(b"flags");
    let flags = flag_names(spec.flags);
    reply.set(flags.len());
    flags.for_each(|flag| reply.simple(flag));
    match spec.begin {
        KeysBegin::At(place) => {
            part(reply, "begin_search", "index");
            pairs(reply, &[("index", place)]);
        }
        KeysBegin::Behind(word, from) => {
            part(reply, "begin_search", "keyword");
            reply.map(2);
            reply.bulk(b"keyword");
            reply.bulk(word.as_bytes());
            reply.bulk(b"startfrom");
            reply.integer(i64::from(from));
        }
        KeysBegin::Unknown => {
            part(reply, "begin_search", "unknown");
            reply.map(0);
        }
    }
    match spec.found {
        KeysFound::Range { last, step } => {
            part(reply, "find_keys", "range");
            pairs(reply, &[("lastkey", last), ("keystep", step), ("limit", 0)]);
        }
        KeysFound::Half => {
            part(reply, "find_keys", "range");
            pairs(reply, &[("lastkey", -1), ("keystep", 1), ("limit", 2)]);
        }
        KeysFound::Counted { step } => {
            part(reply, "find_keys", "keynum");
            pairs(reply, &[("keynumidx", 0), ("firstkey", 1), ("keystep", step)]);
        }
        KeysFound::Unknown => {
            part(reply, "find_keys", "unknown");
            reply.map(0);
        }
    }
}

/// The flags of a specification, where the search begins, and which keys there are from there on.
#[cfg(test)]
pub fn shown(spec: &KeySpec) -> String {
    let begin = match spec.begin {
        KeysBegin::At(place) => format!("@{place}"),
        KeysBegin::Behind(word, from) => format!("{word}@{from}"),
        KeysBegin::Unknown => "?".to_string(),
    };
    let found = match spec.found {
        KeysFound::Range { last, step } => format!("..{last}/{step}"),
        KeysFound::Half => "..-1/1:2".to_string(),
        KeysFound::Counted { .. } => "#".to_string(),
        KeysFound::Unknown => "?".to_string(),
    };
    format!("{} {begin} {found}", flag_names(spec.flags).collect::<Vec<_>>().join("+"))
}
