//! Writes values, as Redis 7.0 does with the default settings.

use super::crc64::{crc64, crc64_from};
use super::listpack::ListpackWriter;
use super::{FOOTER, TIMED_VERSION, VERSION, canonical_integer, kinds, lzf};
use std::io::{self, Write};

/// Shorter strings are not compressed.
const SHORTEST_COMPRESSED: usize = 21;

/// Most bytes of a listpack of a list; a longer element has a listpack of its own.
const MOST_NODE_BYTES: usize = 8 << 10;

/// Most fields of a hash, or members of a sorted set, in a listpack, and most bytes of each.
const MOST_PACKED: usize = 128;
const LONGEST_PACKED: usize = 64;

/// Most members of an intset.
const MOST_INTEGERS: usize = 512;

pub(super) fn push_length(out: &mut Vec<u8>, length: usize) {
    match length {
        0..0x40 => out.push(length as u8),
        0x40..0x4000 => out.extend([0x40 | (length >> 8) as u8, length as u8]),
        _ => match u32::try_from(length) {
            Ok(length) => {
                out.push(0x80);
                out.extend(length.to_be_bytes());
            }
            Err(_) => {
                out.push(0x81);
                out.extend((length as u64).to_be_bytes());
            }
        },
    }
}

pub(super) fn push_string(out: &mut Vec<u8>, text: &[u8]) {
    match canonical_integer(text) {
        Some(value) if i8::try_from(value).is_ok() => return out.extend([0xc0, value as u8]),
        Some(value) if i16::try_from(value).is_ok() => {
            out.push(0xc1);
            return out.extend((value as i16).to_le_bytes());
        }
        Some(value) if i32::try_from(value).is_ok() => {
            out.push(0xc2);
            return out.extend((value as i32).to_le_bytes());
        }
        _ => {}
    }
    let is_long = text.len() >= SHORTEST_COMPRESSED;
    if let Some(packed) = is_long.then(|| lzf::compress(text)).flatten() {
        out.push(0xc3);
        push_length(out, packed.len());
        push_length(out, text.len());
        out.extend_from_slice(&packed);
    } else {
        push_length(out, text.len());
        out.extend_from_slice(text);
    }
}

pub(super) fn finish(out: Vec<u8>) -> Vec<u8> {
    finish_with(VERSION, out)
}

pub(super) fn finish_with(version: u16, mut out: Vec<u8>) -> Vec<u8> {
    out.extend(version.to_le_bytes());
    let checksum = crc64(&out);
    out.extend(checksum.to_le_bytes());
    out
}

/// The payload of FUNCTION DUMP: the code of libraries.
pub fn libraries<'a>(all: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    for code in all {
        out.push(kinds::LIBRARY);
        push_string(&mut out, code);
    }
    finish(out)
}

/// The payload of a string.
pub fn string(text: &[u8]) -> Vec<u8> {
    let mut out = vec![kinds::STRING];
    push_string(&mut out, text);
    finish(out)
}

/// The payload of a list.
pub fn list(elements: &[&[u8]]) -> Vec<u8> {
    /// The number in front of a listpack node.
    const PACKED: usize = 2;
    let (mut nodes, mut count) = (Vec::new(), 0);
    let mut close = |node: ListpackWriter| {
        if !node.is_empty() {
            push_length(&mut nodes, PACKED);
            push_string(&mut nodes, &node.finish());
            count += 1;
        }
    };
    let mut node = ListpackWriter::default();
    for element in elements {
        if node.len() + element.len() > MOST_NODE_BYTES {
            close(std::mem::take(&mut node));
        }
        node.push(element);
    }
    close(node);
    let mut out = vec![kinds::LIST_QUICKLIST_2];
    push_length(&mut out, count);
    out.extend(nodes);
    finish(out)
}

/// The payload of a set.
pub fn set(members: &[&[u8]]) -> Vec<u8> {
    let integers = (members.len() <= MOST_INTEGERS)
        .then(|| members.iter().map(|member| canonical_integer(member)).collect::<Option<Vec<_>>>())
        .flatten();
    let Some(mut integers) = integers else {
        let mut out = vec![kinds::SET];
        push_length(&mut out, members.len());
        members.iter().for_each(|member| push_string(&mut out, member));
        return finish(out);
    };
    integers.sort_unstable();
    let fits = |bits: u32| {
        integers.iter().all(|integer| *integer << (64 - bits) >> (64 - bits) == *integer)
    };
    let width = if fits(16) {
        2
    } else if fits(32) {
        4
    } else {
        8
    };
    let mut intset = (width as u32).to_le_bytes().to_vec();
    intset.extend((integers.len() as u32).to_le_bytes());
    integers.iter().for_each(|integer| intset.extend_from_slice(&integer.to_le_bytes()[..width]));
    let mut out = vec![kinds::SET_INTSET];
    push_string(&mut out, &intset);
    finish(out)
}

