//! Strings that are numbers, and bits.

use super::{Done, NOT_AN_INTEGER, integer};
use crate::data::keyspace::{Keyspace, Stop};
use crate::data::values::string::Written;
use crate::resp::number::{self, Decimal};
use crate::resp::reply::Reply;

fn add(space: &Keyspace<'_>, key: &[u8], by: i64, reply: &mut Reply<'_>) -> Done {
    let entry = space.find(key)?;
    let old = entry.string()?.map_or(Ok(0), |text| integer(text.short()))?;
    let Some(new) = old.checked_add(by) else {
        return Err("ERR increment or decrement would overflow".into());
    };
    let text = number::integer_text(new);
    entry.store_number(&text)?;
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
    entry.store_number(&text)?;
    reply.bulk(&text);
    Ok(())
}

/// The error of a bit outside of each string that a client may build.
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
    entry.write_at(offset / 8, &[new], Written::IfChanged)?;
    reply.integer(i64::from(old >> shift & 1));
    Ok(())
}

/// Reads a non-negative integer.
pub fn unsigned(text: &[u8]) -> Result<usize, Stop> {
    usize::try_from(integer(text)?).map_err(|_| NOT_AN_INTEGER.into())
}
