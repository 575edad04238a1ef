//! The library `cmsgpack`: MessagePack as in the scripts of Redis.

use super::convert::as_number;
use super::library::{Encoded, LibraryError, Results, function, number, one, text_argument};
use mlua::{Lua, MultiValue, Table, Value};

/// Most nested tables to pack; deeper tables are nil.
const MOST_DEPTH: usize = 16;

/// Most nested values to unpack.
const MOST_UNPACKED_DEPTH: usize = 200;

/// Most values to unpack at once.
const MOST_UNPACKED: usize = 1_000;

/// The functions.
pub fn library(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    for (name, text) in [
        ("_NAME", "cmsgpack"),
        ("_VERSION", "lua-cmsgpack 0.4.0"),
        ("_DESCRIPTION", "MessagePack for Lua"),
        ("_COPYRIGHT", ""),
    ] {
        table.raw_set(name, text)?;
    }
    table.raw_set("pack", function(lua, pack)?)?;
    table.raw_set("unpack", function(lua, unpack)?)?;
    table.raw_set("unpack_one", function(lua, unpack_one)?)?;
    table.raw_set("unpack_limit", function(lua, unpack_limit)?)?;
    Ok(table)
}

fn pack(lua: &Lua, given: &[Value]) -> Results {
    if given.is_empty() {
        return Err("bad argument #0 to 'pack' (MessagePack pack needs input.)".into());
    }
    let mut out = Encoded::default();
    given.iter().try_for_each(|value| append(value, 0, &mut out))?;
    one(lua, lua.create_string(&**out)?)
}

fn append(value: &Value, depth: usize, out: &mut Encoded) -> Result<(), LibraryError> {
    out.count()?;
    match value {
        Value::String(text) => append_bytes(&text.as_bytes(), out),
        Value::Boolean(is) => out.push(if *is { 0xc3 } else { 0xc2 }),
        Value::Integer(_) | Value::Number(_) => {
            append_number(as_number(value).unwrap_or_default(), out);
        }
        Value::Table(_) if depth == MOST_DEPTH => out.push(0xc0),
        Value::Table(table) => append_table(table, depth, out)?,
        _ => out.push(0xc0),
    }
    Ok(())
}

fn append_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    match bytes.len() {
        length @ 0..32 => out.push(0xa0 | length as u8),
        length @ 32..0x100 => out.extend_from_slice(&[0xd9, length as u8]),
        length @ 0x100..0x1_0000 => {
            out.push(0xda);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            out.push(0xdb);
            out.extend_from_slice(&(length as u32).to_be_bytes());
        }
    }
    out.extend_from_slice(bytes);
}

fn append_number(number: f64, out: &mut Vec<u8>) {
    let range = i64::MIN as f64..-(i64::MIN as f64);
    let is_whole = number == number.trunc() && range.contains(&number);
    if !is_whole {
        // As four bytes if the number stays the same.
        if f64::from(number as f32) == number {
            out.push(0xca);
            out.extend_from_slice(&(number as f32).to_be_bytes());
        } else {
            out.push(0xcb);
            out.extend_from_slice(&number.to_be_bytes());
        }
        return;
    }
    let whole = number as i64;
    match whole {
        0..0x80 => out.push(whole as u8),
        0x80..0x100 => out.extend_from_slice(&[0xcc, whole as u8]),
        0x100..0x1_0000 => {
            out.push(0xcd);
            out.extend_from_slice(&(whole as u16).to_be_bytes());
        }
        0x1_0000..0x1_0000_0000 => {
            out.push(0xce);
            out.extend_from_slice(&(whole as u32).to_be_bytes());
        }
        0x1_0000_0000.. => {
            out.push(0xcf);
            out.extend_from_slice(&(whole as u64).to_be_bytes());
        }
        -32..0 => out.push(whole as i8 as u8),
        -0x80..-32 => out.extend_from_slice(&[0xd0, whole as i8 as u8]),
        -0x8000..-0x80 => {
            out.push(0xd1);
            out.extend_from_slice(&(whole as i16).to_be_bytes());
        }
        -0x8000_0000..-0x8000 => {
            out.push(0xd2);
            out.extend_from_slice(&(whole as i32).to_be_bytes());
        }
        _ => {
            out.push(0xd3);
            out.extend_from_slice(&whole.to_be_bytes());
        }
    }
}

fn append_head(length: usize, (short, wide): (u8, u8), out: &mut Vec<u8>) {
    match length {
        0..16 => out.push(short | length as u8),
        16..0x1_0000 => {
            out.push(wide);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        _ => {
            out.push(wide + 1);
            out.extend_from_slice(&(length as u32).to_be_bytes());
        }
    }
}

/// Looks at the table twice: as many values at once as a table may have are too many for the
/// interpreter.
fn append_table(table: &Table, depth: usize, out: &mut Encoded) -> Result<(), LibraryError> {
    let index = |key: &Value| match key {
        Value::Integer(_) | Value::Number(_) => {
            as_number(key).filter(|n| *n > 0.0 && *n == n.trunc())
        }
        _ => None,
    };
    let (mut count, mut highest) = (0, Some(0.0f64));
    for pair in table.pairs::<Value, Value>() {
        count += 1;
        highest = highest.zip(index(&pair?.0)).map(|(highest, index)| highest.max(index));
    }
    // An array has no holes, and is not empty: an empty table is an array here.
    if highest == Some(count as f64) {
        append_head(count, (0x90, 0xdc), out);
        for at in 1..=count {
            append(&table.raw_get::<Value>(at)?, depth + 1, out)?;
        }
        return Ok(());
    }
    append_head(count, (0x80, 0xde), out);
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        append(&key, depth + 1, out)?;
        append(&value, depth + 1, out)?;
    }
    Ok(())
}

