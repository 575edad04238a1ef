//! Claims: a transaction in a repeated run holds, from its beginning on, the keys that other
//! transactions have kept it from writing.
//!
//! A timestamp is drawn at the beginning of a transaction. So a transaction with a long time before
//! a write of a constantly read key is too old each time, in every run. In a further run, the
//! transaction puts pending versions on these keys at once: younger readers wait for the
//! transaction, as for any writer, or are run again. Invariants:
//! - A claim is a pending version of the transaction. A claim counts for no reader: for other
//!   transactions the claiming transaction is active; the transaction itself reads past the claim.
//! - A write of the transaction replaces its claim. A claim without a write is taken out before the
//!   transaction commits or aborts, so none is ever committed.

use super::TransactionComponent;
use super::version::Version;
use super::work::Work;
use crate::error::Error;
use crate::key::Key;
use hyades_platform::broken;

/// The most keys claimed by a transaction.
const MOST_CLAIMS: usize = 8;

/// The claims of a session.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// Keys not writable in the earlier runs of the transaction.
    wanted: Vec<Key>,
    /// Keys claimed and not written so far; with hashes.
    held: Vec<(Key, u64)>,
}

impl Claims {
    /// Notes that the transaction could not write `key`.
    pub(super) fn want(&mut self, key: &[u8]) {
        if self.wanted.len() < MOST_CLAIMS && self.wanted.iter().all(|wanted| **wanted != *key) {
            self.wanted.push(key.into());
        }
    }

    /// Forgets the wanted keys: the next run is another transaction.
    pub fn forget(&mut self) {
        self.wanted.clear();
    }

    /// Whether there is a claim without a write.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Takes the claim of a key about to be written. Returns the key's hash if claimed.
    pub(super) fn take(&mut self, key: &[u8]) -> Option<u64> {
        let at = self.held.iter().position(|(claimed, _)| **claimed == *key)?;
        Some(self.held.swap_remove(at).1)
    }
}

impl TransactionComponent {
    /// Claims the keys not writable in the transaction's earlier runs. The transaction has done
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
            let version = Version::pending(&key, work.ts, None);
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
