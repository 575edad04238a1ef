//! The groups of consumers of a stream.
//!
//! Each group is a block of the second run of the stream: the low key is [`PART`] and the name; the
//! body is the number of the group, the last delivered id, and the number of read entries,
//! `u64::MAX` if unknown: eight bytes each. The first run of the number of a group has the
//! *pending* entries, by the bytes of the ids: the time of delivery, the number of deliveries, and
//! the name of the consumer. The second run has the consumers by name: the time last seen, the time
//! last active (0: never), and the number of pending entries.
//!
//! Numbers of groups belong to the stream: when the stream is garbage, the reaper marks them as
//! garbage as well.

use super::blocks::{Block, BlockTable, LONGEST_LOW, PAGE, WalkFrom, block_bytes};
use super::collections::{PART, first_run};
use super::keyspace::{Entry, Stop};
use super::member_run::{MemberEdit, MemberOrder, MemberRun};
use super::member_values::MemberValues;
use super::packed;
use super::values::stream::{StoredStream, number_of};
use crate::base::stream_id::StreamId;
use hyades::Abort;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Bytes of the block of a group.
const GROUP_BYTES: usize = 32;

/// A group as stored.
#[derive(Clone, Copy)]
pub struct Group<'t> {
    table: BlockTable<'t>,
    number: u64,
    /// The last delivered id.
    pub last: StreamId,
    /// The number of read entries, if known.
    pub read: Option<u64>,
}

/// An entry delivered to a consumer and not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending<'a> {
    /// The name of the consumer.
    pub consumer: Cow<'a, [u8]>,
    /// The time of delivery, in milliseconds since 1970.
    pub time: i64,
    /// The number of deliveries.
    pub count: u64,
}

/// A consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Consumer {
    /// The time when the consumer was last seen, in milliseconds since 1970.
    pub seen: i64,
    /// The time when the consumer was last given an entry.
    pub active: Option<i64>,
    /// The number of the consumer's pending entries.
    pub pending: u64,
}

/// A consumer named by a command.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The name of the consumer.
    pub name: &'a [u8],
    /// The time in milliseconds since 1970.
    pub now: i64,
    /// The consumer is given an entry.
    pub is_active: bool,
}

/// The change of a pending entry.
pub enum PendingEdit<'a> {
    /// No change.
    Keep,
    /// The entry is pending, with these values.
    Set(Pending<'a>),
    /// The entry is not pending.
    Remove,
}

/// Returns the change of a pending entry, by the place of the id among the named ids.
pub type PendingChange<'c, 'a> =
    &'c mut dyn FnMut(usize, Option<Pending<'_>>) -> Result<PendingEdit<'a>, Stop>;

/// The change of each consumer's number of entries, by name.
pub type Shifts = BTreeMap<Vec<u8>, i64>;

impl<'a> Pending<'a> {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(12 + self.consumer.len());
        packed::push_number(&mut bytes, self.time as u64);
        packed::push_number(&mut bytes, self.count);
        bytes.extend_from_slice(&self.consumer);
        bytes
    }

    fn of(mut bytes: &'a [u8]) -> Result<Pending<'a>, Abort> {
        let mut number = || packed::take_number(&mut bytes).ok_or(Abort::Conflict);
        let (time, count) = (number()? as i64, number()?);
        Ok(Pending { consumer: bytes.into(), time, count })
    }
}

impl Consumer {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16);
        for number in [self.seen as u64, self.active.unwrap_or(0) as u64, self.pending] {
            packed::push_number(&mut bytes, number);
        }
        bytes
    }

    fn of(mut bytes: &[u8]) -> Result<Consumer, Abort> {
        let mut number = || packed::take_number(&mut bytes).ok_or(Abort::Conflict);
        let (seen, active) = (number()? as i64, number()? as i64);
        let active = Some(active).filter(|active| *active != 0);
        Ok(Consumer { seen, active, pending: number()? })
    }
}

fn low_of(name: &[u8]) -> Vec<u8> {
    [&[PART], name].concat()
}

