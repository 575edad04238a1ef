//! Reading payloads.

use super::crc64::crc64;
use super::{BadPayload, FOOTER, MOST_BYTES, Restored, TIMED_VERSION};
use super::{kinds, listpack, lzf, ziplist};
use std::borrow::Cow;
use std::collections::HashSet;

pub(super) type Read<T> = Result<T, BadPayload>;

/// Memory of an element beside its bytes, about.
pub(super) const ELEMENT_BYTES: usize = 48;

/// The value of a payload, in at most `most` bytes.
///
/// # Errors
/// See [`BadPayload`].
pub fn restore(payload: &[u8], most: usize) -> Read<Restored> {
    let (kind, bytes) = body(payload)?.split_first().ok_or(BadPayload::Format)?;
    value(*kind, bytes, most)
}

/// The string encoded in bytes of a file.
pub(super) fn decoded(bytes: &[u8]) -> Option<Cow<'_, [u8]>> {
    let mut reader = Reader { rest: bytes, left: MOST_BYTES };
    let string = reader.string().ok()?;
    reader.rest.is_empty().then_some(string)
}

/// A value of a type, in at most `most` bytes.
///
/// # Errors
/// See [`BadPayload`].
pub fn value(kind: u8, bytes: &[u8], most: usize) -> Read<Restored> {
    let mut reader = Reader { rest: bytes, left: most };
    let value = reader.value(kind)?;
    let is_empty = match &value {
        Restored::String(_) => false,
        Restored::List(all) | Restored::Set(all) | Restored::Hash(all) => all.is_empty(),
        Restored::TimedHash(all) => all.is_empty(),
        Restored::SortedSet(all) => all.is_empty(),
        Restored::Stream(_) => false,
    };
    if is_empty || !reader.rest.is_empty() || !is_sound(&value) {
        return Err(BadPayload::Format);
    }
    Ok(value)
}

/// A payload without its footer.
fn body(payload: &[u8]) -> Read<&[u8]> {
    let body = payload.len().checked_sub(FOOTER).ok_or(BadPayload::Footer)?;
    let (body, footer) = payload.split_at(body);
    let version = u16::from_le_bytes([footer[0], footer[1]]);
    let checksum = crc64(&payload[..payload.len() - 8]);
    if version > TIMED_VERSION || footer[2..] != checksum.to_le_bytes() {
        return Err(BadPayload::Footer);
    }
    Ok(body)
}

/// The code of the libraries of a payload, in at most `most` bytes.
///
/// # Errors
/// See [`BadPayload`].
pub fn libraries(payload: &[u8], most: usize) -> Read<Vec<Vec<u8>>> {
    let mut reader = Reader { rest: body(payload)?, left: most };
    let mut all = Vec::new();
    while !reader.rest.is_empty() {
        if reader.take(1)?[0] != kinds::LIBRARY {
            return Err(BadPayload::Format);
        }
        all.push(reader.string()?.into_owned());
    }
    Ok(all)
}

/// Whether fields and members are different, and scores are numbers.
fn is_sound(value: &Restored) -> bool {
    fn are_different<'a>(mut all: impl Iterator<Item = &'a Vec<u8>>) -> bool {
        let mut known = HashSet::new();
        all.all(|name| known.insert(&name[..]))
    }
    match value {
        Restored::String(_) | Restored::List(_) | Restored::Stream(_) => true,
        Restored::Set(all) => are_different(all.iter()),
        Restored::Hash(all) => are_different(all.iter().step_by(2)),
        Restored::TimedHash(all) => are_different(all.iter().map(|field| &field.0)),
        Restored::SortedSet(all) => {
            !all.iter().any(|pair| pair.0.is_nan()) && are_different(all.iter().map(|pair| &pair.1))
        }
    }
}

/// A length, or the encoding of a string.
enum Length {
    Bytes(usize),
    Encoded(u8),
}

pub(super) struct Reader<'a> {
    pub(super) rest: &'a [u8],
    /// Bytes that the result may still take beside.
    left: usize,
}

/// Unpacks the elements of a string.
type Unpack = fn(&[u8], &mut dyn FnMut(Vec<u8>) -> Option<()>) -> Option<()>;

fn unpack_listpack(bytes: &[u8], take: &mut dyn FnMut(Vec<u8>) -> Option<()>) -> Option<()> {
    listpack::read(bytes, take)
}

fn unpack_ziplist(bytes: &[u8], take: &mut dyn FnMut(Vec<u8>) -> Option<()>) -> Option<()> {
    ziplist::read(bytes, take)
}

