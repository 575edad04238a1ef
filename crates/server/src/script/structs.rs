//! The library `struct`: numbers and strings as bytes in a given layout.

use super::library::{LibraryError, Results, function, number, one, text_argument};
use mlua::{Lua, MultiValue, Table, Value};

/// Most bytes of an integer.
const MOST_INTEGER: usize = 32;

/// Most bytes of a packed value.
const MOST_PACKED: usize = 32 << 20;

/// The functions.
pub fn library(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("pack", function(lua, pack)?)?;
    table.raw_set("unpack", function(lua, unpack)?)?;
    table.raw_set("size", function(lua, size)?)?;
    Ok(table)
}

/// An item of a format.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Item {
    Padding,
    Integer {
        bytes: usize,
        is_signed: bool,
    },
    Float,
    Double,
    /// Up to a byte 0.
    Text,
    /// Of this many bytes; 0: the whole text, or the length in the number before.
    Bytes(usize),
}

/// Reads a format.
struct Format<'a> {
    rest: &'a [u8],
    /// The function that reads the format.
    name: &'static str,
    is_big: bool,
    alignment: usize,
}

impl<'a> Format<'a> {
    fn new(format: &'a [u8], name: &'static str) -> Format<'a> {
        Format { rest: format, name, is_big: cfg!(target_endian = "big"), alignment: 1 }
    }

    /// The number at the start of the rest, if any.
    fn count(&mut self) -> Result<Option<usize>, LibraryError> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return Ok(None);
        }
        let text = std::str::from_utf8(&self.rest[..digits]).expect("they are digits");
        self.rest = &self.rest[digits..];
        let count = text.parse::<usize>().ok().filter(|count| *count <= i32::MAX as usize);
        count.map(Some).ok_or_else(|| "integral size overflow".into())
    }

    fn integer(&mut self, default: usize, is_signed: bool) -> Result<Item, LibraryError> {
        let bytes = self.count()?.unwrap_or(default);
        if bytes > MOST_INTEGER {
            let text = format!("integral size {bytes} is larger than limit of {MOST_INTEGER}");
            return Err(text.into());
        }
        Ok(Item::Integer { bytes, is_signed })
    }

    /// The next item, with the padding before it at a position.
    fn next(&mut self, position: usize) -> Result<Option<(usize, Item)>, LibraryError> {
        loop {
            let Some((&option, rest)) = self.rest.split_first() else { return Ok(None) };
            self.rest = rest;
            let signed = |bytes: usize| Item::Integer { bytes, is_signed: true };
            let unsigned = |bytes: usize| Item::Integer { bytes, is_signed: false };
            let item = match option {
                b'x' => return Ok(Some((0, Item::Padding))),
                b's' => return Ok(Some((0, Item::Text))),
                b'c' => return Ok(Some((0, Item::Bytes(self.count()?.unwrap_or(1))))),
                b'b' => signed(1),
                b'B' => unsigned(1),
                b'h' => signed(2),
                b'H' => unsigned(2),
                b'l' => signed(8),
                b'L' | b'T' => unsigned(8),
                b'i' => self.integer(4, true)?,
                b'I' => self.integer(4, false)?,
                b'f' => Item::Float,
                b'd' => Item::Double,
                b' ' => continue,
                b'>' => {
                    self.is_big = true;
                    continue;
                }
                b'<' => {
                    self.is_big = false;
                    continue;
                }
                b'!' => {
                    self.alignment = self.count()?.unwrap_or(8);
                    if !self.alignment.is_power_of_two() {
                        let text = format!("alignment {} is not a power of 2", self.alignment);
                        return Err(text.into());
                    }
                    continue;
                }
                other => {
                    let text = format!("invalid format option '{}'", other as char);
                    return Err(format!("bad argument #1 to '{}' ({text})", self.name).into());
                }
            };
            let bytes = match item {
                Item::Integer { bytes, .. } => bytes,
                Item::Float => 4,
                _ => 8,
            };
            let align = bytes.min(self.alignment);
            let padding = match align > 1 {
                true => (align - (position & (align - 1))) & (align - 1),
                false => 0,
            };
            return Ok(Some((padding, item)));
        }
    }

    /// Bytes in the order of the format: the lowest first, unless the format says otherwise.
    fn ordered(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        if self.is_big {
            bytes.reverse();
        }
        bytes
    }
}

