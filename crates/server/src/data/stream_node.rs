//! Nodes: the bytes of consecutive entries of a stream.
//!
//! The first entry of a node is stored whole: the sixteen bytes of the id, the number of fields,
//! then each field and its value. Each further entry begins with a number whose lowest bits are
//! flags (1: the fields are those of the first entry; 2: the second part of the id is 0; 4: the
//! time follows as a number of its own) and whose rest is the time since the first entry; then the
//! second part of the id, unless this is 0, counted from the second part of the first id if both
//! times are the same; then the values alone, or the number of fields, and each field with its
//! value. Numbers and strings are packed as in [`packed`].

use super::packed;
use crate::base::stream_id::StreamId;
use hyades::Abort;
use smallvec::SmallVec;

const SAME_FIELDS: u64 = 1;
const ZERO_SEQ: u64 = 2;
const FAR: u64 = 4;
const FLAG_BITS: u32 = 3;

/// Fields, each followed by the value.
pub type FieldValues<'a> = SmallVec<[&'a [u8]; 8]>;

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamEntry<'a> {
    /// The id.
    pub id: StreamId,
    /// Fields, each followed by the value.
    pub strings: FieldValues<'a>,
}

/// The entries of a node, one after the other.
pub struct NodeEntries<'a> {
    rest: &'a [u8],
    master: StreamId,
    fields: FieldValues<'a>,
    is_first: bool,
}

impl<'a> NodeEntries<'a> {
    /// The entries in the bytes of a node, perhaps none.
    pub fn of(body: &'a [u8]) -> NodeEntries<'a> {
        NodeEntries {
            rest: body,
            master: StreamId::ZERO,
            fields: FieldValues::new(),
            is_first: true,
        }
    }

    fn take(&mut self) -> Option<StreamEntry<'a>> {
        if self.is_first {
            let strings = self.take_first()?;
            return Some(StreamEntry { id: self.master, strings });
        }
        let id = self.take_id_and_flags()?;
        let mut strings = FieldValues::new();
        match id {
            (id, true) => {
                for field in &self.fields {
                    strings.extend([*field, packed::take(&mut self.rest)?]);
                }
                Some(StreamEntry { id, strings })
            }
            (id, false) => {
                let count = packed::take_number(&mut self.rest)?;
                for _ in 0..count.checked_mul(2)? {
                    strings.push(packed::take(&mut self.rest)?);
                }
                Some(StreamEntry { id, strings })
            }
        }
    }

    fn take_first(&mut self) -> Option<FieldValues<'a>> {
        let (id, rest) = self.rest.split_at_checked(size_of::<u128>())?;
        (self.master, self.rest) = (StreamId::from_bytes(id)?, rest);
        let count = packed::take_number(&mut self.rest)?;
        let mut strings = FieldValues::new();
        for at in 0..count.checked_mul(2)? {
            let string = packed::take(&mut self.rest)?;
            strings.push(string);
            if at % 2 == 0 {
                self.fields.push(string);
            }
        }
        self.is_first = false;
        Some(strings)
    }

    /// The id of the next entry, behind the first, and whether the entry has the same fields.
    fn take_id_and_flags(&mut self) -> Option<(StreamId, bool)> {
        let head = packed::take_number(&mut self.rest)?;
        let since = match head & FAR {
            0 => head >> FLAG_BITS,
            _ => packed::take_number(&mut self.rest)?,
        };
        let seq = match head & ZERO_SEQ {
            0 => packed::take_number(&mut self.rest)?,
            _ => 0,
        };
        let base = if since == 0 { self.master.seq } else { 0 };
        let id = StreamId { ms: self.master.ms.checked_add(since)?, seq: base.checked_add(seq)? };
        Some((id, head & SAME_FIELDS != 0))
    }
}

impl<'a> Iterator for NodeEntries<'a> {
    type Item = Result<StreamEntry<'a>, Abort>;

    fn next(&mut self) -> Option<Self::Item> {
        // Bytes not written by this program are a torn view.
        (!self.rest.is_empty()).then(|| self.take().ok_or(Abort::Conflict))
    }
}

/// The entries of a node from an id on.
///
/// # Errors
/// The bytes are no node: a torn view.
pub fn entries_from(body: &[u8], first: StreamId) -> Result<Vec<StreamEntry<'_>>, Abort> {
    let all = NodeEntries::of(body);
    all.filter(|entry| entry.as_ref().map_or(true, |entry| entry.id >= first)).collect()
}

/// The id of the first entry of a node; `None` if the node is empty.
pub fn first_id(body: &[u8]) -> Option<StreamId> {
    StreamId::from_bytes(body.get(..size_of::<u128>())?)
}

