//! What a request is in cluster mode: the slots of its keys, and whether the request leaves
//! database 0, or its slot in another way.

use super::keys::NOT_KEY;
use super::{Command, RequestKeys};
use crate::base::hash_slot::KeySlots;
use crate::resp::{is, number};

/// The slots of a request's keys, and of its channels of a shard. The request has the number of
/// arguments that its command takes.
pub fn slots_of(command: &Command, args: &[&[u8]]) -> KeySlots {
    if command.keys.is_empty() {
        return KeySlots::None;
    }
    let found = RequestKeys::of(command, args);
    let is_of_shard = command.keys.iter().any(|spec| spec.flags & NOT_KEY != 0);
    let channels = if is_of_shard { found.channel_places(args.len()) } else { 0..0 };
    let places = found.keys.iter().map(|(at, _)| *at).chain(channels);
    places.map(|at| KeySlots::of(args[at])).fold(KeySlots::None, KeySlots::and)
}

/// Why a request is refused in cluster mode, whatever the slots of its keys: it is about another
/// database than 0, or looks up keys that it does not name.
pub fn out_of_cluster(command: &Command, args: &[&[u8]]) -> Option<&'static str> {
    // What is no number is refused by the command itself.
    let is_other = |text: &[u8]| number::integer(text).is_some_and(|number| number != 0);
    let behind = |word: &str, is_so: &dyn Fn(&[u8]) -> bool| {
        args.windows(2).skip(2).any(|pair| is(pair[0], word) && is_so(pair[1]))
    };
    match command.name {
        "select" if is_other(args[1]) => Some("ERR SELECT is not allowed in cluster mode"),
        "move" => Some("ERR MOVE is not allowed in cluster mode"),
        "swapdb" => Some("ERR SWAPDB is not allowed in cluster mode"),
        "copy" if behind("DB", &is_other) => {
            Some("ERR Copying to another database is not allowed in cluster mode")
        }
        "sort" | "sort_ro" if behind("BY", &|pattern| pattern.contains(&b'*')) => {
            Some("ERR BY option of SORT denied in Cluster mode.")
        }
        "sort" | "sort_ro" if behind("GET", &|pattern| pattern != b"#") => {
            Some("ERR GET option of SORT denied in Cluster mode.")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;

    fn request(line: &str) -> (&'static Command, Vec<&[u8]>) {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        (catalogue::command(args[0]).unwrap(), args)
    }

    #[test]
    fn the_slots_of_a_request_are_those_of_all_keys_that_it_names() {
        let slots = |line| {
            let (command, args) = request(line);
            slots_of(command, &args)
        };
        assert_eq!(slots("PING"), KeySlots::None);
        assert_eq!(slots("GET a"), KeySlots::One(15_495));
        assert_eq!(slots("MSET a 1 {a}b 2"), KeySlots::One(15_495));
        assert_eq!(slots("MSET a b c d"), KeySlots::Several);
        assert_eq!(slots("EVAL x 2 a {a} b"), KeySlots::One(15_495));
        assert_eq!(slots("EVAL x 0 a b"), KeySlots::None);
        assert_eq!(slots("SORT a STORE b"), KeySlots::Several);
        assert_eq!(slots("XREAD COUNT 1 STREAMS a b 0 0"), KeySlots::Several);
        assert_eq!(slots("PUBLISH a b"), KeySlots::None, "all servers have all channels");
        assert_eq!(slots("SPUBLISH a b"), KeySlots::One(15_495));
        assert_eq!(slots("SSUBSCRIBE a b"), KeySlots::Several);
    }

    #[test]
    fn there_is_database_0_alone() {
        let refused = |line| {
            let (command, args) = request(line);
            out_of_cluster(command, &args)
        };
        for line in [
            "SELECT 1",
            "MOVE a 0",
            "SWAPDB 0 1",
            "COPY a b DB 1",
            "COPY a b REPLACE db 2",
            "SORT a BY x*",
            "SORT_RO a ALPHA GET x",
        ] {
            assert!(refused(line).is_some(), "{line}");
        }
        for line in [
            "SELECT 0",
            "SELECT x",
            "COPY a b DB 0",
            "COPY db 1",
            "COPY a db",
            "SORT a BY nosort",
            "SORT a GET #",
            "SORT by x*",
        ] {
            assert_eq!(refused(line), None, "{line}");
        }
    }
}
