//! Versions of keys.

use super::transaction_table::{Standing, TransactionTable};
use crate::held_bytes::HeldBytes;
use hyades_platform::sync::{AtomicU32, Ordering};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use triomphe::ThinArc;

/// The bytes that a version takes without its value, about.
pub(super) const VERSION_BYTES: usize = 40;

/// The data component holds the version, or a newer one.
const APPLIED: u32 = 1;
/// The version has left the version table, and waits for the data component.
const LEFT: u32 = 2;

struct VersionHead {
    ts: u64,
    /// [`APPLIED`]: the data component holds it, or a newer one. Then its transaction is committed,
    /// and durable with all that it depends on, or the proxy would have held it back. Set by the
    /// proxy (Release), read by those that read the version or evict it (Acquire).
    /// [`LEFT`]: it has left the version table before that. Set under the latch of its bucket, read
    /// by the proxy when it sets the other; both are exchanges, so one of the two sees the other's.
    state: AtomicU32,
    /// Whether it came from the data component. Then its transaction is perhaps of an earlier
    /// incarnation, which the transaction table does not know.
    is_fetched: bool,
    /// Whether the key is deleted. Then there are no bytes.
    is_tombstone: bool,
    /// Whether it stands for versions that have left.
    is_gone: bool,
}

/// A version of a key: one allocation with its value, of which all clones are references. Nothing
/// of it changes but `applied`; a transaction that writes a key again has another version.
#[derive(Clone)]
pub(crate) struct Version(ThinArc<VersionHead, u8>);

impl Version {
    fn with(ts: u64, value: Option<&[u8]>, is_fetched: bool) -> Self {
        let (state, is_tombstone) = (AtomicU32::new(u32::from(is_fetched)), value.is_none());
        let head = VersionHead { ts, state, is_fetched, is_tombstone, is_gone: false };
        Self(ThinArc::from_header_and_slice(head, value.unwrap_or_default()))
    }

    /// That of an active transaction; without a value, of a key that it deletes.
    pub fn pending(ts: u64, value: Option<&[u8]>) -> Self {
        Self::with(ts, value, false)
    }

    /// That of the data component.
    pub fn fetched(ts: u64, value: Option<&[u8]>) -> Self {
        Self::with(ts, value, true)
    }

    /// Stands in a record for versions that are only in the data component: the one with this
    /// timestamp, and those behind it up to the next in the record.
    pub(super) fn gone(ts: u64) -> Self {
        let (state, is_fetched, is_tombstone) = (AtomicU32::new(APPLIED), false, true);
        let head = VersionHead { ts, state, is_fetched, is_tombstone, is_gone: true };
        Self(ThinArc::from_header_and_slice(head, &[]))
    }

    fn head(&self) -> &VersionHead {
        &self.0.header.header
    }

    /// Where it lies, for a prefetch.
    pub(super) fn address(&self) -> usize {
        self.0.ptr().addr()
    }

    pub fn ts(&self) -> u64 {
        self.head().ts
    }

    /// Whether it came from the data component.
    pub(super) fn is_fetched(&self) -> bool {
        self.head().is_fetched
    }

    /// Whether it stands for versions that are only in the data component.
    pub(super) fn is_gone(&self) -> bool {
        self.head().is_gone
    }

    /// The value; None of a deleted key.
    pub fn bytes(&self) -> Option<&[u8]> {
        (!self.head().is_tombstone).then(|| &self.0.slice)
    }

    /// The same, for those that keep it.
    pub fn value(&self) -> Option<Value> {
        (!self.head().is_tombstone).then(|| Value(self.clone()))
    }

    /// The data component holds it, or a newer one. Returns the bytes that do not wait any more of
    /// what has left the version table.
    pub fn set_applied(&self) -> usize {
        match self.head().state.fetch_or(APPLIED, Ordering::AcqRel) {
            LEFT => self.size(),
            _ => 0,
        }
    }

    /// It leaves the version table. What waits for the data component is counted in `held` from now
    /// on. Added before, so that what the proxy subtracts is there.
    pub(super) fn leave_table(&self, held: &HeldBytes) {
        if self.is_applied() {
            return;
        }
        held.add(self.size());
        if self.head().state.fetch_or(LEFT, Ordering::AcqRel) & APPLIED != 0 {
            held.subtract(self.size());
        }
    }

    /// Whether it is known to be committed, durable, and held by the data component.
    pub(crate) fn is_applied(&self) -> bool {
        self.head().state.load(Ordering::Acquire) & APPLIED != 0
    }

    /// S1, S2: how its transaction stands. Of most it is known without the transaction table, whose
    /// entry is not in a cache any more.
    pub(super) fn standing(&self, transactions: &TransactionTable) -> Standing {
        if self.is_applied() { Standing::Committed } else { transactions.standing(self.ts()) }
    }

    /// The bytes that it takes, about.
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

/// A value that was read. It is shared with the database: a clone is one more reference, and no
/// copy. The memory is free when the database and all clones have dropped it.
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

    /// Whichever comes first, a version that leaves while it waits is counted as long as it does.
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
