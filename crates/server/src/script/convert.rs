//! Values of Lua as replies, replies as values, and values as arguments of commands.

use crate::resp::number::{integer, push_general};
use crate::resp::reply::Reply;
use mlua::{Lua, Table, Value};
use smallvec::SmallVec;
use std::cell::Cell;

/// Most nested tables in a reply.
const MOST_DEPTH: usize = 128;

/// After this number of values the conversion checks whether the script goes on.
const VALUES_AT_ONCE: usize = 256;

/// Most values in a reply: the number of distinct values for which the memory of an interpreter has
/// room. A table that contains itself twice stands for more values than a client reads.
const MOST_VALUES: usize = 4 << 20;

/// Appends arguments of a command to `bytes`; returns the end of each. `None` if an argument is
/// neither text nor a number.
pub fn arguments(given: &[Value], bytes: &mut Vec<u8>) -> Option<SmallVec<[usize; 8]>> {
    let mut ends = SmallVec::new();
    for value in given {
        match value {
            Value::String(text) => bytes.extend_from_slice(&text.as_bytes()),
            // Whole numbers unchanged, the rest with all digits.
            Value::Integer(_) | Value::Number(_) => push_general(bytes, as_number(value)?, 17),
            _ => return None,
        }
        ends.push(bytes.len());
    }
    Some(ends)
}

/// The arguments with these ends.
pub fn split<'a>(bytes: &'a [u8], ends: &[usize]) -> SmallVec<[&'a [u8]; 8]> {
    let mut from = 0;
    let mut next = |to: &usize| &bytes[std::mem::replace(&mut from, *to)..*to];
    ends.iter().map(&mut next).collect()
}

/// The form of an error for a script.
pub fn error_table(lua: &Lua, text: &[u8]) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(0, 2)?;
    table.raw_set("err", lua.create_string(text)?)?;
    table.raw_set("ignore_error_stats_update", true)?;
    Ok(table)
}

/// Converts a reply to the value for a script.
pub fn read(lua: &Lua, mut reply: &[u8]) -> mlua::Result<Value> {
    value(lua, &mut reply)
}

/// Takes a line, without its end.
fn line<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let end = memchr::memchr(b'\r', rest).expect("a reply has whole lines");
    let line = &rest[..end];
    *rest = &rest[end + 2..];
    line
}

/// Takes the bytes of a string of this length.
fn bytes<'a>(rest: &mut &'a [u8], length: i64) -> &'a [u8] {
    let (bytes, behind) = rest.split_at(usize::try_from(length).expect("it is a length"));
    *rest = &behind[2..];
    bytes
}

fn number(line: &[u8]) -> i64 {
    integer(line).expect("a reply has numbers of its own")
}

fn value(lua: &Lua, rest: &mut &[u8]) -> mlua::Result<Value> {
    let kind = rest[0];
    *rest = &rest[1..];
    let head = line(rest);
    let field = |name: &str, value: Value| {
        let table = lua.create_table_with_capacity(0, 1)?;
        table.raw_set(name, value)?;
        Ok(Value::Table(table))
    };
    let string = |bytes: &[u8]| lua.create_string(bytes).map(Value::String);
    match kind {
        b'+' => field("ok", string(head)?),
        b'-' => error_table(lua, head).map(Value::Table),
        b':' => Ok(Value::Number(number(head) as f64)),
        b'$' | b'*' if head == b"-1" => Ok(Value::Boolean(false)),
        b'$' => string(bytes(rest, number(head))),
        b'*' | b'>' => elements(lua, rest, number(head)).map(Value::Table),
        b'_' => Ok(Value::Nil),
        b'#' => Ok(Value::Boolean(head == b"t")),
        b',' => {
            let text = std::str::from_utf8(head).unwrap_or_default();
            field("double", Value::Number(text.parse().unwrap_or(f64::NAN)))
        }
        b'(' => field("big_number", string(head)?),
        b'=' => {
            let text = bytes(rest, number(head));
            let verbatim = lua.create_table_with_capacity(0, 2)?;
            verbatim.raw_set("format", string(&text[..3])?)?;
            verbatim.raw_set("string", string(&text[4..])?)?;
            field("verbatim_string", Value::Table(verbatim))
        }
        b'%' => {
            let pairs = lua.create_table()?;
            for _ in 0..number(head) {
                let key = value(lua, rest)?;
                let own = value(lua, rest)?;
                pairs.raw_set(key, own)?;
            }
            field("map", Value::Table(pairs))
        }
        b'~' => {
            let members = lua.create_table()?;
            for _ in 0..number(head) {
                members.raw_set(value(lua, rest)?, true)?;
            }
            field("set", Value::Table(members))
        }
        other => unreachable!("no reply begins with {other}"),
    }
}

fn elements(lua: &Lua, rest: &mut &[u8], count: i64) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(usize::try_from(count).unwrap_or_default(), 0)?;
    for at in 1..=count {
        table.raw_set(at, value(lua, rest)?)?;
    }
    Ok(table)
}

