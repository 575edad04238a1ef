//! Order-preserving key bytes: comparing two encoded keys as bytes compares them column by column.
//!
//! Integers are big-endian with the sign bit flipped, floats likewise by their total order, `Fixed`
//! is stored unchanged, text and bytes are escaped (`00` becomes `00 FF`) and end with `00 00`. In
//! a secondary key every nullable column starts with one byte: 0 for null (which sorts first), else
//! 1.

use super::value::{Type, Value};
use smallvec::SmallVec;
use std::ops::Deref;

/// A key of integer columns, assembled in registers and stored as whole words. The hash function
/// and the indexes load a key by words at once; after stores of single columns the loads would
/// stall until the stores have left the store buffer.
#[derive(Clone, Copy)]
pub(crate) struct PackedKey {
    /// The bytes so far, in the low bits.
    bits: u128,
    len: usize,
}

/// Maximum length of a packed key in bytes.
pub(crate) const PACKED: usize = 16;

impl PackedKey {
    pub const EMPTY: PackedKey = PackedKey { bits: 0, len: 0 };

    /// Whether a key of columns of these types is packed.
    pub fn fits(mut kinds: impl Iterator<Item = Type>) -> bool {
        let integer = |kind| matches!(kind, Type::I32 | Type::U32 | Type::I64 | Type::U64);
        let bytes = kinds.try_fold(0, |bytes, kind| {
            integer(kind).then(|| bytes + kind.width().expect("integers have a width"))
        });
        bytes.is_some_and(|bytes| (1..=PACKED).contains(&bytes))
    }

    /// Appends one column, for which there is room; `None` if the value does not fit the type.
    #[inline(always)]
    pub fn with(self, value: &Value<'_>, kind: Type) -> Option<PackedKey> {
        let half = |v: u32| PackedKey { bits: self.bits << 32 | u128::from(v), len: self.len + 4 };
        let word = |v: u64| PackedKey { bits: self.bits << 64 | u128::from(v), len: self.len + 8 };
        debug_assert!(
            kind.width().is_none_or(|width| self.len + width <= PACKED),
            "a packed key has room for its columns"
        );
        match (value, kind) {
            (Value::I32(v), Type::I32) => Some(half((*v as u32) ^ (1 << 31))),
            (Value::U32(v), Type::U32) => Some(half(*v)),
            (Value::I64(v), Type::I64) => Some(word((*v as u64) ^ (1 << 63))),
            (Value::U64(v), Type::U64) => Some(word(*v)),
            _ => None,
        }
    }

    #[inline(always)]
    fn bytes(self) -> [u8; PACKED] {
        debug_assert!((1..=PACKED).contains(&self.len), "a packed key has a column and fits");
        (self.bits << (8 * (PACKED - self.len))).to_be_bytes()
    }
}

/// Whether two keys are equal. `memcmp` may load more bytes than it compares, and so wait for a
/// record's second cache line although the key is in the first, prefetched line.
#[inline]
pub fn same(a: &[u8], b: &[u8]) -> bool {
    let n = a.len();
    if n != b.len() {
        return false;
    }
    // Words from the front, then the last word, possibly overlapping the previous word.
    let word =
        |key: &[u8], at| u64::from_le_bytes(key[at..at + 8].try_into().expect("eight bytes"));
    let half = |key: &[u8], at| u32::from_le_bytes(key[at..at + 4].try_into().expect("four bytes"));
    match n {
        8.. => {
            let front = (0..n - 8).step_by(8).all(|at| word(a, at) == word(b, at));
            front && word(a, n - 8) == word(b, n - 8)
        }
        4..8 => half(a, 0) == half(b, 0) && half(a, n - 4) == half(b, n - 4),
        _ => a.iter().zip(b).all(|(a, b)| a == b),
    }
}

/// The length of a key as stored by records and entries. Must not be truncated: it determines the
/// size of the allocation to free.
pub fn stored_len(key: &[u8]) -> u32 {
    u32::try_from(key.len()).expect("a key of less than 4 GiB")
}

const INLINE: usize = 48;

/// A length of no inline key; no inline append fits at this length.
const LONG: usize = INLINE + 1;

/// The bytes of an encoded key; a short key is stored inline, without an allocation.
#[derive(Clone, Debug)]
pub(crate) struct KeyBytes {
    /// Length of the inline bytes, or [`LONG`].
    len: usize,
    short: [u8; INLINE],
    /// All bytes of a key too long to be inline; else empty.
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

    /// Replaces the key, which must not be [`LONG`], by a packed key.
    #[inline(always)]
    pub fn set_packed(&mut self, key: PackedKey) {
        debug_assert!(self.long.is_empty(), "a long key is not replaced by a packed one");
        self.short[..PACKED].copy_from_slice(&key.bytes());
        self.len = key.len;
    }

