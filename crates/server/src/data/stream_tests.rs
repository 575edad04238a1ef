//! Streams beside entries and groups in memory: the same steps, the same answers.

use super::keyspace::{Keyspace, Stop};
use super::stored_tests::Stored;
use super::stream_groups::{Pending, PendingEdit, Seen};
use super::values::stream::{StoredStream, Trim, TrimTo};
use super::values::stream_image;
use crate::base::stream_id::StreamId;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A step of a history.
#[derive(Clone, Debug)]
enum Step {
    /// Adds entries, each later than the last by this time, with a value of this length.
    Add(Vec<(u64, usize, bool)>),
    /// Deletes the entries at these places, by shares of 256.
    Delete(Vec<u8>),
    /// Trims to a share of the length.
    Trim(u8, bool, bool),
    /// Reads the next entries of a group for a consumer.
    Deliver(u8, u8, usize),
    /// Acknowledges the pending entries at these places.
    Acknowledge(u8, Vec<u8>),
    /// Gives the pending entries at these places to a consumer.
    Claim(u8, u8, Vec<u8>),
    /// Copies the stream and continues with the copy.
    Copy,
    /// As [`Step::Copy`], through the image.
    Restore,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let places = || prop::collection::vec(any::<u8>(), 1..20);
    let length = prop_oneof![20 => 0usize..40, 2 => 100usize..900, 1 => 4_000usize..9_000];
    let gap = prop_oneof![3 => Just(0u64), 5 => 1u64..50, 1 => 1u64..1 << 40];
    let adds = prop::collection::vec((gap, length, any::<bool>()), 1..60);
    let step = prop_oneof![
        6 => adds.prop_map(Step::Add),
        2 => places().prop_map(Step::Delete),
        2 => any::<(u8, bool, bool)>().prop_map(|(to, by_id, near)| Step::Trim(to, by_id, near)),
        4 => (0u8..2, 0u8..3, 0usize..80).prop_map(|(g, c, n)| Step::Deliver(g, c, n)),
        2 => (0u8..2, places()).prop_map(|(g, at)| Step::Acknowledge(g, at)),
        2 => (0u8..2, 0u8..3, places()).prop_map(|(g, c, at)| Step::Claim(g, c, at)),
        1 => Just(Step::Copy),
        1 => Just(Step::Restore),
    ];
    prop::collection::vec(step, 1..30)
}

type EntryStrings = Vec<Vec<u8>>;

