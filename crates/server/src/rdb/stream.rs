//! Streams in Redis's format: nodes of entries as listpacks, ids, and groups of consumers.
//!
//! A listpack has the number of entries, the number of deleted entries, the number of fields and
//! the fields of the first entry, and 0. Each entry follows: flags, both parts of the id less the
//! parts of the node's key, the number of fields and each field with its value, or the values alone
//! if the fields are those of the first entry, and the number of these elements.

use super::listpack::ListpackWriter;
use super::read::{ELEMENT_BYTES, Read, Reader};
use super::write::{finish, push_length, push_string};
use super::{BadPayload, kinds};
use crate::base::stream_id::StreamId;
use std::collections::{BTreeMap, BTreeSet};

const DELETED: i64 = 1;
const SAME_FIELDS: i64 = 2;

/// Most entries and bytes of a written node.
const MOST_NODE_ENTRIES: usize = 100;
const MOST_NODE_BYTES: usize = 4096;

/// Memory of a pending entry, about.
const PENDING_BYTES: usize = 80;

/// Fields, each followed by the value.
pub type FieldStrings = Vec<Vec<u8>>;

/// A stream without a place in a database.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamImage {
    /// Entries with ascending ids.
    pub entries: Vec<(StreamId, FieldStrings)>,
    /// The last id given out.
    pub last: StreamId,
    /// The highest deleted id.
    pub deleted: StreamId,
    /// The number of entries ever added.
    pub added: u64,
    /// The groups, with different names.
    pub groups: Vec<GroupImage>,
}

/// A group of consumers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupImage {
    /// The name of the group.
    pub name: Vec<u8>,
    /// The last delivered id.
    pub last: StreamId,
    /// The number of read entries, if known.
    pub read: Option<u64>,
    /// The consumers, with different names.
    pub consumers: Vec<ConsumerImage>,
    /// Delivered entries, by id.
    pub pending: BTreeMap<StreamId, PendingImage>,
}

/// A consumer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConsumerImage {
    /// The name of the consumer.
    pub name: Vec<u8>,
    /// The time when the consumer was seen, in milliseconds since 1970.
    pub seen: i64,
    /// The time when the consumer was last given an entry.
    pub active: Option<i64>,
}

/// An entry delivered and not acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PendingImage {
    /// The place of the consumer.
    pub consumer: usize,
    /// The time of delivery, in milliseconds since 1970.
    pub time: i64,
    /// The number of deliveries.
    pub count: u64,
}

impl StreamImage {
    /// The number of entries read by a group with `id` as the last delivered id, where the format
    /// tells neither this number nor the deleted entries.
    fn read_up_to(&self, id: StreamId) -> Option<u64> {
        match self.entries.first() {
            None if id <= self.last => Some(0),
            _ if id == self.last => Some(self.added),
            Some((first, _)) if id < *first => Some(0),
            Some((first, _)) if id == *first => Some(1),
            _ => None,
        }
    }
}

/// The payload of a stream.
pub fn stream(image: &StreamImage) -> Vec<u8> {
    let mut out = vec![kinds::STREAMS[1]];
    let nodes = nodes(&image.entries);
    push_length(&mut out, nodes.len());
    for node in nodes {
        push_string(&mut out, &node[0].0.bytes());
        push_string(&mut out, &listpack_of(node));
    }
    push_length(&mut out, image.entries.len());
    let first = image.entries.first().map_or(StreamId::ZERO, |(id, _)| *id);
    for id in [image.last, first, image.deleted] {
        push_id(&mut out, id);
    }
    push_length(&mut out, image.added as usize);
    push_length(&mut out, image.groups.len());
    image.groups.iter().for_each(|group| push_group(&mut out, group));
    finish(out)
}

fn push_id(out: &mut Vec<u8>, id: StreamId) {
    push_length(out, id.ms as usize);
    push_length(out, id.seq as usize);
}

