//! Keys, each with an item: by hash for single keys, in order for ranges.
//!
//! The items lie in fixed places. A table of hashes names the place of each key, by open
//! addressing: an entry has enough bits of the hash to tell nearly all keys apart, so a search
//! looks at the place of its key and at no other. A batch of keys is looked for at once: then the
//! cache misses, most of the cost, overlap.

use crate::key::{Key, KeyHasher};
use hyades_platform::prefetch::prefetch;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};

/// The entries of a table without keys.
const FIRST: usize = 16;
/// An entry without a place.
const EMPTY: u64 = 0;

/// On a separate cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct KeyPlace<T>(Option<(Key, T)>);

/// Keys, each with an item.
#[derive(Clone, Debug)]
pub(super) struct KeyTable<T> {
    places: Vec<KeyPlace<T>>,
    /// Freed places.
    free: Vec<u32>,
    /// Upper half: the upper half of the hash of a key. Lower half: the key's place, from 1 on. The
    /// number is a power of two, with at most half in use.
    entries: Vec<u64>,
    ordered: BTreeMap<Key, u32>,
    hasher: KeyHasher,
}

impl<T> Default for KeyTable<T> {
    fn default() -> Self {
        let entries = vec![EMPTY; FIRST];
        let (places, free, ordered) = (Vec::new(), Vec::new(), BTreeMap::new());
        // The order of the keys does not depend on the hasher.
        Self { places, free, entries, ordered, hasher: KeyHasher::random() }
    }
}

/// Returns the place of an entry, if any.
fn place_of(entry: u64) -> Option<usize> {
    (entry as u32 as usize).checked_sub(1)
}

impl<T> KeyTable<T> {
    pub fn len(&self) -> usize {
        self.ordered.len()
    }

    /// Where the search for a hash begins, or for the key of an entry.
    fn home(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.entries.len() - 1)
    }

    fn next(&self, at: usize) -> usize {
        (at + 1) & (self.entries.len() - 1)
    }

    /// Returns the entry of a key, and the place.
    fn find(&self, key: &[u8], hash: u64) -> Option<(usize, usize)> {
        let mut at = self.home(hash);
        while let Some(place) = place_of(self.entries[at]) {
            let is_alike = self.entries[at] >> 32 == hash >> 32;
            if is_alike && self.places[place].0.as_ref().is_some_and(|(other, _)| **other == *key) {
                return Some((at, place));
            }
            at = self.next(at);
        }
        None
    }

    pub fn get(&self, key: &[u8]) -> Option<&T> {
        let (_, place) = self.find(key, self.hasher.hash(key))?;
        self.places[place].0.as_ref().map(|(_, item)| item)
    }

    /// Finds keys: for each key the place, if any.
    pub fn find_all<'k>(
        &self,
        keys: impl Iterator<Item = &'k [u8]>,
        into: &mut Vec<Option<usize>>,
    ) {
        let hashed: SmallVec<[(&[u8], u64); 16]> =
            keys.map(|key| (key, self.hasher.hash(key))).collect();
        for (_, hash) in &hashed {
            prefetch(&raw const self.entries[self.home(*hash)]);
        }
        for (_, hash) in &hashed {
            if let Some(place) = place_of(self.entries[self.home(*hash)]) {
                prefetch(&raw const self.places[place]);
            }
        }
        into.clear();
        into.extend(hashed.iter().map(|(key, hash)| Some(self.find(key, *hash)?.1)));
    }

    /// Returns the item in a place found before.
    pub fn at(&mut self, place: usize) -> Option<&mut T> {
        self.places[place].0.as_mut().map(|(_, item)| item)
    }

    /// Adds a key without an item.
    pub fn insert(&mut self, key: &[u8], item: T) {
        debug_assert!(self.get(key).is_none(), "a key is there twice");
        if 2 * (self.len() + 1) > self.entries.len() {
            self.grow();
        }
        let (hash, key) = (self.hasher.hash(key), Key::from(key));
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(KeyPlace(None));
            u32::try_from(self.places.len() - 1).expect("2^32 keys fit into no memory")
        });
        self.places[place as usize] = KeyPlace(Some((key.clone(), item)));
        self.ordered.insert(key, place);
        self.enter(((hash >> 32) << 32) | (u64::from(place) + 1));
    }

    fn enter(&mut self, entry: u64) {
        let mut at = self.home(entry);
        while self.entries[at] != EMPTY {
            at = self.next(at);
        }
        self.entries[at] = entry;
    }

    fn grow(&mut self) {
        let twice = vec![EMPTY; 2 * self.entries.len()];
        let entries = std::mem::replace(&mut self.entries, twice);
        entries.into_iter().filter(|entry| *entry != EMPTY).for_each(|entry| self.enter(entry));
    }

    pub fn remove(&mut self, key: &[u8]) {
        let Some((mut hole, place)) = self.find(key, self.hasher.hash(key)) else { return };
        self.places[place] = KeyPlace(None);
        self.free.extend(self.ordered.remove(key));
        // No search due to go on behind the hole may end at the hole.
        let mut at = self.next(hole);
        while self.entries[at] != EMPTY {
            let mask = self.entries.len() - 1;
            let from_home = at.wrapping_sub(self.home(self.entries[at])) & mask;
            if from_home >= at.wrapping_sub(hole) & mask {
                self.entries[hole] = self.entries[at];
                hole = at;
            }
            at = self.next(at);
        }
        self.entries[hole] = EMPTY;
    }

    /// The keys in a range, in order.
    pub fn range(
        &self,
        range: impl RangeBounds<[u8]>,
    ) -> impl DoubleEndedIterator<Item = (&Key, &T)> {
        let item = |place: u32| self.places[place as usize].0.as_ref().map(|(_, item)| item);
        let keys = self.ordered.range::<[u8], _>(range);
        keys.filter_map(move |(key, place)| Some((key, item(*place)?)))
    }

    /// All keys, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&Key, &T)> {
        let all: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);
        self.range(all)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_map() {
        let mut rng = fastrand::Rng::with_seed(8);
        for keys in [10u32, 100, 3000] {
            let (mut table, mut map) = (KeyTable::default(), BTreeMap::new());
            let mut found = Vec::new();
            for turn in 0..4 * keys {
                let key = rng.u32(..keys).to_be_bytes();
                let is_there = map.contains_key(&key[..]);
                assert_eq!(table.get(&key), map.get(&key[..]));
                match rng.u8(..3) {
                    0 => {
                        table.remove(&key);
                        map.remove(&key[..]);
                    }
                    _ if is_there => {
                        table.find_all([&key[..]].into_iter(), &mut found);
                        *table.at(found[0].unwrap()).unwrap() = turn;
                        map.insert(key.to_vec(), turn);
                    }
                    _ => {
                        table.insert(&key, turn);
                        map.insert(key.to_vec(), turn);
                    }
                }
            }
            assert_eq!(table.len(), map.len());
            let all: Vec<Vec<u8>> = (0..keys).map(|key| key.to_be_bytes().to_vec()).collect();
            table.find_all(all.iter().map(|key| &key[..]), &mut found);
            for (key, place) in all.iter().zip(found) {
                assert_eq!(place.and_then(|place| table.at(place)).copied(), map.get(key).copied());
            }
            let same = |(a, b): ((&Key, &u32), (&Vec<u8>, &u32))| **a.0 == **b.0 && a.1 == b.1;
            assert!(table.iter().zip(&map).all(same));
            assert!(table.iter().rev().zip(map.iter().rev()).all(same));
        }
    }
}