/// Whether elements are few and short enough for a listpack.
pub(super) fn is_packed(count: usize, mut elements: impl Iterator<Item = usize>) -> bool {
    count <= MOST_PACKED && elements.all(|length| length <= LONGEST_PACKED)
}

/// The payload of a hash: each field is followed by the value.
pub fn hash(elements: &[&[u8]]) -> Vec<u8> {
    let (count, mut out) = (elements.len() / 2, Vec::new());
    if is_packed(count, elements.iter().map(|element| element.len())) {
        let mut listpack = ListpackWriter::default();
        elements.iter().for_each(|element| listpack.push(element));
        out.push(kinds::HASH_LISTPACK);
        push_string(&mut out, &listpack.finish());
    } else {
        out.push(kinds::HASH);
        push_length(&mut out, count);
        elements.iter().for_each(|element| push_string(&mut out, element));
    }
    finish(out)
}

/// A score as text; the text reads back as the same number.
fn score_text(score: f64) -> String {
    let is_short = score == 0.0 || (1e-5..1e17).contains(&score.abs()) || !score.is_finite();
    if is_short { score.to_string() } else { format!("{score:e}") }
}

/// The payload of a sorted set, given with the lowest scores first.
pub fn sorted_set(members: &[(f64, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    if is_packed(members.len(), members.iter().map(|pair| pair.1.len())) {
        let mut listpack = ListpackWriter::default();
        for (score, member) in members {
            listpack.push(member);
            listpack.push(score_text(*score).as_bytes());
        }
        out.push(kinds::SORTED_SET_LISTPACK);
        push_string(&mut out, &listpack.finish());
    } else {
        out.push(kinds::SORTED_SET_2);
        push_length(&mut out, members.len());
        // The last member first, as in Redis: each inserted member is then the first.
        for (score, member) in members.iter().rev() {
            push_string(&mut out, member);
            out.extend(score.to_le_bytes());
        }
    }
    finish(out)
}

/// The version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatVersion {
    /// The version of Redis 7.0, which later versions and Valkey read.
    Redis70,
    /// The version of Redis 7.4, for hashes with expiring fields.
    Redis74,
}

/// Writes a whole file: databases in the order of their numbers, with the keys in any order.
pub struct FileWriter<W> {
    out: W,
    checksum: u64,
    database: Option<u32>,
}

impl<W: Write> FileWriter<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// The errors of writing.
    pub fn new(out: W, version: FormatVersion) -> io::Result<FileWriter<W>> {
        let mut writer = FileWriter { out, checksum: 0, database: None };
        let (number, redis) = match version {
            FormatVersion::Redis70 => (VERSION, "7.0.15"),
            FormatVersion::Redis74 => (TIMED_VERSION, "7.4.0"),
        };
        writer.write(format!("REDIS{number:04}").as_bytes())?;
        let mut auxiliary = Vec::new();
        for (name, value) in [("redis-ver", redis), ("redis-bits", "64")] {
            auxiliary.push(kinds::AUXILIARY);
            push_string(&mut auxiliary, name.as_bytes());
            push_string(&mut auxiliary, value.as_bytes());
        }
        writer.write(&auxiliary)?;
        Ok(writer)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.checksum = crc64_from(self.checksum, bytes);
        self.out.write_all(bytes)
    }

    /// Adds a library of functions.
    ///
    /// # Errors
    /// The errors of writing.
    pub fn library(&mut self, code: &[u8]) -> io::Result<()> {
        let mut out = vec![kinds::LIBRARY];
        push_string(&mut out, code);
        self.write(&out)
    }

    /// Adds a key with the payload of the value, and the time of expiry in milliseconds since 1970.
    ///
    /// # Errors
    /// The errors of writing.
    pub fn key(
        &mut self,
        database: u32,
        key: &[u8],
        expires: Option<i64>,
        payload: &[u8],
    ) -> io::Result<()> {
        let mut out = Vec::new();
        if self.database.replace(database) != Some(database) {
            out.push(kinds::DATABASE);
            push_length(&mut out, database as usize);
        }
        if let Some(at_ms) = expires {
            out.push(kinds::EXPIRES_MS);
            out.extend(at_ms.to_le_bytes());
        }
        out.push(payload[0]);
        push_string(&mut out, key);
        self.write(&out)?;
        self.write(&payload[1..payload.len() - FOOTER])
    }

    /// Ends the file with the checksum. Returns the target of the writes.
    ///
    /// # Errors
    /// The errors of writing.
    pub fn finish(mut self) -> io::Result<W> {
        self.write(&[kinds::END])?;
        self.out.write_all(&self.checksum.to_le_bytes())?;
        self.out.flush()?;
        Ok(self.out)
    }
}
