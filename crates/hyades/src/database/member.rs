//! What a database is told as a member of a replicated log, by `hyades-replication`.

use super::Database;
use hyades_platform::epoch::EpochNumber;

impl Database {
    /// Returns the current epoch.
    #[doc(hidden)]
    pub fn epoch(&self) -> u64 {
        self.shared.engine.epoch().current().0
    }

    /// Raises the limit of epochs set by [`Builder::epoch_limit`]; a lower limit changes nothing,
    /// nor does any limit where none was set. What waits at the limit goes on.
    ///
    /// [`Builder::epoch_limit`]: crate::Builder::epoch_limit
    #[doc(hidden)]
    pub fn raise_epoch_limit(&self, limit: u64) {
        self.shared.engine.epoch().raise_limit(EpochNumber(limit));
    }

    /// Tells the database that another process is primary, as incarnation `by` of the replicated
    /// log. From now on nothing is answered: transactions, snapshots and tickets end with
    /// [`Error::Demoted`], but a transaction that has written, and is not known to be stored, ends
    /// with [`Error::OutcomeUnknown`].
    ///
    /// [`Error::Demoted`]: crate::Error::Demoted
    /// [`Error::OutcomeUnknown`]: crate::Error::OutcomeUnknown
    #[doc(hidden)]
    pub fn demote(&self, by: u32) {
        self.shared.log.iter().for_each(|log| log.demote(by));
    }
}
