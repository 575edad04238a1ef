//! The limit of memory for removed rows that cannot be freed, since a transaction that began
//! earlier may be reading the rows.

use crate::concurrency::ConcurrencyControl;
use crate::concurrency::state::TxnState;
use crate::error::{Abort, Error};
use crate::logging::LoggingProtocol;
use hyades_platform::reclaim::{self, Guard};
use std::time::{Duration, Instant};

/// At the limit, transactions pinned for this long have to end: rows that other transactions
/// removed meanwhile wait for the end.
const LONG: Duration = Duration::from_millis(100);

/// Maximum wait of a transaction at the limit for longer transactions to end.
const PATIENCE: Duration = Duration::from_secs(2);

/// Pins the thread for a transaction. A call that is logged before execution has to end as at
/// replay, however long the call runs.
#[inline(always)]
pub(super) fn pin<P: LoggingProtocol>() -> Guard {
    if P::LOGS_FIRST { reclaim::pin() } else { reclaim::pin_endable() }
}

pub(crate) struct RemovedRows {
    /// In bytes.
    pub limit: u64,
}

impl RemovedRows {
    #[inline]
    pub fn is_full(&self) -> bool {
        reclaim::waiting_bytes() > self.limit
    }

    /// Returns why a transaction cannot end as its body wants, if so: a conflict, the duration, or,
    /// for a commit of writes, the limit.
    #[inline]
    pub fn refuses<C: ConcurrencyControl<P>, P: LoggingProtocol>(
        &self,
        state: &TxnState<'_, C, P>,
        commits: bool,
    ) -> Option<Abort> {
        if state.conflict {
            Some(Abort::Conflict)
        } else if state.guard.must_end() {
            Some(Abort::RanTooLong)
        } else if commits && self.is_full() && !state.writes.is_empty() {
            reclaim::end_long_pins(LONG);
            Some(Abort::Conflict)
        } else {
            None
        }
    }

    /// Waits until there is room. The thread is not pinned.
    ///
    /// # Errors
    /// [`Error::RemovedRows`] if there is no room for long.
    #[cold]
    pub fn wait(&self) -> Result<(), Error> {
        let began = Instant::now();
        loop {
            let oldest = reclaim::end_long_pins(LONG);
            reclaim::settle();
            let bytes = reclaim::waiting_bytes();
            if bytes <= self.limit {
                return Ok(());
            }
            if began.elapsed() >= PATIENCE {
                return Err(Error::RemovedRows { bytes, seconds: oldest.as_secs_f64() });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Called after a transaction without a commit, by an abort or by a rollback, that has removed
    /// its own inserts while the limit was reached. Nothing is refused, since nothing was done: the
    /// thread waits, if allowed, before further removals.
    #[cold]
    pub fn wait_after_abort(&self, may_wait: bool) {
        if may_wait {
            // Room is found, or the time is over: the session goes on.
            let _ = self.wait();
        } else {
            reclaim::end_long_pins(LONG);
            reclaim::settle();
        }
    }
}
