//! Versions of keys.

use super::transaction_table::{Standing, TransactionTable};
use hyades_platform::sync::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// The bytes that a version takes without its value, about.
pub(super) const VERSION_BYTES: usize = 80;

/// A value; None for a deleted key.
pub(crate) type Value = Option<Arc<[u8]>>;

/// A version of a key.
#[derive(Debug)]
pub(crate) struct Version {
    pub ts: u64,
    /// Set before its transaction is committed, and never changed.
    value: OnceLock<Value>,
    /// Whether the data component holds it, or a newer one. Then its transaction is committed, and
    /// durable with all that it depends on, or the proxy would have held it back. Set by the proxy
    /// (Release), read by those that read the version or evict it (Acquire).
    applied: AtomicBool,
    /// Whether it came from the data component. Then its transaction is perhaps of an earlier
    /// incarnation, which the transaction table does not know.
    is_fetched: bool,
}

impl Version {
    /// The version of an active transaction.
    pub fn pending(ts: u64) -> Arc<Self> {
        let (value, applied) = (OnceLock::new(), AtomicBool::new(false));
        Arc::new(Self { ts, value, applied, is_fetched: false })
    }

    pub(super) fn fetched(ts: u64, value: Value) -> Arc<Self> {
        let (value, applied) = (OnceLock::from(value), AtomicBool::new(true));
        Arc::new(Self { ts, value, applied, is_fetched: true })
    }

    /// Whether it came from the data component.
    pub(super) fn is_fetched(&self) -> bool {
        self.is_fetched
    }

    /// C4: sets the value, once.
    pub fn set(&self, value: Value) {
        let is_first = self.value.set(value).is_ok();
        debug_assert!(is_first, "the version of {} has a value already", self.ts);
    }

    /// The value of a committed version.
    pub fn value(&self) -> &Value {
        self.value.get().expect("a version has its value before its transaction is committed")
    }

    /// The data component holds it, or a newer one.
    pub fn set_applied(&self) {
        self.applied.store(true, Ordering::Release);
    }

    /// Whether it is known to be committed, durable, and held by the data component.
    pub(crate) fn is_applied(&self) -> bool {
        self.applied.load(Ordering::Acquire)
    }

    /// S1, S2: how its transaction stands. Of most it is known without the transaction table, whose
    /// entry is not in a cache any more.
    pub(super) fn standing(&self, transactions: &TransactionTable) -> Standing {
        if self.is_applied() { Standing::Committed } else { transactions.standing(self.ts) }
    }

    pub(super) fn bytes(&self) -> usize {
        let value = self.value.get().and_then(Option::as_ref);
        VERSION_BYTES + value.map_or(0, |value| value.len())
    }
}
