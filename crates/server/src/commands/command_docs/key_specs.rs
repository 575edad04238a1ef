//! Key specifications: where the keys of a command are, and what is done with them, as COMMAND INFO
//! tells it. They follow from the table, and from what COMMAND GETKEYSANDFLAGS says of a request.

use super::super::command_keys::{KeyFlags, count_place, flagged_keys};
use super::super::table::Command;
use super::find;
use crate::access::catalogue;
use crate::resp::reply::Reply;

/// Where the search for keys begins.
#[derive(Clone, Copy)]
enum KeysBegin {
    /// At this place of the request.
    At(i64),
    /// Behind this word, which is looked for from a place on; from the end, if that is negative.
    Behind(&'static str, i64),
    /// That depends on the request.
    Unknown,
}

/// Which keys there are from there on.
#[derive(Clone, Copy)]
enum KeysFound {
    /// Those with this distance, up to a last one, which is counted from the first, or from the end
    /// if it is negative.
    Range { last: i64, step: i64 },
    /// A number, and as many keys.
    Counted,
    /// That depends on the request.
    Unknown,
}

/// Where keys of a command are, and what is done with them.
pub struct KeySpec {
    notes: Option<&'static str>,
    flags: Vec<&'static str>,
    begin: KeysBegin,
    found: KeysFound,
}

/// A request with the fewest words, of which all are numbers: it has a key where there must be one.
fn shortest(command: &Command) -> Vec<&'static [u8]> {
    let first = usize::try_from(command.keys.0).unwrap_or(0);
    let words = (command.arity.unsigned_abs() as usize).max(first + 1);
    let mut request: Vec<&[u8]> = vec![&b"1"[..]; words];
    request[0] = command.name.as_bytes();
    request
}

/// Places of the keys in a request with the fewest words.
#[cfg(test)]
pub fn first_places(command: &Command) -> Vec<usize> {
    flagged_keys(command, &shortest(command)).into_iter().map(|(at, _)| at).collect()
}

/// Those of a command.
pub fn of(command: &Command) -> Vec<KeySpec> {
    let keys = flagged_keys(command, &shortest(command));
    let flags: Vec<KeyFlags> = keys.into_iter().map(|(_, flags)| flags).collect();
    let (first, last, step) = command.keys;
    let range = |flags: &[&'static str], first: i32, last: i32| KeySpec {
        notes: None,
        flags: flags.to_vec(),
        begin: KeysBegin::At(i64::from(first)),
        found: KeysFound::Range {
            last: i64::from(if last < 0 { last } else { last - first }),
            step: i64::from(step),
        },
    };
    let mut specs = Vec::new();
    match flags[..] {
        // The table does not know the keys.
        _ if first == 0 => {}
        // What is done with the first key differs from what is done with those behind it.
        [own, others, ..] if last != first && own != others => {
            specs.push(range(own, first, first));
            specs.push(range(others, first + 1, last));
        }
        [own, ..] => specs.push(range(own, first, last)),
        [] => {}
    }
    if let (Some(at), Some(own)) = (count_place(command), flags.last()) {
        specs.push(KeySpec {
            notes: None,
            flags: own.to_vec(),
            begin: KeysBegin::At(at as i64),
            found: KeysFound::Counted,
        });
    }
    complete(command.name, &mut specs);
    specs
}

/// What neither the table nor the shortest request tells.
fn complete(name: &str, specs: &mut Vec<KeySpec>) {
    let somewhere = |flags: &[&'static str], notes| KeySpec {
        notes: Some(notes),
        flags: flags.to_vec(),
        begin: KeysBegin::Unknown,
        found: KeysFound::Unknown,
    };
    let channels = |last| KeySpec {
        notes: None,
        flags: vec!["not_key"],
        begin: KeysBegin::At(1),
        found: KeysFound::Range { last, step: 1 },
    };
    match name {
        "set" | "bitfield" => {
            let [spec] = &mut specs[..] else { return };
            spec.flags = vec!["RW", "access", "update", "variable_flags"];
            spec.notes =
                Some("Whether it is read, and whether it is written, depends on the options");
        }
        "sort" | "sort_ro" => {
            specs.push(somewhere(
                &["RO", "access"],
                "BY and GET: the names follow from the elements",
            ));
            if name == "sort" {
                specs.push(somewhere(&["OW", "update"], "STORE may be anywhere in the request"));
            }
        }
        "migrate" => specs.push(KeySpec {
            notes: None,
            flags: vec!["RW", "access", "delete", "incomplete"],
            begin: KeysBegin::Behind("KEYS", -2),
            found: KeysFound::Range { last: -1, step: 1 },
        }),
        "spublish" => specs.push(channels(0)),
        "ssubscribe" | "sunsubscribe" => specs.push(channels(-1)),
        _ => {}
    }
}

/// Those of a subcommand: where its command has a key, those that read have it.
pub fn of_subcommand(command: &Command, categories: u32) -> Vec<KeySpec> {
    let reads = catalogue::category(b"read").expect("it is in the list");
    if categories & reads == 0 { Vec::new() } else { of(command) }
}

/// Those of a command, or of a subcommand by its whole name.
pub fn named(name: &str) -> Vec<KeySpec> {
    let Some((command, _)) = name.split_once('|') else {
        let is_container =
            catalogue::find(name.as_bytes()).is_some_and(|at| catalogue::all()[at].is_container);
        let command = find(name.as_bytes()).filter(|_| !is_container);
        return command.map(of).unwrap_or_default();
    };
    match (find(command.as_bytes()), catalogue::find(name.as_bytes())) {
        (Some(command), Some(at)) => of_subcommand(command, catalogue::all()[at].categories),
        _ => Vec::new(),
    }
}

fn pairs(reply: &mut Reply<'_>, pairs: &[(&str, i64)]) {
    reply.map(pairs.len());
    for (name, value) in pairs {
        reply.bulk(name.as_bytes());
        reply.integer(*value);
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

impl KeySpec {
    pub fn write(&self, reply: &mut Reply<'_>) {
        reply.map(3 + usize::from(self.notes.is_some()));
        if let Some(notes) = self.notes {
            reply.bulk(b"notes");
            reply.bulk(notes.as_bytes());
        }
        reply.bulk(b"flags");
        reply.set(self.flags.len());
        self.flags.iter().for_each(|flag| reply.simple(flag));
        match self.begin {
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
                reply.integer(from);
            }
            KeysBegin::Unknown => {
                part(reply, "begin_search", "unknown");
                reply.map(0);
            }
        }
        match self.found {
            KeysFound::Range { last, step } => {
                part(reply, "find_keys", "range");
                pairs(reply, &[("lastkey", last), ("keystep", step), ("limit", 0)]);
            }
            KeysFound::Counted => {
                part(reply, "find_keys", "keynum");
                pairs(reply, &[("keynumidx", 0), ("firstkey", 1), ("keystep", 1)]);
            }
            KeysFound::Unknown => {
                part(reply, "find_keys", "unknown");
                reply.map(0);
            }
        }
    }

    /// Its flags, where the search begins, and which keys there are from there on.
    #[cfg(test)]
    pub fn shown(&self) -> String {
        let begin = match self.begin {
            KeysBegin::At(place) => format!("@{place}"),
            KeysBegin::Behind(word, from) => format!("{word}@{from}"),
            KeysBegin::Unknown => "?".to_string(),
        };
        let found = match self.found {
            KeysFound::Range { last, step } => format!("..{last}/{step}"),
            KeysFound::Counted => "#".to_string(),
            KeysFound::Unknown => "?".to_string(),
        };
        format!("{} {begin} {found}", self.flags.join("+"))
    }
}
