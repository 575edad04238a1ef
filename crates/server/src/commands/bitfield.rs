//! BITFIELD: integers of any width at any bit of a string.

use super::numbers::OUT_OF_RANGE;
use super::strings::check_length;
use super::{Done, SYNTAX, integer, is};
use crate::data::chunks::{ChunkedString, LONGEST_IN_ROW, StoredString};
use crate::data::keyspace::{Entry, Keyspace, Stop};
use crate::data::values::string::length_of;
use crate::resp::number;
use crate::resp::reply::Reply;
use std::ops::Range;

/// The treatment of a value that does not fit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

/// The type of a field: its width in bits.
#[derive(Clone, Copy)]
struct FieldType {
    is_signed: bool,
    bits: u32,
}

enum FieldAction {
    Get,
    Set(i64),
    Add(i64),
}

struct FieldOperation {
    kind: FieldType,
    offset: usize,
    action: FieldAction,
    overflow: Overflow,
}

fn field_type(text: &[u8]) -> Result<FieldType, Stop> {
    const INVALID: &str = "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is \
                           not supported but i64 is.";
    let (sign, digits) = text.split_first().ok_or(INVALID)?;
    let bits = number::integer(digits).and_then(|bits| u32::try_from(bits).ok());
    let is_signed = match sign {
        b'i' => true,
        b'u' => false,
        _ => return Err(INVALID.into()),
    };
    let most = if is_signed { 64 } else { 63 };
    let bits = bits.filter(|bits| (1..=most).contains(bits)).ok_or(INVALID)?;
    Ok(FieldType { is_signed, bits })
}

fn field_offset(text: &[u8], kind: FieldType, longest: usize) -> Result<usize, Stop> {
    let (digits, unit) = match text {
        [b'#', rest @ ..] => (rest, kind.bits as usize),
        text => (text, 1),
    };
    let offset = integer(digits).ok().and_then(|offset| usize::try_from(offset).ok());
    let offset = offset.and_then(|offset| offset.checked_mul(unit));
    offset.filter(|offset| offset / 8 < longest).ok_or_else(|| OUT_OF_RANGE.into())
}

fn operations(args: &[&[u8]], longest: usize) -> Result<Vec<FieldOperation>, Stop> {
    let (mut all, mut overflow, mut at) = (Vec::new(), Overflow::Wrap, 0);
    while let Some(word) = args.get(at) {
        let rest = &args[at + 1..];
        if is(word, "OVERFLOW") && !rest.is_empty() {
            overflow = match rest[0] {
                word if is(word, "WRAP") => Overflow::Wrap,
                word if is(word, "SAT") => Overflow::Saturate,
                word if is(word, "FAIL") => Overflow::Fail,
                _ => return Err("ERR Invalid OVERFLOW type specified".into()),
            };
            at += 2;
            continue;
        }
        let takes = match *word {
            word if is(word, "GET") => 2,
            word if is(word, "SET") || is(word, "INCRBY") => 3,
            _ => return Err(SYNTAX.into()),
        };
        if rest.len() < takes {
            return Err(SYNTAX.into());
        }
        let kind = field_type(rest[0])?;
        let offset = field_offset(rest[1], kind, longest)?;
        let action = match takes {
            2 => FieldAction::Get,
            _ if is(word, "SET") => FieldAction::Set(integer(rest[2])?),
            _ => FieldAction::Add(integer(rest[2])?),
        };
        all.push(FieldOperation { kind, offset, action, overflow });
        at += takes + 1;
    }
    Ok(all)
}

impl FieldType {
    fn read(self, value: &[u8], offset: usize) -> i64 {
        let mut bits = 0u64;
        for at in offset..offset + self.bits as usize {
            let byte = value.get(at / 8).copied().unwrap_or(0);
            bits = bits << 1 | u64::from(byte >> (7 - at % 8) & 1);
        }
        self.cut(bits)
    }

    /// The bytes of a field.
    fn bytes(self, offset: usize) -> Range<usize> {
        offset / 8..(offset + self.bits as usize).div_ceil(8)
    }

    /// Returns the value of the lowest bits.
    fn cut(self, bits: u64) -> i64 {
        let unused = 64 - self.bits;
        match self.is_signed {
            true => (bits << unused) as i64 >> unused,
            false => (bits << unused >> unused) as i64,
        }
    }

    fn write(self, value: &mut [u8], offset: usize, number: i64) {
        for n in 0..self.bits as usize {
            let (at, bit) = (offset + n, (number as u64 >> (self.bits as usize - 1 - n) & 1) as u8);
            let shift = 7 - at % 8;
            value[at / 8] = value[at / 8] & !(1 << shift) | bit << shift;
        }
    }