impl<'t> Group<'t> {
    fn from_block(table: BlockTable<'t>, block: &Block<'_>) -> Result<Group<'t>, Abort> {
        let body: &[u8; GROUP_BYTES] = block.body.try_into().map_err(|_| Abort::Conflict)?;
        let word =
            |at: usize| u64::from_le_bytes(body[8 * at..8 * at + 8].try_into().expect("8 bytes"));
        let last = StreamId { ms: word(1), seq: word(2) };
        let read = Some(word(3)).filter(|read| *read != u64::MAX);
        Ok(Group { table, number: word(0), last, read })
    }

    fn body(&self) -> Vec<u8> {
        let words = [self.number, self.last.ms, self.last.seq, self.read.unwrap_or(u64::MAX)];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn pending_run(&self) -> MemberRun<'t> {
        let (number, order) = (first_run(self.number), MemberOrder::Sorted);
        MemberRun { table: self.table, number, order, values: MemberValues::Strings }
    }

    fn consumer_run(&self) -> MemberRun<'t> {
        MemberRun { number: first_run(self.number) + 1, ..self.pending_run() }
    }

    /// The number of pending entries.
    pub fn count_pending(&self) -> Result<usize, Stop> {
        Ok(self.pending_run().count()?)
    }

    /// The number of consumers.
    pub fn count_consumers(&self) -> Result<usize, Stop> {
        Ok(self.consumer_run().count()?)
    }

    /// Visits pending entries from an id on, in their order, until `visit` returns `false`.
    pub fn pending_from(
        &self,
        from: StreamId,
        visit: &mut dyn FnMut(StreamId, Pending<'t>) -> bool,
    ) -> Result<(), Stop> {
        let mut torn = None;
        self.pending_run().ascend_from(
            &from.bytes(),
            |(id, value)| match StreamId::from_bytes(id)
                .ok_or(Abort::Conflict)
                .and_then(|id| Ok((id, Pending::of(value)?)))
            {
                Ok((id, pending)) => visit(id, pending),
                Err(abort) => {
                    torn = Some(abort);
                    false
                }
            },
        )?;
        torn.map_or(Ok(()), |abort| Err(abort.into()))
    }

    /// The id of the last pending entry.
    pub fn last_pending(&self) -> Result<Option<StreamId>, Stop> {
        let mut last = None;
        self.pending_run().descend_from(None, |(id, _)| {
            last = StreamId::from_bytes(id);
            false
        })?;
        Ok(last)
    }

    /// Changes pending entries. [`Group::settle`] has to be called with the result.
    pub fn edit_pending(
        &self,
        ids: &[StreamId],
        change: PendingChange<'_, '_>,
    ) -> Result<Shifts, Stop> {
        let mut shifts = Shifts::new();
        let bytes: Vec<[u8; 16]> = ids.iter().map(|id| id.bytes()).collect();
        let names: Vec<&[u8]> = bytes.iter().map(|name| &name[..]).collect();
        self.pending_run().edit(&names, &mut |at, old| {
            let old = old.map(Pending::of).transpose()?;
            let owner = old.as_ref().map(|old| old.consumer.to_vec());
            let edit = change(at, old)?;
            if let Some(owner) = owner.filter(|_| !matches!(edit, PendingEdit::Keep)) {
                *shifts.entry(owner).or_default() -= 1;
            }
            Ok(match edit {
                PendingEdit::Keep => MemberEdit::Keep,
                PendingEdit::Remove => MemberEdit::Remove,
                PendingEdit::Set(pending) => {
                    *shifts.entry(pending.consumer.to_vec()).or_default() += 1;
                    MemberEdit::Set(pending.bytes().into())
                }
            })
        })?;
        Ok(shifts)
    }

    /// Applies the changes of the consumers' numbers of entries, and notes a consumer as seen, if
    /// one is given; an absent consumer is created. Returns whether a consumer was created.
    pub fn settle(&self, shifts: &Shifts, seen: Option<Seen<'_>>) -> Result<bool, Stop> {
        let mut all: BTreeMap<&[u8], i64> =
            shifts.iter().filter(|(_, by)| **by != 0).map(|(name, by)| (&name[..], *by)).collect();
        if let Some(Seen { name, .. }) = seen {
            all.entry(name).or_default();
        }
        let (names, mut is_new): (Vec<&[u8]>, bool) = (all.keys().copied().collect(), false);
        self.edit_consumers(&names, &mut |at, old| {
            let seen = seen.filter(|seen| seen.name == names[at]);
            let mut consumer = match (old, seen) {
                (Some(old), _) => old,
                (None, Some(_)) => {
                    is_new = true;
                    Consumer::default()
                }
                // Each pending entry belongs to a consumer.
                (None, None) => return Err(Abort::Conflict.into()),
            };
            let pending = consumer.pending.checked_add_signed(all[names[at]]);
            consumer.pending = pending.ok_or(Abort::Conflict)?;
            if let Some(Seen { now, is_active, .. }) = seen {
                consumer.seen = now;
                consumer.active = if is_active { Some(now) } else { consumer.active };
            }
            Ok(Some(consumer))
        })?;
        Ok(is_new)
    }

    /// A consumer, if there is one with this name.
    pub fn consumer(&self, name: &[u8]) -> Result<Option<Consumer>, Stop> {
        Ok(self.consumer_run().get(name)?.map(Consumer::of).transpose()?)
    }

    /// All consumers by name.
    pub fn consumers(&self) -> Result<Vec<(&'t [u8], Consumer)>, Stop> {
        let mut all = Vec::new();
        self.consumer_run().ascend_from(b"", |member| {
            all.push(member);
            true
        })?;
        all.into_iter().map(|(name, value)| Ok((name, Consumer::of(value)?))).collect()
    }

    /// Changes consumers: `change` gets the place of a name and the present consumer, and returns
    /// the new consumer.
    pub fn edit_consumers(
        &self,
        names: &[&[u8]],
        change: &mut dyn FnMut(usize, Option<Consumer>) -> Result<Option<Consumer>, Stop>,
    ) -> Result<(), Stop> {
        if names.is_empty() {
            return Ok(());
        }
        self.consumer_run().edit(names, &mut |at, old| {
            Ok(match change(at, old.map(Consumer::of).transpose()?)? {
                Some(consumer) => MemberEdit::Set(consumer.bytes().into()),
                None => MemberEdit::Remove,
            })
        })
    }

    /// Bytes of the blocks, including their overhead.
    pub fn bytes(&self) -> Result<usize, Stop> {
        let run = first_run(self.number);
        Ok(block_bytes(self.table, run)? + block_bytes(self.table, run + 1)?)
    }
}

