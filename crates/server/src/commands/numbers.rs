//! Strings that are numbers, and bits.

use super::collections::{bytes_in_blocks, elements};
use super::strings::{Written, write_at};
use super::{Done, NOT_AN_INTEGER, integer};
use crate::data::head::{Form, Head, Kind};
use crate::data::keyspace::{Entry, Keyspace, Stop};
use crate::resp::number::{self, Decimal};
use crate::resp::reply::Reply;

fn add(space: &Keyspace<'_>, key: &[u8], by: i64, reply: &mut Reply<'_>) -> Done {
    let entry = space.find(key)?;
    let old = entry.string()?.map_or(Ok(0), |text| integer(text.short()))?;
    let Some(new) = old.checked_add(by) else {
        return Err("ERR increment or decrement would overflow".into());
    };
    let text = number::integer_text(new);
    match entry.head() {
        Some(head) => space.change(key, &entry, head.with_form(Form::Plain), Some(&text))?,
        None => space.put_string(key, &entry, &text)?,
    }
    reply.integer(new);
    Ok(())
}

pub fn incr(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    add(space, args[1], 1, reply)
}

pub fn decr(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    add(space, args[1], -1, reply)
}

pub fn incrby(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    add(space, args[1], integer(args[2])?, reply)
}

pub fn decrby(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    match integer(args[2])?.checked_neg() {
        Some(by) => add(space, args[1], by, reply),
        None => Err("ERR decrement would overflow".into()),
    }
}

/// Sums are exact to 17 decimal places, where Redis computes with 80 binary digits: `0.1 + 0.2` is
/// `0.3` in both.
pub fn incrbyfloat(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    const NOT_A_FLOAT: &str = "ERR value is not a valid float";
    let entry = space.find(args[1])?;
    let old = entry.string()?.map_or(&b"0"[..], |text| text.short());
    let old = number::decimal(old).ok_or(NOT_A_FLOAT)?;
    let by = number::decimal(args[2]).ok_or(NOT_A_FLOAT)?;
    let (Decimal::Finite(old), Decimal::Finite(by)) = (old, by) else {
        return Err("ERR increment would produce NaN or Infinity".into());
    };
    let text = number::decimal_sum(&old, &by);
    match entry.head() {
        Some(head) => space.change(args[1], &entry, head.with_form(Form::Plain), Some(&text))?,
        None => space.put_string(args[1], &entry, &text)?,
    }
    reply.bulk(&text);
    Ok(())
}

/// The error of a bit that lies outside of each string that a client may build.
pub const OUT_OF_RANGE: &str = "ERR bit offset is not an integer or out of range";

/// The offset of a bit.
fn bit_offset(space: &Keyspace<'_>, text: &[u8]) -> Result<usize, Stop> {
    let offset = integer(text).map_err(|_| OUT_OF_RANGE)?;
    match usize::try_from(offset) {
        Ok(offset) if offset / 8 < space.context().longest => Ok(offset),
        _ => Err(OUT_OF_RANGE.into()),
    }
}

pub fn getbit(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let offset = bit_offset(space, args[2])?;
    let byte = space.read(args[1])?.string()?.map_or(Ok(0), |text| text.byte(offset / 8))?;
    reply.integer(i64::from(byte >> (7 - offset % 8) & 1));
    Ok(())
}

pub fn setbit(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let offset = bit_offset(space, args[2])?;
    let bit = match args[3] {
        b"0" => 0,
        b"1" => 1,
        _ => return Err("ERR bit is not an integer or out of range".into()),
    };
    let entry = space.find(args[1])?;
    let old = entry.string()?.map_or(Ok(0), |text| text.byte(offset / 8))?;
    let shift = 7 - offset % 8;
    let new = old & !(1 << shift) | bit << shift;
    write_at(space, (args[1], &entry), (offset / 8, &[new]), Written::IfChanged)?;
    reply.integer(i64::from(old >> shift & 1));
    Ok(())
}

/// What OBJECT ENCODING replies for a value.
pub fn encoding(entry: &Entry<'_>, head: Head, body: &[u8]) -> Result<&'static str, Stop> {
    Ok(match (head.kind(), head.form()) {
        (Kind::String, Form::Raw | Form::Chunks) => "raw",
        (Kind::String, _) if number::integer(body).is_some() => "int",
        (Kind::String, _) if body.len() <= 44 => "embstr",
        (Kind::String, _) => "raw",
        (kind, Form::Blocks) if !may_be_packed(entry)? => large_encoding(kind),
        (kind, _) => collection_encoding(kind, &elements(entry, kind)?),
    })
}

/// Most bytes of a collection that Redis packs.
const MOST_PACKED_BY_REDIS: usize = 2 * 512 * 66;

/// Whether a collection in blocks is so small that Redis would perhaps pack it.
fn may_be_packed(entry: &Entry<'_>) -> Result<bool, Stop> {
    Ok(bytes_in_blocks(entry)? <= 2 * MOST_PACKED_BY_REDIS)
}

fn large_encoding(kind: Kind) -> &'static str {
    match kind {
        Kind::List => "quicklist",
        Kind::SortedSet => "skiplist",
        _ => "hashtable",
    }
}

/// By the thresholds that Redis 7.2 has by default; the bytes of a list are counted about.
fn collection_encoding(kind: Kind, all: &[&[u8]]) -> &'static str {
    let is_small = |most: usize, overhead: usize| {
        all.len() <= most && all.iter().all(|element| element.len() <= 64 + overhead)
    };
    match kind {
        Kind::List if all.iter().map(|element| element.len() + 3).sum::<usize>() <= 8 << 10 => {
            "listpack"
        }
        Kind::Set if all.len() <= 512 && all.iter().all(|e| number::integer(e).is_some()) => {
            "intset"
        }
        Kind::Set if is_small(128, 0) => "listpack",
        // Fields and values.
        Kind::Hash if is_small(2 * 512, 0) => "listpack",
        Kind::SortedSet if is_small(128, 8) => "listpack",
        kind => large_encoding(kind),
    }
}

/// Reads an integer that may not be negative.
pub fn unsigned(text: &[u8]) -> Result<usize, Stop> {
    usize::try_from(integer(text)?).map_err(|_| NOT_AN_INTEGER.into())
}
