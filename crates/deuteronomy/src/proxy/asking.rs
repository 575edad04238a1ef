//! Sessions that need room ask the thread of the proxy to apply, and wait for it. They never are at
//! the data component themselves: one that hangs there holds up that thread alone, and sessions
//! return with an error after a limit of time.

use super::Proxy;
use crate::error::Error;
use hyades_platform::sync::locked;
use hyades_wal::Log;
use std::time::Duration;

/// How often a session that waits looks whether the data component hangs, or the log has stopped.
const LOOK: Duration = Duration::from_millis(10);

impl Proxy {
    /// Has the thread of the proxy apply what may be applied, and waits until it has, or until it
    /// is enough: asked after each batch. With `is_all` the horizon does not matter. Returns at
    /// once where there is no such thread any more.
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
        let mut inbox = locked(&self.inbox);
        inbox.asked += 1;
        inbox.all_asked |= is_all;
        let mine = inbox.asked;
        self.arrived.notify_one();
        while inbox.answered < mine && !inbox.closed && !is_enough() {
            let waited = self.progressed.wait_timeout(inbox, LOOK);
            inbox = waited.unwrap_or_else(|e| e.into_inner()).0;
            if let Some(poisoned) = log.poisoned() {
                return Err(hyades_wal::Error::from(poisoned).into());
            }
            self.check_call(patience)?;
        }
        Ok(())
    }

    /// A run begins: how often it was asked for, and whether all is to be applied.
    pub fn begin_run(&self) -> (u64, bool) {
        let mut inbox = locked(&self.inbox);
        (inbox.asked, std::mem::take(&mut inbox.all_asked))
    }

    /// The run has ended that was asked for as often.
    pub fn end_run(&self, asked: u64) {
        locked(&self.inbox).answered = asked;
        self.progressed.notify_all();
    }

    /// Whether its thread has ended, or is about to.
    pub fn is_closed(&self) -> bool {
        locked(&self.inbox).closed
    }

    /// # Errors
    /// [`Error::Stalled`]: the data component has been at a batch for longer than this.
    pub fn check_call(&self, patience: Duration) -> Result<(), Error> {
        let call = self.lag.call();
        match call > patience {
            true => Err(Error::Stalled(call)),
            false => Ok(()),
        }
    }
}
