//! Listpacks: small strings and integers one after the other, each followed by a length.

use super::canonical_integer;

/// Bytes of the header: total bytes, and number of elements.
const HEADER: usize = 6;

const END: u8 = 0xff;

/// Stands for elements that have to be counted.
const UNCOUNTED: u16 = u16::MAX;

/// Writes a listpack.
pub struct ListpackWriter {
    bytes: Vec<u8>,
    count: usize,
}

impl Default for ListpackWriter {
    fn default() -> ListpackWriter {
        ListpackWriter { bytes: vec![0; HEADER], count: 0 }
    }
}

impl ListpackWriter {
    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the listpack has no elements.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Appends an element, as an integer if the element is the canonical text of one.
    pub fn push(&mut self, element: &[u8]) {
        let (from, out) = (self.bytes.len(), &mut self.bytes);
        match canonical_integer(element) {
            Some(value) => push_integer(out, value),
            None => push_string(out, element),
        }
        let length = self.bytes.len() - from;
        push_back_length(&mut self.bytes, length);
        self.count += 1;
    }

    /// The listpack.
    pub fn finish(mut self) -> Vec<u8> {
        self.bytes.push(END);
        let total = self.bytes.len() as u32;
        let count = u16::try_from(self.count).unwrap_or(UNCOUNTED);
        self.bytes[..4].copy_from_slice(&total.to_le_bytes());
        self.bytes[4..6].copy_from_slice(&count.to_le_bytes());
        self.bytes
    }
}

fn push_integer(out: &mut Vec<u8>, value: i64) {
    let bytes = value.to_le_bytes();
    let wide = |code: u8, width: usize, out: &mut Vec<u8>| {
        out.push(code);
        out.extend_from_slice(&bytes[..width]);
    };
    match value {
        0..=127 => out.push(value as u8),
        -4096..=4095 => out.extend([0xc0 | (value >> 8 & 0x1f) as u8, value as u8]),
        -0x8000..=0x7fff => wide(0xf1, 2, out),
        -0x80_0000..=0x7f_ffff => wide(0xf2, 3, out),
        -0x8000_0000..=0x7fff_ffff => wide(0xf3, 4, out),
        _ => wide(0xf4, 8, out),
    }
}

fn push_string(out: &mut Vec<u8>, text: &[u8]) {
    match text.len() {
        length @ 0..64 => out.push(0x80 | length as u8),
        length @ 64..4096 => out.extend([0xe0 | (length >> 8) as u8, length as u8]),
        length => {
            out.push(0xf0);
            out.extend((length as u32).to_le_bytes());
        }
    }
    out.extend_from_slice(text);
}

/// The number of bytes of the length behind an element, by Redis's bounds: the bound of two bytes
/// is one less than fits, and so on.
fn back_length_bytes(length: usize) -> usize {
    match length {
        0..=127 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    }
}

fn push_back_length(out: &mut Vec<u8>, length: usize) {
    let bytes = back_length_bytes(length);
    for at in (0..bytes).rev() {
        let digits = (length >> (7 * at)) as u8 & 0x7f;
        out.push(if at + 1 == bytes { digits } else { digits | 0x80 });
    }
}

/// The elements of a listpack, one call of `take` for each; `None` if the bytes are no listpack, or
/// if `take` refuses an element.
pub fn read(bytes: &[u8], mut take: impl FnMut(Vec<u8>) -> Option<()>) -> Option<()> {
    let (header, mut rest) = bytes.split_at_checked(HEADER)?;
    let total = u32::from_le_bytes(header[..4].try_into().ok()?);
    let said = u16::from_le_bytes(header[4..].try_into().ok()?);
    if total as usize != bytes.len() {
        return None;
    }
    let mut count = 0usize;
    while *rest.first()? != END {
        let from = rest;
        take(element(&mut rest)?)?;
        let length = from.len() - rest.len();
        let mut expected = Vec::with_capacity(5);
        push_back_length(&mut expected, length);
        rest = rest.strip_prefix(&expected[..])?;
        count += 1;
    }
    (rest.len() == 1 && (said == UNCOUNTED || usize::from(said) == count)).then_some(())
}

fn split<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(taken)
}

fn element(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let first = split(rest, 1)?[0];
    let integer = |rest: &mut &[u8], width: usize| {
        let taken = split(rest, width)?;
        let mut bytes = [0; 8];
        bytes[8 - width..].copy_from_slice(taken);
        Some((i64::from_le_bytes(bytes) >> (64 - 8 * width)).to_string().into_bytes())
    };
    let length = match first {
        0..=0x7f => return Some(first.to_string().into_bytes()),
        0x80..=0xbf => usize::from(first & 0x3f),
        0xc0..=0xdf => {
            let low = split(rest, 1)?[0];
            let value = i16::from(first & 0x1f) << 8 | i16::from(low);
            return Some((value << 3 >> 3).to_string().into_bytes());
        }
        0xe0..=0xef => usize::from(first & 0xf) << 8 | usize::from(split(rest, 1)?[0]),
        0xf0 => u32::from_le_bytes(split(rest, 4)?.try_into().ok()?) as usize,
        0xf1 => return integer(rest, 2),
        0xf2 => return integer(rest, 3),
        0xf3 => return integer(rest, 4),
        0xf4 => return integer(rest, 8),
        _ => return None,
    };
    Some(split(rest, length)?.to_vec())
}
