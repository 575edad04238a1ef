//! Streams: entries in the order of their ids, in *nodes* of several entries
//! ([`crate::data::stream_node`]).
//!
//! The *tail* is the last node, and new entries are added there. The tail lies behind the *head* of
//! the stream, which holds the number of entries and which ids they have had. A stream with one
//! node and no groups is packed: head and tail are the body of the key's row. Otherwise the body is
//! the number of the stream. The first run of the number has the other nodes, each in a block whose
//! low key is the id of the original first entry. The second run has head and tail under the empty
//! low key, and the groups ([`crate::data::stream_groups`]). So XADD writes one row; once in a
//! while the tail is full, and becomes a block unchanged. A command on a group alone reads no row
//! written by XADD.
//!
//! Invariants: no entry has an id above the last id of the head. Entries below the first id of the
//! head are dead: they were trimmed, and no command sees them. A block has a live entry, and so has
//! a non-empty tail. A live entry of a block is below all entries of the tail.

mod removal;

pub use removal::{Trim, TrimTo};

use crate::base::stream_id::StreamId;
use crate::data::blocks::{Block, BlockTable, PAGE, WalkFrom, block_bytes};
use crate::data::collections::first_run;
use crate::data::head::{Form, Head, Kind};
use crate::data::keyspace::{Entry, Stop};
use crate::data::stream_head::{HEAD_BYTES, StreamHead};
use crate::data::stream_node::{self, StreamEntry, entries_from, node_of};
use hyades::Abort;
use std::borrow::Cow;

/// Most bytes of a node, unless a single entry has more. With the head a full node takes 4 KiB.
const MOST_NODE_BYTES: usize = (4 << 10) - 16;

/// With more entries than this number between two wanted entries, the second is looked up.
const MOST_PASSED: usize = 64;

/// The low key of head and tail in the second run.
const TAIL_LOW: &[u8] = &[];

/// A stream, read and perhaps changed and stored.
pub struct StoredStream<'t, 's> {
    entry: Entry<'t, 's>,
    /// The number, unless the stream is packed.
    number: Option<u64>,
    /// The stream was packed when it was read.
    was_packed: bool,
    /// The head of the key's row, if the row is written anew.
    new_row: Option<Head>,
    head: StreamHead,
    tail: Cow<'t, [u8]>,
}

