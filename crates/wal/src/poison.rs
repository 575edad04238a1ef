//! Whether and why a log has stopped.

use crate::error::Poisoned;
use hyades_platform::sync::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Whether the log has stopped, and why. Set once.
#[derive(Debug, Default)]
pub(crate) struct Poison {
    /// Written once, by the poisoning thread, after `cause`. SeqCst: waiters read the flag after
    /// their announcement.
    set: AtomicBool,
    cause: OnceLock<Arc<str>>,
}

impl Poison {
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.set.load(Ordering::SeqCst)
    }

    pub(crate) fn get(&self) -> Option<Poisoned> {
        if !self.is_set() {
            return None;
        }
        let cause = self.cause.get();
        debug_assert!(cause.is_some(), "the log has stopped without a cause");
        cause.map(|cause| Poisoned { cause: Arc::clone(cause) })
    }

    /// Poisons the log; the first cause stays.
    pub(crate) fn set(&self, cause: &str) {
        let _ = self.cause.set(cause.into());
        self.set.store(true, Ordering::SeqCst);
    }
}