fn pack(lua: &Lua, given: &[Value]) -> Results {
    let text = text_argument(given, 0, "pack")?;
    let mut format = Format::new(&text, "pack");
    let (mut out, mut at) = (Vec::new(), 1);
    while let Some((padding, item)) = format.next(out.len())? {
        out.resize(out.len() + padding, 0);
        match item {
            Item::Padding => {
                out.push(0);
                continue;
            }
            Item::Integer { bytes, .. } => {
                let value = number(given, at, "pack")?;
                // As a cast in C: surplus bits are cut off.
                let value = if value < 0.0 { value as i64 as u64 } else { value as u64 };
                let fill =
                    if (value as i64) < 0 && number(given, at, "pack")? < 0.0 { 255 } else { 0 };
                let mut own = value.to_le_bytes().to_vec();
                own.resize(bytes.max(8), fill);
                own.truncate(bytes);
                out.extend(format.ordered(own));
            }
            Item::Float => {
                let value = number(given, at, "pack")? as f32;
                out.extend(format.ordered(value.to_le_bytes().to_vec()));
            }
            Item::Double => {
                let value = number(given, at, "pack")?;
                out.extend(format.ordered(value.to_le_bytes().to_vec()));
            }
            Item::Text => {
                out.extend(text_argument(given, at, "pack")?);
                out.push(0);
            }
            Item::Bytes(count) => {
                let own = text_argument(given, at, "pack")?;
                let count = if count == 0 { own.len() } else { count };
                if own.len() < count {
                    let number = at + 2;
                    return Err(
                        format!("bad argument #{number} to 'pack' (string too short)").into()
                    );
                }
                out.extend_from_slice(&own[..count]);
            }
        }
        at += 1;
        if out.len() > MOST_PACKED {
            return Err("the packed string is too long".into());
        }
    }
    one(lua, lua.create_string(&out)?)
}

fn unpack(lua: &Lua, given: &[Value]) -> Results {
    let text = text_argument(given, 0, "unpack")?;
    let data = text_argument(given, 1, "unpack")?;
    let from = if given.len() > 2 { number(given, 2, "unpack")? } else { 1.0 };
    if from < 1.0 {
        let text = "bad argument #3 to 'unpack' (offset must be 1 or greater)";
        return Err(text.into());
    }
    let (mut format, mut at) = (Format::new(&text, "unpack"), from as usize - 1);
    let mut out: Vec<Value> = Vec::new();
    const SHORT: &str = "bad argument #2 to 'unpack' (data string too short)";
    let take = |at: &mut usize, count: usize| -> Result<&[u8], LibraryError> {
        let end = at.checked_add(count).filter(|end| *end <= data.len()).ok_or(SHORT)?;
        Ok(&data[std::mem::replace(at, end)..end])
    };
    while let Some((padding, item)) = format.next(at)? {
        take(&mut at, padding)?;
        let value = match item {
            Item::Padding => {
                take(&mut at, 1)?;
                continue;
            }
            Item::Integer { bytes, is_signed } => {
                let own = format.ordered(take(&mut at, bytes)?.to_vec());
                let fill =
                    if is_signed && own.last().is_some_and(|top| top & 128 != 0) { 255 } else { 0 };
                let mut low = [fill; 8];
                low[..bytes.min(8)].copy_from_slice(&own[..bytes.min(8)]);
                Value::Number(match is_signed {
                    true => i64::from_le_bytes(low) as f64,
                    false => u64::from_le_bytes(low) as f64,
                })
            }
            Item::Float => {
                let own = format.ordered(take(&mut at, 4)?.to_vec());
                Value::Number(f64::from(f32::from_le_bytes(own.try_into().expect("four bytes"))))
            }
            Item::Double => {
                let own = format.ordered(take(&mut at, 8)?.to_vec());
                Value::Number(f64::from_le_bytes(own.try_into().expect("eight bytes")))
            }
            Item::Text => {
                let rest = data.get(at..).unwrap_or_default();
                let end = memchr::memchr(0, rest).ok_or("unfinished string in data")?;
                at += end + 1;
                Value::String(lua.create_string(&rest[..end])?)
            }
            Item::Bytes(count) => {
                let count = match (count, out.last()) {
                    (0, Some(Value::Number(before))) if *before >= 0.0 => {
                        let before = *before as usize;
                        out.pop();
                        before
                    }
                    (0, _) => return Err("format 'c0' needs a previous size".into()),
                    (count, _) => count,
                };
                Value::String(lua.create_string(take(&mut at, count)?)?)
            }
        };
        out.push(value);
        if out.len() > 1_000 {
            return Err("too many results to unpack".into());
        }
    }
    out.push(Value::Number((at + 1) as f64));
    Ok(MultiValue::from_vec(out))
}

fn size(lua: &Lua, given: &[Value]) -> Results {
    let text = text_argument(given, 0, "size")?;
    let (mut format, mut position) = (Format::new(&text, "size"), 0usize);
    while let Some((padding, item)) = format.next(position)? {
        let bytes = match item {
            Item::Padding => 1,
            Item::Integer { bytes, .. } => bytes,
            Item::Float => 4,
            Item::Double => 8,
            Item::Text => {
                return Err("bad argument #1 to 'size' (option 's' has no fixed size)".into());
            }
            Item::Bytes(0) => {
                return Err("bad argument #1 to 'size' (option 'c0' has no fixed size)".into());
            }
            Item::Bytes(count) => count,
        };
        position = position.saturating_add(padding + bytes);
        if position > i32::MAX as usize {
            return Err("format result too large".into());
        }
    }
    one(lua, position)
}
