//! Whether and why a log has stopped.

use crate::error::{Poisoned, StopKind};
use hyades_platform::sync::{AtomicBool, Ordering};
use std::sync::OnceLock;

/// Whether the log has stopped, and why. Set once.
#[derive(Debug, Default)]
pub(crate) struct Poison {
    /// Written once, by the poisoning thread, after `why`. SeqCst: waiters read the flag after
    /// their announcement.
    set: AtomicBool,
    why: OnceLock<Poisoned>,
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
        let why = self.why.get();
        debug_assert!(why.is_some(), "the log has stopped without a cause");
        why.cloned()
    }

    /// Poisons the log; the first cause stays.
    pub(crate) fn set(&self, kind: StopKind, cause: &str) {
        let _ = self.why.set(Poisoned { cause: cause.into(), kind });
        self.set.store(true, Ordering::SeqCst);
    }
}