/// Divides entries into nodes.
fn nodes(entries: &[(StreamId, FieldStrings)]) -> Vec<&[(StreamId, FieldStrings)]> {
    let (mut nodes, mut rest) = (Vec::new(), entries);
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |(_, strings): &&(StreamId, FieldStrings)| {
            bytes += strings.iter().map(|string| string.len() + 4).sum::<usize>();
            bytes <= MOST_NODE_BYTES
        };
        let count = rest.iter().take(MOST_NODE_ENTRIES).take_while(fits).count().max(1);
        let node;
        (node, rest) = rest.split_at(count);
        nodes.push(node);
    }
    nodes
}

fn listpack_of(node: &[(StreamId, FieldStrings)]) -> Vec<u8> {
    let mut out = ListpackWriter::default();
    let integer = |out: &mut ListpackWriter, value: i64| out.push(value.to_string().as_bytes());
    let fields = |strings: &FieldStrings| strings.iter().step_by(2).cloned().collect::<Vec<_>>();
    let (master, shared) = (node[0].0, fields(&node[0].1));
    integer(&mut out, node.len() as i64);
    integer(&mut out, 0);
    integer(&mut out, shared.len() as i64);
    shared.iter().for_each(|field| out.push(field));
    integer(&mut out, 0);
    for (id, strings) in node {
        let is_same = fields(strings) == shared;
        integer(&mut out, if is_same { SAME_FIELDS } else { 0 });
        integer(&mut out, id.ms.wrapping_sub(master.ms) as i64);
        integer(&mut out, id.seq.wrapping_sub(master.seq) as i64);
        if !is_same {
            integer(&mut out, strings.len() as i64 / 2);
        }
        let step = 1 + usize::from(is_same);
        strings.iter().skip(step - 1).step_by(step).for_each(|string| out.push(string));
        let elements = if is_same { strings.len() / 2 } else { strings.len() + 1 };
        integer(&mut out, elements as i64 + 3);
    }
    out.finish()
}

fn push_group(out: &mut Vec<u8>, group: &GroupImage) {
    push_string(out, &group.name);
    push_id(out, group.last);
    push_length(out, group.read.unwrap_or(u64::MAX) as usize);
    push_length(out, group.pending.len());
    let mut owned: Vec<Vec<StreamId>> = vec![Vec::new(); group.consumers.len()];
    for (id, pending) in &group.pending {
        out.extend(id.bytes());
        out.extend(pending.time.to_le_bytes());
        push_length(out, pending.count as usize);
        owned[pending.consumer].push(*id);
    }
    push_length(out, group.consumers.len());
    for (consumer, owned) in group.consumers.iter().zip(owned) {
        push_string(out, &consumer.name);
        out.extend(consumer.seen.to_le_bytes());
        push_length(out, owned.len());
        owned.iter().for_each(|id| out.extend(id.bytes()));
    }
}

