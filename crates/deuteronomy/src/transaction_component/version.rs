//! Versions of keys.

use super::transaction_table::{Standing, TransactionTable};
use crate::held_bytes::HeldBytes;
use hyades_platform::sync::{AtomicU32, Ordering};
use smallvec::SmallVec;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use triomphe::ThinArc;

/// The bytes of a version without its key and value.
const VERSION_BYTES: usize = 32;
/// An allocation takes a multiple of this number.
const ALLOCATED: usize = 16;

/// The data component holds the version, or a newer version.
const APPLIED: u32 = 1;
/// The version has left the version table, and waits for the data component.
const LEFT: u32 = 2;
/// The version came from the data component.
const FETCHED: u32 = 4;
/// The key is deleted: there is no value.
const TOMBSTONE: u32 = 8;
/// The entry stands for removed versions.
const GONE: u32 = 16;
/// The entry is no version: a record without versions has its key there.
const KEY_ONLY: u32 = 32;

struct VersionHead {
    ts: u64,
    /// [`APPLIED`]: the data component holds the version, or a newer version. Then the version's
    /// transaction is committed, and durable with all its dependencies, or the proxy would have
    /// held the version back. Set by the proxy (Release), read by readers and evictions of the
    /// version (Acquire). [`LEFT`]: the version has left the version table before being applied.
    /// Set under the latch of its bucket, read by the proxy when setting [`APPLIED`]; both are
    /// exchanges, so one of the two sees the other's. The other bits never change.
    state: AtomicU32,
    /// The bytes of the key, in front of the value.
    key_len: u32,
}

/// A version of a key: a single allocation with the key and the value; all clones are references.
/// Nothing changes but `state`; a second write of a key in a transaction makes another version.
#[derive(Clone)]
pub(crate) struct Version(ThinArc<VersionHead, u8>);

impl Version {
    fn with(key: &[u8], ts: u64, value: Option<&[u8]>, state: u32) -> Self {
        let tombstone = if value.is_none() { TOMBSTONE } else { 0 };
        let (state, key_len) = (AtomicU32::new(state | tombstone), key.len() as u32);
        debug_assert_eq!(key_len as usize, key.len(), "no data component takes such a key");
        let head = VersionHead { ts, state, key_len };
        let mut bytes = SmallVec::<[u8; 256]>::new();
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value.unwrap_or_default());
        Self(ThinArc::from_header_and_slice(head, &bytes))
    }

    /// Makes the version of an active transaction; without a value for a deletion of the key.
    pub fn pending(key: &[u8], ts: u64, value: Option<&[u8]>) -> Self {
        Self::with(key, ts, value, 0)
    }

    /// Makes the version of the data component. Its transaction is perhaps of an earlier
    /// incarnation, unknown to the transaction table.
    pub fn fetched(key: &[u8], ts: u64, value: Option<&[u8]>) -> Self {
        Self::with(key, ts, value, APPLIED | FETCHED)
    }

    /// Makes the stand-in of a record for versions only in the data component: the version with
    /// timestamp `ts`, and the versions behind, up to the next in the record.
    pub(super) fn gone(key: &[u8], ts: u64) -> Self {
        Self::with(key, ts, None, APPLIED | GONE)
    }

    /// Makes the entry of a record without versions.
    pub(super) fn key_only(key: &[u8]) -> Self {
        Self::with(key, 0, None, APPLIED | KEY_ONLY)
    }

    fn head(&self) -> &VersionHead {
        &self.0.header.header
    }

    /// Whether a bit is set that never changes.
    fn is(&self, bit: u32) -> bool {
        self.head().state.load(Ordering::Relaxed) & bit != 0
    }

    /// The address of the version, for a prefetch.
    pub(super) fn address(&self) -> usize {
        self.0.ptr().addr()
    }

    pub fn ts(&self) -> u64 {
        self.head().ts
    }

    /// The key and the value behind.
    fn key_and_value(&self) -> (&[u8], &[u8]) {
        self.0.slice.split_at(self.head().key_len as usize)
    }

    pub fn key(&self) -> &[u8] {
        self.key_and_value().0
    }

    /// Whether the version came from the data component.
    pub(super) fn is_fetched(&self) -> bool {
        self.is(FETCHED)
    }

    /// Whether the entry stands for versions only in the data component.
    pub(super) fn is_gone(&self) -> bool {
        self.is(GONE)
    }

    /// Whether the entry is no version, but the key of a record without versions.
    pub(super) fn is_key_only(&self) -> bool {
        self.is(KEY_ONLY)
    }

    /// The value; None of a deleted key.
    pub fn bytes(&self) -> Option<&[u8]> {
        (!self.is(TOMBSTONE)).then(|| self.key_and_value().1)
    }

    /// The same value, for callers that keep a reference.
    pub fn value(&self) -> Option<Value> {
        (!self.is(TOMBSTONE)).then(|| Value(self.clone()))
    }

    /// Notes that the data component holds the version, or a newer version. Returns the bytes no
    /// longer waiting of versions removed from the version table.
    pub fn set_applied(&self) -> usize {
        match self.head().state.fetch_or(APPLIED, Ordering::AcqRel) & (APPLIED | LEFT) {
            LEFT => self.size(),
            _ => 0,
        }
    }

    /// Notes that the version leaves the version table. A version waiting for the data component is
    /// counted in `held` from now on. Added before, so that the bytes subtracted by the proxy are
    /// there.
    pub(super) fn leave_table(&self, held: &HeldBytes) {
        if self.is_applied() {
            return;
        }
        held.add(self.size());
        if self.head().state.fetch_or(LEFT, Ordering::AcqRel) & APPLIED != 0 {
            held.subtract(self.size());
        }
    }

    /// Whether the version is known to be committed, durable, and held by the data component.
    pub(crate) fn is_applied(&self) -> bool {
        self.head().state.load(Ordering::Acquire) & APPLIED != 0
    }

    /// S1, S2: the standing of the version's transaction. Mostly known without the transaction
    /// table; the table's entry is no longer in a cache.
    pub(super) fn standing(&self, transactions: &TransactionTable) -> Standing {
        if self.is_applied() { Standing::Committed } else { transactions.standing(self.ts()) }
    }

    /// The bytes of the version's allocation, about.
    pub(super) fn size(&self) -> usize {
        Self::size_with(self.0.slice.len())
    }

    /// The bytes of a version with `len` bytes of key and value, about.
    fn size_with(len: usize) -> usize {
        (VERSION_BYTES + len).next_multiple_of(ALLOCATED)
    }

    /// The most bytes of a version beside key and value.
    pub(super) const fn most_beside() -> usize {
        VERSION_BYTES + ALLOCATED - 1
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ts, applied) = (self.ts(), self.is_applied());
        write!(f, "Version {{ ts: {ts}, applied: {applied}, bytes: {:?} }}", self.bytes())
    }
}