#[derive(Clone, Debug, Default, PartialEq)]
struct ModelGroup {
    last: StreamId,
    pending: BTreeMap<StreamId, (u8, u64)>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct StreamModel {
    entries: BTreeMap<StreamId, EntryStrings>,
    last: StreamId,
    deleted: StreamId,
    added: u64,
    groups: [ModelGroup; 2],
}

const GROUPS: [&[u8]; 2] = [b"g", b""];
const CONSUMERS: [&[u8]; 3] = [b"alice", b"bob", b""];
const KEY: &[u8] = b"s";

fn picked(ids: Vec<StreamId>, places: &[u8]) -> Vec<StreamId> {
    let pick = |at: &u8| ids.get(ids.len() * usize::from(*at) / 256).copied();
    places.iter().filter_map(pick).collect()
}

fn add(
    space: &Keyspace<'_>,
    model: &mut StreamModel,
    all: &[(u64, usize, bool)],
) -> Result<(), Stop> {
    let mut stream = StoredStream::of(space.find(KEY)?)?;
    for (gap, length, is_other) in all {
        let id = match gap {
            0 => model.last.next().unwrap(),
            gap => StreamId { ms: model.last.ms + gap, seq: gap % 3 },
        };
        let name: &[u8] = if *is_other { b"other" } else { b"field" };
        let value: Vec<u8> = (0..*length).map(|at| (at as u8).wrapping_mul(id.ms as u8)).collect();
        assert!(stream.append(id, &[name, &value])?);
        assert!(!stream.append(id, &[name, &value])?);
        model.entries.insert(id, vec![name.to_vec(), value]);
        (model.last, model.added) = (id, model.added + 1);
    }
    stream.store()
}

fn trim(
    space: &Keyspace<'_>,
    model: &mut StreamModel,
    to: u8,
    by_id: bool,
    near: bool,
) -> Result<(), Stop> {
    let mut stream = StoredStream::of(space.find(KEY)?)?;
    let ids: Vec<StreamId> = model.entries.keys().copied().collect();
    let at = ids.len() * usize::from(to) / 256;
    let to = match ids.get(at).filter(|_| by_id) {
        Some(id) => TrimTo::Id(*id),
        None => TrimTo::Length((ids.len() - at) as u64),
    };
    let removed = stream.trim(&Trim { to, is_approximate: near, limit: 0 })?;
    stream.store()?;
    assert!(if near { removed <= at as u64 } else { removed == at as u64 });
    model
        .entries
        .retain(|id, _| *id >= ids.get(removed as usize).copied().unwrap_or(StreamId::MAX));
    Ok(())
}

fn deliver(
    space: &Keyspace<'_>,
    model: &mut StreamModel,
    (at, consumer, most): (usize, u8, usize),
) -> Result<(), Stop> {
    let stream = StoredStream::of(space.find(KEY)?)?;
    let mut group = stream.group(GROUPS[at])?.expect("it was created");
    let (mut ids, name) = (Vec::new(), CONSUMERS[usize::from(consumer)]);
    stream.ascend(group.last.next().unwrap(), &mut |entry| {
        ids.push(entry.id);
        ids.len() < most
    })?;
    let known = &mut model.groups[at];
    let expected: Vec<StreamId> = model
        .entries
        .range(known.last.next().unwrap()..)
        .map(|(id, _)| *id)
        .take(most.max(1))
        .collect();
    assert_eq!(ids, expected);
    if let Some(last) = ids.last() {
        (group.last, known.last) = (*last, *last);
    }
    stream.store_group(GROUPS[at], &group)?;
    let shifts = group.edit_pending(&ids, &mut |_, _| {
        Ok(PendingEdit::Set(Pending { consumer: name.into(), time: 5, count: 1 }))
    })?;
    known.pending.extend(ids.iter().map(|id| (*id, (consumer, 1))));
    group.settle(&shifts, Some(Seen { name, now: 7, is_active: true }))?;
    Ok(())
}

fn change_pending(
    space: &Keyspace<'_>,
    model: &mut StreamModel,
    (at, consumer): (usize, Option<u8>),
    places: &[u8],
) -> Result<(), Stop> {
    let stream = StoredStream::of(space.find(KEY)?)?;
    let group = stream.group(GROUPS[at])?.expect("it was created");
    let known = &mut model.groups[at].pending;
    let mut ids = picked(known.keys().copied().collect(), places);
    // An entry that is not pending.
    ids.push(StreamId { ms: 3, seq: u64::MAX });
    let shifts = group.edit_pending(&ids, &mut |place, old| {
        let model = known.get(&ids[place]).copied();
        let shown = old.as_ref().map(|old| (&*old.consumer, old.count));
        assert_eq!(shown, model.map(|(owner, count)| (CONSUMERS[usize::from(owner)], count)));
        let Some((old, consumer)) = old.zip(consumer) else {
            known.remove(&ids[place]);
            return Ok(PendingEdit::Remove);
        };
        known.insert(ids[place], (consumer, old.count + 1));
        let name = CONSUMERS[usize::from(consumer)].into();
        Ok(PendingEdit::Set(Pending { consumer: name, time: 9, count: old.count + 1 }))
    })?;
    let seen = consumer.map(|consumer| CONSUMERS[usize::from(consumer)]);
    group.settle(&shifts, seen.map(|name| Seen { name, now: 8, is_active: false }))?;
    Ok(())
}

fn run(space: &Keyspace<'_>, model: &mut StreamModel, step: &Step) -> Result<(), Stop> {
    match step {
        Step::Add(all) => add(space, model, all),
        Step::Delete(places) => {
            let mut ids = picked(model.entries.keys().copied().collect(), places);
            ids.push(StreamId { ms: 1, seq: u64::MAX });
            let mut stream = StoredStream::of(space.find(KEY)?)?;
            let before = model.entries.len();
            for id in &ids {
                if model.entries.remove(id).is_some() {
                    model.deleted = model.deleted.max(*id);
                }
            }
            let removed = stream.delete(&ids)? as usize;
            assert_eq!(removed, before - model.entries.len());
            if removed > 0 { stream.store() } else { Ok(()) }
        }
        Step::Trim(to, by_id, near) => trim(space, model, *to, *by_id, *near),
        Step::Deliver(group, consumer, most) => {
            deliver(space, model, (usize::from(*group), *consumer, *most))
        }
        Step::Acknowledge(group, places) => {
            change_pending(space, model, (usize::from(*group), None), places)
        }
        Step::Claim(group, consumer, places) => {
            change_pending(space, model, (usize::from(*group), Some(*consumer)), places)
        }
        Step::Copy => {
            let stream = StoredStream::of(space.find(KEY)?)?;
            let head = stream.entry().head().expect("it is there");
            stream.copy_to(&space.find_head(b"copy")?, head)?;
            let (source, target) = (space.find(b"copy")?, space.find_head(KEY)?);
            let (head, body) = source.row().expect("it was copied");
            target.put(head, body)?;
            source.remove_moved().map(drop).map_err(Stop::from)
        }
        Step::Restore => {
            let image = stream_image::image(&StoredStream::of(space.find(KEY)?)?)?;
            stream_image::put(space.find_head(KEY)?, &image, None)?;
            let again = stream_image::image(&StoredStream::of(space.find(KEY)?)?)?;
            assert_eq!(again, image);
            Ok(())
        }
    }
}

fn compare(space: &Keyspace<'_>, model: &StreamModel) -> Result<(), Stop> {
    let stream = StoredStream::of(space.find(KEY)?)?;
    let mut all = Vec::new();
    stream.ascend(StreamId::ZERO, &mut |entry| {
        all.push((
            entry.id,
            entry.strings.iter().map(|string| string.to_vec()).collect::<EntryStrings>(),
        ));
        true
    })?;
    let expected: Vec<_> = model.entries.iter().map(|(id, s)| (*id, s.clone())).collect();
    assert_eq!(all, expected);
    let mut backward = Vec::new();
    stream.descend(StreamId::MAX, &mut |entry| {
        backward.push(entry.id);
        true
    })?;
    assert!(backward.iter().rev().eq(model.entries.keys()));
    let head = stream.head();
    assert_eq!((head.last, head.deleted, head.added), (model.last, model.deleted, model.added));
    assert_eq!(head.length as usize, model.entries.len());
    assert_eq!(head.first, model.entries.keys().next().copied().unwrap_or(StreamId::ZERO));
    assert_eq!(stream.last_entry()?, model.entries.keys().next_back().copied());
    let wanted: Vec<StreamId> = model.groups[0].pending.keys().copied().collect();
    let mut found = Vec::new();
    stream.each(&wanted, &mut |id, entry| found.push((id, entry.is_some())))?;
    let there: Vec<_> = wanted.iter().map(|id| (*id, model.entries.contains_key(id))).collect();
    assert_eq!(found, there);
    for (name, known) in GROUPS.iter().zip(&model.groups) {
        let group = stream.group(name)?.expect("it was created");
        assert_eq!((group.last, group.count_pending()?), (known.last, known.pending.len()));
        let mut pending = Vec::new();
        group.pending_from(StreamId::ZERO, &mut |id, entry| {
            pending.push((id, entry.consumer.to_vec(), entry.count));
            true
        })?;
        let owner = |consumer: &u8| CONSUMERS[usize::from(*consumer)].to_vec();
        let expected: Vec<_> =
            known.pending.iter().map(|(id, (at, count))| (*id, owner(at), *count)).collect();
        assert_eq!(pending, expected);
        for (consumer_name, consumer) in group.consumers()? {
            let owned = pending.iter().filter(|(_, owner, _)| owner == consumer_name).count();
            assert_eq!(consumer.pending as usize, owned);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Nodes of few entries make many nodes.
    #[test]
    fn as_entries_and_groups_in_memory(steps in steps(), node_entries in 1usize..40) {
        let stored = Stored::new();
        let mut model = StreamModel::default();
        stored.run_keys(node_entries, |space| {
            let mut stream = StoredStream::of(space.find(KEY)?)?;
            for name in GROUPS {
                stream.create_group(name, StreamId::ZERO, None)?;
            }
            stream.store()
        });
        for step in &steps {
            let before = model.clone();
            stored.run_keys(node_entries, |space| {
                model = before.clone();
                run(space, &mut model, step)?;
                // In the transaction of the change.
                compare(space, &model)
            });
            stored.run_keys(node_entries, |space| compare(space, &model));
        }
        stored.run_keys(node_entries, |space| Ok(space.find(KEY)?.remove().map(drop)?));
        stored.collect_garbage();
        prop_assert_eq!(stored.blocks(), vec![]);
    }

    /// A stream without groups is packed as long as it has one node.
    #[test]
    fn a_small_stream_is_packed(steps in steps()) {
        let stored = Stored::new();
        let mut model = StreamModel::default();
        let is_on_entries = |step: &&Step| {
            matches!(step, Step::Add(_) | Step::Delete(_) | Step::Trim(..) | Step::Copy)
        };
        let first = Step::Add(vec![(5, 3, false)]);
        for step in std::iter::once(&first).chain(steps.iter().filter(is_on_entries)) {
            let before = model.clone();
            stored.run_keys(100, |space| {
                model = before.clone();
                run(space, &mut model, step)
            });
            stored.run_keys(100, |space| {
                let stream = StoredStream::of(space.find(KEY)?)?;
                let mut ids = Vec::new();
                stream.ascend(StreamId::ZERO, &mut |entry| {
                    ids.push(entry.id);
                    true
                })?;
                assert!(ids.iter().eq(model.entries.keys()));
                let is_packed = stream.number().is_none();
                assert!(!is_packed || stream.nodes()? <= 1);
                Ok(())
            });
        }
    }
}
