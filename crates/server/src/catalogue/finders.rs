//! Keys to be found by a search of the request.

use super::keys::{ACCESS, DELETE, INSERT, KeyFlags, OW, RO, RW, UPDATE};
use crate::resp::is;
use smallvec::{SmallVec, smallvec};

/// The options of SET that read the key.
const READS: [&str; 5] = ["GET", "IFEQ", "IFNE", "IFDEQ", "IFDNE"];

/// SET reads the key with some options.
pub fn set_flags(args: &[&[u8]]) -> KeyFlags {
    let reads = args.iter().skip(3).any(|arg| READS.iter().any(|option| is(arg, option)));
    if reads { RW | ACCESS | UPDATE } else { OW | UPDATE }
}

/// BITFIELD only reads if all its operations are GET.
pub fn bitfield_flags(args: &[&[u8]]) -> KeyFlags {
    let mut rest = args.get(2..).unwrap_or_default();
    loop {
        rest = match rest {
            [] => return RO | ACCESS,
            [word, _, _, after @ ..] if is(word, "GET") => after,
            [word, _, after @ ..] if is(word, "OVERFLOW") => after,
            _ => return RW | ACCESS | UPDATE,
        };
    }
}

/// The key under which SORT stores: the last key, if there are several. Values of options are no
/// options.
pub fn sort_store(args: &[&[u8]]) -> SmallVec<[usize; 4]> {
    let (mut at, mut stores) = (2, None);
    while at < args.len() {
        at += match () {
            () if is(args[at], "LIMIT") => 3,
            () if is(args[at], "BY") || is(args[at], "GET") => 2,
            () if is(args[at], "STORE") && at + 1 < args.len() => {
                stores = Some(at + 1);
                2
            }
            () => 1,
        };
    }
    stores.into_iter().collect()
}

/// The key under which GEORADIUS and GEORADIUSBYMEMBER store: the last key named by an option. In
/// front of the options are a key, two arguments or one for the middle, the radius and its unit.
pub fn radius_store(args: &[&[u8]]) -> SmallVec<[usize; 4]> {
    let (mut at, mut stores) = (5, None);
    while at + 1 < args.len() {
        let is_option = is(args[at], "STORE") || is(args[at], "STOREDIST");
        at += 1;
        if is_option {
            stores = Some(at);
            at += 1;
        }
    }
    stores.into_iter().collect()
}

/// No keys: another specification finds the keys already.
pub fn found_already(_: &[&[u8]]) -> SmallVec<[usize; 4]> {
    SmallVec::new()
}

/// The key of MIGRATE, or the keys behind KEYS if the key is empty. Passwords are no options.
pub fn migrate_keys(args: &[&[u8]]) -> SmallVec<[usize; 4]> {
    let mut at = if args[3].is_empty() { 6 } else { args.len() };
    while at < args.len() {
        at += match () {
            () if is(args[at], "KEYS") => return (at + 1..args.len()).collect(),
            () if is(args[at], "AUTH") => 2,
            () if is(args[at], "AUTH2") => 3,
            () => 1,
        };
    }
    smallvec![3]
}

/// The use of the key by XGROUP.
pub fn group_flags(args: &[&[u8]]) -> KeyFlags {
    let is_one_of =
        |words: [&str; 2]| args.get(1).is_some_and(|what| words.iter().any(|w| is(what, w)));
    match () {
        () if is_one_of(["CREATE", "CREATECONSUMER"]) => RW | INSERT,
        () if is_one_of(["DESTROY", "DELCONSUMER"]) => RW | DELETE,
        () => RW | UPDATE,
    }
}

/// The keys of XREAD and XREADGROUP: the first half of the arguments behind STREAMS; the second
/// half are the ids. Values of options are no options.
pub fn stream_keys(args: &[&[u8]]) -> SmallVec<[usize; 4]> {
    let mut at = 1;
    while at < args.len() {
        at += match () {
            () if is(args[at], "STREAMS") => {
                let count = args.len() - at - 1;
                let is_even = count.is_multiple_of(2);
                return (at + 1..=at + count / 2).filter(|_| is_even).collect();
            }
            () if is(args[at], "GROUP") => 3,
            () if is(args[at], "BLOCK") || is(args[at], "COUNT") => 2,
            () => 1,
        };
    }
    SmallVec::new()
}
