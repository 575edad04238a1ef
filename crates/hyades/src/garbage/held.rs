//! Garbage held by open snapshots: deleted rows and index entries kept beside their index, and
//! deleted rows of hash tables, in place. An item is freed when no snapshot is open below the
//! version that ended the item.
//!
//! A session frees items in the order of their recording, and looks at nothing before the first
//! item may go: the snapshots that hold an item are not recorded.

use super::sweeping::sweep_row;
use super::{AbsentRow, Garbage, StaleEntry};
use crate::concurrency::ConcurrencyControl;
use crate::engine::Engine;
use crate::logging::LoggingProtocol;
use crate::storage::Stamp;
use crate::storage::key::KeyBytes;
use crate::storage::tid::Tid;
use hyades_platform::reclaim::pin;
use std::collections::VecDeque;

/// Kept bytes of one session that are not charged to snapshots yet.
const UNCHARGED_BYTES: u64 = 64 << 10;

/// A row, or an entry of an index, held by a snapshot.
pub(super) struct HeldItem {
    table: u32,
    index: Option<u16>,
    key: KeyBytes,
    /// The version that ended the row or entry.
    end: Tid,
}

impl HeldItem {
    /// Bytes of the item itself. Each of many deletions of a row of a hash table leaves an item, so
    /// the bytes count as held for snapshots.
    fn bytes(&self) -> u64 {
        (size_of::<Self>() + self.key.len()) as u64
    }
}

/// Items held by snapshots, oldest first, about.
#[derive(Default)]
pub(super) struct HeldGarbage {
    pub items: VecDeque<HeldItem>,
    /// Kept bytes not charged to snapshots yet, and the highest version that ended a kept item.
    uncharged: (u64, Tid),
}

impl HeldGarbage {
    pub fn add_row<P: LoggingProtocol, S: Stamp>(
        &mut self,
        row: AbsentRow,
        end: Tid,
        bytes: u64,
        engine: &Engine<P, S>,
    ) {
        let AbsentRow { table, key, .. } = row;
        self.add(HeldItem { table, index: None, key, end }, bytes, engine);
    }

    pub fn add_entry<P: LoggingProtocol, S: Stamp>(
        &mut self,
        entry: StaleEntry,
        end: Tid,
        bytes: u64,
        engine: &Engine<P, S>,
    ) {
        let StaleEntry { table, index, key, .. } = entry;
        self.add(HeldItem { table, index: Some(index), key, end }, bytes, engine);
    }

    /// Adds an item with `bytes` kept beside an index.
    fn add<P: LoggingProtocol, S: Stamp>(
        &mut self,
        item: HeldItem,
        bytes: u64,
        engine: &Engine<P, S>,
    ) {
        let bytes = bytes + item.bytes();
        engine.snapshots.has_kept(bytes);
        let (uncharged, end) = self.uncharged;
        self.uncharged = (uncharged + bytes, end.max(item.end));
        self.items.push_back(item);
        if self.uncharged.0 >= UNCHARGED_BYTES {
            self.charge(engine);
        }
    }

    /// Charges the kept bytes to snapshots.
    pub fn charge<P: LoggingProtocol, S: Stamp>(&mut self, engine: &Engine<P, S>) {
        let (bytes, end) = std::mem::take(&mut self.uncharged);
        if bytes > 0 {
            engine.snapshots.charge(bytes, end, &engine.epoch);
        }
    }

    /// The next item that no snapshot holds any more.
    fn next_free(&mut self, oldest: Tid) -> Option<HeldItem> {
        self.items.pop_front_if(|item| item.end <= oldest)
    }

    /// Moves up to `most` items that no snapshot holds any more to `taken`, and the bytes not
    /// charged yet.
    pub fn take<P: LoggingProtocol, S: Stamp>(
        &mut self,
        most: usize,
        taken: &mut HeldGarbage,
        engine: &Engine<P, S>,
    ) {
        let oldest = engine.snapshots.oldest_snapshot();
        while taken.items.len() < most
            && let Some(item) = self.next_free(oldest)
        {
            taken.items.push_back(item);
        }
        taken.uncharged = std::mem::take(&mut self.uncharged);
    }

    pub fn append(&mut self, other: &mut HeldGarbage) {
        self.items.append(&mut other.items);
        let ((mine, end), (bytes, other_end)) =
            (self.uncharged, std::mem::take(&mut other.uncharged));
        self.uncharged = (mine + bytes, end.max(other_end));
    }

    pub fn room_bytes(&self) -> usize {
        self.items.capacity() * size_of::<HeldItem>()
    }
}

impl Garbage {
    /// Frees up to `most` items that no snapshot holds any more.
    pub(super) fn free_held<C: ConcurrencyControl<P>, P: LoggingProtocol>(
        &mut self,
        engine: &Engine<P, C::Row>,
        stamp: &mut P::TxnStamp,
        most: usize,
    ) {
        if self.held.items.is_empty() {
            return;
        }
        let (oldest, mut guard) = (engine.snapshots.oldest_snapshot(), pin());
        for _ in 0..most {
            guard.refresh();
            let Some(item) = self.held.next_free(oldest) else { break };
            engine.snapshots.has_freed(item.bytes());
            let HeldItem { table, index, key, end } = item;
            let data = &engine.tables[table as usize];
            let freed = match index {
                Some(index) => data.free_kept_entry(index.into(), &key, end, &guard),
                None if data.is_ordered() => data.free_kept_row(&key, end, &guard),
                None => {
                    let row = AbsentRow { table, key, epoch: end.epoch() };
                    let swept = sweep_row::<C, P>(engine, stamp, &row, &guard);
                    self.end_sweep_of(row, swept, engine);
                    0
                }
            };
            engine.snapshots.has_freed(freed);
        }
    }
}
