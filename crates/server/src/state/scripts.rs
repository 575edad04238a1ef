//! Scripts sent by EVAL, for EVALSHA, and running scripts.

use crate::data::scripts::ScriptCounts;
use crate::script::{Flags, RunningScripts, Sha};
use hyades_platform::sync::Unpoisoned;
use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

/// The number of scripts of EVAL to keep: the last used scripts.
const MOST_SCRIPTS: usize = 500;

/// Bytes of scripts of EVAL to keep, about.
const MOST_BYTES: usize = 16 << 20;

/// A script.
#[derive(Debug)]
pub struct KnownScript {
    /// The digest of the text.
    pub sha: Sha,
    /// The flags in the first line, if the line begins with `#!`.
    pub flags: Flags,
    text: Vec<u8>,
    /// Start of the text behind a first line that begins with `#!`.
    begin: usize,
    used: AtomicU64,
}

impl KnownScript {
    /// A script of a text; only the last `length` bytes are run.
    pub fn new(sha: Sha, text: &[u8], length: usize, flags: Flags) -> KnownScript {
        let begin = text.len() - length;
        KnownScript { sha, flags, text: text.to_vec(), begin, used: AtomicU64::new(0) }
    }

    /// The text without a first line that begins with `#!`.
    pub fn body(&self) -> &[u8] {
        &self.text[self.begin..]
    }
}

/// A script to be found by its text, without the digest of the text.
struct ByText(Arc<KnownScript>);

impl Borrow<[u8]> for ByText {
    fn borrow(&self) -> &[u8] {
        &self.0.text
    }
}

impl Hash for ByText {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.text.hash(state);
    }
}

impl PartialEq for ByText {
    fn eq(&self, other: &ByText) -> bool {
        self.0.text == other.0.text
    }
}

impl Eq for ByText {}

/// How long an event loop runs a script; another thread then begins the script anew.
const SLICE: Duration = Duration::from_millis(2);

/// The scripts known to a server beside the scripts of SCRIPT LOAD.
pub struct Scripts {
    known: RwLock<Known>,
    /// Counts uses.
    clock: AtomicU64,
    /// Counts of stored scripts, libraries and functions.
    stored: Mutex<ScriptCounts>,
    /// Scripts that can be killed.
    pub running: RunningScripts,
    slice_ms: AtomicU64,
}

impl Default for Scripts {
    fn default() -> Scripts {
        let (known, clock, stored, running) = Default::default();
        Scripts {
            known,
            clock,
            stored,
            running,
            slice_ms: AtomicU64::new(SLICE.as_millis() as u64),
        }
    }
}

#[derive(Default)]
struct Known {
    scripts: HashMap<Sha, Arc<KnownScript>>,
    by_text: HashSet<ByText>,
    bytes: usize,
}

impl Scripts {
    /// How long an event loop runs a script.
    pub fn slice(&self) -> Duration {
        Duration::from_millis(self.slice_ms.load(Relaxed))
    }

    /// Makes loops run all scripts to their ends: the results do not depend on the time.
    #[cfg(feature = "torture")]
    pub fn run_whole(&self) {
        self.slice_ms.store(u64::from(u32::MAX), Relaxed);
    }

    /// A script of EVAL.
    pub fn find(&self, sha: &Sha) -> Option<Arc<KnownScript>> {
        let found = self.known.read().unpoisoned().scripts.get(sha).cloned()?;
        Some(self.used(found))
    }

    /// A script of EVAL, by its text.
    pub fn find_text(&self, text: &[u8]) -> Option<Arc<KnownScript>> {
        let found = self.known.read().unpoisoned().by_text.get(text)?.0.clone();
        Some(self.used(found))
    }

    fn used(&self, script: Arc<KnownScript>) -> Arc<KnownScript> {
        script.used.store(self.clock.fetch_add(1, Relaxed), Relaxed);
        script
    }