impl Reader<'_> {
    /// A stream, in the format of this kind.
    pub(super) fn stream(&mut self, kind: u8) -> Read<StreamImage> {
        let (nodes, mut image) = (self.length()?, StreamImage::default());
        for _ in 0..nodes {
            let key = self.string()?;
            let master = StreamId::from_bytes(&key).ok_or(BadPayload::Format)?;
            let elements = self.listpack()?;
            // The fields of the first entry may be those of all entries.
            let charge = &mut |bytes| self.charge(bytes);
            read_node(master, &elements, charge, &mut image.entries)?;
        }
        let length = self.length()?;
        image.last = self.id()?;
        image.added = length as u64;
        if kind != kinds::STREAMS[0] {
            let _first = self.id()?;
            image.deleted = self.id()?;
            image.added = self.length()? as u64;
        }
        let ids = || image.entries.iter().map(|(id, _)| *id);
        let ascends = ids().zip(ids().skip(1)).all(|(id, next)| id < next);
        let is_last = ids().next_back().is_none_or(|last| last <= image.last);
        let is_above_zero = ids().next() != Some(StreamId::ZERO);
        if length != image.entries.len() || !ascends || !is_last || !is_above_zero {
            return Err(BadPayload::Format);
        }
        let mut names = BTreeSet::new();
        for _ in 0..self.length()? {
            let mut group = self.group(kind)?;
            if kind == kinds::STREAMS[0] {
                group.read = image.read_up_to(group.last);
            }
            if !names.insert(group.name.clone()) {
                return Err(BadPayload::Format);
            }
            image.groups.push(group);
        }
        Ok(image)
    }

    fn id(&mut self) -> Read<StreamId> {
        Ok(StreamId { ms: self.length()? as u64, seq: self.length()? as u64 })
    }

    fn raw_id(&mut self) -> Read<StreamId> {
        StreamId::from_bytes(self.take(size_of::<u128>())?).ok_or(BadPayload::Format)
    }

    fn time(&mut self) -> Read<i64> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    fn group(&mut self, kind: u8) -> Read<GroupImage> {
        let name = self.element()?;
        let mut group = GroupImage { name, last: self.id()?, ..GroupImage::default() };
        if kind != kinds::STREAMS[0] {
            group.read = Some(self.length()? as u64).filter(|read| *read != u64::MAX);
        }
        for _ in 0..self.length()? {
            self.charge(PENDING_BYTES)?;
            let (id, time, count) = (self.raw_id()?, self.time()?, self.length()? as u64);
            let pending = PendingImage { consumer: usize::MAX, time, count };
            if group.pending.insert(id, pending).is_some() {
                return Err(BadPayload::Format);
            }
        }
        let mut names = BTreeSet::new();
        for at in 0..self.length()? {
            let (name, seen) = (self.element()?, self.time()?);
            let active = match kind == kinds::STREAMS[2] {
                true => Some(self.time()?).filter(|active| *active > 0),
                false => Some(seen).filter(|seen| *seen > 0),
            };
            if !names.insert(name.clone()) {
                return Err(BadPayload::Format);
            }
            for _ in 0..self.length()? {
                let id = self.raw_id()?;
                let pending = group.pending.get_mut(&id).ok_or(BadPayload::Format)?;
                if pending.consumer != usize::MAX {
                    return Err(BadPayload::Format);
                }
                pending.consumer = at;
            }
            group.consumers.push(ConsumerImage { name, seen, active });
        }
        let is_owned = |pending: &PendingImage| pending.consumer != usize::MAX;
        if group.pending.values().all(is_owned) { Ok(group) } else { Err(BadPayload::Format) }
    }
}

/// Appends the entries of a node.
fn read_node(
    master: StreamId,
    elements: &[Vec<u8>],
    charge: &mut dyn FnMut(usize) -> Read<()>,
    entries: &mut Vec<(StreamId, FieldStrings)>,
) -> Read<()> {
    let mut all = elements.iter();
    let mut next = || all.next().ok_or(BadPayload::Format);
    let (count, deleted) = (integer(next()?)?, integer(next()?)?);
    let fields: Vec<&Vec<u8>> = (0..integer(next()?)?).map(|_| next()).collect::<Read<_>>()?;
    let fields_bytes = fields.iter().map(|field| field.len() + ELEMENT_BYTES).sum();
    if integer(next()?)? != 0 {
        return Err(BadPayload::Format);
    }
    let (mut live, mut dead) = (0, 0);
    while let Ok(flags) = next() {
        let (flags, mut length) = (integer(flags)?, 3);
        let (ms, seq) = (integer(next()?)? as u64, integer(next()?)? as u64);
        let id = StreamId { ms: master.ms.wrapping_add(ms), seq: master.seq.wrapping_add(seq) };
        let mut strings = Vec::new();
        if flags & SAME_FIELDS != 0 {
            charge(fields_bytes)?;
            for field in &fields {
                strings.extend([(*field).clone(), next()?.clone()]);
            }
            length += fields.len() as i64;
        } else {
            let width = u32::try_from(integer(next()?)?).map_err(|_| BadPayload::Format)?;
            for _ in 0..2 * u64::from(width) {
                strings.push(next()?.clone());
            }
            length += 1 + 2 * i64::from(width);
        }
        if integer(next()?)? != length {
            return Err(BadPayload::Format);
        }
        match flags & DELETED {
            0 => {
                live += 1;
                entries.push((id, strings));
            }
            _ => dead += 1,
        }
    }
    if live == count && dead == deleted { Ok(()) } else { Err(BadPayload::Format) }
}

fn integer(element: &[u8]) -> Read<i64> {
    super::canonical_integer(element).ok_or(BadPayload::Format)
}
