//! The library `cjson`: JSON as in the scripts of Redis, with the same settings and messages.

mod decode;

use super::convert::as_number;
use super::library::{Encoded, LibraryError, Results, function, one, text_argument};
use crate::resp::number::push_general;
use mlua::{Lua, MultiValue, Table, Value};
use std::cell::RefCell;
use std::rc::Rc;

/// Settings made by `cjson.encode_max_depth` and similar functions.
#[derive(Clone, Debug, PartialEq)]
struct JsonSettings {
    /// A sparse array becomes an object, without an error.
    sparse_convert: bool,
    sparse_ratio: i64,
    sparse_safe: i64,
    encode_depth: i64,
    decode_depth: i64,
    precision: usize,
    keeps_buffer: bool,
    encode_invalid: Invalid,
    decode_invalid: bool,
}

/// The treatment of numbers unknown to JSON.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Invalid {
    Error,
    Written,
    Null,
}

impl Default for JsonSettings {
    fn default() -> JsonSettings {
        JsonSettings {
            sparse_convert: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_depth: 1000,
            decode_depth: 1000,
            precision: 14,
            keeps_buffer: true,
            encode_invalid: Invalid::Error,
            decode_invalid: true,
        }
    }
}

/// The settings of a library shared by scripts: the next script finds the defaults.
#[derive(Clone, Default)]
pub struct SharedSettings(Rc<RefCell<JsonSettings>>);

impl SharedSettings {
    /// Sets all to the defaults.
    pub fn reset(&self) {
        *self.0.borrow_mut() = JsonSettings::default();
    }
}

/// The functions, with separate settings.
pub fn library(lua: &Lua, settings: &SharedSettings) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    type Body = fn(&Lua, &mut JsonSettings, &[Value]) -> Results;
    let bodies: [(&str, Body); 9] = [
        ("encode", encode),
        ("decode", decode),
        ("encode_sparse_array", encode_sparse_array),
        ("encode_max_depth", |lua, own, given| {
            depth(lua, &mut own.encode_depth, given, "encode_max_depth")
        }),
        ("decode_max_depth", |lua, own, given| {
            depth(lua, &mut own.decode_depth, given, "decode_max_depth")
        }),
        ("encode_number_precision", precision),
        ("encode_keep_buffer", |lua, own, given| {
            switch(lua, &mut own.keeps_buffer, given, "encode_keep_buffer")
        }),
        ("encode_invalid_numbers", encode_invalid_numbers),
        ("decode_invalid_numbers", |lua, own, given| {
            switch(lua, &mut own.decode_invalid, given, "decode_invalid_numbers")
        }),
    ];
    for (name, body) in bodies {
        let own = settings.clone();
        let call = move |lua: &Lua, given: &[Value]| body(lua, &mut own.0.borrow_mut(), given);
        table.raw_set(name, function(lua, call)?)?;
    }
    table.raw_set("null", Value::NULL)?;
    table.raw_set("_NAME", "cjson")?;
    table.raw_set("_VERSION", "2.1.0")?;
    Ok(table)
}

/// The highest value of settings.
const MOST: i64 = i32::MAX as i64;

/// Most nested values, whatever a script allows: the stack of a thread is limited.
const DEEPEST: i64 = 1_000;

fn whole(
    given: &[Value],
    at: usize,
    (low, high): (i64, i64),
    name: &str,
) -> Result<Option<i64>, LibraryError> {
    let Some(value) = given.get(at).filter(|value| !value.is_nil()) else { return Ok(None) };
    let number = as_number(value).map(|number| number as i64);
    match number.filter(|number| (low..=high).contains(number)) {
        Some(number) => Ok(Some(number)),
        None => Err(format!(
            "bad argument #{} to '{name}' (expected integer between {low} and {high})",
            at + 1
        )
        .into()),
    }
}

fn depth(lua: &Lua, own: &mut i64, given: &[Value], name: &str) -> Results {
    *own = whole(given, 0, (1, MOST), name)?.unwrap_or(*own);
    one(lua, *own)
}

fn precision(lua: &Lua, own: &mut JsonSettings, given: &[Value]) -> Results {
    own.precision = whole(given, 0, (1, 14), "encode_number_precision")?
        .map_or(own.precision, |number| number as usize);
    one(lua, own.precision)
}

fn switch(lua: &Lua, own: &mut bool, given: &[Value], name: &str) -> Results {
    *own = match given.first() {
        Some(Value::Boolean(on)) => *on,
        Some(Value::String(text)) if *text == "on" => true,
        Some(Value::String(text)) if *text == "off" => false,
        None | Some(Value::Nil) => *own,
        _ => return Err(format!("bad argument #1 to '{name}' (invalid option)").into()),
    };
    one(lua, *own)
}

fn encode_invalid_numbers(lua: &Lua, own: &mut JsonSettings, given: &[Value]) -> Results {
    own.encode_invalid = match given.first() {
        Some(Value::Boolean(true)) => Invalid::Written,
        Some(Value::Boolean(false)) => Invalid::Error,
        Some(Value::String(text)) if *text == "on" => Invalid::Written,
        Some(Value::String(text)) if *text == "off" => Invalid::Error,
        Some(Value::String(text)) if *text == "null" => Invalid::Null,
        None | Some(Value::Nil) => own.encode_invalid,
        _ => {
            return Err("bad argument #1 to 'encode_invalid_numbers' (invalid option)".into());
        }
    };
    match own.encode_invalid {
        Invalid::Null => one(lua, "null"),
        other => one(lua, other == Invalid::Written),
    }
}

