//! The pending writes of a transaction, by key.
//!
//! Most transactions write a few keys: these lie in a vector kept by the session, in order, and
//! cost no allocation. The writes of a larger transaction are in a tree.

use super::version::Version;
use crate::key::Key;
use std::collections::BTreeMap;

/// The most writes in the vector: with more, a tree finds its place in less time.
const FEW: usize = 16;

/// The pending write of a key.
#[derive(Debug)]
pub(crate) struct PendingWrite {
    pub hash: u64,
    /// With the value.
    pub version: Version,
}

/// The writes of a transaction. Invariant: the vector or the tree is empty.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    /// By ascending key.
    few: Vec<(Key, PendingWrite)>,
    many: BTreeMap<Key, PendingWrite>,
}

impl Writes {
    pub fn len(&self) -> usize {
        self.few.len() + self.many.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the place of a key in the vector, or the place for an insertion.
    fn place(&self, key: &[u8]) -> Result<usize, usize> {
        self.few.binary_search_by(|(other, _)| (**other).cmp(key))
    }

    pub fn get(&self, key: &[u8]) -> Option<&PendingWrite> {
        if self.many.is_empty() {
            return self.place(key).ok().map(|at| &self.few[at].1);
        }
        self.many.get(key)
    }

    pub fn get_mut(&mut self, key: &[u8]) -> Option<&mut PendingWrite> {
        if self.many.is_empty() {
            return self.place(key).ok().map(|at| &mut self.few[at].1);
        }
        self.many.get_mut(key)
    }

    /// Adds the write of a key without a write.
    pub fn insert(&mut self, key: &[u8], write: PendingWrite) {
        debug_assert!(self.get(key).is_none(), "a key is written twice");
        if self.many.is_empty() && self.few.len() < FEW {
            let (Ok(at) | Err(at)) = self.place(key);
            return self.few.insert(at, (key.into(), write));
        }
        self.many.extend(self.few.drain(..));
        self.many.insert(key.into(), write);
    }

    /// By ascending key.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &PendingWrite)> {
        self.few.iter().map(|(key, write)| (key, write)).chain(&self.many)
    }

    /// Takes all, by ascending key.
    pub fn drain(&mut self) -> impl Iterator<Item = (Key, PendingWrite)> {
        self.few.drain(..).chain(std::mem::take(&mut self.many))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn few_and_one_more_are_found_and_in_order() {
        let mut rng = fastrand::Rng::with_seed(2);
        for count in [0, 1, FEW - 1, FEW, FEW + 1, 3 * FEW] {
            let mut keys: Vec<u8> = (0..count as u8).collect();
            rng.shuffle(&mut keys);
            let mut writes = Writes::default();
            for key in keys {
                assert!(writes.get(&[key]).is_none());
                let write = PendingWrite { hash: 0, version: Version::pending(&[key], 1, None) };
                writes.insert(&[key], write);
                writes.get_mut(&[key]).unwrap().hash = u64::from(key);
                assert_eq!(writes.get(&[key]).unwrap().hash, u64::from(key));
            }
            assert_eq!((writes.len(), writes.is_empty()), (count, count == 0));
            assert_eq!(writes.many.is_empty(), count <= FEW);
            assert!(writes.iter().map(|(_, write)| write.hash).eq(0..count as u64));
            let drained = writes.drain().map(|(key, write)| (key[0], write.hash));
            assert!(drained.eq((0..count as u8).map(|key| (key, u64::from(key)))));
            assert!(writes.is_empty() && writes.get(&[0]).is_none());
        }
    }
}
