//! The last refusals, for ACL LOG, and their numbers, for INFO.

use hyades_platform::sync::Unpoisoned;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The reason of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A command.
    Command,
    /// A key.
    Key,
    /// A channel.
    Channel,
    /// A wrong password.
    Login,
}

impl Reason {
    /// The word in ACL LOG.
    pub fn word(self) -> &'static str {
        match self {
            Reason::Command => "command",
            Reason::Key => "key",
            Reason::Channel => "channel",
            Reason::Login => "auth",
        }
    }
}

/// Where a refused command was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeniedIn {
    /// A request of its own.
    Request,
    /// A transaction of MULTI.
    Multi,
    /// A script or a function.
    Script,
}

impl DeniedIn {
    /// In a transaction of MULTI, or not.
    pub fn multi(is_in_multi: bool) -> DeniedIn {
        if is_in_multi { DeniedIn::Multi } else { DeniedIn::Request }
    }

    /// The word in ACL LOG.
    pub fn word(self) -> &'static str {
        match self {
            DeniedIn::Request => "toplevel",
            DeniedIn::Multi => "multi",
            DeniedIn::Script => "lua",
        }
    }
}

/// A refusal, possibly repeated.
#[derive(Clone, Debug)]
pub struct DeniedEntry {
    /// How often.
    pub count: u64,
    /// Why.
    pub reason: Reason,
    /// Where.
    pub place: DeniedIn,
    /// The command, key or channel.
    pub object: Vec<u8>,
    /// The user.
    pub user: String,
    /// The time of the last refusal, in milliseconds since 1970.
    pub at_ms: i64,
    /// The client's line of CLIENT LIST.
    pub client: String,
}

/// Equal refusals in this time are one entry.
const TOGETHER_MS: i64 = 60_000;

/// Number of entries searched for an equal entry.
const LOOKED_AT: usize = 10;

/// Number of kept bytes of an object.
const MOST_OBJECT: usize = 1_024;

/// The last refusals, and the numbers of all.
#[derive(Default)]
pub struct DeniedLog {
    entries: Mutex<VecDeque<DeniedEntry>>,
    /// By [`Reason`].
    counts: [AtomicU64; 4],
}

impl DeniedLog {
    /// Adds a refusal; `most` entries are kept.
    pub fn add(&self, mut entry: DeniedEntry, most: usize) {
        self.counts[entry.reason as usize].fetch_add(1, Relaxed);
        entry.object.truncate(MOST_OBJECT);
        let mut entries = self.entries.lock().unpoisoned();
        let is_equal = |known: &DeniedEntry| {
            (known.reason, known.place) == (entry.reason, entry.place)
                && known.object == entry.object
                && known.user == entry.user
                && (entry.at_ms - known.at_ms).abs() <= TOGETHER_MS
        };
        if let Some(at) = entries.iter().take(LOOKED_AT).position(is_equal) {
            let known = entries.remove(at).expect("it was found there");
            entry.count += known.count;
        }
        entries.push_front(entry);
        entries.truncate(most);
    }

    /// The last refusals.
    pub fn last(&self, count: usize) -> Vec<DeniedEntry> {
        self.entries.lock().unpoisoned().iter().take(count).cloned().collect()
    }

    /// Removes all entries.
    pub fn clear(&self) {
        self.entries.lock().unpoisoned().clear();
    }

    /// How often something was refused for a reason.
    pub fn count(&self, reason: Reason) -> u64 {
        self.counts[reason as usize].load(Relaxed)
    }

    /// Sets the numbers of refusals to 0.
    pub fn restart_counts(&self) {
        self.counts.iter().for_each(|count| count.store(0, Relaxed));
    }
}
