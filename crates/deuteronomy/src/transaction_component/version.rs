//! Versions of keys.

use super::transaction_table::{Standing, TransactionTable};
use crate::held_bytes::HeldBytes;
use hyades_platform::sync::{AtomicU32, Ordering};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use triomphe::ThinArc;

/// The approximate bytes of a version without its value.
pub(super) const VERSION_BYTES: usize = 40;

/// The data component holds the version, or a newer version.
const APPLIED: u32 = 1;
/// The version has left the version table, and waits for the data component.
const LEFT: u32 = 2;

struct VersionHead {
    ts: u64,
    /// [`APPLIED`]: the data component holds the version, or a newer version. Then the version's
    /// transaction is committed, and durable with all its dependencies, or the proxy would have
    /// held the version back. Set by the proxy (Release), read by readers and evictions of the
    /// version (Acquire). [`LEFT`]: the version has left the version table before being applied.
    /// Set under the latch of its bucket, read by the proxy when setting [`APPLIED`]; both are
    /// exchanges, so one of the two sees the other's.
    state: AtomicU32,
    /// Whether the version came from the data component. Then its transaction is perhaps of an
    /// earlier incarnation, unknown to the transaction table.
    is_fetched: bool,
    /// Whether the key is deleted. Then there are no bytes.
    is_tombstone: bool,
    /// Whether the entry stands for removed versions.
    is_gone: bool,
}

/// A version of a key: a single allocation with its value; all clones are references. Nothing
/// changes but `state`; a second write of a key in a transaction makes another version.
#[derive(Clone)]
pub(crate) struct Version(ThinArc<VersionHead, u8>);

impl Version {
    fn with(ts: u64, value: Option<&[u8]>, is_fetched: bool) -> Self {
        let (state, is_tombstone) = (AtomicU32::new(u32::from(is_fetched)), value.is_none());
        let head = VersionHead { ts, state, is_fetched, is_tombstone, is_gone: false };
        Self(ThinArc::from_header_and_slice(head, value.unwrap_or_default()))
    }

    /// Makes the version of an active transaction; without a value for a deletion of the key.
    pub fn pending(ts: u64, value: Option<&[u8]>) -> Self {
        Self::with(ts, value, false)
    }

    /// Makes the version of the data component.
    pub fn fetched(ts: u64, value: Option<&[u8]>) -> Self {
        Self::with(ts, value, true)
    }

    /// Makes the stand-in of a record for versions only in the data component: the version with
    /// timestamp `ts`, and the versions behind, up to the next in the record.
    pub(super) fn gone(ts: u64) -> Self {
        let (state, is_fetched, is_tombstone) = (AtomicU32::new(APPLIED), false, true);
        let head = VersionHead { ts, state, is_fetched, is_tombstone, is_gone: true };
        Self(ThinArc::from_header_and_slice(head, &[]))
    }

    fn head(&self) -> &VersionHead {
        &self.0.header.header
    }

    /// The address of the version, for a prefetch.
    pub(super) fn address(&self) -> usize {
        self.0.ptr().addr()
    }

    pub fn ts(&self) -> u64 {
        self.head().ts
    }

    /// Whether the version came from the data component.
    pub(super) fn is_fetched(&self) -> bool {
        self.head().is_fetched
    }

    /// Whether the entry stands for versions only in the data component.
    pub(super) fn is_gone(&self) -> bool {
        self.head().is_gone
    }

    /// The value; None of a deleted key.
    pub fn bytes(&self) -> Option<&[u8]> {
        (!self.head().is_tombstone).then(|| &self.0.slice)
    }

    /// The same value, for callers that keep a reference.
    pub fn value(&self) -> Option<Value> {
        (!self.head().is_tombstone).then(|| Value(self.clone()))
    }

    /// Notes that the data component holds the version, or a newer version. Returns the bytes no
    /// longer waiting of versions removed from the version table.
    pub fn set_applied(&self) -> usize {
        match self.head().state.fetch_or(APPLIED, Ordering::AcqRel) {
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

    /// The approximate bytes of the version.
    pub(super) fn size(&self) -> usize {
        VERSION_BYTES + self.0.slice.len()
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
        &self.0.0.slice
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
    fn a_version_is_its_value_or_says_that_there_is_none() {
        for len in [0, 1, 7, 8, 100, 40_000] {
            let bytes = vec![len as u8; len];
            let version = Version::pending(7, Some(&bytes));
            assert_eq!((version.ts(), version.bytes()), (7, Some(&bytes[..])));
            assert_eq!(version.size(), VERSION_BYTES + len);
            let value = version.value().unwrap();
            assert_eq!(value, Version::fetched(1, Some(&bytes)).value().unwrap());
            drop(version);
            assert_eq!(*value, bytes[..], "the value outlives what the table had");
        }
        let deleted = Version::pending(8, None);
        assert_eq!((deleted.bytes(), deleted.value(), deleted.size()), (None, None, VERSION_BYTES));
        assert_ne!(Version::pending(1, Some(b"")).value(), None, "an empty value is one");
    }

    /// In either order, a version leaving the table unapplied is counted as long as the version
    /// waits.
    #[test]
    fn what_leaves_before_it_is_applied_is_held_until_then() {
        let (held, version) = (HeldBytes::default(), Version::pending(1, Some(&[0; 60])));
        version.leave_table(&held);
        assert_eq!(held.get(), VERSION_BYTES + 60);
        held.subtract(version.set_applied());
        assert_eq!((held.get(), version.set_applied(), version.is_applied()), (0, 0, true));
        let version = Version::pending(2, None);
        assert_eq!(version.set_applied(), 0);
        version.leave_table(&held);
        assert_eq!(held.get(), 0);
    }

    #[test]
    fn all_clones_are_one_version() {
        let version = Version::pending(1, Some(b"a"));
        let clone = version.clone();
        assert!(!clone.is_applied() && Version::fetched(1, None).is_applied());
        version.set_applied();
        assert!(clone.is_applied());
        assert_eq!(version.address(), clone.address());
    }
}
