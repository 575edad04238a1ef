//! Streams as a whole, for DUMP and RESTORE.

use super::stream::StoredStream;
use crate::base::stream_id::StreamId;
use crate::data::keyspace::{Entry, Stop};
use crate::data::stream_groups::{Consumer, Group, Pending, PendingEdit};
use crate::rdb::{ConsumerImage, GroupImage, PendingImage, StreamImage};
use hyades::Abort;
use std::collections::HashMap;

/// All of a stream.
pub fn image(stream: &StoredStream<'_, '_>) -> Result<StreamImage, Stop> {
    let head = stream.head();
    let mut image = StreamImage {
        last: head.last,
        deleted: head.deleted,
        added: head.added,
        ..StreamImage::default()
    };
    stream.ascend(StreamId::ZERO, &mut |entry| {
        let strings = entry.strings.iter().map(|string| string.to_vec());
        image.entries.push((entry.id, strings.collect()));
        true
    })?;
    for (name, group) in stream.groups()? {
        image.groups.push(group_image(name, &group)?);
    }
    Ok(image)
}

fn group_image(name: &[u8], group: &Group<'_>) -> Result<GroupImage, Stop> {
    let (name, all) = (name.to_vec(), group.consumers()?);
    let places: HashMap<&[u8], usize> =
        all.iter().enumerate().map(|(at, (name, _))| (*name, at)).collect();
    let consumers = all.iter().map(|(name, Consumer { seen, active, .. })| ConsumerImage {
        name: name.to_vec(),
        seen: *seen,
        active: *active,
    });
    let (last, read, consumers) = (group.last, group.read, consumers.collect());
    let mut image = GroupImage { name, last, read, consumers, ..GroupImage::default() };
    let mut is_torn = false;
    group.pending_from(StreamId::ZERO, &mut |id, Pending { consumer, time, count }| {
        match places.get(&consumer[..]) {
            Some(at) => drop(image.pending.insert(id, PendingImage { consumer: *at, time, count })),
            None => is_torn = true,
        }
        !is_torn
    })?;
    if is_torn { Err(Abort::Conflict.into()) } else { Ok(image) }
}

/// Stores a stream in the place of any earlier value. The stream does not expire at once.
pub fn put(entry: Entry<'_, '_>, image: &StreamImage, expires: Option<i64>) -> Result<(), Stop> {
    let mut stream = StoredStream::in_place_of(entry, expires);
    for (id, strings) in &image.entries {
        let strings: Vec<&[u8]> = strings.iter().map(Vec::as_slice).collect();
        stream.append(*id, &strings)?;
    }
    let head = stream.head_mut();
    (head.last, head.deleted, head.added) = (image.last, image.deleted, image.added);
    for group in &image.groups {
        put_group(&mut stream, group)?;
    }
    stream.store()
}

fn put_group(stream: &mut StoredStream<'_, '_>, image: &GroupImage) -> Result<(), Stop> {
    let group = stream.create_group(&image.name, image.last, image.read)?;
    let names: Vec<&[u8]> = image.consumers.iter().map(|consumer| &consumer.name[..]).collect();
    group.edit_consumers(&names, &mut |at, _| {
        let ConsumerImage { seen, active, .. } = image.consumers[at];
        Ok(Some(Consumer { seen, active, pending: 0 }))
    })?;
    let ids: Vec<StreamId> = image.pending.keys().copied().collect();
    let all: Vec<&PendingImage> = image.pending.values().collect();
    let shifts = group.edit_pending(&ids, &mut |at, _| {
        let PendingImage { consumer, time, count } = *all[at];
        Ok(PendingEdit::Set(Pending { consumer: names[consumer].into(), time, count }))
    })?;
    group.settle(&shifts, None).map(drop)
}
