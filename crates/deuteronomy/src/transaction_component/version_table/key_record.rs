//! The record of a key in the version table: its versions and the time of its last read, in half a
//! cache line.

use crate::transaction_component::version::Version;
use smallvec::{SmallVec, smallvec};

/// The bits beside the timestamp in [`KeyRecord::read_and_bits`].
const BITS: u32 = 2;
/// The record has had versions of writers, and its key is among the keys of the ranges.
const ENTERED: u64 = 1;
/// A read found a version of the record since the last sweep.
const HIT: u64 = 2;

/// The record of a key.
#[derive(Debug)]
pub(super) struct KeyRecord {
    /// By ascending timestamp. Two versions lie in the record: mostly there are no more, since a
    /// write takes out the versions left without a reader. Invariant: never empty; the key of a
    /// record without versions is in a single entry that is no version.
    entries: SmallVec<[Version; 2]>,
    /// The highest timestamp of a transaction that has read the key, or has written a version of
    /// the key that has left for the data component alone; and the bits.
    read_and_bits: u64,
}

impl KeyRecord {
    /// A record with a single version.
    pub fn of(version: Version, last_read: u64) -> Self {
        Self { entries: smallvec![version], read_and_bits: last_read << BITS }
    }

    /// A record without versions.
    pub fn empty(key: &[u8], last_read: u64) -> Self {
        Self::of(Version::key_only(key), last_read)
    }

    pub fn key(&self) -> &[u8] {
        self.entries[0].key()
    }

    fn has_versions(&self) -> bool {
        !self.entries[0].is_key_only()
    }

    /// By ascending timestamp.
    pub fn versions(&self) -> &[Version] {
        if self.has_versions() { &self.entries } else { &[] }
    }

    pub fn newest(&self) -> Option<&Version> {
        self.versions().last()
    }

    pub fn last_read(&self) -> u64 {
        self.read_and_bits >> BITS
    }

    /// Notes a read, or a version that has left.
    pub fn raise_last_read(&mut self, ts: u64) {
        if ts > self.last_read() {
            self.read_and_bits = ts << BITS | self.read_and_bits & (ENTERED | HIT);
        }
    }

    pub fn is_entered(&self) -> bool {
        self.read_and_bits & ENTERED != 0
    }

    pub fn set_entered(&mut self) {
        self.read_and_bits |= ENTERED;
    }

    pub fn set_hit(&mut self) {
        if self.read_and_bits & HIT == 0 {
            self.read_and_bits |= HIT;
        }
    }

    /// Whether a read found a version since the last call.
    pub fn take_hit(&mut self) -> bool {
        let is_hit = self.read_and_bits & HIT != 0;
        self.read_and_bits &= !HIT;
        is_hit
    }

    /// Adds the newest version.
    pub fn push(&mut self, version: Version) {
        debug_assert!(self.newest().is_none_or(|newest| newest.ts() < version.ts()));
        match self.has_versions() {
            true => self.entries.push(version),
            false => self.entries[0] = version,
        }
    }

    /// Adds the oldest version.
    pub fn push_oldest(&mut self, version: Version) {
        match self.has_versions() {
            true => self.entries.insert(0, version),
            false => self.entries[0] = version,
        }
    }

    /// Takes another version in place of the version with the same timestamp.
    pub fn rewrite(&mut self, version: &Version) -> Option<Version> {
        let own = |v: &&mut Version| v.ts() == version.ts();
        let pending = self.entries.iter_mut().rev().find(own)?;
        Some(std::mem::replace(pending, version.clone()))
    }

    /// Takes out the version with a timestamp.
    pub fn remove(&mut self, ts: u64) -> Option<Version> {
        let at = self.versions().iter().rposition(|v| v.ts() == ts)?;
        if self.entries.len() == 1 {
            let key_only = Version::key_only(self.key());
            return Some(std::mem::replace(&mut self.entries[0], key_only));
        }
        Some(self.entries.remove(at))
    }

    /// Takes out the `count` oldest versions.
    pub fn take_oldest(&mut self, count: usize) -> SmallVec<[Version; 2]> {
        match count == self.entries.len() {
            true => self.take_versions(),
            false => self.entries.drain(..count).collect(),
        }
    }

    /// Takes out all versions, for those that stay to be put back by [`push`](Self::push).
    pub fn take_versions(&mut self) -> SmallVec<[Version; 2]> {
        let entries = smallvec![Version::key_only(self.key())];
        let taken = std::mem::replace(&mut self.entries, entries);
        if taken[0].is_key_only() { SmallVec::new() } else { taken }
    }

    /// The bytes of the record's entries.
    pub fn entry_bytes(&self) -> usize {
        self.entries.iter().map(Version::size).sum()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn version(ts: u64) -> Version {
        Version::pending(b"key", ts, Some(b"value"))
    }

    fn timestamps(record: &KeyRecord) -> Vec<u64> {
        record.versions().iter().map(Version::ts).collect()
    }

    #[test]
    fn a_record_is_half_a_cache_line_and_has_its_key_with_and_without_versions() {
        assert_eq!(size_of::<KeyRecord>(), 32);
        let mut record = KeyRecord::empty(b"key", 5);
        assert_eq!((record.key(), record.last_read()), (&b"key"[..], 5));
        assert_eq!((timestamps(&record), record.newest().is_none()), (vec![], true));
        assert!(record.take_versions().is_empty() && record.remove(0).is_none());
        record.push(version(7));
        record.push_oldest(version(3));
        record.push(version(9));
        assert_eq!(timestamps(&record), [3, 7, 9]);
        assert_eq!(record.take_oldest(1)[0].ts(), 3);
        assert_eq!(record.rewrite(&version(7)).map(|v| v.ts()), Some(7));
        assert_eq!(record.remove(7).map(|v| v.ts()), Some(7));
        assert_eq!((record.remove(9).map(|v| v.ts()), record.key()), (Some(9), &b"key"[..]));
        record.push_oldest(version(4));
        record.push(version(6));
        for version in record.take_versions() {
            assert_eq!(record.key(), b"key");
            record.push(version);
        }
        assert_eq!((timestamps(&record), record.key()), (vec![4, 6], &b"key"[..]));
        assert_eq!(record.take_oldest(2).len(), 2);
        assert_eq!((timestamps(&record), record.key()), (vec![], &b"key"[..]));
    }

    #[test]
    fn the_last_read_only_rises_and_leaves_the_bits_alone() {
        let mut record = KeyRecord::empty(b"", 0);
        assert!(!record.is_entered() && !record.take_hit());
        let highest = crate::data_component::MAX_TS;
        record.set_hit();
        record.raise_last_read(highest);
        record.raise_last_read(1);
        record.set_entered();
        assert_eq!(record.last_read(), highest);
        assert!(record.take_hit() && !record.take_hit() && record.is_entered());
        assert_eq!(record.last_read(), highest);
    }
}