fn unpack_zipmap(bytes: &[u8], take: &mut dyn FnMut(Vec<u8>) -> Option<()>) -> Option<()> {
    ziplist::read_zipmap(bytes, take)
}

fn unpack_intset(bytes: &[u8], take: &mut dyn FnMut(Vec<u8>) -> Option<()>) -> Option<()> {
    ziplist::read_intset(bytes, take)
}

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, length: usize) -> Read<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(BadPayload::Format)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        Ok(self.take(N)?.try_into().expect("as many were taken"))
    }

    /// Charges bytes of the result.
    pub(super) fn charge(&mut self, bytes: usize) -> Read<()> {
        self.left = self.left.checked_sub(bytes).ok_or(BadPayload::TooLarge)?;
        Ok(())
    }

    fn length_or_encoding(&mut self) -> Read<Length> {
        let [first] = self.array()?;
        Ok(Length::Bytes(match first {
            0..=0x3f => usize::from(first),
            0x40..=0x7f => usize::from(first & 0x3f) << 8 | usize::from(self.take(1)?[0]),
            0x80 => u32::from_be_bytes(self.array()?) as usize,
            0x81 => {
                let length = u64::from_be_bytes(self.array()?);
                usize::try_from(length).map_err(|_| BadPayload::Format)?
            }
            0xc0..=0xff => return Ok(Length::Encoded(first & 0x3f)),
            _ => return Err(BadPayload::Format),
        }))
    }

    pub(super) fn length(&mut self) -> Read<usize> {
        match self.length_or_encoding()? {
            Length::Bytes(length) => Ok(length),
            Length::Encoded(_) => Err(BadPayload::Format),
        }
    }

    /// A string. Bytes that are not part of the payload are charged.
    pub(super) fn string(&mut self) -> Read<Cow<'a, [u8]>> {
        let integer = match self.length_or_encoding()? {
            Length::Bytes(length) => return self.take(length).map(Cow::Borrowed),
            Length::Encoded(0) => i32::from(i8::from_le_bytes(self.array()?)),
            Length::Encoded(1) => i32::from(i16::from_le_bytes(self.array()?)),
            Length::Encoded(2) => i32::from_le_bytes(self.array()?),
            Length::Encoded(3) => {
                let (packed, length) = (self.length()?, self.length()?);
                let packed = self.take(packed)?;
                self.charge(length)?;
                let text = lzf::decompress(packed, length).ok_or(BadPayload::Format)?;
                return Ok(Cow::Owned(text));
            }
            Length::Encoded(_) => return Err(BadPayload::Format),
        };
        Ok(Cow::Owned(integer.to_string().into_bytes()))
    }

    /// A string to keep.
    pub(super) fn element(&mut self) -> Read<Vec<u8>> {
        let element = self.string()?.into_owned();
        self.charge(ELEMENT_BYTES + element.len())?;
        Ok(element)
    }

    /// Reads a number, and as many strings, times `factor`.
    fn elements(&mut self, factor: usize) -> Read<Vec<Vec<u8>>> {
        let (count, mut all) = (self.length()?, Vec::new());
        // Each string has a byte at least.
        if count.checked_mul(factor).is_none_or(|count| count > self.rest.len()) {
            return Err(BadPayload::Format);
        }
        for _ in 0..count * factor {
            all.push(self.element()?);
        }
        Ok(all)
    }

    /// Appends the elements of a string.
    fn unpack(&mut self, unpack: Unpack, all: &mut Vec<Vec<u8>>) -> Read<()> {
        let packed = self.string()?;
        let mut is_too_large = false;
        let read = unpack(&packed, &mut |element| {
            is_too_large = self.charge(ELEMENT_BYTES + element.len()).is_err();
            all.push(element);
            (!is_too_large).then_some(())
        });
        match read {
            _ if is_too_large => Err(BadPayload::TooLarge),
            Some(()) => Ok(()),
            None => Err(BadPayload::Format),
        }
    }

    fn unpacked(&mut self, unpack: Unpack) -> Read<Vec<Vec<u8>>> {
        let mut all = Vec::new();
        self.unpack(unpack, &mut all)?;
        Ok(all)
    }

    /// The elements of a listpack.
    pub(super) fn listpack(&mut self) -> Read<Vec<Vec<u8>>> {
        self.unpacked(unpack_listpack)
    }

    fn unpacked_pairs(&mut self, unpack: Unpack) -> Read<Vec<Vec<u8>>> {
        let all = self.unpacked(unpack)?;
        if all.len().is_multiple_of(2) { Ok(all) } else { Err(BadPayload::Format) }
    }

    fn value(&mut self, kind: u8) -> Read<Restored> {
        Ok(match kind {
            kinds::STRING => Restored::String(self.string()?.into_owned()),
            kinds::LIST => Restored::List(self.elements(1)?),
            kinds::LIST_ZIPLIST => Restored::List(self.unpacked(unpack_ziplist)?),
            kinds::LIST_QUICKLIST => Restored::List(self.quicklist(false)?),
            kinds::LIST_QUICKLIST_2 => Restored::List(self.quicklist(true)?),
            kinds::SET => Restored::Set(self.elements(1)?),
            kinds::SET_INTSET => Restored::Set(self.unpacked(unpack_intset)?),
            kinds::SET_LISTPACK => Restored::Set(self.unpacked(unpack_listpack)?),
            kinds::HASH => Restored::Hash(self.elements(2)?),
            kinds::HASH_ZIPMAP => Restored::Hash(self.unpacked_pairs(unpack_zipmap)?),
            kinds::HASH_ZIPLIST => Restored::Hash(self.unpacked_pairs(unpack_ziplist)?),
            kinds::HASH_LISTPACK => Restored::Hash(self.unpacked_pairs(unpack_listpack)?),
            kinds::SORTED_SET => Restored::SortedSet(self.sorted_set(Reader::old_score)?),
            kinds::SORTED_SET_2 => Restored::SortedSet(
                self.sorted_set(|reader| Ok(f64::from_le_bytes(reader.array()?)))?,
            ),
            kinds::SORTED_SET_ZIPLIST => ranked(self.unpacked_pairs(unpack_ziplist)?)?,
            kinds::SORTED_SET_LISTPACK => ranked(self.unpacked_pairs(unpack_listpack)?)?,
            kinds::HASH_TIMED | kinds::HASH_TIMED_OF_CANDIDATE => {
                Restored::TimedHash(self.timed_fields(kind)?)
            }
            kinds::HASH_TIMED_LISTPACK | kinds::HASH_TIMED_LISTPACK_OF_CANDIDATE => {
                Restored::TimedHash(self.timed_listpack(kind)?)
            }
            kind if kinds::STREAMS.contains(&kind) => {
                Restored::Stream(Box::new(self.stream(kind)?))
            }
            kinds::MODULE | kinds::MODULE_2 => return Err(BadPayload::Module),
            _ => return Err(BadPayload::Format),
        })
    }

    fn quicklist(&mut self, is_tagged: bool) -> Read<Vec<Vec<u8>>> {
        let (nodes, mut all) = (self.length()?, Vec::new());
        if nodes > self.rest.len() {
            return Err(BadPayload::Format);
        }
        for _ in 0..nodes {
            match is_tagged.then(|| self.length()).transpose()? {
                None => self.unpack(unpack_ziplist, &mut all)?,
                Some(1) => all.push(self.element()?),
                Some(2) => self.unpack(unpack_listpack, &mut all)?,
                Some(_) => return Err(BadPayload::Format),
            }
        }
        Ok(all)
    }

    fn sorted_set(
        &mut self,
        score: impl Fn(&mut Reader<'a>) -> Read<f64>,
    ) -> Read<Vec<(f64, Vec<u8>)>> {
        let (count, mut all) = (self.length()?, Vec::new());
        // Each member has two bytes at least.
        if count > self.rest.len() / 2 {
            return Err(BadPayload::Format);
        }
        for _ in 0..count {
            let member = self.element()?;
            all.push((score(self)? + 0.0, member));
        }
        Ok(all)
    }

    /// A score as text, behind a length.
    fn old_score(&mut self) -> Read<f64> {
        match self.take(1)?[0] {
            253 => Ok(f64::NAN),
            254 => Ok(f64::INFINITY),
            255 => Ok(f64::NEG_INFINITY),
            length => score(self.take(usize::from(length))?),
        }
    }
}

/// A score as text.
fn score(text: &[u8]) -> Read<f64> {
    let text = std::str::from_utf8(text).map_err(|_| BadPayload::Format)?;
    text.parse::<f64>().map(|score| score + 0.0).map_err(|_| BadPayload::Format)
}

/// Members, each followed by a score.
fn ranked(pairs: Vec<Vec<u8>>) -> Read<Restored> {
    let (mut all, mut pairs) = (Vec::with_capacity(pairs.len() / 2), pairs.into_iter());
    while let (Some(member), Some(text)) = (pairs.next(), pairs.next()) {
        all.push((score(&text)?, member));
    }
    Ok(Restored::SortedSet(all))
}
