//! Reads JSON.

use super::{DEEPEST, JsonSettings};
use crate::script::library::LibraryError;
use mlua::{Lua, LuaString, Value};

/// Decodes a text to its value.
///
/// # Errors
/// The fault, and its place.
pub fn decode(lua: &Lua, own: &JsonSettings, text: &[u8]) -> Result<Value, LibraryError> {
    // JSON in UTF-16 or UTF-32.
    if text.len() >= 2 && (text[0] == 0 || text[1] == 0) {
        return Err("JSON parser does not support UTF-16 or UTF-32".into());
    }
    let mut parser = JsonParser { lua, own, text, at: 0, depth: 0 };
    let value = parser.value()?;
    parser.skip_blanks();
    if parser.at < text.len() {
        return Err(parser.unexpected("the end"));
    }
    Ok(value)
}

struct JsonParser<'a> {
    lua: &'a Lua,
    own: &'a JsonSettings,
    text: &'a [u8],
    at: usize,
    depth: i64,
}

impl JsonParser<'_> {
    fn skip_blanks(&mut self) {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// The error for the token at this place, with the name of the token.
    fn unexpected(&self, wanted: &str) -> LibraryError {
        let found = match self.text.get(self.at) {
            None => "T_END",
            Some(b'{') => "T_OBJ_BEGIN",
            Some(b'}') => "T_OBJ_END",
            Some(b'[') => "T_ARR_BEGIN",
            Some(b']') => "T_ARR_END",
            Some(b',') => "T_COMMA",
            Some(b':') => "T_COLON",
            Some(b'"') => "T_STRING",
            Some(b'0'..=b'9' | b'-') => "T_NUMBER",
            Some(b't' | b'f') if self.word().is_some() => "T_BOOLEAN",
            Some(b'n') if self.word().is_some() => "T_NULL",
            Some(_) => "invalid token",
        };
        let place = self.at + 1;
        format!("Expected {wanted} but found {found} at character {place}").into()
    }

    /// The word at this place, with its length.
    fn word(&self) -> Option<(Value, usize)> {
        let rest = &self.text[self.at..];
        [
            (&b"true"[..], Value::Boolean(true)),
            (b"false", Value::Boolean(false)),
            (b"null", Value::NULL),
        ]
        .into_iter()
        .find(|(word, _)| rest.starts_with(word))
        .map(|(word, value)| (value, word.len()))
    }

    fn value(&mut self) -> Result<Value, LibraryError> {
        self.skip_blanks();
        match self.text.get(self.at) {
            Some(b'{') => self.object(),
            Some(b'[') => self.array(),
            Some(b'"') => Ok(Value::String(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(_) => match self.word() {
                Some((value, length)) => {
                    self.at += length;
                    Ok(value)
                }
                None if self.own.decode_invalid => self.number(),
                None => Err(self.unexpected("value")),
            },
            None => Err(self.unexpected("value")),
        }
    }

    fn descend(&mut self) -> Result<(), LibraryError> {
        self.depth += 1;
        if self.depth > self.own.decode_depth.min(DEEPEST) {
            let text = "Found too many nested data structures";
            let place = self.at + 1;
            return Err(format!("{text} ({}) at character {place}", self.depth).into());
        }
        self.at += 1;
        self.skip_blanks();
        Ok(())
    }

    fn array(&mut self) -> Result<Value, LibraryError> {
        self.descend()?;
        let table = self.lua.create_table()?;
        if self.text.get(self.at) != Some(&b']') {
            for at in 1.. {
                table.raw_set(at, self.value()?)?;
                self.skip_blanks();
                match self.text.get(self.at) {
                    Some(b',') => self.at += 1,
                    Some(b']') => break,
                    _ => return Err(self.unexpected("comma or array end")),
                }
            }
        }
        (self.at, self.depth) = (self.at + 1, self.depth - 1);
        Ok(Value::Table(table))
    }

    fn object(&mut self) -> Result<Value, LibraryError> {
        self.descend()?;
        let table = self.lua.create_table()?;
        if self.text.get(self.at) != Some(&b'}') {
            loop {
                self.skip_blanks();
                if self.text.get(self.at) != Some(&b'"') {
                    return Err(self.unexpected("object key string"));
                }
                let key = self.string()?;
                self.skip_blanks();
                if self.text.get(self.at) != Some(&b':') {
                    return Err(self.unexpected("colon"));
                }
                self.at += 1;
                table.raw_set(key, self.value()?)?;
                self.skip_blanks();
                match self.text.get(self.at) {
                    Some(b',') => self.at += 1,
                    Some(b'}') => break,
                    _ => return Err(self.unexpected("comma or object end")),
                }
            }
        }
        (self.at, self.depth) = (self.at + 1, self.depth - 1);
        Ok(Value::Table(table))
    }

    fn string(&mut self) -> Result<LuaString, LibraryError> {
        let begin = self.at;
        self.at += 1;
        let mut out = Vec::new();
        loop {
            let Some(&byte) = self.text.get(self.at) else {
                self.at = self.text.len();
                let found = "unexpected end of string";
                let place = self.at + 1;
                return Err(format!("Expected value but found {found} at character {place}").into());
            };
            self.at += 1;
            match byte {
                b'"' => return Ok(self.lua.create_string(&out)?),
                b'\\' => self.escape(&mut out)?,
                0..0x20 => {
                    self.at = begin;
                    let place = begin + 1;
                    let found = "invalid token";
                    return Err(
                        format!("Expected value but found {found} at character {place}").into()
                    );
                }
                _ => out.push(byte),
            }
        }
    }

    fn escape(&mut self, out: &mut Vec<u8>) -> Result<(), LibraryError> {
        let code = self.text.get(self.at).copied();
        self.at += 1;
        out.push(match code {
            Some(own @ (b'"' | b'\\' | b'/')) => own,
            Some(b'b') => 0x08,
            Some(b'f') => 0x0c,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'u') => return self.unicode(out),
            _ => {
                let place = self.at - 1;
                let found = "invalid escape code";
                return Err(format!("Expected value but found {found} at character {place}").into());
            }
        });
        Ok(())
    }

    fn hexadecimal(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + 4)?;
        let digits = std::str::from_utf8(digits).ok()?;
        let is_plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let code = u32::from_str_radix(digits, 16).ok().filter(|_| is_plain)?;
        self.at += 4;
        Some(code)
    }

    fn unicode(&mut self, out: &mut Vec<u8>) -> Result<(), LibraryError> {
        let begin = self.at - 2;
        let mut whole = || {
            let code = self.hexadecimal()?;
            if !(0xd800..0xdc00).contains(&code) {
                return Some(code);
            }
            // The second half of a pair.
            if self.text.get(self.at..self.at + 2) != Some(b"\\u") {
                return None;
            }
            self.at += 2;
            let low = self.hexadecimal().filter(|low| (0xdc00..0xe000).contains(low))?;
            Some(0x10000 + ((code & 0x3ff) << 10 | low & 0x3ff))
        };
        let Some(code) = whole() else {
            let found = "invalid unicode escape code";
            let place = begin + 1;
            return Err(format!("Expected value but found {found} at character {place}").into());
        };
        match char::from_u32(code) {
            Some(character) => {
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
            // The second half of a pair alone, as three bytes all the same.
            None => out.extend_from_slice(&[
                0xe0 | (code >> 12) as u8,
                0x80 | (code >> 6 & 0x3f) as u8,
                0x80 | (code & 0x3f) as u8,
            ]),
        }
        Ok(())
    }

    fn number(&mut self) -> Result<Value, LibraryError> {
        let rest = &self.text[self.at..];
        let is_part =
            |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        let length = rest.iter().take_while(is_part).count();
        let text = std::str::from_utf8(&rest[..length]).unwrap_or_default();
        let (number, length) = longest_number(text);
        let is_strict =
            text.bytes().take(length).all(|byte| !byte.is_ascii_alphabetic() || byte | 32 == b'e');
        match number {
            Some(number) if is_strict || self.own.decode_invalid => {
                self.at += length;
                Ok(Value::Number(number))
            }
            _ => Err(self.unexpected("value")),
        }
    }
}

/// The number at the start of a text, in all forms of C, and its length.
fn longest_number(text: &str) -> (Option<f64>, usize) {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let sign = if text.starts_with('-') { -1.0 } else { 1.0 };
    let before = text.len() - unsigned.len();
    let lower = unsigned.to_ascii_lowercase();
    if let Some(digits) = lower.strip_prefix("0x") {
        let count = digits.bytes().take_while(u8::is_ascii_hexdigit).count();
        if count > 0 {
            let value = digits[..count].chars().filter_map(|digit| digit.to_digit(16));
            let value = value.fold(0.0, |sum, digit| sum * 16.0 + f64::from(digit));
            return (Some(sign * value), before + 2 + count);
        }
    }
    for (word, value) in [("infinity", f64::INFINITY), ("inf", f64::INFINITY), ("nan", f64::NAN)] {
        if lower.starts_with(word) {
            return (Some(sign * value), before + word.len());
        }
    }
    let length = decimal_length(lower.as_bytes());
    match lower[..length].parse::<f64>() {
        Ok(value) if length > 0 => (Some(sign * value), before + length),
        _ => (None, 0),
    }
}

/// The length of the decimal number at the start of a text: digits, a point, an exponent.
fn decimal_length(text: &[u8]) -> usize {
    let digits = |from: usize| text[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let whole = digits(0);
    let mut length = whole;
    if text.get(length) == Some(&b'.') {
        let behind = digits(length + 1);
        if whole + behind == 0 {
            return 0;
        }
        length += 1 + behind;
    }
    if length > 0 && text.get(length) == Some(&b'e') {
        let sign = usize::from(matches!(text.get(length + 1), Some(b'+' | b'-')));
        let from = length + 1 + sign;
        let behind = if from <= text.len() { digits(from) } else { 0 };
        if behind > 0 {
            length = from + behind;
        }
    }
    length
}