    /// The number as stored; `None` if the number does not fit, and may not be changed.
    fn fit(self, number: i128, overflow: Overflow) -> Option<i64> {
        let (least, most) = match self.is_signed {
            true => (-(1i128 << (self.bits - 1)), (1i128 << (self.bits - 1)) - 1),
            false => (0, (1i128 << self.bits) - 1),
        };
        match overflow {
            _ if (least..=most).contains(&number) => Some(number as i64),
            Overflow::Wrap => Some(self.cut(number as u64)),
            Overflow::Saturate => Some(number.clamp(least, most) as i64),
            Overflow::Fail => None,
        }
    }
}

/// A string with fields to read and write.
enum Fields<'t> {
    /// The whole string.
    InRow(Vec<u8>),
    /// The chunks, and whether a byte was changed.
    InChunks(ChunkedString<'t>, bool),
}

impl<'t> Fields<'t> {
    /// The string of an entry, extended with zeros up to `needed` bytes for a write.
    fn of(entry: &Entry<'t, '_>, needed: Option<usize>) -> Result<Self, Stop> {
        let stored = entry.string()?;
        let length = length_of(stored).max(needed.unwrap_or(0));
        let is_long = needed.is_some() && length > LONGEST_IN_ROW;
        if is_long || matches!(stored, Some(StoredString::InChunks(_))) {
            return Ok(Fields::InChunks(entry.in_chunks(stored)?.extended(length), false));
        }
        let mut value = stored.map_or(Vec::new(), |text| text.short().to_vec());
        value.resize(length, 0);
        Ok(Fields::InRow(value))
    }

    fn read(&self, kind: FieldType, offset: usize) -> Result<i64, Stop> {
        match self {
            Fields::InRow(value) => Ok(kind.read(value, offset)),
            Fields::InChunks(string, _) => {
                let bytes = kind.bytes(offset);
                let mut window = Vec::new();
                string.read(
                    bytes.start.min(string.len())..bytes.end.min(string.len()),
                    &mut window,
                )?;
                Ok(kind.read(&window, offset - 8 * bytes.start))
            }
        }
    }

    /// Writes a field, which is within the string.
    fn write(&mut self, kind: FieldType, offset: usize, number: i64) -> Result<(), Stop> {
        match self {
            Fields::InRow(value) => kind.write(value, offset, number),
            Fields::InChunks(string, changed) => {
                let bytes = kind.bytes(offset);
                let mut window = Vec::new();
                string.read(bytes.clone(), &mut window)?;
                kind.write(&mut window, offset - 8 * bytes.start, number);
                *changed |= string.write(bytes.start, &window)?;
            }
        }
        Ok(())
    }

    fn store(&self, entry: &Entry<'_, '_>) -> Done {
        match self {
            Fields::InRow(value) => entry.store_if_changed(value),
            Fields::InChunks(string, changed) => entry.store_chunks(string, *changed),
        }
    }
}

fn run(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>, reads_only: bool) -> Done {
    let all = operations(&args[2..], space.context().longest)?;
    let writes = all.iter().filter(|operation| !matches!(operation.action, FieldAction::Get));
    let needed = writes.map(|write| (write.offset + write.kind.bits as usize).div_ceil(8)).max();
    if reads_only && needed.is_some() {
        return Err("ERR BITFIELD_RO only supports the GET subcommand".into());
    }
    check_length(space, needed.unwrap_or(0) as u64)?;
    let entry = if reads_only { space.read(args[1])? } else { space.find(args[1])? };
    let mut fields = Fields::of(&entry, needed)?;
    reply.array(all.len());
    for FieldOperation { kind, offset, action, overflow } in all {
        let old = fields.read(kind, offset)?;
        let (new, shown) = match action {
            FieldAction::Get => {
                reply.integer(old);
                continue;
            }
            // A number beyond 63 bits is not allowed: the argument is taken as the bits of an
            // unsigned number.
            FieldAction::Set(number) if !kind.is_signed => {
                let number = i128::from(number as u64);
                let new = kind.fit(number, overflow);
                (new, new.map(|_| old))
            }
            FieldAction::Set(number) => {
                let new = kind.fit(i128::from(number), overflow);
                (new, new.map(|_| old))
            }
            FieldAction::Add(by) => {
                let new = kind.fit(i128::from(old) + i128::from(by), overflow);
                (new, new)
            }
        };
        match (new, shown) {
            (Some(new), Some(shown)) => {
                fields.write(kind, offset, new)?;
                reply.integer(shown);
            }
            _ => reply.null(),
        }
    }
    match needed {
        Some(_) => fields.store(&entry),
        None => Ok(()),
    }
}

pub fn bitfield(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    run(space, args, reply, false)
}

pub fn bitfield_ro(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    run(space, args, reply, true)
}