/// A group of the stream of a key, if there is one with this name. Reads nothing written by XADD.
///
/// # Errors
/// The key holds another type.
pub fn group_of<'t>(entry: &Entry<'t, '_>, name: &[u8]) -> Result<Option<Group<'t>>, Stop> {
    let (table, Some(number)) = (entry.blocks(), number_of(entry)?) else { return Ok(None) };
    let block = table.get(first_run(number) + 1, &low_of(name))?;
    Ok(block.map(|block| Group::from_block(table, &block)).transpose()?)
}

impl<'t> StoredStream<'t, '_> {
    /// The run of the groups, if the stream can have any.
    fn group_run(&self) -> Option<u64> {
        self.number().map(|number| first_run(number) + 1)
    }

    /// A group, if there is one with this name.
    pub fn group(&self, name: &[u8]) -> Result<Option<Group<'t>>, Stop> {
        group_of(self.entry(), name)
    }

    /// All groups by name.
    pub fn groups(&self) -> Result<Vec<(&'t [u8], Group<'t>)>, Stop> {
        let (table, mut all) = (self.entry().blocks(), Vec::new());
        let Some(run) = self.group_run() else { return Ok(all) };
        let mut from = WalkFrom::Behind(&[]);
        loop {
            let page = table.next(run, from, PAGE)?;
            for block in &page {
                let name = block.low.get(1..).ok_or(Abort::Conflict)?;
                all.push((name, Group::from_block(table, block)?));
            }
            match page.last() {
                Some(last) => from = WalkFrom::Behind(last.low),
                None => return Ok(all),
            }
        }
    }

    /// Creates a group with a new name. The stream is to be stored.
    pub fn create_group(
        &mut self,
        name: &[u8],
        last: StreamId,
        read: Option<u64>,
    ) -> Result<Group<'t>, Stop> {
        if name.len() >= LONGEST_LOW {
            return Err("ERR the name of the group is longer than 1 MiB".into());
        }
        let (table, run) = (self.entry().blocks(), first_run(self.numbered()?) + 1);
        let group = Group { table, number: table.number_part()?, last, read };
        table.add(run, &low_of(name), 1, &group.body())?;
        Ok(group)
    }

    /// Stores a changed group.
    pub fn store_group(&self, name: &[u8], group: &Group<'_>) -> Result<(), Stop> {
        let run = self.group_run().ok_or(Abort::Conflict)?;
        self.entry().blocks().change(run, &low_of(name), 1, &group.body())
    }

    /// Removes a group with its consumers and pending entries.
    pub fn destroy_group(&self, name: &[u8], group: &Group<'_>) -> Result<(), Stop> {
        let run = self.group_run().ok_or(Abort::Conflict)?;
        self.entry().blocks().discard(group.number)?;
        Ok(self.entry().blocks().remove(run, &low_of(name))?)
    }

    /// Copies the groups to the stream with this number.
    pub fn copy_groups(&self, to: u64) -> Result<(), Stop> {
        let table = self.entry().blocks();
        for (name, group) in self.groups()? {
            let copy = Group { number: table.number_part()?, ..group };
            table.add(first_run(to) + 1, &low_of(name), 1, &copy.body())?;
            let (from, to) = (first_run(group.number), first_run(copy.number));
            table.copy(from, to)?;
            table.copy(from + 1, to + 1)?;
        }
        Ok(())
    }
}