/// A value from a read. The value is shared with the database: a clone is a further reference, and
/// no copy. The memory is free when the database and all clones have dropped the value.
#[derive(Clone)]
pub struct Value(Version);

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.key_and_value().1
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Value {}

impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_its_key_and_its_value_or_says_that_there_is_none() {
        for len in [0, 1, 7, 8, 100, 40_000] {
            let (bytes, key) = (vec![len as u8; len], vec![9; len / 2]);
            let version = Version::pending(&key, 7, Some(&bytes));
            assert_eq!((version.ts(), version.key()), (7, &key[..]));
            assert_eq!(version.bytes(), Some(&bytes[..]));
            assert!(version.size() >= VERSION_BYTES + key.len() + len);
            assert!(version.size() <= Version::most_beside() + key.len() + len);
            let value = version.value().unwrap();
            assert_eq!(value, Version::fetched(b"", 1, Some(&bytes)).value().unwrap());
            drop(version);
            assert_eq!(*value, bytes[..], "the value outlives what the table had");
        }
        let deleted = Version::pending(b"", 8, None);
        assert_eq!((deleted.bytes(), deleted.value(), deleted.size()), (None, None, VERSION_BYTES));
        assert_ne!(Version::pending(b"", 1, Some(b"")).value(), None, "an empty value is one");
        assert!(Version::gone(b"k", 1).is_gone() && Version::key_only(b"k").is_key_only());
    }

    /// The head has no bytes to spare.
    #[test]
    fn a_version_takes_two_words_beside_count_and_length() {
        assert_eq!(size_of::<VersionHead>() + 2 * size_of::<usize>(), VERSION_BYTES);
        assert_eq!(size_of::<Version>(), size_of::<usize>());
    }

    /// In either order, a version leaving the table unapplied is counted as long as the version
    /// waits.
    #[test]
    fn what_leaves_before_it_is_applied_is_held_until_then() {
        let (held, version) = (HeldBytes::default(), Version::pending(b"", 1, Some(&[0; 64])));
        version.leave_table(&held);
        assert_eq!(held.get(), VERSION_BYTES + 64);
        held.subtract(version.set_applied());
        assert_eq!((held.get(), version.set_applied(), version.is_applied()), (0, 0, true));
        let version = Version::pending(b"", 2, None);
        assert_eq!(version.set_applied(), 0);
        version.leave_table(&held);
        assert_eq!(held.get(), 0);
    }

    #[test]
    fn all_clones_are_one_version() {
        let version = Version::pending(b"k", 1, Some(b"a"));
        let clone = version.clone();
        assert!(!clone.is_applied() && Version::fetched(b"k", 1, None).is_applied());
        version.set_applied();
        assert!(clone.is_applied());
        assert_eq!(version.address(), clone.address());
    }
}