fn encode_sparse_array(lua: &Lua, own: &mut JsonSettings, given: &[Value]) -> Results {
    let name = "encode_sparse_array";
    switch(lua, &mut own.sparse_convert, given, name)?;
    own.sparse_ratio = whole(given, 1, (0, MOST), name)?.unwrap_or(own.sparse_ratio);
    own.sparse_safe = whole(given, 2, (0, MOST), name)?.unwrap_or(own.sparse_safe);
    Ok(MultiValue::from_vec(vec![
        Value::Boolean(own.sparse_convert),
        Value::Number(own.sparse_ratio as f64),
        Value::Number(own.sparse_safe as f64),
    ]))
}

fn encode(lua: &Lua, own: &mut JsonSettings, given: &[Value]) -> Results {
    let [value] = given else {
        return Err("bad argument #1 to 'encode' (expected 1 argument)".into());
    };
    let mut out = Encoded::default();
    append(own, value, 0, &mut out)?;
    one(lua, lua.create_string(&**out)?)
}

fn append(
    own: &JsonSettings,
    value: &Value,
    depth: i64,
    out: &mut Encoded,
) -> Result<(), LibraryError> {
    out.count()?;
    match value {
        Value::String(text) => append_text(&text.as_bytes(), out),
        Value::Integer(_) | Value::Number(_) => {
            append_number(own, as_number(value).unwrap_or_default(), out)?;
        }
        Value::Boolean(is) => out.extend_from_slice(if *is { b"true" } else { b"false" }),
        Value::Nil => out.extend_from_slice(b"null"),
        Value::LightUserData(null) if null.0.is_null() => out.extend_from_slice(b"null"),
        Value::Table(table) => {
            let depth = depth + 1;
            if depth > own.encode_depth.min(DEEPEST) {
                return Err(format!("Cannot serialise, excessive nesting ({depth})").into());
            }
            match length_of_array(own, table)? {
                Some(length) => append_array(own, table, length, depth, out)?,
                None => append_object(own, table, depth, out)?,
            }
        }
        other => {
            let kind = other.type_name();
            return Err(format!("Cannot serialise {kind}: type not supported").into());
        }
    }
    Ok(())
}

fn append_number(own: &JsonSettings, number: f64, out: &mut Vec<u8>) -> Result<(), LibraryError> {
    if !number.is_finite() {
        match own.encode_invalid {
            Invalid::Error => {
                return Err("Cannot serialise number: must not be NaN or Inf".into());
            }
            Invalid::Null => {
                out.extend_from_slice(b"null");
                return Ok(());
            }
            Invalid::Written => {}
        }
    }
    push_general(out, number, own.precision);
    Ok(())
}

fn append_text(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in text {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'/' => out.extend_from_slice(b"\\/"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0..0x20 | 0x7f => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

/// The highest index of a table with positive whole numbers as keys; `None` for a table that is an
/// object.
fn length_of_array(own: &JsonSettings, table: &Table) -> Result<Option<i64>, LibraryError> {
    let (mut highest, mut count) = (0, 0);
    let mut is_array = true;
    table.for_each::<Value, Value>(|key, _| {
        let number = as_number(&key).filter(|_| !matches!(key, Value::String(_)));
        match number {
            Some(number) if number >= 1.0 && number == number.trunc() && number < 2e9 => {
                highest = highest.max(number as i64);
                count += 1;
            }
            _ => is_array = false,
        }
        Ok(())
    })?;
    if !is_array || count == 0 {
        return Ok(None);
    }
    let is_sparse =
        own.sparse_ratio > 0 && highest > count * own.sparse_ratio && highest > own.sparse_safe;
    match is_sparse {
        true if own.sparse_convert => Ok(None),
        true => Err("Cannot serialise table: excessively sparse array".into()),
        false => Ok(Some(highest)),
    }
}

fn append_array(
    own: &JsonSettings,
    table: &Table,
    length: i64,
    depth: i64,
    out: &mut Encoded,
) -> Result<(), LibraryError> {
    out.push(b'[');
    for at in 1..=length {
        if at > 1 {
            out.push(b',');
        }
        append(own, &table.raw_get::<Value>(at)?, depth, out)?;
    }
    out.push(b']');
    Ok(())
}

fn append_object(
    own: &JsonSettings,
    table: &Table,
    depth: i64,
    out: &mut Encoded,
) -> Result<(), LibraryError> {
    out.push(b'{');
    let mut is_first = true;
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        if !std::mem::take(&mut is_first) {
            out.push(b',');
        }
        match &key {
            Value::String(text) => append_text(&text.as_bytes(), out),
            Value::Integer(_) | Value::Number(_) => {
                out.push(b'"');
                append_number(own, as_number(&key).unwrap_or_default(), out)?;
                out.push(b'"');
            }
            _ => {
                let kind = key.type_name();
                let text = "table key must be a number or string";
                return Err(format!("Cannot serialise {kind}: {text}").into());
            }
        }
        out.push(b':');
        append(own, &value, depth, out)?;
    }
    out.push(b'}');
    Ok(())
}

fn decode(lua: &Lua, own: &mut JsonSettings, given: &[Value]) -> Results {
    if given.len() != 1 {
        return Err("bad argument #1 to 'decode' (expected 1 argument)".into());
    }
    one(lua, decode::decode(lua, own, &text_argument(given, 0, "decode")?)?)
}