/// Why a value is no reply.
type Unwritten = &'static str;

/// Appends a value as a reply. `is_typed`: the script has asked for version 3 of the protocol, with
/// truth values as replies.
///
/// # Errors
/// Tables are nested too deep, or stand for too many values. `goes_on`, called now and then, has
/// returned false.
pub fn write(
    value: &Value,
    is_typed: bool,
    reply: &mut Reply<'_>,
    goes_on: &dyn Fn() -> bool,
) -> Result<(), Unwritten> {
    let left = &Cell::new(MOST_VALUES);
    write_at(value, reply, Place { is_typed, depth: 0, left, goes_on })
}

/// Where a value is.
#[derive(Clone, Copy)]
struct Place<'a> {
    /// Whether truth values are replies.
    is_typed: bool,
    /// How many tables are around.
    depth: usize,
    /// How many values may follow.
    left: &'a Cell<usize>,
    goes_on: &'a dyn Fn() -> bool,
}

fn write_at(value: &Value, reply: &mut Reply<'_>, place: Place<'_>) -> Result<(), Unwritten> {
    let Place { is_typed, depth, left, goes_on } = place;
    if depth > MOST_DEPTH {
        return Err("ERR reached lua stack limit");
    }
    left.set(left.get().checked_sub(1).ok_or("ERR the reply of a script has too many values")?);
    if left.get().is_multiple_of(VALUES_AT_ONCE) && !goes_on() {
        return Err("ERR the script was ended");
    }
    match value {
        Value::String(text) => reply.bulk(&text.as_bytes()),
        Value::Integer(_) | Value::Number(_) => reply.integer(whole(value)),
        Value::Boolean(is) if is_typed => reply.boolean(*is),
        Value::Boolean(true) => reply.integer(1),
        Value::Boolean(false) => reply.null(),
        Value::Table(table) => {
            return write_table(table, reply, Place { depth: depth + 1, ..place });
        }
        _ => reply.null(),
    }
    Ok(())
}

/// A number without the digits behind the point, like a cast in C.
fn whole(value: &Value) -> i64 {
    let number = as_number(value).unwrap_or_default();
    let is_whole = number >= i64::MIN as f64 && number < i64::MAX as f64;
    if is_whole { number as i64 } else { i64::MIN }
}

/// Text in one line.
fn in_line(text: &mlua::LuaString) -> String {
    text.to_string_lossy().replace(['\r', '\n'], " ")
}

fn write_table(table: &Table, reply: &mut Reply<'_>, place: Place<'_>) -> Result<(), Unwritten> {
    let field = |name: &str| table.raw_get::<Value>(name).unwrap_or(Value::Nil);
    if let Value::String(text) = field("err") {
        reply.error(&in_line(&text));
        return Ok(());
    }
    if let Value::String(text) = field("ok") {
        reply.simple(&in_line(&text));
        return Ok(());
    }
    if let double @ (Value::Number(_) | Value::Integer(_)) = field("double") {
        reply.double(as_number(&double).unwrap_or_default());
        return Ok(());
    }
    if let Value::Table(map) = field("map") {
        return write_map(&map, reply, place);
    }
    if let Value::Table(set) = field("set") {
        return write_set(&set, reply, place);
    }
    if let Value::String(digits) = field("big_number") {
        reply.big_number(&in_line(&digits));
        return Ok(());
    }
    if let Value::Table(verbatim) = field("verbatim_string")
        && let (Ok(text), Ok(_)) = (
            verbatim.raw_get::<mlua::LuaString>("string"),
            verbatim.raw_get::<mlua::LuaString>("format"),
        )
    {
        reply.verbatim(&text.to_string_lossy());
        return Ok(());
    }
    // Up to the first hole. Elements are read twice: all elements at once are too many for the
    // interpreter.
    let element = |at: usize| table.raw_get::<Value>(at).unwrap_or(Value::Nil);
    let count = (1..).take_while(|at| !element(*at).is_nil()).count();
    reply.array(count);
    (1..=count).try_for_each(|at| write_at(&element(at), reply, place))
}

fn write_map(map: &Table, reply: &mut Reply<'_>, place: Place<'_>) -> Result<(), Unwritten> {
    reply.map(map.pairs::<Value, Value>().flatten().count());
    map.pairs::<Value, Value>().flatten().try_for_each(|(key, value)| {
        write_at(&key, reply, place)?;
        write_at(&value, reply, place)
    })
}

fn write_set(set: &Table, reply: &mut Reply<'_>, place: Place<'_>) -> Result<(), Unwritten> {
    reply.set(set.pairs::<Value, Value>().flatten().count());
    let mut members = set.pairs::<Value, Value>().flatten();
    members.try_for_each(|(member, _)| write_at(&member, reply, place))
}

/// The value as a number; `None` for another type.
pub fn as_number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Number(number) => Some(*number),
        _ => None,
    }
}
