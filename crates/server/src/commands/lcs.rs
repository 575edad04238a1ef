//! The longest common subsequence of two strings.

use super::{SYNTAX, integer, is};
use crate::data::chunks::StoredString;
use crate::data::keyspace::{Keyspace, Stop};
use crate::data::values::string::length_of;
use crate::resp::reply::Reply;
use std::borrow::Cow;

/// As many cells count as one access to a row.
const CELLS_PER_STEP: usize = 64;

/// Most cells of the table of lengths, of four bytes each.
const MOST_CELLS: usize = 32 << 20;

struct LcsOptions {
    length: bool,
    indexes: bool,
    with_lengths: bool,
    shortest: i64,
}

/// Two ranges of equal bytes, ends included.
type Match = ((usize, usize), (usize, usize));

pub fn lcs(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let mut options =
        LcsOptions { length: false, indexes: false, with_lengths: false, shortest: 0 };
    let mut at = 3;
    while let Some(option) = args.get(at) {
        if is(option, "LEN") {
            options.length = true;
        } else if is(option, "IDX") {
            options.indexes = true;
        } else if is(option, "WITHMATCHLEN") {
            options.with_lengths = true;
        } else if is(option, "MINMATCHLEN") && at + 1 < args.len() {
            options.shortest = integer(args[at + 1])?.max(0);
            at += 1;
        } else {
            return Err(SYNTAX.into());
        }
        at += 1;
    }
    if options.length && options.indexes {
        return Err("ERR If you want both the length and indexes, please just use IDX.".into());
    }
    let string = |key| {
        let entry = space.read(key)?;
        let wrong = "ERR The specified keys must contain string values";
        Ok::<_, Stop>(entry.string().map_err(|_| wrong)?)
    };
    let (a, b) = (string(args[1])?, string(args[2])?);
    if (length_of(a) + 1).saturating_mul(length_of(b) + 1) > MOST_CELLS {
        return Err("ERR Insufficient memory: the strings are too long to be compared".into());
    }
    space.charge((length_of(a) + 1) * (length_of(b) + 1) / CELLS_PER_STEP)?;
    let whole = |stored: Option<StoredString<'_>>| match stored {
        Some(text) => text.whole().map(Cow::into_owned),
        None => Ok(Vec::new()),
    };
    let (a, b) = (whole(a)?, whole(b)?);
    let (a, b) = (&a[..], &b[..]);
    let lengths = lengths(a, b);
    let total = lengths[a.len() * (b.len() + 1) + b.len()];
    if options.length {
        reply.integer(i64::from(total));
        return Ok(());
    }
    let (common, matches) = trace(a, b, &lengths);
    if !options.indexes {
        reply.bulk(&common);
        return Ok(());
    }
    let long = |of_a: &(usize, usize)| (of_a.1 - of_a.0 + 1) as i64;
    let shown: Vec<_> = matches.iter().filter(|m| long(&m.0) >= options.shortest).collect();
    reply.map(2);
    reply.bulk(b"matches");
    reply.array(shown.len());
    for (in_a, in_b) in shown {
        reply.array(if options.with_lengths { 3 } else { 2 });
        for (from, to) in [in_a, in_b] {
            reply.array(2);
            reply.count(*from);
            reply.count(*to);
        }
        if options.with_lengths {
            reply.integer(long(in_a));
        }
    }
    reply.bulk(b"len");
    reply.integer(i64::from(total));
    Ok(())
}

/// The lengths for all pairs of prefixes, row by row.
fn lengths(a: &[u8], b: &[u8]) -> Vec<u32> {
    let width = b.len() + 1;
    let mut table = vec![0u32; (a.len() + 1) * width];
    for i in 1..=a.len() {
        for j in 1..width {
            table[i * width + j] = match a[i - 1] == b[j - 1] {
                true => table[(i - 1) * width + j - 1] + 1,
                false => table[(i - 1) * width + j].max(table[i * width + j - 1]),
            };
        }
    }
    table
}

/// The subsequence, and its ranges from the last to the first.
fn trace(a: &[u8], b: &[u8], lengths: &[u32]) -> (Vec<u8>, Vec<Match>) {
    let width = b.len() + 1;
    let (mut i, mut j) = (a.len(), b.len());
    let (mut common, mut matches): (Vec<u8>, Vec<Match>) = (Vec::new(), Vec::new());
    while i > 0 && j > 0 {
        if a[i - 1] == b[j - 1] {
            (i, j) = (i - 1, j - 1);
            common.push(a[i]);
            match matches.last_mut() {
                Some((in_a, in_b)) if in_a.0 == i + 1 && in_b.0 == j + 1 => {
                    (in_a.0, in_b.0) = (i, j);
                }
                _ => matches.push(((i, i), (j, j))),
            }
        } else if lengths[(i - 1) * width + j] > lengths[i * width + j - 1] {
            i -= 1;
        } else {
            j -= 1;
        }
    }
    common.reverse();
    (common, matches)
}
