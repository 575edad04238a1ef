//! The library `bit`: operations on numbers of 32 bits.

use super::library::{Results, function, number, one};
use mlua::{Lua, Table, Value};

/// A number as 32 bits: rounded, and modulo 2^32 up to 2^51.
fn bits(given: &[Value], at: usize, name: &str) -> Result<i32, super::library::LibraryError> {
    // The lowest bits of a sum that has no bits behind the point: halves round to even.
    let sum = number(given, at, name)? + 6_755_399_441_055_744.0;
    Ok(sum.to_bits() as u32 as i32)
}

/// The functions.
pub fn library(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    type Fold = fn(i32, i32) -> i32;
    let folds: [(&'static str, Fold); 3] =
        [("band", |a, b| a & b), ("bor", |a, b| a | b), ("bxor", |a, b| a ^ b)];
    for (name, fold) in folds {
        let body = move |lua: &Lua, given: &[Value]| {
            let mut folded = bits(given, 0, name)?;
            for at in 1..given.len() {
                folded = fold(folded, bits(given, at, name)?);
            }
            one(lua, folded)
        };
        table.raw_set(name, function(lua, body)?)?;
    }
    // By 0 to 31 bits.
    let shifts: [(&'static str, Fold); 5] = [
        ("lshift", |a, n| a.wrapping_shl(n as u32)),
        ("rshift", |a, n| (a as u32).wrapping_shr(n as u32) as i32),
        ("arshift", |a, n| a.wrapping_shr(n as u32)),
        ("rol", |a, n| a.rotate_left(n as u32 & 31)),
        ("ror", |a, n| a.rotate_right(n as u32 & 31)),
    ];
    for (name, shift) in shifts {
        let body = move |lua: &Lua, given: &[Value]| {
            one(lua, shift(bits(given, 0, name)?, bits(given, 1, name)?))
        };
        table.raw_set(name, function(lua, body)?)?;
    }
    type Operation = fn(i32) -> i32;
    let one_operand: [(&'static str, Operation); 3] =
        [("tobit", |a| a), ("bnot", |a| !a), ("bswap", i32::swap_bytes)];
    for (name, operation) in one_operand {
        let body = move |lua: &Lua, given: &[Value]| one(lua, operation(bits(given, 0, name)?));
        table.raw_set(name, function(lua, body)?)?;
    }
    table.raw_set("tohex", function(lua, tohex)?)?;
    Ok(table)
}

/// The last digits, in lower case; in upper case if their number is negative.
fn tohex(lua: &Lua, given: &[Value]) -> Results {
    let value = bits(given, 0, "tohex")? as u32;
    let digits = if given.len() > 1 { bits(given, 1, "tohex")? } else { 8 };
    let count = digits.unsigned_abs().min(8) as usize;
    let text = if digits < 0 { format!("{value:08X}") } else { format!("{value:08x}") };
    one(lua, &text[8 - count..])
}
