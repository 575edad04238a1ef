//! Hashes with expiring fields, as written by Redis 7.4 and its successors.

use super::listpack::ListpackWriter;
use super::read::{Read, Reader};
use super::write::{finish_with, is_packed, push_length, push_string};
use super::{BadPayload, TIMED_VERSION, TimedField, kinds};

/// The time of a number; 0 is none.
fn time(at_ms: i64) -> Read<Option<i64>> {
    match at_ms {
        0 => Ok(None),
        1..0x1_0000_0000_0000 => Ok(Some(at_ms)),
        _ => Err(BadPayload::Format),
    }
}

impl Reader<'_> {
    /// Fields, each behind a time: relative to the first time, which is in front of all fields, or,
    /// of candidates of Redis 7.4, absolute.
    pub(super) fn timed_fields(&mut self, kind: u8) -> Read<Vec<TimedField>> {
        let first = match kind {
            kinds::HASH_TIMED => Some(i64::from_le_bytes(self.array()?)),
            _ => None,
        };
        let (count, mut all) = (self.length()?, Vec::new());
        // Each field has three bytes at least.
        if count > self.rest.len() / 3 {
            return Err(BadPayload::Format);
        }
        for _ in 0..count {
            let told = i64::try_from(self.length()?).map_err(|_| BadPayload::Format)?;
            let at_ms = match (told, first) {
                (0, _) | (_, None) => told,
                (told, Some(first)) => first.checked_add(told - 1).ok_or(BadPayload::Format)?,
            };
            all.push((self.element()?, self.element()?, time(at_ms)?));
        }
        Ok(all)
    }

    /// A listpack of fields, values and times, behind the first time, but for candidates.
    pub(super) fn timed_listpack(&mut self, kind: u8) -> Read<Vec<TimedField>> {
        if kind == kinds::HASH_TIMED_LISTPACK {
            self.take(8)?;
        }
        let mut all = Vec::new();
        let mut elements = self.listpack()?.into_iter();
        while let Some(field) = elements.next() {
            let (Some(value), Some(text)) = (elements.next(), elements.next()) else {
                return Err(BadPayload::Format);
            };
            let at_ms = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok());
            all.push((field, value, time(at_ms.ok_or(BadPayload::Format)?)?));
        }
        Ok(all)
    }
}

/// The payload of a hash with expiring fields, with these values and times.
pub fn timed_hash(fields: &[(&[u8], &[u8], Option<i64>)]) -> Vec<u8> {
    let first = fields.iter().filter_map(|field| field.2).min().unwrap_or(0);
    let lengths = fields.iter().flat_map(|field| [field.0.len(), field.1.len()]);
    let is_packed = is_packed(fields.len(), lengths);
    let mut out = vec![if is_packed { kinds::HASH_TIMED_LISTPACK } else { kinds::HASH_TIMED }];
    out.extend(first.to_le_bytes());
    if is_packed {
        // Redis removes fields from the front: fields that stay are the last.
        let mut sorted: Vec<_> = fields.iter().collect();
        sorted.sort_by_key(|field| field.2.unwrap_or(i64::MAX));
        let mut listpack = ListpackWriter::default();
        for (field, value, at_ms) in sorted {
            listpack.push(field);
            listpack.push(value);
            listpack.push(at_ms.unwrap_or(0).to_string().as_bytes());
        }
        push_string(&mut out, &listpack.finish());
    } else {
        push_length(&mut out, fields.len());
        for (field, value, at_ms) in fields {
            push_length(&mut out, at_ms.map_or(0, |at_ms| (at_ms - first) as usize + 1));
            push_string(&mut out, field);
            push_string(&mut out, value);
        }
    }
    finish_with(TIMED_VERSION, out)
}