/// A function called with one entry after the other, until it returns `false`.
pub type Visit<'v> = &'v mut dyn FnMut(StreamEntry<'_>) -> bool;

impl<'t, 's> StoredStream<'t, 's> {
    /// The stream of a key; without a value, an empty stream that is not stored yet.
    ///
    /// # Errors
    /// The key holds another type.
    pub fn of(entry: Entry<'t, 's>) -> Result<StoredStream<'t, 's>, Stop> {
        let Some(body) = entry.body_of(Kind::Stream)? else {
            return Ok(StoredStream::in_place_of(entry, None));
        };
        let number = number_of(&entry)?;
        let body = match number {
            None => body,
            Some(number) => entry
                .blocks()
                .get(first_run(number) + 1, TAIL_LOW)?
                .map(|block| block.body)
                .ok_or(Abort::Conflict)?,
        };
        let (head, tail) = StreamHead::from_body(body).ok_or(Abort::Conflict)?;
        let (was_packed, tail) = (number.is_none(), tail.into());
        Ok(StoredStream { entry, number, was_packed, new_row: None, head, tail })
    }

    /// An empty stream that is not stored yet. A store replaces any earlier value.
    pub fn in_place_of(entry: Entry<'t, 's>, expires: Option<i64>) -> StoredStream<'t, 's> {
        let new_row = Some(Head::new(Kind::Stream, Form::Plain).with_expiry(expires));
        let (head, tail) = Default::default();
        StoredStream { entry, number: None, was_packed: true, new_row, head, tail }
    }

    /// Whether the key exists.
    pub fn exists(&self) -> bool {
        self.entry.exists()
    }

    /// The entry of the key.
    pub fn entry(&self) -> &Entry<'t, 's> {
        &self.entry
    }

    /// The head of the stream.
    pub fn head(&self) -> &StreamHead {
        &self.head
    }

    /// The head, to be changed and stored.
    pub fn head_mut(&mut self) -> &mut StreamHead {
        &mut self.head
    }

    /// The number, unless the stream is packed.
    pub fn number(&self) -> Option<u64> {
        self.number
    }

    /// The number. A packed stream gets a new number.
    pub fn numbered(&mut self) -> Result<u64, Stop> {
        if self.number.is_none() {
            self.number = Some(self.entry.space().number_collection(Kind::Stream)?);
        }
        Ok(self.number.expect("it has one"))
    }

    fn table(&self) -> BlockTable<'t> {
        self.entry.blocks()
    }

    fn run(&self) -> Option<u64> {
        self.number.map(first_run)
    }

    /// Stores the stream after a change of the entries or the head.
    pub fn store(&mut self) -> Result<(), Stop> {
        let mut body = Vec::with_capacity(HEAD_BYTES + self.tail.len());
        self.head.words().iter().for_each(|word| body.extend(word.to_le_bytes()));
        body.extend_from_slice(&self.tail);
        let count = self.head.in_tail as usize;
        match (self.run(), self.was_packed) {
            (None, _) => self.store_row(Form::Plain, &body)?,
            (Some(run), false) => {
                self.table().change(run + 1, TAIL_LOW, count, &body)?;
                self.entry.touch()?;
            }
            (Some(run), true) => {
                self.table().add(run + 1, TAIL_LOW, count, &body)?;
                self.store_row(Form::Blocks, &(run / 2).to_le_bytes())?;
                self.was_packed = false;
            }
        }
        Ok(())
    }

    fn store_row(&self, form: Form, body: &[u8]) -> Result<(), Stop> {
        match (self.new_row, self.entry.head()) {
            (Some(head), _) => self.entry.put(head.with_form(form), body),
            (None, head) => {
                self.entry.change(head.ok_or(Abort::Conflict)?.with_form(form), Some(body))
            }
        }
    }

    /// Adds an entry above the last id. Returns `false` if the id is not above.
    pub fn append(&mut self, id: StreamId, strings: &[&[u8]]) -> Result<bool, Stop> {
        if id <= self.head.last {
            return Ok(false);
        }
        let limits = self.entry.space().context().packed;
        let most = MOST_NODE_BYTES.min(limits.node_bytes);
        let bytes: usize = strings.iter().map(|string| string.len() + 2).sum();
        let is_full = |stream: &Self| {
            let used = stream.tail.len();
            used > 0 && used + bytes > most || stream.head.in_tail >= limits.node_entries as u64
        };
        if is_full(self) {
            self.drop_dead()?;
            if is_full(self) {
                self.spill()?;
            }
        }
        if self.head.length == 0 {
            self.head.first = id;
        }
        stream_node::push(self.tail.to_mut(), id, strings)?;
        self.head.in_tail += 1;
        self.head.length += 1;
        self.head.added = self.head.added.saturating_add(1);
        self.head.last = id;
        Ok(true)
    }

    /// Removes the dead entries of the tail.
    fn drop_dead(&mut self) -> Result<(), Stop> {
        if stream_node::first_id(&self.tail).is_some_and(|id| id < self.head.first) {
            let tail = std::mem::take(&mut self.tail);
            self.set_tail(&entries_from(&tail, self.head.first)?)?;
        }
        Ok(())
    }

    fn set_tail(&mut self, live: &[StreamEntry<'_>]) -> Result<(), Abort> {
        (self.head.in_tail, self.tail) = (live.len() as u64, node_of(live)?.into());
        Ok(())
    }

    /// Makes a block of the tail.
    fn spill(&mut self) -> Result<(), Stop> {
        let Some(first) = stream_node::first_id(&self.tail) else { return Ok(()) };
        let run = first_run(self.numbered()?);
        self.table().add(run, &first.bytes(), self.head.in_tail as usize, &self.tail)?;
        (self.head.in_tail, self.tail) = (0, Cow::default());
        Ok(())
    }

    /// Whether entries from an id on lie in the tail alone.
    fn is_in_tail(&self, id: StreamId) -> bool {
        self.run().is_none() || stream_node::first_id(&self.tail).is_some_and(|first| first <= id)
    }

    /// Visits entries from an id on, in their order.
    pub fn ascend(&self, from: StreamId, visit: Visit<'_>) -> Result<(), Stop> {
        let from = from.max(self.head.first);
        if let Some(run) = self.run().filter(|_| !self.is_in_tail(from)) {
            let first = self.table().at(run, &from.bytes())?;
            let (mut page, mut step): (Vec<Block<'t>>, usize) = (first.into_iter().collect(), 1);
            if page.is_empty() {
                page = self.table().next(run, WalkFrom::First, step)?;
            }
            while let Some(last) = page.last() {
                let low = last.low;
                for block in &page {
                    for entry in stream_node::NodeEntries::of(block.body) {
                        let entry = entry?;
                        if entry.id >= from && !visit(entry) {
                            return Ok(());
                        }
                    }
                }
                page = self.table().next(run, WalkFrom::Behind(low), step)?;
                step = (2 * step).min(PAGE);
            }
        }
        for entry in stream_node::NodeEntries::of(&self.tail) {
            let entry = entry?;
            if entry.id >= from && !visit(entry) {
                break;
            }
        }
        Ok(())
    }

    /// Visits entries up to an id, the last first.
    pub fn descend(&self, to: StreamId, visit: Visit<'_>) -> Result<(), Stop> {
        let mut show = |body: &[u8]| -> Result<bool, Abort> {
            let all = entries_from(body, self.head.first)?;
            let mut wanted = all.into_iter().rev().filter(|entry| entry.id <= to);
            Ok(wanted.all(&mut *visit))
        };
        if !show(&self.tail)? {
            return Ok(());
        }
        let Some(run) = self.run() else { return Ok(()) };
        let mut page: Vec<Block<'t>> = self.table().at(run, &to.bytes())?.into_iter().collect();
        let mut step = 1;
        while let Some(last) = page.last() {
            let low = last.low;
            for block in &page {
                if !show(block.body)? {
                    return Ok(());
                }
            }
            page = self.table().previous(run, Some(low), step)?;
            step = (2 * step).min(PAGE);
        }
        Ok(())
    }

    /// The id of the last entry.
    pub fn last_entry(&self) -> Result<Option<StreamId>, Stop> {
        let mut last = None;
        if self.head.length > 0 {
            self.descend(StreamId::MAX, &mut |entry| {
                last = Some(entry.id);
                false
            })?;
        }
        Ok(last)
    }

    /// Visits each of these ascending ids, with the entry if there is one.
    pub fn each(
        &self,
        ids: &[StreamId],
        visit: &mut dyn FnMut(StreamId, Option<&StreamEntry<'_>>),
    ) -> Result<(), Stop> {
        let mut rest = ids;
        while let Some(first) = rest.first() {
            let (mut passed, mut is_end) = (0, true);
            self.ascend(*first, &mut |entry| {
                while let [id, behind @ ..] = rest
                    && *id <= entry.id
                {
                    visit(*id, (*id == entry.id).then_some(&entry));
                    (rest, passed) = (behind, 0);
                }
                passed += 1;
                is_end = !rest.is_empty() && passed < MOST_PASSED;
                is_end
            })?;
            if is_end {
                rest.iter().for_each(|id| visit(*id, None));
                break;
            }
        }
        Ok(())
    }

    /// The number of nodes.
    pub fn nodes(&self) -> Result<usize, Stop> {
        let in_blocks = match self.run() {
            Some(run) => self.table().counts(run)?.len(),
            None => 0,
        };
        Ok(in_blocks + usize::from(!self.tail.is_empty()))
    }

    /// Bytes of the blocks and the groups, including their overhead; 0 if the stream is packed.
    pub fn bytes_in_blocks(&self) -> Result<usize, Stop> {
        let Some(run) = self.run() else { return Ok(0) };
        let mut bytes = block_bytes(self.table(), run)? + block_bytes(self.table(), run + 1)?;
        for (_, group) in self.groups()? {
            bytes += group.bytes()?;
        }
        Ok(bytes)
    }

    /// Stores a copy under this head, in the place of any earlier value.
    pub fn copy_to(&self, target: &Entry<'_, '_>, head: Head) -> Result<(), Stop> {
        let space = target.space();
        let Some(run) = self.run() else {
            let body = self.entry.row().map_or(&[][..], |(_, body)| body);
            return target.put(head, body);
        };
        let number = space.number_collection(Kind::Stream)?;
        self.table().copy(run, first_run(number))?;
        let tail = self.table().get(run + 1, TAIL_LOW)?.ok_or(Abort::Conflict)?;
        self.table().add(first_run(number) + 1, TAIL_LOW, tail.count, tail.body)?;
        self.copy_groups(number)?;
        target.put(head, &number.to_le_bytes())
    }
}

/// The number of the stream of a key, if there is a stream and it is not packed.
///
/// # Errors
/// The key holds another type.
pub fn number_of(entry: &Entry<'_, '_>) -> Result<Option<u64>, Stop> {
    match entry.body_of(Kind::Stream)?.filter(|_| entry.lies_in_blocks()) {
        None => Ok(None),
        Some(body) => Ok(Some(u64::from_le_bytes(body.try_into().map_err(|_| Abort::Conflict)?))),
    }
}