    #[inline]
    pub fn push(&mut self, byte: u8) {
        self.put([byte]);
    }

    /// Appends `N` bytes, where `N` is a compile-time constant.
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
            debug_assert!(self.long.is_empty(), "a key is stored inline or outside, not both");
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

/// Escaped zero bytes.
const ESCAPED_ZEROS: [u8; 64] = {
    let (mut bytes, mut at) = ([0; 64], 1);
    while at < bytes.len() {
        bytes[at] = 0xFF;
        at += 2;
    }
    bytes
};

/// The position of the first zero byte, or the length if there is none.
#[inline]
fn first_zero(bytes: &[u8]) -> usize {
    // Of a word without a zero byte, no bit is left; else the lowest bit is of the first zero byte.
    let zero_in = |word: &[u8; 8]| {
        const ONES: u64 = u64::from_le_bytes([1; 8]);
        let word = u64::from_le_bytes(*word);
        let found = word.wrapping_sub(ONES) & !word & (ONES << 7);
        (found != 0).then_some(found.trailing_zeros() as usize / 8)
    };
    let Some(last) = bytes.last_chunk::<8>() else {
        return bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    };
    for (at, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
        if let Some(within) = zero_in(word) {
            return 8 * at + within;
        }
    }
    // The last word overlaps the previous word, where no zero byte was found.
    zero_in(last).map_or(bytes.len(), |within| bytes.len() - 8 + within)
}

fn push_escaped(out: &mut KeyBytes, bytes: &[u8]) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let plain = first_zero(rest);
        out.extend_from_slice(&rest[..plain]);
        rest = &rest[plain..];
        let zeros = rest.iter().position(|&byte| byte != 0).unwrap_or(rest.len());
        rest = &rest[zeros..];
        let mut left = 2 * zeros;
        while left > 0 {
            let piece = left.min(ESCAPED_ZEROS.len());
            out.extend_from_slice(&ESCAPED_ZEROS[..piece]);
            left -= piece;
        }
    }
    out.extend_from_slice(&[0, 0]);
}

/// The bytes of columns, as they stand in a row.
pub(crate) type ColumnBytes = SmallVec<[u8; 64]>;

/// Takes a non-nullable column off the front of a key, and appends its bytes to `out`, as they
/// stand in a row. `None` if the key does not begin with a column of this type. A text is not
/// checked for UTF-8.
pub(crate) fn take_column(key: &mut &[u8], kind: Type, out: &mut ColumnBytes) -> Option<()> {
    match kind {
        Type::I32 | Type::U32 => {
            let sign = if kind == Type::I32 { 1 << 31 } else { 0 };
            let value = u32::from_be_bytes(take_array(key)?) ^ sign;
            out.extend_from_slice(&value.to_le_bytes());
        }
        Type::I64 | Type::U64 => {
            let sign = if kind == Type::I64 { 1 << 63 } else { 0 };
            let value = u64::from_be_bytes(take_array(key)?) ^ sign;
            out.extend_from_slice(&value.to_le_bytes());
        }
        Type::F64 => {
            let bits = u64::from_be_bytes(take_array(key)?);
            let bits = if bits >> 63 == 1 { bits ^ (1 << 63) } else { !bits };
            out.extend_from_slice(&bits.to_le_bytes());
        }
        Type::Bool | Type::Fixed(_) => {
            let (value, rest) = key.split_at_checked(kind.width()?)?;
            out.extend_from_slice(value);
            *key = rest;
        }
        Type::Text | Type::Bytes => return take_escaped(key, out),
    }
    Some(())
}

fn take_array<const N: usize>(key: &mut &[u8]) -> Option<[u8; N]> {
    let (value, rest) = key.split_first_chunk::<N>()?;
    *key = rest;
    Some(*value)
}

fn take_escaped(key: &mut &[u8], out: &mut ColumnBytes) -> Option<()> {
    loop {
        let (plain, rest) = key.split_at(first_zero(key));
        out.extend_from_slice(plain);
        let (&next, rest) = rest.get(1..)?.split_first()?;
        *key = rest;
        match next {
            0 => return Some(()),
            0xFF => out.push(0),
            _ => return None,
        }
    }
}

/// The width in bytes of a column in a key, if it is constant.
pub(crate) fn width(kind: Type, nullable: bool) -> Option<usize> {
    if nullable { None } else { kind.width() }
}

