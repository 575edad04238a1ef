//! The keys of commands that Redis has and this server has not: rules can be tried on them, by ACL
//! DRYRUN, and they can be asked for, by COMMAND GETKEYS.

use super::needs::Need;
use crate::commands::is;
use smallvec::{SmallVec, smallvec};

/// Places of keys among the arguments of a command, and what is done with each.
pub type KeyNeeds = SmallVec<[(usize, Need); 4]>;

/// Commands by where their keys are.
const FIRST_READ: &[&str] = &[
    "geodist",
    "geohash",
    "geopos",
    "georadius_ro",
    "georadiusbymember_ro",
    "geosearch",
    "xpending",
    "xrange",
    "xrevrange",
];
const FIRST_WRITTEN: &[&str] =
    &["geoadd", "pfadd", "xack", "xadd", "xclaim", "xdel", "xsetid", "xtrim"];
const BEHIND_A_NUMBER: &[&str] = &["eval", "evalsha", "fcall"];
const READ_BEHIND_A_NUMBER: &[&str] = &["eval_ro", "evalsha_ro", "fcall_ro"];

/// The keys of a command that is not built: none if it has no such keys, or its arguments are not
/// right. `None` if its keys are not known here.
pub fn keys(args: &[&[u8]]) -> Option<KeyNeeds> {
    let name = String::from_utf8_lossy(args[0]).to_ascii_lowercase();
    let is_in = |names: &[&str]| names.contains(&name.as_str());
    let mut keys: KeyNeeds = match name.as_str() {
        _ if is_in(FIRST_READ) => smallvec![(1, Need::Read)],
        _ if is_in(FIRST_WRITTEN) => smallvec![(1, Need::Write)],
        _ if is_in(BEHIND_A_NUMBER) => behind_a_number(args, Need::Both),
        _ if is_in(READ_BEHIND_A_NUMBER) => behind_a_number(args, Need::Read),
        "xlen" => smallvec![(1, Need::Any)],
        "xautoclaim" => smallvec![(1, Need::Both)],
        "xgroup" => smallvec![(2, Need::Write)],
        "xinfo" => smallvec![(2, Need::Read)],
        "xread" | "xreadgroup" => of_streams(args),
        "pfcount" => (1..args.len()).map(|at| (at, Need::Read)).collect(),
        "pfdebug" => smallvec![(2, Need::Both)],
        "pfmerge" => {
            let sources = (2..args.len()).map(|at| (at, Need::Read));
            std::iter::once((1, Need::Both)).chain(sources).collect()
        }
        "georadius" | "georadiusbymember" => geo_radius(args),
        "geosearchstore" => smallvec![(1, Need::Write), (2, Need::Read)],
        _ => return None,
    };
    keys.retain(|(at, _)| *at < args.len());
    Some(keys)
}

/// Of a script: as many as its second argument says.
fn behind_a_number(args: &[&[u8]], need: Need) -> KeyNeeds {
    let count = args.get(2).and_then(|count| std::str::from_utf8(count).ok());
    let count = count.and_then(|count| count.parse::<usize>().ok()).unwrap_or(0);
    let count = if count <= args.len().saturating_sub(3) { count } else { 0 };
    (3..3 + count).map(|at| (at, need)).collect()
}

/// The first half of what is behind STREAMS: the other one is where to begin.
fn of_streams(args: &[&[u8]]) -> KeyNeeds {
    let Some(word) = args.iter().position(|arg| is(arg, "STREAMS")) else { return KeyNeeds::new() };
    let count = (args.len() - word - 1) / 2;
    (word + 1..=word + count).map(|at| (at, Need::Read)).collect()
}

/// The last STORE or STOREDIST counts. In front of them are a key, two or one for the middle, the
/// radius and its unit.
fn geo_radius(args: &[&[u8]]) -> KeyNeeds {
    let mut keys: KeyNeeds = smallvec![(1, Need::Read)];
    let is_option = |at: &usize| is(args[*at], "STORE") || is(args[*at], "STOREDIST");
    let option = (5..args.len().saturating_sub(1)).rev().find(is_option);
    keys.extend(option.map(|at| (at + 1, Need::Write)));
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(line: &str) -> String {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let Some(keys) = keys(&args) else { return "unknown".to_string() };
        let name = |at: usize| String::from_utf8_lossy(args[at]).into_owned();
        let letter = |need| ["?", "r", "w", "rw"][need as usize];
        let keys = keys.iter().map(|(at, need)| name(*at) + ":" + letter(*need));
        keys.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn keys_are_where_redis_has_them() {
        for (line, expected) in [
            ("PFCOUNT a b", "a:r b:r"),
            ("PFADD a b", "a:w"),
            ("PFMERGE a b c", "a:rw b:r c:r"),
            ("XLEN a", "a:?"),
            ("XADD a * f v", "a:w"),
            ("XGROUP CREATE a g $", "a:w"),
            ("XGROUP HELP", ""),
            ("XINFO STREAM a", "a:r"),
            ("XREAD COUNT 2 STREAMS a b 0 0", "a:r b:r"),
            ("XREAD COUNT 2", ""),
            ("XREADGROUP GROUP g c STREAMS a >", "a:r"),
            ("GEORADIUS a 1 2 3 M STOREDIST b", "a:r b:w"),
            ("GEORADIUS a 1 2 3 M STORE b STORE c", "a:r c:w"),
            ("GEORADIUS a 1 2 3 M STORE", "a:r"),
            ("GEORADIUSBYMEMBER a m 3 M STORE b", "a:r b:w"),
            ("GEOSEARCHSTORE a b", "a:w b:r"),
            ("EVAL x 2 a b c", "a:rw b:rw"),
            ("EVAL_RO x 1 a", "a:r"),
            ("EVAL x -1 a", ""),
            ("EVAL x 3 a b", ""),
            ("EVAL x 18446744073709551615 a", ""),
            ("EVAL", ""),
            ("CLUSTER INFO", "unknown"),
            ("GET a", "unknown"),
        ] {
            assert_eq!(needs(line), expected, "{line}");
        }
    }
}
