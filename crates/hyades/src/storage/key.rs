//! Order-preserving key bytes: comparing two encoded keys as bytes compares them column by column.
//!
//! Integers are big-endian with the sign bit flipped, floats likewise by their total order, `Fixed`
//! stands as it is, text and bytes are escaped (`00` becomes `00 FF`) and end with `00 00`. In a
//! secondary key every nullable column starts with one byte: 0 for null (which sorts first), else 1.

use super::value::{Type, Value};
use std::ops::Deref;

const INLINE: usize = 48;

/// A length that no inline key has, and at which nothing can be appended inline.
const LONG: usize = INLINE + 1;

/// The bytes of an encoded key: short ones in place, without an allocation.
#[derive(Clone, Debug)]
pub(crate) struct KeyBytes {
    /// Of the inline bytes, or [`LONG`].
    len: usize,
    short: [u8; INLINE],
    /// All bytes, once there were more than fit; else none.
    long: Vec<u8>,
}

impl KeyBytes {
    #[inline]
    pub fn new() -> Self {
        KeyBytes { len: 0, short: [0; INLINE], long: Vec::new() }
    }

    #[inline]
    pub fn from_slice(bytes: &[u8]) -> Self {
        let mut key = Self::new();
        key.extend_from_slice(bytes);
        key
    }

    #[inline]
    pub fn push(&mut self, byte: u8) {
        self.put([byte]);
    }

    /// Appends a few bytes, whose number is known when this is compiled.
    #[inline(always)]
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        match self.short.get_mut(self.len..self.len + N) {
            Some(place) => {
                place.copy_from_slice(&bytes);
                self.len += N;
            }
            None => self.extend_long(&bytes),
        }
    }

    #[inline]
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        match self.short.get_mut(self.len..self.len + bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                self.len += bytes.len();
            }
            None => self.extend_long(bytes),
        }
    }

    #[cold]
    fn extend_long(&mut self, bytes: &[u8]) {
        if self.len != LONG {
            self.long.extend_from_slice(&self.short[..self.len]);
            self.len = LONG;
        }
        self.long.extend_from_slice(bytes);
    }

    fn pop(&mut self) {
        if self.len == LONG {
            self.long.pop();
        } else {
            self.len = self.len.saturating_sub(1);
        }
    }

    fn last_mut(&mut self) -> Option<&mut u8> {
        if self.len == LONG { self.long.last_mut() } else { self.short[..self.len].last_mut() }
    }
}

impl Deref for KeyBytes {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.short.get(..self.len).unwrap_or(&self.long)
    }
}

impl PartialEq for KeyBytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}
impl Eq for KeyBytes {}
impl PartialOrd for KeyBytes {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for KeyBytes {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (**self).cmp(&**other)
    }
}

/// Appends one column to a key. `nullable` adds the null marker. Returns false if the value does
/// not fit the type.
#[inline(always)]
pub(crate) fn push(out: &mut KeyBytes, kind: Type, nullable: bool, value: &Value<'_>) -> bool {
    if nullable {
        if matches!(value, Value::Null) {
            out.push(0);
            return true;
        }
        out.push(1);
    }
    match (value, kind) {
        (Value::Bool(v), Type::Bool) => out.put([*v as u8]),
        (Value::I32(v), Type::I32) => out.put(((*v as u32) ^ (1 << 31)).to_be_bytes()),
        (Value::U32(v), Type::U32) => out.put(v.to_be_bytes()),
        (Value::I64(v), Type::I64) => out.put(((*v as u64) ^ (1 << 63)).to_be_bytes()),
        (Value::U64(v), Type::U64) => out.put(v.to_be_bytes()),
        (Value::F64(v), Type::F64) => {
            let bits = v.to_bits();
            let flipped = if bits >> 63 == 1 { !bits } else { bits | (1 << 63) };
            out.put(flipped.to_be_bytes());
        }
        (Value::Bytes(v), Type::Fixed(n)) if v.len() == n as usize => out.extend_from_slice(v),
        (Value::Text(v), Type::Text) => push_escaped(out, v.as_bytes()),
        (Value::Bytes(v), Type::Bytes) => push_escaped(out, v),
        _ => return false,
    }
    true
}

fn push_escaped(out: &mut KeyBytes, bytes: &[u8]) {
    for &byte in bytes {
        out.push(byte);
        if byte == 0 {
            out.push(0xFF);
        }
    }
    out.extend_from_slice(&[0, 0]);
}

/// The width in bytes of a column in a key, if it is always the same.
pub(crate) fn width(kind: Type, nullable: bool) -> Option<usize> {
    if nullable { None } else { kind.width() }
}

/// Turns `key` into the smallest byte string above every key that starts with it. Returns false
/// if there is none (the key is all `FF`), which means "no upper bound".
pub(crate) fn successor_of_prefix(key: &mut KeyBytes) -> bool {
    while let Some(last) = key.last_mut() {
        if *last < 0xFF {
            *last += 1;
            return true;
        }
        key.pop();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encode(kind: Type, value: &Value<'_>) -> KeyBytes {
        let mut out = KeyBytes::new();
        assert!(push(&mut out, kind, false, value));
        out
    }

    proptest! {
        #[test]
        fn a_key_is_its_bytes_short_or_long(parts: Vec<Vec<u8>>, pops in 0usize..80) {
            let (mut key, mut plain) = (KeyBytes::new(), Vec::new());
            for part in &parts {
                key.extend_from_slice(part);
                plain.extend_from_slice(part);
            }
            prop_assert_eq!(&*key, &plain[..]);
            for _ in 0..pops {
                key.pop();
                plain.pop();
                key.push(7);
                plain.push(7);
                key.pop();
                plain.pop();
                prop_assert_eq!(&*key, &plain[..]);
                prop_assert_eq!(key.last_mut(), plain.last_mut());
            }
        }

        #[test]
        fn key_order_is_value_order(a: i64, b: i64, x: i32, y: i32, s: Vec<u8>, t: Vec<u8>, f: f64, g: f64) {
            prop_assert_eq!(encode(Type::I64, &a.into()).cmp(&encode(Type::I64, &b.into())), a.cmp(&b));
            prop_assert_eq!(encode(Type::I32, &x.into()).cmp(&encode(Type::I32, &y.into())), x.cmp(&y));
            prop_assert_eq!(
                encode(Type::Bytes, &Value::Bytes(&s)).cmp(&encode(Type::Bytes, &Value::Bytes(&t))),
                s.cmp(&t)
            );
            prop_assert_eq!(encode(Type::F64, &f.into()).cmp(&encode(Type::F64, &g.into())), f.total_cmp(&g));
        }

        #[test]
        fn a_prefix_and_its_successor_enclose_its_keys(prefix: Vec<u8>, rest: Vec<u8>) {
            let lower = KeyBytes::from_slice(&prefix);
            let mut upper = lower.clone();
            let mut key = lower.clone();
            key.extend_from_slice(&rest);
            prop_assert!(key >= lower);
            if successor_of_prefix(&mut upper) {
                prop_assert!(key < upper);
            }
        }
    }
}
