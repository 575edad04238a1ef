//! A data component in memory, for tests, as an oracle, and for data fitting into memory.

use super::key_table::KeyTable;
use super::memory_snapshot::{Images, MemorySnapshot};
use crate::data_component::{
    DataComponent, DataSnapshot, Found, KeyRange, Limits, Operation, ResumePoint, ScanOrder,
};
use crate::error::Error;
use crate::key::Key;
use hyades_platform::prefetch::prefetch_bytes;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard};

#[derive(Clone, Debug)]
pub(super) struct Item {
    pub ts: u64,
    /// None: deleted.
    pub value: Option<Vec<u8>>,
}

impl Item {
    fn new(operation: &Operation<'_>) -> Self {
        Self { ts: operation.ts, value: operation.value.map(<[u8]>::to_vec) }
    }

    pub fn found(&self) -> Found {
        Found { ts: self.ts, value: self.value.clone() }
    }

    fn set(&mut self, operation: &Operation<'_>) {
        self.ts = operation.ts;
        match (&mut self.value, operation.value) {
            // Mostly a value is as long as the value before.
            (Some(value), Some(new)) if value.len() == new.len() => value.copy_from_slice(new),
            (value, new) => *value = new.map(<[u8]>::to_vec),
        }
    }
}

type Items = KeyTable<Item>;

/// The number of operations applied at once, for overlapping cache misses.
const AT_ONCE: usize = 16;
/// The most bytes of a value to prefetch.
const MOST_PREFETCHED: usize = 512;

#[derive(Debug, Default)]
pub(super) struct Memory {
    pub items: Items,
    /// For the open snapshots.
    pub images: Images,
    /// The items made stable by the last checkpoint.
    stable: Items,
    point: Option<ResumePoint>,
    forgotten_below: u64,
    /// The highest timestamp of an applied operation.
    highest_ts: u64,
    /// Timestamp and key of each tombstone in `items` or `stable`, and of some tombstones replaced
    /// by newer operations.
    tombstones: BTreeSet<(u64, Key)>,
}

impl Memory {
    /// Applies a few operations, each of another key.
    fn apply_some(
        &mut self,
        some: &[Operation<'_>],
        places: &mut Vec<Option<usize>>,
        is_durable: bool,
    ) {
        self.items.find_all(some.iter().map(|operation| operation.key), places);
        for (operation, place) in some.iter().zip(&*places) {
            let value = place.and_then(|place| self.items.at(place)?.value.as_ref());
            for value in [value.map(Vec::as_slice), operation.value].into_iter().flatten() {
                prefetch_bytes(value.as_ptr(), 0, value.len().min(MOST_PREFETCHED));
            }
        }
        for (operation, place) in some.iter().zip(&*places) {
            // A non-durable data component is given the whole log again at the next opening.
            assert!(
                operation.ts >= self.forgotten_below || !is_durable,
                "an operation at {} comes after those below {} were forgotten",
                operation.ts,
                self.forgotten_below
            );
            self.highest_ts = self.highest_ts.max(operation.ts);
            let item = place.and_then(|place| self.items.at(place));
            if item.as_ref().is_some_and(|item| item.ts >= operation.ts) {
                continue;
            }
            self.images.keep(operation.key, item.as_deref());
            match item {
                Some(item) => item.set(operation),
                None => self.items.insert(operation.key, Item::new(operation)),
            }
            if operation.value.is_none() {
                self.tombstones.insert((operation.ts, operation.key.into()));
            }
        }
    }
}

/// Keys and values in memory.
///
/// The data end with the process, so the log of a database over the component is kept whole, and
/// opening applies the log again. [`MemoryData::outliving`] is for simulations, with a process as a
/// droppable value.
#[derive(Debug)]
pub struct MemoryData {
    memory: Arc<Mutex<Memory>>,
    is_durable: bool,
}

impl Default for MemoryData {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryData {
    /// Makes an empty data component.
    pub fn new() -> Self {
        Self { memory: Arc::default(), is_durable: false }
    }

    /// Makes an empty data component with checkpoints counted as durable: see
    /// [`after_crash`](Self::after_crash).
    pub fn outliving() -> Self {
        Self { memory: Arc::default(), is_durable: true }
    }

