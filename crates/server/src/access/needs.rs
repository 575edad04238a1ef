//! What a request needs: which keys it reads and writes, and which channels it names.

use crate::commands::table::Command;
use crate::commands::{is, key_places};
use smallvec::SmallVec;

/// What is done with a key, or may be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Need {
    /// Only whether it is there is told: the right to read it or to write it is enough.
    Any = 0,
    /// Its value is read.
    Read = 1,
    /// It is written.
    Write = 2,
    /// Both.
    Both = 3,
}

impl Need {
    /// Both of these.
    pub fn and(self, other: Need) -> Need {
        match self as u8 | other as u8 {
            0 => Need::Any,
            1 => Need::Read,
            2 => Need::Write,
            _ => Need::Both,
        }
    }

    /// Whether what allows `self` allows the other.
    pub fn covers(self, other: Need) -> bool {
        self as u8 & other as u8 == other as u8
    }

    /// How a rule begins that allows it.
    pub fn prefix(self) -> &'static [u8] {
        match self {
            Need::Read => b"%R~",
            Need::Write => b"%W~",
            Need::Any | Need::Both => b"~",
        }
    }
}

/// The channels that a command names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedChannels {
    /// None.
    None,
    /// Its first argument.
    First,
    /// All its arguments.
    All,
    /// All its arguments, which are patterns.
    Patterns,
}

/// What a request needs.
pub struct Needs {
    /// Places of its keys among its arguments.
    pub keys: SmallVec<[(usize, Need); 4]>,
    /// Its channels.
    pub channels: NamedChannels,
}

impl Needs {
    /// Of the arguments of a command, which takes their number.
    pub fn of(command: &Command, args: &[&[u8]]) -> Needs {
        let places = key_places(command, args).into_iter().enumerate();
        let keys = places.map(|(nth, at)| (at, need(command, nth, args))).collect();
        let channels = match command.name {
            "publish" | "spublish" => NamedChannels::First,
            "subscribe" | "ssubscribe" => NamedChannels::All,
            "psubscribe" => NamedChannels::Patterns,
            _ => NamedChannels::None,
        };
        Needs { keys, channels }
    }

    /// Nothing: of a command with a wrong number of arguments.
    pub fn nothing() -> Needs {
        Needs { keys: SmallVec::new(), channels: NamedChannels::None }
    }

    /// Of the arguments of a command that is not built, if its keys are known.
    pub fn of_unbuilt(args: &[&[u8]]) -> Option<Needs> {
        Some(Needs { keys: super::unbuilt::keys(args)?, channels: NamedChannels::None })
    }

    /// Places of the channels among the arguments.
    pub fn channel_places(&self, arguments: usize) -> std::ops::Range<usize> {
        match self.channels {
            NamedChannels::None => 0..0,
            NamedChannels::First => 1..arguments.min(2),
            NamedChannels::All | NamedChannels::Patterns => 1..arguments,
        }
    }
}

/// What a command needs of its keys, but for those that follow.
fn need(command: &Command, nth: usize, args: &[&[u8]]) -> Need {
    let is_first = nth == 0;
    match command.name {
        "exists" | "hexists" | "hlen" | "hstrlen" | "llen" | "memory" | "object" | "scard"
        | "sismember" | "strlen" | "touch" | "type" | "watch" | "zcard" => Need::Any,
        "blmpop" | "blpop" | "brpop" | "bzmpop" | "bzpopmax" | "bzpopmin" | "decr" | "decrby"
        | "getdel" | "getex" | "getset" | "hincrby" | "hincrbyfloat" | "incr" | "incrby"
        | "incrbyfloat" | "lmpop" | "lpop" | "migrate" | "move" | "rpop" | "setbit" | "spop"
        | "zincrby" | "zmpop" | "zpopmax" | "zpopmin" => Need::Both,
        "blmove" | "brpoplpush" | "lmove" | "rename" | "renamenx" | "rpoplpush" | "smove" => {
            if is_first {
                Need::Both
            } else {
                Need::Write
            }
        }
        // What is stored stands first, or last.
        "bitop" | "sdiffstore" | "sinterstore" | "sunionstore" | "zdiffstore" | "zinterstore"
        | "zrangestore" | "zunionstore" => {
            if is_first {
                Need::Write
            } else {
                Need::Read
            }
        }
        "copy" | "sort" => {
            if is_first {
                Need::Read
            } else {
                Need::Write
            }
        }
        "set" if args.iter().skip(3).any(|arg| is(arg, "GET")) => Need::Both,
        "bitfield" => bitfield(args),
        _ if command.writes() => Need::Write,
        _ => Need::Read,
    }
}

/// BITFIELD reads alone if all its operations are GET.
fn bitfield(args: &[&[u8]]) -> Need {
    let mut rest = args.get(2..).unwrap_or_default();
    loop {
        rest = match rest {
            [] => return Need::Read,
            [word, _, _, after @ ..] if is(word, "GET") => after,
            [word, _, after @ ..] if is(word, "OVERFLOW") => after,
            _ => return Need::Both,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::table;

    fn needs(line: &str) -> String {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let command = &table::all()[table::find(args[0]).unwrap()];
        let needs = Needs::of(command, &args);
        let name = |at: usize| String::from_utf8_lossy(args[at]).into_owned();
        let letter = |need| ["?", "r", "w", "rw"][need as usize];
        let keys = needs.keys.iter().map(|(at, need)| name(*at) + ":" + letter(*need));
        let channels = needs.channel_places(args.len()).map(|at| format!("#{}", name(at)));
        keys.chain(channels).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_key_is_read_or_written() {
        for (line, expected) in [
            ("GET a", "a:r"),
            ("SET a b", "a:w"),
            ("SET a GET", "a:w"),
            ("SET a b NX GET", "a:rw"),
            ("MSET a 1 b 2", "a:w b:w"),
            ("EXISTS a b", "a:? b:?"),
            ("COPY a b", "a:r b:w"),
            ("RENAME a b", "a:rw b:w"),
            ("BITOP AND a b c", "a:w b:r c:r"),
            ("SORT a BY x* STORE b", "a:r b:w"),
            ("ZUNIONSTORE a 2 b c WEIGHTS 1 2", "a:w b:r c:r"),
            ("ZUNION 2 b c", "b:r c:r"),
            ("SINTERCARD -1 b", ""),
            ("BLMPOP 0 2 a b LEFT", "a:rw b:rw"),
            ("LMPOP 1 a LEFT", "a:rw"),
            ("BITFIELD a GET u4 0 GET u4 4", "a:r"),
            ("BITFIELD a GET u4 0 SET u4 4 1", "a:rw"),
            ("OBJECT ENCODING a", "a:?"),
            ("MIGRATE h 1 a 0 1", "a:rw"),
            ("MIGRATE h 1 a 0 1 KEYS b", "a:rw"),
            ("MIGRATE h 1  0 1 COPY KEYS a b", "a:rw b:rw"),
            ("MIGRATE h 1  0 1 AUTH KEYS KEYS a", "a:rw"),
            ("MIGRATE h 1  0 1 AUTH2 KEYS 1 KEYS a", "a:rw"),
            ("MIGRATE h 1  0 1 KEYS", ""),
            // The key that has an empty name.
            ("MIGRATE h 1  0 1", ":rw"),
            ("MIGRATE h 1  0 1 COPY AUTH2 KEYS", ":rw"),
            ("PUBLISH a b", "#a"),
            ("PSUBSCRIBE a b", "#a #b"),
            ("UNSUBSCRIBE a", ""),
            ("PING", ""),
        ] {
            assert_eq!(needs(line), expected, "{line}");
        }
    }
}
