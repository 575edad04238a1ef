//! The commands and subcommands that Redis has and this server has not: their categories, and the
//! keys in their requests, which ACL DRYRUN and COMMAND GETKEYS tell.

use super::keys::{ACCESS, KeyFlags, RO, RW, UPDATE};
use crate::resp::{is, number};
use smallvec::{SmallVec, smallvec};

/// Categories, and the names that are in all of them and in no other.
pub const UNBUILT: &[(&str, &str)] = &[
    ("read hyperloglog slow", "pfcount"),
    ("read geo slow", "geodist geohash geopos georadius_ro georadiusbymember_ro geosearch"),
    ("read stream fast", "xlen"),
    ("read stream slow", "xinfo|consumers xinfo|groups xinfo|stream xpending xrange xrevrange"),
    ("read stream slow blocking", "xread"),
    ("write hyperloglog admin slow dangerous", "pfdebug"),
    ("write hyperloglog fast", "pfadd"),
    ("write hyperloglog slow", "pfmerge"),
    ("write geo slow", "geoadd georadius georadiusbymember geosearchstore"),
    ("write stream fast", "xack xadd xautoclaim xclaim xdel xsetid"),
    (
        "write stream slow",
        "xgroup|create xgroup|createconsumer xgroup|delconsumer xgroup|destroy xgroup|setid \
         xtrim",
    ),
    ("write stream slow blocking", "xreadgroup"),
    ("write slow scripting", "function|delete function|load function|restore"),
    ("hyperloglog admin slow dangerous", "pfselftest"),
    ("stream slow", "xgroup|help xinfo|help"),
    (
        "admin slow dangerous",
        "cluster|addslots cluster|addslotsrange cluster|bumpepoch cluster|count-failure-reports \
         cluster|delslots cluster|delslotsrange cluster|failover cluster|flushslots \
         cluster|forget cluster|meet cluster|replicas cluster|replicate cluster|reset \
         cluster|saveconfig cluster|set-config-epoch cluster|setslot cluster|slaves failover \
         module|list module|load module|loadex module|unload psync replconf replicaof slaveof \
         sync",
    ),
    ("fast connection", "asking readonly readwrite"),
    (
        "slow",
        "cluster cluster|countkeysinslot cluster|getkeysinslot cluster|help cluster|info \
         cluster|keyslot cluster|links cluster|myid cluster|nodes cluster|shards cluster|slots \
         memory|malloc-stats memory|purge module module|help script xgroup xinfo",
    ),
    ("slow connection", "client|caching client|tracking client|trackinginfo"),
    (
        "slow scripting",
        "eval eval_ro evalsha evalsha_ro fcall fcall_ro function|dump function|help function|kill \
         function|stats script|debug script|exists script|flush script|help script|kill \
         script|load",
    ),
];

/// Places of keys among the arguments of a command, and what is done with each.
type KeyPlaces = SmallVec<[(usize, KeyFlags); 4]>;

/// The value is read.
const READS: KeyFlags = RO | ACCESS;
/// The value is written.
const WRITES: KeyFlags = RW | UPDATE;
/// Both.
const READS_AND_WRITES: KeyFlags = RW | ACCESS | UPDATE;

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
pub fn keys(args: &[&[u8]]) -> Option<KeyPlaces> {
    let name = String::from_utf8_lossy(args[0]).to_ascii_lowercase();
    let is_in = |names: &[&str]| names.contains(&name.as_str());
    let mut keys: KeyPlaces = match name.as_str() {
        _ if is_in(FIRST_READ) => smallvec![(1, READS)],
        _ if is_in(FIRST_WRITTEN) => smallvec![(1, WRITES)],
        _ if is_in(BEHIND_A_NUMBER) => behind_a_number(args, READS_AND_WRITES),
        _ if is_in(READ_BEHIND_A_NUMBER) => behind_a_number(args, READS),
        "xlen" => smallvec![(1, RO)],
        "xautoclaim" => smallvec![(1, READS_AND_WRITES)],
        "xgroup" => smallvec![(2, WRITES)],
        "xinfo" => smallvec![(2, READS)],
        "xread" | "xreadgroup" => of_streams(args),
        "pfcount" => (1..args.len()).map(|at| (at, READS)).collect(),
        "pfdebug" => smallvec![(2, READS_AND_WRITES)],
        "pfmerge" => {
            let sources = (2..args.len()).map(|at| (at, READS));
            std::iter::once((1, READS_AND_WRITES)).chain(sources).collect()
        }
        "georadius" | "georadiusbymember" => geo_radius(args),
        "geosearchstore" => smallvec![(1, WRITES), (2, READS)],
        _ => return None,
    };
    keys.retain(|(at, _)| *at < args.len());
    Some(keys)
}

/// Of a script: as many as its second argument says.
fn behind_a_number(args: &[&[u8]], flags: KeyFlags) -> KeyPlaces {
    let count = args.get(2).and_then(|count| number::integer(count));
    let count = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
    let count = if count <= args.len().saturating_sub(3) { count } else { 0 };
    (3..3 + count).map(|at| (at, flags)).collect()
}

/// The first half of what is behind STREAMS: the other one is where to begin.
fn of_streams(args: &[&[u8]]) -> KeyPlaces {
    let Some(word) = args.iter().position(|arg| is(arg, "STREAMS")) else {
        return KeyPlaces::new();
    };
    let count = (args.len() - word - 1) / 2;
    (word + 1..=word + count).map(|at| (at, READS)).collect()
}

/// The last STORE or STOREDIST counts. In front of them are a key, two or one for the middle, the
/// radius and its unit.
fn geo_radius(args: &[&[u8]]) -> KeyPlaces {
    let mut keys: KeyPlaces = smallvec![(1, READS)];
    let is_option = |at: &usize| is(args[*at], "STORE") || is(args[*at], "STOREDIST");
    let option = (5..args.len().saturating_sub(1)).rev().find(is_option);
    keys.extend(option.map(|at| (at + 1, WRITES)));
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::KeyAccess;

    fn needs(line: &str) -> String {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let Some(keys) = keys(&args) else { return "unknown".to_string() };
        let name = |at: usize| String::from_utf8_lossy(args[at]).into_owned();
        let letter = |flags| ["?", "r", "w", "rw"][KeyAccess::of(flags) as usize];
        let keys = keys.iter().map(|(at, flags)| name(*at) + ":" + letter(*flags));
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