/// Turns `key` into the smallest byte string above every key that starts with `key`. Returns false
/// if there is none (the key is all `FF`): "no upper bound".
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
        fn a_packed_key_has_the_same_bytes(a: i32, b: u32, c: i64, d: u64, which in 1usize..16) {
            let all = [
                (Value::I32(a), Type::I32),
                (Value::U32(b), Type::U32),
                (Value::I64(c), Type::I64),
                (Value::U64(d), Type::U64),
            ];
            let some: Vec<_> = (0..4).filter(|i| which >> i & 1 == 1).map(|i| all[i]).collect();
            let mut out = KeyBytes::new();
            some.iter().for_each(|(value, kind)| assert!(push(&mut out, *kind, false, value)));
            let fits = PackedKey::fits(some.iter().map(|(_, kind)| *kind));
            prop_assert_eq!(fits, out.len() <= PACKED);
            if fits {
                let with =
                    |key: PackedKey, (value, kind): &(Value<'_>, Type)| key.with(value, *kind);
                let mut packed = KeyBytes::new();
                packed.set_packed(some.iter().try_fold(PackedKey::EMPTY, with).unwrap());
                prop_assert_eq!(packed, out);
            }
            prop_assert!(PackedKey::EMPTY.with(&Value::I32(a), Type::U32).is_none());
        }

        #[test]
        fn keys_are_the_same_if_all_their_bytes_are(key: Vec<u8>, at: usize, n in 0usize..40) {
            let key = &key[..key.len().min(n)];
            prop_assert!(same(key, key));
            prop_assert!(!same(key, &[key, &[0]].concat()));
            if !key.is_empty() {
                let mut other = key.to_vec();
                other[at % n.min(key.len())] ^= 1;
                prop_assert!(!same(key, &other));
            }
        }

        #[test]
        fn the_first_zero_is_found_wherever_it_is(bytes: Vec<u8>, zeros in 0usize..4, at: usize) {
            let mut bytes: Vec<u8> = bytes.into_iter().map(|byte| byte.max(1)).collect();
            for zero in 0..zeros.min(bytes.len()) {
                let place = at.wrapping_mul(zero + 1) % bytes.len();
                bytes[place] = 0;
                let neighbour = (place + 1) % bytes.len();
                bytes[neighbour] = bytes[neighbour].min(1);
            }
            let found = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
            prop_assert_eq!(first_zero(&bytes), found, "{:?}", bytes);
        }

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
        fn key_order_is_value_order(
            a: i64, b: i64, x: i32, y: i32, s: Vec<u8>, t: Vec<u8>, f: f64, g: f64,
        ) {
            prop_assert_eq!(
                encode(Type::I64, &a.into()).cmp(&encode(Type::I64, &b.into())),
                a.cmp(&b)
            );
            prop_assert_eq!(
                encode(Type::I32, &x.into()).cmp(&encode(Type::I32, &y.into())),
                x.cmp(&y)
            );
            prop_assert_eq!(
                encode(Type::Bytes, &Value::Bytes(&s)).cmp(&encode(Type::Bytes, &Value::Bytes(&t))),
                s.cmp(&t)
            );
            prop_assert_eq!(
                encode(Type::F64, &f.into()).cmp(&encode(Type::F64, &g.into())),
                f.total_cmp(&g)
            );
        }

        #[test]
        fn a_column_is_taken_off_as_it_stands_in_a_row(
            a: i32, b: u32, c: i64, d: u64, f: f64, g: bool,
            x in prop::array::uniform5(any::<u8>()), s: String,
            t in prop::collection::vec(prop_oneof![Just(0u8), Just(255), any::<u8>()], 0..70),
        ) {
            let all = [
                (Value::Bytes(&t), Type::Bytes),
                (Value::I32(a), Type::I32),
                (Value::U32(b), Type::U32),
                (Value::Text(&s), Type::Text),
                (Value::I64(c), Type::I64),
                (Value::U64(d), Type::U64),
                (Value::F64(f), Type::F64),
                (Value::Bool(g), Type::Bool),
                (Value::Bytes(&x), Type::Fixed(5)),
                (Value::Bytes(&t), Type::Bytes),
            ];
            let mut key = KeyBytes::new();
            all.iter().for_each(|(value, kind)| assert!(push(&mut key, *kind, false, value)));
            let mut rest = &key[..];
            for (value, kind) in &all {
                let mut bytes = ColumnBytes::new();
                prop_assert!(take_column(&mut rest, *kind, &mut bytes).is_some());
                value.with_bytes(|row| assert_eq!(&bytes[..], row));
            }
            prop_assert!(rest.is_empty());
            // A key cut short has not all columns.
            let cut = key.len() - 1 - (b as usize) % key.len();
            let mut rest = &key[..cut];
            let mut taken = ColumnBytes::new();
            let whole =
                all.iter().all(|(_, kind)| take_column(&mut rest, *kind, &mut taken).is_some());
            prop_assert!(!whole);
        }

        #[test]
        fn a_column_of_random_bytes_never_panics(bytes: Vec<u8>) {
            for kind in [Type::Bool, Type::F64, Type::I32, Type::Fixed(9), Type::Text] {
                let _ = take_column(&mut &bytes[..], kind, &mut ColumnBytes::new());
            }
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