fn unpack(lua: &Lua, given: &[Value]) -> Results {
    let text = text_argument(given, 0, "unpack")?;
    unpack_some(lua, &text, 0, 0).map(|(values, _)| values)
}

fn unpack_one(lua: &Lua, given: &[Value]) -> Results {
    let text = text_argument(given, 0, "unpack_one")?;
    let from = if given.len() > 1 { number(given, 1, "unpack_one")? } else { 0.0 };
    unpack_from(lua, &text, 1.0, from)
}

fn unpack_limit(lua: &Lua, given: &[Value]) -> Results {
    let text = text_argument(given, 0, "unpack_limit")?;
    let limit = number(given, 1, "unpack_limit")?;
    let from = if given.len() > 2 { number(given, 2, "unpack_limit")? } else { 0.0 };
    unpack_from(lua, &text, limit, from)
}

/// Unpacks some values; the first result is the start of the next value, -1 behind the last.
fn unpack_from(lua: &Lua, text: &[u8], limit: f64, from: f64) -> Results {
    if limit < 0.0 || from < 0.0 {
        let text = format!("Invalid request to unpack with offset of {from} and limit of {limit}.");
        return Err(text.into());
    }
    if from > text.len() as f64 {
        let length = text.len();
        return Err(format!("Start offset {from} greater than input length {length}.").into());
    }
    let (mut values, end) = unpack_some(lua, text, from as usize, limit as usize)?;
    let next = if end == text.len() { -1.0 } else { end as f64 };
    values.push_front(Value::Number(next));
    Ok(values)
}

/// Unpacks this many values, all if 0.
fn unpack_some(
    lua: &Lua,
    text: &[u8],
    from: usize,
    limit: usize,
) -> Result<(MultiValue, usize), LibraryError> {
    let (mut unpacker, mut values) = (Unpacker { lua, text, at: from }, MultiValue::new());
    while unpacker.at < text.len() && (limit == 0 || values.len() < limit) {
        if values.len() == MOST_UNPACKED {
            return Err("too many values to unpack".into());
        }
        values.push_back(unpacker.value(0)?);
    }
    Ok((values, unpacker.at))
}

struct Unpacker<'a> {
    lua: &'a Lua,
    text: &'a [u8],
    at: usize,
}

impl Unpacker<'_> {
    fn take(&mut self, count: usize) -> Result<&[u8], LibraryError> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.text.len());
        let end = end.ok_or("Missing bytes in input.")?;
        Ok(&self.text[std::mem::replace(&mut self.at, end)..end])
    }

    /// An unsigned number of this many bytes.
    fn unsigned(&mut self, bytes: usize) -> Result<u64, LibraryError> {
        Ok(self.take(bytes)?.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    fn signed(&mut self, bytes: usize) -> Result<Value, LibraryError> {
        let shift = 64 - 8 * bytes as u32;
        let value = (self.unsigned(bytes)? << shift) as i64 >> shift;
        Ok(Value::Number(value as f64))
    }

    fn bytes(&mut self, count: u64) -> Result<Value, LibraryError> {
        let bytes = self.take(usize::try_from(count).unwrap_or(usize::MAX))?.to_vec();
        Ok(Value::String(self.lua.create_string(&bytes)?))
    }

    fn value(&mut self, depth: usize) -> Result<Value, LibraryError> {
        if depth > MOST_UNPACKED_DEPTH {
            return Err("Bad data format in input.".into());
        }
        let head = self.take(1)?[0];
        let sized = |head: u8, first: u8| 1usize << (head - first);
        match head {
            0..0x80 => Ok(Value::Number(f64::from(head))),
            0x80..0x90 => self.map(u64::from(head & 15), depth),
            0x90..0xa0 => self.array(u64::from(head & 15), depth),
            0xa0..0xc0 => self.bytes(u64::from(head & 31)),
            0xc0 => Ok(Value::Nil),
            0xc2 | 0xc3 => Ok(Value::Boolean(head == 0xc3)),
            0xc4..0xc7 => {
                let count = self.unsigned(sized(head, 0xc4))?;
                self.bytes(count)
            }
            0xca => {
                let bits = self.unsigned(4)? as u32;
                Ok(Value::Number(f64::from(f32::from_bits(bits))))
            }
            0xcb => Ok(Value::Number(f64::from_bits(self.unsigned(8)?))),
            0xcc..0xd0 => Ok(Value::Number(self.unsigned(sized(head, 0xcc))? as f64)),
            0xd0..0xd4 => self.signed(sized(head, 0xd0)),
            0xd9..0xdc => {
                let count = self.unsigned(sized(head, 0xd9))?;
                self.bytes(count)
            }
            0xdc | 0xdd => {
                let count = self.unsigned(2 * sized(head, 0xdc))?;
                self.array(count, depth)
            }
            0xde | 0xdf => {
                let count = self.unsigned(2 * sized(head, 0xde))?;
                self.map(count, depth)
            }
            0xe0.. => Ok(Value::Number(f64::from(head as i8))),
            _ => Err("Bad data format in input.".into()),
        }
    }

    fn array(&mut self, count: u64, depth: usize) -> Result<Value, LibraryError> {
        let table = self.lua.create_table()?;
        for at in 1..=count {
            table.raw_set(at, self.value(depth + 1)?)?;
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, count: u64, depth: usize) -> Result<Value, LibraryError> {
        let table = self.lua.create_table()?;
        for _ in 0..count {
            let key = self.value(depth + 1)?;
            let value = self.value(depth + 1)?;
            if key.is_nil() || as_number(&key).is_some_and(f64::is_nan) {
                return Err("Bad data format in input.".into());
            }
            table.raw_set(key, value)?;
        }
        Ok(Value::Table(table))
    }
}
