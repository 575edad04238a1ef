//! What a database is told as a member of a replicated log, by `hyades-replication`.

use super::Database;

impl Database {
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
