//! A data component in memory: the simplest that keeps the contract, for tests and as an oracle.

use crate::data_component::{
    DataComponent, Found, KeyRange, Limits, Operation, ResumePoint, ScanOrder,
};
use crate::error::Error;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::{Mutex, MutexGuard};

#[derive(Clone, Debug)]
struct Item {
    ts: u64,
    /// None: deleted.
    value: Option<Vec<u8>>,
}

type Items = BTreeMap<Vec<u8>, Item>;

#[derive(Debug, Default)]
struct Memory {
    items: Items,
    /// What the last checkpoint has made stable.
    stable: Items,
    point: Option<ResumePoint>,
    forgotten_below: u64,
    /// Timestamp and key of each tombstone in `items` or `stable`, and of some that newer
    /// operations have replaced.
    tombstones: BTreeSet<(u64, Vec<u8>)>,
}

/// Keys and values in memory.
///
/// What it holds ends with the process, so the log of a database over it is kept whole, and opening
/// applies it again. [`MemoryData::outliving`] is for simulations, in which a process is a value
/// that is dropped.
#[derive(Debug)]
pub struct MemoryData {
    memory: Mutex<Memory>,
    is_durable: bool,
}

impl Default for MemoryData {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryData {
    /// An empty one.
    pub fn new() -> Self {
        Self { memory: Mutex::default(), is_durable: false }
    }

    /// An empty one whose checkpoints count as durable: see [`after_crash`](Self::after_crash).
    pub fn outliving() -> Self {
        Self { memory: Mutex::default(), is_durable: true }
    }

    /// What a crash leaves: what the last checkpoint made stable, and each operation applied since
    /// for which `is_kept` says so, since a data component may write when it likes. Nothing of one
    /// that is not [outliving](Self::outliving).
    pub fn after_crash(&self, mut is_kept: impl FnMut() -> bool) -> Self {
        if !self.is_durable {
            return Self::new();
        }
        let memory = self.lock();
        let mut items = memory.stable.clone();
        for (key, item) in &memory.items {
            let is_newer = items.get(key).is_none_or(|old| old.ts < item.ts);
            if is_newer && is_kept() {
                items.insert(key.clone(), item.clone());
            }
        }
        let is_tombstone = |(_, item): &(&Vec<u8>, &Item)| item.value.is_none();
        let tombstones = items.iter().filter(is_tombstone).map(|(key, i)| (i.ts, key.clone()));
        let left = Memory {
            tombstones: tombstones.collect(),
            stable: items.clone(),
            items,
            point: memory.point.clone(),
            forgotten_below: memory.forgotten_below,
        };
        Self { memory: Mutex::new(left), is_durable: self.is_durable }
    }

    /// All keys that have a value, in order, each with its timestamp and value.
    pub fn content(&self) -> Vec<(Vec<u8>, u64, Vec<u8>)> {
        let memory = self.lock();
        let items = memory.items.iter();
        items.filter_map(|(key, i)| Some((key.clone(), i.ts, i.value.clone()?))).collect()
    }

    /// The number of keys held, deleted ones included.
    pub fn items(&self) -> usize {
        self.lock().items.len()
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl DataComponent for MemoryData {
    fn get(&self, key: &[u8]) -> Result<Found, Error> {
        let memory = self.lock();
        let found = memory.items.get(key);
        Ok(found.map_or(Found::default(), |i| Found { ts: i.ts, value: i.value.clone() }))
    }

    fn scan(
        &self,
        range: KeyRange<'_>,
        order: ScanOrder,
        each: &mut dyn FnMut(Operation<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let memory = self.lock();
        let mut items = memory.items.range::<[u8], _>(range);
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
        for operation in batch {
            // One that is not durable is given the whole log again if it is opened again.
            assert!(
                operation.ts >= memory.forgotten_below || !self.is_durable,
                "an operation at {} comes after those below {} were forgotten",
                operation.ts,
                memory.forgotten_below
            );
            let new = Item { ts: operation.ts, value: operation.value.map(<[u8]>::to_vec) };
            let is_tombstone = new.value.is_none();
            match memory.items.get_mut(operation.key) {
                Some(item) if item.ts >= new.ts => continue,
                Some(item) => *item = new,
                None => drop(memory.items.insert(operation.key.to_vec(), new)),
            }
            if is_tombstone {
                memory.tombstones.insert((operation.ts, operation.key.to_vec()));
            }
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

    fn forget_below(&self, ts: u64) -> Result<(), Error> {
        let memory = &mut *self.lock();
        memory.forgotten_below = memory.forgotten_below.max(ts);
        let above = memory.tombstones.split_off(&(ts, Vec::new()));
        for (_, key) in std::mem::replace(&mut memory.tombstones, above) {
            for items in [&mut memory.items, &mut memory.stable] {
                if items.get(&key).is_some_and(|item| item.value.is_none() && item.ts < ts) {
                    items.remove(&key);
                }
            }
        }
        Ok(())
    }

    fn limits(&self) -> Limits {
        Limits { key_bytes: usize::MAX, value_bytes: usize::MAX, is_durable: self.is_durable }
    }
}
