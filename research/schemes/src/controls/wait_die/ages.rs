//! The timestamps of transactions under wait-die. A transaction draws its timestamp at its first
//! beginning, and keeps it until it has ended: attempt by attempt it becomes one of the oldest, and
//! at last the oldest, which never dies for another transaction.

use super::lock::MAX_TIMESTAMP;
use hyades_platform::sync::Unpoisoned;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

/// The timestamp of a session's transaction; 0 if there is none.
#[derive(Clone, Debug, Default)]
pub struct Age(Arc<AtomicU64>);

#[derive(Debug, Default)]
pub struct Ages {
    /// The last timestamp drawn.
    last: AtomicU64,
    sessions: RwLock<Vec<Age>>,
}

impl Age {
    pub fn forget(&self) {
        self.0.store(0, Ordering::SeqCst);
    }
}

impl Ages {
    pub fn add(&self) -> Age {
        let age = Age::default();
        self.sessions.write().unpoisoned().push(age.clone());
        age
    }

    pub fn remove(&self, age: &Age) {
        self.sessions.write().unpoisoned().retain(|other| !Arc::ptr_eq(&other.0, &age.0));
    }

    /// The timestamp of the session's transaction, drawn unless an earlier attempt has drawn it.
    #[inline]
    pub fn of(&self, age: &Age) -> u64 {
        match age.0.load(Ordering::Relaxed) {
            0 => self.draw(age),
            drawn => drawn,
        }
    }

    fn draw(&self, age: &Age) -> u64 {
        // A lower bound is announced before the draw: a younger transaction that looks for older
        // transactions finds the bound or the timestamp.
        age.0.store(self.last.load(Ordering::SeqCst).clamp(1, MAX_TIMESTAMP), Ordering::SeqCst);
        let drawn = (self.last.fetch_add(1, Ordering::SeqCst) + 1).min(MAX_TIMESTAMP);
        age.0.store(drawn, Ordering::SeqCst);
        drawn
    }

    /// Whether no transaction that has not ended is older. Then none ever will be.
    pub fn is_oldest(&self, timestamp: u64) -> bool {
        let sessions = self.sessions.read().unpoisoned();
        let is_older = |age: &Age| (1..timestamp).contains(&age.0.load(Ordering::SeqCst));
        timestamp < MAX_TIMESTAMP && !sessions.iter().any(is_older)
    }
}
