//! Snapshots of the data component in memory, by images of what is replaced.
//!
//! The first replacement of a key's item after a snapshot's beginning keeps the item, for the
//! newest open snapshot. An older snapshot finds an item replaced since its beginning among its own
//! images, or else among the images of a newer snapshot, the oldest first. So an item is kept at
//! most once for all snapshots, and the beginning of a snapshot costs nothing.

use super::memory::{Item, Memory, lock};
use crate::data_component::{
    DataSnapshot, Found, KeyRange, Operation, ScanOrder, is_empty_range, range_behind,
};
use crate::error::Error;
use crate::key::Key;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

/// The most keys of a scan copied at a time, under the lock of the data component.
const PIECE: usize = 1024;

/// The replaced items of the open snapshots, by the number of the snapshot. None: the key had no
/// item.
#[derive(Debug, Default)]
pub(super) struct Images {
    open: BTreeMap<u64, BTreeMap<Key, Option<Item>>>,
    next: u64,
}

impl Images {
    /// Begins a snapshot; returns its number.
    fn begin(&mut self) -> u64 {
        self.next += 1;
        self.open.insert(self.next, BTreeMap::new());
        self.next
    }

    /// Ends a snapshot: an older snapshot may need its images.
    fn end(&mut self, number: u64) {
        let Some(images) = self.open.remove(&number) else { return };
        if let Some((_, older)) = self.open.range_mut(..number).next_back() {
            for (key, image) in images {
                older.entry(key).or_insert(image);
            }
        }
    }

    /// Keeps the item of a key about to be replaced.
    pub fn keep(&mut self, key: &[u8], item: Option<&Item>) {
        if let Some(mut newest) = self.open.last_entry() {
            newest.get_mut().entry(Key::from(key)).or_insert_with(|| item.cloned());
        }
    }

    /// Returns the item replaced since the beginning of a snapshot, if any.
    fn replaced(&self, number: u64, key: &[u8]) -> Option<Option<&Item>> {
        let mut images = self.open.range(number..);
        images.find_map(|(_, images)| images.get(key)).map(Option::as_ref)
    }
}

/// A snapshot.
#[derive(Debug)]
pub(super) struct MemorySnapshot {
    memory: Arc<Mutex<Memory>>,
    number: u64,
}

impl MemorySnapshot {
    pub fn begin(memory: &Arc<Mutex<Memory>>) -> Self {
        Self { memory: Arc::clone(memory), number: lock(memory).images.begin() }
    }

    fn item<'m>(&self, memory: &'m Memory, key: &[u8]) -> Option<&'m Item> {
        memory.images.replaced(self.number, key).unwrap_or_else(|| memory.items.get(key))
    }

    /// Copies the first items of a range: complete up to the last key copied, or to the end of the
    /// range if there are fewer than [`PIECE`] keys.
    fn piece(&self, range: KeyRange<'_>, order: ScanOrder) -> Vec<(Key, Option<Item>)> {
        let memory = lock(&self.memory);
        let mut keys = BTreeSet::new();
        let mut add = |some: &mut dyn DoubleEndedIterator<Item = &Key>| match order {
            ScanOrder::Ascending => keys.extend(some.take(PIECE).cloned()),
            ScanOrder::Descending => keys.extend(some.rev().take(PIECE).cloned()),
        };
        add(&mut memory.items.range(range).map(|(key, _)| key));
        for images in memory.images.open.range(self.number..).map(|(_, images)| images) {
            add(&mut images.range::<[u8], _>(range).map(|(key, _)| key));
        }
        let item = |key: Key| (key.clone(), self.item(&memory, &key).cloned());
        match order {
            ScanOrder::Ascending => keys.into_iter().take(PIECE).map(item).collect(),
            ScanOrder::Descending => keys.into_iter().rev().take(PIECE).map(item).collect(),
        }
    }
}

impl DataSnapshot for MemorySnapshot {
    fn get(&self, key: &[u8]) -> Result<Found, Error> {
        Ok(self.item(&lock(&self.memory), key).map_or(Found::default(), Item::found))
    }