    /// Keeps a script of EVAL. Beyond the limits the least recently used script is removed.
    pub fn add(&self, script: Arc<KnownScript>) {
        let script = self.used(script);
        let mut known = self.known.write().unpoisoned();
        known.bytes += script.text.len();
        known.by_text.replace(ByText(script.clone()));
        if let Some(before) = known.scripts.insert(script.sha, script) {
            known.bytes -= before.text.len();
        }
        while known.scripts.len() > MOST_SCRIPTS
            || known.bytes > MOST_BYTES && known.scripts.len() > 1
        {
            let used = |script: &KnownScript| script.used.load(Relaxed);
            let oldest = known.scripts.iter().min_by_key(|(_, script)| used(script));
            let oldest = *oldest.expect("there are some").0;
            let gone = known.scripts.remove(&oldest).expect("it was found");
            known.bytes -= gone.text.len();
            known.by_text.remove(&gone.text[..]);
        }
    }

    /// Forgets all: SCRIPT FLUSH.
    pub fn flush(&self) {
        *self.known.write().unpoisoned() = Known::default();
    }

    /// Counts stored or removed scripts, libraries and functions.
    pub fn count_stored(&self, change: ScriptCounts) {
        *self.stored.lock().unpoisoned() += change;
    }

    /// Takes other counts of stored scripts, libraries and functions in place of all.
    #[cfg(feature = "replication")]
    pub fn replace_stored(&self, counts: ScriptCounts) {
        *self.stored.lock().unpoisoned() = counts;
    }

    /// The number of scripts, and their bytes. A script sent by both EVAL and SCRIPT LOAD counts
    /// twice.
    pub fn count(&self) -> (usize, usize) {
        let (known, stored) = (self.known.read().unpoisoned(), self.stored());
        (known.scripts.len() + stored.0, known.bytes + stored.1)
    }

    /// The numbers of libraries and of functions.
    pub fn count_libraries(&self) -> (usize, usize) {
        let stored = *self.stored.lock().unpoisoned();
        (as_count(stored.libraries), as_count(stored.functions))
    }

    /// The number of stored scripts, and their bytes.
    fn stored(&self) -> (usize, usize) {
        let stored = *self.stored.lock().unpoisoned();
        (as_count(stored.scripts), as_count(stored.script_bytes))
    }
}

/// A count, which may be below zero while changes of other threads are not counted yet.
fn as_count(count: i64) -> usize {
    usize::try_from(count).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scripts_used_last_are_kept() {
        let scripts = Scripts::default();
        let sha = |number: usize| {
            let mut sha = [0; 20];
            sha[..8].copy_from_slice(&number.to_le_bytes());
            sha
        };
        let add = |number: usize, bytes: usize| {
            let mut text = vec![b' '; bytes];
            text[..8].copy_from_slice(&number.to_le_bytes());
            let script = KnownScript::new(sha(number), &text, bytes, Flags::default());
            scripts.add(Arc::new(script));
            assert!(scripts.find_text(&text).is_some());
        };
        (0..MOST_SCRIPTS).for_each(|number| add(number, 10));
        assert!(scripts.find(&sha(0)).is_some());
        add(MOST_SCRIPTS, 10);
        assert!(scripts.find(&sha(0)).is_some() && scripts.find(&sha(1)).is_none());
        assert_eq!(scripts.count(), (MOST_SCRIPTS, 10 * MOST_SCRIPTS));
        add(9_999, MOST_BYTES);
        assert_eq!(scripts.count(), (1, MOST_BYTES));
        let known = scripts.known.read().unwrap();
        assert_eq!((known.scripts.len(), known.by_text.len()), (1, 1));
        drop(known);
        let stored = ScriptCounts { scripts: 2, script_bytes: 30, libraries: 1, functions: 3 };
        scripts.count_stored(stored);
        scripts.flush();
        assert_eq!(scripts.count(), (2, 30));
        assert_eq!(scripts.count_libraries(), (1, 3));
    }
}