/// Appends an entry behind the entries of a node.
///
/// # Errors
/// The bytes are no node: a torn view.
pub fn push(body: &mut Vec<u8>, id: StreamId, strings: &[&[u8]]) -> Result<(), Abort> {
    if body.is_empty() {
        body.extend(id.bytes());
        packed::push_number(body, strings.len() as u64 / 2);
        strings.iter().for_each(|string| packed::push(body, string));
        return Ok(());
    }
    let (is_same, master) = {
        let mut all = NodeEntries::of(body);
        all.take_first().ok_or(Abort::Conflict)?;
        let has_field = |pair: (&&[u8], &[&[u8]])| *pair.0 == pair.1[0];
        let is_same = all.fields.len() == strings.len() / 2
            && all.fields.iter().zip(strings.chunks_exact(2)).all(has_field);
        (is_same, all.master)
    };
    let since = id.ms.checked_sub(master.ms).ok_or(Abort::Conflict)?;
    let base = if since == 0 { master.seq } else { 0 };
    let seq = id.seq.checked_sub(base).ok_or(Abort::Conflict)?;
    let flags = if is_same { SAME_FIELDS } else { 0 } | if seq == 0 { ZERO_SEQ } else { 0 };
    match since.leading_zeros() >= FLAG_BITS {
        true => packed::push_number(body, since << FLAG_BITS | flags),
        false => {
            packed::push_number(body, flags | FAR);
            packed::push_number(body, since);
        }
    }
    if seq > 0 {
        packed::push_number(body, seq);
    }
    if !is_same {
        packed::push_number(body, strings.len() as u64 / 2);
    }
    let stored = strings.iter().skip(usize::from(is_same)).step_by(1 + usize::from(is_same));
    stored.for_each(|string| packed::push(body, string));
    Ok(())
}

/// A node of entries.
///
/// # Errors
/// The ids do not ascend: a torn view.
pub fn node_of<'a: 'e, 'e>(
    all: impl IntoIterator<Item = &'e StreamEntry<'a>>,
) -> Result<Vec<u8>, Abort> {
    let mut body = Vec::new();
    for entry in all {
        push(&mut body, entry.id, &entry.strings)?;
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn step() -> impl Strategy<Value = (u64, u64)> {
        let far = prop_oneof![6 => 0u64..3, 2 => 0u64..100_000, 1 => any::<u64>()];
        (far.clone(), far)
    }

    fn pairs() -> impl Strategy<Value = Vec<(u8, Vec<u8>)>> {
        prop::collection::vec((0u8..2, any::<Vec<u8>>()), 1..4)
    }

    proptest! {
        #[test]
        fn a_node_reads_back(
            steps in prop::collection::vec((step(), pairs()), 1..40),
            cut in 0usize..40,
        ) {
            let (mut id, mut entries) = (StreamId::ZERO, Vec::new());
            for ((ms, seq), pairs) in &steps {
                let to = match ms {
                    0 => StreamId { ms: id.ms, seq: id.seq.saturating_add(*seq) },
                    _ => StreamId { ms: id.ms.saturating_add(*ms), seq: *seq },
                };
                if to > id {
                    id = to;
                    let names: [&[u8]; 2] = [b"field", b""];
                    let pairs =
                        pairs.iter().flat_map(|(name, value)| [names[*name as usize], &value[..]]);
                    entries.push(StreamEntry { id, strings: pairs.collect() });
                }
            }
            let body = node_of(&entries).unwrap();
            let read = entries_from(&body, StreamId::ZERO).unwrap();
            prop_assert_eq!(read.len(), entries.len());
            for (read, entry) in read.iter().zip(&entries) {
                prop_assert_eq!((read.id, &read.strings[..]), (entry.id, &entry.strings[..]));
            }
            prop_assert_eq!(first_id(&body), entries.first().map(|entry| entry.id));
            if let Some(low) = entries.get(cut) {
                prop_assert_eq!(&entries_from(&body, low.id).unwrap()[..], &read[cut..]);
            }
        }

        #[test]
        fn any_node_is_read_or_refused(body: Vec<u8>) {
            let _ = entries_from(&body, StreamId::ZERO);
            let _ = push(&mut body.clone(), StreamId { ms: 5, seq: 5 }, &[b"a", b"b"]);
        }
    }

    /// With the same two fields and values of ten bytes, an entry takes 24 bytes or less.
    #[test]
    fn field_names_stand_in_a_node_once() {
        let mut body = Vec::new();
        for at in 0..80 {
            let id = StreamId { ms: 1_700_000_000_000 + 20 * at, seq: 0 };
            push(&mut body, id, &[b"temperature", b"0123456789", b"humidity", b"0123456789"])
                .unwrap();
        }
        assert!(body.len() <= 80 * 24 + 64, "{}", body.len());
    }
}
