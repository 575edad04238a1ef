//! Sessions in need of room ask the thread of the proxy to apply, and wait for the thread. Sessions
//! in need of room never call the data component themselves: a hanging call holds up the proxy's
//! thread alone, and sessions return with an error after a limit of time.

use super::Proxy;
use crate::error::Error;
use hyades_platform::sync::locked;
use hyades_wal::Log;
use std::time::Duration;

/// The pause between two looks of a waiting session for a hanging data component or a stopped log.
const LOOK: Duration = Duration::from_millis(10);

impl Proxy {
    /// Has the thread of the proxy apply all applicable records, and waits until done, or until
    /// `is_enough`: asked after each batch. With `is_all` the horizon does not matter. Returns at
    /// once where there is no thread of the proxy any more.
    ///
    /// # Errors
    /// The log has stopped; [`Error::Stalled`]: the data component has been at a batch for longer
    /// than `patience`.
    pub fn ask(
        &self,
        log: &Log,
        is_all: bool,
        patience: Duration,
        is_enough: impl Fn() -> bool,
    ) -> Result<(), Error> {
        let mut requests = locked(&self.inbox.requests);
        requests.asked += 1;
        requests.all_asked |= is_all;
        let mine = requests.asked;
        self.inbox.arrived.notify_one();
        while requests.answered < mine && !requests.closed && !is_enough() {
            let waited = self.progressed.wait_timeout(requests, LOOK);
            requests = waited.unwrap_or_else(|e| e.into_inner()).0;
            if let Some(poisoned) = log.poisoned() {
                return Err(hyades_wal::Error::from(poisoned).into());
            }
            self.check_call(patience)?;
        }
        Ok(())
    }

    /// Begins a run: returns the number of requests so far, and whether all is to be applied.
    pub fn begin_run(&self) -> (u64, bool) {
        let mut requests = locked(&self.inbox.requests);
        (requests.asked, std::mem::take(&mut requests.all_asked))
    }

    /// Ends the run begun at `asked` requests.
    pub fn end_run(&self, asked: u64) {
        locked(&self.inbox.requests).answered = asked;
        self.progressed.notify_all();
    }

    /// Whether the proxy's thread has ended, or is about to.
    pub fn is_closed(&self) -> bool {
        locked(&self.inbox.requests).closed
    }

    /// # Errors
    /// [`Error::Stalled`]: the data component has been at a batch for longer than `patience`.
    pub fn check_call(&self, patience: Duration) -> Result<(), Error> {
        let call = self.lag.call();
        match call > patience {
            true => Err(Error::Stalled(call)),
            false => Ok(()),
        }
    }
}
