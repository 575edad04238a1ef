//! Keys that a request has to be searched for.

use super::keys::{ACCESS, KeyFlags, OW, RO, RW, UPDATE};
use crate::resp::is;
use smallvec::{SmallVec, smallvec};

/// SET reads the key with the option GET.
pub fn set_flags(args: &[&[u8]]) -> KeyFlags {
    let reads = args.iter().skip(3).any(|arg| is(arg, "GET"));
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

/// The key under which SORT stores: the last one, if there are several. Values of options are no
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

/// The key of MIGRATE, or those behind KEYS if the key is empty. Passwords are no options.
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
