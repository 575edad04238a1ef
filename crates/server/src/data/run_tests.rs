//! The runs of large collections beside collections in memory: the same steps, the same answers.

use super::blocks::{BlockTable, MOST_BLOCK_BYTES};
use super::collections::{Collection, discard, first_run, remove_garbage};
use super::keyspace::Stop;
use super::long_list::{End, LongList};
use super::member_run::{MemberEdit, MemberRun};
use super::member_values::MemberValues;
use super::stored_tests::Stored;
use crate::base::clock::thread_seconds;
use proptest::prelude::*;
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

/// At the thresholds, one below and above, and larger than a block.
fn length() -> impl Strategy<Value = usize> {
    const BLOCK: usize = MOST_BLOCK_BYTES;
    prop_oneof![
        20 => 0usize..60,
        1 => prop::sample::select(vec![0, BLOCK - 1, BLOCK, BLOCK + 1, 4095, 4096, 4097, 9_000]),
    ]
}

fn name(id: u8, length: usize) -> Vec<u8> {
    (0..length).map(|at| if at % 7 == 3 { id } else { id / 16 }).collect()
}

type Named = (u8, usize, Option<usize>);

fn batches() -> impl Strategy<Value = Vec<Vec<Named>>> {
    let step = (any::<u8>(), length(), prop::option::weighted(0.7, length()));
    prop::collection::vec(prop::collection::vec(step, 1..60), 1..12)
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn apply(run: MemberRun<'_>, model: &Model, batch: &[Named]) -> Result<Model, Stop> {
    let mut model = model.clone();
    let names: Vec<Vec<u8>> = batch.iter().map(|(id, length, _)| name(*id, *length)).collect();
    let slices: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    run.edit(&slices, &mut |number, old| {
        assert_eq!(old, model.get(&names[number]).map(Vec::as_slice));
        Ok(match batch[number].2 {
            Some(length) => {
                let value =
                    vec![number as u8; if run.values != MemberValues::None { length } else { 0 }];
                model.insert(names[number].clone(), value.clone());
                MemberEdit::Set(Cow::Owned(value))
            }
            None => {
                model.remove(&names[number]);
                MemberEdit::Remove
            }
        })
    })?;
    Ok(model)
}

fn pairs(all: Vec<(&[u8], &[u8])>) -> Vec<(Vec<u8>, Vec<u8>)> {
    all.into_iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
}

/// Checks a run of either order against the model.
fn check(run: MemberRun<'_>, model: &Model) -> Result<(), Stop> {
    assert_eq!(run.count()?, model.len());
    assert_eq!(run.has_any()?, !model.is_empty());
    if model.is_empty() {
        return Ok(());
    }
    let all = pairs(run.all()?);
    let mut sorted = all.clone();
    sorted.sort();
    let expected: Vec<_> = model.iter().map(|(n, v)| (n.clone(), v.clone())).collect();
    assert_eq!(sorted, expected);
    let names: Vec<&[u8]> = model.keys().map(Vec::as_slice).chain([&b"not there"[..]]).collect();
    for (name, found) in names.iter().zip(run.get_all(&names)?) {
        assert_eq!(found, model.get(*name).map(Vec::as_slice));
        assert_eq!(run.get(name)?, found);
    }
    for rank in [0, model.len() / 2, model.len() - 1] {
        assert_eq!(pairs(run.of_ranks(&[rank], model.len())?), all[rank..=rank]);
        let both = pairs(run.of_ranks(&[rank, 0], model.len())?);
        assert_eq!(both, [all[rank].clone(), all[0].clone()]);
    }
    Ok(())
}

fn check_hashed(run: MemberRun<'_>, model: &Model, count: usize) -> Result<(), Stop> {
    check(run, model)?;
    let (mut found, mut next) = (Vec::new(), Some(0));
    while let Some(from) = next {
        let (some, then) = run.scan_from(from, count)?;
        assert!(then.is_none_or(|then| then > from));
        found.extend(pairs(some));
        next = then;
    }
    found.sort();
    assert_eq!(found, model.clone().into_iter().collect::<Vec<_>>());
    Ok(())
}

fn check_sorted(run: MemberRun<'_>, model: &Model) -> Result<(), Stop> {
    check(run, model)?;
    let names: Vec<&[u8]> = model.keys().map(Vec::as_slice).collect();
    for (rank, name) in names.iter().enumerate().step_by(7) {
        assert_eq!(run.rank(name)?, rank);
        let some: Vec<_> =
            run.slice(rank, 9, names.len())?.into_iter().map(|member| member.0).collect();
        assert_eq!(some, names[rank..names.len().min(rank + 9)]);
        let mut found = Vec::new();
        run.ascend_from(name, |(name, _)| {
            found.push(name);
            true
        })?;
        assert_eq!(found, names[rank..]);
        let mut found = Vec::new();
        run.descend_from(Some(name), |(name, _)| {
            found.push(name);
            true
        })?;
        found.reverse();
        assert_eq!(found, names[..rank]);
    }
    Ok(())
}

#[derive(Clone, Debug)]
enum ListStep {
    Push(bool, Vec<usize>),
    Pop(bool, usize),
    Insert(usize, usize),
    Set(usize, usize),
    Remove(bool, u8),
}

fn list_step() -> impl Strategy<Value = ListStep> {
    prop_oneof![
        4 => (any::<bool>(), prop::collection::vec(length(), 1..80))
            .prop_map(|(left, all)| ListStep::Push(left, all)),
        3 => (any::<bool>(), 0usize..60).prop_map(|(left, n)| ListStep::Pop(left, n)),
        6 => (any::<usize>(), length()).prop_map(|(at, n)| ListStep::Insert(at, n)),
        2 => (any::<usize>(), length()).prop_map(|(at, n)| ListStep::Set(at, n)),
        1 => (any::<bool>(), any::<u8>()).prop_map(|(left, n)| ListStep::Remove(left, n)),
    ]
}

fn end(is_left: bool) -> End {
    if is_left { End::Left } else { End::Right }
}

/// Takes a step in a list and in the model. Returns the resulting row and model.
fn take_step(
    table: BlockTable<'_>,
    row: &[u8],
    model: &VecDeque<Vec<u8>>,
    number: u8,
    step: &ListStep,
) -> Result<(Vec<u8>, VecDeque<Vec<u8>>), Stop> {
    let (row, mut model) = (row.to_vec(), model.clone());
    let one = |length: usize| name(number, length);
    let (texts, element): (Vec<Vec<u8>>, Vec<u8>) = match step {
        ListStep::Push(_, all) => (all.iter().map(|n| one(*n)).collect(), Vec::new()),
        ListStep::Insert(_, n) | ListStep::Set(_, n) => (Vec::new(), one(*n)),
        _ => (Vec::new(), Vec::new()),
    };
    let mut list = LongList::from_body(table, &row)?;
    match step {
        ListStep::Push(left, _) => {
            list.push(end(*left), &texts.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
            for text in &texts {
                if *left { model.push_front(text.clone()) } else { model.push_back(text.clone()) }
            }
        }
        ListStep::Pop(left, count) => {
            let popped = list.pop(end(*left), *count)?;
            let wanted = (0..(*count).min(model.len()))
                .map(|_| if *left { model.pop_front() } else { model.pop_back() }.unwrap());
            assert_eq!(popped, wanted.collect::<Vec<_>>());
        }
        ListStep::Insert(at, _) if !model.is_empty() => {
            let at = at % model.len();
            list.insert(at, &element)?;
            model.insert(at, element.clone());
        }
        ListStep::Set(at, _) if !model.is_empty() => {
            let at = at % model.len();
            list.set(at, &element)?;
            model[at] = element.clone();
        }
        ListStep::Remove(left, which) => {
            let is_removed = |text: &[u8]| text.len() % 13 == usize::from(which % 13);
            let before = model.len();
            model.retain(|text| !is_removed(text));
            assert_eq!(list.remove(end(*left), is_removed)?, before - model.len());
        }
        _ => {}
    }
    assert_eq!(list.count(), model.len());
    assert_eq!(list.all()?, model.iter().map(Vec::as_slice).collect::<Vec<_>>());
    for at in (0..model.len()).step_by(11) {
        assert_eq!(list.range(at, 1)?, [&model[at][..]]);
    }
    Ok((list.body(), model))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn hashed_members(batches in batches(), count in 1usize..50, strings: bool) {
        let values = if strings { MemberValues::Strings } else { MemberValues::None };
        let (stored, mut model) = (Stored::new(), Model::new());
        for batch in &batches {
            let collection = Collection { number: 5, secret: 77 };
            model = stored.run(|table| {
                let run = collection.members(table, values);
                let model = apply(run, &model, batch)?;
                check_hashed(run, &model, count)?;
                Ok(model)
            });
            stored.run(|table| check_hashed(collection.members(table, values), &model, count));
        }
        for (members, bytes) in stored.blocks() {
            prop_assert!(members == 1 || members > 0 && bytes <= MOST_BLOCK_BYTES);
        }
    }

    #[test]
    fn sorted_members(batches in batches()) {
        let (stored, mut model) = (Stored::new(), Model::new());
        for batch in &batches {
            let collection = Collection { number: 5, secret: 77 };
            model = stored.run(|table| {
                let model = apply(collection.by_score(table), &model, batch)?;
                check_sorted(collection.by_score(table), &model)?;
                Ok(model)
            });
            stored.run(|table| check_sorted(collection.by_score(table), &model));
        }
    }

    #[test]
    fn lists(steps in prop::collection::vec(list_step(), 1..60)) {
        let (stored, mut model) = (Stored::new(), VecDeque::new());
        let mut row = stored.run(|table| LongList::write(table, 3, &[]));
        for (number, step) in steps.iter().enumerate() {
            (row, model) =
                stored.run(|table| take_step(table, &row, &model, number as u8, step));
        }
    }
}

fn add(run: MemberRun<'_>, name: &[u8]) -> Result<(), Stop> {
    run.edit(&[name], &mut |_, _| Ok(MemberEdit::Set(Cow::Borrowed(&[]))))
}

/// Adds members to a sorted run, one after the other, a few in a transaction.
fn add_in_order(stored: &Stored, collection: Collection, numbers: impl Iterator<Item = usize>) {
    let names: Vec<Vec<u8>> = numbers.map(|n| format!("member:{n:08}").into()).collect();
    for some in names.chunks(60) {
        stored.run(|table| some.iter().try_for_each(|name| add(collection.by_score(table), name)));
    }
    let model: Model = names.into_iter().map(|name| (name, Vec::new())).collect();
    stored.run(|table| {
        let (run, total) = (collection.by_score(table), model.len());
        let all = run.slice(0, total, total)?;
        assert!(all.iter().map(|member| member.0).eq(model.keys().map(Vec::as_slice)));
        for rank in [0, total / 2, total - 1] {
            assert_eq!(run.rank(all[rank].0)?, rank);
        }
        Ok(())
    });
}

/// Members in ascending or descending order leave full blocks behind; in another order at least
/// half full ones.
#[test]
fn members_that_arrive_in_order_fill_their_blocks() {
    const COUNT: usize = 2_000;
    let collection = Collection { number: 5, secret: 77 };
    let bytes = |numbers: &mut dyn Iterator<Item = usize>| {
        let stored = Stored::new();
        add_in_order(&stored, collection, numbers);
        stored.blocks().into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>()
    };
    // Members of 16 bytes: blocks are filled to the limit.
    let ascending = bytes(&mut (0..COUNT));
    assert!(ascending.iter().rev().skip(1).all(|bytes| *bytes == MOST_BLOCK_BYTES));
    let descending = bytes(&mut (0..COUNT).rev());
    assert!(descending.iter().skip(1).all(|bytes| *bytes == MOST_BLOCK_BYTES));
    assert_eq!(ascending.len(), descending.len());
    // From the middle to both ends.
    let outward = bytes(&mut (0..COUNT).map(|n| if n % 2 == 0 { COUNT - n } else { COUNT + n }));
    assert!(outward.len() <= ascending.len() + 1, "{outward:?}");
    // To the middle, two alternating sequences, and no order: 619 is prime to the count.
    let most = 2 * ascending.len();
    let inward = bytes(&mut (0..COUNT).map(|n| if n % 2 == 0 { n } else { 2 * COUNT - n }));
    let two = bytes(&mut (0..COUNT).map(|n| n / 2 + n % 2 * COUNT));
    let mixed = bytes(&mut (0..COUNT).map(|n| n * 619 % COUNT));
    for bytes in [ascending, descending, outward, inward, two, mixed] {
        assert!(bytes.len() <= most, "{bytes:?}");
        assert!(bytes.iter().all(|bytes| (1..=MOST_BLOCK_BYTES).contains(bytes)));
        assert_eq!(bytes.iter().sum::<usize>(), 16 * COUNT);
    }
}

/// The last member fits exactly, or is one byte longer.
#[test]
fn a_block_of_members_takes_its_most_and_no_more() {
    for (last, blocks) in [(15, vec![MOST_BLOCK_BYTES]), (16, vec![MOST_BLOCK_BYTES - 16, 17])] {
        let stored = Stored::new();
        let collection = Collection { number: 5, secret: 77 };
        let before = MOST_BLOCK_BYTES / 16 - 1;
        add_in_order(&stored, collection, 0..before);
        let name = vec![b'z'; last];
        stored.run(|table| add(collection.by_score(table), &name));
        let found: Vec<usize> = stored.blocks().into_iter().map(|(_, bytes)| bytes).collect();
        assert_eq!(found, blocks);
    }
}

/// Elements pushed at an end, alone or many at once, leave full blocks behind.
#[test]
fn a_list_that_grows_at_an_end_fills_its_blocks() {
    let element = [b'e'; 15];
    for (left, at_once) in [(false, 1), (true, 1), (false, 7), (true, 150), (false, 1_000)] {
        let stored = Stored::new();
        let mut row = stored.run(|table| LongList::write(table, 3, &[]));
        for _ in 0..3_000 / at_once {
            row = stored.run(|table| {
                let row = row.clone();
                let mut list = LongList::from_body(table, &row)?;
                list.push(end(left), &vec![&element[..]; at_once])?;
                Ok(list.body())
            });
        }
        let mut blocks = stored.blocks();
        if left {
            blocks.reverse();
        }
        let inner = blocks.len() - 1;
        assert!(inner > 15, "{blocks:?}");
        let is_full = |(count, bytes): &(u32, usize)| {
            *bytes == MOST_BLOCK_BYTES && *count as usize == MOST_BLOCK_BYTES / 16
        };
        assert!(blocks[..inner].iter().all(is_full), "{left} {at_once} {blocks:?}");
    }
}

/// The reaper removes the blocks of garbage and leaves the blocks of the neighbours.
#[test]
fn garbage_is_removed_whole_and_alone() {
    let stored = Stored::new();
    let fill = |number: u64| {
        let names: Vec<Vec<u8>> = (0..9_000).map(|n| format!("member:{n:08}").into()).collect();
        let collection = Collection { number, secret: 1 };
        stored.run(|table| {
            collection
                .members(table, MemberValues::None)
                .fill(names.iter().map(|name| (&name[..], &[][..])))?;
            collection.by_score(table).fill(names.iter().map(|name| (&name[..], &[][..])))
        });
        collection
    };
    let all = [fill(6), fill(7), fill(8)];
    let before = stored.blocks().len();
    assert!(before > 3 * 2 * 64);
    stored.database.transact(|tx| Ok(discard(tx, stored.tables, &all[1].body())?)).unwrap();
    let mut session = stored.database.session().unwrap();
    let mut rounds = 0;
    while remove_garbage(&mut session, stored.tables).unwrap() {
        rounds += 1;
    }
    assert!(rounds > 1);
    stored.run(|table| {
        for collection in [all[0], all[2]] {
            assert_eq!(collection.members(table, MemberValues::None).count()?, 9_000);
            assert_eq!(collection.by_score(table).count()?, 9_000);
        }
        for run in [first_run(7), first_run(7) + 1] {
            assert!(!table.has_any(run)?);
        }
        Ok(())
    });
}

/// Insertions at one place use up the numbers between two blocks: all blocks are then numbered
/// anew.
#[test]
fn a_list_grows_at_one_place() {
    let (stored, mut model) = (Stored::new(), VecDeque::new());
    let mut row = stored.run(|table| LongList::write(table, 3, &[]));
    let first = ListStep::Push(false, vec![40; 400]);
    let grow = (0..60).map(|_| ListStep::Insert(200, 700));
    for (number, step) in std::iter::once(first).chain(grow).enumerate() {
        (row, model) = stored.run(|table| take_step(table, &row, &model, number as u8, &step));
    }
    assert_eq!(model.len(), 460);
}

/// A queue that is never empty uses up the numbers at the ends: all blocks are then numbered anew.
#[test]
fn numbers_at_the_ends_are_used_up() {
    for (left, left_next, right_next) in
        [(false, 1u64 << 63, u64::MAX - 20), (true, 20, 1 << 63), (false, 20, u64::MAX)]
    {
        let (stored, mut model) = (Stored::new(), VecDeque::new());
        let mut row = stored.run(|table| LongList::write(table, 3, &[]));
        row[16..24].copy_from_slice(&left_next.to_le_bytes());
        row[24..32].copy_from_slice(&right_next.to_le_bytes());
        let steps = (0..40).flat_map(|_| {
            [ListStep::Push(left, vec![700; 4]), ListStep::Pop(!left, 2), ListStep::Pop(left, 1)]
        });
        for (number, step) in steps.enumerate() {
            (row, model) = stored.run(|table| take_step(table, &row, &model, number as u8, &step));
        }
        assert_eq!(model.len(), 40);
        let next = |at: usize| u64::from_le_bytes(row[at..at + 8].try_into().unwrap());
        assert!(next(16) > 20 && next(24) < u64::MAX - 20, "{} {}", next(16), next(24));
    }
}

/// Blocks removed by the same transaction are not visited again for each later block.
#[test]
fn many_elements_are_taken_in_one_transaction() {
    let seconds = |count: usize, end: End| {
        let stored = Stored::new();
        let names: Vec<Vec<u8>> =
            (0..count).map(|n| [format!("{n:08}").as_bytes(), &[7; 700]].concat()).collect();
        let slices: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let row = stored.run(|table| LongList::write(table, 7, &slices));
        let (seconds, row) = stored.run(|table| {
            let (row, began) = (row.clone(), thread_seconds());
            let mut list = LongList::from_body(table, &row)?;
            let popped = list.pop(end, count - 10)?;
            let seconds = thread_seconds() - began;
            assert!(match end {
                End::Left => popped == slices[..count - 10],
                End::Right => popped.iter().rev().eq(&slices[10..]),
            });
            Ok((seconds, list.body()))
        });
        stored.run(|table| {
            let row = row.clone();
            let left = LongList::from_body(table, &row)?.all()?;
            assert!(left == if end == End::Left { &slices[count - 10..] } else { &slices[..10] });
            Ok(())
        });
        seconds
    };
    for end in [End::Left, End::Right] {
        // Half a minute, if each block is searched from the end on, and rewritten for each part
        // taken. On a busy machine one of several tries is quick.
        let tries = (0..5).map(|_| seconds(64_000, end));
        let slow: Vec<f64> = tries.take_while(|seconds| *seconds >= 5.0).collect();
        assert!(slow.len() < 5, "{end:?}: {slow:?} s");
    }
}