    fn scan(
        &self,
        range: KeyRange<'_>,
        order: ScanOrder,
        each: &mut dyn FnMut(Operation<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let mut last: Option<Key> = None;
        loop {
            let rest = last.as_deref().map_or(range, |last| range_behind(range, last, order));
            if is_empty_range(rest) {
                return Ok(());
            }
            let piece = self.piece(rest, order);
            for (key, item) in &piece {
                let Some(item) = item else { continue };
                let operation = Operation { key, ts: item.ts, value: item.value.as_deref() };
                if each(operation).is_break() {
                    return Ok(());
                }
            }
            if piece.len() < PIECE {
                return Ok(());
            }
            last = piece.into_iter().next_back().map(|(key, _)| key);
        }
    }
}

impl Drop for MemorySnapshot {
    fn drop(&mut self) {
        lock(&self.memory).images.end(self.number);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::{DataComponent, DataSnapshot, MemoryData, Operation, ScanOrder};
    use std::collections::BTreeMap;
    use std::ops::{Bound, ControlFlow};
    use std::sync::Arc;

    type Content = BTreeMap<Vec<u8>, Vec<u8>>;

    fn content(snapshot: &dyn DataSnapshot, order: ScanOrder) -> Content {
        let mut rows: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let all = (Bound::Unbounded, Bound::Unbounded);
        snapshot
            .scan(all, order, &mut |operation| {
                let Operation { key, value, .. } = operation;
                rows.extend(value.map(|value| (key.to_vec(), value.to_vec())));
                ControlFlow::Continue(())
            })
            .unwrap();
        match order {
            ScanOrder::Ascending => assert!(rows.is_sorted_by(|a, b| a.0 < b.0)),
            ScanOrder::Descending => assert!(rows.is_sorted_by(|a, b| a.0 > b.0)),
        }
        rows.into_iter().collect()
    }

    #[test]
    fn each_snapshot_is_the_map_of_its_beginning() {
        let mut rng = fastrand::Rng::with_seed(3);
        for keys in [5u32, 100, 5000] {
            let (data, mut map) = (MemoryData::new(), Content::new());
            let mut open: Vec<(Arc<dyn DataSnapshot>, Content)> = Vec::new();
            for ts in 1..200 {
                for _ in 0..keys.div_ceil(20) {
                    let key = rng.u32(..keys).to_be_bytes();
                    let value = rng.bool().then(|| ts.to_string().into_bytes());
                    data.apply(&[Operation { key: &key, ts, value: value.as_deref() }]).unwrap();
                    // Of the same transaction, the first write stays.
                    let found = data.get(&key).unwrap();
                    match found.value {
                        Some(value) => map.insert(key.to_vec(), value),
                        None => map.remove(&key[..]),
                    };
                }
                if rng.u8(..8) == 0 {
                    data.forget_below(ts).unwrap();
                }
                match rng.u8(..6) {
                    0 => open.push((data.snapshot().unwrap().unwrap(), map.clone())),
                    1 if !open.is_empty() => drop(open.swap_remove(rng.usize(..open.len()))),
                    _ => {}
                }
                if let Some((snapshot, then)) = open.get(rng.usize(..=open.len())) {
                    let order =
                        if rng.bool() { ScanOrder::Ascending } else { ScanOrder::Descending };
                    assert_eq!(content(&**snapshot, order), *then);
                    let key = rng.u32(..keys).to_be_bytes();
                    assert_eq!(snapshot.get(&key).unwrap().value.as_ref(), then.get(&key[..]));
                }
            }
        }
    }

    #[test]
    fn what_a_snapshot_hands_over_may_be_overwritten_meanwhile() {
        let data = MemoryData::new();
        let keys: Vec<[u8; 4]> = (0..5000u32).map(u32::to_be_bytes).collect();
        let write = |ts| {
            let all = keys.iter().map(|key| Operation { key, ts, value: Some(&b"x"[..]) });
            data.apply(&all.collect::<Vec<_>>()).unwrap();
        };
        write(1);
        let snapshot = data.snapshot().unwrap().unwrap();
        let (mut seen, all) = (0, (Bound::Unbounded, Bound::Unbounded));
        snapshot
            .scan(all, ScanOrder::Ascending, &mut |operation| {
                assert_eq!(operation.ts, 1);
                seen += 1;
                if seen % 500 == 1 {
                    write(seen + 1);
                }
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(seen, 5000);
    }
}
