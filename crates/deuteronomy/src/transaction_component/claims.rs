//! Claims: a transaction that is run again has the keys, from its beginning on, that others have
//! kept it from writing.
//!
//! Its timestamp is drawn when it begins. So one that takes long before it writes a key that others
//! read all the time is too old each time, however often it is run. When it is run once more after
//! that, it puts pending versions on such keys at once: younger readers wait for it, as for any
//! that has written, or are run again. Invariants:
//! - A claim is a pending version of the transaction. It counts for no reader: for others the
//!   transaction is active; the transaction itself reads past it.
//! - What the transaction writes takes the place of its claim. A claim without a write is taken out
//!   before the transaction commits or aborts, so none is ever committed.

use super::TransactionComponent;
use super::version::Version;
use super::work::Work;
use crate::error::Error;
use crate::key::Key;
use hyades_platform::broken;

/// The most keys that a transaction claims.
const MOST_CLAIMS: usize = 8;

/// The claims of a session.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// Keys that its transaction could not write when it was run before.
    wanted: Vec<Key>,
    /// Those that it has claimed, and has not written so far; with their hashes.
    held: Vec<(Key, u64)>,
}

impl Claims {
    /// The transaction could not write this key.
    pub(super) fn want(&mut self, key: &[u8]) {
        if self.wanted.len() < MOST_CLAIMS && self.wanted.iter().all(|wanted| **wanted != *key) {
            self.wanted.push(key.into());
        }
    }

    /// What is run next is another transaction.
    pub fn forget(&mut self) {
        self.wanted.clear();
    }

    /// Whether there is a claim without a write.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// The transaction writes this key. Returns its hash if it has claimed it.
    pub(super) fn take(&mut self, key: &[u8]) -> Option<u64> {
        let at = self.held.iter().position(|(claimed, _)| **claimed == *key)?;
        Some(self.held.swap_remove(at).1)
    }
}

impl TransactionComponent {
    /// Claims the keys that the transaction could not write when it was run before. It has done
    /// nothing yet.
    ///
    /// # Errors
    /// As for a write.
    pub fn claim(&self, work: &mut Work) -> Result<(), Error> {
        for nth in 0..work.claims.wanted.len() {
            let key = work.claims.wanted[nth].clone();
            self.make_room_for(work)?;
            if work.claims.is_empty() {
                self.timestamps.announce_writing(work.at, work.ts);
            }
            let version = Version::pending(work.ts, None);
            let (hash, oldest_active) =
                (self.versions.hasher.hash(&key), self.oldest_active_lately(work));
            if let Err(abort) = self.versions.write(&key, hash, &version, oldest_active) {
                return Err(work.fail(abort));
            }
            work.claims.held.push((key, hash));
        }
        Ok(())
    }

    /// Takes out the claims without a write.
    pub(super) fn release_claims(&self, work: &mut Work) {
        for (key, hash) in work.claims.held.drain(..) {
            if !broken!(KeepClaims) {
                self.versions.remove(&key, hash, work.ts);
            }
        }
    }
}