    /// Returns the state left by a crash: the items stable at the last checkpoint, and each later
    /// operation chosen by `is_kept`, since a data component may write at any time. Nothing without
    /// [outliving](Self::outliving).
    pub fn after_crash(&self, mut is_kept: impl FnMut() -> bool) -> Self {
        if !self.is_durable {
            return Self::new();
        }
        let memory = self.lock();
        let mut items = memory.stable.clone();
        for (key, item) in memory.items.iter() {
            let is_newer = items.get(key).is_none_or(|old| old.ts < item.ts);
            if is_newer && is_kept() {
                items.remove(key);
                items.insert(key, item.clone());
            }
        }
        let is_tombstone = |(_, item): &(&Key, &Item)| item.value.is_none();
        let tombstones = items.iter().filter(is_tombstone).map(|(key, i)| (i.ts, key.clone()));
        let highest_ts = items.iter().map(|(_, item)| item.ts).max().unwrap_or(0);
        let left = Memory {
            tombstones: tombstones.collect(),
            images: Images::default(),
            stable: items.clone(),
            items,
            point: memory.point.clone(),
            forgotten_below: memory.forgotten_below,
            highest_ts,
        };
        Self { memory: Arc::new(Mutex::new(left)), is_durable: self.is_durable }
    }

    /// All keys with a value, in order, each with timestamp and value.
    pub fn content(&self) -> Vec<(Vec<u8>, u64, Vec<u8>)> {
        let memory = self.lock();
        let items = memory.items.iter();
        items.filter_map(|(key, i)| Some((key.to_vec(), i.ts, i.value.clone()?))).collect()
    }

    /// The number of keys held, including deleted keys.
    pub fn items(&self) -> usize {
        self.lock().items.len()
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        lock(&self.memory)
    }
}

pub(super) fn lock(memory: &Mutex<Memory>) -> MutexGuard<'_, Memory> {
    memory.lock().unwrap_or_else(|e| e.into_inner())
}

impl DataComponent for MemoryData {
    fn get(&self, key: &[u8]) -> Result<Found, Error> {
        let memory = self.lock();
        Ok(memory.items.get(key).map_or(Found::default(), Item::found))
    }

    fn scan(
        &self,
        range: KeyRange<'_>,
        order: ScanOrder,
        each: &mut dyn FnMut(Operation<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let memory = self.lock();
        let mut items = memory.items.range(range);
        loop {
            let next = match order {
                ScanOrder::Ascending => items.next(),
                ScanOrder::Descending => items.next_back(),
            };
            let Some((key, item)) = next else { return Ok(()) };
            let value = item.value.as_deref();
            if each(Operation { key, ts: item.ts, value }).is_break() {
                return Ok(());
            }
        }
    }

    fn apply(&self, batch: &[Operation<'_>]) -> Result<(), Error> {
        debug_assert!(batch.is_sorted_by(|a, b| a.key < b.key), "a key comes twice, or unsorted");
        let memory = &mut *self.lock();
        let mut places = Vec::with_capacity(AT_ONCE);
        for some in batch.chunks(AT_ONCE) {
            memory.apply_some(some, &mut places, self.is_durable);
        }
        Ok(())
    }

    fn checkpoint(&self, point: &ResumePoint) -> Result<(), Error> {
        let memory = &mut *self.lock();
        if self.is_durable {
            memory.stable.clone_from(&memory.items);
        }
        memory.point = Some(point.clone());
        Ok(())
    }

    fn resume_point(&self) -> Result<Option<ResumePoint>, Error> {
        Ok(self.lock().point.clone())
    }

    fn highest_ts(&self) -> Result<u64, Error> {
        Ok(self.lock().highest_ts)
    }

    fn forget_below(&self, ts: u64) -> Result<(), Error> {
        let memory = &mut *self.lock();
        memory.forgotten_below = memory.forgotten_below.max(ts);
        let above = memory.tombstones.split_off(&(ts, Key::from(&b""[..])));
        for (_, key) in std::mem::replace(&mut memory.tombstones, above) {
            for items in [&mut memory.items, &mut memory.stable] {
                if items.get(&key).is_some_and(|item| item.value.is_none() && item.ts < ts) {
                    items.remove(&key);
                }
            }
        }
        Ok(())
    }

    fn snapshot(&self) -> Result<Option<Arc<dyn DataSnapshot>>, Error> {
        Ok(Some(Arc::new(MemorySnapshot::begin(&self.memory))))
    }

    fn limits(&self) -> Limits {
        Limits { key_bytes: usize::MAX, value_bytes: usize::MAX, is_durable: self.is_durable }
    }
}
